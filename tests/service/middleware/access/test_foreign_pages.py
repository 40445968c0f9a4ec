"""Web pages of other origins, in a browser of the machine of a service without keys."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from service.cli import doctor
from service.middleware.access_policy import AccessPolicy
from tests.service.middleware.access.origins import LAB, allowing
from tests.service.tenants import bearer, served
from worker.base.settings import Settings
from worker.storage import api_keys

if TYPE_CHECKING:
    import httpx

    from worker.stores import Stores

FOREIGN = {
    "another host": {"origin": LAB},
    "another port": {"origin": "http://127.0.0.1:1"},
    "another scheme": {"origin": "https://{host}"},
    "a file or a sandboxed frame": {"origin": "null"},
    "cross-site": {"origin": LAB, "sec-fetch-site": "cross-site"},
    "an image or a link of another site": {"sec-fetch-site": "cross-site"},
    "an image of another port": {"sec-fetch-site": "same-site"},
    "a same-site form with a forged origin": {"sec-fetch-site": "same-site", "origin": "http://{host}"},
}
OWN = {
    "no browser": {},
    "the explorer": {"sec-fetch-site": "same-origin", "origin": "http://{host}"},
    "the explorer's reads": {"sec-fetch-site": "same-origin"},
    "an address that the user entered": {"sec-fetch-site": "none"},
    "an old browser": {"origin": "http://{host}"},
}
READS = ("/v1/info", "/v1/posteriors/post_1/draws/0", "/metrics", "/nowhere")


def of(client: httpx.Client, headers: dict[str, str]) -> dict[str, str]:
    """Return headers with the address of the service filled in."""
    return {name: value.format(host=client.base_url.netloc.decode()) for name, value in headers.items()}


def upload(client: httpx.Client, headers: dict[str, str]) -> httpx.Response:
    """Upload as a page can without a preflight."""
    return client.post("/v1/datasets", content="a,b\n1,2\n3,4\n", headers={**headers, "content-type": "text/plain"})


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
def test_pages_of_other_origins_are_refused_without_keys(
    client: httpx.Client, stores: Stores, headers: dict[str, str]
) -> None:
    """No method reaches a route: a GET of a draw computes."""
    headers = of(client, headers)
    form = client.post("/v1/datasets", files={"file": ("a.csv", "a,b\n1,2\n3,4\n", "text/csv")}, headers=headers)
    answers = [upload(client, headers), form, client.delete("/v1/datasets/ds_1", headers=headers)]
    for answer in [*answers, *(client.get(path, headers=headers) for path in READS)]:
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:glle:problem:foreign-origin")
        assert "GLLE_CORS_ORIGINS" in answer.json()["remedy"]
    assert not list(stores.datasets.all())


@pytest.mark.parametrize("headers", OWN.values(), ids=OWN)
def test_own_pages_and_programs_are_admitted(client: httpx.Client, headers: dict[str, str]) -> None:
    """The explorer, an entered address and every program that is no browser work without keys."""
    headers = of(client, headers)
    assert upload(client, headers).status_code == 201
    assert client.get("/v1/info", headers=headers).status_code == 200


def test_a_link_leads_to_the_pages(client: httpx.Client) -> None:
    """The explorer, its files and the documentation have no data; readiness shows its status alone."""
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    for path in ("/", "/docs", "/openapi.json", "/livez"):
        assert client.get(path, headers=headers).status_code == 200
    assert "foreign-origin" not in client.get("/readyz", headers=headers).text


def test_named_origins_are_admitted(stores: Stores) -> None:
    """An origin of GLLE_CORS_ORIGINS, and with `*` every one, also of a file."""
    with allowing(stores.settings, LAB) as client:
        assert upload(client, {"origin": LAB, "sec-fetch-site": "cross-site"}).status_code == 201
        assert upload(client, {"origin": "https://other.example.org"}).status_code == 403
        assert upload(client, {"sec-fetch-site": "cross-site"}).status_code == 403
    with allowing(stores.settings, "*") as client:
        assert upload(client, {"origin": "null", "sec-fetch-site": "cross-site"}).status_code == 200


def test_a_key_proves_the_client(stores: Stores, guarded: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page cannot add a key that it does not have; without keys by GLLE_AUTH=off the origin counts."""
    monkeypatch.setattr(api_keys, "LOOK_SECONDS", 0.0)
    with served(stores, auth="off") as client:
        assert upload(client, FOREIGN["cross-site"]).status_code == 403
        assert upload(client, {"host": "glle.example.org"}).status_code == 201
    assert upload(guarded, {**FOREIGN["cross-site"], **bearer(stores, "default")}).status_code == 200


def test_other_origins_do_not_embed_responses(client: httpx.Client, guarded: httpx.Client, stores: Stores) -> None:
    """Also problems have the header; pages of named origins may embed pictures."""
    for each, path in ((client, "/"), (client, "/v1/info"), (client, "/nowhere"), (guarded, "/v1/info")):
        assert each.get(path).headers["cross-origin-resource-policy"] == "same-origin"
    with allowing(stores.settings, LAB) as open_client:
        assert open_client.get("/v1/info").headers["cross-origin-resource-policy"] == "cross-origin"


def test_every_page_without_keys_is_warned_of() -> None:
    """`*` admits every page until a key exists; `glle doctor` and the start of the service report it."""
    settings = Settings(cors_origins="*")
    assert "until a key exists" in AccessPolicy(settings).page_warning
    assert "until" not in AccessPolicy(replace(settings, auth="off")).page_warning
    assert (doctor.access(settings).state, doctor.access(Settings()).state) == ("warning", "ok")
    assert not AccessPolicy(replace(settings, cors_origins=LAB)).page_warning
    assert not AccessPolicy(replace(settings, auth="required")).page_warning
    refused = doctor.access(replace(settings, host="192.0.2.1", auth="off"))
    assert (refused.state, "GLLE_AUTH=off" in refused.detail) == ("problem", True)
