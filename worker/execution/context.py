"""The context of a task: its data, posterior and draws, progress, and the cache of results."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

import glle_engine
from glle_engine import Draw, Posterior
from glle_engine.base.columns import column_order
from glle_engine.graph.given import stored_indices
from glle_engine.reliability.resamples import PosteriorEmbedder
from worker.analyses.posterior_analyses import CalibrationSpec, calibration_facts
from worker.base.problems import ProblemError, refuse
from worker.base.versions import require_numbers
from worker.execution.draws import cached_draw, draw_and_cache, group_size
from worker.execution.telemetry import stage
from worker.records.cache_entry import Entry
from worker.records.draws import draws_bytes
from worker.records.ids import content_sha256
from worker.records.job import INTERACTIVE
from worker.storage.posteriors import neighbors_of, spec_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from glle_engine.base.progress import OnProgress
    from worker.analyses.base import AnalysisSpec
    from worker.jobs.store import Job
    from worker.records.cache_entry import Array
    from worker.records.draws import DrawAddress
    from worker.storage.posteriors import PosteriorRecord
    from worker.stores import Stores

log = logging.getLogger(__name__)

PROGRESS_SECONDS = 0.1  # between two writes of progress, which also look up a cancellation


@dataclass(frozen=True)
class TaskContext:
    """The context of a job's analysis: implements `worker.analyses.base.AnalysisContext`."""

    stores: Stores
    job: Job
    stage_prefix: str = ""  # for work whose steps are not those of the job
    report: OnProgress | None = None  # of a part's task, which counts by shard

    @cached_property
    def on_progress(self) -> OnProgress:
        """Write progress; raises `worker.jobs.store.Cancelled` if the job is not wanted."""
        return self.report or progress_writer(self.stores, self.job, self.stage_prefix)

    @cached_property
    def record(self) -> PosteriorRecord:
        """The record of the job's posterior; raises ``posterior-not-found``."""
        return self.stores.posteriors.fetch(self.job.subject)

    @property
    def subject(self) -> str:
        """The id of the job's posterior, or of its data set."""
        return self.job.subject

    @property
    def arrays_id(self) -> str:
        """The name of the arrays of the job's posterior."""
        return self.record.arrays_id

    @property
    def dataset(self) -> str:
        """The id of the data set of the job's posterior."""
        return self.record.dataset

    def posterior(self) -> Posterior:
        """Return the job's posterior, fitted again if it was evicted."""
        return self._posterior

    @cached_property
    def _posterior(self) -> Posterior:
        """The posterior, fitted again if its arrays were evicted.

        Raises ``other-numbers`` if this deployment's fits have other bits, ``other-bits`` if the new fit has.
        """
        stores, record = self.stores, self.record
        require_numbers(f"Posterior {record.id}", record.numbers, stores.numbers)
        if (posterior := _load(stores, record)) is not None:
            return posterior
        on_progress = progress_writer(stores, self.job, "fitting again: ")
        with stage("fitting again"):
            posterior = fit_values(stores, stores.datasets.values(record.dataset), record.spec, on_progress)
        stores.posteriors.cache(record.id, posterior, record.seconds)
        return posterior

    def training(self) -> Array:
        """Return the data (n, d) of the posterior's fit."""
        return np.ascontiguousarray(self.values(self.record.dataset), np.float64)

    def values(self, dataset: str, like: str | None = None) -> Array:
        """Return a data set's values, in the order of the columns of `like`, or the request's points of that id."""
        if dataset == self.job.inline:
            return self.stores.jobs.points(self.job)
        values, fetch = self.stores.datasets.values(dataset), self.stores.datasets.fetch
        order = None if like is None else column_order(fetch(like).names, fetch(dataset).names)
        return values if order is None else values[:, order]

    def extras(self, dataset: str) -> dict[str, Array]:
        """Return a data set's extra arrays."""
        return self.stores.datasets.load_extras(self.stores.datasets.fetch(dataset))

    def calibration(self) -> Entry:
        """Return the posterior's default calibration."""
        spec = CalibrationSpec(engine=self.job.numbers)
        entry = self.stores.cache.get(spec.cache_key(self.record.id))
        return entry or cache_result(self.stores, self.record.id, spec, spec.run(self))

    def draws(self, posterior: Posterior, keys: Iterable[DrawAddress]) -> Iterator[Draw]:
        """Yield draws from the cache; make and cache the missing ones."""
        keys, id_, size = list(keys), self.record.arrays_id, group_size(posterior)
        cache = self.stores.draws
        together = draws_bytes(self.record.n, self.record.spec["n_components"], len(keys))
        for start in range(0, len(keys), size):
            group = keys[start : start + size]
            entries = zip(group, cache.get_many(id_, group), strict=True)
            draws = {key: cached_draw(key, entry) for key, entry in entries if entry}
            if missing := [key for key in group if key not in draws]:
                draws.update(zip(missing, draw_and_cache(cache, id_, posterior, missing, together), strict=True))
            for done, key in enumerate(group, start=start + 1):
                yield draws[key]
                self.on_progress(done, len(keys), "drawing")

    def embedder(self) -> PosteriorEmbedder:
        """Return the job's posterior and its data, to be embedded again."""
        return self._embedder

    @cached_property
    def _embedder(self) -> PosteriorEmbedder:
        return PosteriorEmbedder.of(self.posterior(), self.training())

    def find_cached(self, key: str) -> Entry | None:
        """Return an entry of the cache, or None."""
        return self.stores.cache.get(key)

    def cache(self, key: str, entry: Entry, *, seconds: float = 0.0, together: int = 0) -> Entry:
        """Cache a finite entry that took so many seconds, and return it with its digest.

        `together` is the number of bytes of all entries that are read together; without room for these nothing is
        cached.
        """
        require_finite("embedding", entry)
        if self.stores.cache.objects is None and not self.stores.cache.fits(together):
            return entry
        return _put(self.stores, key, entry, together=together, seconds=seconds)


def cache_result(stores: Stores, subject: str, spec: AnalysisSpec, result: Entry) -> Entry:
    """Cache a result, and record a default calibration; return the cached entry."""
    require_finite(spec.kind, result, spec.may_be_nan)
    if spec == CalibrationSpec(engine=spec.engine):
        recorded = stores.posteriors.calibrate(subject, calibration_facts(result.meta))
        result = Entry({**result.meta, **recorded}, result.arrays)
    return _put(stores, spec.cache_key(subject), result)


def _put(stores: Stores, key: str, entry: Entry, *, together: int = 0, seconds: float = 0.0) -> Entry:
    """Cache an entry with its digest in the metadata; return it."""
    entry = Entry({**entry.meta, "sha256": content_sha256(entry.meta, entry.arrays)}, entry.arrays)
    with stage("caching"):
        stores.cache.put(key, entry.meta, entry.arrays, together=together, seconds=seconds)
    return entry


def fit_values(stores: Stores, values: Array, parameters: dict[str, Any], on_progress: OnProgress) -> Posterior:
    """Fit a posterior to values (n, d) by recorded parameters (`worker.storage.posteriors`)."""
    given = neighbors_of(parameters)
    neighbors = None if given is None else stored_indices(stores.datasets.values(given))
    return glle_engine.fit(values, spec_of(parameters), neighbors=neighbors, on_progress=on_progress)


def _load(stores: Stores, record: PosteriorRecord) -> Posterior | None:
    """Return a stored posterior, or None; also if the store fails and a new fit would be cached."""
    try:
        return stores.posteriors.load(record.id, record.arrays_sha256)
    except ProblemError as error:
        if not stores.cache.fits(record.nbytes):
            raise
        log.warning("Posterior %s is fitted again: %s", record.id, error)
        return None


def progress_writer(stores: Stores, job: Job, stage_prefix: str = "") -> OnProgress:
    """Return a callback that writes the begin and end of each stage, and progress every `PROGRESS_SECONDS`.

    Each write takes some tenths of a millisecond, so an interactive task writes none in its first `PROGRESS_SECONDS`.
    The callback raises `worker.jobs.store.Cancelled` if the job is not wanted.
    """
    first = time.monotonic() + (PROGRESS_SECONDS if job.queue == INTERACTIVE else 0.0)
    written, last_stage = float("-inf"), ""

    def write(done: int, total: int, stage: str) -> None:
        nonlocal written, last_stage
        now = time.monotonic()
        if now < first:
            return
        if stage == last_stage and done < total and now - written < PROGRESS_SECONDS:
            return
        written, last_stage = now, stage
        if stage_prefix:  # done and total count the steps of the job
            stores.jobs.stage(job.id, stage_prefix + stage)
        else:
            stores.jobs.progress(job.id, done, total, stage)

    return write


def require_finite(kind: str, result: Entry, may_be_nan: frozenset[str] = frozenset()) -> None:
    """Raise ``not-finite-result`` for a result with infinities, or with NaN outside of `may_be_nan`."""
    for name, array in result.arrays.items():
        if name not in may_be_nan and not np.isfinite(array).all():
            raise refuse(
                "not-finite-result",
                422,
                f"The {name} of this {kind} are not finite: the numbers exceed the range of float64.",
                "Rescale the data, or use a smaller scale.",
                array=name,
            )
