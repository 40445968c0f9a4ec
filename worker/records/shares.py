"""Shares: how much of each resource that all tenants use together one tenant may hold.

There is one rule for all resources. **A tenant may hold at most 3 times (`SHARE_FACTOR`) as much as is left free.** One
greedy tenant therefore gets three quarters, two get three sevenths each, and something is always left for the next
tenant; no list of active tenants is needed. A tenant that holds nothing may take what is free. (Choudhury and Hahne,
Dynamic queue length thresholds for shared-memory packet switches, IEEE/ACM Transactions on Networking 6, 1998.)

A number in GLLE_QUOTAS replaces the share. Without API keys there is one tenant, which may hold everything.

    requests   requests in progress of an API process, whose bodies have arrived
    bodies     bodies that an API process is receiving
    incoming   bytes of these bodies; the total is the free bytes of the disk
    readers    processes of an API process that read uploads
    waits      requests of an API process that wait for jobs
    jobs       open jobs of the deployment
    draws      waiting requests for single draws

Workers have another rule (`allowed_tasks`): of each queue, a tenant's tasks may occupy all workers but one. Workers are
few, and each is busy until its task ends, so that a rule about free workers would come too late.
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

SHARE_FACTOR = 3  # a tenant may hold at most this many times as much as is left free
# Special values of a limit: SHARE is the tenant's share by the rule of `SHARE_FACTOR`, UNLIMITED is all that is free. A
# positive limit is the amount that a tenant may hold.
SHARE, UNLIMITED = -1, 0

# An API process has at most this many requests in progress, bodies that arrive, and requests that wait for jobs.
MAX_REQUESTS, MAX_BODIES, MAX_WAITS = 800, 400, 270
MAX_JOBS, MAX_DRAWS = 10_000, 10_000  # limits of the deployment on open jobs, and on waiting requests for single draws
# Hash in the cache's Redis: for each API process, JSON with a time, and how much of each resource each tenant holds.
HELD = "glle:shares"
HELD_MS = 5000  # milliseconds after which what a process has published is ignored

# Lua: whether a tenant that holds `held` may hold one more, if all tenants hold `used` of `total`.
MAY_HOLD = f"""
local function may_hold(held, used, total, limit)
  if used >= total then return false end
  if limit == {SHARE} then return held == 0 or held + 1 <= {SHARE_FACTOR} * (total - used - 1) end
  return limit == {UNLIMITED} or held < limit
end
"""


def may_hold(held: float, amount: float, free: float, limit: int = SHARE) -> bool:
    """Return whether a tenant may take `amount` of a resource, in addition to what the tenant holds.

    Parameters
    ----------
    held
        Amount that the tenant holds now.
    free
        Amount that no tenant holds.
    limit
        Amount that the tenant may hold. With `SHARE`, this is `SHARE_FACTOR` times as much as is then left free, but a
        tenant that holds nothing may take all that is free. With `UNLIMITED`, it is everything.

    """
    if amount > free:
        return False
    if limit == SHARE:
        return held == 0 or held + amount <= SHARE_FACTOR * (free - amount)
    return limit == UNLIMITED or held + amount <= limit


def allowed_of(limit: int, total: int) -> int:
    """Return how much of `total` a tenant may hold while no other tenant holds anything.

    `limit` is the amount that the tenant may hold; or `UNLIMITED`; or `SHARE`: the tenant may hold 3 times
    (`SHARE_FACTOR`) as much as is left free, and so, without other tenants, three quarters of `total`.
    """
    return total * SHARE_FACTOR // (SHARE_FACTOR + 1) if limit == SHARE else limit or total


def part_of(held: int, limit: int, total: int) -> float:
    """Return what a tenant holds as a fraction of the largest amount that it may hold; 1 if it is at its limit.

    The largest amount is what `limit` allows of `total` while no other tenant holds anything (`allowed_of`).
    """
    return held / max(1, allowed_of(limit, total))


def allowed_tasks(workers: int, *, has_keys: bool, are_short: bool) -> int:
    """Return how many tasks of one tenant may wait in a queue or run; RQ holds back the tenant's other tasks.

    The limit is one less than the number of live workers, so that a tenant does not occupy all workers, but at least
    one. If the tasks are short (shards of draws), or without API keys (there is then one tenant only), the limit is the
    number of workers.
    """
    return max(1, workers if are_short or not has_keys else workers - 1)


class Share:
    """How much of one shared resource, such as running requests, each tenant holds in this process.

    Parameters
    ----------
    total
        Total amount of the resource.
    limit
        Returns the limit of a tenant: the amount that the tenant may hold; `SHARE` for its share of what is free; or
        `UNLIMITED`.

    Attributes
    ----------
    held, used
        Amount that each tenant holds, and amount that all tenants hold together.

    """

    def __init__(self, total: int, limit: Callable[[str], int]) -> None:
        self.total = total
        self.limit = limit
        self.held: Counter[str] = Counter()
        self.used = 0

    def allows(self, tenant: str, amount: float = 1) -> bool:
        """Return whether a tenant may take `amount` more now; `add` then records that the tenant has taken it."""
        return may_hold(self.held[tenant], amount, self.total - self.used, self.limit(tenant))

    def add(self, tenant: str, amount: int = 1) -> None:
        """Record that a tenant takes an amount of the resource; a negative amount is given back."""
        self.used += amount
        self.held[tenant] += amount
        if not self.held[tenant]:
            del self.held[tenant]

    @property
    def in_use(self) -> float:
        """How near the tenants are to their limits: the largest fraction of a limit that is used (`part_of`), or 0."""
        return max((part_of(held, self.limit(tenant), self.total) for tenant, held in self.held.items()), default=0.0)

    @contextmanager
    def hold(self, tenant: str) -> Iterator[None]:
        """Record that a tenant holds one unit of the resource while the context lasts; `allows` is not asked."""
        self.add(tenant)
        try:
            yield
        finally:
            self.add(tenant, -1)


class Shares:
    """How much of each shared resource the tenants hold in this API process.

    `publish` writes these amounts to Redis, and `of_all` reads the amounts of all API processes, for the metrics.

    Parameters
    ----------
    limit
        Returns the limit of a tenant (see `may_hold`), by the name of the quota and the tenant.

    """

    def __init__(self, limit: Callable[[str, str], int]) -> None:
        of_requests = partial(limit, "requests")
        self.requests = Share(MAX_REQUESTS, of_requests)
        self.bodies = Share(MAX_BODIES, of_requests)
        self.waits = Share(MAX_WAITS, of_requests)
        self.incoming = Share(0, partial(limit, "incoming"))  # an upload sets the total to the free bytes of the disk
        self.readers = Share(0, partial(limit, "readers"))  # the pool of processes that read uploads sets the total
        self._process = secrets.token_hex(8)
        self._is_published = False

    def publish(self, client: redis.Redis) -> None:
        """Write to the cache's Redis how much of each resource each tenant holds in this process, for `of_all`.

        Raises `redis.RedisError`.
        """
        if held := self._held():
            with client.pipeline(transaction=False) as pipeline:
                pipeline.hset(HELD, self._process, json.dumps([now_ms(), held]))
                pipeline.pexpire(HELD, HELD_MS)
                pipeline.execute()
        elif self._is_published:
            client.hdel(HELD, self._process)
        self._is_published = bool(held)

    def of_all(self, client: redis.Redis) -> dict[str, tuple[Counter[str], float]]:
        """Return how much of each shared resource is in use, as (amounts, fraction) by the name of the resource.

        The amounts, by tenant, are what each tenant holds in all API processes together. The fraction is the largest
        part of its limit that any tenant holds in any one API process (`Share.in_use`). Raises `redis.RedisError`.
        """
        published = {text(process): json.loads(raw) for process, raw in client.hgetall(HELD).items()}
        processes = {process: held for process, (written, held) in published.items() if now_ms() - written < HELD_MS}
        processes[self._process] = self._held()
        in_use = {}
        for name in self._shares:
            of_name = [held[name] for held in processes.values() if name in held]
            total = sum((Counter(counts) for counts, _ in of_name), Counter[str]())
            in_use[name] = total, max((fraction for _, fraction in of_name), default=0.0)
        return in_use

    def _held(self) -> dict[str, tuple[Counter[str], float]]:
        return {name: (share.held, share.in_use) for name, share in self._shares.items() if share.held}

    @property
    def _shares(self) -> dict[str, Share]:
        return {name: share for name, share in vars(self).items() if isinstance(share, Share)}
