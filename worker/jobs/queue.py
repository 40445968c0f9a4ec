"""The queue of the jobs' tasks: enqueue, take, withdraw.

Each numerics kind has a queue of long tasks, which RQ's workers fork for, and one of short tasks, which executors run
(`worker.jobs.executor_queue`). A job's record names its queue. Shards are short, so that they interleave and no job
starves another. Tenants take turns, and interactive tasks go first (`worker.jobs.priority_scripts`).
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import redis
from rq import Retry
from rq.job import JobStatus

from worker.base.clock import now_ms
from worker.base.numerics import numbers_of
from worker.base.problems import refuse
from worker.base.versions import is_short, short_queue
from worker.jobs import priority_scripts
from worker.jobs.executor_queue import short_fields
from worker.jobs.rq_types import ANALYSIS, DRAWS, FIT, NAME, SafeQueue, open_queue, script_keys, started_tasks
from worker.jobs.shards import Shards, draw_counts, taker_field, takers
from worker.observability.live_workers import workers_by_numbers, workers_of
from worker.observability.request_context import task_metadata
from worker.records.draws import DrawsSpec
from worker.records.ids import text
from worker.records.job import job_key

if TYPE_CHECKING:
    from worker.base.settings import Settings
    from worker.jobs.store import JobStore
    from worker.records.job import Job

RETRIES = 3  # of a task whose worker was killed; a task that fails by itself is not repeated
ENDED_SECONDS = 60  # RQ keeps an ended task so long; the job's record outlives it
FAILED_SECONDS = 86400
REPLICATION_MARK = "glle:replicated"
REPLICATION_MARK_SECONDS = 60
REPLICATION_WAIT_MS = 1000

log = logging.getLogger(__name__)


class TaskQueue:
    """The tasks of all jobs in the queue's Redis."""

    def __init__(self, client: redis.Redis, jobs: JobStore, settings: Settings) -> None:
        self._client = client
        self._jobs = jobs
        self._settings = settings
        self._queue = open_queue(NAME, client)
        self._add = client.register_script(priority_scripts.ENQUEUE)
        self._take = client.register_script(priority_scripts.TAKE)
        self._promote = client.register_script(priority_scripts.PROMOTE)
        self._withdraw = client.register_script(priority_scripts.WITHDRAW)
        self._shards = Shards(client)

    def enqueue(self, job: Job) -> None:
        """Enqueue the first task of a job; a draws job's first shard opens the other chains."""
        log.info("Enqueued: %s job", job.kind, extra={"fields": {"job_id": job.id}})
        if job.kind == "fit":
            self._enqueue(FIT, [job.id], task_id(job), job)
        elif job.kind == "draws":
            self.enqueue_shard(job, 0)
        else:
            self._enqueue(ANALYSIS, [job.id, job.round], task_id(job), job)

    def enqueue_shard(self, job: Job, shard: int) -> bool:
        """Enqueue a shard of a draws job once; return whether it is new."""
        return self._enqueue(DRAWS, [job.id, job.round, shard], task_id(job, shard), job)

    def open_next(self, job: Job, ended: int) -> None:
        """Enqueue the shard after one that ends, or the next one if that shard is already enqueued."""
        shards, opened = DrawsSpec.from_dict(job.spec).shards, None
        while (following := self._shards.follow(job, shards, ended, opened)) is not None:
            opened, is_new = following
            if self.enqueue_shard(job, opened) or not is_new:
                return

    def promote(self, job: Job) -> None:
        """Move the waiting tasks of a job that has become interactive before batches."""
        self._promote(keys=script_keys(job.queue), args=self.task_ids(job))

    def take_shard(self, job: Job, taker: int) -> int | None:
        """Take a waiting shard of a draws job for the task of another shard that has time left.

        Return None if none waits, or if a client waits for another task. If the taker dies, its task is done again,
        and begins with `give_back`.
        """
        for shard in self.next_shards(job):
            id_ = task_id(job, shard)
            keys = [*script_keys(job.queue), job_key(job.id)]
            if self._take(keys=keys, args=[id_, taker_field(job.round, shard), taker]):
                return shard
        return None

    def give_back(self, job: Job, taker: int) -> None:
        """Enqueue the unfinished shards again that the task of a shard had taken when it died."""
        shards = self.next_shards(job)
        for shard, last_taker in zip(shards, takers(self._client, job, shards), strict=True):
            if last_taker == taker:
                self.enqueue_shard(job, shard)

    def withdraw(self, job: Job) -> Job:
        """Remove the waiting tasks of an unwanted job; return the job, cancelled if none of its tasks runs."""
        self._withdraw(keys=script_keys(job.queue), args=self.task_ids(job))
        if job.status == "cancelling" and not self._is_in_work(job):
            self._jobs.finish_cancel(job.id)
        return self._jobs.fetch(job.id)

    def require_replicated(self, id_: str) -> None:
        """Wait until GLLE_REPLICAS replicas have a job, so that a failover does not lose it.

        A master updates its replicas after its answer. If it is killed in between, the last writes are lost.
        Replication keeps the order, so a replica that has one write has all earlier ones.

        Raises ``not-replicated`` if the replicas lack the mark after one second, or a new master lacks the job.
        """
        replicas = self._settings.replicas
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
                else f"The queue's Redis changed its master before that had job {id_}.",
                "Send the request again in some seconds: work that has begun is not repeated.",
                replicas=int(count),
                wanted=replicas,
            )

    def length(self) -> int:
        """Return the number of waiting tasks of the pinned kind, long and short."""
        keys = (script_keys(queue)[0] for queue in (NAME, short_queue(NAME)))
        return sum(priority_scripts.length(self._client, key) for key in keys)

    def live_workers(self, queue: str = NAME) -> int:
        """Return the number of live workers of a queue."""
        return len(workers_of(self._client, self._settings, queue))

    def is_registered(self, worker: str) -> bool:
        """Return whether a worker has entered the registry; False if the server does not answer."""
        try:
            return bool(self._client.exists(f"rq:worker:{worker}"))
        except redis.RedisError:
            return False

    def numbers_for_new(self) -> str:
        """Return the numbers for new work.

        Those of the pinned kind if it has a live worker, or if no worker lives; otherwise the first live kind in order.
        """
        if self.live_workers():
            return numbers_of("")
        return min(workers_by_numbers(self._client, self._settings), default=numbers_of(""))

    def next_shards(self, job: Job) -> list[int]:
        """Return the earliest unfinished shards, as many as may be open."""
        spec = DrawsSpec.from_dict(job.spec)
        counts = draw_counts(self._client, job, spec.shards)
        return [shard for shard, count in enumerate(counts) if count < spec.shard_size(shard)][: job.chains]

    def task_ids(self, job: Job) -> list[str]:
        """Return the tasks of a job that may wait."""
        if job.kind != "draws":
            return [task_id(job)]
        return [task_id(job, shard) for shard in self.next_shards(job)]

    def _is_in_work(self, job: Job) -> bool:
        """Return whether a worker runs a task of the job, or has just dequeued one."""
        queue = open_queue(job.queue, self._client)
        taken = self._client.lrange(queue.intermediate_queue_key, 0, -1)
        started = self._client.zrange(started_tasks(job.queue, self._client).key, 0, -1)
        return any(text(task).startswith(job.id) for task in (*taken, *started))

    def _enqueue(self, name: str, arguments: list[Any], id_: str, job: Job) -> bool:
        """Enqueue a task in the queue of its job once; return whether it is new."""
        fields = short_fields(name, arguments) if is_short(job.queue) else self._long_fields(name, arguments, id_, job)
        if job.priority == "interactive":
            fields["interactive"] = 1
        flat = [part for pair in fields.items() for part in pair]
        return bool(self._add(keys=[*script_keys(job.queue), SafeQueue.redis_queues_keys], args=[id_, *flat]))

    def _long_fields(self, name: str, arguments: list[Any], id_: str, job: Job) -> dict[str, Any]:
        """Return the record of a task for RQ."""
        task = self._queue.create_job(
            name,
            args=arguments,
            job_id=id_,
            timeout=self._settings.job_timeout,
            result_ttl=ENDED_SECONDS,
            failure_ttl=FAILED_SECONDS,
            status=JobStatus.QUEUED,
            retry=Retry(max=RETRIES),
            meta=task_metadata(),
            description=id_,
        )
        task.origin, task.enqueued_at = job.queue, datetime.now(UTC)
        return {name: value for name, value in task.to_dict().items() if value is not None}


def task_id(job: Job, shard: int | None = None) -> str:
    """Return the id of a job's task, or of the task of one shard."""
    if job.kind == "fit":  # a fit has one round
        return job.id
    return f"{job.id}-r{job.round}" if shard is None else f"{job.id}-r{job.round}-s{shard}"
