"""The queue of the jobs' tasks: enqueue, take, withdraw.

Each numerics kind has a queue of long tasks, which RQ's workers fork for, and one of short tasks, which executors run
(`worker.jobs.executor_queue`). A job's record names its queue. Shards are short, so that they interleave and no job
starves another. Tenants take turns, and interactive tasks go first (`worker.jobs.priority_scripts`).
"""

from __future__ import annotations

import logging
import time
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
from worker.jobs.shards import Shards, takers, unfinished_shards
from worker.jobs.store import Cancelled
from worker.observability.live_workers import workers_by_numbers, workers_of
from worker.observability.request_context import task_metadata
from worker.records.ids import text
from worker.records.job import job_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from worker.base.settings import Settings
    from worker.jobs.store import JobStore
    from worker.records.job import Job

RETRIES = 3  # of a task whose worker was killed; a task that fails by itself is not repeated
ENDED_SECONDS = 60  # RQ keeps an ended task so long; the job's record outlives it
FAILED_SECONDS = 86400
REPLICATION_MARK = "glle:replicated"
REPLICATION_MARK_SECONDS = 60
REPLICATION_WAIT_MS = 1000
LIVE_SECONDS = 1.0

log = logging.getLogger(__name__)


class TaskQueue:
    """The tasks of all jobs in the queue's Redis."""

    def __init__(self, client: redis.Redis, jobs: JobStore, settings: Settings) -> None:
        self._client = client
        self._jobs = jobs
        self._settings = settings
        self._queue = open_queue(NAME, client)
        self._add = client.register_script(priority_scripts.ENQUEUE)
        self._promote = client.register_script(priority_scripts.PROMOTE)
        self._withdraw = client.register_script(priority_scripts.WITHDRAW)
        self._shards = Shards(client, settings.job_ttl)
        self._live_until = 0.0  # a worker of the pinned kind counts as live, in monotonic seconds

    def enqueue(self, job: Job) -> None:
        """Enqueue the first task of a job; the first shard of a job opens the other chains."""
        log.info("Enqueued: %s job", job.kind, extra={"fields": {"job_id": job.id}})
        if job.kind == "fit":
            self._enqueue(FIT, {task_id(job): [job.id]}, job)
        elif job.sharding is not None:
            self.enqueue_shard(job, 0)
        else:
            self.enqueue_analysis(job)

    def enqueue_analysis(self, job: Job) -> None:
        """Enqueue the task with the result of an analysis, once; its parts are made, or it makes them alone."""
        self._enqueue(ANALYSIS, {task_id(job): [job.id, job.round]}, job)

    def combine(self, job: Job) -> bool:
        """Enqueue the analysis of a job whose parts are all made, once; return whether they are."""
        if unfinished_shards(self._client, job):
            return False
        self.enqueue_analysis(job)
        return True

    def enqueue_shard(self, job: Job, shard: int) -> bool:
        """Enqueue a shard once; return whether it is new."""
        return self.enqueue_shards(job, [shard]) == 1

    def enqueue_shards(self, job: Job, shards: Sequence[int]) -> int:
        """Enqueue shards of a job, each once; return how many are new."""
        if not shards:
            return 0
        return self._enqueue(DRAWS, {task_id(job, shard): [job.id, job.round, shard] for shard in shards}, job)

    def promote(self, job: Job) -> None:
        """Move the waiting tasks of a job that has become interactive before batches."""
        self._promote(keys=script_keys(job.queue), args=self.task_ids(job))

    def next_shard(
        self, job: Job, ended: int, *, taker: int, first: int, has_time: bool, counts: Mapping[int, int]
    ) -> tuple[int | None, bool]:
        """Open the successor of a shard whose parts are made, and take a shard for the same task.

        If the task dies, it is done again, and begins with `give_back`.

        Parameters
        ----------
        ended
            The shard whose parts are made; they need not be cached yet.
        taker
            The shard of the task.
        first
            The first shard that may be taken.
        has_time
            Whether the task takes another shard.
        counts
            Finished and cached steps by shard, which are reported.

        Returns
        -------
        The shard that the task makes next, and whether requests for single draws wait in the job's queue. The shard is
        None if no shard is left, or if an interactive task waits.

        Raises
        ------
        Cancelled
            The job is not wanted, or is in another round.

        """
        is_long = not is_short(job.queue)
        short_task = None if is_long else [DRAWS, [job.id, job.round], task_metadata()]
        found = self._shards.continue_after(
            job, ended, taker=taker, first=first, has_time=has_time, counts=counts, short_task=short_task
        )
        if found is None:
            raise Cancelled
        if found.to_enqueue is not None:
            self.enqueue_shard(job, found.to_enqueue)
        return found.shard, found.is_requested

    def give_back(self, job: Job, taker: int) -> None:
        """Enqueue the unfinished shards again that the task of a shard had taken when it died."""
        shards = unfinished_shards(self._client, job)
        last_takers = takers(self._client, job, shards)
        taken = [shard for shard, last_taker in zip(shards, last_takers, strict=True) if last_taker == taker]
        self.enqueue_shards(job, taken)

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
        A live worker is remembered for `LIVE_SECONDS`, which is less than a dead one takes to be noticed.
        """
        now = time.monotonic()
        if now < self._live_until:
            return numbers_of("")
        if self.live_workers():
            self._live_until = now + LIVE_SECONDS
            return numbers_of("")
        return min(workers_by_numbers(self._client, self._settings), default=numbers_of(""))

    def task_ids(self, job: Job) -> list[str]:
        """Return the tasks of a job that may wait."""
        if job.sharding is None:
            return [task_id(job)]
        shards = [task_id(job, shard) for shard in unfinished_shards(self._client, job)]
        return shards if job.parts is None else [*shards, task_id(job)]

    def _is_in_work(self, job: Job) -> bool:
        """Return whether a worker runs a task of the job, or has just dequeued one."""
        queue = open_queue(job.queue, self._client)
        taken = self._client.lrange(queue.intermediate_queue_key, 0, -1)
        started = self._client.zrange(started_tasks(job.queue, self._client).key, 0, -1)
        return any(text(task).startswith(job.id) for task in (*taken, *started))

    def _enqueue(self, name: str, tasks: Mapping[str, list[Any]], job: Job) -> int:
        """Enqueue tasks, arguments by id, in the queue of their job, each once; return how many are new."""
        args: list[Any] = []
        for id_, arguments in tasks.items():
            is_long = not is_short(job.queue)
            fields = self._long_fields(name, arguments, id_, job) if is_long else short_fields(name, arguments)
            if job.priority == "interactive":
                fields["interactive"] = 1
            args += [id_, 2 * len(fields), *(part for pair in fields.items() for part in pair)]
        return int(self._add(keys=[*script_keys(job.queue), SafeQueue.redis_queues_keys], args=args))

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
