"""Where work comes from: the request's id and trace, which travel with a task to the worker that does it."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from worker.observability.tracing import TRACING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
JOB_ID: ContextVar[str] = ContextVar("job_id", default="")


def task_metadata() -> dict[str, str]:
    """Return what a task that is enqueued now takes along: small strings, JSON-able."""
    request = REQUEST_ID.get()
    return {**({"request_id": request} if request else {}), **TRACING.carrier()}


@contextmanager
def on_behalf(task_metadata: Mapping[str, str], job: str) -> Iterator[None]:
    """Work on a job on behalf of the request whose luggage this is: log lines and further tasks have its id."""
    request = REQUEST_ID.set(str(task_metadata.get("request_id", "")))
    here = JOB_ID.set(job)
    try:
        yield
    finally:
        JOB_ID.reset(here)
        REQUEST_ID.reset(request)
