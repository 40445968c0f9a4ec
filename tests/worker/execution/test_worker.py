"""Real worker processes and their failures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import redis
from rq import Worker

import glle_engine
from glle_engine import FitSpec, manifolds
from tests.conftest import until
from tests.worker.execution.workers import horses, is_running, worker
from worker.execution import process_guard
from worker.execution.forking_worker import MAINTAINED, GlleWorker
from worker.jobs.rq_types import NAME, SERIALIZER, SafeJob, SafeQueue
from worker.jobs.store import job_key
from worker.records.draws import DrawsSpec
from worker.records.ids import posterior_id
from worker.storage.datasets import Table
from worker.storage.posteriors import PosteriorRecord

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


def test_one_worker_cleans_the_registries(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of many workers cleans the registries, once per heartbeat."""
    names: list[str] = []
    monkeypatch.setattr(Worker, "clean_registries", lambda self: names.append(self.name))
    workers = [
        GlleWorker([NAME], name=name, connection=stores.client, queue_class=SafeQueue, job_monitoring_interval=5)
        for name in ("a", "b", "c")
    ]
    for worker_ in workers:
        worker_.clean_registries()
    assert names == ["a"]
    assert 0 < stores.client.ttl(MAINTAINED) <= 5
    stores.client.delete(MAINTAINED)
    workers[1].clean_registries()
    assert names == ["a", "b"]
    assert not any(worker_.should_run_maintenance_tasks for worker_ in workers)


def fit_job(stores: Stores, n: int) -> Job:
    """Create and enqueue a fit of n points."""
    sheet = manifolds.make("swiss_roll", n, seed=0)
    dataset, _ = stores.datasets.add(Table(values=sheet.X, source={"kind": "test"}))
    spec = FitSpec().to_dict()
    id_ = posterior_id(dataset.id, spec, glle_engine.__version__)
    job, _ = stores.jobs.create(
        kind="fit", claim=id_, posterior=id_, spec={"dataset": dataset.id, "spec": spec}, total=1
    )
    stores.queue.enqueue(job)
    return job


def test_another_worker_finishes_the_task_of_a_killed_one(stores: Stores, settings: Settings) -> None:
    """After kill -9 no orphan process stays; another worker notices by heartbeats and finishes the job."""
    job = fit_job(stores, 20_000)
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
    job = fit_job(stores, 100)
    stores.client.delete(f"rq:job:{job.id}")
    stores.client.delete(stores.queue._queue.key)
    with worker(settings, "looking"):
        until(lambda: stores.client.hget(job_key(job.id), "status") == b"succeeded")


def test_the_alive_file_is_prolonged_while_the_worker_lives(stores: Stores, settings: Settings, tmp_path: Path) -> None:
    """Its time is in the future, after any wait for a silent Redis, and moves with the heartbeats of an idle worker."""
    file = tmp_path / "alive"
    with worker(replace(settings, alive_file=str(file)), "idle"):
        until(stores.queue.live_workers)
        first = file.stat().st_mtime
        assert first > time.time() + settings.redis_patience
        until(lambda: file.stat().st_mtime > first)


def test_second_signal_hands_the_task_back(stores: Stores, settings: Settings) -> None:
    """A first SIGTERM waits for the task; a second kills it, returns it to the queue and ends the worker."""
    job = fit_job(stores, 60_000)
    with worker(settings, "stopping") as process:
        until(lambda: stores.jobs.fetch(job.id).stage in {"weights", "embedding"})
        process.send_signal(signal.SIGTERM)
        until(lambda: stores.client.hget("rq:worker:stopping", "shutdown_requested_date"))
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    assert stores.queue._queue.get_job_ids() == [job.id]
    assert stores.jobs.fetch(job.id).status == "running"


def test_idle_worker_stops_at_once(stores: Stores, settings: Settings) -> None:
    """An idle worker ends on SIGTERM, and leaves the registry."""
    with worker(settings, "idle") as process:
        until(lambda: stores.client.hget("rq:worker:idle", "state") == b"idle")
        assert stores.queue.live_workers() == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 0
    assert stores.queue.live_workers() == 0


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
    id_ = posterior_id(dataset.id, FitSpec().to_dict(), glle_engine.__version__)
    stores.posteriors.cache(id_, posterior)
    stores.posteriors.record(
        PosteriorRecord(
            id=id_, dataset=dataset.id, n=200, d=3, spec=FitSpec().to_dict(), diagnostics={}, eigenvalues=[],
            seconds=0.1, arrays={}, nbytes=0, provenance={"numbers": glle_engine.NUMBERS}, job="job_1", created="now",
        )
    )  # fmt: skip
    spec = DrawsSpec(
        n=200, p=2, count=4, first=0, seed=0, scales=(1.0,), grid=False, source="posterior", align="none",
        shard_seconds=1.0,
    )  # fmt: skip
    job, _ = stores.jobs.create(kind="draws", claim="draws", posterior=id_, spec=spec.to_dict(), total=4)
    stores.queue.enqueue(job)
    return job


def test_a_posterior_that_is_slow_to_read_can_be_cancelled(stores: Stores, settings: Settings) -> None:
    """During a long read the job runs and its worker sends heartbeats; after a cancellation it takes the next task."""
    job = draws_job(stores)
    with worker(settings, "reading", SLOW) as process:
        until(lambda: stores.jobs.fetch(job.id).status == "running")
        beat = stores.client.hget("rq:worker:reading", "last_heartbeat")
        until(lambda: stores.client.hget("rq:worker:reading", "last_heartbeat") != beat)
        stores.queue.withdraw(stores.jobs.cancel(job.id))
        until(lambda: stores.jobs.fetch(job.id).status == "cancelled")
        after = fit_job(stores, 100)
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
        after = fit_job(stores, 100)
        until(lambda: stores.jobs.fetch(after.id).status == "succeeded")
        assert process.poll() is None


def registered_worker(stores: Stores) -> GlleWorker:
    """Return a registered worker of this process."""
    worker_ = GlleWorker(
        [NAME],
        name="local",
        connection=stores.client,
        serializer=SERIALIZER,
        job_class=SafeJob,
        queue_class=SafeQueue,
    )
    worker_.register_birth()
    return worker_


@pytest.mark.parametrize("lost", ["rq:worker:local", f"rq:workers:{NAME}"])
def test_a_lost_registration_is_restored(stores: Stores, lost: str) -> None:
    """The next heartbeat restores a registry entry that the server has lost."""
    alive = registered_worker(stores)
    fields = stores.client.hmget("rq:worker:local", "hostname", "engine", "queues")
    stores.client.delete(lost)
    alive.heartbeat()
    assert stores.client.hmget("rq:worker:local", "hostname", "engine", "queues") == fields
    assert stores.queue.live_workers() == 1


def test_a_worker_waits_for_a_silent_server(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker without an answer keeps trying, idle or busy."""
    alive, calls = registered_worker(stores), []

    def silent(*_: object) -> None:
        calls.append("task")
        if len(calls) < 3:
            raise redis.TimeoutError

    monkeypatch.setattr("rq.Worker.dequeue_job_and_maintain_ttl", silent)
    monkeypatch.setattr("worker.execution.forking_worker.AGAIN_SECONDS", 0)
    assert alive.dequeue_job_and_maintain_ttl(1) is None
    assert len(calls) == 3
    monkeypatch.setattr(alive.connection, "execute_command", silent)
    calls.clear()
    alive.set_current_job_working_time(1.0)
    assert calls == ["task"]
