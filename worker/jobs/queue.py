"""The tasks of the jobs in the queue: enqueued, taken, withdrawn, and put right when they got lost.

One queue for all work of a numerics kind: short shards interleave, so no job starves another; tenants take turns, and
interactive tasks go before the others (`worker.jobs.priority_scripts`). A job's record names its queue; workers of one kind work on
one queue.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import redis
from rq import Retry
from rq.intermediate_queue import IntermediateQueue
from rq.job import JobStatus
from rq.registry import StartedJobRegistry

from glle_engine import NUMBERS
from worker.base.numerics import is_of_this_version, numbers_of
from worker.base.problems import ProblemError, no_worker_of_kind, orphaned_job, worker_lost
from worker.base.versions import numbers_of_queue
from worker.jobs import priority_scripts
from worker.jobs.live_workers import at_work, own_queues, workers_by_numbers
from worker.jobs.rq_types import NAME, SERIALIZER, SafeJob, SafeQueue
from worker.jobs.shards import Shards, counts, taker_field, takers
from worker.jobs.store import job_key
from worker.observability.request_context import task_metadata
from worker.records.draws import DrawsSpec
from worker.records.ids import text
from worker.tenancy.quotas import Quotas

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.base.settings import Settings
    from worker.jobs.store import Job, JobStore

RETRIES = 3  # of a task whose worker was killed; a task that fails by itself is not repeated
ENDED_SECONDS = 60  # RQ's own memory of a task that ended; ours is the job record
FAILED_SECONDS = 86400
ABANDONED_SECONDS = 60.0  # after which a job fails whose queue has no worker left, and that no other worker can do
STALE_SECONDS = 2.0  # an open job that has been silent for so long is checked against the queue
MOST_CHECKED = 10_000  # jobs that a process remembers to have compared with the queue
LOOKED_AT = 200  # open jobs that one sweep looks at, by lot where there are more

log = logging.getLogger(__name__)


class TaskQueue:
    """Enqueues a job's tasks, and repairs a record whose tasks got lost.

    Parameters
    ----------
    client
        The queue's Redis, bytes in and out.
    jobs
        The records.

    """

    def __init__(self, client: redis.Redis, jobs: JobStore, settings: Settings) -> None:
        self._client = client
        self._jobs = jobs
        self._settings = settings
        self._queue = _queue(NAME, client)
        self._add = client.register_script(priority_scripts.ENQUEUE)
        self._take = client.register_script(priority_scripts.TAKE)
        self._promote = client.register_script(priority_scripts.PROMOTE)
        self._withdraw = client.register_script(priority_scripts.WITHDRAW)
        self._check = client.register_script(priority_scripts.CHECK)
        self._forget = client.register_script(priority_scripts.FORGET)
        self._shards = Shards(client)
        self._checked: dict[str, float] = {}  # when each silent job may be compared with the queue again

    def enqueue(self, job: Job) -> None:
        """Enqueue the first task of a job; a draws job's first shard opens the other chains."""
        log.info("Enqueued: %s job", job.kind, extra={"fields": {"job_id": job.id}})
        if job.kind == "fit":
            self._enqueue("worker.execution.tasks.fit", [job.id], _only_task(job), job)
        elif job.kind == "draws":
            self.enqueue_shard(job, 0)
        else:
            self._enqueue("worker.execution.tasks.analyse", [job.id, job.round], _only_task(job), job)

    def enqueue_shard(self, job: Job, shard: int) -> bool:
        """Enqueue a shard of a draws job, once; return whether it was not there already."""
        return self._enqueue("worker.execution.tasks.draw", [job.id, job.round, shard], _shard_task(job, shard), job)

    def open_next(self, job: Job, ended: int) -> None:
        """Enqueue the shard that comes after one that ends, or where that is there already, the one after it."""
        shards, past = DrawsSpec.from_dict(job.spec).shards, None
        while (following := self._shards.follow(job, shards, ended, past)) is not None:
            past, is_new = following
            if self.enqueue_shard(job, past) or not is_new:
                return

    def promote(self, job: Job) -> None:
        """Put what waits of a job that has become interactive before what is not."""
        self._promote(keys=_keys(job.queue), args=self._waiting(job))

    def take_shard(self, job: Job, taker: int) -> int | None:
        """Take a shard of a draws job off the queue for the task of another that has time left.

        None when none waits, or when someone waits for another task.
        Should the taker die, its own task is done again, and begins with `give_back`.
        """
        for shard in self._next_shards(job):
            id_ = _shard_task(job, shard)
            if self._take(keys=[*_keys(job.queue), job_key(job.id)], args=[id_, taker_field(job.round, shard), taker]):
                return shard
        return None

    def give_back(self, job: Job, taker: int) -> None:
        """Enqueue again what the task of a shard had taken and not done, when it died."""
        shards = self._next_shards(job)
        for shard, took in zip(shards, takers(self._client, job, shards), strict=True):
            if took == taker:
                self.enqueue_shard(job, shard)

    def withdraw(self, job: Job) -> Job:
        """Take what waits of an unwanted job off the queue; return the job, cancelled when nothing of it is in work."""
        self._withdraw(keys=_keys(job.queue), args=self._waiting(job))
        if job.status == "cancelling" and not self._in_work(job):
            self._jobs.cancelled(job.id)
        return self._jobs.fetch(job.id)

    def look(self, job: Job) -> Job:
        """Return the job as `repair` does, but compare it with the queue at most every `STALE_SECONDS` per process."""
        now = time.monotonic()
        if job.is_open and not job.is_late:
            if now < self._checked.get(job.id, 0.0):
                return job
            if len(self._checked) >= MOST_CHECKED:
                self._checked = {id_: until for id_, until in self._checked.copy().items() if until > now}
            if job.idle_seconds >= STALE_SECONDS:
                self._checked[job.id] = now + STALE_SECONDS
        return self.repair(job)

    def repair(self, job: Job) -> Job:
        """Return the job as it is after comparing it with the queue, if it has been silent for a while.

        A job that is late fails. A task that vanished, or that neither waits nor is in work, is enqueued again; one
        that failed beyond its retries ends the job with a problem; a wish to cancel whose worker is gone comes true. A
        job of another version's queue is left to its workers while there are any. A job that only workers of another
        numerics kind than the live ones could do fails after a minute of silence; without any worker it waits.
        """
        if job.is_late:
            job = self._jobs.expire(job.id)
            if not job.is_open:
                return self.withdraw(job)
        if not job.is_open or job.idle_seconds < STALE_SECONDS:
            return job
        job = self._left_to_other_kinds(job) if _is_own(job) else self._handed_over(job)
        if not _is_own(job) or not job.is_open:
            return job
        awaited, registry = self._awaited(job), _begun(job.queue, self._client)
        found = self._check(keys=[*_keys(job.queue), registry.key], args=[id_ for id_, _ in awaited])
        for (_, again), status in zip(awaited, map(text, found), strict=True):
            if not status and job.status != "cancelling":
                again()
            elif status in {"", JobStatus.FAILED, JobStatus.STOPPED, JobStatus.CANCELED}:
                self._jobs.cancelled(job.id)
                self._jobs.fail(job.id, worker_lost(job.id, RETRIES + 1))  # changes nothing once it is cancelled
        return self._jobs.get(job.id) or job

    def sweep(self) -> None:
        """Repair open jobs and the lists of jobs, remove surplus records, and share running jobs with new workers."""
        workers = cache(self.live_workers)  # looked up once, and only where it matters
        for id_ in self._jobs.some_open(LOOKED_AT):
            with suppress(ProblemError):  # a record of a later version is left to its workers
                if (job := self._jobs.get(id_)) is not None:
                    self._share(self.repair(job), workers)
        index, quotas = self._jobs.index, Quotas(self._settings)
        for tenant in index.tenants():
            index.reindex(tenant)
            index.trim(tenant, quotas.of(tenant).records)

    def recover(self, worker: str) -> None:
        """Enqueue again at once what a worker was doing when it died (its heartbeat would tell, later)."""
        for name in own_queues(self._client):
            queue, registry = _queue(name, self._client), _begun(name, self._client)
            for raw in self._client.zrange(registry.key, 0, -1):
                entry = text(raw)
                holder = self._client.hget(f"rq:execution:{entry}", "worker_name")
                if holder is not None and holder == worker.encode():
                    self._client.zadd(registry.key, {entry: 1}, xx=True)
            if queue.acquire_maintenance_lock():  # RQ's cleanup does not lock: two would enqueue twice
                try:
                    registry.cleanup()
                finally:
                    queue.release_maintenance_lock()  # type: ignore[no-untyped-call] # RQ's

    def knows(self, worker: str) -> bool:
        """Say whether a worker has entered the registry."""
        try:
            return bool(self._client.exists(f"rq:worker:{worker}"))
        except redis.RedisError:  # nobody can enter then
            return False

    def length(self) -> int:
        """Return the number of tasks of the pinned kind that wait."""
        return self._queue.count

    def live_workers(self, queue: str = NAME) -> int:
        """Return the number of workers of a queue that gave a sign of life lately."""
        return len(at_work(self._client, self._settings, queue))

    def numbers_for_new(self) -> str:
        """Return the numbers that new work is to have.

        Those of the pinned kind where such a worker lives, or no worker at all; else the first live kind in order.
        """
        if self.live_workers():
            return numbers_of("")
        return min(workers_by_numbers(self._client, self._settings), default=numbers_of(""))

    def _left_to_other_kinds(self, job: Job) -> Job:
        """Fail a job after a minute of silence where workers live, but none of its kind; return it as it is then."""
        if job.idle_seconds <= ABANDONED_SECONDS:
            return job
        live = workers_by_numbers(self._client, self._settings)
        if not live or job.numbers in live:
            return job
        self._jobs.cancelled(job.id)
        self._jobs.fail(job.id, no_worker_of_kind(job.id, job.numbers, sorted(live)))
        return self.withdraw(self._jobs.fetch(job.id))

    def _share(self, job: Job, workers: Callable[[str], int]) -> None:
        """Have a running job shared by all workers that there are now."""
        if job.kind != "draws" or job.status != "running" or not _is_own(job):
            return
        spec = DrawsSpec.from_dict(job.spec)
        if spec.chains(spec.shards) > job.chains and (chains := spec.chains(workers(job.queue))) > job.chains:
            for shard in self._shards.widen(job, spec.shards, chains):
                self.enqueue_shard(job, shard)

    def _handed_over(self, job: Job) -> Job:
        """Take over a job of another version's queue once none of its workers is left; return it as it is then.

        Its tasks are enqueued anew in this version's queue where they give the same bits. Where they do not, the job is
        failed with a problem, but only after a minute of silence: its workers may come back.
        """
        if self.live_workers(job.queue):
            return job
        if is_of_this_version(job.numbers):
            if self._jobs.hand_over(job):
                registry = _begun(job.queue, self._client)
                for id_ in self._waiting(job):
                    self._forget(keys=[*_keys(job.queue), registry.key], args=[id_])
                log.info("Taken over from queue %s", job.queue, extra={"fields": {"job_id": job.id}})
        elif job.idle_seconds > ABANDONED_SECONDS:
            self._jobs.cancelled(job.id)
            self._jobs.fail(job.id, orphaned_job(job.id, job.numbers, NUMBERS))
            return self.withdraw(self._jobs.fetch(job.id))
        return self._jobs.fetch(job.id)

    def _awaited(self, job: Job) -> list[tuple[str, Callable[[], object]]]:
        """Return the tasks a job waits for, each with what enqueues it again."""
        if job.kind != "draws":
            return [(_only_task(job), partial(self.enqueue, job))]
        shards = self._next_shards(job)
        if 0 in shards:  # it has not opened the other chains yet
            shards = [0]
        return [(_shard_task(job, shard), partial(self.enqueue_shard, job, shard)) for shard in shards]

    def _waiting(self, job: Job) -> list[str]:
        """Return the tasks of a job that may wait."""
        if job.kind != "draws":
            return [_only_task(job)]
        return [_shard_task(job, shard) for shard in self._next_shards(job)]

    def _in_work(self, job: Job) -> bool:
        """Say whether a worker has a task of the job, or has just taken one off the queue."""
        queue = _queue(job.queue, self._client)
        taken = self._client.lrange(queue.intermediate_queue_key, 0, -1)
        started = self._client.zrange(_begun(job.queue, self._client).key, 0, -1)
        return any(text(task).startswith(job.id) for task in (*taken, *started))

    def _next_shards(self, job: Job) -> list[int]:
        """Return the earliest shards that are not done, as many as may be open."""
        spec = DrawsSpec.from_dict(job.spec)
        done = counts(self._client, job, spec.shards)
        return [shard for shard, count in enumerate(done) if count < spec.shard_size(shard)][: job.chains]

    def _enqueue(self, function: str, arguments: list[Any], id_: str, job: Job) -> bool:
        """Enqueue a task in the queue of its job, once; return whether it was not there already."""
        task = self._queue.create_job(
            function,
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
        fields = {**task.to_dict(), "interactive": 1 if job.priority == "interactive" else None}
        flat = [part for pair in fields.items() if pair[1] is not None for part in pair]
        return bool(self._add(keys=[*_keys(job.queue), SafeQueue.redis_queues_keys], args=[id_, *flat]))


def _is_own(job: Job) -> bool:
    """Return whether the tasks of a job are in a queue of this version."""
    return numbers_of_queue(job.queue) is not None


def _queue(name: str, client: redis.Redis) -> SafeQueue:
    """Return a queue, which may be another version's."""
    return SafeQueue(name, connection=client, serializer=SERIALIZER)


def _begun(queue: str, client: redis.Redis) -> StartedJobRegistry:
    """Return RQ's registry of the begun tasks of a queue."""
    return StartedJobRegistry(queue=_queue(queue, client), job_class=SafeJob)


def _keys(queue: str) -> list[str]:
    """Return the keys of the scripts of `worker.jobs.priority_scripts`: a queue's list, and that of the tasks just taken."""
    key = f"{SafeQueue.redis_queue_namespace_prefix}{queue}"
    return [key, IntermediateQueue.get_intermediate_queue_key(key)]


def _only_task(job: Job) -> str:
    return job.id if job.kind == "fit" else f"{job.id}-r{job.round}"  # a fit has one round


def _shard_task(job: Job, shard: int) -> str:
    return f"{job.id}-r{job.round}-s{shard}"
