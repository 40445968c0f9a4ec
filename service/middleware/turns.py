"""Turns of the tenants on the event loop: how many requests of one tenant begin at each turn of the loop.

A request costs up to two milliseconds of the event loop, so 200 requests of one tenant that arrive at once would
delay each step of another tenant's request by half a second. The others wait here, in the order of their arrival, while
other tenants begin. A request that waits for a job, a draw or a thread does not hold up the later ones.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque

BEGUN_PER_TURN = 1  # requests of a tenant that may begin at one turn of the event loop


class Turns:
    """Turns of tenants on the event loop of this process."""

    def __init__(self, begun_per_turn: int = BEGUN_PER_TURN) -> None:
        self._limit = begun_per_turn
        self._begun: Counter[str] = Counter()  # requests that each tenant has begun at this turn of the loop
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._is_scheduled = False

    async def begin(self, tenant: str) -> None:
        """Return at once, or at a later turn of the event loop if the tenant has begun enough requests at this one."""
        if self._begun[tenant] < self._limit and tenant not in self._waiting:
            self._begun[tenant] += 1
            if not self._is_scheduled:
                self._is_scheduled = True
                asyncio.get_running_loop().call_soon(self._next_turn)
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        await turn

    def _next_turn(self) -> None:
        """Begin the requests that have waited longest, of each tenant."""
        self._begun.clear()
        for tenant in list(self._waiting):
            turns = self._waiting[tenant]
            while turns and self._begun[tenant] < self._limit:
                turn = turns.popleft()
                if not turn.done():  # its client may have disconnected
                    turn.set_result(None)
                    self._begun[tenant] += 1
            if not turns:
                del self._waiting[tenant]
        self._is_scheduled = bool(self._begun)
        if self._is_scheduled:
            asyncio.get_running_loop().call_soon(self._next_turn)
