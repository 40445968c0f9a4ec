"""Fair scheduling of the tenants' requests: how many requests of one tenant begin per iteration of the event loop.

A request costs up to two milliseconds of the event loop, so 200 requests of one tenant that arrive at once would delay
each step of another tenant's request by half a second. Here they begin in the order of their arrival, one per
iteration, while other tenants begin theirs. A request that waits for a job, a draw or a thread does not hold up later
ones.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque

STARTS_PER_ITERATION = 1  # requests of a tenant that may begin in one iteration of the event loop


class FairScheduler:
    """Limits how many requests of each tenant begin in one iteration of this process's event loop."""

    def __init__(self, starts_per_iteration: int = STARTS_PER_ITERATION) -> None:
        self._limit = starts_per_iteration
        self._begun: Counter[str] = Counter()  # requests that each tenant has begun in this iteration
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._is_scheduled = False

    async def begin(self, tenant: str) -> None:
        """Wait until a request of the tenant may begin: in this iteration of the event loop, or in a later one."""
        if self._begun[tenant] < self._limit and tenant not in self._waiting:
            self._begun[tenant] += 1
            if not self._is_scheduled:
                self._is_scheduled = True
                asyncio.get_running_loop().call_soon(self._next_iteration)
            return
        start = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(start)
        await start

    def _next_iteration(self) -> None:
        """Start an iteration: of each tenant, let the requests that have waited longest begin, up to the limit."""
        self._begun.clear()
        for tenant in list(self._waiting):
            starts = self._waiting[tenant]
            while starts and self._begun[tenant] < self._limit:
                start = starts.popleft()
                if not start.done():  # if the client disconnects, its request is cancelled
                    start.set_result(None)
                    self._begun[tenant] += 1
            if not starts:
                del self._waiting[tenant]
        self._is_scheduled = bool(self._begun)
        if self._is_scheduled:
            asyncio.get_running_loop().call_soon(self._next_iteration)
