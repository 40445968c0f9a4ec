"""The worker process: RQ's forking worker with the engine preloaded, hardened against every kill.

`main` is what `glle worker` runs. The work-horse that a worker forks for a task dies with it; a task whose
worker is gone is enqueued again by another within seconds; a stop lets the task end, a second stop hands it
back to the queue.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from rq import Worker

import glle_engine
import worker.tasks  # the engine is loaded before the fork, not once a task
from worker import lifeline, logs, tracing
from worker.overseer import Overseer
from worker.queue import NAME, SERIALIZER, TASKS, SafeJob, SafeQueue, worker_ttl
from worker.settings import Settings
from worker.stores import connect_queue, stores

if TYPE_CHECKING:
    from types import FrameType

    from rq.job import Job
    from rq.queue import Queue

_WITH_POSTERIOR = frozenset(f"{task.__module__}.{task.__name__}" for task in (worker.tasks.draw, worker.tasks.analyse))
MISSED = 4  # heartbeats after which a task counts as abandoned


class GlleWorker(Worker):
    """A worker of the queue."""

    def get_heartbeat_ttl(self, job: Job) -> int:  # noqa: ARG002 # RQ's signature
        """Return the seconds without a sign of life after which a task counts as abandoned.

        RQ adds a minute.
        """
        return int(self.job_monitoring_interval * MISSED)

    @property
    def dequeue_timeout(self) -> int:
        """Seconds to block for a task; maintenance is looked at in between (RQ: worker_ttl - 15)."""
        return max(1, int(self.worker_ttl) // 3)

    def register_birth(self) -> None:
        """Enter the registry, with what `glle doctor` compares."""
        super().register_birth()  # type: ignore[no-untyped-call] # RQ's
        threads = os.environ.get("OPENBLAS_NUM_THREADS", "")
        self.connection.hset(self.key, mapping={"engine": glle_engine.__version__, "threads": threads})

    def main_work_horse(self, job: Job, queue: Queue) -> None:
        """Run a task in the forked child, which dies with its worker."""
        lifeline.die_with_parent(signal.SIGKILL, os.getppid())
        stores().counts.forget()  # its parent's
        super().main_work_horse(job, queue)

    def fork_work_horse(self, job: Job, queue: Queue) -> None:
        """Fork for a task, with the posterior that it works on at hand."""
        if job.func_name in _WITH_POSTERIOR and (known := stores().jobs.get(job.args[0])) is not None:
            stores().warm.fetch(known.subject, stores().posteriors)
            stores().counts.flush()
        super().fork_work_horse(job, queue)

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
        from glle_engine.lanes.solver import warm  # noqa: PLC0415 -- before the fork, not once a task

        warm()
    worker = GlleWorker(
        [NAME],
        name=name,
        connection=connect_queue(settings),
        serializer=SERIALIZER,
        job_class=SafeJob,
        queue_class=SafeQueue,
        worker_ttl=worker_ttl(settings),
        job_monitoring_interval=settings.heartbeat,
        maintenance_interval=2 * settings.heartbeat,
        log_job_description=False,
    )
    worker.log_result_lifespan = False
    worker.work(logging_level=settings.log_level.upper())
    asked = worker._stop_requested or worker._shutdown_requested_date is not None  # noqa: SLF001 # RQ tells nowhere else
    return 0 if asked else 1


if __name__ == "__main__":
    sys.exit(main())
