"""What a running task uses: access to data, posterior and draws, reports of progress, and storage of results."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

import glle_engine
from glle_engine import Draw, Posterior
from glle_engine.graph.given import stored_indices
from glle_engine.reliability.resamples import PosteriorEmbedder
from glle_engine.tables.roles import column_order
from worker.analyses.embedding import EmbeddingSpec
from worker.analyses.posterior_analyses import CalibrationSpec, calibration_facts
from worker.base.problems import refuse
from worker.base.versions import require_numbers
from worker.execution.draws import group_size, make_draws
from worker.execution.telemetry import stage
from worker.records.cache_entry import Entry
from worker.records.ids import content_sha256
from worker.records.job import INTERACTIVE
from worker.storage.posteriors import neighbors_of, spec_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from glle_engine.base.progress import OnProgress
    from worker.analyses.base import AnalysisSpec
    from worker.jobs.store import Job
    from worker.records.cache_entry import Array
    from worker.records.dataset import Dataset
    from worker.records.draws import DrawAddress
    from worker.storage.posteriors import PosteriorRecord
    from worker.stores import Stores

PROGRESS_SECONDS = 0.25  # pause between two writes of progress; a write also notices a cancellation


@dataclass(frozen=True)
class TaskContext:
    """Gives a task the inputs of its job, writes the job's progress, and stores results (`AnalysisContext`).

    Parameters
    ----------
    stage_prefix
        Prefix of the names of stages during preliminary work, such as "calibrating: ". With a prefix, the job's record
        gets only the name of the stage, and not the number of finished steps, because these are not steps of the job.
    report
        Receives the progress, if the task makes only a part of the job; by default, progress is written to the job's
        record.

    """

    stores: Stores
    job: Job
    stage_prefix: str = ""
    report: OnProgress | None = None

    @cached_property
    def on_progress(self) -> OnProgress:
        """Callback (done, total, stage) that writes progress; raises `Cancelled` if the job was cancelled."""
        return self.report or progress_writer(self.stores, self.job, self.stage_prefix)

    @cached_property
    def record(self) -> PosteriorRecord:
        """Record of the job's posterior; raises `ProblemError` (``posterior-not-found``)."""
        return self.stores.posteriors.fetch(self.job.subject)

    @property
    def subject(self) -> str:
        """Id of the job's posterior, or of the job's data set if there is no posterior."""
        return self.job.subject

    @property
    def dataset(self) -> str:
        """Id of the data set to which the job's posterior was fitted."""
        return self.record.dataset

    @cached_property
    def posterior(self) -> Posterior:
        """The job's posterior, read from its file.

        Raises `ProblemError` (``posterior-not-found``, ``posterior-damaged``, ``other-numbers``,
        ``store-unavailable``).
        """
        require_numbers(self.record.id, self.record.numbers)
        return self.stores.posteriors.load(self.record)

    def training(self) -> Array:
        """Return the data (n, d) to which the job's posterior was fitted, float64."""
        return np.ascontiguousarray(self.values(self.record.dataset), np.float64)

    def values(self, dataset: str, like: str | None = None) -> Array:
        """Return the values (n, d) of a data set; or the points in the body of the request, if their id is given.

        With `like`, the columns are in the order of the data set `like`.
        """
        if dataset == self.job.inline:
            return self.stores.jobs.points(self.job)
        values = self.stores.datasets.values(dataset)
        order = None if like is None else column_order(self.record_of(like).names, self.record_of(dataset).names)
        return values if order is None else values[:, order]

    def record_of(self, dataset: str) -> Dataset:
        """Return the record of a data set; raises `ProblemError` (``dataset-not-found``)."""
        return self.stores.datasets.fetch(dataset)

    def extras(self, dataset: str) -> dict[str, Array]:
        """Return a data set's extra arrays (labels, colors, coordinates, ids) by name."""
        return self.stores.datasets.load_extras(self.record_of(dataset))

    def calibration(self) -> Entry:
        """Return the calibration of the job's posterior with default parameters; compute and store it if missing.

        A calibration finds the scale of draws: the factor on the posterior covariance.
        """
        spec = CalibrationSpec()
        return self.find_result(spec) or self.keep_result(spec, spec.run(self))

    def draws(self, posterior: Posterior, keys: Iterable[DrawAddress]) -> Iterator[Draw]:
        """Yield the draws of a posterior with the addresses (seed, index, scale ...) in `keys`; report progress."""
        keys, size = list(keys), group_size(posterior)
        for start in range(0, len(keys), size):
            draws, _ = make_draws(posterior, keys[start : start + size])
            for done, draw in enumerate(draws, start=start + 1):
                yield draw
                self.on_progress(done, len(keys), "drawing")

    @cached_property
    def embedder(self) -> PosteriorEmbedder:
        """Embeds random halves of the data of the job's posterior, by the method and parameters of its fit."""
        return PosteriorEmbedder.from_posterior(self.posterior, self.training())

    def find_result(self, spec: AnalysisSpec) -> Entry | None:
        """Return the stored result of another analysis of the job's posterior or data set, or None."""
        return self.stores.find_result(spec, self.subject)

    def keep_result(self, spec: AnalysisSpec, entry: Entry) -> Entry:
        """Store the result of an analysis of the job's posterior or data set.

        Return `entry` with its SHA-256 as metadata ``sha256``.

        A calibration with default parameters is also written to the posterior's record. Raises `ProblemError`:
        ``not-finite-result``, ``quota-exceeded``, ``storage-full``, ``store-unavailable``; or a code such as
        ``dataset-not-found`` if the posterior, data set or embedding that the result is about was deleted meanwhile.
        """
        if isinstance(spec, EmbeddingSpec) and not spec.scores:
            entry = self.keep_embedding(spec.recipe.id, entry)
            self.stores.embeddings.fetch(spec.recipe.id)
            return entry
        require_finite(spec.kind, entry, spec.may_be_nan)
        if spec == CalibrationSpec():
            recorded = self.stores.posteriors.calibrate(self.subject, calibration_facts(entry.meta))
            entry = Entry({**entry.meta, **recorded}, entry.arrays)
        entry, owners = _with_digest(entry), spec.owners(self.subject)
        if not self.store(spec.key(self.subject), entry, owners):
            for owner in owners:
                self.stores.owner(owner).fetch(owner)
        return entry

    def find_part(self, key: str) -> Entry | None:
        """Return the part of an analysis that is stored under a key, or None."""
        return self.stores.results.find(key)

    def keep_part(self, key: str, entry: Entry, owners: Sequence[str]) -> None:
        """Store a part of an analysis under a key, if all records whose ids are in `owners` still exist.

        The part is deleted with any of these records. Raises `ProblemError` (``not-finite-result``).
        """
        require_finite("embedding", entry)
        self.store(key, _with_digest(entry), owners)

    def store(self, key: str, entry: Entry, owners: Sequence[str]) -> bool:
        """Store an entry (metadata and arrays) as a result of the job; return False if an owner was deleted.

        `owners` are the ids of the records that the result is about; the result is deleted with any of them.
        """
        with stage("storing"):
            return self.stores.results.put(
                key, entry, owners=owners, job=self.job.id, tenant=self.job.tenant, max_bytes=self._max_bytes
            )

    @property
    def _max_bytes(self) -> int:
        return self.stores.max_bytes(self.job.tenant)

    def find_embedding(self, id_: str) -> Entry | None:
        """Return the stored embedding with this id, or None."""
        return self.stores.embeddings.find_entry(id_)

    def keep_embedding(self, id_: str, entry: Entry) -> Entry:
        """Store an embedding in its record, the record with the id `id_`, if this record still exists.

        In any case, return `entry` with its SHA-256 as metadata ``sha256``.
        """
        require_finite("embedding", entry)
        entry = _with_digest(entry)
        with stage("storing"):
            self.stores.embeddings.put(id_, entry, max_bytes=self._max_bytes)
        return entry

    def publish_partial(self, key: str, entry: Entry) -> None:
        """Publish a preliminary result, which replaces the last one; `key` is the key of the final result."""
        self.stores.cache.put_partial(key, _with_digest(entry))


def _with_digest(entry: Entry) -> Entry:
    return Entry({**entry.meta, "sha256": content_sha256(entry.meta, entry.arrays)}, entry.arrays)


def fit_values(stores: Stores, values: Array, parameters: dict[str, Any], on_progress: OnProgress) -> Posterior:
    """Fit a posterior to values (n, d) by the parameters in a posterior's record (`PosteriorRecord.spec`)."""
    neighbors_id = neighbors_of(parameters)
    neighbors = None if neighbors_id is None else stored_indices(stores.datasets.values(neighbors_id))
    return glle_engine.fit(values, spec_of(parameters), neighbors=neighbors, on_progress=on_progress)


def progress_writer(stores: Stores, job: Job, stage_prefix: str = "") -> OnProgress:
    """Return a callback (done, total, stage) that writes the progress of a job to its record.

    The callback writes when a stage begins or ends, and every `PROGRESS_SECONDS`. An interactive task writes nothing in
    its first `PROGRESS_SECONDS`, because each write takes some tenths of a millisecond. A write raises
    `worker.jobs.store.Cancelled` if the job was cancelled.
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
        if stage_prefix:  # a preliminary step with a count of its own: leave the job's count of steps as it is
            stores.jobs.stage(job.id, stage_prefix + stage)
        else:
            stores.jobs.progress(job.id, done, total, stage)

    return write


def require_finite(kind: str, result: Entry, may_be_nan: frozenset[str] = frozenset()) -> None:
    """Raise `ProblemError` (``not-finite-result``) if an array of a result has infinities or NaN.

    `kind` is the kind of the result, for the message. Arrays whose names are in `may_be_nan` are not checked.
    """
    for name, array in result.arrays.items():
        if name not in may_be_nan and not np.isfinite(array).all():
            raise refuse(
                "not-finite-result",
                422,
                f"The array {name!r} of the result ({kind}) has NaN or infinite numbers, because values exceeded the "
                "range of float64.",
                "Divide the data by their largest absolute value, or use a smaller scale.",
                array=name,
            )
