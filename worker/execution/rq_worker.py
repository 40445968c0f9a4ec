"""RQ's worker with the project's tasks: it forks a work-horse for each, with the engine loaded before the fork."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from rq import Queue, Worker

import glle_engine.methods  # noqa: F401 # the engine is loaded before the fork, not in each work-horse
from worker.connections.clients import connect_queue
from worker.connections.retry import RetryPolicy
from worker.execution import process_guard, tasks
from worker.execution.draws import limit_draws
from worker.jobs.rq_types import SERIALIZER, SafeJob
from worker.observability.live_workers import PATIENCE_SECONDS
from worker.stores import process_stores

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

    from redis import Redis
    from redis.client import Pipeline
    from rq.job import Job as RqJob

    from worker.base.settings import Settings

MAX_MISSED = 4  # heartbeats, after which a task counts as abandoned
LOCK_SECONDS = 30  # of maintenance, after which the lock of a killed worker ends (RQ: a quarter of an hour)
RQ_RESERVE = 15  # seconds that RQ subtracts from the time to live of a worker for its wait for a task


def end_stopped(task: RqJob, connection: Redis) -> None:
    """Cancel the job of a task that was stopped."""
    del connection
    process_stores().jobs.finish_cancel(task.args[0])


class TaskJob(SafeJob):
    """An RQ job that can run the tasks of this worker."""

    handlers: ClassVar[Mapping[str, Callable[..., None]]] = tasks.HANDLERS
    stopped_callback = staticmethod(end_stopped)


class WorkerQueue(Queue):
    """A queue whose maintenance lock outlives a killed worker by half a minute at most."""

    job_class = TaskJob

    def acquire_maintenance_lock(self) -> bool:
        """Return whether the lock is acquired."""
        return bool(self.connection.set(self.registry_cleaning_key, 1, nx=True, ex=LOCK_SECONDS))


class TaskWorker(Worker):
    """RQ's forking worker, which notices an abandoned task after `MAX_MISSED` heartbeats."""

    max_connection_wait_time = 2.0  # between two attempts to reach the queue's Redis (RQ: a minute)

    def get_heartbeat_ttl(self, job: RqJob, working_time: float = 0.0) -> int:
        """Return the seconds without a heartbeat after which a task counts as abandoned (RQ adds a minute)."""
        del job, working_time
        return int(self.job_monitoring_interval * MAX_MISSED)

    def heartbeat(self, timeout: int | None = None, pipeline: Pipeline | None = None) -> None:
        """Renew the worker's keys in one round trip (RQ: three, each of which waits for the disk)."""
        if pipeline is not None:
            super().heartbeat(timeout, pipeline)
            return
        with self.connection.pipeline(transaction=False) as own:
            super().heartbeat(timeout, own)
            own.execute()

    def prepare_job_execution(self, job: RqJob, remove_from_intermediate_queue: bool = False) -> None:  # noqa: FBT001, FBT002 # RQ's signature
        """Begin a task, and remove it from the list of taken ones, where RQ leaves one whose work-horse was killed."""
        del remove_from_intermediate_queue
        super().prepare_job_execution(job, remove_from_intermediate_queue=True)

    def handle_work_horse_killed(self, job: RqJob, retpid: int, ret_val: int, rusage: object) -> None:
        """Count a task whose process was killed, for the metrics."""
        super().handle_work_horse_killed(job, retpid, ret_val, rusage)  # type: ignore[no-untyped-call] # of RQ
        counts = process_stores().counts
        counts.add("tasks_killed", job.origin)
        counts.flush()

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


def begin_work_horse(parent: int) -> None:
    """Prepare a forked work-horse, which dies with its worker."""
    process_guard.die_with_parent(signal.SIGKILL, parent)
    limit_draws(process_stores().settings.method_bytes)
    process_stores().counts.clear()  # its parent's


def work(name: str, queues: Sequence[str], settings: Settings) -> int:
    """Work on queues under a name until a signal; return the exit code."""
    process_stores()  # each work-horse has them from the fork
    os.register_at_fork(after_in_child=partial(begin_work_horse, os.getpid()))
    worker = TaskWorker(
        list(queues),
        name=name,
        connection=connect_queue(settings, retry=RetryPolicy(PATIENCE_SECONDS)),
        serializer=SERIALIZER,
        job_class=TaskJob,
        queue_class=WorkerQueue,
        worker_ttl=RQ_RESERVE + settings.heartbeat,
        job_monitoring_interval=settings.heartbeat,
        maintenance_interval=settings.heartbeat,
        log_job_description=False,
    )
    worker.log_result_lifespan = False
    worker.work(logging_level=None)  # `worker.observability.logging` sets it
    return 0
