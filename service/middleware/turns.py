"""Turns of the tenants on the event loop: how many requests of one tenant begin at each turn of the loop.

A request costs up to two milliseconds of the event loop, so 200 requests of one tenant that arrive at once would
delay each step of another tenant's request by half a second. Here they begin in the order of their arrival, one at each
turn, while other tenants begin theirs. A request that waits for a job, a draw or a thread does not hold up later ones.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque

BEGUN_PER_TURN = 1  # requests of a tenant that may begin at one turn of the event loop


class Turns:
    """Limits how many requests of each tenant begin at one turn of this process's event loop."""

    def __init__(self, begun_per_turn: int = BEGUN_PER_TURN) -> None:
        self._limit = begun_per_turn
        self._begun: Counter[str] = Counter()  # requests that each tenant has begun at this turn of the loop
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._is_scheduled = False

    async def begin(self, tenant: str) -> None:
        """Wait until a request of the tenant may begin: at this turn of the event loop, or at a later one."""
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
        """Start a new turn: let the requests of each tenant that have waited longest begin, up to the limit."""
        self._begun.clear()
        for tenant in list(self._waiting):
            turns = self._waiting[tenant]
            while turns and self._begun[tenant] < self._limit:
                turn = turns.popleft()
                if not turn.done():  # if the client disconnects, its request is cancelled
                    turn.set_result(None)
                    self._begun[tenant] += 1
            if not turns:
                del self._waiting[tenant]
        self._is_scheduled = bool(self._begun)
        if self._is_scheduled:
            asyncio.get_running_loop().call_soon(self._next_turn)
