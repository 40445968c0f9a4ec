"""The ids of the request and the job in progress: tasks take them to the workers, and each log line has them."""

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
    """Return the request id for a task that is enqueued now."""
    request = REQUEST_ID.get()
    return {"request_id": request} if request else {}


@contextmanager
def on_behalf(task_metadata: Mapping[str, str], job: str) -> Iterator[None]:
    """Give log lines and enqueued tasks the ids of a job and of the request in `task_metadata`."""
    request_token = REQUEST_ID.set(str(task_metadata.get("request_id", "")))
    job_token = JOB_ID.set(job)
    try:
        yield
    finally:
        JOB_ID.reset(job_token)
        REQUEST_ID.reset(request_token)
