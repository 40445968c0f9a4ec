"""Semaphore whose slots go to the tenants in turns, so that one tenant's uploads do not hold back another's."""

from __future__ import annotations

import asyncio
from collections import Counter, deque


class FairSemaphore:
    """Semaphore of one event loop, with a queue for each tenant.

    A free slot goes to the waiting tenant with the fewest slots; among equals to the one whose last turn is longest
    ago. Requests of one tenant are first in, first out.
    """

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # in the order of their turns

    async def acquire(self, tenant: str, seconds: float) -> None:
        """Take a slot; raise `TimeoutError` if none is free in time."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        self._give()
        try:
            async with asyncio.timeout(seconds):
                await turn
        except BaseException:
            if not turn.cancelled():  # the slot came with the cancellation
                self.release(tenant)
            raise

    def release(self, tenant: str) -> None:
        """Give a slot back."""
        self._free += 1
        self._give()  # the slot counts as this tenant's until then
        self._held -= Counter([tenant])  # drops a tenant without slots

    def _give(self) -> None:
        """Give the free slots to the next requests that still wait; those that gave up are dropped."""
        while self._free and self._waiting:
            tenant = min(self._waiting, key=lambda name: self._held[name])
            turn = self._waiting[tenant].popleft()
            if others := self._waiting.pop(tenant):
                self._waiting[tenant] = others  # behind the other tenants
            if not turn.done():
                self._free -= 1
                self._held[tenant] += 1
                turn.set_result(None)
