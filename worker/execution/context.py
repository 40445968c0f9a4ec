"""The desk that a worker lays out for an analysis: data, posterior and draws, progress, and what is to be kept."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

import glle_engine
from glle_engine import Draw, FitSpec, Posterior
from worker.analyses.posterior_analyses import CalibrationSpec, calibration_facts
from worker.base.problems import ProblemError, refuse
from worker.base.versions import require_own_numbers
from worker.execution.draws import cached_draw, draw_and_cache, group_size
from worker.execution.telemetry import stage
from worker.records.cache_entry import Entry
from worker.records.draws import draws_bytes
from worker.records.ids import content_sha256
from worker.storage.datasets import not_found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from worker.analyses.base import AnalysisSpec
    from worker.jobs.store import Job
    from worker.records.cache_entry import Array
    from worker.records.draws import DrawKey
    from worker.storage.posteriors import PosteriorRecord
    from worker.stores import Stores

log = logging.getLogger(__name__)

TOLD_SECONDS = 0.05  # at most so often is progress written and the wish to cancel looked up


@dataclass(frozen=True)
class WorkerDesk:
    """The desk of a job's analysis: see `worker.analyses.base.Desk`."""

    here: Stores
    job: Job
    prefix: str = ""  # of the stages, where done and total count something else

    @cached_property
    def tell(self) -> Callable[[int, int, str], None]:
        """Writes progress; raises when the job is no longer wanted."""
        return teller(self.here, self.job, self.prefix)

    @cached_property
    def record(self) -> PosteriorRecord:
        """The job's posterior; a problem, when it was deleted meanwhile."""
        return self.here.posteriors.fetch(self.job.subject)

    @property
    def subject(self) -> str:
        """The posterior that the job is about, or the data set where there is none."""
        return self.job.subject

    @property
    def dataset(self) -> str:
        """The data set that the job's posterior was fitted to."""
        return self.record.dataset

    def posterior(self) -> Posterior:
        """Return the job's posterior, fitted again when it was evicted."""
        return posterior_of(self.here, self.job, self.record)

    def training(self) -> Array:
        """Return the data that it was fitted to."""
        return np.ascontiguousarray(self.values(self.record.dataset), np.float64)

    def values(self, dataset: str) -> Array:
        """Return a data set's values, or the points that came with the request under its id."""
        if self.job.is_inline and dataset == self.job.dataset:
            return self.here.jobs.points(self.job)
        return self.here.datasets.values(dataset)

    def beside(self, dataset: str) -> dict[str, Array]:
        """Return what is kept beside a data set's values."""
        if (known := self.here.datasets.get(dataset)) is None:
            raise not_found(dataset)
        return self.here.datasets.load_extras(known)

    def calibration(self) -> Entry:
        """Return the posterior's own calibration."""
        spec = CalibrationSpec(engine=self.job.numbers)
        known = self.here.cache.get(spec.cache_key(self.record.id))
        return known or keep(self.here, self.record.id, spec, spec.run(self))

    def draws(self, posterior: Posterior, keys: Iterable[DrawKey]) -> Iterator[Draw]:
        """Yield draws, from the cache where they are there."""
        keys, id_, size = list(keys), self.record.arrays_id, group_size(posterior)
        keep = self.here.cache.tier_by_size(draws_bytes(self.record.n, self.record.spec["n_components"], len(keys)))
        for start in range(0, len(keys), size):
            group = keys[start : start + size]
            entries = {key: self.here.cache.get(key.cache_key(id_)) for key in group}
            known = {key: cached_draw(key, entry) for key, entry in entries.items() if entry}
            if missing := [key for key in group if key not in known]:
                made = draw_and_cache(self.here.cache, id_, posterior, missing, keep)
                known.update(zip(missing, made, strict=True))
            for done, key in enumerate(group, start=start + 1):
                yield known[key]
                self.tell(done, len(keys), "drawing")

    def kept(self, key: str) -> Entry | None:
        """Return an entry of the cache."""
        return self.here.cache.get(key)

    def keep(self, key: str, entry: Entry) -> Entry:
        """Put a finite entry into the cache, and return it with its digest."""
        require_finite("embedding", entry)
        return _put(self.here, key, entry)


def keep(here: Stores, subject: str, spec: AnalysisSpec, result: Entry) -> Entry:
    """Cache a result, and record the calibration that is the posterior's own; return what was cached."""
    require_finite(spec.kind, result, spec.may_be_nan)
    if spec == CalibrationSpec(engine=spec.engine):
        recorded = here.posteriors.calibrate(subject, calibration_facts(result.meta))
        result = Entry({**result.meta, **recorded}, result.arrays)
    return _put(here, spec.cache_key(subject), result)


def _put(here: Stores, key: str, entry: Entry) -> Entry:
    """Put an entry into the cache, its digest among its facts."""
    kept = Entry({**entry.meta, "sha256": content_sha256(entry.meta, entry.arrays)}, entry.arrays)
    with stage("caching"):
        here.cache.put(key, kept.meta, kept.arrays)
    return kept


def posterior_of(here: Stores, job: Job, record: PosteriorRecord) -> Posterior:
    """Return the posterior that a job uses, fitted again when its arrays were evicted.

    Raises
    ------
    ProblemError
        ``other-numbers``: neither its draws nor the fit would have their bits here. ``other-bits``: they have not.

    """
    require_own_numbers(f"Posterior {record.id}", record.numbers)
    posterior = _loaded(here, record)
    if posterior is None:
        told = teller(here, job, "fitting again: ")
        values = here.datasets.values(record.dataset)
        with stage("fitting again"):
            posterior = glle_engine.fit(values, FitSpec.from_dict(record.spec), on_progress=told)
        here.posteriors.cache(record.id, posterior, record.seconds)
    return posterior


def _loaded(here: Stores, record: PosteriorRecord) -> Posterior | None:
    """Read a posterior; of a store that does not answer nothing is waited for that can be fitted again and cached."""
    try:
        return here.posteriors.load(record.id, record.arrays_sha256)
    except ProblemError as error:
        if not here.cache.fits(record.nbytes):
            raise
        log.warning("Posterior %s is fitted again: %s", record.id, error)
        return None


def teller(here: Stores, job: Job, prefix: str = "") -> Callable[[int, int, str], None]:
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


def require_finite(kind: str, result: Entry, may_be_nan: frozenset[str] = frozenset()) -> None:
    """Raise the problem of a result that has infinity, or NaN where that has no meaning."""
    for name, array in result.arrays.items():
        if name not in may_be_nan and not np.isfinite(array).all():
            raise refuse(
                "not-finite-result",
                422,
                f"The {name} of this {kind} are not finite: the numbers are beyond what float64 can hold.",
                "Rescale the data, or use a smaller scale.",
                array=name,
            )
