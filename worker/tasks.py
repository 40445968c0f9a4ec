"""The tasks a worker runs: fit a posterior, make a shard of draws, make an analysis.

A task may run twice, after its worker was killed: everything it writes is named by its content, so the
second run finds or repeats the first one's work. What fails in a task ends its job with a problem; only what
kills the worker is tried again, and a server that does not answer.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
import redis
from rq.timeouts import JobTimeoutException

import glle_engine
from glle_engine import Draw, FitSpec, GlleError, Posterior
from glle_engine.progress import StageClock
from worker.analyses import CalibrationSpec, analysis_of, calibration_told
from worker.behind import Behind
from worker.cache import Entry
from worker.clock import now_iso
from worker.drawing import cached_draw, draw_and_cache, drawn, group_size, store_draws, with_neighbors
from worker.draws import CHAINS, DrawKey, DrawsSpec
from worker.identity import content_sha256
from worker.jobs import Cancelled, Job
from worker.posteriors import PosteriorRecord
from worker.problems import Problem, ProblemError, internal_error, out_of_memory, refuse, timed_out
from worker.provenance import provenance
from worker.stores import Stores, stores
from worker.watch import fitted, stage, watched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from worker.analyses import AnalysisSpec
    from worker.cache import Array

TOLD_SECONDS = 0.05  # at most so often is progress written and the wish to cancel looked up

log = logging.getLogger(__name__)


def fit(job_id: str) -> None:
    """Fit the posterior of a job."""
    _recorded(job_id, _fit)


def draw(job_id: str, round_: int, shard: int) -> None:
    """Make the draws of a shard, and enqueue what follows it."""
    _recorded(job_id, partial(_draw, round_=round_, shard=shard))


def analyse(job_id: str, round_: int) -> None:
    """Make the analysis of a job."""
    _recorded(job_id, partial(_analyse, round_=round_))


def _recorded(job_id: str, work: Callable[[Stores, Job], None]) -> None:
    """Start a job, work on it, and record how that ended."""
    here = stores()
    with watched(here, job_id) as watch:
        try:
            work(here, watch.begun(here.jobs.start(job_id)))
        except Cancelled:
            here.jobs.cancelled(job_id)
        except redis.RedisError:
            raise  # nothing can be recorded: RQ tries again
        except GlleError as error:
            here.jobs.fail(job_id, Problem.from_engine(error))
        except ProblemError as error:
            here.jobs.fail(job_id, error.problem)
        except JobTimeoutException:
            here.jobs.fail(job_id, timed_out(here.settings.job_timeout))
        except MemoryError as error:
            here.jobs.fail(job_id, out_of_memory(str(error)))
        except Exception as error:
            log.exception("Job %s failed", job_id)
            here.jobs.fail(job_id, internal_error(error))


def _fit(here: Stores, job: Job) -> None:
    dataset, spec = job.spec["dataset"], FitSpec.from_dict(job.spec["spec"])
    values = here.datasets.values(dataset)
    clock = StageClock(_teller(here, job))
    posterior = glle_engine.fit_spec(values, spec, on_progress=clock)
    stages = clock.stop()
    fitted(stages)
    here.jobs.stage(job.id, "caching")
    with stage("caching"):
        here.posteriors.cache(job.subject, posterior)
    arrays = posterior.arrays()
    here.posteriors.record(
        PosteriorRecord(
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
            provenance=provenance(),
            job=job.id,
            created=now_iso(),
            tenant=job.tenant,
        )
    )
    here.jobs.succeed(job.id)


def _draw(here: Stores, job: Job, *, round_: int, shard: int) -> None:
    """Make a shard, and as many more of the job as wait and there is time for: a task costs tens of milliseconds."""
    if job.round != round_:  # reopened since: another task has this shard
        return
    spec = DrawsSpec.from_dict(job.spec)
    if spec.is_auto:
        spec = spec.at(_calibrated_scale(here, job))
    until = time.monotonic() + spec.shard_seconds
    here.queue.give_back(job, taker=shard)
    with Behind() as behind:
        work = _Shards(here, job, spec, behind)
        following: int | None = shard
        while following is not None:
            begun = time.monotonic()
            work.make(following)
            behind.catch_up()
            ended = time.monotonic()
            in_time = 2 * ended - begun < until  # another one like it: who waits, waits for a shard at most
            following = here.queue.take_shard(job, taker=shard) if in_time else None


@dataclass(frozen=True)
class _Shards:
    """The shards of a draws job, made one after the other; what is drawn is cached and told behind the next draws."""

    here: Stores
    job: Job
    spec: DrawsSpec
    behind: Behind

    @cached_property
    def posterior(self) -> Posterior:
        return _posterior(self.here, self.job, self.here.posteriors.fetch(self.job.subject))

    def make(self, shard: int) -> None:
        """Make the draws that are not there yet, open or continue the job's chains, and tell how far it is."""
        here, job, spec = self.here, self.job, self.spec
        keys = spec.shard_keys(shard)
        present = here.cache.present([key.cache_key(job.subject) for key in keys])
        size = len(keys) if all(present) else group_size(self.posterior)
        here.jobs.stage(job.id, "drawing")
        if shard == 0:  # the posterior is there now: the other chains need not fit it each
            self.behind.do(partial(self._open, range(1, min(CHAINS, spec.shards))))
        for start in range(0, len(keys), size):
            done = min(start + size, len(keys))
            missing = [key for key, there in zip(keys[start:done], present[start:done], strict=True) if not there]
            if missing:
                if spec.total == 1:
                    missing = with_neighbors(here.cache, job.subject, keys[0], size)
                made, seconds = drawn(self.posterior, missing)
                self.behind.do(partial(store_draws, here.cache, job.subject, missing, made, seconds))
            if done == len(keys) and shard + CHAINS < spec.shards:
                self.behind.do(partial(self._open, [shard + CHAINS]))
            self.behind.do(partial(here.jobs.advance, job.id, job.round, shard, done))

    def _open(self, shards: Iterable[int]) -> None:
        for shard in shards:
            self.here.queue.enqueue_shard(self.job, shard)


def _analyse(here: Stores, job: Job, *, round_: int) -> None:
    if job.round != round_:  # reopened since: another task has it
        return
    spec = analysis_of(job)
    key = spec.cache_key(job.subject)
    result = None
    if not all(here.cache.present([key])):
        with stage("analysing"):
            result = spec.run(_Desk(here, job))
    here.jobs.progress(job.id, spec.total, spec.total, "caching")
    if result is not None:
        _keep(here, job.subject, spec, result)
    here.jobs.succeed(job.id)


def _keep(here: Stores, subject: str, spec: AnalysisSpec, result: Entry) -> Entry:
    """Cache a result, and record the calibration that is the posterior's own; return what was cached."""
    _require_finite(spec, result)
    if spec == CalibrationSpec():
        recorded = here.posteriors.calibrate(subject, calibration_told(result.meta))
        result = Entry({**result.meta, **recorded}, result.arrays)
    kept = Entry({**result.meta, "sha256": content_sha256(result.meta, result.arrays)}, result.arrays)
    with stage("caching"):
        here.cache.put(spec.cache_key(subject), kept.meta, kept.arrays)
    return kept


def _calibrated_scale(here: Stores, job: Job) -> float:
    """Return the scale that half-sampling suggests for a job's posterior, calibrated when it was not yet."""
    known = here.posteriors.calibration(job.subject)
    if known is None:
        with stage("calibrating"):
            known = _Desk(here, job, "calibrating: ").calibration().meta
    return float(known["scale"])


@dataclass(frozen=True)
class _Desk:
    """The desk of an analysis: see `worker.analyses.Desk`."""

    here: Stores
    job: Job
    prefix: str = ""  # of the stages, where done and total count something else

    @cached_property
    def tell(self) -> Callable[[int, int, str], None]:
        return _teller(self.here, self.job, self.prefix)

    @cached_property
    def record(self) -> PosteriorRecord:
        return self.here.posteriors.fetch(self.job.subject)  # deleted meanwhile: a problem

    def posterior(self) -> Posterior:
        return _posterior(self.here, self.job, self.record)

    def training(self) -> Array:
        return np.ascontiguousarray(self.values(self.record.dataset), np.float64)

    def values(self, dataset: str) -> Array:
        return self.here.datasets.values(dataset)

    def calibration(self) -> Entry:
        spec = CalibrationSpec()
        known = self.here.cache.get(spec.cache_key(self.record.id))
        return known or _keep(self.here, self.record.id, spec, spec.run(self))

    def draws(self, posterior: Posterior, keys: Iterable[DrawKey]) -> Iterator[Draw]:
        keys, id_, size = list(keys), self.record.id, group_size(posterior)
        for start in range(0, len(keys), size):
            group = keys[start : start + size]
            entries = {key: self.here.cache.get(key.cache_key(id_)) for key in group}
            known = {key: cached_draw(key, entry) for key, entry in entries.items() if entry}
            if missing := [key for key in group if key not in known]:
                made = draw_and_cache(self.here.cache, id_, posterior, missing)
                known.update(zip(missing, made, strict=True))
            for done, key in enumerate(group, start=start + 1):
                yield known[key]
                self.tell(done, len(keys), "drawing")


def _require_finite(spec: AnalysisSpec, result: Entry) -> None:
    for name, array in result.arrays.items():
        if name not in spec.may_be_nan and not np.isfinite(array).all():
            raise refuse(
                "not-finite-result",
                422,
                f"The {name} of this {spec.kind} are not finite: the numbers are beyond what float64 can hold.",
                "Rescale the data, or use a smaller scale.",
                array=name,
            )


def _posterior(here: Stores, job: Job, record: PosteriorRecord) -> Posterior:
    """Return the posterior that a job uses, fitted again when its arrays were evicted."""
    posterior = here.warm.get(record.id) or here.posteriors.load(record.id)
    if posterior is None:
        told = _teller(here, job, "fitting again: ")
        values = here.datasets.values(record.dataset)
        with stage("fitting again"):
            posterior = glle_engine.fit_spec(values, FitSpec.from_dict(record.spec), on_progress=told)
        here.posteriors.cache(record.id, posterior)
    return posterior


def _teller(here: Stores, job: Job, prefix: str = "") -> Callable[[int, int, str], None]:
    """Return an `on_progress` that writes each stage, now and again, and its end; it raises `Cancelled`."""
    told, last = float("-inf"), ""

    def tell(done: int, total: int, stage: str) -> None:
        nonlocal told, last
        now = time.monotonic()
        if stage == last and done < total and now - told < TOLD_SECONDS:
            return
        told, last = now, stage
        if prefix:  # done and total count the job's own work
            here.jobs.stage(job.id, prefix + stage)
        else:
            here.jobs.progress(job.id, done, total, stage)

    return tell
