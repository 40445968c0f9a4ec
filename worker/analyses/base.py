"""Base classes of analyses: `AnalysisSpec`, the parameters of a request with the method that computes the result.

A task runs an analysis with an `AnalysisContext`, which provides data, posterior and draws. A result is stored under a
key that is made from all inputs of the analysis, so that equal requests share one result.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
import redis
from rq.timeouts import JobTimeoutException

from glle_engine import NUMBERS
from worker.jobs.store import Cancelled
from worker.records.ids import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from glle_engine import Draw, Posterior
    from glle_engine.base.progress import OnProgress
    from glle_engine.reliability.resamples import Embedder
    from worker.records.cache_entry import Array, Entry
    from worker.records.dataset import Dataset
    from worker.records.draws import DrawAddress
    from worker.records.job import Kind


FATAL = (Cancelled, JobTimeoutException, redis.RedisError)  # errors that end a task, not only a part of an analysis


class AnalysisContext(Protocol):
    """What a task provides to the analysis that it runs: inputs, reports of progress, and storage of results."""

    @property
    def on_progress(self) -> OnProgress:
        """Callback (done, total, stage) that writes progress; raises `Cancelled` if the job was cancelled."""

    @property
    def subject(self) -> str:
        """Id of the job's posterior, or of the job's data set if there is no posterior."""

    @property
    def dataset(self) -> str:
        """Id of the data set to which the job's posterior was fitted."""

    @property
    def posterior(self) -> Posterior:
        """The job's posterior."""

    def training(self) -> Array:
        """Return the data (n, d) to which the job's posterior was fitted."""

    def values(self, dataset: str, like: str | None = None) -> Array:
        """Return the values (n, d) of a data set; with `like`, the columns are in the order of the data set `like`."""

    def calibration(self) -> Entry:
        """Return the calibration of the job's posterior with default parameters; compute and store it if missing.

        A calibration finds the scale of draws: the factor on the posterior covariance.
        """

    def draws(self, posterior: Posterior, keys: Iterable[DrawAddress]) -> Iterator[Draw]:
        """Yield the draws of a posterior with the addresses (seed, index, scale ...) in `keys`, in this order."""

    @property
    def embedder(self) -> Embedder:
        """Embeds random halves of the data of the job's posterior, by the method and parameters of its fit."""

    def record_of(self, dataset: str) -> Dataset:
        """Return the record of a data set, with the names of its columns."""

    def extras(self, dataset: str) -> dict[str, Array]:
        """Return a data set's extra arrays (labels, colors, coordinates, ids) by name."""

    def find_result(self, spec: AnalysisSpec) -> Entry | None:
        """Return the stored result of another analysis of the job's posterior or data set, or None."""

    def keep_result(self, spec: AnalysisSpec, entry: Entry) -> Entry:
        """Store the result of an analysis of the job's posterior or data set.

        Return `entry` with its SHA-256 as metadata ``sha256``.
        """

    def find_part(self, key: str) -> Entry | None:
        """Return the part of an analysis that is stored under a key, or None."""

    def keep_part(self, key: str, entry: Entry, owners: Sequence[str]) -> None:
        """Store a part of an analysis under a key, if all records whose ids are in `owners` still exist.

        The part is deleted with any of these records. Raises `ProblemError` (``not-finite-result``).
        """

    def find_embedding(self, id_: str) -> Entry | None:
        """Return the stored embedding with this id, or None."""

    def keep_embedding(self, id_: str, entry: Entry) -> Entry:
        """Store an embedding in its record, the record with the id `id_`, if this record still exists.

        In any case, return `entry` with its SHA-256 as metadata ``sha256``.
        """

    def publish_partial(self, key: str, entry: Entry) -> None:
        """Publish a preliminary result, which clients can read while the analysis runs; it replaces the last one.

        `key` is the key of the final result.
        """


@dataclass(frozen=True)
class Part:
    """Part of an analysis that a task on any worker can make; `AnalysisSpec.run` then combines all parts.

    Parameters
    ----------
    size
        Number of steps of progress in the part, such as resamples.
    make
        Makes and stores the part, unless it is stored already.

    """

    size: int
    make: Callable[[AnalysisContext], object]


@dataclass(frozen=True, kw_only=True)
class AnalysisSpec:
    """Base class of all analyses; the fields of a subclass are the parameters of the request."""

    kind: ClassVar[Kind]
    # Name of the array that is sent in a format for a single array, such as npy; None if there is no such format.
    main: ClassVar[str | None] = None
    may_be_nan: ClassVar[frozenset[str]] = frozenset()  # names of the result's arrays in which NaN has a meaning

    engine: str = NUMBERS  # results that engines with another `NUMBERS` computed are not reused

    @property
    def total(self) -> int:
        """Number of steps in reports of progress, as far as known before the analysis runs."""
        return 1

    def parts(self) -> Sequence[Part]:
        """Return the parts of the work that several tasks can do before `run` combines them, in a fixed order.

        `run` itself makes parts that are missing.
        """
        return ()

    def run(self, context: AnalysisContext) -> Entry:
        """Compute the result, and return its metadata and arrays; the caller stores them."""
        raise NotImplementedError

    def key(self, subject: str) -> str:
        """Return the key of the stored result; `subject` is the id of the analyzed posterior or data set."""
        return f"{subject}:{self.kind}:{digest(self.to_dict())}"

    def owners(self, subject: str) -> tuple[str, ...]:
        """Return the ids of the data sets, posteriors or embeddings that the result is about.

        The result is deleted with any of them. `subject` is the id of the analyzed posterior or data set.
        """
        return (subject,)

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters as a JSON-able dictionary."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """Return the analysis from which `to_dict` made `value`."""
        return cls(**value)


def arrays_of(result: object) -> dict[str, Array]:
    """Return the numpy arrays among the attributes of a result of the engine, by name."""
    return {name: value for name, value in vars(result).items() if isinstance(value, np.ndarray)}
