"""What nobody expected is an answer like all others: 500, with its id, on a connection that stays.

The framework answers it outside of every middleware and lets the error go on to the server, which then closes the
connection and has not said so: whoever sends the next request on it meets a reset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.schemas.problems import unexpected

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class ErrorMiddleware:
    """Answers any error by its problem; one in the midst of an answer breaks it off: nobody takes it for whole."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        begun = False

        async def send_noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        except Exception as error:
            if begun or scope["type"] != "http":
                raise
            await unexpected(error)(scope, receive, send)
