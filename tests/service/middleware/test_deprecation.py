"""Routes that are marked as deprecated."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fastapi import APIRouter, FastAPI, Response

from service.app import ROUTERS
from service.middleware import deprecation
from service.middleware.deprecation import Deprecations, deprecated
from service.middleware.head import HeadMiddleware
from service.schemas import docs_page, problems
from tests.service.conftest import serving
from worker.base.problems import refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

SINCE = datetime(2026, 1, 2, tzinfo=UTC)
SUNSET = SINCE + timedelta(days=400)
POLICY = Path(__file__).parents[3] / "docs" / "api-policy.md"


def tiny_app() -> FastAPI:
    """Return an app of an old route and a new one."""
    router = APIRouter(prefix="/v1", tags=["tiny"])

    @router.get("/old/{id}", summary="Old", **deprecated(SINCE, SUNSET, "/v1/new"))
    def old(id: str) -> Response:  # noqa: A002 # the name in the path
        """Answer, or refuse."""
        if id == "none":
            raise refuse("not-there", 404, "There is none.", "Look elsewhere.")
        return Response("old")

    @router.get("/new", summary="New")
    def new() -> str:
        """Answer."""
        return "new"

    app = FastAPI(title="tiny", description="Tiny.")
    app.include_router(router)
    problems.install(app)
    app.add_middleware(Deprecations)
    app.add_middleware(HeadMiddleware)
    return app


@pytest.fixture(scope="module")
def tiny() -> Iterator[httpx.Client]:
    """A client of the tiny app."""
    with serving(tiny_app()) as client:
        yield client


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "1", 200), ("GET", "none", 404), ("HEAD", "1", 200)])
def test_every_answer_of_a_marked_route_says_so(tiny: httpx.Client, method: str, path: str, status: int) -> None:
    """Deprecation as RFC 9745 writes it, Sunset as RFC 8594 does, and where to go; errors, too."""
    answer = tiny.request(method, f"/v1/old/{path}")
    assert answer.status_code == status
    assert answer.headers["deprecation"] == f"@{int(SINCE.timestamp())}"
    assert parsedate_to_datetime(answer.headers["sunset"]) == SUNSET
    assert answer.headers["link"] == '</docs>; rel="deprecation", </v1/new>; rel="successor-version"'


def test_other_routes_say_nothing(tiny: httpx.Client) -> None:
    """Neither those that stay nor those that are not there."""
    for path in ("/v1/new", "/v1/nowhere"):
        assert not {"deprecation", "sunset", "link"} & set(tiny.get(path).headers)


def test_the_contract_and_the_page_say_it() -> None:
    """OpenAPI has `deprecated: true`, with the dates, and the page a word."""
    contract = tiny_app().openapi()
    operation = contract["paths"]["/v1/old/{id}"]["get"]
    assert operation["deprecated"] is True
    assert operation["x-glle-deprecation"]["Deprecation"] == f"@{int(SINCE.timestamp())}"
    assert "deprecated" not in contract["paths"]["/v1/new"]["get"]
    assert docs_page.page(contract).count("(deprecated)") == 1


def test_there_is_time_to_move() -> None:
    """Less notice than the policy promises, and times without a zone, are refused."""
    with pytest.raises(ValueError, match="180 days"):
        deprecated(SINCE, SINCE + timedelta(days=179))
    with pytest.raises(ValueError, match="zone"):
        deprecated(SINCE.replace(tzinfo=None), SUNSET)
    assert f"{deprecation.NOTICE.days} days" in POLICY.read_text(encoding="utf-8")


def test_marks_are_found_where_the_app_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A marked route of any room brings the headers into the app; today there is none."""
    assert not any(deprecation.is_marked(route) for room in ROUTERS for route in room.router.routes)
    router = APIRouter()
    router.get("/x", **deprecated(SINCE, SUNSET))(lambda: None)
    assert [deprecation.is_marked(route) for route in router.routes] == [True]
