"""Rate limit: a token bucket in Redis for each tenant, from which each API process reserves a second's share.

A bucket holds one minute's requests and refills evenly. A process reserves a second's share with one script, and spends
it without Redis. The limit over all processes is therefore exact to one second's share of each process. If Redis does
not answer or rejects writes, each process grants a second's share per second by itself.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import redis
from starlette.concurrency import run_in_threadpool

from worker.records.ids import tenant_key
from worker.records.quotas import too_many_requests

if TYPE_CHECKING:
    from worker.records.quotas import Quotas

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
            except redis.RedisError:  # reads and routes without Redis keep working
                count, milliseconds = self._take_alone(tenant, limit)
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

    def _take_alone(self, tenant: str, limit: int) -> tuple[int, int]:
        """Take a second's share once a second, without Redis; return as `_take`."""
        now = time.monotonic()
        if (until := self._empty_until.get(tenant, 0.0)) > now:  # a concurrent request took the share
            return 0, math.ceil(1000 * (until - now))
        self._empty_until[tenant] = now + max(1.0, 60 / limit)
        return max(1, limit // 60), 0
