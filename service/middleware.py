"""What happens to every request: an id, its time, its metrics, and the caps that need no route."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException

from service.problems import answer, plain

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from service.metrics import Metrics

COMMAND_BYTES = 64 * 2**10  # every JSON command is a few hundred bytes
UPLOAD = "/v1/datasets"  # has caps of its own


class Observe:
    """Adds X-Request-Id and Server-Timing to every answer and counts it by route template."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if given.isalnum() and len(given) <= 64 else secrets.token_hex(8)
        status = 500

        async def send_observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Server-Timing"] = f"app;dur={(time.perf_counter() - started) * 1000:.1f}"
            await send(message)

        try:
            await self._app(scope, receive, send_observed)
        finally:
            route = getattr(scope.get("route"), "path", "(none)")  # the template: as many as there are routes
            self._metrics.observe(scope["method"], route, status, time.perf_counter() - started)


class Gate:
    """Refuses a command's body that is too long or not JSON, before anything reads it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
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
        elif has_body and kind != "application/json":
            await answer(plain(415, f"The body is said to be {kind or 'nothing'}."))(scope, receive, send)
        else:
            await self._app(scope, _capped(receive), send)


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
