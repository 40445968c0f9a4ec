"""The first seconds of a task, its tenant's share of the workers, and what becomes of it beyond them."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import glle_engine
from glle_engine import FitSpec, manifolds
from glle_engine.methods import METHODS
from tests.conftest import until
from tests.worker.execution.workers import fit_job, horses, store_dataset, worker
from worker.analyses.audit import AuditSpec
from worker.execution import process_guard
from worker.execution.supervisor import fork
from worker.execution.worker import LongTaskLock
from worker.jobs.queue import MAX_RETRIES
from worker.jobs.rq_tasks import fetch_tasks
from worker.jobs.store import NO_QUOTA
from worker.records.ids import DEFAULT, text
from worker.records.job import BATCH, INTERACTIVE

if TYPE_CHECKING:
    from worker.base.settings import Settings
    from worker.jobs.store import Job
    from worker.stores import Stores

pytestmark = pytest.mark.skipif(not process_guard.LINUX, reason="reads /proc")

STARTS = "test:starts"  # list of "posterior pid" in the queue's Redis, one for each start of a fit
# A fit of an even number of points is overdue; one of a number that ends in 1 never ends by itself.
PROGRAM = f"""
import os, time, redis
from worker.execution import tasks, worker
worker.INTERACTIVE_SECONDS = 0.7
real = tasks.fit_values
def fit_values(stores, values, parameters, on_progress):
    n = len(values)
    redis.Redis.from_url(os.environ["GLLE_REDIS_URL"]).rpush("{STARTS}", f"{{n}} {{os.getpid()}}")
    time.sleep(1.6 if n % 2 == 0 else 600 if n % 10 == 1 else 0)
    return real(stores, values, parameters, on_progress)
tasks.fit_values = fit_values
"""
QUICK, SLOW, ENDLESS = 103, 100, 101  # points


def enqueued(stores: Stores, n: int, *, short: bool = True, k: int = 10) -> Job:
    """Enqueue a fit of n points, by default as an interactive task."""
    job = fit_job(stores, manifolds.make("swiss_roll", n, seed=0).X, short=short, n_neighbors=k)
    stores.queue.enqueue(job)
    return job


def starts(stores: Stores, n: int) -> list[int]:
    """Return the pids of the processes that have started a fit of n points."""
    pairs = [text(line).split() for line in stores.client.lrange(STARTS, 0, -1)]
    return [int(pid) for points, pid in pairs if int(points) == n]


def succeeded(stores: Stores, *jobs: Job) -> None:
    """Wait until jobs have ended, and assert that they have succeeded."""
    for job in jobs:
        until(lambda job=job: not stores.jobs.fetch(job.id).is_open, 30)  # type: ignore[misc] # mypy: its default
        ended = stores.jobs.fetch(job.id)
        assert ended.status == "succeeded", ended.error


def test_an_overdue_task_ends_as_a_batch_with_the_same_result(stores: Stores, settings: Settings) -> None:
    """While a batch task runs, the task is stopped after its time, waits as a batch task, and loses no retry."""
    batch = enqueued(stores, ENDLESS, short=False)
    with worker(settings, "one", PROGRAM):
        until(lambda: starts(stores, ENDLESS))
        job = enqueued(stores, SLOW)
        until(lambda: stores.jobs.fetch(job.id).queue == BATCH)
        waiting = stores.jobs.fetch(job.id)
        assert (waiting.status, waiting.stage, waiting.done) == ("queued", "queued", 0)
        quick = enqueued(stores, QUICK)
        succeeded(stores, quick)  # the place of interactive tasks is free again
        assert len(starts(stores, SLOW)) == 1
        (task,) = fetch_tasks(stores.client, [job.id])
        assert task is not None
        assert (task.origin, task.retries_left) == (BATCH, MAX_RETRIES)
        stores.queue.withdraw(stores.jobs.cancel(batch.id))
        succeeded(stores, job)
        assert len(starts(stores, SLOW)) == 2  # it was stopped once, and never as a batch
        assert stores.counts.read()[0].get(("tasks_killed", INTERACTIVE), 0) == 0
    X = manifolds.make("swiss_roll", SLOW, seed=0).X
    expected = glle_engine.fit(X, FitSpec(n_neighbors=10)).arrays()
    arrays = stores.posteriors.load(stores.posteriors.fetch(job.subject)).arrays()
    for name, array in expected.items():
        np.testing.assert_array_equal(arrays[name], array)


def test_an_overdue_task_goes_on_while_no_batch_runs(stores: Stores, settings: Settings) -> None:
    """A long interactive task goes on as a batch task; other interactive tasks run beside it.

    Batch tasks wait for its end, and then the tenant's share is free again.
    """
    with worker(settings, "one", PROGRAM):
        job = enqueued(stores, SLOW)
        until(lambda: stores.client.zscore(f"rq:rl:{BATCH}:{DEFAULT}:allowed", job.id))
        batch = enqueued(stores, SLOW + 2, short=False)
        succeeded(stores, enqueued(stores, QUICK), job, batch)
        assert (len(starts(stores, SLOW)), len(starts(stores, SLOW + 2))) == (1, 1)
        assert stores.jobs.fetch(job.id).queue == INTERACTIVE
        until(lambda: not any(stores.client.zcard(key) for key in stores.client.scan_iter("rq:rl:*:allowed")))


def test_a_cancelled_task_is_not_a_batch(stores: Stores, settings: Settings) -> None:
    """A job that is cancelled while its interactive task runs is not started again as a batch task."""
    enqueued(stores, ENDLESS, short=False)
    with worker(settings, "one", PROGRAM) as process:
        until(lambda: starts(stores, ENDLESS))
        job = enqueued(stores, SLOW)
        until(lambda: starts(stores, SLOW))
        stores.jobs.cancel(job.id)
        until(lambda: stores.jobs.fetch(job.id).status == "cancelled")
        until(lambda: len(horses(process.pid)) == 1)
        assert starts(stores, SLOW) == starts(stores, SLOW)[:1]


@pytest.mark.parametrize("program", ["raise MemoryError", "os.abort()"], ids=["allocation", "crash"])
def test_a_task_beyond_the_memory_of_an_interactive_one_is_a_batch(
    stores: Stores, settings: Settings, program: str
) -> None:
    """If an interactive task crashes, or an allocation fails under its limit, the task succeeds as a batch task."""
    before = f"""
import os, resource
from worker.execution import tasks
real = tasks.fit_values
def fit_values(*arguments, **options):
    if resource.getrlimit(resource.RLIMIT_DATA)[0] < 2**30:
        {program}
    return real(*arguments, **options)
tasks.fit_values = fit_values
"""
    with worker(settings, "one", before):
        job = enqueued(stores, QUICK)
        succeeded(stores, job)
    assert stores.jobs.fetch(job.id).queue == BATCH


def test_halves_of_an_overdue_audit_are_shared(stores: Stores, settings: Settings) -> None:
    """When an interactive audit becomes a batch job, its missing halves are made in parts, by several workers."""
    X = manifolds.make("s_curve", 80, seed=2).X
    dataset = store_dataset(stores, X)
    spec = AuditSpec(dataset=dataset, method="pca", parameters=METHODS["pca"].spec().to_dict())
    job, _ = stores.jobs.create(kind="audit", claim="c", posterior=None, spec=spec.to_dict(), total=1, short=True)
    slow = """
import time
from worker.analyses import resamples
real = resamples.resample
def resample(*arguments, **options):
    time.sleep(0.6)
    return real(*arguments, **options)
resamples.resample = resample
"""
    enqueued(stores, ENDLESS, short=False)
    with worker(settings, "one", PROGRAM + slow):
        until(lambda: starts(stores, ENDLESS))
        stores.queue.enqueue(job)
        until(lambda: stores.jobs.fetch(job.id).queue == BATCH)
        parts = stores.jobs.fetch(job.id).parts
        assert parts is not None
        assert (parts.sizes, parts.stage) == ((4, 4), "halves")
        with worker(settings, "two"):
            succeeded(stores, job)
    entry = stores.find_result(spec, dataset)
    assert entry is not None
    assert entry.meta["pairs"] >= 4


def test_a_tenant_leaves_a_worker_to_others(stores: Stores, settings: Settings) -> None:
    """While a tenant has four long tasks on two workers, the small fit of another tenant begins within seconds."""
    for name in ("alice", "bob"):
        stores.keys.create(name, ("write",), "test", None)

    def fit_of(name: str, n: int, *, short: bool) -> Job:
        dataset = store_dataset(stores, manifolds.make("swiss_roll", n, seed=0).X)
        spec: dict[str, Any] = {"dataset": dataset, "spec": FitSpec(n_neighbors=10).to_dict()}
        id_ = f"post_{name}{n}"
        jobs = stores.jobs.for_tenant(name, NO_QUOTA)
        job, _ = jobs.create(kind="fit", claim=id_, posterior=id_, spec=spec, total=1, short=short)
        stores.queue.enqueue(job)
        return job

    with ExitStack() as stack:
        for name in ("first", "second"):
            stack.enter_context(worker(settings, name, PROGRAM))
        until(lambda: stores.queue.live_workers() == 2)
        long = [fit_of("alice", ENDLESS + 10 * number, short=number % 2 == 0) for number in range(4)]
        until(lambda: sum(stores.jobs.fetch(job.id).status == "running" for job in long) >= 2)
        for n in (QUICK, QUICK + 4):
            small = fit_of("bob", n, short=True)
            until(lambda: bool(starts(stores, n)), 3)  # noqa: B023 # it is called at once
            assert small.queue == INTERACTIVE
        other = fit_of("bob", SLOW, short=False)
        until(lambda: bool(starts(stores, SLOW)))  # a batch task of another tenant runs, too
        assert stores.jobs.fetch(other.id).status == "running"
        assert any(stores.jobs.fetch(job.id).status == "queued" for job in long)


def test_the_lock_of_long_tasks_ends_with_its_process() -> None:
    """One process has the lock at a time, and can acquire it again; the end of the process releases the lock."""
    lock = LongTaskLock()
    read, write = os.pipe()

    def hold() -> int:
        os.write(write, b"1" if lock.try_acquire() else b"0")
        signal.pause()
        return 0

    pid = fork("holder", hold)
    assert os.read(read, 1) == b"1"
    assert not lock.try_acquire()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert lock.try_acquire()
    assert lock.try_acquire()
    lock.release()
