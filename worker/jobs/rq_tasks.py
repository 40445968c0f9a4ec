"""RQ's jobs, here called tasks, and RQ's queues, restricted to what the service uses.

Arguments of tasks are JSON. A worker runs only the functions in a table of handlers. RQ itself would import a function
by the name in a task.
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
    """An RQ job that can only call one of its `handlers`; callbacks and webhooks never run.

    This class has no handlers, because an API process enqueues tasks and runs none; a worker's subclass has them.
    """

    handlers: ClassVar[Mapping[str, Callable[..., None]]] = {}
    success_callback = None  # RQ would import a callback by the name in the job's data
    failure_callback = None
    stopped_callback: ClassVar[Any] = None

    @property
    def func(self) -> Callable[..., None]:
        """The function that the task runs: the handler with its name; raises `PermissionError` if there is none."""
        name = self.func_name
        if self.instance is not None or name is None or name not in self.handlers:
            raise PermissionError(f"{name!r} is not a task of this worker.")
        return self.handlers[name]

    def send_webhooks(self, status: str | JobStatus, *, exc_string: str | None = None) -> None:
        """Send no webhook."""


class TaskList(Queue):
    """An RQ queue that can add tasks with a rate limit in a transaction of the caller, which RQ itself refuses.

    A rate limit is how many tasks of one tenant may wait in the queue or run at once; RQ holds back further tasks.
    """

    job_class = SafeJob

    def add(self, task: RqJob, pipeline: Pipeline) -> None:
        """Add commands to a transaction that enqueue a task, or hold it back while its tenant has too many tasks."""
        pipeline.sadd(self.redis_queues_keys, self.key)
        self._enqueue_rate_limited_job(task, pipeline=pipeline)


def open_queue(name: str, client: redis.Redis) -> TaskList:
    """Return RQ's queue with this name."""
    return TaskList(name, connection=client, serializer=SERIALIZER, job_class=SafeJob)


def fetch_tasks(client: redis.Redis, ids: Sequence[str]) -> list[RqJob | None]:
    """Return the tasks with these ids in order, with None for each task of which RQ has no record.

    A record may consist only of fields that a worker has written after RQ had deleted the record: this counts as no
    record. Unlike RQ's `Job.fetch_many`, this function uses no transaction, because a full server refuses transactions.
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
