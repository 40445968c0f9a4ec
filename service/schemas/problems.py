"""Error responses: problem+json (RFC 9457) of one shape, with a stable type and a remedy."""

from __future__ import annotations

import errno
import http
import json
import logging
import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import redis
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import compile_path

from glle_engine import GlleError
from glle_engine.base.texts import Role, Way
from worker.base.disk import DISK_REMEDY
from worker.base.problems import Problem, ProblemError
from worker.connections.failures import redis_problem
from worker.observability.logging import redact_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

MEDIA_TYPE = "application/problem+json"
CLIENT_GONE = 499  # appears in logs and metrics only, as in nginx

log = logging.getLogger(__name__)

# Errors raised by Starlette: status -> (code, remedy).
_PLAIN = {
    400: ("malformed-request", "Send a complete, well-formed request."),
    405: ("method-not-allowed", "Use a method of the header Allow; /docs lists the methods of each address."),
    408: ("request-timeout", "Send the body over a faster line, compressed, or in smaller parts."),
    413: ("body-too-large", f"Send a smaller body; upload data with {Way('upload')}, and name them by their id."),
    414: ("query-too-long", "Use a slice `a:b` in place of a list, or fewer positions at a time."),
    415: ("unsupported-media-type", "Send JSON with the header Content-Type: application/json."),
    CLIENT_GONE: ("client-closed-request", "Send the whole body."),
    503: ("too-many-requests", "Send the request again after Retry-After, and fewer at the same time."),
}

_OF_PYDANTIC = re.compile("^Value error, | after validation")
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PARAMETER = re.compile(r"\{.*?\}")
_RETRY: dict[str | int, str] = {http.HTTPStatus.SERVICE_UNAVAILABLE: "5"}  # seconds for Retry-After, by code or status


class WayOut(BaseModel):
    """Part of a message: an option, an API call or a feature, which each interface may write in its own syntax."""

    name: str = Field(
        description="Name of the option; or a call: upload, fit, embed, delete-posterior, "
        "delete-embedding, cancel-job, delete-results; or feature."
    )
    value: Any = Field(
        description="Value of the option, id of the resource of a call, or number of the feature from 0; or null."
    )


class NoteOut(BaseModel):
    """A warning, a finding, or a decision that was made for the user."""

    code: str = Field(description="Stable kebab-case name; each code has one meaning.")
    message: str = Field(description="What was found or decided, and what to do about it.")
    message_parts: list[str | WayOut] = Field(
        description="The message in parts, in which options and calls are values, for interfaces that write their own."
    )


class LineOut(BaseModel):
    """One line of an audit's verdict."""

    role: Role = Field(
        description="Whether the line says what to read from the map, what not to read, what to do first, or why."
    )
    text: str = Field(description="The line as plain text.")
    parts: list[str | WayOut] = Field(
        description="The text in parts, in which options and calls are values, as in `message_parts`."
    )


class ProblemOut(BaseModel):
    """An error: what went wrong, and the remedy."""

    type: str = Field(description="Stable URI of the kind of failure.", examples=["urn:glle:problem:not-finite"])
    title: str = Field(description="The same for every failure of this kind.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What went wrong this time.")
    detail_parts: list[str | WayOut] = Field(description="The detail in parts, as in `remedy_parts`.")
    remedy: str = Field(description="What to do about it.")
    remedy_parts: list[str | WayOut] = Field(
        description="The remedy in parts, in which options and calls are values, for interfaces that write their own."
    )
    details: dict[str, Any] = Field(description="Facts: positions, sizes, limits.")


def failures(**statuses: str) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of a route for FastAPI's argument `responses`.

    `statuses` has texts such as ``_404="No such job."``. The statuses 500 and 503 are always added.
    """
    texts = {
        **statuses,
        "_500": "An internal error of the service.",
        "_503": "Redis does not answer, records or files were lost, or the workers died.",
    }
    schema = {"$ref": "#/components/schemas/ProblemOut"}
    return {
        int(name.removeprefix("_")): {"description": text, "content": {MEDIA_TYPE: {"schema": schema}}}
        for name, text in sorted(texts.items())
    }


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """Return the problem+json response for a problem, with Retry-After if a later request may succeed."""
    body = redact_keys(json.dumps(problem.to_dict(), allow_nan=False))
    seconds = problem.details.get("retry_after") or _RETRY.get(problem.code) or _RETRY.get(problem.status)
    retry = {} if seconds is None else {"Retry-After": str(seconds)}
    return Response(body, problem.status, {**retry, **(headers or {})}, MEDIA_TYPE)


def plain_problem(status: int, detail: str) -> Problem:
    """Return the problem for an HTTP error of Starlette or uvicorn, which has only a status and a detail."""
    code, remedy = _PLAIN.get(status, ("http-error", "See /docs for the API."))
    return Problem(code=code, status=status, detail=detail, remedy=remedy)


def install(app: FastAPI) -> None:
    """Register the handlers that turn expected exceptions into problem+json; `RequestMiddleware` handles the others.

    The handlers are async, because Starlette would call plain functions in a thread.
    """
    problems: dict[type[Exception], Callable[[Any], Problem]] = {
        ProblemError: lambda error: error.problem,
        GlleError: Problem.from_engine,
        ClientDisconnect: lambda _: plain_problem(CLIENT_GONE, "The client disconnected before its request ended."),
        redis.RedisError: redis_problem,
    }

    async def handle(_: Request, error: Exception) -> Response:
        return problem_response(
            next(problems[error_class] for error_class in type(error).__mro__ if error_class in problems)(error)
        )

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> Response:
        body = getattr(request.scope.get("route"), "body_field", None)
        model = None if body is None else body.field_info.annotation
        return problem_response(validation_problem(error, sorted(getattr(model, "model_fields", ()))))

    for error_class in problems:
        app.add_exception_handler(error_class, handle)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        if error.status_code == http.HTTPStatus.NOT_FOUND:
            return problem_response(_no_route(request, await run_in_threadpool(request.app.openapi)))
        detail = f"{request.method} {request.scope['path']}: {error.detail}."
        headers = error.headers
        if error.status_code == http.HTTPStatus.METHOD_NOT_ALLOWED:
            headers = _allow(request, await run_in_threadpool(request.app.openapi))
        return problem_response(plain_problem(error.status_code, detail), headers)

    @app.exception_handler(OSError)
    async def _disk(_: Request, error: OSError) -> Response:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            return internal_error(error)
        detail = "The disk of the data folder is full, so that the request could not be stored."
        return problem_response(Problem(code="storage-full", status=507, detail=detail, remedy=DISK_REMEDY))


def _allow(request: Request, contract: dict[str, Any]) -> dict[str, str]:
    """Return the Allow header for a path: its methods in the OpenAPI contract, and HEAD if there is GET."""
    paths = contract["paths"]
    allowed = {method.upper() for method in paths.get(_template(paths, request.scope["path"]), ())}
    return {"Allow": ", ".join(sorted(allowed | ({"HEAD"} if "GET" in allowed else set())))}


def _template(paths: Iterable[str], path: str) -> str:
    """Return the path template that matches a path: of several the one with the most literal text; empty if none."""
    templates = [each for each in paths if compile_path(each)[0].fullmatch(path)]
    return max(templates, key=lambda each: len(_PARAMETER.sub("", each)), default="")


def _no_route(request: Request, contract: dict[str, Any]) -> Problem:
    """Return the 404 problem for a path that no route has; its remedy suggests a similar path, if there is one.

    The service does not redirect to the similar path: a redirect would repeat the scheme and the host of the request,
    and behind a proxy they may differ from the public ones.
    """
    paths, path = contract["paths"], request.scope["path"]
    segments = [segment for segment in path.split("/") if segment]
    plain = "/" + "/".join(segments)
    resource, *below = [segment for segment in segments if segment.lower() != "v1"] or [""]
    versioned = ("/".join(["/v1", name, *below]) for name in (resource, resource.lower(), f"{resource.lower()}s"))
    near = next((each for each in (plain, *versioned) if each != path and _template(paths, each)), "")
    if not near:
        literal = [each for each in paths if "{" not in each]
        near = next(iter(get_close_matches(plain, literal, 1, 0.8)), "")
    hint = f"Use {near}. " if near else ""
    details = {"suggestion": near} if near else {}
    detail = f"{request.method} {path}: this service has no such address."
    return Problem(
        code="no-such-route", status=404, detail=detail, remedy=f"{hint}See /docs for all addresses.", details=details
    )


def internal_error(error: Exception) -> Response:
    """Log an unexpected exception, and return a 500 response that does not reveal the exception's message."""
    log.error("Unexpected error", exc_info=error)
    return problem_response(
        Problem(
            code="internal-error",
            status=500,
            detail="The service met an unexpected error.",
            remedy="Try again; if it persists, report it with the log of the API.",
            details={"exception": type(error).__name__},
        )
    )


def validation_problem(error: RequestValidationError, members: Sequence[str] = ()) -> Problem:
    """Return the problem for a request that pydantic refused; a misspelled name gets a suggestion from `members`.

    If a value matches none of the alternatives of a union type, pydantic reports an error for each alternative. These
    errors become one error at the location of the value.

    Parameters
    ----------
    members
        Names that the JSON body may have.

    """
    errors: dict[str, dict[str, str]] = {}
    near: list[str] = []
    for item in error.errors():
        place = _place(item["loc"], item["type"], error.body)
        path, message = ".".join(map(str, place)), _OF_PYDANTIC.sub("", item["msg"])
        if path in errors:
            errors[path]["message"] += f"; or: {message}"
        else:
            errors[path] = {"at": path, "message": message, "kind": item["type"]}
        if item["type"] == "extra_forbidden" and len(place) == 2:
            near += get_close_matches(snake_case(str(place[1])), members, 1)
    first, count = next(iter(errors.values())), len(errors) - 1
    hint = f"Did you mean {', '.join(near)}? " if near else ""
    return Problem(
        code="invalid-request",
        status=422,
        detail=f"{first['at']}: {first['message']}{f' (and {count} more)' if count else ''}.",
        remedy=hint + "Correct the fields that `details.errors` lists; /docs has their types and ranges.",
        details={"errors": list(errors.values())},
    )


def snake_case(name: str) -> str:
    """Return a name in the style of this API: n_neighbors for nNeighbors or n-neighbors."""
    return _CAPITAL.sub("_", name).replace("-", "_").lower()


def _place(location: Sequence[int | str], error_type: str, body: Any) -> list[int | str]:
    """Return the location of a pydantic error without the names of union alternatives, such as ``constrained-int``."""
    if error_type == "json_invalid":
        return list(location)
    if location[0] != "body":
        return [key for index, key in enumerate(location) if index < 2 or isinstance(key, int)]
    place: list[int | str] = [location[0]]
    value = body
    for index, key in enumerate(location[1:], 1):
        if isinstance(value, dict) and (key in value or (error_type == "missing" and index == len(location) - 1)):
            place.append(key)
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int):
            place.append(key)
            value = value[key] if key < len(value) else None
    return place
