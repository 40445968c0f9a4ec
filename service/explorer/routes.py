"""The explorer: a page on which people look at embeddings, and the files it is made of."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, Field

import glle_engine
from service.explorer.static_files import INDEX, files
from service.schemas.problems import documented
from worker.base.problems import refuse

router = APIRouter(tags=["service"])

_JSON = "application/json"
_HTML = "text/html"


class StartOut(BaseModel):
    """Where to begin, for a program."""

    name: str = Field(examples=["glle"])
    version: str = Field(description="Of the engine.")
    links: dict[str, str] = Field(description="Where to go from here.")


@router.get(
    "/",
    summary="The explorer",
    response_class=Response,
    responses={
        200: {
            "description": "The page; for a program that accepts JSON alone, where to begin.",
            "content": {_HTML: {"schema": {"type": "string"}}},
            "model": StartOut,
        },
        304: {"description": "The client's copy is good."},
        **documented(),
    },
)
def root(request: Request) -> Response:
    """Show the page on which data sets are embedded and looked at; programs get links by `Accept: application/json`."""
    accepted = request.headers.get("accept", "")
    if _JSON in accepted and _HTML not in accepted:
        links = {"explorer": "/", "docs": "/docs", "contract": "/openapi.json", "info": "/v1/info"}
        body = StartOut(name="glle", version=glle_engine.__version__, links=links).model_dump_json()
        return Response(body, headers={"Vary": "Accept", "Cache-Control": "no-cache"}, media_type=_JSON)
    return files()[INDEX].response(request)


@router.get("/explorer/{path:path}", include_in_schema=False)
def page_file(request: Request, path: Annotated[str, Path()]) -> Response:
    """Return a file of the page."""
    if (file := files().get(path)) is None:
        raise refuse("no-such-route", 404, f"The page has no file {path[:100]!r}.", "Start at /.")
    return file.response(request)
