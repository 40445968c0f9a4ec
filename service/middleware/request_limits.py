"""Limits on requests: their number in progress, query, body size, body speed and media type."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from service.schemas.problems import plain_problem
from service.schemas.resources import MERGE_PATCH
from worker.base.problems import ProblemError, refuse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

PROBE_PATHS = frozenset({"/livez", "/readyz"})
MAX_REQUESTS = 800  # in progress in a process, waiting ones included
RETRY_SECONDS = 1  # most requests take milliseconds
QUERY_BYTES = 32 * 2**10  # two lists of 1,000 positions, percent-encoded, take 18 KB
COMMAND_BYTES = 64 * 2**10  # a usual JSON command has a few hundred bytes
UPLOADS = frozenset({"/v1/datasets", "/v1/datasets/preview"})  # have separate limits
_BODY_HEADERS = frozenset({b"content-length", b"transfer-encoding"})
PATIENCE_SECONDS = 30.0  # for the first byte of a body
MIN_SPEED = 1024  # bytes per second of a body after its first byte


class RequestLimits:
    """Refusal of requests beyond the limits.

    A request beyond `MAX_REQUESTS` requests in progress, probes excepted, takes no thread and no memory for its body.
    Answers from the answer cache do not count.
    """

    def __init__(self) -> None:
        self._running = 0

    async def serve(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request by the app, or refuse it."""
        is_counted = scope["path"] not in PROBE_PATHS
        if is_counted and self._running >= MAX_REQUESTS:
            detail = f"This API process has {MAX_REQUESTS:,} requests in progress; it accepts no more."
            remedy = "Send the request again after Retry-After. Or have more API processes started: GLLE_API_PROCESSES."
            details = {"allowed": MAX_REQUESTS, "retry_after": RETRY_SECONDS}
            raise refuse("too-many-requests", 503, detail, remedy, **details)
        if (size := len(scope["query_string"])) > QUERY_BYTES:
            raise ProblemError(plain_problem(414, f"The query has {size:,} bytes; {QUERY_BYTES:,} are allowed."))
        if any(name in _BODY_HEADERS and value != b"0" for name, value in scope["headers"]):
            is_upload = scope["path"] in UPLOADS
            if not is_upload:
                _require_command(scope)
            receive = _limit_body(receive, None if is_upload else COMMAND_BYTES)
        self._running += is_counted
        try:
            await app(scope, receive, send)
        finally:
            self._running -= is_counted


def _require_command(scope: Scope) -> None:
    """Raise the problem of a command whose announced body is too long or of another media type."""
    headers = Headers(scope=scope)
    length = int(headers.get("content-length", "0"))  # the server has validated it
    if length > COMMAND_BYTES:
        raise ProblemError(plain_problem(413, f"The body has {length:,} bytes; {COMMAND_BYTES:,} are allowed."))
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json" and (media, scope["method"]) != (MERGE_PATCH, "PATCH"):
        raise ProblemError(plain_problem(415, f"The media type of the body is {media or 'missing'}."))


def _limit_body(receive: Receive, most: int | None) -> Receive:
    """Return a `receive` that raises 408 for a body that arrives too slowly, and 413 beyond `most` bytes.

    After `size` bytes the deadline is ``PATIENCE_SECONDS + size / MIN_SPEED``. Frameworks pass an HTTPException through
    wherever they read the body. Starlette's RequestBodyLimitMiddleware answers in text/plain without the sizes if a
    route does not read its body.
    """
    started, size, has_more = time.monotonic(), 0, True

    async def receive_limited() -> Message:
        nonlocal size, has_more
        if not has_more:
            return await receive()
        remaining = PATIENCE_SECONDS + size / MIN_SPEED - (time.monotonic() - started)
        try:
            async with asyncio.timeout(max(0.0, remaining)):
                message = await receive()
        except TimeoutError:
            detail = f"{size:,} bytes of the body arrived, more slowly than {MIN_SPEED:,} bytes a second"
            raise HTTPException(408, detail, {"Connection": "close"}) from None  # later bytes are no request
        size += len(message.get("body", b""))
        has_more = message.get("more_body", False)
        if most is not None and size > most:
            raise HTTPException(413, f"the body has more than {most:,} bytes")
        return message

    return receive_limited
