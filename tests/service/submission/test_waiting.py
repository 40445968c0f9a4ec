"""Requests that wait for a job: no notification is lost, and a limit per tenant."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from service.submission import waiting
from service.submission.waiting import OF_TENANT, wait_for_outcome
from tests.conftest import evict, until
from tests.service.conftest import upload
from tests.service.tenants import served
from worker.execution import tasks
from worker.jobs.notifications import Waiter

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from worker.jobs.notifications import Notifications
    from worker.stores import Stores


@dataclass(eq=False)
class FakeJob:
    """Job with its notification and a count of reads."""

    is_open: bool = True
    is_over: bool = False
    looks: int = 0
    waiters: set[Waiter] = field(default_factory=set)

    @contextmanager
    def of(self, _: str) -> Iterator[Waiter]:
        """Return the event of its notification."""
        self.waiters.add(waiter := Waiter())
        try:
            yield waiter
        finally:
            self.waiters.remove(waiter)

    async def wait_until_subscribed(self) -> None:
        """Return at once."""

    async def look(self, _: object = None) -> tuple[bool, bool]:
        """Return whether the job is open, and whether that is final."""
        self.looks += 1
        await asyncio.sleep(0)
        return self.is_open, not self.is_open

    def end(self) -> None:
        """End the job, with a notification."""
        self.is_open = False
        for waiter in self.waiters:
            waiter.set()


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing but notifications cause a second look."""
    monkeypatch.setattr(waiting, "FIRST_SLEEP", 60.0)
    monkeypatch.setattr(waiting, "LONGEST_SLEEP", 60.0)


def wait(fake: FakeJob, seconds: float = 30.0, tenant: str = "a") -> Any:
    """Wait for the job; return whether it is open then."""
    return wait_for_outcome(cast("Notifications", fake), "job", fake.look, seconds, tenant=tenant)


@pytest.mark.usefixtures("no_polls")
def test_a_notification_answers_all_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine hundred long polls look twice each, and leave nothing behind."""
    monkeypatch.setattr(waiting, "MAX_WAITS", 900)

    async def run() -> None:
        fake = FakeJob()
        tasks = [asyncio.create_task(wait(fake)) for _ in range(900)]
        await asyncio.sleep(0.05)
        assert (fake.looks, len(fake.waiters)) == (900, 900)
        fake.end()
        assert set(await asyncio.gather(*tasks)) == {False}
        assert (fake.looks, len(fake.waiters), len(OF_TENANT)) == (1800, 0, 0)

    asyncio.run(run())


@pytest.mark.usefixtures("no_polls")
def test_a_notification_during_a_read_is_not_lost() -> None:
    """The job ends between the start and the return of a read: the next read follows at once."""

    class LateJob(FakeJob):
        async def look(self, _: object = None) -> tuple[bool, bool]:
            self.looks += 1
            read = self.is_open
            self.end()
            await asyncio.sleep(0)
            return read, not read

    async def run() -> None:
        fake = LateJob()
        assert not await wait(fake)
        assert fake.looks == 2

    asyncio.run(run())


def test_waits_of_a_tenant_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait beyond the limit returns the current state at once; other tenants wait, and a freed place is usable."""
    monkeypatch.setattr(waiting, "MAX_WAITS", 3)

    async def run() -> None:
        fake = FakeJob()
        tasks = [asyncio.create_task(wait(fake)) for _ in range(3)]
        other = asyncio.create_task(wait(fake, tenant="b"))
        await asyncio.sleep(0.01)
        assert await asyncio.wait_for(wait(fake), 5)
        assert not any(task.done() for task in [*tasks, other])
        tasks[0].cancel()  # its client is gone
        await asyncio.sleep(0.01)
        more = asyncio.create_task(wait(fake))
        await asyncio.sleep(0.01)
        assert not more.done()
        fake.end()
        assert set(await asyncio.gather(*tasks[1:], other, more)) == {False}

    asyncio.run(run())


def test_a_failed_read_fails_its_wait() -> None:
    """The next wait reads again."""

    class UnreachableJob(FakeJob):
        async def look(self, _: object = None) -> tuple[bool, bool]:
            if self.is_open:
                raise ConnectionError
            return await super().look()

    async def run() -> None:
        fake = UnreachableJob()
        results = await asyncio.gather(*(wait(fake) for _ in range(5)), return_exceptions=True)
        assert {type(error) for error in results} == {ConnectionError}
        fake.is_open = False
        assert not await wait(fake)

    asyncio.run(run())


def test_a_timeout_returns_the_current_job(
    client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response is 202, also if no waiting is allowed."""
    job = client.post("/v1/posteriors", json={"dataset": upload(client)}).json()["links"]["self"]
    assert client.get(job, params={"wait": 0.1}).json()["status"] == "queued"
    monkeypatch.setattr(waiting, "MAX_WAITS", 0)
    with served(stores) as none:
        answer = none.get(job, params={"wait": 30})
        assert (answer.json()["status"], answer.headers["retry-after"]) == ("queued", "1")


def test_a_posterior_and_its_arrays_wait_for_their_fit(
    client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `wait` they answer with the job; with it, once the fit has ended, also one of evicted arrays."""
    monkeypatch.setattr(tasks, "process_stores", lambda: stores)
    job = client.post("/v1/posteriors", json={"dataset": upload(client)}).json()
    path = job["links"]["posterior"]
    assert client.get(path).json()["id"] == job["id"]
    with ThreadPoolExecutor() as threads:
        for what in ("", "/arrays"):
            waiting_request = threads.submit(client.get, f"{path}{what}", params={"wait": 60})
            until(lambda: OF_TENANT)
            tasks.fit(stores.jobs.claim_holder(path.rpartition("/")[2]).id)  # type: ignore[union-attr] # it exists
            assert waiting_request.result().status_code == 200
            evict(stores, "posterior:")
            assert client.get(f"{path}/arrays").status_code == 202
