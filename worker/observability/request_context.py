"""Context variables with the ids of the present request and job, for log lines and for tasks that are enqueued."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
REQUEST_MS: ContextVar[int] = ContextVar("request_ms", default=0)  # begin of the request, ms since 1970; 0: unknown
JOB_ID: ContextVar[str] = ContextVar("job_id", default="")


def task_metadata() -> dict[str, str]:
    """Return the metadata for RQ's record of a new task: the id of the present request as ``request_id``, if any."""
    request = REQUEST_ID.get()
    return {"request_id": request} if request else {}


@contextmanager
def on_behalf(task_metadata: Mapping[str, str], job: str) -> Iterator[None]:
    """While the context lasts, log lines have the id of a job, and the id of the HTTP request that asked for its work.

    Tasks that are enqueued meanwhile also get the id of the request. `job` is the id of the job; `task_metadata` has
    the id of the request as ``request_id``.
    """
    request_token = REQUEST_ID.set(str(task_metadata.get("request_id", "")))
    job_token = JOB_ID.set(job)
    try:
        yield
    finally:
        JOB_ID.reset(job_token)
        REQUEST_ID.reset(request_token)
