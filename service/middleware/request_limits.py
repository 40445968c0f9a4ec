"""Limits on requests: number in progress, length of the query, and size, speed and media type of the body."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.routing import Match

from service.encoding.media_types import MediaType
from service.schemas.problems import plain_problem
from service.schemas.resources import MERGE_PATCH
from worker.base.problems import ProblemError, refuse
from worker.records.quotas import too_many_requests

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from worker.records.shares import Share, Shares

PROBE_PATHS = frozenset({"/livez", "/readyz"})
RETRY_SECONDS = 1  # Retry-After of a refused request; most requests take milliseconds
MAX_QUERY_BYTES = 32 * 2**10  # a longer query is refused; two lists of 1,000 positions, percent-encoded, take 18 KB
MAX_COMMAND_BYTES = 64 * 2**10  # a longer JSON body that is no upload is refused; most have a few hundred bytes
UPLOADS = frozenset({"/v1/datasets", "/v1/datasets/preview"})  # their bodies are limited in uploads/reading.py
_BODY_HEADERS = frozenset({b"content-length", b"transfer-encoding"})
PATIENCE_SECONDS = 30.0  # a body may pause for this long
MIN_BYTES_PER_SECOND = 16 * 2**10  # a body that is slower, on average over the last `PATIENCE_SECONDS`, is refused
PLACE_CHECK_SECONDS = 0.02  # pause between two checks whether a tenant may have another request in progress
BODY_GRACE_SECONDS = 1.0  # a slow body is ended, in favor of the tenant's other bodies, only when it is this old


class RequestLimits:
    """Refuses requests beyond the limits on requests in progress, on queries, and on size, type and speed of bodies.

    If too many requests are in progress, further requests, except probes, are refused before they take a thread, or
    memory for their body. Answers from the answer cache do not count. While the body of a request arrives, the request
    counts against the limit of bodies instead, so that slow bodies do not keep other requests out.

    Parameters
    ----------
    shares
        Count how many requests and bodies each tenant has in progress, and how many it may have.

    """

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._bodies: set[_Body] = set()

    async def serve(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, tenant: str) -> None:
        """Pass a request of a tenant to the app, or raise `ProblemError` if the request exceeds a limit."""
        is_counted = scope["path"] not in PROBE_PATHS
        if is_counted:
            self._require_place(self._shares.requests, tenant)
        if (size := len(scope["query_string"])) > MAX_QUERY_BYTES:
            detail = f"The query of the address has {size:,} bytes; {MAX_QUERY_BYTES:,} are allowed."
            raise ProblemError(plain_problem(414, detail))
        if any(name in _BODY_HEADERS and value != b"0" for name, value in scope["headers"]):
            await self._serve_with_body(app, scope, receive, send, tenant)
        elif is_counted:
            with self._shares.requests.hold(tenant):
                await app(scope, receive, send)
        else:
            await app(scope, receive, send)

    async def _serve_with_body(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, tenant: str) -> None:
        """Serve a request with a body.

        Until the body has arrived, the request counts against the limit of bodies, then against the limit of requests.
        """
        is_upload = scope["path"] in UPLOADS
        if not is_upload:
            _require_command(scope)
        self._make_place(tenant)
        body = _Body(receive, tenant, None if is_upload else MAX_COMMAND_BYTES, self._begin)
        self._shares.bodies.add(tenant)
        self._bodies.add(body)
        try:
            await app(scope, body.receive, send)
        finally:
            self._end(body)

    async def _begin(self, body: _Body) -> None:
        """Wait until the tenant may have one more request in progress; then count the request of a body as in progress.

        Called when the body has arrived; until then, it is counted as an arriving body. Raises `HTTPException` (503)
        after `PATIENCE_SECONDS`.
        """
        until = time.monotonic() + PATIENCE_SECONDS
        while not self._shares.requests.allows(body.tenant):
            if time.monotonic() > until:
                raise HTTPException(503, f"too many requests were in progress for {PATIENCE_SECONDS:g} s")
            await asyncio.sleep(PLACE_CHECK_SECONDS)
        self._bodies.discard(body)
        self._shares.bodies.add(body.tenant, -1)
        self._shares.requests.add(body.tenant)

    def _end(self, body: _Body) -> None:
        share = self._shares.bodies if body in self._bodies else self._shares.requests
        self._bodies.discard(body)
        share.add(body.tenant, -1)

    def _make_place(self, tenant: str) -> None:
        """Make room for one more body of a tenant: if the tenant is at its limit, end the slowest of its bodies.

        A body that has just begun is not ended, so that quick bodies are received while any number of slow ones arrive.
        Raises `ProblemError`, as `_require_place`, if no body may be ended.
        """
        if self._shares.bodies.allows(tenant):
            return
        slow = [body for body in self._bodies if body.tenant == tenant and body.may_end]
        if not slow:
            self._require_place(self._shares.bodies, tenant)
        min(slow, key=lambda body: body.speed).end()

    def _require_place(self, share: Share, tenant: str) -> None:
        """Raise `ProblemError` unless the tenant may have one more request or body, which `share` counts.

        The problem is ``too-many-requests`` if this process is at its limit, and ``quota-exceeded`` if only the tenant
        is.
        """
        if share.allows(tenant):
            return
        if share.used < share.total:
            raise too_many_requests(tenant, share.limit(tenant), int(share.total))
        detail = f"This API process has {share.used:,} requests in progress; it accepts no more."
        remedy = "Send the request again after Retry-After, or ask the administrator to raise GLLE_API_PROCESSES."
        raise refuse("too-many-requests", 503, detail, remedy, allowed=int(share.total), retry_after=RETRY_SECONDS)


def _require_command(scope: Scope) -> None:
    """Raise `ProblemError` if a JSON body is announced as too long (413), or is of another media type (415).

    A request that matches no route is left to the router, which answers 404 or 405.
    """
    headers = Headers(scope=scope)
    length = int(headers.get("content-length", "0"))  # h11 has validated the number
    media = MediaType.parse(headers.get("content-type", "")).kind
    if length > MAX_COMMAND_BYTES:
        problem = plain_problem(413, f"The body has {length:,} bytes; {MAX_COMMAND_BYTES:,} are allowed here.")
    elif media != "application/json" and (media, scope["method"]) != (MERGE_PATCH, "PATCH"):
        declared = f"is declared as {media[:100]}" if media else "has no Content-Type"
        problem = plain_problem(415, f"The body {declared}, but only JSON is accepted here.")
    else:
        return
    if any(route.matches(scope)[0] is Match.FULL for route in scope["app"].routes):
        raise ProblemError(problem)


class _Body:
    """A request body that is arriving, with a deadline that depends on the received bytes.

    In total, a body of `size` bytes may take ``PATIENCE_SECONDS + size / MIN_BYTES_PER_SECOND`` seconds. At any moment
    it has at most `PATIENCE_SECONDS` left, so that a client cannot send most of a body and then wait. Time during which
    the service does not read the body does not count.

    Parameters
    ----------
    max_bytes
        Maximum number of bytes of the body; None if the route has its own limit.
    on_end
        Awaited when the whole body has arrived, before its last message is returned.

    """

    def __init__(
        self, receive: Receive, tenant: str, max_bytes: int | None, on_end: Callable[[_Body], Awaitable[None]]
    ) -> None:
        self.tenant = tenant
        self._receive = receive
        self._max_bytes = max_bytes
        self._on_end = on_end
        self._started = time.monotonic()
        self._left = PATIENCE_SECONDS
        self._size, self._has_more, self._is_ended = 0, True, False
        self._waiting: asyncio.Timeout | None = None

    @property
    def may_end(self) -> bool:
        """Whether the service may cut this body off to make room for another body of the tenant.

        It may if the body has been arriving for more than `BODY_GRACE_SECONDS`, is still incomplete, and has not been
        cut off yet.
        """
        return self._has_more and not self._is_ended and time.monotonic() > self._started + BODY_GRACE_SECONDS

    @property
    def speed(self) -> float:
        """Average speed of the body so far, in bytes per second."""
        return self._size / max(time.monotonic() - self._started, 1e-9)

    def end(self) -> None:
        """End the body at once, as if it had exceeded its deadline."""
        self._is_ended = True
        if self._waiting is not None:
            self._waiting.reschedule(0.0)

    async def receive(self) -> Message:
        """Return the next ASGI message; raise `HTTPException`: 408 if the body is too slow, 413 beyond `max_bytes`.

        FastAPI lets an HTTPException pass wherever it reads the body. Starlette's RequestBodyLimitMiddleware is not
        used: if a route does not read its body, that middleware answers in text/plain, without the sizes.
        """
        if not self._has_more:
            return await self._receive()
        waited = time.monotonic()
        try:
            async with asyncio.timeout(0.0 if self._is_ended else max(0.0, self._left)) as self._waiting:
                message = await self._receive()
        except TimeoutError:
            detail = (
                f"the body was too slow: {self._size:,} bytes arrived, fewer than {MIN_BYTES_PER_SECOND:,} a second"
            )
            if self._is_ended:
                detail = (
                    f"the body was ended because other requests of the tenant waited, and it was the slowest of the "
                    f"tenant's bodies ({self.speed:,.0f} bytes a second)"
                )
            raise HTTPException(408, detail, {"Connection": "close"}) from None  # the rest would be read as a request
        finally:
            self._waiting = None
        size = len(message.get("body", b""))
        self._left = min(PATIENCE_SECONDS, self._left - (time.monotonic() - waited) + size / MIN_BYTES_PER_SECOND)
        self._size += size
        if self._max_bytes is not None and self._size > self._max_bytes:
            raise HTTPException(413, f"the body has more than {self._max_bytes:,} bytes")
        self._has_more = message.get("more_body", False)
        if not self._has_more:
            await self._on_end(self)
        return message
