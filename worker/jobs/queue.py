"""The tasks of jobs as RQ jobs: enqueue, compare with RQ, repair, withdraw.

The queue `INTERACTIVE` has tasks in their first seconds, `BATCH` the others. A tenant has a share of each queue, of
waiting and running tasks: `worker.records.shares.allowed_tasks`, which RQ's rate limits enforce; its other tasks wait
with RQ. Shards of draws are short, and have a share of their own.

A job with shards begins with shard 0, which enqueues the others. The task that combines the parts of an analysis
depends on their shards.

Recovery of jobs whose tasks are gone is one rule. A worker compares open jobs that have been silent with RQ. A task
that RQ neither has nor runs is enqueued again; a task that RQ has failed fails its job. RQ itself repeats the tasks of
dead workers. A task runs if RQ's registry of executions has it, whatever its status says: a process that dies leaves
the status behind. A place in a share without a waiting or running task is freed by the same comparison.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rq import Retry
from rq.command import send_stop_job_command
from rq.exceptions import InvalidJobOperation, NoSuchJobError
from rq.executions import WORKER_EXECUTIONS_KEY_TEMPLATE
from rq.job import Dependency, JobStatus
from rq.job import Job as RqJob
from rq.rate_limit import RateLimit, RateLimitRegistry
from rq.results import Result

from worker.base.clock import now_ms
from worker.base.problems import ProblemError, refuse, timed_out, worker_lost
from worker.connections.clients import replicas_of
from worker.jobs.rq_tasks import SERIALIZER, SafeJob, fetch_tasks, open_queue
from worker.observability.live_workers import forget_dead_workers, live_workers
from worker.observability.request_context import task_metadata
from worker.records.ids import text
from worker.records.job import BATCH, QUEUES, job_key
from worker.records.shares import allowed_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import redis
    from redis.client import Pipeline

    from worker.base.settings import Settings
    from worker.jobs.store import JobStore
    from worker.records.job import Job
    from worker.records.quotas import Quotas
    from worker.records.sharding import PartsSharding

FIT, DRAWS, ANALYSIS, SWEEP = "fit", "draws", "analysis", "sweep"  # the names of the tasks
SWEEP_AT = "glle:sweep"  # time of the next sweep of the stored files, in seconds since 1970
SWEEP_SECONDS = 3600
RETRIES = 3  # retries of a task whose worker was killed; a task that fails by itself is not repeated
ENDED_SECONDS = 60  # RQ keeps an ended task for this time; the job's record outlives it
FAILED_SECONDS = 86400
REPLICATION_MARK = "glle:replicated"
REPLICATION_MARK_SECONDS, REPLICATION_WAIT_MS = 60, 1000
STALE_SECONDS = 2.0  # an open job without news for this time is compared with RQ
SWEEP_JOBS = 200  # open jobs of one sweep, a random sample of larger sets
STOP_GRACE_SECONDS = 2.0  # time in which a task can stop by itself after its time limit
_DRAWS_SUFFIX = ":draws"
FAILED = (JobStatus.FAILED, JobStatus.STOPPED, JobStatus.CANCELED)
PENDING = (JobStatus.DEFERRED, JobStatus.RATE_LIMITED, JobStatus.SCHEDULED, JobStatus.READY_TO_ENQUEUE)
BEGUN = (JobStatus.QUEUED, JobStatus.STARTED)  # statuses of tasks that have a place in their tenant's share

log = logging.getLogger(__name__)


class TaskQueue:
    """The tasks of all jobs in the queue's Redis.

    Parameters
    ----------
    quotas
        Quotas of the records of ended jobs.
    has_keys
        Returns whether the service has keys, and so several tenants.

    """

    def __init__(
        self,
        client: redis.Redis,
        jobs: JobStore,
        settings: Settings,
        quotas: Quotas,
        has_keys: Callable[[], bool] = lambda: False,
    ) -> None:
        self._client = client
        self._has_keys = has_keys
        self._jobs = jobs
        self._settings = settings
        self._quotas = quotas
        self._replicas = replicas_of(settings)
        self._queues = {name: open_queue(name, client) for name in QUEUES}

    def enqueue(self, job: Job) -> None:
        """Enqueue the first task of a job."""
        log.info("Enqueued: %s job", job.kind, extra={"fields": {"job_id": job.id}})
        self._enqueue(job, task_ids(job)[0], self._limit(job))

    def enqueue_others(self, job: Job) -> None:
        """Enqueue the shards after the first one that RQ does not have, and the task that combines their parts."""
        first, *others = task_ids(job)
        limit = self._limit(job)
        for id_, task in zip(others, fetch_tasks(self._client, others), strict=True):
            if task is not None:
                continue
            if id_ == task_id(job):
                depends_on = Dependency([first, *others[:-1]], allow_failure=True)
                self._queues[job.queue].enqueue_job(self._task(job, id_, limit, depends_on))
            else:
                self._enqueue(job, id_, limit)

    def requeue(self, task: RqJob, parts: PartsSharding | None, end_execution: Callable[[Pipeline], None]) -> None:
        """Replace a stopped interactive task of a job by batch tasks: one, or several parts.

        The end of the execution, the record of the job, the former task and the new one are changed in one transaction:
        a process that is killed meanwhile has changed nothing, and RQ repeats the former task.

        Parameters
        ----------
        end_execution
            Ends the execution of the task in a transaction.

        """

        def replace_task(pipeline: Pipeline) -> None:
            job = self._jobs.get(task.args[0])
            pipeline.multi()
            end_execution(pipeline)
            if job is not None and job.queue == BATCH:  # the reply to the first attempt was lost
                return
            self._delete([task], pipeline)
            if job is None or not job.is_open:
                return
            if job.status == "cancelling":
                self._jobs.finish_cancel(job.id, pipeline)
            else:
                batch = self._jobs.requeue(job, parts, pipeline)
                self._queues[BATCH].add(self._task(batch, task_ids(batch)[0], self._limit(batch)), pipeline)

        self._client.transaction(replace_task, job_key(task.args[0]))

    def prolong(self, task: RqJob) -> bool:
        """Move a running interactive task to its tenant's share of batches; return whether there is room.

        A batch that waits already counts in the tenant's share. Without keys there is always room.
        """
        interactive = RateLimitRegistry.from_job(task)
        batches = self._batches(task)
        allowed = self._shares()(batches.key)
        with self._client.pipeline() as pipeline:
            batches.register(allowed, pipeline)
            pipeline.zadd(batches.allowed_key, {task.id: time.time()})
            pipeline.zcard(batches.allowed_key)
            *_, count = pipeline.execute()
        if count > allowed and self._has_keys():
            self._client.zrem(batches.allowed_key, task.id)
            return False
        interactive.release_and_enqueue(task.id)
        return True

    def release(self, task: RqJob) -> None:
        """Free the place of a prolonged task in its tenant's share of batches."""
        self._batches(task).release_and_enqueue(task.id)

    def abandon(self, worker: str) -> None:
        """Let RQ repeat the tasks of a dead RQ worker at its next cleanup, instead of after some heartbeats."""
        for execution in self._client.smembers(WORKER_EXECUTIONS_KEY_TEMPLATE.format(worker)):
            for queue in self._queues.values():
                self._client.zadd(queue.started_job_registry.key, {text(execution): 1}, xx=True)

    def _batches(self, task: RqJob) -> RateLimitRegistry:
        """Return the share of batches of a task's tenant."""
        return RateLimitRegistry(f"{BATCH}:{(task.rate_limit_key or '').split(':')[1]}", self._client)

    def repair(self, job: Job) -> Job:
        """Compare a silent job with RQ, repair it, and return it.

        A job fails, and its tasks are stopped, if one of its tasks failed or runs beyond its time limit.
        """
        if not job.is_open or job.idle_seconds < STALE_SECONDS:
            return job
        if job.status == "cancelling":
            return self.withdraw(job)
        try:
            self._enqueue_lost(job, self._expected_tasks(job))
        except ProblemError as error:
            self._jobs.fail(job.id, error.problem)
            return self.withdraw(self._jobs.fetch(job.id))
        return self._jobs.get(job.id) or job

    def sweep(self) -> None:
        """Repair open jobs, adjust the tenants' shares, free lost places, and remove surplus records."""
        forget_dead_workers(self._client)
        self._adjust_shares()
        for id_ in self._jobs.sample_open(SWEEP_JOBS):
            with suppress(ProblemError):  # a record of another version
                if (job := self._jobs.get(id_)) is not None:
                    self.repair(job)
        for tenant in self._jobs.sample_tenants():
            self._jobs.trim(tenant, self._quotas.for_tenant(tenant).records)
        self._enqueue_sweep()

    def _enqueue_sweep(self) -> None:
        """Enqueue the sweep of the stored files, which is a task without a job, once in `SWEEP_SECONDS`."""
        due: Any = self._client.get(SWEEP_AT)
        if due is not None and float(due) > time.time():
            return
        former = self._client.set(SWEEP_AT, time.time() + SWEEP_SECONDS, get=True)
        if due is not None and former == due:  # no other worker was faster
            self._queues[BATCH].enqueue_call(
                SWEEP,
                job_id=SWEEP,  # always the same id, so that a lost sweep leaves no record behind
                timeout=self._settings.job_timeout,
                result_ttl=ENDED_SECONDS,
                failure_ttl=ENDED_SECONDS,
            )

    def withdraw(self, job: Job) -> Job:
        """Remove the waiting tasks of an unwanted job and stop the running ones; return the job."""
        tasks, running, is_running = fetch_tasks(self._client, task_ids(job)), self._running(), False
        left = [task for task in tasks if task is not None and task.get_status(refresh=False) in {*BEGUN, *PENDING}]
        for task in left:
            if task.id in running:
                is_running = True
                with suppress(InvalidJobOperation, NoSuchJobError):  # the task has just ended, or is about to begin
                    send_stop_job_command(self._client, task.id, serializer=SERIALIZER)
        waiting = [task for task in left if task.id not in running]
        self._client.transaction(lambda pipeline: self._delete(waiting, pipeline))
        if not is_running:
            self._jobs.finish_cancel(job.id)
        return self._jobs.fetch(job.id)

    def require_replicated(self, id_: str) -> None:
        """Wait until the replicas that the queue's URL asks for have a job, so that a failover does not lose it.

        A master updates its replicas after its answer. If it is killed in between, the last writes are lost.
        Replication keeps the order, so a replica that has one write has all earlier ones.

        Raises ``not-replicated`` if the replicas lack the mark after one second, or a new master lacks the job.
        """
        replicas = self._replicas
        if not replicas:
            return
        with self._client.pipeline(transaction=False) as pipeline:
            # WAIT covers the writes of its own connection only.
            pipeline.set(REPLICATION_MARK, now_ms(), ex=REPLICATION_MARK_SECONDS)
            pipeline.wait(replicas, REPLICATION_WAIT_MS)
            pipeline.exists(job_key(id_))  # a new master may lack the job
            _, count, is_known = pipeline.execute()
        if int(count) < replicas or not is_known:
            raise refuse(
                "not-replicated",
                503,
                f"{count} of {replicas} replicas of the queue's Redis have job {id_}: it could be lost."
                if is_known
                else f"The queue's Redis failed over to a master that does not have job {id_}.",
                "Send the request again in some seconds: work that has begun is not repeated.",
                replicas=int(count),
                wanted=replicas,
            )

    def live_workers(self) -> int:
        """Return the number of live workers."""
        return len(live_workers(self._client))

    def _enqueue_lost(self, job: Job, ids: list[str]) -> None:
        """Enqueue tasks that RQ has lost again, each in one transaction in which it leaves its former place.

        RQ takes a task from a queue before it registers it. So the task of a worker that was killed just then is in
        neither place, although its record says `queued`. A list that RQ keeps of such tasks is looked up once a minute.

        Raises ``worker-lost`` if RQ has failed a task, and ``job-timeout`` if one runs beyond its time, inside a call
        that handles no signal.
        """
        tasks, limit = fetch_tasks(self._client, ids), self._limit(job)
        waiting, running = self._waiting(), self._running()
        present = running.union(*waiting.values())
        for known in filter(None, tasks):
            if known.get_status(refresh=False) in FAILED:
                raise ProblemError(worker_lost(job.id, RETRIES + 1))
            if known.id in running and _running_seconds(known) > self._settings.job_timeout + STOP_GRACE_SECONDS:
                raise ProblemError(timed_out(self._settings.job_timeout))
        waits = set(PENDING)
        if ids == [task_id(job)] and present.isdisjoint(task_ids(job)):
            # This task combines the parts; all are made, but RQ has lost a task that made some.
            waits.remove(JobStatus.DEFERRED)
        for id_, task in zip(ids, tasks, strict=True):
            if id_ not in present and (task is None or task.get_status(refresh=False) not in waits):
                self._enqueue(job, id_, limit, task)

    def _expected_tasks(self, job: Job) -> list[str]:
        """Return the tasks that must wait or run."""
        if job.sharding is None:
            return task_ids(job)
        shards = self._jobs.unfinished_shards(job)
        if 0 in shards:  # the first shard may not have enqueued the others yet
            return [task_id(job, 0)]
        tasks = [task_id(job, shard) for shard in shards]
        return tasks if job.parts is None else [*tasks, task_id(job)]

    def _adjust_shares(self) -> None:
        """Adjust the tenants' shares to the number of live workers, so that new workers take tasks that wait already.

        Places whose tasks are lost are freed.
        """
        shares, limits = self._shares(), RateLimitRegistry.all(self._client)
        places = [limit.get_allowed_job_ids() for limit in limits]
        waiting, running = self._waiting(), self._running()
        for limit, ids in zip(limits, places, strict=True):
            self._free_places(limit, ids, waiting[limit.key.partition(":")[0]], running)
            allowed = shares(limit.key)
            if limit.concurrency not in {0, allowed}:
                with self._client.pipeline() as pipeline:
                    limit.register(allowed, pipeline)
                    pipeline.execute()
                RateLimitRegistry(limit.key, self._client).cleanup()

    def _free_places(self, limit: RateLimitRegistry, ids: list[str], waiting: set[str], running: set[str]) -> None:
        """Free the places of tasks that neither wait nor run, and delete these tasks.

        RQ frees the places of ended tasks. `repair` frees the places of tasks that their job still needs, because a
        worker may be taking such a task from the queue right now. An interactive task that goes on as a batch has a
        place among the batches while it runs.
        """
        for id_, task in zip(ids, fetch_tasks(self._client, ids), strict=True):
            if id_ in running or (task is not None and (id_ in waiting or task.get_status(refresh=False) not in BEGUN)):
                continue
            with suppress(ProblemError):  # a record of another version
                job = self._jobs.get(id_.partition("-s")[0])
                is_needed = job is not None and job.is_open and id_ in self._expected_tasks(job)
                if is_needed and (task is None or task.rate_limit_key == limit.key):
                    continue
                with self._client.pipeline() as pipeline:
                    if task is None:
                        pipeline.delete(SafeJob.key_for(id_))
                    elif not is_needed:
                        self._delete([task], pipeline)
                    pipeline.zrem(limit.allowed_key, id_)
                    limit.acquire_and_enqueue(limit.concurrency, pipeline=pipeline)
                    pipeline.execute()

    def _waiting(self) -> dict[str, set[str]]:
        """Return the tasks in each queue. Read them before `_running`, because a task goes from here to there."""
        return {name: set(queue.get_job_ids()) for name, queue in self._queues.items()}

    def _running(self) -> set[str]:
        """Return the tasks that have an execution; RQ ends the execution of a dead worker after some heartbeats."""
        registries = (queue.started_job_registry for queue in self._queues.values())
        return {id_ for registry in registries for id_ in registry.get_job_ids(cleanup=False)}

    def _delete(self, tasks: Sequence[RqJob], pipeline: Pipeline) -> None:
        """Delete tasks in a transaction."""
        self._leave(tasks, pipeline)
        for task in tasks:
            result = Result.get_key(task.id)  # type: ignore[no-untyped-call] # of RQ
            pipeline.delete(task.key, task.dependents_key, task.dependencies_key, result)

    def _leave(self, tasks: Sequence[RqJob], pipeline: Pipeline) -> None:
        """Take tasks out of queues, places and RQ's registries in a transaction; others that depend on them stay."""
        limits = {str(task.rate_limit_key): RateLimitRegistry.from_job(task) for task in tasks}
        for task in tasks:
            queue, limit = self._queues[task.origin], limits[str(task.rate_limit_key)]
            queue.remove(task, pipeline=pipeline)
            pipeline.lrem(queue.intermediate_queue_key, 1, task.id)
            for registry in (queue.deferred_job_registry, queue.finished_job_registry):
                registry.remove(task, pipeline=pipeline)
            pipeline.delete(task.execution_registry.key)
            for key in (limit.rate_limited_key, limit.allowed_key):
                pipeline.zrem(key, task.id)
        for limit in limits.values():
            limit.acquire_and_enqueue(limit.concurrency, pipeline=pipeline)

    def _limit(self, job: Job) -> RateLimit:
        """Return the share of a job's tasks: RQ counts the slots of a key."""
        key = f"{job.queue}:{job.tenant}{_DRAWS_SUFFIX if (job.kind, job.queue) == ('draws', BATCH) else ''}"
        return RateLimit(key, self._shares()(key))

    def _shares(self) -> Callable[[str], int]:
        """Return the function of a key of RQ's limits to the number of its tasks that wait in the queue or run."""
        workers, has_keys = self.live_workers(), self._has_keys()
        return lambda key: allowed_tasks(workers, has_keys=has_keys, are_short=key.endswith(_DRAWS_SUFFIX))

    def _enqueue(self, job: Job, id_: str, limit: RateLimit, former: RqJob | None = None) -> None:
        """Enqueue a task in one transaction, in place of a former one of the same id."""
        with self._client.pipeline() as pipeline:
            if former is not None:
                self._leave([former], pipeline)
            self._queues[job.queue].add(self._task(job, id_, limit), pipeline)
            pipeline.execute()

    def _task(self, job: Job, id_: str, limit: RateLimit, depends_on: Dependency | None = None) -> RqJob:
        """Return a new task of a job."""
        name, arguments = _call(job, id_)
        return self._queues[job.queue].create_job(
            name,
            args=arguments,
            job_id=id_,
            timeout=self._settings.job_timeout,
            result_ttl=ENDED_SECONDS,
            failure_ttl=FAILED_SECONDS,
            retry=Retry(max=RETRIES),
            meta=task_metadata(),
            description=id_,
            depends_on=depends_on,
            rate_limit=limit,
        )


def _running_seconds(task: RqJob) -> float:
    """Return the seconds since the start of a task."""
    return 0.0 if task.started_at is None else (datetime.now(UTC) - task.started_at).total_seconds()


def task_id(job: Job, shard: int | None = None) -> str:
    """Return the id of a job's task, or of the task of one shard."""
    return job.id if shard is None else f"{job.id}-s{shard}"


def task_ids(job: Job) -> list[str]:
    """Return the tasks of a job in the order in which they are enqueued."""
    if job.sharding is None:
        return [task_id(job)]
    shards = [task_id(job, shard) for shard in range(job.sharding.shards)]
    return shards if job.parts is None else [*shards, task_id(job)]


def _call(job: Job, id_: str) -> tuple[str, list[Any]]:
    """Return name and arguments of a task."""
    _, _, shard = id_.rpartition("-s")
    if job.kind == "fit":
        return FIT, [job.id]
    return (DRAWS, [job.id, int(shard)]) if id_ != task_id(job) else (ANALYSIS, [job.id])
