"""Recovery of jobs whose tasks are gone: one rule.

An open job that has been silent is compared with RQ. A task that RQ neither has nor runs is enqueued again; a task that
RQ has failed fails its job. RQ itself repeats the tasks of dead workers.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from worker.base.problems import ProblemError, timed_out, worker_lost
from worker.jobs.queue import RETRIES, task_id, task_ids
from worker.jobs.rq_types import fetch_tasks
from worker.records.quotas import Quotas

if TYPE_CHECKING:
    import redis
    from rq.job import Job as RqJob

    from worker.base.settings import Settings
    from worker.jobs.queue import TaskQueue
    from worker.jobs.store import JobStore
    from worker.records.job import Job

STALE_SECONDS = 2.0  # an open job that has been silent for so long is compared with RQ
MAX_COMPARED = 10_000  # jobs whose last comparison a process remembers
SWEEP_JOBS = 200  # open jobs of one sweep, a random sample of larger sets
GRACE_SECONDS = 2.0  # for a task to stop by itself after its time limit

log = logging.getLogger(__name__)


class JobRecovery:
    """Repairs job records and enqueues lost tasks again."""

    def __init__(self, client: redis.Redis, jobs: JobStore, queue: TaskQueue, settings: Settings) -> None:
        self._client = client
        self._jobs = jobs
        self._queue = queue
        self._settings = settings
        self._next_comparison: dict[str, float] = {}  # monotonic seconds, by job id

    def refresh(self, job: Job) -> Job:
        """Return the job after `repair`, which compares it with RQ once per `STALE_SECONDS` and process."""
        now = time.monotonic()
        if job.is_open and not job.is_late:
            if now < self._next_comparison.get(job.id, 0.0):
                return job
            if len(self._next_comparison) >= MAX_COMPARED:
                pending = self._next_comparison.copy()  # other threads add entries meanwhile
                self._next_comparison = {id_: until for id_, until in pending.items() if until > now}
            if job.idle_seconds >= STALE_SECONDS:
                self._next_comparison[job.id] = now + STALE_SECONDS
        return self.repair(job)

    def repair(self, job: Job) -> Job:
        """Compare a silent job with RQ, repair it, and return it.

        A late job fails, and so does one whose task exceeds its time limit; their tasks are stopped.
        """
        if job.is_late:
            job = self._jobs.expire(job.id)
            if not job.is_open:
                return self._queue.withdraw(job)
        if not job.is_open or job.idle_seconds < STALE_SECONDS:
            return job
        if job.status == "cancelling":
            return self._queue.withdraw(job)
        ids = self._expected_tasks(job)
        lost, has_failed = self._queue.lost_tasks(job, ids)
        if has_failed:
            self._jobs.fail(job.id, worker_lost(job.id, RETRIES + 1))
        elif self._is_over(ids):
            self._jobs.fail(job.id, timed_out(self._settings.job_timeout))
        else:
            self._queue.enqueue_again(job, lost)
            return self._jobs.get(job.id) or job
        return self._queue.withdraw(self._jobs.fetch(job.id))

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

    def _is_over(self, ids: list[str]) -> bool:
        """Return whether a running task has exceeded its time, inside a call that handles no signal."""
        limit = self._settings.job_timeout + GRACE_SECONDS
        return any(
            task is not None and task.is_started and task.started_at is not None and _age(task) > limit
            for task in fetch_tasks(self._client, ids)
        )


def _age(task: RqJob) -> float:
    assert task.started_at is not None
    return (datetime.now(UTC) - task.started_at).total_seconds()
