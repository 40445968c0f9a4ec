"""RQ's job class restricted to the project's tasks, and the two queues.

Tasks carry JSON only. A worker runs a task because its name is in a table of handlers, never because it can be
imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from rq import Queue
from rq.job import Job as RqJob

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redis import Redis
    from rq.job import JobStatus

INTERACTIVE, BATCH = "glle-interactive", "glle-batch"
QUEUES = (INTERACTIVE, BATCH)
SERIALIZER = "json"
FIT, DRAWS, ANALYSIS = "fit", "draws", "analysis"  # the names of the tasks


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


def open_queue(name: str, client: Redis) -> Queue:
    """Return a queue."""
    return Queue(name, connection=client, serializer=SERIALIZER, job_class=SafeJob)


def fetch_tasks(client: Redis, ids: list[str]) -> list[RqJob | None]:
    """Return RQ's record of each task, or None."""
    return SafeJob.fetch_many(ids, connection=client, serializer=SERIALIZER)
