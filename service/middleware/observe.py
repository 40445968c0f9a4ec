"""Request id, timing, metrics and access log of every request."""

from __future__ import annotations

import logging
import secrets
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

from worker.base.clock import now_ms
from worker.observability.request_context import REQUEST_ID, REQUEST_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send


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
