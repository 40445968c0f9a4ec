"""What is observed of a task: how long its stages take, what its draws were solved by, how its job ended.

A process does one task at a time, so there is one watch. Counts are sent once, when the task is over.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import redis
from opentelemetry.context import Context, get_current
from opentelemetry.trace import SpanKind, Status, StatusCode
from rq import get_current_job

from worker.jobs.store import job_key
from worker.observability.request_context import on_behalf
from worker.observability.tracing import HORSE_SECONDS, PROPAGATOR, TRACING, wanted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from opentelemetry.trace import Span

    from glle_engine import Draw
    from worker.jobs.store import Job
    from worker.stores import Stores

log = logging.getLogger(__name__)


class Watch:
    """The watch over one task."""

    def __init__(self, here: Stores) -> None:
        self._here = here
        self._seconds: dict[str, float] = {}
        self._parent = get_current()  # for spans of other threads
        self.job: Job | None = None

    def begun(self, job: Job) -> Job:
        """Note the job that the task turned out to be of; return it."""
        self.job = job
        return job

    def spend(self, stage: str, seconds: float) -> None:
        """Note time spent on a stage; the same stage adds up."""
        self._seconds[stage] = self._seconds.get(stage, 0.0) + seconds

    @contextmanager
    def stage(self, name: str, **attributes: Any) -> Iterator[dict[str, Any]]:
        """Time what is done within, and make a span of it; what is put into the dictionary are its attributes."""
        told: dict[str, Any] = dict(attributes)
        started, began = time.perf_counter(), time.time()
        try:
            yield told
        finally:
            seconds = time.perf_counter() - started
            self.spend(name, seconds)
            TRACING.record(name, began, seconds, parent=self._parent, **told)

    def stages(self, seconds: Mapping[str, float]) -> None:
        """Note stages that were timed elsewhere, one after the other until now."""
        began = time.time() - sum(seconds.values())
        for name, took in seconds.items():
            self.spend(name, took)
            TRACING.record(name, began, took, parent=self._parent)
            began += took

    def drew(self, draws: Sequence[Draw]) -> list[str]:
        """Count draws by their solvers, and the solvers that were refused before; return the solvers."""
        solvers = [str(draw.diagnostics["solver"]) for draw in draws]
        for draw, solver in zip(draws, solvers, strict=True):
            self._here.counts.add("draws", solver)
            for refused in draw.diagnostics.get("rejected", ()):
                self._here.counts.add("draws_rejected", str(refused).partition(":")[0])
        return sorted(set(solvers))

    def over(self, seconds: float, span: Span) -> None:
        """Count the task, its job if that has ended, write a log line, and tell its span how it ended."""
        if self.job is None:
            return
        counts, job = self._here.counts, self._here.jobs.get(self.job.id) or self.job
        for stage, took in self._seconds.items():
            counts.observe("task_seconds", job.kind, stage, seconds=took)
        # Made again later, it is not the same request any more.
        if job.finished and job.round == 0 and counts.is_first(job_key(job.id), "counted"):
            lasted = (datetime.fromisoformat(job.finished) - datetime.fromisoformat(job.created)).total_seconds()
            counts.observe("job_seconds", job.kind, job.status, seconds=max(0.0, lasted))
        told = {} if job.error is None else {"problem": job.error.code}
        log.info("Task of %s job: %s after %.3f s", job.kind, job.status, seconds, extra={"fields": told})
        span.update_name(f"task {job.kind}")
        span.set_attributes({"glle.kind": job.kind, "glle.status": job.status, "glle.round": job.round})
        if job.error is not None:
            span.set_attribute("error.type", job.error.code)
            span.set_status(Status(StatusCode.ERROR, job.error.detail))


_WATCHES: list[Watch] = []  # the one of this process, while it does a task


@contextmanager
def watched(here: Stores, job: str) -> Iterator[Watch]:
    """Watch over the task of a job."""
    if not TRACING.is_on and wanted(here.settings):
        TRACING.start("glle-worker", seconds=HORSE_SECONDS)
    task = get_current_job()
    task_metadata = {} if task is None else task.meta
    started = time.perf_counter()
    with (
        on_behalf(task_metadata, job),
        TRACING.span(
            "task", parent=PROPAGATOR.extract(task_metadata, Context()), kind=SpanKind.CONSUMER, glle__job=job
        ) as span,
    ):
        watch = Watch(here)
        _WATCHES.append(watch)
        if task is not None and task.enqueued_at is not None:
            waited = (datetime.now(UTC) - task.enqueued_at).total_seconds()
            watch.stages({"queued": max(0.0, waited)})
        try:
            yield watch
        finally:
            _WATCHES.remove(watch)
            try:
                watch.over(time.perf_counter() - started, span)
            except redis.RedisError as error:
                log.warning("The task was not counted: %s", error)
            here.counts.flush()
    TRACING.flush()


@contextmanager
def stage(name: str, **attributes: Any) -> Iterator[dict[str, Any]]:
    """Time a stage of the task of this process, if it does one: see `Watch.stage`."""
    if not _WATCHES:
        yield {}
        return
    with _WATCHES[-1].stage(name, **attributes) as told:
        yield told


def fitted(stages: Mapping[str, float]) -> None:
    """Note the stages of a fit for the task of this process, if it does one: see `Watch.stages`."""
    if _WATCHES:
        _WATCHES[-1].stages(stages)


def drew(draws: Sequence[Draw]) -> list[str]:
    """Count the draws of the task of this process, if it does one: see `Watch.drew`."""
    return _WATCHES[-1].drew(draws) if _WATCHES else []
