"""The tasks a worker runs: fit a posterior, make a shard of draws, make an analysis.

A task may run twice, after its worker was killed: everything it writes is named by its content, so the
second run finds or repeats the first one's work. What fails in a task ends its job with a problem; only what
kills the worker is tried again, and a server that does not answer is waited for.
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
from glle_engine import FitSpec, Posterior
from glle_engine.base.progress import StageClock
from worker.analyses.registry import analysis_of
from worker.base.clock import now_iso
from worker.base.numerics import provenance
from worker.base.problems import internal_error, problem_of, timed_out
from worker.base.versions import require_own_numbers
from worker.execution.background_writer import Behind
from worker.execution.cleanup import forget_gone
from worker.execution.context import WorkerDesk, keep, posterior_of, teller
from worker.execution.draws import drawn, group_size, store_draws, with_neighbors
from worker.execution.telemetry import Watch, fitted, stage, watched
from worker.jobs.store import Cancelled, Job, job_key
from worker.records.draws import DrawsSpec
from worker.storage.datasets import not_found
from worker.storage.posteriors import ARRAYS, PosteriorRecord
from worker.stores import Stores, stores

if TYPE_CHECKING:
    from collections.abc import Callable

AWAY_SECONDS = 300.0  # for which a task waits for a server; then its worker is free, and RQ has the task done again
AGAIN_SECONDS = 0.5

log = logging.getLogger(__name__)


def fit(job_id: str) -> None:
    """Fit the posterior of a job."""
    _done(job_id, _fit)


def draw(job_id: str, round_: int, shard: int) -> None:
    """Make the draws of a shard, and enqueue what follows it."""
    _done(job_id, partial(_draw, round_=round_, shard=shard))


def analyse(job_id: str, round_: int) -> None:
    """Make the analysis of a job."""
    _done(job_id, partial(_analyse, round_=round_))


def _done(job_id: str, work: Callable[[Stores, Job], None]) -> None:
    """Work on a job, and leave nothing of what was deleted meanwhile."""
    _recorded(job_id, work)
    forget_gone(stores(), job_id)


def _recorded(job_id: str, work: Callable[[Stores, Job], None]) -> None:
    """Work on a job and record how that ended; while a server does not answer, wait for it, and begin again."""
    here = stores()
    with watched(here, job_id) as watch:
        until = time.monotonic() + min(AWAY_SECONDS, here.settings.job_timeout / 2)
        while True:
            try:
                _attempt(here, watch, job_id, work)
            except redis.RedisError as error:
                if time.monotonic() > until:
                    raise  # nothing can be recorded: RQ tries again
                log.warning("Job %s waits for a Redis server: %s", job_id, error)
                with suppress(redis.RedisError, Cancelled):
                    here.jobs.stage(job_id, "waiting for a server")
                time.sleep(AGAIN_SECONDS)
            else:
                return


def _attempt(here: Stores, watch: Watch, job_id: str, work: Callable[[Stores, Job], None]) -> None:
    """Start a job, work on it, and record how that ended; a server that does not answer ends the attempt alone."""
    try:
        job = watch.begun(here.jobs.start(job_id))
        require_own_numbers(f"Job {job_id}", job.numbers)
        work(here, job)
    except Cancelled:
        here.jobs.cancelled(job_id)
    except redis.RedisError:
        raise
    except Exception as error:  # noqa: BLE001 # logged, and recorded as the job's problem
        _fail(here, job_id, error)


def _fail(here: Stores, job_id: str, error: Exception) -> None:
    """Record the problem that ended a job.

    An error of the recording itself, such as a time-out that comes now, is recorded in its place: a task that raises
    is run again, four times, and then counts as lost.
    """
    try:
        problem = timed_out(here.settings.job_timeout) if isinstance(error, JobTimeoutException) else problem_of(error)
        if problem.is_internal:
            log.error("Job %s failed", job_id, exc_info=error)
        here.jobs.fail(job_id, problem)
    except redis.RedisError:
        raise
    except Exception as failure:
        log.exception("The problem of job %s could not be recorded", job_id)
        here.jobs.fail(job_id, internal_error(failure))


def _fit(here: Stores, job: Job) -> None:
    dataset, spec = job.spec["dataset"], FitSpec.from_dict(job.spec["spec"])
    values = here.datasets.values(dataset)
    clock = StageClock(teller(here, job))
    posterior = glle_engine.fit(values, spec, on_progress=clock)
    stages = clock.stop()
    fitted(stages)
    here.jobs.stage(job.id, "caching")
    with stage("caching"):
        sha256 = here.posteriors.cache(job.subject, posterior, sum(stages.values()))
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
    if not here.posteriors.record(record, while_running=job_key(job.id)):
        raise Cancelled
    if here.datasets.get(dataset) is None:  # deleted by who could not know of this posterior
        here.posteriors.delete(record)
        raise not_found(dataset)
    here.jobs.succeed(job.id)


def _draw(here: Stores, job: Job, *, round_: int, shard: int) -> None:
    """Make a shard, and as many more of the job as wait and there is time for: a task costs tens of milliseconds."""
    if job.round != round_:  # reopened since: another task has this shard
        return
    spec = DrawsSpec.from_dict(job.spec)
    if spec.is_auto:
        spec = spec.at(_calibrated_scale(here, job))
    until = time.monotonic() + here.settings.shard_seconds
    here.queue.give_back(job, taker=shard)
    with Behind() as behind:
        work = _Shards(here, job, spec, behind)
        following: int | None = shard
        while following is not None:
            begun, read = time.monotonic(), work.read_seconds
            work.make(following)
            behind.catch_up()
            ended = time.monotonic()
            drawing = ended - begun - (work.read_seconds - read)
            # Another one like it. A posterior that took long to read is drawn from for as long.
            in_time = ended + drawing < until + 2 * work.read_seconds
            following = here.queue.take_shard(job, taker=shard) if in_time else None


@dataclass
class _Shards:
    """The shards of a draws job, made one after the other; what is drawn is cached and told behind the next draws."""

    here: Stores
    job: Job
    spec: DrawsSpec
    behind: Behind
    read_seconds: float = 0.0

    @cached_property
    def record(self) -> PosteriorRecord:
        return self.here.posteriors.fetch(self.job.subject)

    @cached_property
    def posterior(self) -> Posterior:
        """The posterior, read at the first draw that is missing; `read_seconds` notes how long that took."""
        began = time.monotonic()
        found = posterior_of(self.here, self.job, self.record)
        self.read_seconds = time.monotonic() - began
        return found

    def make(self, shard: int) -> None:
        """Make the draws that are not there yet, open what comes after them, and tell how far the job is."""
        here, job, spec = self.here, self.job, self.spec
        keys, keep = spec.shard_keys(shard), here.cache.tier_by_size(spec.nbytes)
        arrays_id = self.record.arrays_id
        present = here.cache.contains([key.cache_key(arrays_id) for key in keys])
        size = len(keys) if all(present) else group_size(self.posterior)
        here.jobs.stage(job.id, "drawing")
        if shard == 0:  # the posterior is there now: the other chains need not fit it each
            for other in range(1, min(job.chains, spec.shards)):
                self.behind.do(partial(here.queue.enqueue_shard, job, other))
        for start in range(0, len(keys), size):
            done = min(start + size, len(keys))
            missing = [key for key, there in zip(keys[start:done], present[start:done], strict=True) if not there]
            if missing:
                if spec.total == 1:
                    missing = with_neighbors(here.cache, arrays_id, keys[0], size)
                made, seconds = drawn(self.posterior, missing)
                self.behind.do(partial(store_draws, here.cache, arrays_id, missing, made, seconds, keep))
            if done == len(keys) and spec.shards > job.chains:  # the first has not opened all
                self.behind.do(partial(here.queue.open_next, job, shard))
            self.behind.do(partial(here.jobs.advance, job.id, job.round, shard, done))


def _analyse(here: Stores, job: Job, *, round_: int) -> None:
    if job.round != round_:  # reopened since: another task has it
        return
    spec = analysis_of(job)
    require_own_numbers(f"What job {job.id} is to make", spec.engine)
    key = spec.cache_key(job.subject)
    result = None
    if not all(here.cache.contains([key])):
        with stage("analysing"):
            result = spec.run(WorkerDesk(here, job))
    here.jobs.progress(job.id, spec.total, spec.total, "caching")
    if result is not None:
        keep(here, job.subject, spec, result)
    here.jobs.succeed(job.id)


def _calibrated_scale(here: Stores, job: Job) -> float:
    """Return the scale that half-sampling suggests for a job's posterior, calibrated when it was not yet."""
    known = here.posteriors.calibration(job.subject)
    if known is None:
        with stage("calibrating"):
            known = WorkerDesk(here, job, "calibrating: ").calibration().meta
    return float(known["scale"])
