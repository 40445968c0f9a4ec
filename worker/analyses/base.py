"""Analyses as values: the parameters of a request, with the function that computes the result.

A task of a worker runs an analysis in an `AnalysisContext`, which provides data, posterior and draws. The key of the
result covers all inputs.
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


FATAL = (Cancelled, JobTimeoutException, redis.RedisError)  # they end a whole job


class AnalysisContext(Protocol):
    """Inputs, progress and results of an analysis."""

    @property
    def on_progress(self) -> OnProgress:
        """Write progress; raises `worker.jobs.store.Cancelled` if the job was cancelled."""

    @property
    def subject(self) -> str:
        """The id of the job's posterior, or of its data set."""

    @property
    def dataset(self) -> str:
        """The id of the data set of the job's posterior."""

    def posterior(self) -> Posterior:
        """Return the job's posterior."""

    def training(self) -> Array:
        """Return the data (n, d) of the posterior's fit."""

    def values(self, dataset: str, like: str | None = None) -> Array:
        """Return a data set's values, with the columns in the order of the data set `like`."""

    def calibration(self) -> Entry:
        """Return the posterior's default calibration, the result of `CalibrationSpec()`."""

    def draws(self, posterior: Posterior, keys: Iterable[DrawAddress]) -> Iterator[Draw]:
        """Yield draws in their order."""

    def embedder(self) -> Embedder:
        """Return the job's posterior and its data, to be embedded again."""

    def record_of(self, dataset: str) -> Dataset:
        """Return the record of a data set, with the names of its columns."""

    def extras(self, dataset: str) -> dict[str, Array]:
        """Return a data set's extra arrays: labels, colors, coordinates, if any."""

    def find_result(self, spec: AnalysisSpec) -> Entry | None:
        """Return the stored result of an analysis of the same subject, or None."""

    def keep_result(self, spec: AnalysisSpec, entry: Entry) -> Entry:
        """Store the result of an analysis of the job's posterior or data set; return it with its digest."""

    def find_part(self, key: str) -> Entry | None:
        """Return a stored part of an analysis, or None."""

    def keep_part(self, key: str, entry: Entry, owners: Sequence[str]) -> None:
        """Store a finite part of an analysis, unless one of its owners was deleted."""

    def find_embedding(self, id_: str) -> Entry | None:
        """Return a stored embedding, or None."""

    def keep_embedding(self, id_: str, entry: Entry) -> Entry:
        """Store a finite embedding, unless its record was deleted; return it with its digest."""

    def publish_partial(self, key: str, entry: Entry) -> None:
        """Replace the latest partial result, which is shown while the analysis runs."""


@dataclass(frozen=True)
class Part:
    """Part of an analysis that any worker can make before the analysis runs.

    Parameters
    ----------
    size
        Number of resamples in the part.
    make
        Makes the part and stores it, unless it is stored.

    """

    size: int
    make: Callable[[AnalysisContext], object]


@dataclass(frozen=True, kw_only=True)
class AnalysisSpec:
    """Base of all analyses; the fields of each are the parameters of its request."""

    kind: ClassVar[Kind]
    main: ClassVar[str | None] = None  # the array that represents the result in formats for one array
    may_be_nan: ClassVar[frozenset[str]] = frozenset()  # arrays in which NaN has a meaning

    engine: str = NUMBERS  # version of the engine's numbers

    @property
    def total(self) -> int:
        """The number of steps of the analysis's progress, as far as it is known in advance."""
        return 1

    def parts(self) -> Sequence[Part]:
        """Return the parts of the analysis in a fixed order; `run` makes the parts that are missing."""
        return ()

    def run(self, context: AnalysisContext) -> Entry:
        """Return the result: JSON-able metadata, and arrays."""
        raise NotImplementedError

    def key(self, subject: str) -> str:
        """Return the key of the result; `subject` is the id of the posterior, or of the data set."""
        return f"{subject}:{self.kind}:{digest(self.to_dict())}"

    def owners(self, subject: str) -> tuple[str, ...]:
        """Return the ids of the records with which the result is deleted."""
        return (subject,)

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters as a JSON-able dictionary."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """Return the inverse of `to_dict`."""
        return cls(**value)


def arrays_of(result: object) -> dict[str, Array]:
    """Return the arrays among the fields of a result of the engine, by name."""
    return {name: value for name, value in vars(result).items() if isinstance(value, np.ndarray)}
