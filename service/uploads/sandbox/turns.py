"""Semaphore whose slots go to the tenants in turns, so that one tenant's uploads do not hold back another's."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class FairSemaphore:
    """Semaphore of one event loop, with a queue for each tenant.

    A free slot goes to the waiting tenant with the fewest slots; among equals to the one whose last turn is longest
    ago. Requests of one tenant are first in, first out.
    """

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # in the order of their turns

    @asynccontextmanager
    async def slot(self, tenant: str, seconds: float) -> AsyncIterator[None]:
        """Hold a slot; raise `TimeoutError` if none is free in time."""
        async with asyncio.timeout(seconds):
            await self._acquire(tenant)
        try:
            yield
        finally:
            self._release(tenant)

    async def _acquire(self, tenant: str) -> None:
        if self._free:
            self._free -= 1
            self._held[tenant] += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(tenant, turn)
            else:  # the slot arrived with the cancellation
                self._release(tenant)
            raise

    def _release(self, tenant: str) -> None:
        """Give the slot of a tenant to the next one; the slot counts as the giver's until then."""
        while self._waiting:
            following = min(self._waiting, key=lambda name: self._held[name])
            turn = self._waiting[following].popleft()
            if others := self._waiting.pop(following):
                self._waiting[following] = others  # behind the other tenants
            if not turn.done():
                self._held[following] += 1
                turn.set_result(None)
                break
        else:
            self._free += 1
        self._held -= Counter([tenant])  # drops a tenant without slots

    def _forget(self, tenant: str, turn: asyncio.Future[None]) -> None:
        """Remove a cancelled request."""
        queue = self._waiting.get(tenant, deque())
        if turn in queue:
            queue.remove(turn)
            if not queue:
                del self._waiting[tenant]
