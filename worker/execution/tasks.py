"""Tasks of a worker: fit a posterior, make a shard of draws or of an analysis, run an analysis, sweep files.

A task may run twice if its worker was killed. Results are stored under keys of their inputs, so the second run finds
the results of the first run, or makes equal results. An error in a task fails the job with a problem. If a Redis server
does not answer, the task waits; RQ repeats a task only if its worker was killed, or after a long wait.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import redis
from rq.timeouts import JobTimeoutException

from glle_engine.base.progress import StageClock
from glle_engine.posterior.draw_cost import draw_cost
from worker.analyses.registry import analysis_of
from worker.base.clock import now_iso
from worker.base.memory import INTERACTIVE_BYTES, limited_work
from worker.base.problems import ProblemError, internal_error, notes_in_http, problem_of, timed_out, worker_lost
from worker.base.versions import provenance
from worker.execution.context import PROGRESS_SECONDS, TaskContext, fit_values
from worker.execution.draws import draws_entry, group_size, limited_drawing, make_draws, untouched_bytes
from worker.execution.sweep import sweep
from worker.execution.telemetry import TaskTelemetry, observe_task, record_stages, stage
from worker.jobs.queue import ANALYSIS, DRAWS, FIT, MAX_RETRIES, SWEEP
from worker.jobs.store import Cancelled, Job, job_key
from worker.records.draws import DrawsSpec
from worker.records.job import INTERACTIVE
from worker.storage.posteriors import ARRAYS, PosteriorRecord, neighbors_of, recorded_parameters, spec_of
from worker.stores import Stores, process_stores

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glle_engine import Draw
    from worker.records.dataset import Dataset
    from worker.records.draws import DrawAddress

# For this long after its start, a task itself starts again if a Redis server does not answer; later, RQ repeats it.
AWAY_SECONDS = 300.0
RETRY_DELAY_SECONDS = 0.5  # pause between two attempts of a task that waits for a Redis server
BEYOND_MEMORY = 75  # exit code of an interactive task that needs the memory limit of a batch task

Work = Callable[[TaskContext], Job | None]  # works on a job; returns the job afterwards, or None if it has no record

log = logging.getLogger(__name__)


def fit(job_id: str) -> None:
    """Fit the posterior of a job, and store it."""
    _run(job_id, _fit)


def draw(job_id: str, shard: int) -> None:
    """Make one shard of a job: some of the draws of a draws job, or some parts of an analysis."""
    _run(job_id, partial(_make_shard, shard=shard))


def analyze(job_id: str) -> None:
    """Run the analysis of a job, and store its result."""
    _run(job_id, _analyze)


def sweep_files() -> None:
    """Sweep the stored files (`worker.execution.sweep`); log failures, because the next sweep tries again."""
    try:
        expired, unnamed = sweep(process_stores())
        log.info("Swept: %s expired results, %s files without a record", expired, unnamed)
    except (ProblemError, redis.RedisError) as error:
        log.warning("The stored files were not swept: %s", error)


HANDLERS: Mapping[str, Callable[..., None]] = {FIT: fit, DRAWS: draw, ANALYSIS: analyze, SWEEP: sweep_files}


def _run(job_id: str, work: Work) -> None:
    """Run `work` for a job; if a Redis server does not answer, pause, and start `work` again.

    If a server does not answer later than `AWAY_SECONDS` (or half of the job's time limit, if this is less) after the
    task began, the error is raised, and RQ repeats the task later.
    """
    stores = process_stores()
    with observe_task(stores, job_id) as telemetry:
        until = time.monotonic() + min(AWAY_SECONDS, stores.settings.job_timeout / 2)
        while True:
            try:
                _attempt(stores, telemetry, job_id, work)
                break
            except redis.RedisError as error:
                if time.monotonic() > until:
                    raise  # neither result nor problem can be recorded, so RQ repeats the task
                log.warning("Job %s waits for a Redis server: %s", job_id, error)
                with suppress(redis.RedisError, Cancelled):
                    stores.jobs.stage(job_id, "waiting for a server")
                time.sleep(RETRY_DELAY_SECONDS)


def _attempt(stores: Stores, telemetry: TaskTelemetry, job_id: str, work: Work) -> None:
    """Set a job to running, run `work` with limited memory, and record an error as the job's problem.

    Raises `redis.RedisError`. If an interactive task needs more memory, the process exits with `BEYOND_MEMORY`.
    """
    try:
        job = telemetry.begin(stores.jobs.start(job_id))
        max_bytes = INTERACTIVE_BYTES if job.queue == INTERACTIVE else None
        with limited_work(untouched_bytes(_points(stores, job)), max_bytes) as is_lower:
            try:
                telemetry.job = work(TaskContext(stores, job)) or job
            except MemoryError:
                if not is_lower():
                    raise
                os._exit(BEYOND_MEMORY)  # `worker.execution.worker.TaskWorker` queues the task as a batch task
    except Cancelled:
        cancelled = stores.jobs.finish_cancel(job_id)
        if telemetry.job is not None:
            telemetry.job = cancelled or telemetry.job
    except redis.RedisError:
        raise
    except Exception as error:  # noqa: BLE001 # logged, and recorded as the job's problem
        telemetry.job = _fail(stores, job_id, error) or telemetry.job


def _points(stores: Stores, job: Job) -> int:
    """Return the number of points of a job's posterior, or else of the job's data set; 0 if neither is stored."""
    record: PosteriorRecord | Dataset | None = None
    if job.posterior is not None:
        record = stores.posteriors.get(job.posterior)
    if record is None and job.dataset is not None and job.dataset != job.inline:
        record = stores.datasets.get(job.dataset)
    return 0 if record is None else record.n


def _fail(stores: Stores, job_id: str, error: Exception) -> Job | None:
    """Fail a job with the problem that describes the error of its task; return the job, or None if it has no record.

    If this fails, too, for example by a timeout, the second error is recorded instead: if it were raised, RQ would
    repeat the task.
    """
    try:
        timeout = stores.settings.job_timeout
        problem = timed_out(timeout) if isinstance(error, JobTimeoutException) else problem_of(error)
        if problem.is_internal:
            log.error("Job %s failed", job_id, exc_info=error)
        return stores.jobs.fail(job_id, problem)
    except redis.RedisError:
        raise
    except Exception as failure:
        log.exception("The problem of job %s could not be recorded", job_id)
        return stores.jobs.fail(job_id, internal_error(failure))


def _fit(context: TaskContext) -> Job | None:
    stores, job = context.stores, context.job
    if stores.posteriors.exists(job.subject):  # an earlier run of this task wrote the posterior and was then killed
        return stores.jobs.succeed(job.id, done=1, total=1)
    dataset, parameters = job.spec["dataset"], job.spec["spec"]
    neighbors = neighbors_of(parameters)
    values, names = stores.datasets.values(dataset), stores.datasets.fetch(dataset).names
    clock = StageClock(context.on_progress)
    posterior = fit_values(stores, values, parameters, clock)
    stages = clock.stop()
    record_stages(stages)
    context.on_progress(1, 1, "storing")
    with stage("storing"):
        file, sha256 = stores.posteriors.write(posterior)
    arrays = posterior.arrays()
    notes = tuple(note.with_names(names) for note in posterior.notes)
    record = PosteriorRecord(
        id=job.subject,
        dataset=dataset,
        n=posterior.n_points,
        d=values.shape[1],
        spec=recorded_parameters(spec_of(parameters), neighbors),  # as requested; the fit replaces noise='auto'
        diagnostics={**posterior.diagnostics.to_dict(), "notes": notes_in_http(notes)},
        eigenvalues=[float(value) for value in posterior.eigenvalues],
        seconds=round(sum(stages.values()), 6),
        stages={stage: round(seconds, 6) for stage, seconds in stages.items()},
        arrays={name: {"shape": list(a.shape), "dtype": a.dtype.name} for name, a in arrays.items()},
        nbytes=sum(array.nbytes for array in arrays.values()),
        draw_cost=draw_cost(posterior).to_dict(),
        provenance={**provenance(), ARRAYS: sha256},
        job=job.id,
        file=file,
        created=now_iso(),
        tenant=job.tenant,
    )
    if not stores.posteriors.record(record, while_running=job_key(job.id), max_bytes=stores.max_bytes(job.tenant)):
        for source in record.datasets:
            stores.datasets.fetch(source)  # raises an error if the data set was deleted
        raise Cancelled
    return stores.jobs.succeed(job.id, done=1, total=1)  # a short fit has not written its progress yet


def _make_shard(context: TaskContext, shard: int) -> Job | None:
    task = _Shard(context, shard)
    return _draw_shard(task) if context.job.kind == "draws" else _make_parts(task)


class _Shard:
    """Reports the progress of a task that makes one shard: one of the pieces into which a large job is divided."""

    def __init__(self, context: TaskContext, number: int) -> None:
        self.context = context
        self.stores = context.stores
        self.job = context.job
        self.number = number
        self.size = 0 if self.job.sharding is None else self.job.sharding.shard_size(number)
        self._reported = time.monotonic()

    def begin(self, stage: str, **progress: int) -> None:
        """Write the job's stage, unless another task of the job has written it.

        The first task of the job also enqueues the other tasks.
        """
        if self.job.stage != stage:
            self.stores.jobs.stage(self.job.id, stage, **progress)
        if self.number == 0 and self.job.sharding is not None and self.job.sharding.shards > 1:
            self.stores.queue.enqueue_others(self.job)

    def report(self, count: int) -> Job | None:
        """Write the number of finished steps of the shard to the job's record, and return the job.

        When all shards of a draws job are finished, this also sets the job's status to ``succeeded``. An analysis goes
        on: one more task combines its parts. Raises `worker.jobs.store.Cancelled` if the job was cancelled, has ended
        otherwise, or has no record.
        """
        self._reported = time.monotonic()
        return self.stores.jobs.advance(self.job.id, self.number, count)

    def report_progress(self, count: int) -> None:
        """Report the number of finished steps, unless the last report is less than `PROGRESS_SECONDS` old."""
        if time.monotonic() - self._reported >= PROGRESS_SECONDS:
            self.report(count)


def _draw_shard(shard: _Shard) -> Job | None:
    """Make the draws of one task (a shard), and store them as one result, unless it is stored; return the job."""
    stores, context, job, spec = shard.stores, shard.context, shard.job, DrawsSpec.from_dict(shard.job.spec)
    if spec.is_auto:
        spec = spec.at(_calibrated_scale(context))
    shard.begin("drawing")
    key, keys = spec.result_key(job.subject, shard.number), spec.shard_keys(shard.number)
    if not stores.results.contains([key])[0]:
        entry = draws_entry(_make_draws(shard, keys))
        if not context.store(key, entry, [job.subject]):
            stores.posteriors.fetch(job.subject)  # raises posterior-not-found, because the posterior was deleted
    return shard.report(len(keys))


def _make_draws(shard: _Shard, keys: list[DrawAddress]) -> list[tuple[DrawAddress, Draw, float]]:
    """Make the draws `keys` of one task; return (key, draw, seconds) for each, and report progress every few draws.

    The last draw is not reported here, because the task is only complete when the result is stored.
    """
    posterior = shard.context.posterior
    drawn: list[tuple[DrawAddress, Draw, float]] = []
    with limited_drawing(posterior):
        size = group_size(posterior)
        for start in range(0, len(keys), size):
            group = keys[start : start + size]
            draws, seconds = make_draws(posterior, group)
            drawn += [(key, draw, seconds) for key, draw in zip(group, draws, strict=True)]
            shard.report_progress(min(len(drawn), len(keys) - 1))
    return drawn


def _make_parts(shard: _Shard) -> Job | None:
    """Make those parts of an analysis that this task has to make, unless they are stored already; return the job.

    Another task combines all parts. The last resample (embedding of a random half of the data) of a part is reported
    only when the part is stored.
    """
    job, parts = shard.job, shard.job.parts
    assert parts is not None
    counted = 0  # resamples in the parts that are stored
    upcoming = 0  # resamples of the current part that are reported before the part is stored

    def report_within(done: int, _total: int, _stage: str) -> None:
        shard.report_progress(counted + min(done, upcoming))

    context = replace(shard.context, report=report_within)
    shard.begin(parts.stage, total=parts.total)
    makers = analysis_of(job).parts()
    with stage(parts.stage):
        for number in parts.parts(shard.number):
            upcoming = parts.sizes[number] - 1
            makers[number].make(context)
            counted += parts.sizes[number]
            shard.report(counted)
    return job


def _analyze(context: TaskContext) -> Job | None:
    stores, job = context.stores, context.job
    spec = analysis_of(job)
    result = None
    if job.parts is not None and stores.jobs.unfinished_shards(job):
        raise ProblemError(worker_lost(job.id, MAX_RETRIES + 1))  # a task that makes some of the parts has failed in RQ
    if not stores.has_result(spec, job.subject):
        with stage("analyzing"):
            result = spec.run(context)
    stores.jobs.progress(job.id, spec.total, spec.total, "storing")
    if result is not None:
        context.keep_result(spec, result)
    return stores.jobs.succeed(job.id)


def _calibrated_scale(context: TaskContext) -> float:
    """Return the calibrated scale of draws of a job's posterior; calibrate the posterior if it is not calibrated yet.

    The scale is a factor on the posterior covariance.
    """
    calibration = context.stores.posteriors.calibration(context.subject)
    if calibration is None:
        with stage("calibrating"):
            calibration = replace(context, stage_prefix="calibrating: ").calibration().meta
    return float(calibration["scale"])
