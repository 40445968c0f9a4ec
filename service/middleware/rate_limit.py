"""Requests a minute: a bucket a tenant in Redis, from which each API process takes some at a time.

A bucket holds a minute's requests and fills evenly. A process takes a second's worth with one script, and gives them
out without asking again: so the quota holds over all processes, to within a second's worth of each, and costs little.
While Redis does not answer, or takes no writes, each process gives out a second's worth a second by itself.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import redis
from starlette.concurrency import run_in_threadpool

from worker.records.tenants import own
from worker.tenancy.quotas import too_many_requests

if TYPE_CHECKING:
    from worker.tenancy.quotas import Quotas

# KEYS: bucket. ARGV: requests a minute, requests wanted. Returns how many were taken, and when there is one again (ms).
# A bucket that nobody asked for a minute is full: it may be forgotten.
_TAKE = """
local now = redis.call('TIME')
local at = now[1] * 1000 + math.floor(now[2] / 1000)
local known = redis.call('HMGET', KEYS[1], 'left', 'at')
local most = tonumber(ARGV[1])
local left = math.min(most, (tonumber(known[1]) or most) + (at - (tonumber(known[2]) or at)) * most / 60000)
local taken = math.min(math.floor(left), tonumber(ARGV[2]))
redis.call('HSET', KEYS[1], 'left', left - taken, 'at', at)
redis.call('PEXPIRE', KEYS[1], 60000)
return {taken, math.ceil((1 - left) * 60000 / most)}
"""


class RateLimiter:
    """Counts the requests of tenants.

    Parameters
    ----------
    client
        The queue's Redis.
    quotas
        How many requests a minute each has; of one that has any number nothing is counted.

    """

    def __init__(self, client: redis.Redis, quotas: Quotas) -> None:
        self._script = client.register_script(_TAKE)
        self._quotas = quotas
        self._left: dict[str, int] = {}  # taken from the bucket, not given out yet
        self._empty_until: dict[str, float] = {}

    async def count(self, tenant: str) -> None:
        """Count a request.

        Raises
        ------
        ProblemError
            ``quota-exceeded``.

        """
        most = self._quotas.of(tenant).requests
        if not most:
            return
        if self._left.get(tenant, 0) > 0:
            self._left[tenant] -= 1
            return
        seconds = self._empty_until.get(tenant, 0.0) - time.monotonic()
        if seconds <= 0:
            try:
                taken, milliseconds = await run_in_threadpool(self._take, tenant, most)
            except redis.RedisError:  # what needs no Redis, or only reads it, is to go on
                taken, milliseconds = self._take_alone(tenant, most)
            if taken:
                self._left[tenant] = self._left.get(tenant, 0) + taken - 1
                return
            seconds = milliseconds / 1000
            self._empty_until[tenant] = time.monotonic() + seconds
        raise too_many_requests(tenant, most, math.ceil(seconds))

    def _take(self, tenant: str, most: int) -> tuple[int, int]:
        taken, milliseconds = self._script(keys=[own("glle:rate", tenant)], args=[most, max(1, most // 60)])
        return int(taken), int(milliseconds)

    def _take_alone(self, tenant: str, most: int) -> tuple[int, int]:
        """Take without Redis: a second's worth, once a second; returns as `_take`."""
        now = time.monotonic()
        if (until := self._empty_until.get(tenant, 0.0)) > now:  # another request has just taken
            return 0, math.ceil(1000 * (until - now))
        self._empty_until[tenant] = now + max(1.0, 60 / most)
        return max(1, most // 60), 0
