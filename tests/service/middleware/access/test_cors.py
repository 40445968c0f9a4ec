"""CORS."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from service.app import create_app
from tests.service.middleware.access.origins import LAB, allowing
from worker.base.settings import SettingsError
from worker.stores import Stores

if TYPE_CHECKING:
    import httpx


def test_origins_are_refused_by_default(client: httpx.Client) -> None:
    """Without the setting no response has a CORS header, and a preflight is 405."""
    assert not [name for name in client.get("/livez", headers={"origin": LAB}).headers if "access-control" in name]
    preflight = {"origin": LAB, "access-control-request-method": "POST"}
    assert client.options("/v1/datasets", headers=preflight).status_code == 405


def test_named_origins_read_the_headers_that_matter(stores: Stores) -> None:
    """Errors and 304 have the headers, too; other origins get none."""
    with allowing(stores.settings, f"{LAB}, http://localhost:3000") as client:
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


def test_a_star_allows_every_origin(stores: Stores) -> None:
    """`*` allows every origin, without credentials."""
    with allowing(stores.settings, "*") as client:
        answer = client.get("/livez", headers={"origin": LAB})
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("origins", ["localhost:3000", "https://a.org/page", "https://*.a.org", f"{LAB},x"])
def test_invalid_origins_are_refused_at_the_start(stores: Stores, origins: str) -> None:
    """The message shows a valid origin."""
    with pytest.raises(SettingsError, match="Give scheme, host and port"):
        create_app(Stores.connect(replace(stores.settings, cors_origins=origins)))
