"""Web pages of other origins: CORS, and a browser of the machine of a service without keys."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from service.app import create_app
from service.cli import doctor
from service.middleware.access_policy import AccessPolicy
from tests.service.conftest import check_problem
from tests.service.tenants import bearer, serve_stores
from worker.base.settings import Settings, SettingsError
from worker.storage import api_keys
from worker.stores import Stores

if TYPE_CHECKING:
    import httpx


LAB = "https://lab.example.org"
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
    """No method reaches a route: a GET of a draw computes. A link leads to the pages, which have no data."""
    headers = of(client, headers)
    form = client.post("/v1/datasets", files={"file": ("a.csv", "a,b\n1,2\n3,4\n", "text/csv")}, headers=headers)
    answers = [upload(client, headers), form, client.delete("/v1/datasets/ds_1", headers=headers)]
    for answer in [*answers, *(client.get(path, headers=headers) for path in READS)]:
        assert "GLLE_CORS_ORIGINS" in check_problem(answer, 403, "foreign-origin")["remedy"]
    assert not list(stores.datasets.all())
    for path in ("/", "/docs", "/openapi.json", "/livez"):
        assert client.get(path, headers={**headers, "sec-fetch-mode": "navigate"}).status_code == 200
    assert "foreign-origin" not in client.get("/readyz", headers=headers).text


@pytest.mark.parametrize("headers", OWN.values(), ids=OWN)
def test_own_pages_and_programs_are_admitted(client: httpx.Client, headers: dict[str, str]) -> None:
    """The explorer, an entered address and every program that is no browser work without keys."""
    headers = of(client, headers)
    assert upload(client, headers).status_code == 201
    assert client.get("/v1/info", headers=headers).status_code == 200


def test_named_origins_are_admitted(stores: Stores) -> None:
    """Origins of GLLE_CORS_ORIGINS are admitted; `*` admits every origin, also of a file, without credentials."""
    with serve_stores(stores, cors_origins=LAB) as client:
        assert upload(client, {"origin": LAB, "sec-fetch-site": "cross-site"}).status_code == 201
        assert upload(client, {"origin": "https://other.example.org"}).status_code == 403
        assert upload(client, {"sec-fetch-site": "cross-site"}).status_code == 403
        assert client.get("/v1/info").headers["cross-origin-resource-policy"] == "cross-origin"
    with serve_stores(stores, cors_origins="*") as client:
        assert upload(client, {"origin": "null", "sec-fetch-site": "cross-site"}).status_code == 200
        answer = client.get("/livez", headers={"origin": LAB})
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in answer.headers


def test_a_key_proves_the_client(stores: Stores, guarded_client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page cannot add a key that it does not have; without keys by GLLE_AUTH=off the origin counts."""
    monkeypatch.setattr(api_keys, "KEY_CHECK_SECONDS", 0.0)
    with serve_stores(stores, auth="off") as client:
        assert upload(client, FOREIGN["cross-site"]).status_code == 403
        assert upload(client, {"host": "glle.example.org"}).status_code == 201
    assert upload(guarded_client, {**FOREIGN["cross-site"], **bearer(stores, "default")}).status_code == 200


def test_other_origins_do_not_embed_responses(client: httpx.Client, guarded_client: httpx.Client) -> None:
    """Problems have the header Cross-Origin-Resource-Policy, too; pages of named origins may embed pictures."""
    for each, path in ((client, "/"), (client, "/v1/info"), (client, "/nowhere"), (guarded_client, "/v1/info")):
        assert each.get(path).headers["cross-origin-resource-policy"] == "same-origin"


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


def test_origins_are_refused_by_default(client: httpx.Client) -> None:
    """Without the setting no response has a CORS header, and a preflight is 405."""
    assert not [name for name in client.get("/livez", headers={"origin": LAB}).headers if "access-control" in name]
    preflight = {"origin": LAB, "access-control-request-method": "POST"}
    assert client.options("/v1/datasets", headers=preflight).status_code == 405


def test_named_origins_read_the_headers_that_matter(stores: Stores) -> None:
    """Errors and 304 have the headers, too; other origins get none."""
    with serve_stores(stores, cors_origins=f"{LAB}, http://localhost:3000") as client:
        for path, status in (("/v1/info", 200), ("/nowhere", 404)):
            answer = client.get(path, headers={"origin": LAB})
            assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (status, LAB)
            exposed = set(answer.headers["access-control-expose-headers"].split(", "))
            assert exposed >= {
                "ETag", "Location", "Retry-After", "X-Request-Id", "Glle-Scale", "Glle-Notes", "Server-Timing",
                "Content-Range",
            }  # fmt: skip
        preflight_headers = {"access-control-request-method": "PATCH", "access-control-request-headers": "content-type"}
        preflight = client.options("/v1/datasets/x", headers={"origin": LAB, **preflight_headers})
        assert (preflight.status_code, "PATCH" in preflight.headers["access-control-allow-methods"]) == (200, True)
        other = client.get("/v1/info", headers={"origin": "https://other.example.org"})
        assert "access-control-allow-origin" not in other.headers
        assert client.options("/v1/datasets/x", headers={"origin": "null", **preflight_headers}).status_code == 400


@pytest.mark.parametrize("origins", ["localhost:3000", "https://a.org/page", "https://*.a.org", f"{LAB},x"])
def test_invalid_origins_are_refused_at_the_start(stores: Stores, origins: str) -> None:
    """The message shows a valid origin."""
    with pytest.raises(SettingsError, match="Give scheme, host and port"):
        create_app(Stores.connect(replace(stores.settings, cors_origins=origins)))
