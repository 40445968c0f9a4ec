"""The tasks of jobs in RQ: enqueue tasks, find and repair lost tasks, and remove the tasks of cancelled jobs.

A task is an RQ job. The queue `INTERACTIVE` has tasks that should take a few seconds, the queue `BATCH` all others. A
tenant's share of a queue is the number of its tasks that may wait in the queue or run
(`worker.records.shares.allowed_tasks`). RQ's rate limits enforce the share: each task takes a slot of its tenant's
limit, and RQ holds back tasks without a slot. Shards of draws are short tasks, and have a limit of their own.

A job with shards begins with shard 0, which enqueues the other shards. The task that combines the parts of an analysis
depends on all shards.

Jobs whose tasks are lost recover by one rule (`TaskQueue.repair`): a worker compares open jobs whose records have not
changed for a while with RQ. A task that neither waits nor runs in RQ is enqueued again; a task that has failed in RQ
fails its job. RQ itself repeats the tasks of dead workers. A task counts as running if it is in RQ's registry of
executions, because the status of a task stays behind when its process dies. `TaskQueue.sweep` also frees slots whose
tasks neither wait nor run.
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
SWEEP_AT = "glle:sweep"  # key of the time of the next sweep of the stored files, in seconds since 1970
SWEEP_SECONDS = 3600  # the stored files are swept this often, or more often if results expire sooner
MAX_RETRIES = 3  # retries of a task whose worker was killed; a task that fails by itself is not repeated
ENDED_SECONDS = 60  # RQ keeps the record of an ended task this long; the job's record is kept longer
FAILED_SECONDS = 86400  # RQ keeps the record of a failed task this long
REPLICATION_MARK = "glle:replicated"  # key of a test write that replicas must confirm
REPLICATION_MARK_SECONDS, REPLICATION_WAIT_MS = 60, 1000
STALE_SECONDS = 2.0  # an open job whose record has not changed for this time is compared with RQ
SWEEP_JOBS = 200  # maximum number of open jobs that one sweep compares with RQ, chosen at random
STOP_GRACE_SECONDS = 2.0  # time in which a task can stop by itself after its time limit
_DRAWS_SUFFIX = ":draws"
FAILED = (JobStatus.FAILED, JobStatus.STOPPED, JobStatus.CANCELED)
PENDING = (JobStatus.DEFERRED, JobStatus.RATE_LIMITED, JobStatus.SCHEDULED, JobStatus.READY_TO_ENQUEUE)
# Statuses of tasks that hold one of the slots of their tenant's rate limit.
BEGUN = (JobStatus.QUEUED, JobStatus.STARTED)

log = logging.getLogger(__name__)


class TaskQueue:
    """The two RQ queues, which have the tasks of all jobs.

    Parameters
    ----------
    jobs
        Records of the jobs, which tell which tasks are still needed.
    quotas
        Quotas of the tenants, for the bytes of the records of ended jobs.
    has_keys
        Returns whether the service has API keys, and therefore may have several tenants.

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
        """Enqueue the tasks of a job that follow its first task, unless RQ has them.

        These are the tasks of the other shards, and for an analysis the task that combines all parts.
        """
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
        """Replace the stopped interactive task of a job by a batch task, which makes the first shard if there are any.

        One transaction ends the execution, changes the job's record, deletes the stopped task and adds the new one. If
        the process is killed before the transaction, nothing has changed, and RQ repeats the stopped task.

        Parameters
        ----------
        parts
            Division of an analysis into shards; None if one task does the whole job.
        end_execution
            Adds the commands that end the task's execution to a pipeline.

        """

        def replace_task(pipeline: Pipeline) -> None:
            job = self._jobs.get(task.args[0])
            pipeline.multi()
            end_execution(pipeline)
            # The job is a batch job already: a first attempt of this transaction was executed, but its reply was lost.
            if job is not None and job.queue == BATCH:
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
        """Let a running interactive task count as a batch task of its tenant.

        Return False if the tenant would then have more waiting and running batch tasks than its share. Without API keys
        there is one tenant, which may have any number.
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
        """Free the place of an interactive task that `prolong` turned into one of its tenant's running batch tasks.

        Call this when a task for which `prolong` returned True has ended. A batch task of the tenant that RQ has held
        back can then enter the queue.
        """
        self._batches(task).release_and_enqueue(task.id)

    def abandon(self, worker: str) -> None:
        """Mark the executions of a dead RQ worker as expired, so that RQ's next cleanup repeats the worker's tasks."""
        for execution in self._client.smembers(WORKER_EXECUTIONS_KEY_TEMPLATE.format(worker)):
            for queue in self._queues.values():
                self._client.zadd(queue.started_job_registry.key, {text(execution): 1}, xx=True)

    def _batches(self, task: RqJob) -> RateLimitRegistry:
        """Return RQ's object that limits how many batch tasks of a tenant may wait or run at once.

        The tenant is that of `task`: an interactive task that goes on as a batch task, and then counts as one of them.
        """
        return RateLimitRegistry(f"{BATCH}:{(task.rate_limit_key or '').split(':')[1]}", self._client)

    def repair(self, job: Job) -> Job:
        """Enqueue again the tasks of an open job that RQ has lost; return the job.

        Nothing is done if the job's record has changed in the last `STALE_SECONDS`. If one of the job's tasks has
        failed in RQ or runs beyond its time limit, the job fails, and its other tasks are stopped.
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
        """Do the periodic maintenance: repair open jobs, adjust the tenants' shares of the workers, free unused slots.

        Also remove expired and surplus records of jobs, and enqueue the sweep of the stored files when it is due.
        """
        forget_dead_workers(self._client)
        self._adjust_shares()
        for id_ in self._jobs.sample_open(SWEEP_JOBS):
            with suppress(ProblemError):  # skip a job whose record has another schema
                if (job := self._jobs.get(id_)) is not None:
                    self.repair(job)
        for tenant in self._jobs.sample_tenants():
            self._jobs.trim(tenant, self._quotas.for_tenant(tenant).records)
        self._enqueue_sweep()

    def _enqueue_sweep(self) -> None:
        """Enqueue the sweep of the stored files (a task without a job), at most once an hour in the whole deployment.

        If results are kept for less than an hour, the sweep comes as often as results expire.
        """
        due: Any = self._client.get(SWEEP_AT)
        if due is not None and float(due) > time.time():
            return
        former = self._client.set(SWEEP_AT, time.time() + min(SWEEP_SECONDS, self._settings.job_ttl), get=True)
        if due is not None and former == due:  # no other worker has enqueued this sweep
            self._queues[BATCH].enqueue_call(
                SWEEP,
                job_id=SWEEP,  # one id for all sweeps, so that the next sweep replaces the record of a lost one
                timeout=self._settings.job_timeout,
                result_ttl=ENDED_SECONDS,
                failure_ttl=ENDED_SECONDS,
            )

    def withdraw(self, job: Job) -> Job:
        """Remove the waiting tasks of a cancelled or failed job, and stop its running tasks; return the job.

        The status ``cancelling`` becomes ``cancelled`` at once if no task runs; otherwise, when the last task stops.
        """
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
        """Wait until as many replicas as the queue's URL asks for have a job, so that a failover does not lose the job.

        A master updates its replicas after it has answered. If the master is killed in between, its last writes are
        lost. Replication keeps the order of writes, so a replica that has one write has all earlier writes.

        Raises `ProblemError` (``not-replicated``) if too few replicas have confirmed a test write after one second, or
        if a new master lacks the job.
        """
        replicas = self._replicas
        if not replicas:
            return
        with self._client.pipeline(transaction=False) as pipeline:
            # WAIT covers only writes on the connection that sends it, so a test value is written on this connection.
            pipeline.set(REPLICATION_MARK, now_ms(), ex=REPLICATION_MARK_SECONDS)
            pipeline.wait(replicas, REPLICATION_WAIT_MS)
            pipeline.exists(job_key(id_))  # a new master may lack the job
            _, count, is_known = pipeline.execute()
        if int(count) < replicas or not is_known:
            raise refuse(
                "not-replicated",
                503,
                f"Only {count} of {replicas} replicas of the queue's Redis have job {id_}, so the job could be lost."
                if is_known
                else f"The queue's Redis failed over to a master that does not have job {id_}.",
                "Send the same request again in some seconds; work that has begun is not repeated.",
                replicas=int(count),
                wanted=replicas,
            )

    def live_workers(self) -> int:
        """Return the number of live workers."""
        return len(live_workers(self._client))

    def _enqueue_lost(self, job: Job, ids: list[str]) -> None:
        """Enqueue again those of the tasks `ids` that neither wait nor run in RQ, each in one transaction.

        RQ takes a task from a queue before it registers the execution. If a worker is killed in between, its task is
        neither in the queue nor in the registry, although the task's status is `queued`. RQ keeps a list of such tasks,
        but checks this list only once a minute.

        Raises `ProblemError`: ``worker-lost`` if a task has failed in RQ, and ``job-timeout`` if a task runs beyond its
        time limit, as it may in a call that handles no signals.
        """
        tasks, limit = fetch_tasks(self._client, ids), self._limit(job)
        waiting, running = self._waiting(), self._running()
        present = running.union(*waiting.values())
        for known in filter(None, tasks):
            if known.get_status(refresh=False) in FAILED:
                raise ProblemError(worker_lost(job.id, MAX_RETRIES + 1))
            if known.id in running and _running_seconds(known) > self._settings.job_timeout + STOP_GRACE_SECONDS:
                raise ProblemError(timed_out(self._settings.job_timeout))
        waits = set(PENDING)
        if ids == [task_id(job)] and present.isdisjoint(task_ids(job)):
            # All parts are made. The task that combines them is still deferred, behind a task that RQ has lost.
            waits.remove(JobStatus.DEFERRED)
        for id_, task in zip(ids, tasks, strict=True):
            if id_ not in present and (task is None or task.get_status(refresh=False) not in waits):
                self._enqueue(job, id_, limit, task)

    def _expected_tasks(self, job: Job) -> list[str]:
        """Return the ids of the tasks of an open job that RQ should have: each must wait or run."""
        if job.sharding is None:
            return task_ids(job)
        shards = self._jobs.unfinished_shards(job)
        if 0 in shards:  # the task of shard 0 may not have enqueued the others yet
            return [task_id(job, 0)]
        tasks = [task_id(job, shard) for shard in shards]
        return tasks if job.parts is None else [*tasks, task_id(job)]

    def _adjust_shares(self) -> None:
        """Set how many tasks each tenant may have in RQ, by the number of live workers, so that new workers get tasks.

        RQ's rate limit has a slot for each of these tasks. Also free the slots of tasks that neither wait nor run.
        """
        shares, limits = self._shares(), RateLimitRegistry.all(self._client)
        places = [limit.get_allowed_job_ids() for limit in limits]
        waiting, running = self._waiting(), self._running()
        for limit, ids in zip(limits, places, strict=True):
            self._free_slots(limit, ids, waiting[limit.key.partition(":")[0]], running)
            allowed = shares(limit.key)
            if limit.concurrency not in {0, allowed}:
                with self._client.pipeline() as pipeline:
                    limit.register(allowed, pipeline)
                    pipeline.execute()
                RateLimitRegistry(limit.key, self._client).cleanup()

    def _free_slots(self, limit: RateLimitRegistry, ids: list[str], waiting: set[str], running: set[str]) -> None:
        """Free the slots of a rate limit that are held by tasks which neither wait nor run, and delete these tasks.

        A slot lets one task of the tenant wait in the queue or run; `ids` are the tasks that hold a slot. `waiting` are
        the ids of the tasks that wait in this limit's queue. `running` are the ids of the running tasks of all queues,
        because an interactive task that goes on as a batch task has a slot of the batch queue.

        RQ itself frees the slots of ended tasks. Tasks that their job still needs keep their slots here, because a
        worker may be taking such a task from the queue right now; `repair` handles them.
        """
        for id_, task in zip(ids, fetch_tasks(self._client, ids), strict=True):
            if id_ in running or (task is not None and (id_ in waiting or task.get_status(refresh=False) not in BEGUN)):
                continue
            with suppress(ProblemError):  # skip a job whose record has another schema
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
        """Return the ids of the waiting tasks in each queue, by the queue's name.

        Call this before `_running`, so that a task that starts in between is not missing in both.
        """
        return {name: set(queue.get_job_ids()) for name, queue in self._queues.items()}

    def _running(self) -> set[str]:
        """Return the ids of running tasks: RQ has an execution of each, which expires after missed heartbeats."""
        registries = (queue.started_job_registry for queue in self._queues.values())
        return {id_ for registry in registries for id_ in registry.get_job_ids(cleanup=False)}

    def _delete(self, tasks: Sequence[RqJob], pipeline: Pipeline) -> None:
        """Add commands to a transaction that remove tasks (`_leave`), and delete RQ's records of these tasks."""
        self._leave(tasks, pipeline)
        for task in tasks:
            result = Result.get_key(task.id)  # type: ignore[no-untyped-call] # of RQ
            pipeline.delete(task.key, task.dependents_key, task.dependencies_key, result)

    def _leave(self, tasks: Sequence[RqJob], pipeline: Pipeline) -> None:
        """Add commands to a transaction that remove tasks from their queues, rate limits and RQ's registries.

        Tasks that depend on the removed tasks stay.
        """
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
        """Return RQ's rate limit for the tasks of a job: how many tasks of its tenant may wait in the queue or run.

        There is one limit for each tenant and queue, and one for a tenant's shards of draws in the queue `BATCH`.
        """
        key = f"{job.queue}:{job.tenant}{_DRAWS_SUFFIX if (job.kind, job.queue) == ('draws', BATCH) else ''}"
        return RateLimit(key, self._shares()(key))

    def _shares(self) -> Callable[[str], int]:
        """Return a function that maps the key of a rate limit to its number of slots: how many tasks may wait or run.

        The number depends on how many workers live now, when this method is called (`allowed_tasks`).
        """
        workers, has_keys = self.live_workers(), self._has_keys()
        return lambda key: allowed_tasks(workers, has_keys=has_keys, are_short=key.endswith(_DRAWS_SUFFIX))

    def _enqueue(self, job: Job, id_: str, limit: RateLimit, former: RqJob | None = None) -> None:
        """Enqueue a new task of a job; the same transaction removes `former`, a lost task with the same id, if any."""
        with self._client.pipeline() as pipeline:
            if former is not None:
                self._leave([former], pipeline)
            self._queues[job.queue].add(self._task(job, id_, limit), pipeline)
            pipeline.execute()

    def _task(self, job: Job, id_: str, limit: RateLimit, depends_on: Dependency | None = None) -> RqJob:
        """Return a new task of a job, not enqueued yet; `id_` is the id of the task.

        RQ lets the task enter its queue when the tasks in `depends_on` have ended and the tenant's `limit` has room.
        """
        name, arguments = _call(job, id_)
        return self._queues[job.queue].create_job(
            name,
            args=arguments,
            job_id=id_,
            timeout=self._settings.job_timeout,
            result_ttl=ENDED_SECONDS,
            failure_ttl=FAILED_SECONDS,
            retry=Retry(max=MAX_RETRIES),
            meta=task_metadata(),
            description=id_,
            depends_on=depends_on,
            rate_limit=limit,
        )


def _running_seconds(task: RqJob) -> float:
    """Return the seconds since the start of a running task; 0 if RQ has not recorded the start yet."""
    return 0.0 if task.started_at is None else (datetime.now(UTC) - task.started_at).total_seconds()


def task_id(job: Job, shard: int | None = None) -> str:
    """Return the id of the task that makes a shard: one of the pieces into which a large job is divided.

    Without `shard`, return the id of the task that does the whole job, or that combines the parts of an analysis.
    """
    return job.id if shard is None else f"{job.id}-s{shard}"


def task_ids(job: Job) -> list[str]:
    """Return the ids of a job's tasks in the order in which they are enqueued."""
    if job.sharding is None:
        return [task_id(job)]
    shards = [task_id(job, shard) for shard in range(job.sharding.shards)]
    return shards if job.parts is None else [*shards, task_id(job)]


def _call(job: Job, id_: str) -> tuple[str, list[Any]]:
    """Return the name and the arguments of the function that a task calls.

    The name is a key of `worker.execution.tasks.HANDLERS`.
    """
    _, _, shard = id_.rpartition("-s")
    if job.kind == "fit":
        return FIT, [job.id]
    return (DRAWS, [job.id, int(shard)]) if id_ != task_id(job) else (ANALYSIS, [job.id])
