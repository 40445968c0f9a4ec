"""Shares: how much of each resource one tenant may hold, where all tenants use the same resources.

There is one rule for all resources. **A tenant may hold at most `PART` times as much as is left free.** One greedy
tenant therefore gets three quarters, two get three sevenths each, and something is always left for the next tenant; no
list of active tenants is needed. A tenant that holds nothing may take what is free. (Choudhury and Hahne, Dynamic queue
length thresholds for shared-memory packet switches, IEEE/ACM Transactions on Networking 6, 1998.)

A number in GLLE_QUOTAS replaces the share. Without API keys there is one tenant, which may hold everything.

    requests   requests in progress of an API process, whose bodies have arrived
    bodies     bodies that an API process is receiving
    incoming   bytes of these bodies; the total is the free bytes of the disk
    readers    processes of an API process that read uploads
    waits      requests of an API process that wait for jobs
    jobs       open jobs of the deployment
    draws      waiting requests for single draws

Workers are few, and a task keeps one for as long as it runs, so that a rule about free ones would come too late. Of the
tasks in each queue a tenant may have one less than there are workers (`allowed_tasks`).
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

PART = 3  # a tenant may hold at most this many times what is left free
SHARE, UNLIMITED = -1, 0  # special values of a limit, which is otherwise a number

MAX_REQUESTS, MAX_BODIES, MAX_WAITS = 800, 400, 270  # limits of an API process
MAX_JOBS, MAX_DRAWS = 10_000, 10_000  # limits of the deployment
HELD = "glle:shares"  # hash in the cache's Redis: what tenants hold in each API process, as JSON with its time
HELD_MS = 5000  # what a process has published counts for this long

# Lua: whether a tenant that holds `held` may hold one more, if all tenants hold `used` of `total`.
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
    """Return which fraction of what a tenant may hold the tenant holds."""
    return held / max(1, allowed_of(limit, total))


def allowed_tasks(workers: int, *, has_keys: bool, are_short: bool) -> int:
    """Return how many tasks of one tenant may run or be next in a queue; its other tasks wait behind them.

    The limit is one less than the number of live workers, so that a tenant never occupies all of them. For short tasks,
    and without keys (there is then one tenant only), the limit is the number of live workers.
    """
    return max(1, workers if are_short or not has_keys else workers - 1)


class Share:
    """What the tenants hold of one resource in this process.

    Parameters
    ----------
    total
        Total amount of the resource.
    limit
        Returns what a tenant may hold, as for `may_hold`.

    Attributes
    ----------
    held, used
        What each tenant holds, and what all tenants hold together.

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
        """Count an amount that a tenant takes; a negative amount is given back."""
        self.used += amount
        self.held[tenant] += amount
        if not self.held[tenant]:
            del self.held[tenant]

    @property
    def in_use(self) -> float:
        """The largest fraction of its share that any tenant holds."""
        return max((part_of(held, self.limit(tenant), self.total) for tenant, held in self.held.items()), default=0.0)

    @contextmanager
    def hold(self, tenant: str) -> Iterator[None]:
        """Hold one unit of the resource for a tenant while the context lasts."""
        self.add(tenant)
        try:
            yield
        finally:
            self.add(tenant, -1)


class Shares:
    """What the tenants hold of each resource in this API process, and what other API processes have published.

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
        self.incoming = Share(0, partial(limit, "incoming"))  # the total is set to the free bytes of the disk
        self.readers = Share(0, partial(limit, "readers"))  # the total is set by the readers
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
        """Return what each tenant holds of each resource in all API processes, and the most used fraction of a share.

        Raises `redis.RedisError`.
        """
        processes = [self._held()]
        for process, raw in client.hgetall(HELD).items():
            written, held = json.loads(raw)
            if text(process) != self._process and now_ms() - written < HELD_MS:
                processes.append(held)
        in_use = {}
        for name in self._shares:
            of_name = [held[name] for held in processes if name in held]
            total = sum((Counter(counts) for counts, _ in of_name), Counter[str]())
            in_use[name] = total, max((fraction for _, fraction in of_name), default=0.0)
        return in_use

    def _held(self) -> dict[str, tuple[Counter[str], float]]:
        return {name: (share.held, share.in_use) for name, share in self._shares.items() if share.held}

    @property
    def _shares(self) -> dict[str, Share]:
        return {name: share for name, share in vars(self).items() if isinstance(share, Share)}
