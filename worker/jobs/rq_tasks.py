"""RQ's records of tasks and its queues, as the service uses them.

Tasks carry JSON only. A worker runs only tasks whose name is in a table of handlers, and imports none by name.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from rq import Queue
from rq.exceptions import NoSuchJobError
from rq.job import Job as RqJob
from rq.job import JobStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import redis
    from redis.client import Pipeline

SERIALIZER = "json"


class SafeJob(RqJob):
    """An RQ job that calls one of its `handlers` or refuses; callbacks and webhooks never run.

    The base class has no handlers: an API process enqueues tasks and runs none.
    """

    handlers: ClassVar[Mapping[str, Callable[..., None]]] = {}
    success_callback = None  # names of functions in the job's data are never followed
    failure_callback = None
    stopped_callback: ClassVar[Any] = None

    @property
    def func(self) -> Callable[..., None]:
        """The handler of the task; raises `PermissionError` for other names."""
        name = self.func_name
        if self.instance is not None or name is None or name not in self.handlers:
            raise PermissionError(f"{name!r} is not a task of this worker.")
        return self.handlers[name]

    def send_webhooks(self, status: str | JobStatus, *, exc_string: str | None = None) -> None:
        """Send nothing."""


class TaskList(Queue):
    """A queue that adds tasks in the caller's transaction, which RQ supports only for tasks without a rate limit."""

    job_class = SafeJob

    def add(self, task: RqJob, pipeline: Pipeline) -> None:
        """Add a task with a rate limit: to the queue, or to the tasks that wait for a place of their tenant."""
        pipeline.sadd(self.redis_queues_keys, self.key)
        self._enqueue_rate_limited_job(task, pipeline=pipeline)


def open_queue(name: str, client: redis.Redis) -> TaskList:
    """Return a queue."""
    return TaskList(name, connection=client, serializer=SERIALIZER, job_class=SafeJob)


def fetch_tasks(client: redis.Redis, ids: Sequence[str]) -> list[RqJob | None]:
    """Return RQ's record of each task, or None.

    A record does not count if it only has fields that a worker wrote after the record was deleted. Unlike RQ's
    `Job.fetch_many` it uses no transaction, because a full server refuses transactions.
    """
    with client.pipeline(transaction=False) as pipeline:
        for id_ in ids:
            pipeline.hgetall(SafeJob.key_for(id_))
        return [_task_of(client, id_, record) for id_, record in zip(ids, pipeline.execute(), strict=True)]


def _task_of(client: redis.Redis, id_: str, record: dict[bytes, bytes]) -> RqJob | None:
    if not record:
        return None
    task = SafeJob(id_, connection=client, serializer=SERIALIZER)
    with suppress(NoSuchJobError):
        task.restore(record)
        return task
    return None
