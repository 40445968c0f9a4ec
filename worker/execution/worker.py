"""The worker process: RQ's forking worker with the engine preloaded, hardened against every kill.

`main` is what `glle worker` runs. The work-horse that a worker forks for a task dies with it; a task whose
worker is gone is enqueued again by another within seconds; a stop lets the task end, a second stop hands it
back to the queue.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

import redis
from rq import Worker, worker_registration
from rq.utils import now

import glle_engine
import worker.execution.tasks  # noqa: F401 # the engine is loaded before the fork, not once a task
from glle_engine.posterior.fingerprint import numerics_kind
from worker.base.numerics import adopt, kind_of, own_numbers
from worker.base.settings import Settings
from worker.base.versions import queue_name
from worker.connections.clients import connect_queue
from worker.connections.retry import RetryPolicy
from worker.execution import process_guard
from worker.execution.supervisor import Overseer
from worker.jobs.live_workers import worker_ttl
from worker.jobs.rq_types import SERIALIZER, TASKS, SafeJob, SafeQueue
from worker.observability import logging as logs
from worker.observability import tracing
from worker.stores import stores

if TYPE_CHECKING:
    from types import FrameType

    from redis.client import Pipeline
    from rq.job import Job
    from rq.queue import Queue

MAINTAINED = "glle:maintained"  # there while nobody need look
SWEPT = "glle:swept"  # there while no worker need look at the open jobs
AGAIN_SECONDS = 1.0  # between two attempts to reach a server
MISSED = 4  # heartbeats after which a task counts as abandoned

_ANOTHER_KIND = (
    "Numerics kind: {}; reference results differ in bits from the pinned ones. This worker takes work of its kind "
    "only, and its results have separate ids. Install numba: pip install 'glle[fast]'."
)

log = logging.getLogger(__name__)


class GlleWorker(Worker):
    """A worker of the queue."""

    max_connection_wait_time = 2.0  # between two attempts to reach the queue's Redis (RQ: a minute)

    def get_heartbeat_ttl(self, job: Job) -> int:  # noqa: ARG002 # RQ's signature
        """Return the seconds without a sign of life after which a task counts as abandoned.

        RQ adds a minute.
        """
        return int(self.job_monitoring_interval * MISSED)

    @property
    def dequeue_timeout(self) -> int:
        """Seconds to block for a task; maintenance is looked at in between (RQ: worker_ttl - 15)."""
        return int(self.job_monitoring_interval)

    def run_maintenance_tasks(self) -> None:
        """Look after what the dead left: tasks in work, and jobs that nobody asks for."""
        super().run_maintenance_tasks()  # type: ignore[no-untyped-call] # RQ's
        if self.connection.set(SWEPT, 1, nx=True, ex=int(self.job_monitoring_interval)):  # one worker is enough
            stores().queue.sweep()

    def clean_registries(self) -> None:
        """Look after what the dead left, unless another worker did within a heartbeat.

        Each look is at every worker and every task in work: were each worker to look, it would grow as their square.
        """
        if self.connection.set(MAINTAINED, 1, nx=True, ex=max(1, int(self.job_monitoring_interval))):
            super().clean_registries()  # type: ignore[no-untyped-call] # RQ's
        self.last_cleaned_at = now()  # type: ignore[assignment] # RQ's class says None alone

    def register_birth(self) -> None:
        """Enter the registry, with what `glle doctor` compares."""
        super().register_birth()  # type: ignore[no-untyped-call] # RQ's
        self._describe()

    def _describe(self) -> None:
        """Register what `glle doctor` compares, and the queue, so that a kind without a task yet is known."""
        threads = os.environ.get("OPENBLAS_NUM_THREADS", "")
        with self.connection.pipeline() as both:
            engine = glle_engine.__version__
            both.hset(self.key, mapping={"engine": engine, "threads": threads, "numbers": own_numbers()})
            both.sadd("rq:queues", *(queue.key for queue in self.queues))
            both.execute()

    def heartbeat(self, timeout: int | None = None, pipeline: Pipeline | None = None) -> None:
        """Give a sign of life, and enter the registry again where the server has lost what it knew.

        It was restarted from a copy that is older than this worker, or has not heard of it for so long that it forgot.
        """
        super().heartbeat(timeout, pipeline)
        with self.connection.pipeline(transaction=False) as both:
            both.hexists(self.key, "hostname")
            both.sismember(f"rq:workers:{self.queues[0].name}", self.key)
            known = all(both.execute())
        if not known:
            log.warning("Worker %s was forgotten, and enters the registry again", self.name)
            with self.connection.pipeline() as anew:
                anew.hset(self.key, mapping=self.serialize())
                worker_registration.register(self, anew)
                anew.execute()
            self._describe()

    def maintain_heartbeats(self, job: Job) -> None:
        """Give a sign of life while a task is in work; one that reaches nobody is no reason to stop working."""
        with suppress(redis.RedisError):
            super().maintain_heartbeats(job)

    def set_current_job_working_time(self, current_job_working_time: float, pipeline: Pipeline | None = None) -> None:
        """Write how long the task is in work; likewise."""
        with suppress(redis.RedisError):
            super().set_current_job_working_time(current_job_working_time, pipeline)

    def dequeue_job_and_maintain_ttl(
        self, timeout: int | None, max_idle_time: int | None = None
    ) -> tuple[Job, Queue] | None:
        """Take a task; a server that is silent is waited for, as RQ waits for one that refuses connections."""
        while True:
            try:
                return super().dequeue_job_and_maintain_ttl(timeout, max_idle_time)
            except redis.TimeoutError as error:
                log.warning("The queue's Redis does not answer: %s", error)
                time.sleep(AGAIN_SECONDS)

    def main_work_horse(self, job: Job, queue: Queue) -> None:
        """Run a task in the forked child, which dies with its worker.

        All that the task reads, it reads itself: meanwhile its worker gives signs of life, and can stop it.
        """
        process_guard.die_with_parent(signal.SIGKILL, os.getppid())
        stores().counts.clear()  # its parent's
        super().main_work_horse(job, queue)

    def monitor_work_horse(self, job: Job, queue: Queue) -> None:
        """Wait for the task's end; one that is not wanted any more and goes on is killed, and not tried again."""
        if job.func_name not in TASKS:  # refused by the work-horse
            super().monitor_work_horse(job, queue)
            return
        jobs, id_, seconds = stores().jobs, job.args[0], stores().settings.job_timeout
        not_again = partial(setattr, self, "_stopped_job_id", job.id)
        with Overseer(jobs, id_, self.horse_pid, seconds, not_again) as overseer:
            super().monitor_work_horse(job, queue)
        if overseer.killed:
            self._stopped_job_id = None  # the work-horse may have ended well at the last moment
            jobs.cancelled(id_)

    def request_force_stop(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002 # RQ's signature
        """Kill the task on a second signal; the loop then puts it back into the queue and ends."""
        if self.horse_pid:
            self.kill_horse()


def main(name: str | None = None) -> int:
    """Work until a signal says stop; return the exit code.

    Parameters
    ----------
    name
        The worker's name in the registry; None for a random one.

    """
    settings = Settings.from_env()
    logs.configure(settings)
    if tracing.wanted(settings):
        tracing.load()
    if find_spec("numba") is not None:
        from glle_engine.eigen.eigenproblem import warm  # noqa: PLC0415 -- before the fork, not once a task

        warm()
    numbers = adopt(numerics_kind())
    if kind_of(numbers):
        log.warning("%s", _ANOTHER_KIND.format(numbers))
    else:
        log.info("Numerics kind: pinned (%s)", numbers)
    connection = connect_queue(settings, retry=RetryPolicy(settings.redis_patience))
    _reach(connection)
    worker = GlleWorker(
        [queue_name(numbers)],
        name=name,
        connection=connection,
        serializer=SERIALIZER,
        job_class=SafeJob,
        queue_class=SafeQueue,
        worker_ttl=worker_ttl(settings),
        job_monitoring_interval=settings.heartbeat,
        maintenance_interval=settings.heartbeat,
        log_job_description=False,
    )
    worker.log_result_lifespan = False
    worker.work(logging_level=settings.log_level.upper())
    asked = worker._stop_requested or worker._shutdown_requested_date is not None  # noqa: SLF001 # RQ tells nowhere else
    return 0 if asked else 1


def _reach(connection: redis.Redis) -> None:
    """Wait until a server answers: who ends and is started again waits longer each time."""
    while True:
        try:
            connection.ping()
        except redis.RedisError as error:
            log.warning("The queue's Redis does not answer: %s", error)
            time.sleep(AGAIN_SECONDS)
        else:
            return


if __name__ == "__main__":
    sys.exit(main())
