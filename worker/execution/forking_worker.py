"""RQ's forking worker for long tasks, with the engine preloaded, hardened against kills.

A work-horse, forked for each task, dies with its worker; another worker enqueues the task of a dead worker again within
seconds. On a first signal the worker finishes its task, on a second one it returns the task to the queue.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import redis
from rq import Worker, worker_registration
from rq.exceptions import StopRequested
from rq.utils import now
from rq.worker import WorkerStatus

import glle_engine.methods  # the engine is loaded before the fork, not in each work-horse
from worker.base.numerics import own_numbers
from worker.base.settings import Settings
from worker.base.versions import queue_name
from worker.connections.clients import connect_queue
from worker.connections.retry import RetryPolicy
from worker.execution import process_guard, tasks
from worker.execution.supervisor import JobSupervisor
from worker.jobs.rq_types import SERIALIZER, SafeJob, SafeQueue
from worker.observability.live_workers import prolong, worker_ttl
from worker.stores import process_stores

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

    from redis.client import Pipeline
    from rq.job import Job
    from rq.queue import Queue

MAINTAINED = "glle:maintained"  # exists for a heartbeat after a worker has cleaned the registries
SWEPT = "glle:swept"  # exists for a heartbeat after a worker has checked the open jobs
AGAIN_SECONDS = 1.0  # between two attempts to reach a server
MAX_MISSED = 4  # heartbeats, after which a task counts as abandoned
REMINDER = signal.SIGUSR1  # ends an idle worker after a first signal to stop

log = logging.getLogger(__name__)


class TaskJob(SafeJob):
    """An RQ job that can run the tasks of this worker."""

    handlers: ClassVar[Mapping[str, Callable[..., None]]] = {
        **tasks.HANDLERS,
        # Earlier versions enqueued the paths of functions.
        "worker.tasks.fit": tasks.fit,
        "worker.tasks.draw": tasks.draw,
        "worker.tasks.analyse": tasks.analyse,
    }


class GlleWorker(Worker):
    """A worker of the queue."""

    glle = Settings()
    max_connection_wait_time = 2.0  # between two attempts to reach the queue's Redis (RQ: a minute)

    def get_heartbeat_ttl(self, job: Job) -> int:  # noqa: ARG002 # RQ's signature
        """Return the seconds without a heartbeat after which a task counts as abandoned (RQ adds a minute)."""
        return int(self.job_monitoring_interval * MAX_MISSED)

    @property
    def dequeue_timeout(self) -> int:
        """Seconds to block for a task between maintenance (RQ: worker_ttl - 15)."""
        return int(self.job_monitoring_interval)

    def run_maintenance_tasks(self) -> None:
        """Recover tasks of dead workers, and jobs without a task."""
        super().run_maintenance_tasks()  # type: ignore[no-untyped-call] # RQ's
        if self.connection.set(SWEPT, 1, nx=True, ex=int(self.job_monitoring_interval)):  # one worker is enough
            process_stores().recovery.sweep()

    def clean_registries(self) -> None:
        """Recover tasks of dead workers, unless another worker did within a heartbeat.

        Each run reads every worker and every started task, so the cost of a run by each worker would be quadratic.
        """
        if self.connection.set(MAINTAINED, 1, nx=True, ex=max(1, int(self.job_monitoring_interval))):
            super().clean_registries()  # type: ignore[no-untyped-call] # RQ's
        self.last_cleaned_at = now()  # type: ignore[assignment] # RQ's class says None alone

    def register_birth(self) -> None:
        """Enter the registry, with the facts that `glle doctor` compares."""
        super().register_birth()  # type: ignore[no-untyped-call] # RQ's
        self._describe()

    def _describe(self) -> None:
        """Register the facts that `glle doctor` compares, and the queue, even before it has a task."""
        threads = os.environ.get("OPENBLAS_NUM_THREADS", "")
        with self.connection.pipeline() as pipeline:
            engine = glle_engine.__version__
            pipeline.hset(self.key, mapping={"engine": engine, "threads": threads, "numbers": own_numbers()})
            pipeline.sadd("rq:queues", *(queue.key for queue in self.queues))
            pipeline.execute()

    def heartbeat(self, timeout: int | None = None, pipeline: Pipeline | None = None) -> None:
        """Send a heartbeat, and enter the registry again if the server has lost the entry.

        The server may have restarted from an older copy, or the entry may have expired.
        """
        with suppress(OSError):  # a full disk; the worker works on
            prolong(self.glle)
        super().heartbeat(timeout, pipeline)
        with self.connection.pipeline(transaction=False) as check:
            check.hexists(self.key, "hostname")
            check.sismember(f"rq:workers:{self.queues[0].name}", self.key)
            is_registered = all(check.execute())
        if not is_registered:
            log.warning("The registry has lost worker %s, which enters it again", self.name)
            with self.connection.pipeline() as entry:
                entry.hset(self.key, mapping=self.serialize())
                worker_registration.register(self, entry)
                entry.execute()
            self._describe()

    def maintain_heartbeats(self, job: Job) -> None:
        """Send a heartbeat during a task, which continues if the server does not answer."""
        with suppress(redis.RedisError):
            super().maintain_heartbeats(job)

    def set_current_job_working_time(self, current_job_working_time: float, pipeline: Pipeline | None = None) -> None:
        """Write the duration of a task, which continues if the server does not answer."""
        with suppress(redis.RedisError):
            super().set_current_job_working_time(current_job_working_time, pipeline)

    def dequeue_job_and_maintain_ttl(
        self, timeout: int | None, max_idle_time: int | None = None
    ) -> tuple[Job, Queue] | None:
        """Dequeue a task; wait for a silent server as RQ waits for one that refuses connections."""
        while True:
            try:
                return super().dequeue_job_and_maintain_ttl(timeout, max_idle_time)
            except redis.TimeoutError as error:
                log.warning("The queue's Redis does not answer: %s", error)
                with suppress(OSError):
                    prolong(self.glle)
                time.sleep(AGAIN_SECONDS)

    def main_work_horse(self, job: Job, queue: Queue) -> None:
        """Run a task in the forked child, which dies with its worker.

        The child reads all data of the task itself, so that its worker can send heartbeats and stop it meanwhile.
        """
        process_guard.die_with_parent(signal.SIGKILL, os.getppid())
        process_stores().counts.clear()  # its parent's
        super().main_work_horse(job, queue)

    def monitor_work_horse(self, job: Job, queue: Queue) -> None:
        """Wait for the task's end; kill an unwanted one that does not stop, without a retry."""
        if job.func_name not in TaskJob.handlers:  # refused by the work-horse
            super().monitor_work_horse(job, queue)
            return
        stores, id_ = process_stores(), job.args[0]
        prevent_retry = partial(setattr, self, "_stopped_job_id", job.id)
        with JobSupervisor(stores.jobs, id_, self.horse_pid, stores.settings.job_timeout, prevent_retry) as supervisor:
            super().monitor_work_horse(job, queue)
        if supervisor.has_killed:
            self._stopped_job_id = None  # the work-horse may have ended regularly just before
            stores.jobs.finish_cancel(id_)

    def _install_signal_handlers(self) -> None:
        """Stop by SIGTERM alone: a terminal sends SIGINT to the parent, too, which forwards it as SIGTERM."""
        super()._install_signal_handlers()  # type: ignore[no-untyped-call] # RQ's
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(REMINDER, self._stop_if_idle)

    def _stop_if_idle(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002 # a handler's signature
        """Stop an idle worker after a first signal, whose exception may have ended in a callback of a library.

        A signal between Python's look for signals and a system call is seen after that call. This one ends it.
        """
        if self._shutdown_requested_date is not None and self.get_state() != WorkerStatus.BUSY:
            raise StopRequested

    def teardown(self) -> None:
        """Leave the registry of workers, without reminders."""
        signal.signal(REMINDER, signal.SIG_IGN)
        super().teardown()  # type: ignore[no-untyped-call] # RQ's

    def request_stop(self, signum: int, frame: FrameType | None) -> None:
        """Stop after the present task."""
        try:
            super().request_stop(signum, frame)  # type: ignore[no-untyped-call] # RQ's; raises if no task runs
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    def request_force_stop(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002 # RQ's signature
        """Kill the work-horse on a second signal; the main loop returns its task to the queue and ends."""
        if self.horse_pid:
            self.kill_horse()


def work(name: str, numbers: str, settings: Settings) -> int:
    """Work under a name until a signal; return the exit code."""
    worker = GlleWorker(
        [queue_name(numbers)],
        name=name,
        connection=connect_queue(settings, retry=RetryPolicy(settings.redis_patience)),
        serializer=SERIALIZER,
        job_class=TaskJob,
        queue_class=SafeQueue,
        worker_ttl=worker_ttl(settings),
        job_monitoring_interval=settings.heartbeat,
        maintenance_interval=settings.heartbeat,
        log_job_description=False,
    )
    worker.glle = settings
    worker.log_result_lifespan = False
    prolong(settings)  # a file that cannot be written fails at once
    worker.work(logging_level=None)  # `worker.observability.logging` sets it
    is_requested = worker._stop_requested or worker._shutdown_requested_date is not None  # noqa: SLF001 # RQ has no public name
    return 0 if is_requested else 1
