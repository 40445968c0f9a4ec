"""Retry-After of refused jobs: the time until open jobs have ended, at the rate of the last half minute.

The index of ended jobs, which the scripts of the job records keep anyway, holds the time of each end. So an end costs
no additional write, and every API process finds the same rate. A tenant's rate is its share of the open jobs. Of n
requests that a process refuses at once, the n-th is asked to return when n jobs have ended, so that they do not return
together.
"""

from __future__ import annotations

import math
from time import monotonic
from typing import TYPE_CHECKING

from worker.base.clock import now_ms
from worker.jobs.lua_scripts import ALL_OPEN, ENDED_INDEX, OPEN, TENANTS
from worker.records.ids import tenant_key, text

if TYPE_CHECKING:
    import redis

LONGEST_SECONDS = 60  # also if no job has ended in the window, because nothing is known then
WINDOW_SECONDS = 30.0  # in which ends are counted
LEAST_SPAN_SECONDS = 1.0  # a few ends shortly after each other are no rate
LOOK_SECONDS = 1.0  # between two readings of a tenant's rates by a process
MAX_TENANTS = 1000  # whose ends are counted; a random sample of more


class Backlog:
    """Estimate of the time until a refused job finds room.

    Parameters
    ----------
    client
        The queue's Redis.
    ttl
        Seconds to keep the record of an ended job.

    """

    def __init__(self, client: redis.Redis, ttl: int) -> None:
        self._client = client
        self._ttl = ttl
        self._rates: dict[str, tuple[float, float]] = {}  # by tenant, "" for all: end of validity, ends per second
        self._next: dict[str, float] = {}  # by tenant, "" for all: when the last refused request may return

    def seconds(self, tenant: str = "") -> int:
        """Return the seconds until an open job of a tenant has ended, by default of any."""
        now = monotonic()
        until, rate = self._rates.get(tenant, (0.0, 0.0))
        if until < now:
            if len(self._rates) >= MAX_TENANTS:
                self._rates.clear()
                self._next.clear()
            rate = self._read(tenant)
            self._rates[tenant] = now + LOOK_SECONDS, rate
        step = min(1 / rate, LONGEST_SECONDS) if rate else LONGEST_SECONDS
        self._next[tenant] = min(max(now, self._next.get(tenant, 0.0)) + step, now + LONGEST_SECONDS)
        return min(max(1, math.ceil(self._next[tenant] - now)), LONGEST_SECONDS)  # the difference is rounded

    def _read(self, tenant: str) -> float:
        """Return the ends of jobs per second: a tenant's share by its open jobs, or all; 0 if none is known."""
        expiry = now_ms() + 1000 * self._ttl  # of a record that ends at this moment
        since = expiry - int(1000 * WINDOW_SECONDS)
        tenants = map(text, self._client.srandmember(TENANTS, MAX_TENANTS) or ())
        with self._client.pipeline(transaction=False) as pipeline:
            pipeline.scard(tenant_key(OPEN, tenant) if tenant else ALL_OPEN)
            pipeline.scard(ALL_OPEN)
            for name in tenants:
                ended = tenant_key(ENDED_INDEX, name)
                pipeline.zcount(ended, since, "+inf")
                pipeline.zrangebyscore(ended, since, "+inf", start=0, num=1, withscores=True)
            own_open, all_open, *replies = pipeline.execute()
        first = min((score for entries in replies[1::2] for _, score in entries), default=expiry)
        rate = sum(replies[::2]) / max((expiry - first) / 1000, LEAST_SPAN_SECONDS)
        return float(rate * own_open / max(1, all_open))
