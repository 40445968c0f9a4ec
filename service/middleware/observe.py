"""What happens to every request: an id, its time, its metrics, and the caps that need no route."""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from service.schemas.labels import MERGE_PATCH
from service.schemas.problems import answer, plain
from worker.base.problems import Problem
from worker.observability.request_context import REQUEST_ID

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from service.server.metrics import Metrics
    from service.server.shutdown import Shutdown

COMMAND_BYTES = 64 * 2**10  # every JSON command is a few hundred bytes
QUERY_BYTES = 32 * 2**10  # two lists of a thousand positions, percent-encoded, are 18 KB
LISTS = frozenset({"tag", "scales"})  # the parameters that may stand in a query several times
UPLOAD = "/v1/datasets"  # has caps of its own

access = logging.getLogger("glle.access")


class ObservabilityMiddleware:
    """Adds X-Request-Id and Server-Timing to every answer, counts it by route template, and may log it."""

    def __init__(self, app: ASGIApp, metrics: Metrics, draining: Shutdown, *, has_access_log: bool = False) -> None:
        self._app = app
        self._metrics = metrics
        self._draining = draining
        self._has_access_log = has_access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        request_id = _request_id(scope)
        REQUEST_ID.set(request_id.decode())  # each request has a context of its own
        status, sent = 500, 0

        async def send_observed(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                took = (time.perf_counter() - started) * 1000
                # No route sets these; appended as they are, they cost a microsecond and not ten.
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"x-request-id", request_id),
                    (b"x-content-type-options", b"nosniff"),
                    (b"server-timing", b"app;dur=%.1f" % took),
                ]
                if self._draining.begun:
                    message["headers"].append((b"connection", b"close"))
            else:
                sent += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, send_observed)
        finally:
            route = getattr(scope.get("route"), "path", "(none)")  # the template: as many as there are routes
            self._metrics.observe(scope["method"], route, status, started)
            if self._has_access_log:
                _log(scope, route, status, sent, started)


def _log(scope: Scope, route: str, status: int, sent: int, started: float) -> None:
    """Write the line of a request; the query stays out of it."""
    took = round((time.perf_counter() - started) * 1000, 2)
    told = {"method": scope["method"], "route": route, "status": status, "ms": took, "bytes": sent}
    access.info("%s %s", scope["method"], scope["path"], extra={"fields": told})


def _request_id(scope: Scope) -> bytes:
    """Return the id that the client gave, if it is a plain word, or a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and value.isalnum() and len(value) <= 64:
            return bytes(value)
    return secrets.token_hex(8).encode()


class RequestLimitMiddleware:
    """Refuses a query that is too long, and a command's body that is too long or not JSON, before they are read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and (length := len(scope["query_string"])) > QUERY_BYTES:
            problem = plain(414, f"The query has {length:,} bytes, {QUERY_BYTES:,} are allowed.")
            await answer(problem)(scope, receive, send)
            return
        if scope["type"] == "http" and (name := _repeated(scope["query_string"])):
            await answer(_said_twice(name))(scope, receive, send)
            return
        if scope["type"] != "http" or scope["path"] == UPLOAD:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        announced = int(headers.get("content-length", "0"))  # the server has refused what is no number
        has_body = announced > 0 or "transfer-encoding" in headers
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if announced > COMMAND_BYTES:
            problem = plain(413, f"A body of {announced:,} bytes was announced, {COMMAND_BYTES:,} are allowed.")
            await answer(problem)(scope, receive, send)
        elif has_body and kind != "application/json" and (kind, scope["method"]) != (MERGE_PATCH, "PATCH"):
            await answer(plain(415, f"The body is said to be {kind or 'nothing'}."))(scope, receive, send)
        else:
            await self._app(scope, _capped(receive), send)


def _repeated(query: bytes) -> str:
    """Return the name of a parameter that has several values and may have one; empty when there is none."""
    if b"&" not in query:
        return ""
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)  # as the framework reads it
    names = Counter(name for name, _ in pairs)
    return next((name for name, count in names.items() if count > 1 and name not in LISTS), "")


def _said_twice(name: str) -> Problem:
    """Return the problem of a parameter with several values."""
    return Problem(
        code="repeated-parameter",
        status=422,
        detail=f"The query has {name[:50]!r} several times; one value is allowed.",
        remedy="Send it once. Only tag and scales may be repeated.",
        details={"parameter": name[:50]},
    )


def _capped(receive: Receive) -> Receive:
    came = 0

    async def receive_capped() -> Message:
        nonlocal came
        message = await receive()
        came += len(message.get("body", b""))
        if came > COMMAND_BYTES:
            raise HTTPException(413, f"more than {COMMAND_BYTES:,} bytes came")
        return message

    return receive_capped
