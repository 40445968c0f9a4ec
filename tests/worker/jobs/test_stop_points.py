"""A process may die between any two writes: every pair of writes of the worker's rooms is tried.

Each scenario runs once for each of its stop-points (`tests.stop_points`) and dies there. Another worker then goes on.
"""

from __future__ import annotations

import time
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import rq.executions
import rq.intermediate_queue
import rq.rate_limit
import rq.registry
from rq import SimpleWorker
from rq.rate_limit import RateLimitRegistry

from tests.stop_points import stopping
from tests.worker.execution.workers import bare_fit, draws_job
from worker.base.clock import now_ms
from worker.execution.worker import LongTaskLock, TaskWorker, WorkerQueue
from worker.jobs import queue
from worker.jobs.queue import ANALYSIS, DRAWS, FIT
from worker.jobs.rq_tasks import SERIALIZER, SafeJob, fetch_tasks, open_queue
from worker.jobs.store import NO_QUOTA, Cancelled
from worker.observability.live_workers import WorkerState, announce
from worker.records import job as job_records
from worker.records.ids import text
from worker.records.job import BATCH, INTERACTIVE, QUEUES
from worker.records.sharding import PartsSharding
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rq import Queue
    from rq.job import Job as RqJob

    from worker.jobs.store import Job

ALICE = "alice"
PARTS = PartsSharding("resamples", (4, 4, 4), 1)
LATER = 200.0  # seconds after which RQ has given up every execution of a dead worker
MAX_LOOKS = 6  # sweeps and runs of a worker until everything has ended


class OneProcess(TaskWorker):
    """A worker that runs its tasks in its own process, so that both die together."""

    def execute_job(self, job: RqJob, queue: Queue) -> None:
        """Run a task."""
        SimpleWorker.execute_job(self, job, queue)  # type: ignore[arg-type]

    def subscribe(self) -> None:
        """Listen to no commands."""

    def unsubscribe(self) -> None:
        """Listen to no commands."""


def handlers(stores: Stores) -> type[SafeJob]:
    """Return a job class whose tasks do what the tasks of a worker do with the records, and compute nothing."""

    def end(id_: str) -> None:
        with suppress(Cancelled):
            job = stores.jobs.start(id_)
            if job.parts is not None:
                assert not stores.jobs.unfinished_shards(job)
            stores.jobs.succeed(id_)
            return
        stores.jobs.finish_cancel(id_)

    def shard(id_: str, number: int) -> None:
        with suppress(Cancelled):
            job = stores.jobs.start(id_)
            assert job.sharding is not None
            if number == 0:
                stores.queue.enqueue_others(job)
            stores.jobs.advance(id_, number, job.sharding.shard_size(number))
            return
        stores.jobs.finish_cancel(id_)

    table = {FIT: end, ANALYSIS: end, DRAWS: shard, queue.SWEEP: lambda: None}
    return type("StoppableJob", (SafeJob,), {"handlers": table})


class LockTakenOnce(LongTaskLock):
    """A lock of long tasks, which another RQ worker has when this worker first tries to acquire it."""

    attempts = 0

    def try_acquire(self) -> bool:
        """Return whether this is a later attempt."""
        self.attempts += 1
        return self.attempts > 1


def work(stores: Stores, names: Sequence[str] = (BATCH, INTERACTIVE), lock: LongTaskLock | None = None) -> None:
    """Run the waiting tasks as a worker."""
    job_class = handlers(stores)
    OneProcess(
        list(names), connection=stores.client, serializer=SERIALIZER, job_class=job_class, queue_class=WorkerQueue,
        job_monitoring_interval=1, log_job_description=False, lock=lock,
    ).work(burst=True, logging_level="CRITICAL")  # fmt: skip


@contextmanager
def later(monkeypatch: pytest.MonkeyPatch, stores: Stores) -> Iterator[None]:
    """Let time pass for RQ and for the records of jobs, and remove the locks of dead processes, during the context."""
    with monkeypatch.context() as patch:
        for module in (rq.registry, rq.executions, rq.rate_limit):
            patch.setattr(module, "current_timestamp", lambda: time.time() + LATER)
        patch.setattr(rq.intermediate_queue, "now", lambda: datetime.now(UTC) + timedelta(seconds=LATER))
        patch.setattr(job_records, "now_ms", lambda: now_ms() + int(1000 * LATER))
        for pattern in ("rq:execution:*", "rq:clean_registries:*", "rq:*lock*"):
            for key in stores.client.scan_iter(match=pattern):
                stores.client.delete(key)
        yield


def recover(monkeypatch: pytest.MonkeyPatch, stores: Stores, queues: Sequence[str], *jobs: Job) -> None:
    """Let another worker sweep and run tasks until the jobs have ended (by default all) and RQ is empty."""
    for _ in range(MAX_LOOKS):
        with later(monkeypatch, stores):
            stores.queue.sweep()
            work(stores, queues)
        is_open = [stores.jobs.fetch(job.id).is_open for job in jobs] if jobs else stores.jobs.sample_open(1)
        if not any(is_open) and (jobs or not held(stores)):
            return


def held(stores: Stores) -> list[str]:
    """Return all that RQ still has of any task: slots, waiting and running tasks, and records that do not expire."""
    remains = []
    for limit in RateLimitRegistry.all(stores.client):
        remains += [f"place {id_} {limit.key}" for id_ in limit.get_allowed_job_ids()]
        remains += [f"behind its limit {id_} {limit.key}" for id_ in limit.get_rate_limited_job_ids()]
    for name in QUEUES:
        lists = [*stores.client.lrange(f"rq:queue:{name}", 0, -1)]
        lists += stores.client.lrange(f"rq:queue:{name}:intermediate", 0, -1)
        remains += [f"waits {text(id_)}" for id_ in lists]
        for registry in ("wip", "deferred", "ready"):
            remains += [f"{registry} {text(id_)}" for id_ in stores.client.zrange(f"rq:{registry}:{name}", 0, -1)]
    left = [text(key) for key in stores.client.scan_iter(match="rq:job:*") if stores.client.ttl(key) == -1]
    # A sweep of the files that was lost is enqueued again after an hour, under the same name.
    return [*remains, *(f"record {key}" for key in left if key != SafeJob.key_for(queue.SWEEP))]


def require_service(monkeypatch: pytest.MonkeyPatch, stores: Stores, where: str) -> None:
    """Assert that every job ends, that no slot is taken, and that further tasks of the tenant run in both queues.

    The interactive task runs even if no worker takes batch tasks.
    """
    after = [create(stores, f"after {where} {short}", short=short) for short in (True, False)]
    for job in after:
        stores.queue.enqueue(job)
    recover(monkeypatch, stores, (INTERACTIVE,), after[0])
    assert stores.jobs.fetch(after[0].id).status == "succeeded", where
    recover(monkeypatch, stores, (BATCH, INTERACTIVE))
    open_jobs = {id_: stores.jobs.fetch(id_).status for id_ in stores.jobs.sample_open(100)}
    assert (open_jobs, held(stores)) == ({}, []), where
    assert [stores.jobs.fetch(job.id).status for job in after] == ["succeeded"] * 2, where


def create(stores: Stores, claim: str, **fields: Any) -> Job:
    """Create a job of the tenant, by default a fit."""
    return bare_fit(stores.jobs.for_tenant(ALICE, NO_QUOTA), claim, **{"spec": {"dataset": "ds_1"}, **fields})


def draws(stores: Stores) -> Job:
    """Create a job of draws in three shards."""
    return draws_job(stores.for_tenant(ALICE), "post_1", n_draws=12, shard_seconds=0.0)[0]


def analysis(stores: Stores) -> Job:
    """Create a job of an analysis in three parts."""
    return create(stores, "summary", kind="summary", total=12, parts=PARTS)


def begin(stores: Stores, job: Job) -> RqJob:
    """Enqueue a job and begin its task as a worker does; return the task."""
    stores.queue.enqueue(job)
    first = queue.task_ids(job)[0]
    assert open_queue(job.queue, stores.client).pop_job_id() == first
    (task,) = fetch_tasks(stores.client, [first])
    assert task is not None
    rq_worker = OneProcess([job.queue], connection=stores.client, serializer=SERIALIZER, job_class=SafeJob)
    rq_worker.prepare_execution(task)
    rq_worker.prepare_job_execution(task)
    stores.jobs.start(job.id)
    return task


def submit(stores: Stores, make: Callable[[Stores], Job]) -> None:
    """Accept a job, as a request does."""
    stores.queue.enqueue(make(stores))


# A scenario prepares what it begins with, yields, and then does what the process may die in. How jobs are accepted and
# begun is tried by the first scenarios, and is preparation in the others.


def submit_and_work(stores: Stores, make: Callable[[Stores], Job]) -> Iterator[None]:
    """Accept a job and run its tasks."""
    yield
    submit(stores, make)
    work(stores)


def stop_overdue(stores: Stores, *, parts: PartsSharding | None, is_cancelled: bool = False) -> Iterator[None]:
    """Stop an interactive task after its time, as the worker does that has run it."""
    kind = "fit" if parts is None else "summary"
    job = create(stores, "overdue", short=True, kind=kind, total=12 if parts else 1)
    task = begin(stores, job)
    if is_cancelled:
        stores.jobs.cancel(job.id)
    rq_worker = OneProcess([INTERACTIVE], connection=stores.client, serializer=SERIALIZER, job_class=SafeJob)
    (execution,) = task.get_executions()
    yield
    stores.queue.requeue(task, parts, lambda pipeline: rq_worker.cleanup_execution(task, pipeline, execution))


def prolong(stores: Stores) -> Iterator[None]:
    """Let an interactive task go on as a batch, and end it."""
    job = create(stores, "prolonged", short=True)
    task = begin(stores, job)
    yield
    assert stores.queue.prolong(task)
    stores.jobs.succeed(job.id)
    stores.queue.release(task)


def kill_task(stores: Stores) -> Iterator[None]:
    """Put a task whose process was killed back into its queue, as its worker does."""
    task = begin(stores, create(stores, "killed"))
    rq_worker = OneProcess([BATCH], connection=stores.client, serializer=SERIALIZER, job_class=SafeJob)
    (execution,) = task.get_executions()
    yield
    rq_worker.handle_job_failure(task, open_queue(BATCH, stores.client), execution=execution)


def wait_for_lock(stores: Stores) -> Iterator[None]:
    """Take a batch task while the other RQ worker runs a long task, so that the task goes back to its queue."""
    submit(stores, lambda stores: create(stores, "long"))
    yield
    work(stores, lock=LockTakenOnce())


def withdraw(stores: Stores, make: Callable[[Stores], Job]) -> Iterator[None]:
    """Cancel a job whose tasks wait in the queue, or are held back."""
    job = make(stores)
    yield
    stores.queue.enqueue(job)
    if job.sharding:
        stores.queue.enqueue_others(job)
    stores.queue.withdraw(stores.jobs.cancel(job.id))


def cancel_running(stores: Stores) -> Iterator[None]:
    """Cancel a job whose task runs; the worker then dies before the task ends."""
    job = create(stores, "running")
    begin(stores, job)
    yield
    stores.queue.withdraw(stores.jobs.cancel(job.id))


def repair(stores: Stores, make: Callable[[Stores], Job], lose: Callable[[Stores, str], None]) -> Iterator[None]:
    """Repair a job of which RQ has lost a task."""
    job = make(stores)
    stores.queue.enqueue(job)
    if job.sharding:
        stores.queue.enqueue_others(job)
    lose(stores, queue.task_ids(job)[0])
    yield
    stores.queue.repair(replace(job, touched=job.touched - 10_000))


def lose_in_transit(stores: Stores, id_: str) -> None:
    """Take a task from its queue, as a worker that dies afterwards."""
    assert open_queue(BATCH, stores.client).pop_job_id() == id_


def lose_started(stores: Stores, id_: str) -> None:
    """Leave a task whose record says that it runs, but which has no execution."""
    lose_in_transit(stores, id_)
    stores.client.hset(SafeJob.key_for(id_), "status", "started")


def grow(stores: Stores) -> Iterator[None]:
    """Sweep after another worker has started, so that tenants may have more tasks; then sweep the files, too."""
    for number in range(4):
        stores.queue.enqueue(create(stores, f"waits {number}"))
    announce(
        stores.client, stores.settings, WorkerState(name="second", host="", busy=0, engine="", numbers="", threads="")
    )
    yield
    stores.queue.sweep()
    stores.client.set(queue.SWEEP_AT, 1.0)
    stores.queue.sweep()


SCENARIOS: dict[str, Callable[[Stores], Iterator[None]]] = {
    "a short job": partial(submit_and_work, make=lambda stores: create(stores, "short", short=True)),
    "draws in shards": partial(submit_and_work, make=draws),
    "an analysis in parts": partial(submit_and_work, make=analysis),
    "an overdue task": partial(stop_overdue, parts=None),
    "an overdue task, then parts": partial(stop_overdue, parts=PARTS),
    "an overdue task of a cancelled job": partial(stop_overdue, parts=None, is_cancelled=True),
    "a prolonged task": prolong,
    "a killed task": kill_task,
    "a batch without the lock": wait_for_lock,
    "a withdrawn job": partial(withdraw, make=lambda stores: create(stores, "waits")),
    "withdrawn parts": partial(withdraw, make=analysis),
    "a cancelled task that runs": cancel_running,
    "a repair of a task in transit": partial(repair, make=lambda stores: create(stores, "lost"), lose=lose_in_transit),
    "a repair of a dead task": partial(repair, make=lambda stores: create(stores, "lost"), lose=lose_started),
    "a repair of parts": partial(repair, make=analysis, lose=lose_in_transit),
    "new workers": grow,
}


def accepted(stores: Stores) -> set[str]:
    """Return the keys of the records of all jobs."""
    return {text(key) for key in stores.client.scan_iter(match="glle:job:*")}


SLOW = ("draws in shards", "an analysis in parts")  # some sixty stop-points each


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in SCENARIOS]
)
def test_a_death_between_two_writes_loses_no_job_and_no_place(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Wherever a process dies, each job with a record ends without failure, and its tenant is served afterwards."""
    scenario, names, number = SCENARIOS[name], [""], 0
    while number <= len(names):
        stores.client.flushall()
        stores.keys.create(ALICE, ("write",), "test", None)
        with closing(Stores.connect(stores.settings)) as victim:
            steps = scenario(victim)
            next(steps)
            with stopping(number) as stop:
                next(steps, None)
        names, number = stop.names, number + 1
        where = f"{name}, before write {number} of {names}"
        before = accepted(stores)
        require_service(monkeypatch, stores, where)
        assert before <= accepted(stores), where
        ended = {id_: stores.jobs.fetch(id_.rpartition(":")[2]) for id_ in before}
        assert {job.status for job in ended.values()} <= {"succeeded", "cancelled"}, (where, ended)
        if not stop.is_dead:
            break
    assert number > 1, "it writes nothing"
