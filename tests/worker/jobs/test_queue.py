"""The queue and recovery: allowed tasks, repairs, replication."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from rq import SimpleWorker
from rq.job import Job as RqJob
from rq.job import JobStatus
from rq.rate_limit import RateLimitRegistry

from tests.conftest import in_turn
from tests.worker.execution.workers import bare_fit, draws_job
from worker.base.problems import ProblemError
from worker.execution import worker
from worker.execution.worker import TaskJob
from worker.jobs import queue
from worker.jobs.queue import ANALYSIS, DRAWS, FIT, REPLICATION_MARK, SWEEP, TaskQueue, task_id
from worker.jobs.rq_tasks import SERIALIZER, SafeJob, fetch_tasks, open_queue
from worker.jobs.store import NO_QUOTA
from worker.observability.live_workers import WorkerState, announce, withdraw
from worker.records.job import BATCH, INTERACTIVE, QUEUES
from worker.records.sharding import PartsSharding

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rq.job import Job as RqJob

    from worker.jobs.store import Job
    from worker.stores import Stores


def many_draws(stores: Stores) -> Job:
    """Create a record of ten shards of one lane group each."""
    return draws_job(stores, "post_1", n_draws=40, shard_seconds=0.0)[0]


def summary_job(stores: Stores) -> Job:
    """Create a record of a summary with three parts, each in a shard."""
    parts = PartsSharding("resamples", (4, 4, 4), 1)
    return bare_fit(stores.jobs, "summary", "summary", spec={"dataset": "ds_1"}, total=12, parts=parts)


def waiting(stores: Stores, name: str = BATCH) -> list[str]:
    """Return the ids of the tasks that wait in a queue, in order."""
    return open_queue(name, stores.client).get_job_ids()


def fetch(stores: Stores, id_: str) -> RqJob:
    """Return RQ's record of a task."""
    return SafeJob.fetch(id_, connection=stores.client, serializer=SERIALIZER)


def state(name: str) -> WorkerState:
    """Return the record of a live worker with this name."""
    return WorkerState(name=name, host="here", busy=0, engine="0", numbers="0", threads="1")


def work(stores: Stores, job_class: type[SafeJob] = TaskJob) -> None:
    """Run the waiting tasks in this process."""
    worker = SimpleWorker(QUEUES, connection=stores.client, serializer=SERIALIZER, job_class=job_class)
    worker.work(burst=True, logging_level="CRITICAL")


def silent(job: Job) -> Job:
    """Return the job as if its record had been silent for `STALE_SECONDS`."""
    return replace(job, touched=job.touched - int(1000 * queue.STALE_SECONDS) - 1)


def recorder(called: list[tuple[object, ...]]) -> type[SafeJob]:
    """Return a job class whose handlers record their names and arguments."""
    handlers = {name: partial(lambda name, *args: called.append((name, *args)), name) for name in TaskJob.handlers}
    return type("RecordingJob", (SafeJob,), {"handlers": handlers})


def test_tasks_have_handlers_and_wait_in_the_queue_of_their_length(stores: Stores) -> None:
    """Each task has a name in the table of handlers; tasks of short jobs wait in the interactive queue."""
    analysis = bare_fit(stores.jobs, "audit", "audit", posterior=None, spec={"dataset": "ds_1"})
    short = bare_fit(stores.jobs, "b", short=True)
    for job in (bare_fit(stores.jobs), many_draws(stores), analysis, short):
        stores.queue.enqueue(job)
    names = {task.func_name for task in fetch_tasks(stores.client, in_turn(stores)) if task is not None}
    assert names == {FIT, DRAWS, ANALYSIS} == {"fit", "draws", "analysis"}
    assert names <= set(TaskJob.handlers)
    assert waiting(stores, INTERACTIVE) == [short.id]


CALLED: list[str] = []


def witness(*_: object) -> None:
    """Record a call, which must not happen."""
    CALLED.append("called")


@pytest.mark.parametrize("name", ["os.system", FIT])
def test_other_functions_are_refused(stores: Stores, tmp_path: Path, name: str) -> None:
    """A worker calls neither a function by a name that is no task's, nor any callback."""
    file = tmp_path / "witness"
    foreign = open_queue(BATCH, stores.client).enqueue_call(name, args=[f"touch {file}"], job_id="foreign")
    for kind in ("success", "failure", "stopped"):
        stores.client.hset("rq:job:foreign", f"{kind}_callback_name", f"{__name__}.witness")
    work(stores, recorder([]))
    assert (file.exists(), CALLED) == (False, [])
    foreign.refresh()  # type: ignore[no-untyped-call] # RQ's
    assert foreign.get_status() == (JobStatus.FINISHED if name == FIT else JobStatus.FAILED)
    result = foreign.latest_result()
    assert result is not None
    assert ("is not a task of this worker" in str(result.exc_string)) == (name != FIT)


@pytest.mark.parametrize("workers", [0, 3])
def test_a_tenant_has_as_many_tasks_in_the_queue_as_workers_live(stores: Stores, workers: int) -> None:
    """RQ holds back a tenant's further tasks, so that the task of another tenant is not behind all of them."""
    for number in range(workers):
        announce(stores.client, stores.settings, state(f"w{number}"))
    mine = [bare_fit(stores.jobs, str(number)) for number in range(5)]
    theirs = bare_fit(stores.for_tenant("other").jobs)
    for job in (*mine, theirs):
        stores.queue.enqueue(job)
    first = max(1, workers)
    assert waiting(stores) == [*(job.id for job in mine[:first]), theirs.id]
    called: list[tuple[object, ...]] = []
    work(stores, recorder(called))
    assert sorted(called) == sorted((FIT, job.id) for job in (*mine, theirs))
    assert called[: first + 1] == [(FIT, job.id) for job in (*mine[:first], theirs)]


def test_workers_that_start_later_share_what_waits(stores: Stores) -> None:
    """A sweep lets a tenant have as many tasks in a queue as workers live then."""
    jobs = [bare_fit(stores.jobs, str(number)) for number in range(5)]
    for job in jobs:
        stores.queue.enqueue(job)
    assert len(waiting(stores)) == 1
    for name in "abc":
        announce(stores.client, stores.settings, state(name))
    stores.queue.sweep()
    assert len(waiting(stores)) == 3
    called: list[tuple[object, ...]] = []
    work(stores, recorder(called))
    assert sorted(called) == sorted((FIT, job.id) for job in jobs)


def test_the_task_that_combines_parts_runs_after_their_shards(stores: Stores) -> None:
    """The task runs last, even if the task of a shard has failed in RQ."""
    job = summary_job(stores)
    stores.queue.enqueue(job)
    work(stores, recorder([]))
    stores.queue.enqueue_others(job)
    called: list[tuple[object, ...]] = []

    def make(*arguments: object) -> None:
        called.append((DRAWS, *arguments))
        if arguments[-1] == 1:
            raise OSError

    handlers = {DRAWS: make, ANALYSIS: lambda *arguments: called.append((ANALYSIS, *arguments))}
    work(stores, type("FailingJob", (SafeJob,), {"handlers": handlers}))
    assert called[-1] == (ANALYSIS, job.id)
    assert {arguments[-1] for arguments in called[:-1]} == {1, 2}


def test_repair_skips_fresh_and_ended_jobs(stores: Stores) -> None:
    """A job that has just changed, or has ended, is not compared with RQ."""
    job = bare_fit(stores.jobs)
    assert stores.queue.repair(job) is job
    ended = silent(stores.jobs.cancel(job.id))
    assert stores.queue.repair(ended) is ended
    assert waiting(stores) == []


def orphan(status: JobStatus) -> Callable[[Stores, Job], None]:
    """Return a function that removes a task from the queue, and leaves its record with a status."""

    def lose(stores: Stores, job: Job) -> None:
        stores.client.delete(open_queue(BATCH, stores.client).key)
        fetch(stores, job.id).set_status(status)

    return lose


def lose_record(stores: Stores, job: Job) -> None:
    """Delete the task, as if an API process had died before it enqueued the task."""
    fetch(stores, job.id).delete()


def lose_in_transit(stores: Stores, job: Job) -> None:
    """Leave the task in RQ's list of taken tasks, as a worker that died while it took the task."""
    del job
    stores.client.lmove(f"rq:queue:{BATCH}", open_queue(BATCH, stores.client).intermediate_queue.key)


def lose_worker(stores: Stores, job: Job) -> None:
    """Leave a task as after the death of its worker: RQ's record says that it runs, but it has no execution."""
    run(stores, job)
    stores.client.delete(f"rq:wip:{BATCH}")


ORPHANS = [orphan(status) for status in (JobStatus.QUEUED, JobStatus.STARTED, JobStatus.FINISHED)]


@pytest.mark.parametrize("lose", [lose_record, lose_in_transit, lose_worker, *ORPHANS])
def test_repair_enqueues_an_orphaned_task(
    stores: Stores, lose: Callable[[Stores, Job], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that neither waits nor runs is enqueued again, once, in the queue and not behind its own limit.

    Whatever its status says, and since when, the task is not beyond its time limit, but lost.
    """
    monkeypatch.setattr(queue, "STOP_GRACE_SECONDS", -10_000.0)
    job = bare_fit(stores.jobs)
    stores.queue.enqueue(job)
    lose(stores, job)
    for _ in range(2):
        stores.queue.repair(silent(job))
        assert in_turn(stores) == waiting(stores) == [job.id]
    assert open_queue(BATCH, stores.client).intermediate_queue.get_job_ids() == []
    if lose is lose_in_transit:
        called: list[tuple[object, ...]] = []
        work(stores, recorder(called))
        assert called == [(FIT, job.id)]


def test_repair_enqueues_the_missing_shards(stores: Stores) -> None:
    """The tasks of all unfinished shards are enqueued; but only the first, until it has enqueued the others."""
    for number in range(10):
        announce(stores.client, stores.settings, state(f"w{number}"))
    job = many_draws(stores)
    stores.queue.repair(silent(job))
    assert waiting(stores) == [task_id(job, 0)]
    fetch(stores, task_id(job, 0)).delete()
    stores.jobs.start(job.id)
    for shard in (0, 1, 2, 4, 8):
        stores.jobs.advance(job.id, shard, 4)
    stores.queue.repair(silent(stores.jobs.fetch(job.id)))
    assert waiting(stores) == [task_id(job, shard) for shard in (3, 5, 6, 7, 9)]


@pytest.mark.parametrize("moment", ["before", "meanwhile"])
def test_a_sweep_survives_what_is_left_of_a_deleted_task(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A worker that takes a deleted task writes fields without data; a sweep removes them, and frees the slot."""
    job, other = bare_fit(stores.jobs), bare_fit(stores.jobs, "other")
    for each in (job, other):
        stores.queue.enqueue(each)
    key = SafeJob.key_for(job.id)

    def leave_fields() -> None:
        stores.client.delete(key)
        stores.client.hset(key, mapping={"status": "started", "worker_name": "w"})

    def fetch_before(*arguments: Any) -> list[RqJob | None]:
        fetched = fetch_tasks(*arguments)
        stores.client.delete(key)
        return fetched

    stores.jobs.cancel(job.id)
    if moment == "before":
        leave_fields()
    else:
        monkeypatch.setattr(queue, "fetch_tasks", fetch_before)
    stores.queue.sweep()
    assert fetch_tasks(stores.client, [job.id])[0] is None
    assert not stores.client.exists(key)
    for limit in RateLimitRegistry.all(stores.client):
        limit.cleanup()  # as RQ does from time to time
    assert fetch(stores, other.id).is_queued


@pytest.mark.parametrize("status", [JobStatus.FAILED, JobStatus.STOPPED, JobStatus.CANCELED])
def test_repair_fails_a_job_beyond_its_retries(stores: Stores, status: JobStatus) -> None:
    """A task that failed beyond its retries ends the job with a problem."""
    job = bare_fit(stores.jobs)
    stores.queue.enqueue(job)
    stores.jobs.start(job.id)
    fetch(stores, job.id).set_status(status)
    repaired = stores.queue.repair(silent(stores.jobs.fetch(job.id)))
    assert repaired.status == "failed"
    assert repaired.error is not None
    assert (repaired.error.code, repaired.error.status) == ("worker-lost", 503)


def test_repair_completes_a_cancellation(stores: Stores) -> None:
    """A job that is being cancelled, and whose worker has died, becomes cancelled, and does not start again."""
    job = bare_fit(stores.jobs)
    stores.jobs.start(job.id)
    stores.jobs.cancel(job.id)
    assert stores.queue.repair(silent(stores.jobs.fetch(job.id))).status == "cancelled"
    assert waiting(stores) == []


def test_repair_leaves_waiting_and_running_tasks(stores: Stores) -> None:
    """A task that waits, is held back, or runs is left alone, however old the last change of its job is."""
    job, other = bare_fit(stores.jobs), bare_fit(stores.jobs, "other")
    for queued in (job, other):
        stores.queue.enqueue(queued)
        assert stores.queue.repair(silent(queued)).status == "queued"
    assert waiting(stores) == [job.id]
    run(stores, job)
    assert stores.queue.repair(silent(stores.jobs.fetch(job.id))).status == "running"
    assert waiting(stores) == []


def run(stores: Stores, job: Job) -> None:
    """Take the task of a job as a worker does, and do not end it."""
    stores.jobs.start(job.id)
    worker = SimpleWorker([BATCH], connection=stores.client, serializer=SERIALIZER, job_class=SafeJob)
    assert open_queue(BATCH, stores.client).pop_job_id() == job.id
    task = fetch(stores, job.id)
    worker.prepare_execution(task)
    worker.prepare_job_execution(task)


def test_the_task_of_a_dead_worker_that_is_replaced_is_repeated_at_once(stores: Stores) -> None:
    """RQ's next cleanup repeats the tasks of the dead worker, and leaves the tasks of others."""
    jobs = [bare_fit(stores.jobs, name) for name in "ab"]
    for number, job in enumerate(jobs):
        announce(stores.client, stores.settings, state(f"w{number}"))
        stores.queue.enqueue(job)
        assert open_queue(BATCH, stores.client).pop_job_id() == job.id
        task = fetch(stores, job.id)
        rq_worker = SimpleWorker([BATCH], connection=stores.client, serializer=SERIALIZER, name=f"w{number}.batch.1")
        rq_worker.prepare_execution(task)
        rq_worker.prepare_job_execution(task)
    stores.queue.abandon("w1.batch.1")
    open_queue(BATCH, stores.client).started_job_registry.cleanup()
    assert waiting(stores) == [jobs[1].id]
    assert fetch(stores, jobs[0].id).is_started


def test_repair_stops_a_task_beyond_its_time(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a task does not end at its time limit, it is stopped, and its job fails."""
    stopped: list[str] = []
    monkeypatch.setattr(queue, "send_stop_job_command", lambda _client, id_, **_: stopped.append(id_))
    monkeypatch.setattr(queue, "STOP_GRACE_SECONDS", -10_000.0)
    job = bare_fit(stores.jobs)
    stores.queue.enqueue(job)
    run(stores, job)
    repaired = stores.queue.repair(silent(stores.jobs.fetch(job.id)))
    assert repaired.error is not None
    assert (repaired.status, repaired.error.code, stopped) == ("failed", "job-timeout", [job.id])


def test_parts_are_combined_although_the_task_of_a_shard_is_lost(stores: Stores) -> None:
    """When all steps are counted and no task of a shard is left, the task that combines the parts is enqueued."""
    job = summary_job(stores)
    stores.queue.enqueue(job)
    stores.queue.enqueue_others(job)
    stores.jobs.start(job.id)
    for shard in range(3):
        stores.jobs.advance(job.id, shard, 4)
    for _ in range(2):
        stores.queue.repair(silent(stores.jobs.fetch(job.id)))
        assert in_turn(stores) == [task_id(job, shard) for shard in range(3)]
    for shard in range(3):
        stores.client.delete(SafeJob.key_for(task_id(job, shard)), f"rq:queue:{BATCH}")
    stores.queue.sweep()
    stores.queue.repair(silent(stores.jobs.fetch(job.id)))
    assert in_turn(stores) == [job.id]


def test_a_withdrawn_job_is_cancelled_once_its_task_has_ended(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The running task is stopped; until it has ended, the status of the job is `cancelling`."""
    stopped: list[str] = []
    monkeypatch.setattr(queue, "send_stop_job_command", lambda _client, id_, **_: stopped.append(id_))
    job = bare_fit(stores.jobs)
    stores.queue.enqueue(job)
    run(stores, job)
    assert stores.queue.withdraw(stores.jobs.cancel(job.id)).status == "cancelling"
    assert stopped == [job.id]
    fetch(stores, job.id).set_status(JobStatus.STOPPED)
    assert stores.queue.withdraw(stores.jobs.fetch(job.id)).status == "cancelled"


def test_a_withdrawn_job_leaves_nothing(stores: Stores) -> None:
    """All tasks of a withdrawn job are removed from RQ, also those that were held back, and other tasks follow.

    A sweep removes a task that a dead worker had taken.
    """
    lost = bare_fit(stores.jobs, "lost")
    stores.queue.enqueue(lost)
    open_queue(BATCH, stores.client).pop_job_id()
    stores.jobs.cancel(lost.id)
    stores.queue.sweep()
    job = summary_job(stores)
    other = bare_fit(stores.jobs)
    stores.queue.enqueue(job)
    stores.queue.enqueue_others(job)
    stores.queue.enqueue(other)
    stores.queue.withdraw(stores.jobs.cancel(job.id))
    assert in_turn(stores) == [other.id] == waiting(stores)
    assert stores.client.keys("rq:job:*") == [f"rq:job:{other.id}".encode()]
    assert stores.client.keys("rq:canceled:*") == []


def test_a_sweep_repairs_jobs_of_all_tenants(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open jobs of all tenants whose tasks are lost are enqueued; ended jobs are not."""
    monkeypatch.setattr(queue, "STALE_SECONDS", -1.0)
    mine, cancelled = bare_fit(stores.jobs), bare_fit(stores.jobs, "cancelled")
    theirs = bare_fit(stores.for_tenant("other").jobs)
    stores.jobs.cancel(cancelled.id)
    assert sorted(stores.jobs.sample_open(10)) == sorted([mine.id, theirs.id])
    stores.queue.sweep()
    assert sorted(waiting(stores)) == sorted([mine.id, theirs.id])


def test_the_maintenance_lock_expires_soon(stores: Stores) -> None:
    """A worker that is killed in RQ's maintenance blocks it for some seconds, and not for a quarter of an hour."""
    rq_queue = worker.WorkerQueue(BATCH, connection=stores.client, serializer=SERIALIZER)
    assert rq_queue.acquire_maintenance_lock()
    assert not rq_queue.acquire_maintenance_lock()
    assert 0 < int(stores.client.ttl(rq_queue.registry_cleaning_key)) <= 10


def test_live_workers_renew_their_records(stores: Stores) -> None:
    """A worker counts as live until it withdraws, or until its record expires."""
    assert stores.queue.live_workers() == 0
    for name in ("one", "two"):
        announce(stores.client, stores.settings, state(name))
    assert 0 < stores.client.ttl("glle:worker:one") <= 4 * stores.settings.heartbeat
    assert stores.queue.live_workers() == 2
    withdraw(stores.client, "one")
    assert stores.queue.live_workers() == 1
    stores.client.delete("glle:worker:two")
    assert stores.queue.live_workers() == 0
    announce(stores.client, stores.settings, state("two"))
    assert stores.queue.live_workers() == 1


@pytest.mark.parametrize(("keys", "workers", "allowed"), [(True, 1, 1), (True, 3, 2), (False, 3, 3)])
def test_a_tenant_leaves_a_worker_of_each_queue(stores: Stores, *, keys: bool, workers: int, allowed: int) -> None:
    """With API keys, a tenant may have one task fewer than workers in each queue, except for shards of draws.

    Without keys, and with one worker, a tenant may have as many tasks as there are workers. More workers change the
    numbers.
    """
    if keys:
        stores.keys.create("alice", ("write",), "test", None)
    announce(stores.client, stores.settings, state("w0"))
    jobs = stores.jobs.for_tenant("alice", NO_QUOTA)
    for number in range(5):
        for short in (True, False):
            stores.queue.enqueue(bare_fit(jobs, f"{number} {short}", short=short))
    stores.queue.enqueue(draws := many_draws(stores))
    stores.queue.enqueue_others(draws)
    for number in range(1, workers):
        announce(stores.client, stores.settings, state(f"w{number}"))
    stores.queue.sweep()
    assert len(waiting(stores, INTERACTIVE)) == allowed
    tasks = [id_.partition("-s")[0] == draws.id for id_ in waiting(stores) if fetch(stores, id_).func_name != SWEEP]
    assert (tasks.count(False), tasks.count(True)) == (allowed, workers)


def test_a_stopped_task_is_a_batch_once(stores: Stores) -> None:
    """The job of a stopped interactive task is queued again from its start, as a batch job.

    A job that has ended, or is being cancelled, is not queued.
    """
    jobs = [bare_fit(stores.jobs, name, total=9, short=True) for name in "abc"]
    for job in jobs:
        stores.queue.enqueue(job)
        stores.jobs.start(job.id)
        stores.jobs.progress(job.id, 5, 9, "analyzing")
    running, done, unwanted = jobs
    stores.jobs.succeed(done.id)
    stores.jobs.cancel(unwanted.id)
    for job in jobs:
        stores.queue.requeue(fetch(stores, job.id), None, lambda _: None)
    moved = stores.jobs.fetch(running.id)
    assert (moved.status, moved.stage, moved.done, moved.queue) == ("queued", "queued", 0, BATCH)
    assert (waiting(stores, INTERACTIVE), waiting(stores)) == ([], [running.id])
    assert stores.jobs.fetch(done.id).status == "succeeded"
    assert stores.jobs.fetch(unwanted.id).status == "cancelled"


def replicating(stores: Stores, replicas: int) -> TaskQueue:
    """Return the queue of a service whose URL asks for this number of replicas."""
    url = f"{stores.settings.redis_url}?replicas={replicas}"
    return TaskQueue(stores.client, stores.jobs, replace(stores.settings, redis_url=url), stores.quotas)


def test_a_job_without_replicas_is_refused(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """If too few replicas have the job, the problem has their number, and the remedy is to try again."""
    monkeypatch.setattr(queue, "REPLICATION_WAIT_MS", 10)
    job = bare_fit(stores.jobs)
    stores.queue.require_replicated(job.id)
    assert not stores.client.exists(REPLICATION_MARK)
    with pytest.raises(ProblemError, match="0 of 1 replicas") as caught:
        replicating(stores, 1).require_replicated(job.id)
    assert (caught.value.problem.code, caught.value.problem.status) == ("not-replicated", 503)
    assert 0 < int(stores.client.ttl(REPLICATION_MARK)) <= 60


def test_a_job_lost_with_its_master_is_refused(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failover, replicas of a new master that lacks the job do not count."""
    real = stores.client.pipeline

    def on_the_next_master(**options: bool) -> object:
        pipeline = real(**options)
        monkeypatch.setattr(pipeline, "wait", lambda *_: pipeline.echo(2))
        return pipeline

    monkeypatch.setattr(stores.client, "pipeline", on_the_next_master)
    job = bare_fit(stores.jobs)
    replicating(stores, 2).require_replicated(job.id)
    stores.client.delete(f"glle:job:{job.id}")
    with pytest.raises(ProblemError, match="failed over to a master"):
        replicating(stores, 2).require_replicated(job.id)


@pytest.mark.parametrize(("ttl", "period"), [(86400, queue.SWEEP_SECONDS), (60, 60)])
def test_the_stored_files_are_swept_once_a_period(
    stores: Stores, ttl: int, period: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep comes once an hour, or once in the lifetime of a result, however many workers look.

    The first sweep comes after the first period.
    """
    assert SWEEP in TaskJob.handlers
    swept = TaskQueue(stores.client, stores.jobs, replace(stores.settings, job_ttl=ttl), stores.quotas)
    now = time.time()
    monkeypatch.setattr(queue, "time", SimpleNamespace(time=lambda: now))
    called: list[tuple[object, ...]] = []
    for _ in range(2):
        swept.sweep()
    assert in_turn(stores) == []
    for periods in (1, 2):
        now += period
        for _ in range(3):
            swept.sweep()
        work(stores, recorder(called))
        assert called == [(SWEEP,)] * periods
    now += period
    due = stores.client.get(queue.SWEEP_AT)
    monkeypatch.setattr(stores.client, "get", lambda _: due)
    for _ in range(2):  # both have read before one writes
        swept._enqueue_sweep()
    assert len(in_turn(stores)) == 1
