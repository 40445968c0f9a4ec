"""HEAD on every route that has GET: the same status and headers, no body, and no more work than these take."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadMiddleware:
    """Has a HEAD answered as a GET that hangs up once the headers are there, which ends what streams a body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        answered = asyncio.Event()
        body_read = False

        async def receive_until_answered() -> Message:
            nonlocal body_read
            if not body_read:
                body_read = True
                return {"type": "http.request", "body": b"", "more_body": False}
            await answered.wait()
            return {"type": "http.disconnect"}

        async def send_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                scope["route"] = asked.get("route")  # for the metrics
                await send(message)
                await send({"type": "http.response.body", "body": b""})
                answered.set()

        # Below 2.4 Starlette listens for the disconnect while it streams; the server's own scope stays a HEAD.
        asked = {**scope, "method": "GET", "asgi": {**scope["asgi"], "spec_version": "2.3"}}
        await self._app(asked, receive_until_answered, send_headers)
