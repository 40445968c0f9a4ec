"""Turns of the tenants at the readers of uploads."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from service.uploads.sandbox.turns import FairSemaphore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine


@asynccontextmanager
async def slot(semaphore: FairSemaphore, tenant: str, seconds: float = 30) -> AsyncIterator[None]:
    """Hold a slot."""
    await semaphore.acquire(tenant, seconds)
    try:
        yield
    finally:
        semaphore.release(tenant)


async def order_of(slots: int, requests: list[str]) -> list[str]:
    """Return the order in which requests of tenants, such as `a1`, get a slot if they arrive in one moment."""
    semaphore, served = FairSemaphore(slots), list[str]()

    async def take_turn(request: str) -> None:
        async with slot(semaphore, request[0]):
            served.append(request)
            await asyncio.sleep(0)

    await asyncio.gather(*map(take_turn, requests))
    return served


@pytest.mark.parametrize(
    ("slots", "requests", "served"),
    [
        (1, "a1 a2 a3 a4 b1", "a1 b1 a2 a3 a4"),
        (2, "a1 a2 a3 a4 a5 b1 b2", "a1 a2 b1 a3 b2 a4 a5"),
        (1, "a1 a2 a3 b1 b2 b3", "a1 b1 a2 b2 a3 b3"),
        (1, "a1 a2 a3 b1 c1", "a1 b1 a2 c1 a3"),
        (3, "a1 b1 c1 a2", "a1 b1 c1 a2"),
    ],
)
def test_a_tenant_does_not_wait_behind_the_queue_of_another(slots: int, requests: str, served: str) -> None:
    """The next slot is of the tenant with the fewest slots; within a tenant the order stays."""
    assert asyncio.run(order_of(slots, requests.split())) == served.split()


def run_with(case: Callable[[FairSemaphore], Coroutine[None, None, None]]) -> None:
    """Run a case with a semaphore of one slot, which is free again at its end."""

    async def checked() -> None:
        semaphore = FairSemaphore(1)
        await case(semaphore)
        async with slot(semaphore, "z", 0.5):
            pass

    asyncio.run(checked())


async def hold(semaphore: FairSemaphore, tenant: str) -> None:
    """Wait for a slot and hold it."""
    async with slot(semaphore, tenant):
        await asyncio.sleep(30)


def test_requests_that_give_up_free_their_place() -> None:
    """A request that waits too long, or whose client disconnects, does not get the slot."""

    async def case(semaphore: FairSemaphore) -> None:
        async with slot(semaphore, "a", 1):
            with pytest.raises(TimeoutError):
                async with slot(semaphore, "b", 0.01):
                    pass
            waiting = asyncio.create_task(hold(semaphore, "b"))
            await asyncio.sleep(0)
            waiting.cancel()  # the slot is released before the task notices

    run_with(case)


def test_a_slot_that_arrives_with_a_cancellation_is_passed_on() -> None:
    """The slot was given, and its request ended before it could use it."""

    async def case(semaphore: FairSemaphore) -> None:
        async with slot(semaphore, "a", 1):
            waiting = asyncio.create_task(hold(semaphore, "b"))
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()

    run_with(case)
