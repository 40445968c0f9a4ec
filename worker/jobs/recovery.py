"""Recovery of jobs whose tasks are gone: one rule.

A worker compares open jobs that have been silent with RQ. A task that RQ neither has nor runs is enqueued again; a task
that RQ has failed fails its job. RQ itself repeats the tasks of dead workers.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from worker.base.problems import ProblemError
from worker.jobs.queue import task_id, task_ids
from worker.records.quotas import Quotas

if TYPE_CHECKING:
    from worker.base.settings import Settings
    from worker.jobs.queue import TaskQueue
    from worker.jobs.store import JobStore
    from worker.records.job import Job

STALE_SECONDS = 2.0  # an open job that has been silent for so long is compared with RQ
SWEEP_JOBS = 200  # open jobs of one sweep, a random sample of larger sets


class JobRecovery:
    """Repairs job records and enqueues lost tasks again."""

    def __init__(self, jobs: JobStore, queue: TaskQueue, settings: Settings) -> None:
        self._jobs = jobs
        self._queue = queue
        self._settings = settings

    def refresh(self, job: Job) -> Job:
        """Return the job, which fails if its deadline has passed."""
        return self.repair(job) if job.is_late else job

    def repair(self, job: Job) -> Job:
        """Compare a silent job with RQ, repair it, and return it.

        A late job fails, and so does one of which a task has failed or exceeds its time limit; their tasks are stopped.
        """
        if job.is_late:
            job = self._jobs.expire(job.id)
            if not job.is_open:
                return self._queue.withdraw(job)
        if not job.is_open or job.idle_seconds < STALE_SECONDS:
            return job
        if job.status == "cancelling":
            return self._queue.withdraw(job)
        try:
            self._queue.enqueue_lost(job, self._expected_tasks(job))
        except ProblemError as error:
            self._jobs.fail(job.id, error.problem)
            return self._queue.withdraw(self._jobs.fetch(job.id))
        return self._jobs.get(job.id) or job

    def sweep(self) -> None:
        """Repair open jobs, adjust the tenants' limits, and remove surplus records."""
        self._queue.adjust_limits()
        for id_ in self._jobs.sample_open(SWEEP_JOBS):
            with suppress(ProblemError):  # a record of another version
                if (job := self._jobs.get(id_)) is not None:
                    self.repair(job)
        quotas = Quotas(self._settings)
        for tenant in self._jobs.sample_tenants():
            self._jobs.trim(tenant, quotas.of(tenant).records)

    def _expected_tasks(self, job: Job) -> list[str]:
        """Return the tasks that must wait or run."""
        if job.sharding is None:
            return task_ids(job)
        shards = self._jobs.unfinished_shards(job)
        if 0 in shards:  # it may not have enqueued the others yet
            return [task_id(job, 0)]
        tasks = [task_id(job, shard) for shard in shards]
        return tasks if job.parts is None else [*tasks, task_id(job)]
