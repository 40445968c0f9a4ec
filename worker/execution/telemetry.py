"""Telemetry of a task: seconds by stage, draws by solver, and the end of the job, as counts, spans and a log line.

A process runs one task at a time. Counts are sent once, when the task has ended.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import redis
from opentelemetry.context import Context, get_current
from opentelemetry.trace import SpanKind, Status, StatusCode
from rq import get_current_job

from worker.observability.request_context import on_behalf
from worker.observability.tracing import HORSE_SECONDS, PROPAGATOR, TRACING, has_collector

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from opentelemetry.trace import Span

    from glle_engine import Draw
    from worker.jobs.store import Job
    from worker.stores import Stores

log = logging.getLogger(__name__)


class TaskTelemetry:
    """Telemetry of one task.

    Attributes
    ----------
    job : Job or None
        The job of the task, once it has started.
    is_latest : bool
        Whether `job` is the job after the task.

    """

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._seconds: dict[str, float] = {}
        self._parent = get_current()  # for spans of other threads
        self.job: Job | None = None
        self.is_latest = False

    def begin(self, job: Job) -> Job:
        """Log the start of the work on a job; at level debug if other tasks of the job have begun. Return the job."""
        self.job = job
        log.log(logging.DEBUG if job.done else logging.INFO, "Task of %s job: started", job.kind)
        return job

    @contextmanager
    def stage(self, name: str, **attributes: Any) -> Iterator[dict[str, Any]]:
        """Time a stage and record its span; yield the span's attributes, which the caller may extend."""
        started, began = time.perf_counter(), time.time()
        try:
            yield attributes
        finally:
            self._record(name, began, time.perf_counter() - started, **attributes)

    def record_stages(self, seconds: Mapping[str, float]) -> None:
        """Record consecutive stages that were timed elsewhere and end now."""
        began = time.time() - sum(seconds.values())
        for name, duration in seconds.items():
            self._record(name, began, duration)
            began += duration

    def count_draws(self, draws: Sequence[Draw]) -> list[str]:
        """Count draws by solver, and the solvers that were rejected; return the solvers."""
        solvers = [str(draw.diagnostics["solver"]) for draw in draws]
        for draw, solver in zip(draws, solvers, strict=True):
            self._stores.counts.add("draws", solver)
            for rejected in draw.diagnostics.get("rejected", ()):
                self._stores.counts.add("draws_rejected", str(rejected).partition(":")[0])
        return sorted(set(solvers))

    def count_stages(self, kind: str) -> None:
        """Count the seconds of the stages."""
        for stage, duration in list(self._seconds.items()):  # a thread that writes draws may add a stage
            self._stores.counts.observe("task_seconds", kind, stage, seconds=duration)

    def finish(self, seconds: float, span: Span | None) -> None:
        """Count the task, write a log line, and complete the span.

        A task of a job that goes on has its line at level debug, because a large job has one a second.
        """
        if self.job is None:
            return
        if not self.is_latest:
            self.job = self._stores.jobs.get(self.job.id) or self.job
        job = self.job
        self.count_stages(job.kind)
        fields = {} if job.error is None else {"problem": job.error.code}
        level = logging.DEBUG if job.is_open else logging.INFO
        log.log(level, "Task of %s job: %s after %.3f s", job.kind, job.status, seconds, extra={"fields": fields})
        if span is not None:
            span.update_name(f"task {job.kind}")
            span.set_attributes({"glle.kind": job.kind, "glle.status": job.status, "glle.round": job.round})
            if job.error is not None:
                span.set_attribute("error.type", job.error.code)
                span.set_status(Status(StatusCode.ERROR, job.error.detail))

    def _record(self, stage: str, began: float, seconds: float, **attributes: Any) -> None:
        self._seconds[stage] = self._seconds.get(stage, 0.0) + seconds
        TRACING.record(stage, began, seconds, parent=self._parent, **attributes)


_ACTIVE: list[TaskTelemetry] = []  # those of the running task and of requests between its lane groups


@dataclass(frozen=True)
class TaskOrigin:
    """The request id and trace of the request that enqueued a task, and the time, if it is known."""

    metadata: Mapping[str, str]
    enqueued: str | None = None

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make this the origin of the tasks within, in a process that counts by itself."""
        token = _ORIGIN.set(self)
        try:
            yield
        finally:
            _ORIGIN.reset(token)


_ORIGIN: ContextVar[TaskOrigin | None] = ContextVar("origin", default=None)


def _origin_in_work_horse() -> TaskOrigin:
    """Return the origin of RQ's task."""
    task = get_current_job()
    if task is None:
        return TaskOrigin({})
    return TaskOrigin(task.meta, None if task.enqueued_at is None else task.enqueued_at.isoformat())


@contextmanager
def observe_task(stores: Stores, job: str) -> Iterator[TaskTelemetry]:
    """Observe the task of a job; a work-horse sends its counts and spans at the end."""
    resident = _ORIGIN.get()
    origin = resident or _origin_in_work_horse()
    started = time.perf_counter()
    with _observed(stores, origin, job) as (telemetry, span):
        if origin.enqueued is not None:
            waited = (datetime.now(UTC) - datetime.fromisoformat(origin.enqueued)).total_seconds()
            telemetry.record_stages({"queued": max(0.0, waited)})
        try:
            yield telemetry
        finally:
            try:
                telemetry.finish(time.perf_counter() - started, span)
            except redis.RedisError as error:
                log.warning("The task was not counted: %s", error)
            if resident is None:
                stores.counts.flush()
    if resident is None:
        TRACING.flush()


@contextmanager
def observe_requests(stores: Stores, metadata: Mapping[str, str]) -> Iterator[None]:
    """Observe draws that clients request one by one; `metadata` is that of the first request."""
    with _observed(stores, TaskOrigin(metadata), "") as (telemetry, span):
        if span is not None:
            span.update_name("task draws")
        try:
            yield
        finally:
            telemetry.count_stages("draws")


@contextmanager
def _observed(stores: Stores, origin: TaskOrigin, job: str) -> Iterator[tuple[TaskTelemetry, Span | None]]:
    """Open the span of a task, and make its telemetry the active one."""
    if not TRACING.is_on and has_collector():
        TRACING.start("glle-worker", seconds=HORSE_SECONDS)
    parent = PROPAGATOR.extract(origin.metadata, Context())
    with (
        on_behalf(origin.metadata, job),
        TRACING.span("task", parent=parent, kind=SpanKind.CONSUMER, glle__job=job) as span,
    ):
        telemetry = TaskTelemetry(stores)
        _ACTIVE.append(telemetry)
        try:
            yield telemetry, span
        finally:
            _ACTIVE.remove(telemetry)


@contextmanager
def stage(name: str, **attributes: Any) -> Iterator[dict[str, Any]]:
    """Time a stage of the running task, if any: see `TaskTelemetry.stage`."""
    if not _ACTIVE:
        yield {}
        return
    with _ACTIVE[-1].stage(name, **attributes) as extended:
        yield extended


def record_stages(seconds: Mapping[str, float]) -> None:
    """Record stages of the running task, if any: see `TaskTelemetry.record_stages`."""
    if _ACTIVE:
        _ACTIVE[-1].record_stages(seconds)


def count_draws(draws: Sequence[Draw]) -> list[str]:
    """Count draws of the running task, if any: see `TaskTelemetry.count_draws`."""
    return _ACTIVE[-1].count_draws(draws) if _ACTIVE else []
