"""Notifications of jobs."""

from __future__ import annotations

import asyncio
import errno
import time
from typing import TYPE_CHECKING

import pytest

from tests.conftest import until
from tests.worker.execution.workers import bare_fit
from worker.base.problems import refuse
from worker.jobs.lua_scripts import ENDED

OTHERS = [0]  # subscribers at the start of the test

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.jobs.store import Job
    from worker.stores import Stores


def running(stores: Stores, claim: str = "claim") -> Job:
    """Create a job, and set it to running."""
    return stores.jobs.start(bare_fit(stores.jobs, claim).id)


@pytest.fixture(autouse=True)
def others(stores: Stores) -> int:
    """Count the subscribers that earlier tests have left, for `listening`."""
    ((_, OTHERS[0]),) = stores.client.pubsub_numsub(ENDED)
    return OTHERS[0]


def listening(stores: Stores) -> int:
    """Return the number of subscriptions to the ends of jobs that this test has made."""
    ((_, count),) = stores.client.pubsub_numsub(ENDED)
    return int(count) - OTHERS[0]


async def wait_for_end(stores: Stores, job: Job, then: Callable[[], object]) -> float:
    """Wait for the notification of the job's end, which `then` causes; return its delay in seconds."""
    with stores.endings.listen(job.id) as ended:
        await asyncio.to_thread(until, lambda: listening(stores))
        started = time.monotonic()
        then()
        await asyncio.wait_for(ended.wait(), 10)
        return time.monotonic() - started


@pytest.mark.parametrize("end", ["succeeded", "failed", "cancelled"])
def test_every_end_is_published(stores: Stores, end: str) -> None:
    """Success, failure and cancellation wake the request that waits for the job, and no other request."""
    job = running(stores)

    def then() -> None:
        if end == "succeeded":
            stores.jobs.succeed(job.id)
        elif end == "failed":
            stores.jobs.fail(job.id, refuse("internal-error", 500, "no", "none").problem)
        else:
            stores.jobs.cancel(job.id)
            stores.jobs.finish_cancel(job.id)

    async def run() -> None:
        with stores.endings.listen("job_1") as other:
            await wait_for_end(stores, job, then)
            assert not other.is_set()

    asyncio.run(run())
    assert stores.jobs.fetch(job.id).status == end
    assert not stores.endings._subscriptions


def test_a_lost_connection_is_renewed(stores: Stores) -> None:
    """If a job ends while the connection is lost, its waiter is woken after the reconnection."""
    job, other = running(stores), running(stores, "other")

    def lose() -> None:
        stores.client.client_kill_filter(_type="pubsub")
        stores.client.hset(f"glle:job:{job.id}", "status", "succeeded")  # without a notification

    async def run() -> None:
        await wait_for_end(stores, job, lose)
        await wait_for_end(stores, other, lambda: stores.jobs.succeed(other.id))

    asyncio.run(run())


def test_a_connection_that_the_system_gave_up_is_renewed(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ETIMEDOUT, which is a TimeoutError in Python, does not end the subscription."""
    readers: list[asyncio.StreamReader] = []
    read = asyncio.StreamReader.read

    async def read_and_record(self: asyncio.StreamReader, n: int = -1) -> bytes:
        readers.append(self)
        return await read(self, n)

    monkeypatch.setattr(asyncio.StreamReader, "read", read_and_record)

    async def run() -> None:
        with stores.endings.listen("job_1") as ended:
            await asyncio.to_thread(until, lambda: listening(stores) and readers)
            readers[-1].set_exception(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
            await asyncio.wait_for(ended.wait(), 10)  # notifications may have been lost

    asyncio.run(run())


def test_a_subscription_ends_with_its_event_loop_or_its_stores(stores: Stores) -> None:
    """One connection serves all requests of an event loop; it is closed with the loop, or by `close`."""
    job = running(stores)
    asyncio.run(wait_for_end(stores, job, lambda: stores.jobs.succeed(job.id)))
    until(lambda: not listening(stores))

    async def run() -> None:
        with stores.endings.listen("job_1"), stores.endings.listen("job_2"):
            await stores.endings.wait_until_subscribed()
            assert listening(stores) == 1
            stores.endings.close()
            await asyncio.to_thread(until, lambda: not listening(stores))

    asyncio.run(run())


def test_a_subscription_ends_when_it_is_cancelled_at_any_moment(stores: Stores) -> None:
    """A cancellation ends the subscription, also while it connects or subscribes."""

    async def run(steps: int) -> None:
        subscription = stores.endings._subscription()
        for _ in range(steps):
            await asyncio.sleep(0)
        subscription.task.cancel()
        done, _ = await asyncio.wait([subscription.task], timeout=30)
        assert done, f"it goes on after {steps} steps"

    for steps in range(30):
        asyncio.run(run(steps))
