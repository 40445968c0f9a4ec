"""Routes for the explorer page, its files, and the JSON Schemas of its forms.

The Content-Security-Policy of these files keeps the browser from sending requests to other hosts.
"""

import json
from functools import cache
from pathlib import Path
from typing import Annotated

import fastapi
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

import glle_engine
from service.encoding.static import REVALIDATE, StaticBody
from service.schemas.addresses import address
from service.schemas.problems import failures
from service.schemas.resources import DrawsIn, SyntheticIn
from worker.base.problems import refuse

router = APIRouter(tags=["service"])

FOLDER = Path(__file__).parent
INDEX = "index.html"
# Request bodies that the page shows as forms, from their JSON Schemas in the file `SCHEMAS`. The forms of the methods
# are made from the schemas in GET /v1/methods.
FORMS = (DrawsIn, SyntheticIn)
SCHEMAS = "forms.json"  # the OpenAPI contract also has these schemas, but is thirty times as large
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".csv": "text/csv; charset=utf-8",
    ".json": "application/json",
}
# The plotting library compiles its WebGL commands at run time, which needs 'unsafe-eval'; without it the page draws in
# two dimensions. Scripts come from this host alone, and none is inline.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-eval'; img-src 'self' blob: data:; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_YEAR = "public, max-age=31536000, immutable"  # for files whose name contains the version
_JSON = "application/json"
_HTML = "text/html"


@cache
def files() -> dict[str, StaticBody]:
    """Return the files of the page by their paths below this package, and the JSON Schemas of its forms (`SCHEMAS`)."""
    paths = sorted(path for path in FOLDER.rglob("*") if path.suffix in MEDIA_TYPES)
    bodies = {path.relative_to(FOLDER).as_posix(): _of(path, path.read_bytes()) for path in paths}
    schemas = {model.__name__: model.model_json_schema() for model in FORMS}
    return bodies | {SCHEMAS: _of(FOLDER / SCHEMAS, json.dumps(schemas).encode())}


def _of(path: Path, body: bytes) -> StaticBody:
    """Return a file of the page as a body with headers for its media type, caching and content security."""
    headers = {
        "Content-Type": MEDIA_TYPES[path.suffix],
        "Cache-Control": _YEAR if path.parent.name == "vendor" else REVALIDATE,
        "Content-Security-Policy": POLICY,
        "Referrer-Policy": "no-referrer",
    }
    return StaticBody.of(body, headers)


class StartOut(BaseModel):
    """Links to the parts of the API."""

    name: str = Field(examples=["glle"])
    version: str = Field(description="Version of the engine.")
    links: dict[str, str] = Field(description="Paths of the explorer, the documentation, the contract and the info.")


@router.get(
    "/",
    summary="The explorer",
    response_class=Response,
    responses={
        200: {
            "description": "The page; for a program that accepts JSON alone, the entry points.",
            "content": {_HTML: {"schema": {"type": "string"}}},
            "model": StartOut,
        },
        304: {"description": "The client's copy is current."},
        **failures(),
    },
)
def root(request: Request) -> Response:
    """Return the explorer page, or links to the parts of the API if the client accepts JSON but not HTML."""
    accepted = request.headers.get("accept", "")
    if _JSON in accepted and _HTML not in accepted:
        paths = {"explorer": "/", "docs": "/docs", "contract": "/openapi.json", "info": "/v1/info"}
        links = {name: address(path) for name, path in paths.items()}
        body = StartOut(name="glle", version=glle_engine.__version__, links=links).model_dump_json()
        return Response(body, headers={"Vary": "Accept", "Cache-Control": REVALIDATE}, media_type=_JSON)
    return files()[INDEX].response(request)


@router.get("/explorer/{path:path}", include_in_schema=False)
def page_file(request: Request, path: Annotated[str, fastapi.Path()]) -> Response:
    """Return a file of the explorer page, such as a script or a style sheet."""
    if (file := files().get(path)) is None:
        detail = f"The explorer has no file {path[:100]!r}."
        remedy = "Open the page at /. If it is open, reload it: it may be an older version."
        raise refuse("no-such-route", 404, detail, remedy)
    return file.response(request)
