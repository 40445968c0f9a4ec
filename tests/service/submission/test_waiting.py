"""Requests that wait for a job, and priorities."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from service.submission import waiting
from service.submission.jobs import wait_until_ended
from service.submission.planning import Plan
from service.submission.waiting import wait_for_outcome
from tests.conftest import until
from tests.service.conftest import check_problem, upload
from tests.service.tenants import serve_stores
from worker.execution import tasks
from worker.jobs.notifications import Waiter
from worker.records import shares
from worker.records.job import BATCH, INTERACTIVE, QUEUES
from worker.records.shares import SHARE

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx
    from fastapi import FastAPI

    from worker.jobs.notifications import Notifications
    from worker.jobs.store import Job
    from worker.stores import Stores


@dataclass(eq=False)
class FakeJob:
    """Job with its notification and a count of reads."""

    is_open: bool = True
    is_over: bool = False
    looks: int = 0
    waiters: set[Waiter] = field(default_factory=set)

    @contextmanager
    def listen(self, _: str) -> Iterator[Waiter]:
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
    monkeypatch.setattr(waiting, "PAUSE_SECONDS", 60.0)


def wait(fake: FakeJob, seconds: float = 30.0) -> Any:
    """Wait for the job; return whether it is open then."""
    return wait_for_outcome(cast("Notifications", fake), "job", fake.look, seconds)


@pytest.mark.usefixtures("no_polls")
def test_a_notification_answers_all_that_wait() -> None:
    """Ninety long polls look twice each, and leave nothing behind."""

    async def run() -> None:
        fake = FakeJob()
        tasks = [asyncio.create_task(wait(fake)) for _ in range(90)]
        await asyncio.sleep(0.05)
        assert (fake.looks, len(fake.waiters)) == (90, 90)
        fake.end()
        assert set(await asyncio.gather(*tasks)) == {False}
        assert (fake.looks, len(fake.waiters)) == (180, 0)

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


def test_waits_of_a_tenant_are_limited(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait beyond the share returns the current state at once; other tenants wait, and a freed place is usable."""
    monkeypatch.setattr(stores.shares.waits, "total", 5)
    monkeypatch.setattr(stores.shares.waits, "limit", lambda _: SHARE)
    tenants = {tenant: stores.for_tenant(tenant) for tenant in ("a", "b")}

    async def run() -> None:
        fake = FakeJob()
        for here in tenants.values():
            monkeypatch.setattr(here.jobs, "fetch", lambda _: fake)
            object.__setattr__(here, "endings", fake)
        fake.id = "job"  # type: ignore[attr-defined] # of a job

        def start(tenant: str) -> asyncio.Task[Any]:
            return asyncio.create_task(wait_until_ended(tenants[tenant], cast("Job", fake), 30.0))

        tasks = [start("a") for _ in range(3)]
        other = start("b")
        await asyncio.sleep(0.05)
        assert await asyncio.wait_for(start("a"), 5) is fake
        assert not any(task.done() for task in [*tasks, other])
        tasks[0].cancel()  # its client is gone
        await asyncio.sleep(0.05)
        further = start("a")
        await asyncio.sleep(0.05)
        assert not further.done()
        fake.end()
        await asyncio.gather(*tasks[1:], other, further)

    asyncio.run(run())
    assert not stores.shares.waits.held


def test_a_timeout_returns_the_current_job(
    client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the timeout the response has the current state; if no waiting is allowed, it comes at once."""
    job = client.post("/v1/posteriors", json={"dataset": upload(client)}).json()["links"]["self"]
    assert client.get(job, params={"wait": 0.1}).json()["status"] == "queued"
    monkeypatch.setattr(shares, "MAX_WAITS", 0)
    with serve_stores(stores) as none:
        answer = none.get(job, params={"wait": 30})
        assert (answer.json()["status"], answer.headers["retry-after"]) == ("queued", "1")


def test_a_posterior_waits_for_its_fit(client: httpx.Client, app: FastAPI) -> None:
    """Without `wait` a posterior that is being fitted answers with its job; with `wait`, once the fit has ended."""
    job = client.post("/v1/posteriors", json={"dataset": upload(client)}).json()
    path = job["links"]["posterior"]
    assert client.get(path).json()["id"] == job["id"]
    assert client.get(path).headers["location"] == job["links"]["self"]
    for refused in (client.post(path + "/draws", json={"n_draws": 1}), client.delete(path)):
        assert job["id"] in check_problem(refused, 409, "posterior-not-ready")["remedy"]
    with ThreadPoolExecutor() as threads:
        waiting_request = threads.submit(client.get, path, params={"wait": 60})
        until(lambda: app.state.stores.shares.waits.used)
        tasks.fit(job["id"])
        assert waiting_request.result().status_code == 200
    assert client.get(f"{path}/arrays").status_code == 200


def test_interactive_jobs_precede_batches(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """Draws, fits and summaries that take little time precede batches: long ones, and those that need a calibration."""
    batch = client.post(posterior + "/draws", json={"n_draws": 800}).json()
    auto_batch = client.post(posterior + "/draws", json={"n_draws": 8, "scale": "auto"}).json()
    single = client.get(posterior + "/draws/5?wait=0").json()
    few = client.post(posterior + "/draws", json={"n_draws": 8}).json()
    small = client.post("/v1/posteriors", json={"dataset": upload(client)}).json()
    calibrated = client.get(posterior + "/draws/5?wait=0&scale=auto").json()
    summary = client.get(posterior + "/summary?wait=0&scale=1").json()
    auto = client.get(posterior + "/summary?wait=0&scale=auto").json()
    jobs = (single, few, small, summary, batch, auto_batch, calibrated, auto)
    assert [job["priority"] for job in jobs] == [*["interactive"] * 4, *["batch"] * 4]
    queues = [stores.jobs.fetch(job["id"]).queue for job in jobs]
    assert queues == [*[INTERACTIVE] * 4, *[BATCH] * 4] == sorted(queues, key=QUEUES.index)
    assert [Plan.from_method("isomap", {}).is_short(n) for n in (100, 10_000)] == [True, False]
