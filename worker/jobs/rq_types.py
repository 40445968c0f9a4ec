"""RQ's queue and job classes, restricted to the project's tasks and hardened against lost tasks.

Tasks carry JSON only. A worker runs a task because its name is in a table of handlers, never because it can be
imported.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from rq import Queue
from rq.intermediate_queue import IntermediateQueue
from rq.job import Job as RqJob
from rq.registry import StartedJobRegistry

from worker.base.versions import queue_name
from worker.jobs import priority_scripts
from worker.records.ids import text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redis import Redis
    from redis.client import Pipeline
    from rq.job import JobStatus

NAME = queue_name()  # each version and numerics kind has a queue with the long tasks that its workers can do
SERIALIZER = "json"
FIT, DRAWS, ANALYSIS = "fit", "draws", "analysis"  # the names of the tasks
MAINTENANCE_SECONDS = 30
TAKEN_SECONDS = 3.0  # from dequeuing a task to its start: milliseconds, unless its worker was killed


class SafeJob(RqJob):
    """An RQ job that calls one of its `handlers` or refuses; callbacks and webhooks never run.

    The base class has no handlers: an API process enqueues tasks and runs none.
    """

    handlers: ClassVar[Mapping[str, Callable[..., None]]] = {}
    success_callback = None  # names of functions in the job's data are never followed
    failure_callback = None
    stopped_callback = None

    def send_webhooks(self, status: str | JobStatus, *, exc_string: str | None = None) -> None:
        """Send nothing."""

    def _execute(self) -> Any:
        name = self.func_name
        if self.instance is not None or name is None or name not in self.handlers:
            raise PermissionError(f"{name!r} is not a task of this worker.")
        return self.handlers[name](*self.args, **self.kwargs)


class TakenTasks(IntermediateQueue):
    """Tasks that a worker has dequeued and not started; those of a killed worker are enqueued again."""

    def set_first_seen(self, job_id: str) -> bool:
        """Note for a minute that a task is in the list; a later, regular visit starts anew."""
        return bool(self.connection.set(self.get_first_seen_key(job_id), datetime.now(UTC).timestamp(), nx=True, ex=60))

    def should_be_cleaned_up(self, job_id: str) -> bool:
        """Return whether a task has been in the list so long that its worker must be dead (RQ: a minute)."""
        seen = self.get_first_seen(job_id)
        return seen is not None and datetime.now(UTC) - seen > timedelta(seconds=TAKEN_SECONDS)


class SafeQueue(Queue):
    """A fair queue with priorities, whose maintenance lock outlives a killed worker by half a minute at most."""

    job_class = SafeJob

    @property
    def intermediate_queue(self) -> TakenTasks:
        """The tasks that were just dequeued."""
        return TakenTasks(self.key, connection=self.connection)

    @property
    def count(self) -> int:
        """The number of waiting tasks."""
        return priority_scripts.length(self.connection, self.key)

    def get_job_ids(self, offset: int = 0, length: int = -1) -> list[str]:
        """Return the waiting tasks in order of arrival; tenants take turns (`worker.jobs.priority_scripts`)."""
        ids = priority_scripts.waiting(self.connection, self.key)
        return ids[offset : None if length < 0 else offset + length]

    def push_job_id(self, job_id: str, pipeline: Pipeline | None = None, at_front: bool = False) -> None:  # noqa: FBT001, FBT002 # RQ's signature
        """Enqueue a task that is retried."""
        redis = self.connection if pipeline is None else pipeline
        redis.eval(priority_scripts.PUSH, 2, self.key, self.intermediate_queue_key, job_id, int(at_front))

    def pop_job_id(self) -> str | None:
        """Dequeue the next task without an entry in the list of taken tasks."""
        taken = self.lmove(self.connection, self.key, None)
        if taken is None:
            return None
        id_ = text(taken[1])
        self.connection.lrem(self.intermediate_queue_key, 1, id_)
        return id_

    def remove(self, job_or_id: RqJob | str, pipeline: Pipeline | None = None) -> Any:
        """Remove a waiting task from its line; its record stays."""
        id_ = job_or_id if isinstance(job_or_id, str) else job_or_id.id
        redis = self.connection if pipeline is None else pipeline
        return redis.eval(priority_scripts.LEAVE, 2, self.key, self.intermediate_queue_key, id_)

    def empty(self) -> None:
        """Withdraw all waiting tasks."""
        if ids := self.get_job_ids():
            self.connection.eval(priority_scripts.WITHDRAW, 2, self.key, self.intermediate_queue_key, *ids)

    @classmethod
    def lmove(cls, connection: Redis, queue_key: str, timeout: int | None) -> tuple[str, bytes] | None:
        """Dequeue the next task, or wait for one; raises `DequeueTimeout` after `timeout` seconds."""
        keys = [queue_key, TakenTasks(queue_key, connection).key]
        if (id_ := connection.eval(priority_scripts.NEXT, 2, *keys)) is not None:
            return queue_key, id_
        if timeout is None:
            return None
        taken: tuple[str, bytes] = super().lmove(connection, queue_key, timeout)
        connection.eval(priority_scripts.PUBLISH, 2, *keys)  # another waiting worker takes the next task
        return taken

    def acquire_maintenance_lock(self) -> bool:
        """Acquire the lock for half a minute at most."""
        return bool(self.connection.set(self.registry_cleaning_key, 1, nx=True, ex=MAINTENANCE_SECONDS))


def open_queue(name: str, client: Redis) -> SafeQueue:
    """Return a queue of this or another version."""
    return SafeQueue(name, connection=client, serializer=SERIALIZER)


def started_tasks(name: str, client: Redis) -> StartedJobRegistry:
    """Return RQ's registry of the started tasks of a queue."""
    return StartedJobRegistry(queue=open_queue(name, client), job_class=SafeJob)


def script_keys(name: str) -> list[str]:
    """Return the first two keys of `worker.jobs.priority_scripts`: the queue's list and that of taken tasks."""
    key = f"{SafeQueue.redis_queue_namespace_prefix}{name}"
    return [key, IntermediateQueue.get_intermediate_queue_key(key)]
