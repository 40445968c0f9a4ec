"""Limit on the requests in progress of one API process, so that a burst is refused before it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.middleware.slow_clients import PROBE_PATHS
from service.schemas.problems import problem_response
from worker.base.problems import Problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

MAX_REQUESTS = 800  # in progress in a process, waiting ones included
RETRY_SECONDS = 1  # most requests take milliseconds


class ConcurrencyMiddleware:
    """Response 503 to each request beyond `MAX_REQUESTS` requests in progress, probes excepted.

    A refused request takes no thread and no memory for its body. Answers from the answer cache do not count.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"] in PROBE_PATHS:
            await self._app(scope, receive, send)
            return
        if self._running >= MAX_REQUESTS:
            await problem_response(self._problem())(scope, receive, send)
            return
        self._running += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._running -= 1

    def _problem(self) -> Problem:
        return Problem(
            code="too-many-requests",
            status=503,
            detail=f"This API process has {MAX_REQUESTS:,} requests in progress; it accepts no more.",
            remedy="Send the request again after Retry-After. Or have more API processes started: GLLE_API_PROCESSES.",
            details={"allowed": MAX_REQUESTS, "retry_after": RETRY_SECONDS},
        )
