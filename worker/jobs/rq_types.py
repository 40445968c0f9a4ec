"""RQ's queue and task, held so that they run the project's own tasks and lose none.

Tasks carry JSON only, and a worker runs a task because its name is in a table here, not because it can be imported.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from rq import Queue
from rq.intermediate_queue import IntermediateQueue
from rq.job import Job as RqJob

from worker.base.versions import queue_name
from worker.jobs import priority_scripts
from worker.records.ids import text

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis import Redis
    from redis.client import Pipeline
    from rq.job import JobStatus

NAME = queue_name()  # of the tasks that this version's workers can do; other versions have queues of their own
SERIALIZER = "json"
TASKS = frozenset({"worker.execution.tasks.fit", "worker.execution.tasks.draw", "worker.execution.tasks.analyse"})
MAINTENANCE_SECONDS = 30
TAKEN_SECONDS = 3.0  # from taking a task off the queue to its being in work: moments, unless its worker was killed


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


class Taken(IntermediateQueue):
    """The tasks that were taken off the queue and are not in work yet; one whose worker was killed is done again."""

    def set_first_seen(self, job_id: str) -> bool:
        """Note that a task is here, for a minute: it may be here again, and well, another time."""
        return bool(self.connection.set(self.get_first_seen_key(job_id), datetime.now(UTC).timestamp(), nx=True, ex=60))

    def should_be_cleaned_up(self, job_id: str) -> bool:
        """Say whether a task has been here for so long that its worker must be gone (RQ: a minute)."""
        seen = self.get_first_seen(job_id)
        return seen is not None and datetime.now(UTC) - seen > timedelta(seconds=TAKEN_SECONDS)


class SafeQueue(Queue):
    """The queue with places, and a maintenance lock that a killed worker cannot hold for 15 minutes."""

    job_class = SafeJob

    @property
    def intermediate_queue(self) -> Taken:
        """The tasks that were just taken off it."""
        return Taken(self.key, connection=self.connection)

    @property
    def count(self) -> int:
        """The number of waiting tasks."""
        return priority_scripts.length(self.connection, self.key)

    def get_job_ids(self, offset: int = 0, length: int = -1) -> list[str]:
        """Return the waiting tasks; workers take them by turns of the tenants (`worker.jobs.priority_scripts`)."""
        ids = priority_scripts.waiting(self.connection, self.key)
        return ids[offset : None if length < 0 else offset + length]

    def push_job_id(self, job_id: str, pipeline: Pipeline | None = None, at_front: bool = False) -> None:  # noqa: FBT001, FBT002 # RQ's signature
        """Put a task that is tried again in its line."""
        redis = self.connection if pipeline is None else pipeline
        redis.eval(priority_scripts.PUSH, 2, self.key, self.intermediate_queue_key, job_id, int(at_front))

    def pop_job_id(self) -> str | None:
        """Take the next task, and forget that it was taken."""
        taken = self.lmove(self.connection, self.key, None)
        if taken is None:
            return None
        id_ = text(taken[1])
        self.connection.lrem(self.intermediate_queue_key, 1, id_)
        return id_

    def remove(self, job_or_id: RqJob | str, pipeline: Pipeline | None = None) -> Any:
        """Take a waiting task out of its line; its record stays."""
        id_ = job_or_id if isinstance(job_or_id, str) else job_or_id.id
        redis = self.connection if pipeline is None else pipeline
        return redis.eval(priority_scripts.LEAVE, 2, self.key, self.intermediate_queue_key, id_)

    def empty(self) -> None:
        """Withdraw all waiting tasks."""
        if ids := self.get_job_ids():
            self.connection.eval(priority_scripts.WITHDRAW, 2, self.key, self.intermediate_queue_key, *ids)

    @classmethod
    def lmove(cls, connection: Redis, queue_key: str, timeout: int | None) -> tuple[str, bytes] | None:
        """Take the next task; without one, wait for it, for at most `timeout` seconds.

        Raises
        ------
        DequeueTimeout
            When no task came.

        """
        keys = [queue_key, Taken(queue_key, connection).key]
        if (id_ := connection.eval(priority_scripts.NEXT, 2, *keys)) is not None:
            return queue_key, id_
        if timeout is None:
            return None
        found: tuple[str, bytes] = super().lmove(connection, queue_key, timeout)
        connection.eval(priority_scripts.PUBLISH, 2, *keys)  # another worker that waits takes the next one
        return found

    def acquire_maintenance_lock(self) -> bool:
        """Take the lock, for half a minute at most."""
        return bool(self.connection.set(self.registry_cleaning_key, 1, nx=True, ex=MAINTENANCE_SECONDS))


def task(name: str) -> Callable[..., None]:
    """Return the task of this name; imported late, because the API needs the names alone."""
    from worker.execution import tasks  # noqa: PLC0415 # the API needs the names alone

    functions: dict[str, Callable[..., None]] = {
        "worker.execution.tasks.fit": tasks.fit,
        "worker.execution.tasks.draw": tasks.draw,
        "worker.execution.tasks.analyse": tasks.analyse,
    }
    return functions[name]
