"""Limits on requests: their number in progress, query, body size, body speed and media type; and the rate of a tenant.

The rate limit is a token bucket in Redis for each tenant, which holds one minute's requests and refills evenly. Each
API process reserves a second's share with one script, and spends it without Redis. The limit over all processes is
therefore exact to one second's share of each process. If Redis does not answer or rejects writes, requests are not
counted.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING

import redis
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from service.middleware.slow_clients import PATIENCE_SECONDS, PROBE_PATHS
from service.schemas.problems import plain_problem
from service.schemas.resources import MERGE_PATCH
from worker.base.problems import ProblemError, refuse
from worker.records.ids import tenant_key
from worker.records.quotas import too_many_requests

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from worker.records.quotas import Quotas

MAX_REQUESTS = 800  # in progress in a process, waiting ones included
RETRY_SECONDS = 1  # most requests take milliseconds
QUERY_BYTES = 32 * 2**10  # two lists of 1,000 positions, percent-encoded, take 18 KB
COMMAND_BYTES = 64 * 2**10  # a usual JSON command has a few hundred bytes
UPLOADS = frozenset({"/v1/datasets", "/v1/datasets/preview"})  # have separate limits
_BODY_HEADERS = frozenset({b"content-length", b"transfer-encoding"})
MIN_SPEED = 1024  # bytes per second of a body after its first byte
# KEYS: bucket. ARGV: requests per minute, requests wanted. Returns the requests reserved, and the milliseconds until
# the next one is available. A bucket without requests for a minute is full, so it may expire.
_TAKE = """
local now = redis.call('TIME')
local at = now[1] * 1000 + math.floor(now[2] / 1000)
local state = redis.call('HMGET', KEYS[1], 'left', 'at')
local most = tonumber(ARGV[1])
local left = math.min(most, (tonumber(state[1]) or most) + (at - (tonumber(state[2]) or at)) * most / 60000)
local taken = math.min(math.floor(left), tonumber(ARGV[2]))
redis.call('HSET', KEYS[1], 'left', left - taken, 'at', at)
redis.call('PEXPIRE', KEYS[1], 60000)
return {taken, math.ceil((1 - left) * 60000 / most)}
"""


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


class RateLimiter:
    """Rate limiter of all tenants, in requests per minute; a quota of 0 is unlimited."""

    def __init__(self, client: redis.Redis, quotas: Quotas) -> None:
        self._client = client
        self._script = client.register_script(_TAKE)
        self._quotas = quotas
        self._reserved: dict[str, int] = {}  # requests taken from the bucket and not yet spent
        self._empty_until: dict[str, float] = {}

    async def count(self, tenant: str) -> None:
        """Count one request, or raise ``quota-exceeded``."""
        limit = self._quotas.of(tenant).requests
        if not limit:
            return
        if self._reserved.get(tenant, 0) > 0:
            self._reserved[tenant] -= 1
            return
        seconds = self._empty_until.get(tenant, 0.0) - time.monotonic()
        if seconds <= 0:
            try:
                count, milliseconds = await run_in_threadpool(self._take, tenant, limit)
            except redis.RedisError:  # routes without Redis keep working, and the others are refused
                return
            if count:
                self._reserved[tenant] = self._reserved.get(tenant, 0) + count - 1
                return
            seconds = milliseconds / 1000
            self._empty_until[tenant] = time.monotonic() + seconds
        raise too_many_requests(tenant, limit, math.ceil(seconds))

    def usage(self, tenant: str) -> tuple[int, float]:
        """Return the requests of a tenant that its bucket misses, and the seconds until it is full again."""
        limit = self._quotas.of(tenant).requests
        if not limit:
            return 0, 0.0
        left, at = self._client.hmget(tenant_key("glle:rate", tenant), ["left", "at"])
        if left is None or at is None:
            return 0, 0.0
        seconds, microseconds = self._client.time()
        refilled = (1000 * seconds + microseconds / 1000 - float(at)) * limit / 60_000
        missing = max(0.0, limit - float(left) - refilled)
        return math.ceil(missing), round(missing * 60 / limit, 3)

    def _take(self, tenant: str, limit: int) -> tuple[int, int]:
        count, milliseconds = self._script(keys=[tenant_key("glle:rate", tenant)], args=[limit, max(1, limit // 60)])
        return int(count), int(milliseconds)
