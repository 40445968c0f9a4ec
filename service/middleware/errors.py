"""Turn an unhandled exception into a problem+json 500 on a connection that stays open.

Starlette's ServerErrorMiddleware is outermost, so its response lacks the request id. It also raises the error again,
and the server closes the connection without notice: the next request on it meets a reset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.schemas.problems import internal_error

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class ErrorMiddleware:
    """Response to unhandled exceptions; an exception after the response has started aborts it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        has_started = False

        async def send_and_note(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except Exception as error:
            if has_started or scope["type"] != "http":
                raise
            await internal_error(error)(scope, receive, send)
