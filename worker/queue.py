"""The RQ queue, held so that it runs the project's own tasks and loses none.

One queue for all work: short shards interleave, so no job starves another, and what someone waits for stands before
the rest (`worker.places`). Tasks carry JSON only, and a worker runs a task because its name is in a table here, not
because it can be imported.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from rq import Queue, Retry
from rq.exceptions import DuplicateJobError, NoSuchJobError
from rq.job import Job as RqJob
from rq.job import JobStatus
from rq.registry import StartedJobRegistry

from worker import places
from worker.draws import CHAINS, DrawsSpec
from worker.identity import text
from worker.jobs import job_key, taker_field
from worker.origin import luggage
from worker.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis
    from redis.client import Pipeline

    from worker.jobs import Job, JobStore
    from worker.settings import Settings

NAME = "glle"
SERIALIZER = "json"
TASKS = frozenset({"worker.tasks.fit", "worker.tasks.draw", "worker.tasks.analyse"})
RETRIES = 3  # of a task whose worker was killed; a task that fails by itself is not repeated
ENDED_SECONDS = 60  # RQ's own memory of a task that ended; ours is the job record
FAILED_SECONDS = 86400
MAINTENANCE_SECONDS = 30
STALE_SECONDS = 2.0  # an open job that has been silent for so long is checked against the queue

log = logging.getLogger(__name__)


class SafeJob(RqJob):
    """An RQ job that calls a function of `TASKS` or refuses; callbacks and webhooks never run."""

    success_callback = None  # names of functions in the job's data: never followed
    failure_callback = None
    stopped_callback = None

    def send_webhooks(self, status: str | JobStatus, *, exc_string: str | None = None) -> None:
        """Send nothing."""

    def _execute(self) -> Any:
        if self.instance is not None or self.func_name not in TASKS:
            raise PermissionError(f"{self.func_name!r} is not a task of this worker.")
        return task(self.func_name)(*self.args, **self.kwargs)


class SafeQueue(Queue):
    """The queue with places, and a maintenance lock that a killed worker cannot hold for 15 minutes."""

    job_class = SafeJob

    def push_job_id(self, job_id: str, pipeline: Pipeline | None = None, at_front: bool = False) -> None:  # noqa: FBT001, FBT002 # RQ's signature
        """Put a task that is tried again in its place."""
        if at_front:
            super().push_job_id(job_id, pipeline, at_front=True)
        else:
            (self.connection if pipeline is None else pipeline).eval(places.PUSH, 1, self.key, job_id)

    def acquire_maintenance_lock(self) -> bool:
        """Take the lock, for half a minute at most."""
        return bool(self.connection.set(self.registry_cleaning_key, 1, nx=True, ex=MAINTENANCE_SECONDS))


def task(name: str) -> Callable[..., None]:
    """Return the task of this name; imported late, because the API needs the names alone."""
    from worker import tasks  # noqa: PLC0415 # the API needs the names alone

    functions: dict[str, Callable[..., None]] = {
        "worker.tasks.fit": tasks.fit,
        "worker.tasks.draw": tasks.draw,
        "worker.tasks.analyse": tasks.analyse,
    }
    return functions[name]


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
        self._queue = SafeQueue(NAME, connection=client, serializer=SERIALIZER)
        self._take = client.register_script(places.TAKE)
        self._promote = client.register_script(places.PROMOTE)
        self._withdraw = client.register_script(places.WITHDRAW)

    def enqueue(self, job: Job) -> None:
        """Enqueue the first task of a job; a draws job's first shard opens the other chains."""
        log.info("Enqueued: %s job", job.kind, extra={"fields": {"job_id": job.id}})
        if job.kind == "fit":
            self._enqueue("worker.tasks.fit", [job.id], _only_task(job), job)
        elif job.kind == "draws":
            self.enqueue_shard(job, 0)
        else:
            self._enqueue("worker.tasks.analyse", [job.id, job.round], _only_task(job), job)

    def enqueue_shard(self, job: Job, shard: int) -> None:
        """Enqueue a shard of a draws job, once."""
        self._enqueue("worker.tasks.draw", [job.id, job.round, shard], _shard_task(job, shard), job)

    def promote(self, job: Job) -> None:
        """Put what waits of a job that has become interactive before what is not."""
        for id_ in self._waiting(job):
            self._promote(keys=[self._queue.key], args=[id_])

    def take_shard(self, job: Job, taker: int) -> int | None:
        """Take a shard of a draws job off the queue for the task of another that has time left.

        None when none waits, or when someone waits for another task.
        Should the taker die, its own task is done again, and begins with `give_back`.
        """
        for shard in self._next_shards(job):
            id_ = _shard_task(job, shard)
            keys = [self._queue.key, job_key(job.id)]
            if self._take(keys=keys, args=[id_, taker_field(job.round, shard), taker]):
                return shard
        return None

    def give_back(self, job: Job, taker: int) -> None:
        """Enqueue again what the task of a shard had taken and not done, when it died."""
        shards = self._next_shards(job)
        for shard, took in zip(shards, self._jobs.takers(job.id, job.round, shards), strict=True):
            if took == taker:
                self.enqueue_shard(job, shard)

    def withdraw(self, job: Job) -> Job:
        """Take what waits of an unwanted job off the queue; return the job, cancelled when nothing of it is in work."""
        for id_ in self._waiting(job):
            self._withdraw(keys=[self._queue.key], args=[id_])
        if job.status == "cancelling" and not self._in_work(job):
            self._jobs.cancelled(job.id)
        return self._jobs.fetch(job.id)

    def repair(self, job: Job) -> Job:
        """Return the job as it is after comparing it with the queue, if it has been silent for a while.

        A job that is late fails. A task that vanished is enqueued again; one that failed beyond its retries ends the
        job with a problem; a wish to cancel whose worker is gone comes true.
        """
        if job.is_late:
            job = self._jobs.expire(job.id)
            if not job.is_open:
                return self.withdraw(job)
        if not job.is_open or job.idle_seconds < STALE_SECONDS:
            return job
        for id_, again in self._awaited(job):
            status = self._status(id_)
            if status is None and job.status != "cancelling":
                again()
            elif status in {None, JobStatus.FAILED, JobStatus.STOPPED, JobStatus.CANCELED}:
                self._jobs.cancelled(job.id)
                self._jobs.fail(job.id, _worker_lost(job))  # changes nothing once it is cancelled
        return self._jobs.get(job.id) or job

    def recover(self, worker: str) -> None:
        """Enqueue again at once what a worker was doing when it died (its heartbeat would tell, later)."""
        registry = StartedJobRegistry(queue=self._queue, job_class=SafeJob)
        for raw in self._client.zrange(registry.key, 0, -1):
            entry = text(raw)
            name = self._client.hget(f"rq:execution:{entry}", "worker_name")
            if name is not None and name == worker.encode():
                self._client.zadd(registry.key, {entry: 1}, xx=True)
        if self._queue.acquire_maintenance_lock():  # RQ's cleanup does not lock: two would enqueue twice
            try:
                registry.cleanup()
            finally:
                self._queue.release_maintenance_lock()  # type: ignore[no-untyped-call] # RQ's

    def length(self) -> int:
        """Return the number of tasks that wait."""
        return int(self._client.llen(self._queue.key))

    def live_workers(self) -> int:
        """Return the number of workers that gave a sign of life lately."""
        alive = 0
        for raw in self._client.smembers(f"rq:workers:{NAME}"):
            beat = self._client.hget(raw, "last_heartbeat")
            if beat is not None:
                at = datetime.fromisoformat(text(beat))
                alive += (datetime.now(UTC) - at).total_seconds() < worker_ttl(self._settings)
        return alive

    def _awaited(self, job: Job) -> list[tuple[str, Callable[[], None]]]:
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
        taken = self._client.lrange(self._queue.intermediate_queue_key, 0, -1)
        started = self._client.zrange(StartedJobRegistry(queue=self._queue, job_class=SafeJob).key, 0, -1)
        return any(text(task).startswith(job.id) for task in (*taken, *started))

    def _next_shards(self, job: Job) -> list[int]:
        """Return the earliest shard of each chain that is not done."""
        spec = DrawsSpec.from_dict(job.spec)
        counts = self._jobs.shard_counts(job.id, job.round, spec.shards)
        missing = [shard for shard, count in enumerate(counts) if count < spec.shard_size(shard)]
        return sorted({shard % CHAINS: shard for shard in reversed(missing)}.values())

    def _status(self, id_: str) -> JobStatus | None:
        try:
            return SafeJob.fetch(id_, connection=self._client, serializer=SERIALIZER).get_status(refresh=False)
        except NoSuchJobError:
            return None

    def _enqueue(self, function: str, arguments: list[Any], id_: str, job: Job) -> None:
        interactive = job.priority == "interactive"
        try:
            self._queue.enqueue_call(
                function,
                args=arguments,
                job_id=id_,
                unique=True,
                at_front=interactive,
                timeout=self._settings.job_timeout,
                result_ttl=ENDED_SECONDS,
                failure_ttl=FAILED_SECONDS,
                retry=Retry(max=RETRIES),
                meta=luggage(),
                description=id_,
            )
        except DuplicateJobError:
            return  # it waits or runs already
        if interactive:
            self._promote(keys=[self._queue.key], args=[id_])


def worker_ttl(settings: Settings) -> int:
    """Return the seconds after which a worker that gave no sign of life counts as gone."""
    return 6 * settings.heartbeat


def _only_task(job: Job) -> str:
    return job.id if job.kind == "fit" else f"{job.id}-r{job.round}"  # a fit has one round


def _shard_task(job: Job, shard: int) -> str:
    return f"{job.id}-r{job.round}-s{shard}"


def _worker_lost(job: Job) -> Problem:
    return Problem(
        code="worker-lost",
        status=503,
        detail=f"The workers of job {job.id} died {RETRIES + 1} times in a row.",
        remedy="Look into the workers' log: most often the machine has too little memory for the data set.",
    )
