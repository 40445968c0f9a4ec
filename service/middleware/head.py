"""HEAD for every GET route: the same status and headers without the body, or the work of the body."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadMiddleware:
    """HEAD served as a GET whose client disconnects after the headers, which ends a streaming body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        answered = asyncio.Event()
        is_body_read = False

        async def receive_until_answered() -> Message:
            nonlocal is_body_read
            if not is_body_read:
                is_body_read = True
                return {"type": "http.request", "body": b"", "more_body": False}
            await answered.wait()
            return {"type": "http.disconnect"}

        async def send_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                scope["route"] = get_scope.get("route")  # for the metrics
                await send(message)
                await send({"type": "http.response.body", "body": b""})
                answered.set()

        # Below version 2.4 Starlette watches for the disconnect while it streams. The outer scope stays a HEAD.
        get_scope = {**scope, "method": "GET", "asgi": {**scope["asgi"], "spec_version": "2.3"}}
        await self._app(get_scope, receive_until_answered, send_headers)
