"""Recovery of jobs whose tasks, workers or queues are gone."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING

from rq.job import JobStatus

from glle_engine import NUMBERS
from worker.base.numerics import is_of_this_version
from worker.base.problems import ProblemError, no_worker_of_kind, orphaned_job, worker_lost
from worker.base.versions import numbers_of_queue
from worker.jobs import priority_scripts
from worker.jobs.executor_queue import ExecutorQueue, return_expired
from worker.jobs.queue import RETRIES, task_id
from worker.jobs.rq_types import open_queue, script_keys, started_tasks
from worker.jobs.shards import Shards, unfinished_shards
from worker.observability.live_workers import own_queues, workers_by_numbers
from worker.records.ids import text
from worker.tenancy.quotas import Quotas

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from worker.base.settings import Settings
    from worker.jobs.queue import TaskQueue
    from worker.jobs.store import JobStore
    from worker.records.job import Job

STALE_SECONDS = 2.0  # an open job that has been silent for so long is compared with the queue
ABANDONED_SECONDS = 60.0  # a silent job that no live worker can do fails after so long
MAX_COMPARED = 10_000  # jobs whose last comparison a process remembers
SWEEP_JOBS = 200  # open jobs of one sweep, a random sample of larger sets

log = logging.getLogger(__name__)


class JobRecovery:
    """Repairs job records and enqueues lost tasks again."""

    def __init__(self, client: redis.Redis, jobs: JobStore, queue: TaskQueue, settings: Settings) -> None:
        self._client = client
        self._jobs = jobs
        self._queue = queue
        self._settings = settings
        self._check = client.register_script(priority_scripts.CHECK)
        self._forget = client.register_script(priority_scripts.FORGET)
        self._shards = Shards(client, settings.job_ttl)
        self._next_comparison: dict[str, float] = {}  # monotonic seconds, by job id

    def refresh(self, job: Job) -> Job:
        """Return the job after `repair`, which compares it with the queue once per `STALE_SECONDS` and process."""
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
        """Compare a silent job with the queue, repair it, and return it.

        A late job fails. A task that vanished, or that neither waits nor runs, is enqueued again. A task that failed
        beyond its retries fails the job. A job whose cancellation outlived its worker is cancelled. A job in another
        version's queue is left to its workers while any lives. A job that needs another numerics kind than the live
        workers have fails after `ABANDONED_SECONDS`; without any live worker it waits.
        """
        if job.is_late:
            job = self._jobs.expire(job.id)
            if not job.is_open:
                return self._queue.withdraw(job)
        if not job.is_open or job.idle_seconds < STALE_SECONDS:
            return job
        job = self._fail_if_kind_is_gone(job) if _is_own(job) else self._take_over(job)
        if not _is_own(job) or not job.is_open:
            return job
        tasks = self._expected_tasks(job)
        keys = [*script_keys(job.queue), started_tasks(job.queue, self._client).key]
        states = self._check(keys=keys, args=list(tasks))
        for enqueue, state in zip(tasks.values(), map(text, states), strict=True):
            if not state and job.status != "cancelling":
                enqueue()
            elif state in {"", JobStatus.FAILED, JobStatus.STOPPED, JobStatus.CANCELED}:
                self._jobs.finish_cancel(job.id)
                self._jobs.fail(job.id, worker_lost(job.id, RETRIES + 1))  # has no effect on a cancelled job
        return self._jobs.get(job.id) or job

    def sweep(self) -> None:
        """Repair open jobs and job lists, remove surplus records, and share running jobs with new workers."""
        for name in own_queues(self._client):
            return_expired(self._client, name)
        live_workers = cache(self._queue.live_workers)
        for id_ in self._jobs.sample_open(SWEEP_JOBS):
            with suppress(ProblemError):  # a record of a later version is left to its workers
                if (job := self._jobs.get(id_)) is not None:
                    self._share(self.repair(job), live_workers)
        index, quotas = self._jobs.index, Quotas(self._settings)
        for tenant in index.tenants():
            index.reindex(tenant)
            index.trim(tenant, quotas.of(tenant).records)

    def make_long(self, id_: str) -> None:
        """Continue a job whose short task turned out to be long in the queue of long tasks."""
        job = self._jobs.fetch(id_)
        if job.is_open and self._jobs.hand_over(job):
            self._forget_tasks(job)
            for enqueue in self._expected_tasks(self._jobs.fetch(id_)).values():
                enqueue()

    def requeue_tasks_of(self, worker: str, *, of_executor: bool = True) -> None:
        """Enqueue the tasks of a dead worker again at once, before its heartbeat expires.

        The names of its processes are the worker's, perhaps with a dot and a number. Without `of_executor` its executor
        lives and keeps its tasks.
        """
        for name in own_queues(self._client):
            queue, started = open_queue(name, self._client), started_tasks(name, self._client)
            for raw in self._client.zrange(started.key, 0, -1):
                entry = text(raw)
                holder = self._client.hget(f"rq:execution:{entry}", "worker_name")
                if holder is not None and f"{text(holder)}.".startswith(f"{worker}."):
                    self._client.zadd(started.key, {entry: 1}, xx=True)
            if queue.acquire_maintenance_lock():  # RQ's cleanup does not lock: two would enqueue twice
                try:
                    started.cleanup()
                finally:
                    queue.release_maintenance_lock()  # type: ignore[no-untyped-call] # RQ's
            if of_executor:
                ExecutorQueue(self._client, queue=name, executor=worker).give_back()

    def _fail_if_kind_is_gone(self, job: Job) -> Job:
        """Fail a job after `ABANDONED_SECONDS` if workers live, but none of its kind; return it."""
        if job.idle_seconds <= ABANDONED_SECONDS:
            return job
        live = workers_by_numbers(self._client, self._settings)
        if not live or job.numbers in live:
            return job
        self._jobs.finish_cancel(job.id)
        self._jobs.fail(job.id, no_worker_of_kind(job.id, job.numbers, sorted(live)))
        return self._queue.withdraw(self._jobs.fetch(job.id))

    def _take_over(self, job: Job) -> Job:
        """Move a job of another version's queue to this version's once that queue has no live worker; return it.

        A job whose results would have other bits fails after `ABANDONED_SECONDS`, because its workers may come back.
        """
        if self._queue.live_workers(job.queue):
            return job
        if is_of_this_version(job.numbers):
            if self._jobs.hand_over(job):
                self._forget_tasks(job)
                log.info("Taken over from queue %s", job.queue, extra={"fields": {"job_id": job.id}})
        elif job.idle_seconds > ABANDONED_SECONDS:
            self._jobs.finish_cancel(job.id)
            self._jobs.fail(job.id, orphaned_job(job.id, job.numbers, NUMBERS))
            return self._queue.withdraw(self._jobs.fetch(job.id))
        return self._jobs.fetch(job.id)

    def _forget_tasks(self, job: Job) -> None:
        """Remove the tasks of a job from the queue that its record named."""
        keys = [*script_keys(job.queue), started_tasks(job.queue, self._client).key]
        for id_ in self._queue.task_ids(job):
            self._forget(keys=keys, args=[id_])

    def _share(self, job: Job, live_workers: Callable[[str], int]) -> None:
        """Share the shards of a running job with all live workers."""
        if job.status != "running" or not _is_own(job) or (plan := job.sharding) is None:
            return
        if plan.chains(plan.shards) > job.chains and (chains := plan.chains(live_workers(job.queue))) > job.chains:
            self._queue.enqueue_shards(job, self._shards.widen(job, plan.shards, chains))

    def _expected_tasks(self, job: Job) -> dict[str, Callable[[], object]]:
        """Return the tasks that must wait or run, each with the call that enqueues it again."""
        if job.sharding is None:
            return {task_id(job): partial(self._queue.enqueue, job)}
        shards = unfinished_shards(self._client, job)
        if not shards and job.parts is not None:
            return {task_id(job): partial(self._queue.enqueue_analysis, job)}
        if 0 in shards:  # it has not opened the other chains yet
            shards = [0]
        return {task_id(job, shard): partial(self._queue.enqueue_shard, job, shard) for shard in shards}


def _is_own(job: Job) -> bool:
    """Return whether the tasks of a job are in a queue of this version."""
    return numbers_of_queue(job.queue) is not None
