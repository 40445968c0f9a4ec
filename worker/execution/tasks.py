"""The tasks of a worker: fit a posterior, make shards of draws, run an analysis.

A task may run twice if its worker was killed. Its results are named by their content, so the second run finds or
repeats those of the first. An error in a task fails its job with a problem. RQ retries only a task whose worker was
killed, and a task waits for a Redis server that does not answer.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import redis
from rq.timeouts import JobTimeoutException

import glle_engine
from glle_engine import Draw, FitSpec, Posterior
from glle_engine.base.progress import StageClock
from worker.analyses.registry import analysis_of
from worker.base.clock import now_iso
from worker.base.numerics import provenance
from worker.base.problems import internal_error, problem_of, timed_out
from worker.base.versions import require_own_numbers
from worker.execution.background_writer import BackgroundWriter
from worker.execution.context import (
    PROGRESS_SECONDS,
    LongWorkError,
    TaskContext,
    cache_result,
    load_or_fit,
    progress_writer,
)
from worker.execution.draws import group_size, make_draws, store_draws, uncached_group
from worker.execution.resident import RESIDENT
from worker.execution.telemetry import TaskTelemetry, observe_task, record_stages, stage
from worker.jobs.rq_types import ANALYSIS, DRAWS, FIT
from worker.jobs.store import Cancelled, Job, job_key
from worker.records.draws import DrawKey, DrawsSpec
from worker.storage.datasets import not_found
from worker.storage.posteriors import ARRAYS, PosteriorRecord
from worker.stores import Stores, process_stores

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

AWAY_SECONDS = 300.0  # a task waits so long for a server; then its worker is free, and RQ retries the task
AGAIN_SECONDS = 0.5

log = logging.getLogger(__name__)


def fit(job_id: str) -> None:
    """Fit the posterior of a job."""
    _run(job_id, _fit)


def draw(
    job_id: str,
    round_: int,
    shard: int,
    *,
    between_groups: Callable[[], object] = lambda: None,
    is_repeated: bool = True,
) -> None:
    """Make the draws of a shard, and enqueue the next shard.

    Parameters
    ----------
    between_groups
        Called between two lane groups.
    is_repeated
        Whether the task may have run before; then it gives back the shards that it had taken.

    """
    work = partial(_draw, round_=round_, shard=shard, between_groups=between_groups, is_repeated=is_repeated)
    _run(job_id, work)


def analyse(job_id: str, round_: int) -> None:
    """Run the analysis of a job."""
    _run(job_id, partial(_analyse, round_=round_))


HANDLERS: Mapping[str, Callable[..., None]] = {FIT: fit, DRAWS: draw, ANALYSIS: analyse}


def _run(job_id: str, work: Callable[[Stores, Job], None]) -> None:
    """Run a task; while a server does not answer, wait and start again."""
    stores = process_stores()
    with observe_task(stores, job_id) as telemetry:
        until = time.monotonic() + min(AWAY_SECONDS, stores.settings.job_timeout / 2)
        while True:
            try:
                _attempt(stores, telemetry, job_id, work)
                break
            except redis.RedisError as error:
                if time.monotonic() > until:
                    raise  # no result can be recorded: RQ retries
                log.warning("Job %s waits for a Redis server: %s", job_id, error)
                with suppress(redis.RedisError, Cancelled):
                    stores.jobs.stage(job_id, "waiting for a server")
                time.sleep(AGAIN_SECONDS)
    if telemetry.job is not None:
        _clean_up(stores, telemetry.job)


def _clean_up(stores: Stores, job: Job) -> None:
    """Remove the results of a task whose data set or posterior was deleted meanwhile.

    A deletion removes the record first and the results last; a task looks up the record last. So the later of the two
    removes the results.
    """
    if job.posterior is not None and not stores.posteriors.exists(job.posterior):
        stores.posteriors.forget(job.posterior, is_drawn=job.kind != "fit")  # a fit makes no draws
    if job.dataset is not None and not job.is_inline and stores.datasets.get(job.dataset) is None:
        stores.cache.forget(job.dataset)


def _attempt(stores: Stores, telemetry: TaskTelemetry, job_id: str, work: Callable[[Stores, Job], None]) -> None:
    """Start a job, work on it, and record its end; raises `redis.RedisError` if a server does not answer."""
    try:
        job = telemetry.job = stores.jobs.start(job_id)
        require_own_numbers(f"Job {job_id}", job.numbers)
        work(stores, job)
    except Cancelled:
        stores.jobs.finish_cancel(job_id)
    except LongWorkError:
        stores.recovery.make_long(job_id)
    except redis.RedisError:
        raise
    except Exception as error:  # noqa: BLE001 # logged, and recorded as the job's problem
        _fail(stores, job_id, error)


def _fail(stores: Stores, job_id: str, error: Exception) -> None:
    """Record the problem that ended a job.

    An error while recording, such as a time-out, is recorded instead: RQ would run a task that raises four times.
    """
    try:
        timeout = stores.settings.job_timeout
        problem = timed_out(timeout) if isinstance(error, JobTimeoutException) else problem_of(error)
        if problem.is_internal:
            log.error("Job %s failed", job_id, exc_info=error)
        stores.jobs.fail(job_id, problem)
    except redis.RedisError:
        raise
    except Exception as failure:
        log.exception("The problem of job %s could not be recorded", job_id)
        stores.jobs.fail(job_id, internal_error(failure))


def _fit(stores: Stores, job: Job) -> None:
    dataset, spec = job.spec["dataset"], FitSpec.from_dict(job.spec["spec"])
    values = stores.datasets.values(dataset)
    clock = StageClock(progress_writer(stores, job))
    posterior = glle_engine.fit(values, spec, on_progress=clock)
    stages = clock.stop()
    record_stages(stages)
    stores.jobs.stage(job.id, "caching")
    with stage("caching"):
        sha256 = stores.posteriors.cache(job.subject, posterior, sum(stages.values()))
    arrays = posterior.arrays()
    record = PosteriorRecord(
        id=job.subject,
        dataset=dataset,
        n=posterior.n_points,
        d=values.shape[1],
        spec=posterior.spec.to_dict(),
        diagnostics=posterior.diagnostics.to_dict(),
        eigenvalues=[float(value) for value in posterior.eigenvalues],
        seconds=round(sum(stages.values()), 6),
        stages={stage: round(seconds, 6) for stage, seconds in stages.items()},
        arrays={name: {"shape": list(a.shape), "dtype": a.dtype.name} for name, a in arrays.items()},
        nbytes=sum(array.nbytes for array in arrays.values()),
        provenance={**provenance(), **({ARRAYS: sha256} if job.digests else {})},
        job=job.id,
        created=now_iso(),
        tenant=job.tenant,
    )
    if not stores.posteriors.record(record, while_running=job_key(job.id)):
        raise Cancelled
    if stores.datasets.get(dataset) is None:  # its deletion preceded the posterior's record
        stores.posteriors.delete(record)
        raise not_found(dataset)
    RESIDENT.keep(record.arrays_id, posterior, record.nbytes)
    stores.jobs.succeed(job.id)


def _draw(
    stores: Stores, job: Job, *, round_: int, shard: int, between_groups: Callable[[], object], is_repeated: bool
) -> None:
    """Make a shard, and more waiting shards of the job while time is left: a task costs tens of milliseconds."""
    if job.round != round_:  # reopened since: another task has this shard
        return
    spec = DrawsSpec.from_dict(job.spec)
    if spec.is_auto:
        spec = spec.at(_calibrated_scale(stores, job))
    until = time.monotonic() + stores.settings.shard_seconds
    if is_repeated:
        stores.queue.give_back(job, taker=shard)
    stores.jobs.stage(job.id, "drawing")
    with BackgroundWriter() as writer:
        shards = _ShardMaker(stores, job, spec, writer, between_groups)
        following: int | None = shard
        while following is not None:
            began, read_before = time.monotonic(), shards.read_seconds
            shards.make(following)
            writer.flush()
            ended = time.monotonic()
            drawing = ended - began - (shards.read_seconds - read_before)
            # Assumes that the next shard takes as long. A posterior that took long to read is used for as long.
            has_time = ended + drawing < until + 2 * shards.read_seconds
            following = stores.queue.take_shard(job, taker=shard) if has_time else None


@dataclass
class _ShardMaker:
    """Makes shards of a draws job one after the other; results and progress are written during the next draws."""

    stores: Stores
    job: Job
    spec: DrawsSpec
    writer: BackgroundWriter
    between_groups: Callable[[], object]
    read_seconds: float = 0.0
    written: float = float("-inf")  # time of the last write of draws and progress

    @cached_property
    def record(self) -> PosteriorRecord:
        return self.stores.posteriors.fetch(self.job.subject)

    @cached_property
    def posterior(self) -> Posterior:
        """The posterior, read for the first missing draw; sets `read_seconds`."""
        began = time.monotonic()
        posterior = load_or_fit(self.stores, self.job, self.record)
        self.read_seconds = time.monotonic() - began
        return posterior

    def make(self, shard: int) -> None:
        """Make the uncached draws of a shard, open the next shard, and write progress."""
        stores, job, spec, submit = self.stores, self.job, self.spec, self.writer.submit
        keys, keep = spec.shard_keys(shard), stores.cache.tier_by_size(spec.nbytes)
        arrays_id = self.record.arrays_id
        present = stores.draws.contains(arrays_id, keys)
        size = len(keys) if all(present) else group_size(self.posterior)
        if shard == 0:  # the posterior is cached now, so the other chains need not fit it
            for other in range(1, min(job.chains, spec.shards)):
                submit(partial(stores.queue.enqueue_shard, job, other))
        made: dict[DrawKey, Draw] = {}
        for start in range(0, len(keys), size):
            done = min(start + size, len(keys))
            group = zip(keys[start:done], present[start:done], strict=True)
            if missing := [key for key, is_present in group if not is_present]:
                if spec.total == 1:
                    missing = uncached_group(stores.draws, arrays_id, keys[0], size)
                draws, seconds = make_draws(self.posterior, missing)
                made.update(zip(missing, draws, strict=True))
            if done == len(keys) and spec.shards > job.chains:  # the first shard has not opened all
                submit(partial(stores.queue.open_next, job, shard))
            now = time.monotonic()
            if done == len(keys) or now - self.written >= PROGRESS_SECONDS:
                if made:
                    submit(partial(store_draws, stores.draws, arrays_id, [*made], [*made.values()], seconds, keep))
                submit(partial(stores.jobs.advance, job.id, job.round, shard, done))
                made, self.written = {}, now
            self.between_groups()


def _analyse(stores: Stores, job: Job, *, round_: int) -> None:
    if job.round != round_:  # reopened since: another task has it
        return
    spec = analysis_of(job)
    require_own_numbers(f"The result of job {job.id}", spec.engine)
    result = None
    if not all(stores.cache.contains([spec.cache_key(job.subject)])):
        with stage("analysing"):
            result = spec.run(TaskContext(stores, job))
    stores.jobs.progress(job.id, spec.total, spec.total, "caching")
    if result is not None:
        cache_result(stores, job.subject, spec, result)
    stores.jobs.succeed(job.id)


def _calibrated_scale(stores: Stores, job: Job) -> float:
    """Return the calibrated scale of a job's posterior; calibrate it if necessary."""
    calibration = stores.posteriors.calibration(job.subject)
    if calibration is None:
        with stage("calibrating"):
            calibration = TaskContext(stores, job, "calibrating: ").calibration().meta
    return float(calibration["scale"])
