"""The queue and recovery: allowed tasks, repairs, replication."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from rq import SimpleWorker
from rq.job import JobStatus

from worker.base.problems import ProblemError
from worker.execution.forking_worker import TaskJob
from worker.jobs import queue, recovery, rq_types
from worker.jobs.queue import REPLICATION_MARK, TaskQueue
from worker.jobs.rq_types import ANALYSIS, DRAWS, FIT, NAME, SERIALIZER, SafeJob, SafeQueue
from worker.records.draws import DrawsSpec
from worker.records.sharding import CHAINS

if TYPE_CHECKING:
    from pathlib import Path

    from worker.jobs.store import Job
    from worker.stores import Stores


def fit_job(stores: Stores, claim: str = "claim") -> Job:
    """Create a record of a fit."""
    return stores.jobs.create(kind="fit", claim=claim, posterior="post_1", spec={}, total=1)[0]


def draws_job(stores: Stores, chains: int = CHAINS) -> Job:
    """Create a record of ten shards of one lane group each."""
    spec = DrawsSpec(
        n=10, p=2, count=40, first=0, seed=0, scales=(1.0,), grid=False, source="posterior", align="none",
        shard_seconds=0.0,
    )  # fmt: skip
    return stores.jobs.create(
        kind="draws", claim="d", posterior="post_1", spec=spec.to_dict(), total=40, chains=chains
    )[0]


def work(stores: Stores, job_class: type[SafeJob] = TaskJob) -> None:
    """Run the waiting tasks in this process."""
    worker = SimpleWorker(
        [NAME], connection=stores.client, serializer=SERIALIZER, job_class=job_class, queue_class=SafeQueue
    )
    worker.work(burst=True, logging_level="CRITICAL")


def silent(job: Job) -> Job:
    """Return the job as if its record had been silent for `STALE_SECONDS`."""
    return replace(job, touched=job.touched - int(1000 * recovery.STALE_SECONDS) - 1)


def recorder(called: list[tuple[str, object]]) -> type[SafeJob]:
    """Return a job class whose handlers record their names and arguments."""
    handlers = {name: partial(lambda name, *args: called.append((name, *args)), name) for name in TaskJob.handlers}
    return type("RecordingJob", (SafeJob,), {"handlers": handlers})


def test_every_enqueued_task_has_a_handler(stores: Stores) -> None:
    """Jobs of all kinds carry short stable names, and the worker's table has each of them."""
    advice, _ = stores.jobs.create(kind="advice", claim="a", posterior=None, spec={"dataset": "ds_1"}, total=1)
    for job in (fit_job(stores), draws_job(stores), advice):
        stores.queue.enqueue(job)
    names = {task.func_name for task in stores.queue._queue.get_jobs()}
    assert names == {FIT, DRAWS, ANALYSIS} == {"fit", "draws", "analysis"}
    assert names <= set(TaskJob.handlers)


@pytest.mark.parametrize("name", ["fit", "draw", "analyse"])
def test_tasks_of_earlier_versions_run(stores: Stores, name: str) -> None:
    """A task that an earlier version enqueued by the path of its function runs."""
    called: list[tuple[str, object]] = []
    stores.queue._queue.enqueue_call(f"worker.tasks.{name}", args=["job_1"], job_id="former")
    work(stores, recorder(called))
    assert called == [(f"worker.tasks.{name}", "job_1")]
    handler = TaskJob.handlers[f"worker.tasks.{name}"]
    assert (handler.__module__, handler.__name__) == ("worker.execution.tasks", name)


@pytest.mark.parametrize(
    "name", ["os.system", "worker.execution.tasks._fit", "builtins.eval", "worker.execution.worker.main"]
)
def test_other_functions_are_refused(stores: Stores, tmp_path: Path, name: str) -> None:
    """A function that is enqueued by name, but is no task, is not called."""
    witness = tmp_path / "witness"
    foreign = stores.queue._queue.enqueue_call(name, args=[f"touch {witness}"], job_id="foreign")
    work(stores)
    assert not witness.exists()
    foreign.refresh()  # type: ignore[no-untyped-call] # RQ's
    assert foreign.get_status() == JobStatus.FAILED
    result = foreign.latest_result()
    assert result is not None
    assert "is not a task of this worker" in str(result.exc_string)


def test_callbacks_and_webhooks_are_refused(stores: Stores) -> None:
    """A callback that is named in a job's data is not called, whether the job succeeds or fails."""
    called: list[tuple[str, object]] = []
    for function in (FIT, "os.nothing"):
        stores.queue._queue.enqueue_call(function, args=["x"], job_id=function.replace(".", "-"))
        key = "rq:job:" + function.replace(".", "-")
        for kind in ("success", "failure", "stopped"):
            stores.client.hset(key, f"{kind}_callback_name", "tests.worker.jobs.test_queue.witness_callback")
    work(stores, recorder(called))
    assert called == [(FIT, "x")]
    assert WITNESSED == []


WITNESSED: list[str] = []


def witness_callback(*_: object) -> None:
    """Record a call, which must not happen."""
    WITNESSED.append("callback")


def test_racing_enqueues_make_one_task(stores: Stores) -> None:
    """Sixteen simultaneous calls for one job leave one task in the queue."""
    job = fit_job(stores)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda _: stores.queue.enqueue(job), range(16)))
    assert stores.queue.length() == 1


def test_every_task_has_its_times(stores: Stores) -> None:
    """Each task has explicit timeout, TTLs and retries."""
    stores.queue.enqueue(fit_job(stores))
    (waiting,) = stores.queue._queue.get_jobs()
    assert waiting.timeout == stores.settings.job_timeout
    assert (waiting.result_ttl, waiting.failure_ttl, waiting.retries_left) == (60, 86400, 3)


def test_repair_skips_fresh_and_ended_jobs(stores: Stores) -> None:
    """A fresh or ended record is not compared with the queue."""
    job = fit_job(stores)
    assert stores.recovery.repair(job) is job
    ended = silent(stores.jobs.cancel(job.id))
    assert stores.recovery.repair(ended) is ended
    assert stores.queue.length() == 0


def test_repair_enqueues_a_missing_task(stores: Stores) -> None:
    """A job without a task, because the API died before enqueuing it, is enqueued."""
    job = fit_job(stores)
    stores.recovery.repair(silent(job))
    assert stores.queue._queue.get_job_ids() == [job.id]
    stores.recovery.repair(silent(job))
    assert stores.queue.length() == 1


def test_analysis_is_enqueued_once_a_round(stores: Stores) -> None:
    """Its task is named by job and round, so an ended task does not block the next round."""
    job, _ = stores.jobs.create(kind="advice", claim="a", posterior=None, spec={"dataset": "ds_1"}, total=1)
    stores.queue.enqueue(job)
    stores.recovery.repair(silent(job))
    (waiting,) = stores.queue._queue.get_jobs()
    assert (waiting.id, waiting.func_name, waiting.args) == (
        f"{job.id}-r0",
        ANALYSIS,
        [job.id, 0],
    )
    stores.queue._queue.remove(waiting)
    stores.jobs.start(job.id)
    stores.jobs.succeed(job.id)
    stores.jobs.reopen(stores.jobs.fetch(job.id))
    stores.recovery.repair(silent(stores.jobs.fetch(job.id)))
    assert stores.queue._queue.get_job_ids() == [f"{job.id}-r1"]


@pytest.mark.parametrize(("chains", "next_ones"), [(4, (3, 5, 6, 7)), (5, (3, 5, 6, 7, 9))])
def test_repair_enqueues_the_first_missing_shards(stores: Stores, chains: int, next_ones: tuple[int, ...]) -> None:
    """As many shards as may be open are enqueued; before the end of the first one, only that."""
    job = draws_job(stores, chains)
    stores.recovery.repair(silent(job))
    assert stores.queue._queue.get_job_ids() == [f"{job.id}-r0-s0"]
    stores.client.delete(f"rq:job:{job.id}-r0-s0")
    stores.queue._queue.empty()
    stores.jobs.start(job.id)
    for shard in (0, 1, 2, 4, 8):
        stores.jobs.advance(job.id, 0, {shard: 4})
    stores.recovery.repair(silent(stores.jobs.fetch(job.id)))
    assert sorted(stores.queue._queue.get_job_ids()) == [f"{job.id}-r0-s{shard}" for shard in next_ones]


def test_repair_enqueues_a_task_with_a_lost_count(stores: Stores) -> None:
    """An ended task whose last count was lost with a server is enqueued again once."""
    job = draws_job(stores)
    stores.queue.enqueue(job)
    (ended,) = stores.queue._queue.get_jobs()
    stores.queue._queue.remove(ended)
    stores.jobs.start(job.id)
    stores.jobs.advance(job.id, 0, {0: 3})
    ended.set_status(JobStatus.FINISHED)
    for _ in range(2):
        stores.recovery.repair(silent(stores.jobs.fetch(job.id)))
    assert stores.queue._queue.get_job_ids() == [ended.id]


@pytest.mark.parametrize("status", [JobStatus.FAILED, JobStatus.STOPPED, JobStatus.CANCELED])
def test_repair_fails_a_job_beyond_its_retries(stores: Stores, status: JobStatus) -> None:
    """A task that failed beyond its retries ends the job with a problem."""
    job = fit_job(stores)
    stores.queue.enqueue(job)
    stores.jobs.start(job.id)
    SafeJob.fetch(job.id, connection=stores.client, serializer=SERIALIZER).set_status(status)
    repaired = stores.recovery.repair(silent(stores.jobs.fetch(job.id)))
    assert repaired.status == "failed"
    assert repaired.error is not None
    assert (repaired.error.code, repaired.error.status) == ("worker-lost", 503)


def test_repair_completes_a_cancellation(stores: Stores) -> None:
    """A job in cancellation whose worker died is cancelled, neither failed nor started again."""
    job = fit_job(stores)
    stores.jobs.start(job.id)
    stores.jobs.cancel(job.id)
    assert stores.recovery.repair(silent(stores.jobs.fetch(job.id))).status == "cancelled"
    assert stores.queue.length() == 0


def test_repair_leaves_waiting_and_running_tasks(stores: Stores) -> None:
    """A waiting or running task is left alone, however silent."""
    job = fit_job(stores)
    stores.queue.enqueue(job)
    assert stores.recovery.repair(silent(job)).status == "queued"
    stores.jobs.start(job.id)
    SafeJob.fetch(job.id, connection=stores.client, serializer=SERIALIZER).set_status(JobStatus.STARTED)
    assert stores.recovery.repair(silent(stores.jobs.fetch(job.id))).status == "running"


@pytest.mark.parametrize("status", [JobStatus.QUEUED, JobStatus.STARTED, JobStatus.FINISHED])
def test_repair_enqueues_an_orphaned_task(stores: Stores, status: JobStatus) -> None:
    """A task with a record that neither waits nor runs is enqueued again."""
    job = fit_job(stores)
    stores.queue.enqueue(job)
    stores.client.delete(stores.queue._queue.key)
    SafeJob.fetch(job.id, connection=stores.client, serializer=SERIALIZER).set_status(status)
    stores.recovery.repair(silent(job))
    assert stores.queue._queue.get_job_ids() == [job.id]


def test_repair_leaves_taken_and_started_tasks(stores: Stores) -> None:
    """A taken task and a started task are left alone."""
    job = fit_job(stores)
    stores.queue.enqueue(job)
    rq_queue = stores.queue._queue
    stores.client.lmove(rq_queue.key, rq_queue.intermediate_queue_key, "LEFT", "RIGHT")
    stores.recovery.repair(silent(job))
    assert stores.queue.length() == 0
    worker = SimpleWorker([NAME], connection=stores.client, serializer=SERIALIZER, job_class=SafeJob)
    task = SafeJob.fetch(job.id, connection=stores.client, serializer=SERIALIZER)
    worker.prepare_execution(task)
    worker.prepare_job_execution(task, remove_from_intermediate_queue=True)
    stores.recovery.repair(silent(job))
    assert stores.queue.length() == 0


def test_a_task_taken_by_a_dead_worker_returns_to_the_queue(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task whose worker was killed just after dequeuing it returns to the queue within seconds."""
    job = fit_job(stores)
    stores.queue.enqueue(job)
    rq_queue = stores.queue._queue
    stores.client.lmove(rq_queue.key, rq_queue.intermediate_queue_key, "LEFT", "RIGHT")
    worker = SimpleWorker(
        [NAME], connection=stores.client, serializer=SERIALIZER, job_class=SafeJob, queue_class=SafeQueue
    )
    rq_queue.intermediate_queue.cleanup(worker, rq_queue)
    rq_queue.intermediate_queue.cleanup(worker, rq_queue)
    assert stores.queue.length() == 0, "the worker may be about to start it"
    monkeypatch.setattr(rq_types, "TAKEN_SECONDS", 0.0)
    rq_queue.intermediate_queue.cleanup(worker, rq_queue)
    assert rq_queue.get_job_ids() == [job.id]
    assert stores.client.llen(rq_queue.intermediate_queue_key) == 0
    assert 0 < stores.client.ttl(rq_queue.intermediate_queue.get_first_seen_key(job.id)) <= 60


def test_a_sweep_repairs_jobs_of_all_tenants(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of all tenants without a task are enqueued; ended ones leave the set of open jobs."""
    monkeypatch.setattr(recovery, "STALE_SECONDS", -1.0)
    mine, cancelled = fit_job(stores), fit_job(stores, "cancelled")
    other = stores.of("other")
    theirs = other.jobs.create(kind="fit", claim="c", posterior="post_2", spec={}, total=1)[0]
    stores.jobs.cancel(cancelled.id)
    assert sorted(stores.jobs.sample_open(10)) == sorted([mine.id, theirs.id])
    stores.recovery.sweep()
    assert sorted(stores.queue._queue.get_job_ids()) == sorted([mine.id, theirs.id])


def test_the_maintenance_lock_expires_soon(stores: Stores) -> None:
    """A worker that is killed in maintenance blocks it for half a minute, not for fifteen."""
    rq_queue: Any = stores.queue._queue
    assert rq_queue.acquire_maintenance_lock()
    assert not rq_queue.acquire_maintenance_lock()
    assert 0 < int(stores.client.ttl(rq_queue.registry_cleaning_key)) <= 30


def test_live_workers_have_a_recent_heartbeat(stores: Stores) -> None:
    """A worker counts while its last heartbeat is recent."""
    assert stores.queue.live_workers() == 0
    worker = SimpleWorker([NAME], connection=stores.client, serializer=SERIALIZER)
    worker.register_birth()  # type: ignore[no-untyped-call] # RQ's
    assert stores.queue.live_workers() == 1
    stores.client.hset(worker.key, "last_heartbeat", "2020-01-01T00:00:00.000000Z")
    assert stores.queue.live_workers() == 0


def test_recovery_enqueues_the_task_of_a_dead_worker(stores: Stores) -> None:
    """The task of the named worker is enqueued again at once; other workers' tasks stay."""
    mine, other = fit_job(stores, "a"), fit_job(stores, "b")
    for job, name in ((mine, "dead"), (other, "alive")):
        stores.queue.enqueue(job)
        worker = SimpleWorker([NAME], name=name, connection=stores.client, serializer=SERIALIZER, job_class=SafeJob)
        task = SafeJob.fetch(job.id, connection=stores.client, serializer=SERIALIZER)
        stores.queue._queue.remove(task)
        worker.prepare_execution(task)
        worker.prepare_job_execution(task)
    assert stores.queue.length() == 0
    stores.recovery.requeue_tasks_of("dead")
    assert stores.queue._queue.get_job_ids() == [mine.id]
    again = SafeJob.fetch(mine.id, connection=stores.client, serializer=SERIALIZER)
    assert again.retries_left == queue.RETRIES - 1


def replicating(stores: Stores, replicas: int) -> TaskQueue:
    """Return the queue of a service that waits for so many replicas."""
    return TaskQueue(stores.client, stores.jobs, replace(stores.settings, replicas=replicas))


def test_by_default_no_replica_is_required(stores: Stores) -> None:
    """By default a job is accepted by its master alone."""
    stores.queue.require_replicated("job_1")
    assert not stores.client.exists(REPLICATION_MARK)


def test_a_job_without_replicas_is_refused(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without enough replicas, the problem states their number, and to retry."""
    monkeypatch.setattr(queue, "REPLICATION_WAIT_MS", 10)
    job, _ = stores.jobs.create(kind="fit", claim="c", posterior="post_1", spec={}, total=1)
    with pytest.raises(ProblemError, match="0 of 1 replicas") as caught:
        replicating(stores, 1).require_replicated(job.id)
    assert (caught.value.problem.code, caught.value.problem.status) == ("not-replicated", 503)
    assert 0 < int(stores.client.ttl(REPLICATION_MARK)) <= 60


def test_a_job_lost_with_its_master_is_refused(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas of a new master that lacks the job do not count."""
    real = stores.client.pipeline

    def on_the_next_master(**options: bool) -> object:
        pipeline = real(**options)
        monkeypatch.setattr(pipeline, "wait", lambda *_: pipeline.echo(2))
        return pipeline

    monkeypatch.setattr(stores.client, "pipeline", on_the_next_master)
    job, _ = stores.jobs.create(kind="fit", claim="c", posterior="post_1", spec={}, total=1)
    replicating(stores, 2).require_replicated(job.id)
    stores.client.delete(f"glle:job:{job.id}")
    with pytest.raises(ProblemError, match="changed its master"):
        replicating(stores, 2).require_replicated(job.id)
