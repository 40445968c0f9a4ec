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
    streams    streams of events that an API process has open
    jobs       open jobs of the deployment
    draws      requests for single draws that wait
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PART = 3  # a tenant may hold so many times what it leaves free
SHARE, UNLIMITED = -1, 0  # instead of the number that a tenant may hold

MAX_REQUESTS, MAX_BODIES, MAX_WAITS, MAX_STREAMS = 800, 400, 270, 100  # of an API process
MAX_JOBS, MAX_DRAWS = 10_000, 10_000  # of the deployment

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
    held
        What each tenant holds.

    """

    def __init__(self, total: float, limit: Callable[[str], int]) -> None:
        self.total = total
        self.held: Counter[str] = Counter()
        self._limit = limit

    @property
    def used(self) -> int:
        """What all tenants hold."""
        return self.held.total()

    def allows(self, tenant: str, amount: float = 1) -> bool:
        """Return whether a tenant may take `amount` more."""
        return may_hold(self.held[tenant], amount, self.total - self.used, self._limit(tenant))

    def add(self, tenant: str, amount: int) -> None:
        """Count what a tenant takes, or gives back if it is negative."""
        self.held[tenant] += amount
        if not self.held[tenant]:
            del self.held[tenant]

    @contextmanager
    def hold(self, tenant: str) -> Iterator[None]:
        """Hold one."""
        self.add(tenant, 1)
        try:
            yield
        finally:
            self.add(tenant, -1)
