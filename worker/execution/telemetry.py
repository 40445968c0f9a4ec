"""Telemetry of tasks and draw requests: log lines, and counters of seconds by stage and of draws by solver.

The process of a task sends the counters when the task ends. A sampler sends its counters every second.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rq import get_current_job

from worker.observability.request_context import on_behalf

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from glle_engine import Draw
    from worker.jobs.store import Job
    from worker.observability.counters import Counters
    from worker.stores import Stores

log = logging.getLogger(__name__)


class TaskTelemetry:
    """Telemetry of one task, or of one batch of draw requests in a sampler, the process that makes single draws.

    Parameters
    ----------
    kind
        For a sampler, the label of its stages in the counters; a stage is counted as soon as it ends. For a task, an
        empty text: the seconds of its stages are summed up, and counted when the task ends, with the kind of the job as
        label.

    Attributes
    ----------
    job : Job or None
        The job of the task, as last read from its record; None before the task has begun, and in a sampler.

    """

    def __init__(self, counts: Counters, kind: str) -> None:
        self.counts = counts
        self._kind = kind
        self._seconds: dict[str, float] = {}
        self._began = time.perf_counter()
        self.job: Job | None = None

    def begin(self, job: Job) -> Job:
        """Log that a task of a job begins; at level debug if the job has progress already. Return the job."""
        self.job = job
        log.log(logging.DEBUG if job.done else logging.INFO, "Task of %s job: started", job.kind)
        return job

    def end(self) -> None:
        """Count the seconds of the task's stages, and log that the task has ended.

        The log line is at level debug if the job goes on, because a large job has about one task a second.
        """
        if (job := self.job) is None:
            return
        for name, duration in self._seconds.items():
            self.counts.observe("task_seconds", job.kind, name, seconds=duration)
        fields = {} if job.error is None else {"problem": job.error.code}
        level, seconds = logging.DEBUG if job.is_open else logging.INFO, time.perf_counter() - self._began
        log.log(level, "Task of %s job: %s after %.3f s", job.kind, job.status, seconds, extra={"fields": fields})

    def record_stage(self, name: str, seconds: float) -> None:
        """Add seconds of the stage `name` to the counters: in a sampler now, in a task when the task ends (`end`)."""
        if self._kind:
            self.counts.observe("task_seconds", self._kind, name, seconds=seconds)
        else:
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds


_ACTIVE: ContextVar[TaskTelemetry | None] = ContextVar("telemetry", default=None)  # telemetry of the task in progress


@contextmanager
def observe_task(stores: Stores, job: str) -> Iterator[TaskTelemetry]:
    """Collect the telemetry of the RQ task that runs in the context; then log the task's end, and send the counters."""
    task = get_current_job()
    with observe(stores, {} if task is None else task.meta, job=job) as telemetry:
        if task is not None and task.enqueued_at is not None:
            waited = (datetime.now(UTC) - task.enqueued_at).total_seconds()
            record_stages({"queued": max(0.0, waited)})
        try:
            yield telemetry
        finally:
            telemetry.end()
            stores.counts.flush()


@contextmanager
def observe(stores: Stores, metadata: Mapping[str, str], *, job: str = "", kind: str = "") -> Iterator[TaskTelemetry]:
    """Collect telemetry during the context: `stage` and `count_draws` count for the work in this context.

    Parameters
    ----------
    metadata
        Metadata of the task or draw request (`task_metadata`), with the id of the HTTP request for log lines.
    job, kind
        Id of the job of a task, or label of a sampler's work in the counters.

    """
    with on_behalf(metadata, job):
        telemetry = TaskTelemetry(stores.counts, kind)
        token = _ACTIVE.set(telemetry)
        try:
            yield telemetry
        finally:
            _ACTIVE.reset(token)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Measure the seconds that the context takes, and count them as stage `name` of the task in progress, if any."""
    started = time.perf_counter()
    try:
        yield
    finally:
        record_stages({name: time.perf_counter() - started})


def record_stages(seconds: Mapping[str, float]) -> None:
    """Add the seconds of each stage, by its name, to the telemetry of the task or batch of requests in progress.

    The context manager `observe` collects this telemetry; outside of it, nothing is done.
    """
    if (active := _ACTIVE.get()) is None:
        return
    for name, duration in seconds.items():
        active.record_stage(name, duration)


def count_draws(draws: Sequence[Draw]) -> None:
    """Count each draw for the solver that made it, and as rejected for each solver that tried before.

    A solver's result is rejected if it fails the engine's accuracy test; another solver then makes the draw.
    """
    if (active := _ACTIVE.get()) is None:
        return
    for draw in draws:
        active.counts.add("draws", str(draw.diagnostics["solver"]))
        for rejected in draw.diagnostics.get("rejected", ()):
            active.counts.add("draws_rejected", str(rejected).partition(":")[0])
