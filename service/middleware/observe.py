"""Request id, timing, metrics and access log of every request, and the limits on queries and command bodies."""

from __future__ import annotations

import logging
import secrets
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from service.schemas.labels import MERGE_PATCH
from service.schemas.problems import plain_problem, problem_response
from worker.base.clock import now_ms
from worker.observability.request_context import REQUEST_ID, REQUEST_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from worker.base.problems import Problem

COMMAND_BYTES = 64 * 2**10  # a usual JSON command has a few hundred bytes
QUERY_BYTES = 32 * 2**10  # two lists of 1,000 positions, percent-encoded, take 18 KB
UPLOADS = frozenset({"/v1/datasets", "/v1/datasets/preview", "/v1/posteriors/import"})  # have separate limits

PROBES = frozenset({"/livez", "/readyz", "/metrics"})  # requested every few seconds

access_log = logging.getLogger("glle.access")


class ObservabilityMiddleware:
    """Headers of every response, request metrics by route template, and the optional access log.

    `resource_policy` is the Cross-Origin-Resource-Policy: which pages may embed a response. `observe` gets method,
    route template, status, and start by `time.perf_counter`. While `is_draining` returns true, responses close their
    connection.
    """

    def __init__(
        self,
        app: ASGIApp,
        observe: Callable[[str, str, int, float], None],
        is_draining: Callable[[], bool],
        *,
        resource_policy: str = "same-origin",
        has_access_log: bool = False,
    ) -> None:
        self._app = app
        self._observe = observe
        self._is_draining = is_draining
        self._resource_policy = resource_policy.encode()
        self._has_access_log = has_access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        request_id = _request_id(scope)
        REQUEST_ID.set(request_id.decode())  # the server runs each request in a separate context
        REQUEST_MS.set(now_ms())
        status, size = 500, 0

        async def send_observed(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                milliseconds = (time.perf_counter() - started) * 1000
                # No route sets these headers, so appending them raw is safe; it takes 1 us in place of 10.
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"x-request-id", request_id),
                    (b"x-content-type-options", b"nosniff"),
                    (b"cross-origin-resource-policy", self._resource_policy),
                    (b"server-timing", b"app;dur=%.1f" % milliseconds),
                ]
                if self._is_draining():
                    message["headers"].append((b"connection", b"close"))
            else:
                size += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, send_observed)
        finally:
            route = getattr(scope.get("route"), "path", "(none)")  # the template, so that labels are bounded
            self._observe(scope["method"], route, status, started)
            if self._has_access_log:
                milliseconds = round((time.perf_counter() - started) * 1000, 2)
                fields = {
                    "method": scope["method"],
                    "route": route,
                    "status": status,
                    "ms": milliseconds,
                    "bytes": size,
                }
                is_probe = route in PROBES and status < HTTPStatus.BAD_REQUEST
                level = logging.DEBUG if is_probe else logging.INFO
                access_log.log(
                    level, "%s %s", scope["method"], scope["path"], extra={"fields": fields}
                )  # without query


def _request_id(scope: Scope) -> bytes:
    """Return the client's request id if it is alphanumeric and short, else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and value.isalnum() and len(value) <= 64:
            return bytes(value)
    return secrets.token_hex(8).encode()


class RequestLimitMiddleware:
    """Limits on the length of queries and command bodies, and the media type of commands, before either is parsed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            if (problem := _query_problem(scope["query_string"]) or _body_problem(scope)) is not None:
                await problem_response(problem)(scope, receive, send)
                return
            if scope["path"] not in UPLOADS:
                receive = _limited(receive)
        await self._app(scope, receive, send)


def _query_problem(query: bytes) -> Problem | None:
    """Return the problem of a query that is too long."""
    if len(query) <= QUERY_BYTES:
        return None
    return plain_problem(414, f"The query has {len(query):,} bytes; {QUERY_BYTES:,} are allowed.")


def _body_problem(scope: Scope) -> Problem | None:
    """Return the problem of a command whose announced body is too long or of another media type."""
    if scope["path"] in UPLOADS:
        return None
    headers = Headers(scope=scope)
    length = int(headers.get("content-length", "0"))  # the server has validated it
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if length > COMMAND_BYTES:
        return plain_problem(413, f"The body has {length:,} bytes; {COMMAND_BYTES:,} are allowed.")
    has_body = length > 0 or "transfer-encoding" in headers
    if has_body and media != "application/json" and (media, scope["method"]) != (MERGE_PATCH, "PATCH"):
        return plain_problem(415, f"The media type of the body is {media or 'missing'}.")
    return None


def _limited(receive: Receive) -> Receive:
    """Return a `receive` that raises 413 beyond `COMMAND_BYTES`.

    Starlette's RequestBodyLimitMiddleware answers in text/plain without the sizes if a route does not read its body.
    """
    size = 0

    async def receive_limited() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > COMMAND_BYTES:
            raise HTTPException(413, f"the body has more than {COMMAND_BYTES:,} bytes")
        return message

    return receive_limited
