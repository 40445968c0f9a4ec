"""RQ's worker, adapted to the service: each task runs in a forked process (RQ's work-horse), with limits.

Of the two RQ workers of a parent (`worker.execution.parent`), only one at a time may run a long task: the one that has
a lock (`LongTaskLock`). An interactive task has `INTERACTIVE_SECONDS` and `INTERACTIVE_BYTES`. After this time, the
task goes on as a batch task if the lock is free and the tenant's share of the batch queue is not full. Otherwise, and
if the task needs more memory, it is stopped and queued as a batch task. This happens at most once for each job.

If a process dies while a task runs, the task is repeated, at most `worker.jobs.queue.MAX_RETRIES` times:

- The work-horse died: its RQ worker puts the task back into the queue (`TaskWorker.handle_job_failure`). If the kernel
  killed the work-horse for lack of memory, or if it crashed, a repetition would end in the same way, so the job fails
  (`TaskWorker.handle_work_horse_killed`). Only an interactive task that crashed, or needs more than
  `INTERACTIVE_BYTES`, is first tried as a batch task.
- The RQ worker died, and its work-horse with it: the parent starts a successor, which gives up the tasks of its
  predecessor (`work`), and RQ repeats them.
- The parent died, and its children with it (`worker.execution.process_guard`), or the machine died: other workers, or
  the restarted one, repeat the task when four of its heartbeats are missing (`TaskWorker.get_heartbeat_ttl`).
- Redis lost the task: `worker.jobs.queue.TaskQueue.repair` enqueues it again.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import tempfile
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
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

MAX_MISSED_HEARTBEATS = 4  # a task counts as abandoned after this many missed heartbeats
LOCK_SECONDS = 10  # RQ's maintenance lock expires after this time if its holder was killed (RQ: a quarter of an hour)
RQ_RESERVE = 15  # seconds that RQ subtracts from `worker_ttl` to get the longest wait for a task
INTERACTIVE_SECONDS = 5.0  # after this time, an interactive task becomes a batch task
LOCK_RETRY_SECONDS = 1  # pause between two attempts to start a batch task while the other RQ worker runs a long task
CRASH_SIGNALS = {signal.SIGABRT, signal.SIGBUS, signal.SIGSEGV}  # signals by which a work-horse crashes

log = logging.getLogger(__name__)


def end_stopped(task: RqJob, connection: Redis) -> None:
    """Set the status of a job to cancelled, after its task was stopped; RQ calls this after a command to stop it."""
    del connection
    if task.args:  # the sweep has no job
        process_stores().jobs.finish_cancel(task.args[0])


class TaskJob(SafeJob):
    """An RQ job that can only call the functions in `tasks.HANDLERS`, whatever its record in Redis names."""

    handlers: ClassVar[Mapping[str, Callable[..., None]]] = tasks.HANDLERS
    stopped_callback = staticmethod(end_stopped)


class WorkerQueue(Queue):
    """An RQ queue whose maintenance lock expires after `LOCK_SECONDS`, in case its holder was killed."""

    job_class = TaskJob

    def acquire_maintenance_lock(self) -> bool:
        """Acquire the lock for RQ's maintenance of the queue; return False if another worker has the lock."""
        return bool(self.connection.set(self.registry_cleaning_key, 1, nx=True, ex=LOCK_SECONDS))


class LongTaskLock:
    """Lock, shared by the RQ workers of one parent, of which only one at a time may run a long task.

    A batch task starts only with the lock. An interactive task needs the lock to go on after its first seconds. The
    system releases the lock of a process that ends.
    """

    def __init__(self) -> None:
        self._file, path = tempfile.mkstemp()  # forks inherit the file, but each process has its own locks
        Path(path).unlink()
        weakref.finalize(self, os.close, self._file)

    def try_acquire(self) -> bool:
        """Acquire the lock for long tasks, unless the parent's other RQ worker has it; return whether it was acquired.

        If this RQ worker has the lock already, return True.
        """
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def release(self) -> None:
        """Release the lock, if this RQ worker has it."""
        fcntl.lockf(self._file, fcntl.LOCK_UN)


class TaskWorker(RqWorker):
    """RQ's forking worker, which also limits the time and the memory of interactive tasks.

    Of the two RQ workers of a parent, only one at a time runs a long task. A task whose worker has died counts as
    abandoned after `MAX_MISSED_HEARTBEATS` missed heartbeats.
    """

    max_connection_wait_time = 2.0  # longest pause between two attempts to reach the queue's Redis (RQ: a minute)
    _oom_kills = 0  # number of processes that the kernel had killed for lack of memory before the task
    _overdue = ""  # id of the task that was stopped to be queued as a batch task
    _prolonged = ""  # id of the interactive task that goes on as a batch task
    _renewed = float("-inf")  # monotonic time at which `heartbeat` last renewed the worker's keys in Redis

    def __init__(self, *arguments: Any, lock: LongTaskLock | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._long_task_lock = lock or LongTaskLock()

    def dequeue_job_and_maintain_ttl(
        self, timeout: int | None, max_idle_time: int | None = None
    ) -> tuple[RqJob, Queue] | None:
        """Return the next task and its queue, or None if there is none.

        A parent has two RQ workers, of which only one at a time may run a long task. While the other one does, a batch
        task goes back to its queue, and only interactive tasks are taken for `LOCK_RETRY_SECONDS`.
        """
        dequeued = super().dequeue_job_and_maintain_ttl(timeout, max_idle_time)
        while dequeued is not None and dequeued[1].name == BATCH and not self._long_task_lock.try_acquire():
            dequeued[1].push_job_id(dequeued[0].id, at_front=True)
            self._ordered_queues = [queue for queue in self.queues if queue.name != BATCH]
            try:
                dequeued = super().dequeue_job_and_maintain_ttl(timeout, LOCK_RETRY_SECONDS)
            finally:
                self._ordered_queues = list(self.queues)
            dequeued = dequeued or super().dequeue_job_and_maintain_ttl(timeout, max_idle_time)
        return dequeued

    def check_for_suspension(self, burst: bool) -> None:  # noqa: FBT001 # RQ's signature
        """Do nothing: the service never suspends workers, and RQ's check costs a transaction for each task."""

    def execute_job(self, job: RqJob, queue: Queue) -> None:
        """Run a task, and then release the lock for long tasks."""
        try:
            super().execute_job(job, queue)
        finally:
            self._long_task_lock.release()

    def monitor_work_horse(self, job: RqJob, queue: Queue, execution: Execution) -> None:
        """Wait until the process of a task ends; after `INTERACTIVE_SECONDS`, prolong or stop an interactive task."""
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
        """Let an interactive task go on as a batch task, with more memory; if it may not, kill its processes.

        The task may go on if no other long task runs here, and if its tenant's share of the batch queue is not full. If
        the share cannot be read, the task goes on as it is.
        """
        stores = process_stores()
        if self._stopped_job_id == job.id:
            return
        try:
            if self._long_task_lock.try_acquire() and stores.queue.prolong(job):
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
        """Return after how many seconds without a heartbeat a task counts as abandoned: four heartbeat intervals.

        RQ itself would wait for one interval and a minute.
        """
        del job, working_time
        return int(self.job_monitoring_interval * MAX_MISSED_HEARTBEATS)

    def heartbeat(self, timeout: int | None = None, pipeline: Pipeline | None = None) -> None:
        """Renew the worker's keys in one round trip (RQ: three round trips, each of which waits for the disk).

        RQ calls this before and after each wait for a task; a call without `timeout` does nothing if the last renewal
        was less than half a heartbeat interval ago. Each renewal also registers the worker again, because RQ removes a
        worker that was cut off until its keys expired.
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
        """Write the worker's state (busy, idle ...) to Redis only if the state has changed."""
        if pipeline is not None or state != self.get_state():
            super().set_state(state, pipeline)

    def cleanup_execution(self, job: RqJob, pipeline: Pipeline, execution: Execution | None = None) -> None:
        """End the execution of a task; also remove the task from RQ's list of dequeued tasks.

        A task enters this list when a worker takes it while waiting for one queue only. RQ leaves it there if the
        process of the task is killed before it removes the task; and always for a worker with two queues, because RQ
        does not expect that it waits for only one of them, as `dequeue_job_and_maintain_ttl` does.
        """
        super().cleanup_execution(job, pipeline, execution)
        pipeline.lrem(Queue(job.origin, connection=self.connection).intermediate_queue_key, 0, job.id)

    def fork_work_horse(self, job: RqJob, queue: Queue) -> None:
        """Fork the process of a task, after counting the processes that the kernel has killed for lack of memory.

        If the process is killed, a higher count shows that memory was the reason.
        """
        self._oom_kills = count_oom_kills()
        super().fork_work_horse(job, queue)

    def handle_work_horse_killed(self, job: RqJob, retpid: int, ret_val: int, rusage: object) -> None:
        """Count a killed process of a task; if the task was the cause, fail its job.

        A repetition would end in the same way. An interactive task that needs more memory is queued as a batch task
        instead (`handle_job_failure`).
        """
        if self._is_beyond_memory(job, ret_val):
            self._overdue = job.id
        if self._overdue == job.id:
            return
        super().handle_work_horse_killed(job, retpid, ret_val, rusage)  # type: ignore[no-untyped-call] # of RQ
        stores = process_stores()
        stores.counts.add("tasks_killed", job.origin)
        stores.counts.flush()
        if job.args and (problem := self._find_problem(ret_val)) is not None:  # the sweep has no job
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
        """Record that a task has failed, so that RQ repeats the task if it has retries left; RQ calls this.

        An interactive task that only needs more time or memory has not failed: it is queued as a batch task instead.
        """
        if self._overdue != job.id or self._stopped_job_id == job.id:
            super().handle_job_failure(job, queue, started_job_registry, exc_string, execution)
            return
        stores = process_stores()
        record = stores.jobs.get(job.args[0])
        parts = None if record is None else batch_parts(record)
        stores.queue.requeue(job, parts, lambda pipeline: self.cleanup_execution(job, pipeline, execution))

    def _is_beyond_memory(self, job: RqJob, status: int | None) -> bool:
        """Return whether an interactive task may succeed with more memory, as a batch task.

        `status` is the wait status of the task's process. It shows that more memory may help by the exit code
        `BEYOND_MEMORY`, or by a signal of a crash.
        """
        if status is None or job.origin != INTERACTIVE or self._prolonged == job.id:
            return False
        return os.WEXITSTATUS(status) == tasks.BEYOND_MEMORY or os.WTERMSIG(status) in CRASH_SIGNALS

    def _find_problem(self, status: int | None) -> Problem | None:
        """Return the problem of a task that caused the end of its process; None if something else was the cause.

        SIGKILL comes from the kernel when memory is short, and also from a restart: the count of OOM kills tells which.
        A crash may also be a lack of memory, because some compiled code does not check its allocations. `status` is the
        wait status of the process.
        """
        if status is None or not os.WIFSIGNALED(status):
            return None
        signum, allowed = os.WTERMSIG(status), process_stores().settings.method_bytes
        if signum == signal.SIGKILL:
            return out_of_memory(allowed, memory_limit()) if count_oom_kills() > self._oom_kills else None
        return task_crashed(signal.Signals(signum).name, allowed) if signum in CRASH_SIGNALS else None

    def teardown(self) -> None:
        """Remove the worker from RQ, without waiting if Redis does not answer: the worker's keys then expire."""
        self.connection.set_retry(RetryPolicy(0.0, "GLLE_REDIS_URL"))
        with suppress(redis.RedisError, OSError):
            super().teardown()  # type: ignore[no-untyped-call] # of RQ

    def request_force_stop(self, signum: int, frame: FrameType | None) -> None:
        """Kill the process of the task, and exit.

        The timer of RQ's heartbeats must not fire meanwhile: the timer's exception would replace the exit, and RQ would
        then treat the end of the work-horse as a failure and use up a retry.
        """
        left, handler = signal.alarm(0), signal.signal(signal.SIGALRM, signal.SIG_IGN)
        super().request_force_stop(signum, frame)  # raises, unless it ignores the signal
        signal.signal(signal.SIGALRM, handler)
        if callable(handler):
            signal.alarm(left or 1)


def guard_forks() -> None:
    """Make each process that is forked from now on begin with a call of `begin_work_horse`."""
    parents: list[int] = []
    os.register_at_fork(
        before=lambda: parents.append(os.getpid()), after_in_child=lambda: begin_work_horse(parents[-1])
    )


def begin_work_horse(parent: int) -> None:
    """Prepare the process of a task, or a process forked by a task: limit its memory, and tie it to its parent."""
    process_guard.die_with_parent(signal.SIGKILL, parent)
    offer_to_oom_killer()
    limit_work(process_stores().settings.method_bytes)
    process_stores().counts.clear()  # these pending counts are copies, which the parent sends


def batch_parts(job: Job) -> PartsSharding | None:
    """Return how an analysis is divided into shards, one for each task, when its interactive job becomes a batch job.

    Return None if one task does the whole job. For draws, too, None is returned, because the specification of a draws
    job says how the draws are divided (`DrawsSpec`).
    """
    if job.kind in {"fit", "draws"}:
        return None
    sizes = [part.size for part in analysis_of(job).parts()]
    return PartsSharding.from_sizes("halves", sizes, SHARD_SECONDS, SHARD_SECONDS)


def work(name: str, queues: Sequence[str], settings: Settings, lock: LongTaskLock, predecessor: str) -> int:
    """Run an RQ worker, which takes tasks from queues, until a signal to stop arrives; return the exit code.

    `predecessor` is the name of an RQ worker whose process has died: its tasks are repeated.
    """
    stores = process_stores()  # connected before the fork, so that each work-horse inherits the stores
    with suppress(redis.RedisError):
        stores.queue.abandon(predecessor)
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
        lock=lock,
    )
    worker.log_result_lifespan = False
    worker.work(logging_level=None)  # `worker.observability.logging` sets the level
    return 0
