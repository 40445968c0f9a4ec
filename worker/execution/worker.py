"""RQ's worker, as the service uses it: each task in a work-horse, with limits of time and memory.

Of the two RQ workers of a parent (`worker.execution.parent`) one at a time runs a task of any length (`LongPlace`). An
interactive task has `INTERACTIVE_SECONDS` and `INTERACTIVE_BYTES`. Beyond its time it goes on if the long place is
free, and so is its tenant's share of batches. Otherwise, and beyond its memory, it is stopped and queued as a batch,
once.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

import redis
from rq import Queue
from rq import Worker as RqWorker
from rq.worker_registration import register

from worker.analyses.registry import analysis_of
from worker.base.memory import (
    INTERACTIVE_BYTES,
    count_oom_kills,
    limit_work,
    memory_limit,
    offer_to_oom_killer,
    raise_limit,
)
from worker.base.problems import out_of_memory, task_crashed
from worker.connections.clients import connect_queue
from worker.connections.retry import RetryPolicy
from worker.execution import process_guard, tasks
from worker.execution.long_place import LongPlace
from worker.jobs.rq_tasks import SERIALIZER, SafeJob
from worker.observability.live_workers import PATIENCE_SECONDS
from worker.records.job import BATCH, INTERACTIVE
from worker.records.sharding import SHARD_SECONDS, PartsSharding
from worker.stores import process_stores

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

    from redis import Redis
    from redis.client import Pipeline
    from rq.executions import Execution
    from rq.job import Job as RqJob
    from rq.registry import StartedJobRegistry

    from worker.base.problems import Problem
    from worker.base.settings import Settings
    from worker.records.job import Job

MAX_MISSED = 4  # missed heartbeats after which a task counts as abandoned
LOCK_SECONDS = 10  # a lock of maintenance that a killed worker held ends after this time (RQ: a quarter of an hour)
RQ_RESERVE = 15  # seconds that RQ subtracts from the time to live of a worker for its wait for a task
INTERACTIVE_SECONDS = 5.0  # after this time an interactive task goes on as a batch
# Pause between two attempts to start a batch task while the other RQ worker runs a long one.
LONG_PLACE_RETRY_SECONDS = 1
CRASHES = {signal.SIGABRT, signal.SIGBUS, signal.SIGSEGV}  # signals by which a work-horse ends itself

log = logging.getLogger(__name__)


def end_stopped(task: RqJob, connection: Redis) -> None:
    """Cancel the job of a task that was stopped."""
    del connection
    if task.args:  # the sweep has no job
        process_stores().jobs.finish_cancel(task.args[0])


class TaskJob(SafeJob):
    """An RQ job that can run the tasks of this worker."""

    handlers: ClassVar[Mapping[str, Callable[..., None]]] = tasks.HANDLERS
    stopped_callback = staticmethod(end_stopped)


class WorkerQueue(Queue):
    """A queue whose maintenance lock outlives a killed worker by some seconds at most."""

    job_class = TaskJob

    def acquire_maintenance_lock(self) -> bool:
        """Return whether the lock is acquired."""
        return bool(self.connection.set(self.registry_cleaning_key, 1, nx=True, ex=LOCK_SECONDS))


class TaskWorker(RqWorker):
    """RQ's forking worker, which notices an abandoned task after `MAX_MISSED` heartbeats.

    It stops an interactive task after its time, or lets it go on in the long place.
    """

    max_connection_wait_time = 2.0  # longest pause between two attempts to reach the queue's Redis (RQ: a minute)
    _oom_kills = 0  # processes that the kernel had killed for memory before the task
    _overdue = ""  # id of the task that was stopped to be queued as a batch
    _prolonged = ""  # id of the task that goes on in the long place
    _renewed = float("-inf")  # monotonic time of the latest renewal of the worker's keys between tasks

    def __init__(self, *arguments: Any, place: LongPlace | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._place = place or LongPlace()

    def dequeue_job_and_maintain_ttl(
        self, timeout: int | None, max_idle_time: int | None = None
    ) -> tuple[RqJob, Queue] | None:
        """Return the next task; a batch task that has no place goes back to the front of its queue."""
        dequeued = super().dequeue_job_and_maintain_ttl(timeout, max_idle_time)
        while dequeued is not None and dequeued[1].name == BATCH and not self._place.try_acquire():
            dequeued[1].push_job_id(dequeued[0].id, at_front=True)
            self._ordered_queues = [queue for queue in self.queues if queue.name != BATCH]
            try:
                dequeued = super().dequeue_job_and_maintain_ttl(timeout, LONG_PLACE_RETRY_SECONDS)
            finally:
                self._ordered_queues = list(self.queues)
            dequeued = dequeued or super().dequeue_job_and_maintain_ttl(timeout, max_idle_time)
        return dequeued

    def check_for_suspension(self, burst: bool) -> None:  # noqa: FBT001 # RQ's signature
        """Check nothing: no command suspends a worker, and RQ's check is a transaction for each task."""

    def execute_job(self, job: RqJob, queue: Queue) -> None:
        """Run a task, and leave the long place."""
        try:
            super().execute_job(job, queue)
        finally:
            self._place.release()

    def monitor_work_horse(self, job: RqJob, queue: Queue, execution: Execution) -> None:
        """Wait for a work-horse; after the time of an interactive task, prolong or stop it."""
        timer = threading.Timer(INTERACTIVE_SECONDS, self._end_interactive, (job, self._horse_pid))
        if queue.name == INTERACTIVE:
            timer.start()
        try:
            super().monitor_work_horse(job, queue, execution)
        finally:
            timer.cancel()
            if queue.name == INTERACTIVE:
                timer.join()
            if self._prolonged == job.id:
                process_stores().queue.release(job)
            self._overdue = self._prolonged = ""

    def _end_interactive(self, job: RqJob, pid: int) -> None:
        """Let a task go on as a batch if it may; otherwise kill its work-horse, which leads its group."""
        stores = process_stores()
        if self._stopped_job_id == job.id:
            return
        try:
            if self._place.try_acquire() and stores.queue.prolong(job):
                self._prolonged = job.id
                raise_limit(pid, stores.settings.method_bytes - INTERACTIVE_BYTES)
                return
        except redis.RedisError as error:
            log.warning("Task %s goes on, because the share of its tenant cannot be read: %s", job.id, error)
            return
        self._overdue = job.id
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)

    def get_heartbeat_ttl(self, job: RqJob, working_time: float = 0.0) -> int:
        """Return the seconds without a heartbeat after which a task counts as abandoned (RQ adds a minute)."""
        del job, working_time
        return int(self.job_monitoring_interval * MAX_MISSED)

    def heartbeat(self, timeout: int | None = None, pipeline: Pipeline | None = None) -> None:
        """Renew the worker's keys in one round trip (RQ: three, each of which waits for the disk).

        Twice in a heartbeat is enough, but RQ asks for a renewal before and after each wait for a task. An idle worker
        also registers again, because RQ removes a worker that was cut off for longer than its keys live.
        """
        if pipeline is not None:
            super().heartbeat(timeout, pipeline)
            return
        now = time.monotonic()
        if timeout is None and now - self._renewed < self.job_monitoring_interval / 2:
            return
        with self.connection.pipeline(transaction=False) as commands:
            super().heartbeat(timeout, commands)
            commands.hset(self.key, mapping=self.serialize())
            register(self, commands)
            commands.execute()
        self._renewed = now

    def set_state(self, state: str, pipeline: Pipeline | None = None) -> None:
        """Write the state of the worker, if it is another one."""
        if pipeline is not None or state != self.get_state():
            super().set_state(state, pipeline)

    def cleanup_execution(self, job: RqJob, pipeline: Pipeline, execution: Execution | None = None) -> None:
        """End a task, and remove it from the list of dequeued tasks, where RQ leaves tasks of killed work-horses."""
        super().cleanup_execution(job, pipeline, execution)
        pipeline.lrem(Queue(job.origin, connection=self.connection).intermediate_queue_key, 0, job.id)

    def fork_work_horse(self, job: RqJob, queue: Queue) -> None:
        """Fork a work-horse, and record how many processes the kernel has killed for lack of memory so far."""
        self._oom_kills = count_oom_kills()
        super().fork_work_horse(job, queue)

    def handle_work_horse_killed(self, job: RqJob, retpid: int, ret_val: int, rusage: object) -> None:
        """Count a task whose process was killed, for the metrics; fail its job if it would be killed again.

        An interactive task that was killed for its memory is queued as a batch task, whose limit is higher.
        """
        if self._is_beyond_memory(job, ret_val):
            self._overdue = job.id
        if self._overdue == job.id:
            return
        super().handle_work_horse_killed(job, retpid, ret_val, rusage)  # type: ignore[no-untyped-call] # of RQ
        stores = process_stores()
        stores.counts.add("tasks_killed", job.origin)
        stores.counts.flush()
        if (problem := self._find_problem(ret_val)) is not None:
            job.retries_left = 0
            stores.jobs.fail(job.args[0], problem)

    def handle_job_failure(
        self,
        job: RqJob,
        queue: Queue,
        started_job_registry: StartedJobRegistry | None = None,
        exc_string: str = "",
        execution: Execution | None = None,
    ) -> None:
        """End a failed task; a task that was stopped for its time or memory is queued as a batch task."""
        if self._overdue != job.id or self._stopped_job_id == job.id:
            super().handle_job_failure(job, queue, started_job_registry, exc_string, execution)
            return
        stores = process_stores()
        record = stores.jobs.get(job.args[0])
        parts = None if record is None else batch_parts(record)
        stores.queue.requeue(job, parts, lambda pipeline: self.cleanup_execution(job, pipeline, execution))

    def _is_beyond_memory(self, job: RqJob, status: int | None) -> bool:
        """Return whether an interactive task has ended for its memory: it said so, or compiled code has crashed."""
        if status is None or job.origin != INTERACTIVE or self._prolonged == job.id:
            return False
        return os.WEXITSTATUS(status) == tasks.BEYOND_MEMORY or os.WTERMSIG(status) in CRASHES

    def _find_problem(self, status: int | None) -> Problem | None:
        """Return the problem of a task that has ended its process, or None if someone else has.

        The kernel kills for memory by SIGKILL, as does a restart. A crash has the same reason if compiled code does not
        check its allocations.
        """
        if status is None or not os.WIFSIGNALED(status):
            return None
        signum, allowed = os.WTERMSIG(status), process_stores().settings.method_bytes
        if signum == signal.SIGKILL:
            return out_of_memory(allowed, memory_limit()) if count_oom_kills() > self._oom_kills else None
        return task_crashed(signal.Signals(signum).name, allowed) if signum in CRASHES else None

    def teardown(self) -> None:
        """Take leave of the queue's Redis without waiting for it: the worker's keys expire by themselves."""
        self.connection.set_retry(RetryPolicy(0.0, "GLLE_REDIS_URL"))
        with suppress(redis.RedisError, OSError):
            super().teardown()  # type: ignore[no-untyped-call] # of RQ

    def request_force_stop(self, signum: int, frame: FrameType | None) -> None:
        """Kill the work-horse and exit.

        The timer of RQ's heartbeats must not fire meanwhile: its exception would replace the exit, and RQ would then
        take the death of the work-horse for a failure, and use a retry.
        """
        left, handler = signal.alarm(0), signal.signal(signal.SIGALRM, signal.SIG_IGN)
        super().request_force_stop(signum, frame)  # raises, unless it ignores the signal
        signal.signal(signal.SIGALRM, handler)
        if callable(handler):
            signal.alarm(left or 1)


def guard_forks() -> None:
    """Register the hook that prepares forked processes, so that no process outlives its parent."""
    parents: list[int] = []
    os.register_at_fork(
        before=lambda: parents.append(os.getpid()), after_in_child=lambda: begin_work_horse(parents[-1])
    )


def begin_work_horse(parent: int) -> None:
    """Prepare a forked work-horse, or a process that its task forks, which has the limits of the task."""
    process_guard.die_with_parent(signal.SIGKILL, parent)
    offer_to_oom_killer()
    limit_work(process_stores().settings.method_bytes)
    process_stores().counts.clear()  # the parent sends its own counts


def batch_parts(job: Job) -> PartsSharding | None:
    """Return the shards of a job that is queued as a batch; None for one task."""
    if job.kind in {"fit", "draws"}:
        return None
    sizes = [part.size for part in analysis_of(job).parts()]
    return PartsSharding.from_sizes("halves", sizes, SHARD_SECONDS, SHARD_SECONDS)


def work(name: str, queues: Sequence[str], settings: Settings, place: LongPlace) -> int:
    """Work on queues under a name until a signal; return the exit code."""
    process_stores()  # opened before the fork, so that each work-horse inherits them
    guard_forks()
    worker = TaskWorker(
        list(queues),
        name=name,
        connection=connect_queue(settings, retry=RetryPolicy(PATIENCE_SECONDS, "GLLE_REDIS_URL")),
        serializer=SERIALIZER,
        job_class=TaskJob,
        queue_class=WorkerQueue,
        worker_ttl=RQ_RESERVE + settings.heartbeat,
        job_monitoring_interval=settings.heartbeat,
        maintenance_interval=settings.heartbeat,
        log_job_description=False,
        place=place,
    )
    worker.log_result_lifespan = False
    worker.work(logging_level=None)  # `worker.observability.logging` sets it
    return 0
