"""Real worker processes and their failures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pytest
from rq.timeouts import HorseMonitorTimeoutException, UnixSignalDeathPenalty

import glle_engine
from glle_engine import FitSpec, manifolds
from tests.conftest import until
from tests.worker.execution.jobs import enqueued_fit
from tests.worker.execution.workers import horses, is_running, worker
from worker.execution import process_guard
from worker.execution.rq_worker import TaskJob, TaskWorker, WorkerQueue
from worker.jobs.queue import RETRIES
from worker.jobs.rq_types import BATCH, INTERACTIVE, fetch_tasks, open_queue
from worker.jobs.store import job_key
from worker.observability.live_workers import PATIENCE_SECONDS
from worker.records.draws import DrawsSpec
from worker.records.ids import posterior_id
from worker.storage.datasets import Table
from worker.storage.posteriors import ARRAYS, PosteriorRecord

if TYPE_CHECKING:
    from pathlib import Path

    from worker.base.settings import Settings
    from worker.jobs.store import Job
    from worker.stores import Stores

pytestmark = pytest.mark.skipif(not process_guard.LINUX, reason="reads /proc")


def test_the_engine_is_loaded_before_the_fork() -> None:
    """The worker imports its tasks before the fork, so that no child spends seconds on it."""
    program = "import sys, worker.execution.worker; sys.exit('worker.execution.tasks' not in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_another_worker_finishes_the_task_of_a_killed_one(stores: Stores, settings: Settings) -> None:
    """After kill -9 no orphan process stays; another worker notices by heartbeats and finishes the job."""
    job = enqueued_fit(stores, 20_000)
    with worker(settings, "first") as first:
        until(lambda: horses(first.pid) and stores.jobs.fetch(job.id).stage in {"weights", "embedding"})
        (horse,) = horses(first.pid)
        os.kill(first.pid, signal.SIGKILL)
        until(lambda: not is_running(horse))
    assert stores.jobs.fetch(job.id).status == "running"
    with worker(settings, "second"):
        until(lambda: not stores.jobs.fetch(job.id).is_open)
    ended = stores.jobs.fetch(job.id)
    assert (ended.status, ended.error) == ("succeeded", None)
    posterior = stores.posteriors.load(job.subject)
    assert posterior is not None
    assert np.isfinite(posterior.embedding).all()


def test_an_idle_worker_finds_a_job_without_a_task(stores: Stores, settings: Settings) -> None:
    """An idle worker finds a job without a task within a heartbeat, and runs it."""
    job = enqueued_fit(stores, 100)
    stores.client.delete(f"rq:job:{job.id}", open_queue(BATCH, stores.client).key)
    with worker(settings, "looking"):
        until(lambda: stores.client.hget(job_key(job.id), "status") == b"succeeded")


def test_the_alive_file_is_prolonged_while_the_worker_lives(stores: Stores, settings: Settings, tmp_path: Path) -> None:
    """Its time is in the future, after any wait for a silent Redis, and moves with the heartbeats of an idle worker."""
    file = tmp_path / "alive"
    with worker(replace(settings, alive_file=str(file)), "idle"):
        until(stores.queue.live_workers)
        first = file.stat().st_mtime
        assert first > time.time() + PATIENCE_SECONDS
        until(lambda: file.stat().st_mtime > first)


def test_a_second_signal_leaves_the_task_to_another_worker(stores: Stores, settings: Settings) -> None:
    """A first SIGTERM waits for the task; a second kills it and ends the worker; another worker repeats the task."""
    job = enqueued_fit(stores, 60_000)
    with worker(settings, "stopping") as process:
        until(lambda: stores.jobs.fetch(job.id).stage in {"weights", "embedding"})
        process.send_signal(signal.SIGTERM)
        time.sleep(1.2)  # RQ ignores a second signal within a second
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    assert stores.jobs.fetch(job.id).status == "running"
    (task,) = fetch_tasks(stores.client, [job.id])
    assert task is not None
    assert task.retries_left == RETRIES
    with worker(settings, "next"):
        until(lambda: fetch_tasks(stores.client, [job.id])[0].retries_left == RETRIES - 1)  # type: ignore[union-attr] # it exists


def test_a_heartbeat_does_not_interrupt_a_cold_stop(monkeypatch: pytest.MonkeyPatch, stores: Stores) -> None:
    """The timer of RQ's monitor fires while the work-horse is killed: the worker exits all the same.

    Otherwise RQ takes the death of the work-horse for a failure, and the task has lost a retry.
    """
    worker_ = TaskWorker([BATCH], connection=stores.client, job_class=TaskJob, queue_class=WorkerQueue, name="cold")
    worker_._shutdown_requested_date = datetime.now(UTC) - timedelta(seconds=2)
    worker_._horse_pid = 1
    monkeypatch.setattr(worker_, "kill_horse", lambda: signal.raise_signal(signal.SIGALRM))
    monkeypatch.setattr(worker_, "wait_for_horse", lambda: (None, None, None))
    try:
        monitor = UnixSignalDeathPenalty(60, HorseMonitorTimeoutException)  # type: ignore[no-untyped-call] # of RQ
        with monitor, pytest.raises(SystemExit):
            worker_.request_force_stop(signal.SIGTERM, None)
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def test_a_repeated_task_leaves_the_list_of_taken_ones(stores: Stores) -> None:
    """Its first work-horse was killed before it removed the task there; the second one serves two queues."""
    job, intermediate = enqueued_fit(stores, 100), open_queue(BATCH, stores.client).intermediate_queue
    stores.client.rpush(intermediate.key, job.id)
    worker_ = TaskWorker([BATCH, INTERACTIVE], connection=stores.client, job_class=TaskJob, queue_class=WorkerQueue)
    (task,) = fetch_tasks(stores.client, [job.id])
    assert task is not None
    worker_.prepare_execution(task)
    worker_.prepare_job_execution(task)
    assert intermediate.get_job_ids() == []


def test_an_idle_worker_stops_at_once(stores: Stores, settings: Settings) -> None:
    """An idle worker ends on SIGTERM, and withdraws its record."""
    with worker(settings, "idle") as process:
        until(lambda: stores.client.hget("rq:worker:idle.batch.1", "state") == b"idle")
        until(lambda: stores.queue.live_workers() == 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 0
    assert stores.queue.live_workers() == 0


def test_a_cancelled_task_is_killed(stores: Stores, settings: Settings) -> None:
    """A work-horse that handles nothing is killed, its job is cancelled, and the worker takes the next task."""
    job = enqueued_fit(stores, 60_000)
    with worker(settings, "one") as process:
        until(lambda: stores.jobs.fetch(job.id).stage in {"weights", "embedding"})
        (horse,) = horses(process.pid)
        os.kill(horse, signal.SIGSTOP)
        assert stores.queue.withdraw(stores.jobs.cancel(job.id)).status == "cancelling"
        until(lambda: stores.jobs.fetch(job.id).status == "cancelled")
        after = enqueued_fit(stores, 100)
        until(lambda: stores.jobs.fetch(after.id).status == "succeeded")


def test_killed_tasks_are_counted(stores: Stores, settings: Settings) -> None:
    """A work-horse that is killed counts once, for the metrics; the task is repeated."""
    job = enqueued_fit(stores, 20_000)
    with worker(settings, "one") as process:
        until(lambda: stores.jobs.fetch(job.id).stage in {"weights", "embedding"})
        (horse,) = horses(process.pid)
        os.kill(horse, signal.SIGKILL)
        until(lambda: stores.counts.read()[0].get(("tasks_killed", BATCH)) == 1)
        until(lambda: not stores.jobs.fetch(job.id).is_open)
    assert stores.jobs.fetch(job.id).status == "succeeded"


def test_an_interactive_task_does_not_wait_for_a_batch(stores: Stores, settings: Settings) -> None:
    """One of a worker's two processes takes interactive tasks alone."""
    with worker(settings, "one"):
        long = enqueued_fit(stores, 60_000)
        until(lambda: stores.jobs.fetch(long.id).status == "running")
        short = enqueued_fit(stores, 100, short=True)
        until(lambda: stores.jobs.fetch(short.id).status == "succeeded")
        assert stores.jobs.fetch(long.id).status == "running"
        stores.queue.withdraw(stores.jobs.cancel(long.id))


SLOW = """
import time
from worker.storage.posteriors import PosteriorStore
PosteriorStore.load = lambda self, id_, sha256=None: time.sleep(600)
"""
HUGE = """
from worker.storage.posteriors import PosteriorStore
def load(self, id_, sha256=None):
    raise MemoryError(id_)
PosteriorStore.load = load
"""


def draws_job(stores: Stores) -> Job:
    """Create and enqueue a draws job of a recorded posterior."""
    sheet = manifolds.make("swiss_roll", 200, seed=0)
    dataset, _ = stores.datasets.add(Table(values=sheet.X, source={"kind": "test"}))
    posterior = glle_engine.fit(sheet.X)
    id_ = posterior_id(dataset.id, FitSpec(n_neighbors=10).to_dict(), glle_engine.__version__)
    sha256 = stores.posteriors.cache(id_, posterior)
    stores.posteriors.record(
        PosteriorRecord(
            draw_cost={"seconds": 0.01, "each_seconds": 0.004, "bytes": 1e7},
            id=id_, dataset=dataset.id, n=200, d=3,
            spec=FitSpec(n_neighbors=10).to_dict(), diagnostics={}, eigenvalues=[],
            seconds=0.1, arrays={}, nbytes=0, provenance={"numbers": glle_engine.NUMBERS, ARRAYS: sha256}, job="job_1",
            created="now",
        )
    )  # fmt: skip
    spec = DrawsSpec(
        n=200, p=2, count=4, first=0, seed=0, scales=(1.0,), grid=False, source="posterior", align="none",
        draw_seconds=1e-6 * 200, shard_seconds=1.0,
    )  # fmt: skip
    job, _ = stores.jobs.create(kind="draws", claim="draws", posterior=id_, spec=spec.to_dict(), total=4)
    stores.queue.enqueue(job)
    return job


def test_a_posterior_that_is_slow_to_read_can_be_cancelled(stores: Stores, settings: Settings) -> None:
    """During a long read the job runs and its worker sends heartbeats; after a cancellation it takes the next task."""
    job = draws_job(stores)
    with worker(settings, "reading", SLOW) as process:
        until(lambda: stores.jobs.fetch(job.id).status == "running")
        beat = stores.client.hget("rq:worker:reading.batch.1", "last_heartbeat")
        until(lambda: stores.client.hget("rq:worker:reading.batch.1", "last_heartbeat") != beat)
        stores.queue.withdraw(stores.jobs.cancel(job.id))
        until(lambda: stores.jobs.fetch(job.id).status == "cancelled")
        after = enqueued_fit(stores, 100)
        until(lambda: stores.jobs.fetch(after.id).status == "succeeded")
        assert process.poll() is None


def test_a_posterior_beyond_the_memory_fails_its_job_alone(stores: Stores, settings: Settings) -> None:
    """The job ends with ``out-of-memory``; the worker lives and takes the next task."""
    job = draws_job(stores)
    with worker(settings, "small", HUGE) as process:
        until(lambda: not stores.jobs.fetch(job.id).is_open)
        ended = stores.jobs.fetch(job.id)
        assert ended.error is not None
        assert (ended.status, ended.error.code) == ("failed", "out-of-memory")
        after = enqueued_fit(stores, 100)
        until(lambda: stores.jobs.fetch(after.id).status == "succeeded")
        assert process.poll() is None
