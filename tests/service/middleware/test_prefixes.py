"""The API below a path, by uvicorn's root path and by a trusted proxy."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.explorer.routes import FOLDER
from service.schemas.addresses import normal_prefix, root_path
from tests.conftest import emptied
from tests.service.conftest import connected_app, serving
from worker.base.settings import SettingsError
from worker.stores import Stores

if TYPE_CHECKING:
    from worker.base.settings import Settings

SHEET = {"name": "s_curve", "n": 50}
LOCAL = "127.0.0.1"


@pytest.fixture(scope="module")
def open_settings(server_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings without keys."""
    return replace(emptied(server_settings, tmp_path_factory.mktemp("prefixes")), auth="off")


@pytest.mark.parametrize(
    ("text", "prefix"),
    [
        ("", ""), ("/", ""), ("/glle", "/glle"), ("/glle/", "/glle"), ("glle", "/glle"), (" /glle ", "/glle"),
        ("/a/b", "/a/b"), ("a/b/", "/a/b"), ("/a-b_c.d~e", "/a-b_c.d~e"), ("/v1.2", "/v1.2"),
        ("//evil.example", None), ("///a", None), ("/a//b", None), ("/a/../b", None), ("/..", None), ("/.", None),
        ("http://evil.example", None), ("/a?b", None), ("/a#b", None), ("/a%2fb", None), ("/a b", None),
        ("/\\evil.example", None), ("/a\r\nX: y", None), ("/ä", None), ("/a" * 9, None), ("/" + "a" * 101, None),
    ],
)  # fmt: skip
def test_a_prefix_is_a_path_of_this_host(text: str, prefix: str | None) -> None:
    """A prefix is a plain path; slashes at its ends do not matter."""
    assert normal_prefix(text) == prefix
    if prefix is None:
        with pytest.raises(SettingsError, match="GLLE_ROOT_PATH"):
            root_path(text)
    else:
        assert root_path(text) == prefix


@given(st.text(alphabet="/ab.%\\:?# ä", max_size=12))
def test_a_prefix_before_a_path_is_a_path(text: str) -> None:
    """A normal prefix is normal, and the path below it never names a host."""
    prefix = normal_prefix(text)
    if prefix is not None:
        assert normal_prefix(prefix) == prefix
        assert re.fullmatch(r"(/[A-Za-z0-9._~-]+)*/v1", prefix + "/v1")
        assert not httpx.URL(f"http://host{prefix}/v1").path.startswith("//")


def links_in(value: Any) -> list[str]:
    """Return all links in the JSON of an answer."""
    if isinstance(value, list):
        return [link for each in value for link in links_in(each)]
    if not isinstance(value, dict):
        return []
    links = value.get("links") or {}
    return [*links.values(), *(link for name, each in value.items() if name != "links" for link in links_in(each))]


def check_below(client: httpx.Client, prefix: str, removed: str, **headers: str) -> None:
    """Check that all links and locations are below a prefix, and lead to the API once a proxy has removed a part."""

    def follow(link: str) -> httpx.Response:
        assert link.startswith(f"{prefix}/v1/") or link in {
            f"{prefix}{path}" for path in ("/", "/docs", "/openapi.json")
        }
        return client.get(link.removeprefix(removed), headers=headers)

    made = client.post("/v1/datasets/synthetic", json=SHEET, headers=headers).raise_for_status()
    assert follow(made.headers["location"]).json()["id"] == made.json()["id"]
    job = client.post("/v1/posteriors", json={"dataset": made.json()["id"]}, headers=headers).raise_for_status()
    assert follow(job.headers["location"]).json()["id"] == job.json()["id"]
    start = client.get("/", headers={"accept": "application/json", **headers})
    described = [client.get(path, headers=headers) for path in ("/v1/datasets", "/v1/jobs", "/v1/methods/pca")]
    links = [link for answer in (made, job, start, *described) for link in links_in(answer.json())]
    assert len(links) > 12
    for link in links:
        assert follow(link).status_code in {200, 202, 405, 409}, link
    contract = client.get("/openapi.json", headers=headers).json()
    assert contract.get("servers", [{"url": ""}]) == [{"url": prefix}]
    assert "href=openapi.json" in client.get("/docs", headers=headers).text


@pytest.mark.parametrize("root", ["", "/glle", "/a/b"])
def test_links_are_below_the_root_path(open_settings: Settings, root: str) -> None:
    """The proxy removes the path; uvicorn's option names it."""
    with serving(connected_app(Stores.connect(open_settings)), root) as client:
        check_below(client, root, root)
        assert client.get("/livez").status_code == 200


def test_links_are_below_the_prefix_of_a_trusted_proxy(open_settings: Settings) -> None:
    """Several proxies give several prefixes; what is no prefix is ignored."""
    settings = replace(open_settings, trusted_proxies=LOCAL)
    with serving(connected_app(Stores.connect(settings)), "/root") as client:
        for sent, prefix in (("/glle/", "/glle"), ("/a,/b", "/a/b"), ("/", ""), ("//evil.example", "/root")):
            check_below(client, prefix, prefix, **{"X-Forwarded-Prefix": sent})
        check_below(client, "/root", "/root")


def test_the_prefix_of_any_other_client_is_ignored(open_settings: Settings) -> None:
    """The prefix that an untrusted client sends is ignored, because a cached answer could lead others elsewhere."""
    with serving(connected_app(Stores.connect(open_settings))) as client:
        check_below(client, "", "", **{"X-Forwarded-Prefix": "/glle"})


def test_the_page_names_no_address_from_the_root() -> None:
    """The files of the page are relative, and its scripts ask through `address`, which adds the path of the page."""
    page = (FOLDER / "index.html").read_text("utf-8")
    assert not re.findall(r"""(?:href|src)=["']?/""", page)
    for path in (FOLDER / "js").rglob("*.js"):
        text = path.read_text("utf-8")
        assert not re.findall(r"""(?:href|src)="/""", text), path
        assert not re.findall(r"""(?:fetch|import)\(\s*['"`]/""", text), path
        if "fetch(" in text.replace("fetch()", "") or "XMLHttpRequest()" in text:
            assert path.name == "api.js", path
