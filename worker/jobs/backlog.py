"""Retry-After of refused jobs: the time until open jobs have ended, at the rate of the last half minute.

The index of ended jobs, which the scripts of the job records keep anyway, holds the time of each end. So an end costs
no additional write, and every API process finds the same rate. Of n requests that a process refuses at once, the n-th
is asked to return when n jobs have ended, so that they do not return together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from worker.base.clock import now_ms
from worker.jobs.lua_scripts import ALL_OPEN, ENDED_INDEX, OPEN, TENANTS
from worker.records.ids import text
from worker.records.tenants import tenant_key

if TYPE_CHECKING:
    import redis

LONGEST_SECONDS = 60  # also if no job has ended in the window, because nothing is known then
WINDOW_SECONDS = 30.0  # in which ends are counted
LEAST_SPAN_SECONDS = 1.0  # a few ends shortly after each other are no rate
LOOK_SECONDS = 1.0  # between two readings of a tenant's rates by a process
MAX_TENANTS = 1000  # whose ends are counted; a random sample of more


@dataclass(frozen=True)
class Rates:
    """Ends of jobs per second, of a tenant and of all tenants; 0 if none is known.

    Without a recent end, the tenant's rate is its share of the open jobs.
    """

    tenant: float
    all: float


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
        self._rates: dict[str, tuple[float, Rates]] = {}  # by tenant, with the end of their validity
        self._next: dict[str, float] = {}  # by tenant, "" for all: when the last refused request may return

    def seconds_of_tenant(self, tenant: str) -> int:
        """Return the seconds until an open job of the tenant has ended."""
        return self._place(tenant, self._look(tenant).tenant)

    def seconds_of_all(self, tenant: str) -> int:
        """Return the seconds until an open job of any tenant has ended."""
        return self._place("", self._look(tenant).all)

    def _place(self, line: str, rate: float) -> int:
        """Return the seconds of the next place in a line that moves at a rate."""
        now = monotonic()
        step = min(1 / rate, LONGEST_SECONDS) if rate else LONGEST_SECONDS
        self._next[line] = min(max(now, self._next.get(line, 0.0)) + step, now + LONGEST_SECONDS)
        return min(max(1, math.ceil(self._next[line] - now)), LONGEST_SECONDS)  # the difference is rounded

    def _look(self, tenant: str) -> Rates:
        """Return the rates; they may be a second old."""
        now = monotonic()
        until, rates = self._rates.get(tenant, (0.0, Rates(0.0, 0.0)))
        if until < now:
            if len(self._rates) >= MAX_TENANTS:
                self._rates.clear()
                self._next.clear()
            rates = self._read(tenant)
            self._rates[tenant] = now + LOOK_SECONDS, rates
        return rates

    def _read(self, tenant: str) -> Rates:
        expiry = now_ms() + 1000 * self._ttl  # of a record that ends at this moment
        since = expiry - int(1000 * WINDOW_SECONDS)
        sample = self._client.srandmember(TENANTS, MAX_TENANTS) or []
        tenants = list(dict.fromkeys([tenant, *map(text, sample)]))
        with self._client.pipeline(transaction=False) as pipeline:
            pipeline.scard(tenant_key(OPEN, tenant))
            pipeline.scard(ALL_OPEN)
            for name in tenants:
                ended = tenant_key(ENDED_INDEX, name)
                pipeline.zcount(ended, since, "+inf")
                pipeline.zrangebyscore(ended, since, "+inf", start=0, num=1, withscores=True)
            own_open, all_open, *replies = pipeline.execute()
        counts = list(map(int, replies[::2]))
        firsts = [min((score for _, score in entries), default=float(expiry)) for entries in replies[1::2]]

        def rate(count: int, first: float) -> float:
            return count / max((expiry - first) / 1000, LEAST_SPAN_SECONDS)

        of_all = rate(sum(counts), min(firsts))
        return Rates(rate(counts[0], firsts[0]) or of_all * own_open / max(1, all_open), of_all)
