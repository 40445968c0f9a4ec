"""Shares: what one tenant may hold of each thing that all tenants use.

There is one rule for all of them. **A tenant may hold at most `PART` times as much as it leaves free.** So one greedy
tenant gets three quarters, two get three sevenths each, and something is always left for the next one, without a list
of the tenants that are active. A tenant that holds nothing may take what is free. (Choudhury and Hahne, Dynamic queue
length thresholds for shared-memory packet switches, IEEE/ACM Transactions on Networking 6, 1998.)

A number in GLLE_QUOTAS takes the place of the share. Without keys there is one tenant, which may hold everything.

    requests   requests in progress of an API process, whose bodies have arrived
    bodies     bodies that an API process is receiving
    incoming   bytes of these bodies, of the free bytes of the disk
    readers    processes of an API process that read uploads
    waits      requests of an API process that wait for jobs
    jobs       open jobs of the deployment
    draws      requests for single draws that wait
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from worker.base.clock import now_ms
from worker.records.ids import text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

PART = 3  # a tenant may hold at most this many times what it leaves free
SHARE, UNLIMITED = -1, 0  # instead of the number that a tenant may hold

MAX_REQUESTS, MAX_BODIES, MAX_WAITS = 800, 400, 270  # in an API process
MAX_JOBS, MAX_DRAWS = 10_000, 10_000  # in the deployment
HELD = "glle:shares"  # hash in the cache's Redis: what tenants hold in each API process, as JSON with its time
HELD_MS = 5000  # until what a process has published counts no more

# Lua: whether a tenant that holds `held` of `used` ones may hold one more of `total`.
MAY_HOLD = f"""
local function may_hold(held, used, total, limit)
  if used >= total then return false end
  if limit == {SHARE} then return held == 0 or held + 1 <= {PART} * (total - used - 1) end
  return limit == {UNLIMITED} or held < limit
end
"""


def may_hold(held: float, amount: float, free: float, limit: int = SHARE) -> bool:
    """Return whether a tenant that holds `held` may take `amount` of what is free.

    Parameters
    ----------
    limit
        Number that the tenant may hold; `SHARE` for its share, `UNLIMITED` for everything.

    """
    if amount > free:
        return False
    if limit == SHARE:
        return held == 0 or held + amount <= PART * (free - amount)
    return limit == UNLIMITED or held + amount <= limit


def allowed_of(limit: int, total: int) -> int:
    """Return what a tenant may hold of a total while no other tenant holds anything."""
    return total * PART // (PART + 1) if limit == SHARE else limit or total


def part_of(held: int, limit: int, total: int) -> float:
    """Return the part of what a tenant may hold that it holds."""
    return held / max(1, allowed_of(limit, total))


class Share:
    """What the tenants hold of one thing in this process.

    Parameters
    ----------
    total
        All that there is.
    limit
        Returns what a tenant may hold, as for `may_hold`.

    Attributes
    ----------
    held, used
        What each tenant holds, and all of them.

    """

    def __init__(self, total: int, limit: Callable[[str], int]) -> None:
        self.total = total
        self.limit = limit
        self.held: Counter[str] = Counter()
        self.used = 0

    def allows(self, tenant: str, amount: float = 1) -> bool:
        """Return whether a tenant may take `amount` more."""
        return may_hold(self.held[tenant], amount, self.total - self.used, self.limit(tenant))

    def add(self, tenant: str, amount: int = 1) -> None:
        """Count what a tenant takes, or gives back if it is negative."""
        self.used += amount
        self.held[tenant] += amount
        if not self.held[tenant]:
            del self.held[tenant]

    @property
    def in_use(self) -> float:
        """The largest part of its share that a tenant holds."""
        return max((part_of(held, self.limit(tenant), self.total) for tenant, held in self.held.items()), default=0.0)

    @contextmanager
    def hold(self, tenant: str) -> Iterator[None]:
        """Hold one."""
        self.add(tenant)
        try:
            yield
        finally:
            self.add(tenant, -1)


class Shares:
    """What the tenants hold of the things of an API process, and what other API processes have published.

    Parameters
    ----------
    limit
        Returns what a tenant may hold, by the name of a quota and the tenant.

    """

    def __init__(self, limit: Callable[[str, str], int]) -> None:
        of_requests = partial(limit, "requests")
        self.requests = Share(MAX_REQUESTS, of_requests)
        self.bodies = Share(MAX_BODIES, of_requests)
        self.waits = Share(MAX_WAITS, of_requests)
        self.incoming = Share(0, partial(limit, "incoming"))  # the free bytes of the disk are its total
        self.readers = Share(0, partial(limit, "readers"))  # set by the readers
        self._process = secrets.token_hex(8)
        self._is_published = False

    def publish(self, client: redis.Redis) -> None:
        """Write what tenants hold in this process to the cache's Redis; raises `redis.RedisError`."""
        if held := self._held():
            with client.pipeline(transaction=False) as pipeline:
                pipeline.hset(HELD, self._process, json.dumps([now_ms(), held]))
                pipeline.pexpire(HELD, HELD_MS)
                pipeline.execute()
        elif self._is_published:
            client.hdel(HELD, self._process)
        self._is_published = bool(held)

    def of_all(self, client: redis.Redis) -> dict[str, tuple[Counter[str], float]]:
        """Return what each tenant holds of each thing in all API processes, and the largest part of a share in use.

        Raises `redis.RedisError`.
        """
        processes = [self._held()]
        for process, raw in client.hgetall(HELD).items():
            at, held = json.loads(raw)
            if text(process) != self._process and now_ms() - at < HELD_MS:
                processes.append(held)
        found = {}
        for name in self._shares:
            of_name = [held[name] for held in processes if name in held]
            total = sum((Counter(counts) for counts, _ in of_name), Counter[str]())
            found[name] = total, max((part for _, part in of_name), default=0.0)
        return found

    def _held(self) -> dict[str, tuple[Counter[str], float]]:
        return {name: (share.held, share.in_use) for name, share in self._shares.items() if share.held}

    @property
    def _shares(self) -> dict[str, Share]:
        return {name: share for name, share in vars(self).items() if isinstance(share, Share)}
