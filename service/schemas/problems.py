"""Every error answer is problem+json (RFC 9457): one shape, a stable type, a sentence with the remedy."""

from __future__ import annotations

import errno
import http
import json
import logging
from typing import TYPE_CHECKING, Any

import redis
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import compile_path

from glle_engine import GlleError
from worker.base.problems import Problem, ProblemError
from worker.observability.logging import redacted

if TYPE_CHECKING:
    from collections.abc import Mapping

MEDIA_TYPE = "application/problem+json"
CLIENT_GONE = 499  # no answer arrives: of the logs and the metrics alone, as other servers count it

log = logging.getLogger(__name__)

# What the framework refuses by itself: status -> (code, remedy).
_PLAIN = {
    400: ("malformed-request", "Send a complete, well-formed request."),
    404: ("no-such-route", "See /docs for the routes there are."),
    405: ("method-not-allowed", "See /docs for the methods of this route, or the Allow header."),
    408: ("request-timeout", "Send it over a faster line; or raise GLLE_PATIENCE, or lower GLLE_LEAST_SPEED."),
    413: ("body-too-large", "Send a smaller body; data go to POST /v1/datasets, and are named by their id."),
    414: ("query-too-long", "Ask for a slice `a:b` in place of a list, or for fewer positions at a time."),
    415: ("unsupported-media-type", "Send application/json."),
    CLIENT_GONE: ("client-closed-request", "Send the whole body."),
}

# Seconds after which it may go better, by code or status.
_RETRY: dict[str | int, str] = {"idempotency-key-in-use": "1", http.HTTPStatus.SERVICE_UNAVAILABLE: "5"}


class ProblemOut(BaseModel):
    """What went wrong, and what to do about it."""

    type: str = Field(description="Stable URI of the kind of failure.", examples=["urn:glle:problem:not-finite"])
    title: str = Field(description="The same for every failure of this kind.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What went wrong this time.")
    remedy: str = Field(description="What to do about it.")
    details: dict[str, Any] = Field(description="Facts: positions, sizes, limits.")


def documented(**statuses: str) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI of a route's problems: ``_404="No such job."`` and so on, 500 and 503 always."""
    told = {
        **statuses,
        "_500": "An error of the service itself.",
        "_503": "Redis does not answer, or the workers died.",
    }
    schema = {"$ref": "#/components/schemas/ProblemOut"}
    return {
        int(name.removeprefix("_")): {"description": text, "content": {MEDIA_TYPE: {"schema": schema}}}
        for name, text in sorted(told.items())
    }


def answer(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response of a problem."""
    body = redacted(json.dumps(problem.to_dict(), allow_nan=False))
    seconds = problem.details.get("retry_after") or _RETRY.get(problem.code) or _RETRY.get(problem.status)
    retry = {} if seconds is None else {"Retry-After": str(seconds)}
    return Response(body, problem.status, {**retry, **(headers or {})}, MEDIA_TYPE)


def plain(status: int, detail: str) -> Problem:
    """Return the problem of a status that the framework answers by itself."""
    code, remedy = _PLAIN.get(status, ("http-error", "See /docs for how to ask."))
    return Problem(code=code, status=status, detail=detail, remedy=remedy)


def install(app: FastAPI) -> None:
    """Answer every exception that is expected of the app with its problem; `service.middleware.errors` has the others."""

    @app.exception_handler(ProblemError)
    def _known(_: Request, error: ProblemError) -> Response:
        return answer(error.problem)

    @app.exception_handler(GlleError)
    def _engine(_: Request, error: GlleError) -> Response:
        return answer(Problem.from_engine(error))

    @app.exception_handler(RequestValidationError)
    def _invalid(_: Request, error: RequestValidationError) -> Response:
        return answer(_validation(error))

    @app.exception_handler(HTTPException)
    def _framework(request: Request, error: HTTPException) -> Response:
        detail = f"{request.method} {request.url.path}: {error.detail}."
        headers = error.headers if error.status_code != http.HTTPStatus.METHOD_NOT_ALLOWED else _allow(request)
        return answer(plain(error.status_code, detail), headers)

    @app.exception_handler(ClientDisconnect)
    def _gone(_: Request, __: ClientDisconnect) -> Response:
        return answer(plain(CLIENT_GONE, "The client closed the connection before its request was complete."))

    @app.exception_handler(redis.RedisError)
    def _redis(_: Request, error: redis.RedisError) -> Response:
        return answer(redis_away(error))

    @app.exception_handler(OSError)
    def _disk(_: Request, error: OSError) -> Response:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            return unexpected(error)
        return answer(
            Problem(
                code="storage-full",
                status=507,
                detail="There is no space left in the data folder.",
                remedy="Delete data sets that are no longer needed, or enlarge the disk of GLLE_DATA_DIR.",
            )
        )


def redis_away(error: redis.RedisError) -> Problem:
    """Return the problem of a server that does not answer, or takes no writes, and log it."""
    log.error("Redis: %s", error)
    if isinstance(error, redis.BusyLoadingError):
        return Problem(
            code="redis-unavailable",
            status=503,
            detail="A Redis server has been started again, and loads what it had written down.",
            remedy="Try again in some seconds: it goes on by itself.",
        )
    if isinstance(error, redis.OutOfMemoryError):
        detail = "The queue's Redis has no memory left: it takes nothing new. What it has can be read."
        remedy = "Try again later; raise GLLE_QUEUE_BYTES (or its maxmemory), or lower GLLE_JOB_TTL."
    elif str(error).startswith("MISCONF"):
        detail = "The queue's Redis cannot write to its disk: it takes nothing new. What it has can be read."
        remedy = "Try again later; make space on the disk of its log, and it goes on by itself."
    else:
        of_a_cluster = isinstance(error, redis.exceptions.MovedError | redis.exceptions.ClusterCrossSlotError)
        return Problem(
            code="redis-unavailable",
            status=503,
            detail=f"A Redis server does not answer as it should ({type(error).__name__}).",
            remedy="GLLE_*_URL names one server of a Redis Cluster: `glle doctor` says which, and what to do."
            if of_a_cluster
            else "Try again in some seconds; if it stays, look at the servers behind GLLE_*_URL.",
        )
    return Problem(code="redis-full", status=503, detail=detail, remedy=remedy)


def _allow(request: Request) -> dict[str, str]:
    """Return the Allow header of a path: the methods of all its routes, and HEAD beside GET."""
    paths, path = request.app.openapi()["paths"], request.url.path
    found = [path] if path in paths else [known for known in paths if compile_path(known)[0].fullmatch(path)]
    allowed = {method.upper() for known in found for method in paths[known]}
    return {"Allow": ", ".join(sorted(allowed | ({"HEAD"} if "GET" in allowed else set())))}


def unexpected(error: Exception) -> Response:
    """Return the response of a bug, and log it: the answer does not tell its message."""
    log.error("Unexpected error", exc_info=error)
    return answer(
        Problem(
            code="internal-error",
            status=500,
            detail="The service met an error that it should not have met.",
            remedy="Try again; if it stays, report it with the log of the API.",
            details={"exception": type(error).__name__},
        )
    )


def _validation(error: RequestValidationError) -> Problem:
    found = [
        {"at": ".".join(str(part) for part in item["loc"]), "message": item["msg"], "kind": item["type"]}
        for item in error.errors()
    ]
    first = found[0]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return Problem(
        code="invalid-request",
        status=422,
        detail=f"{first['at']}: {first['message']}{more}.",
        remedy="Correct what `details.errors` names; /docs has the fields and their ranges.",
        details={"errors": found},
    )
