"""Analyses as values: the parameters of a request, with the function that computes the result.

A task of a worker runs an analysis in an `AnalysisContext`, which provides data, posterior and draws. The result is one
entry of the cache; its key covers all inputs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np

from glle_engine import NUMBERS
from worker.base.versions import versioned_key
from worker.records.ids import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from glle_engine import Draw, Posterior
    from glle_engine.base.progress import OnProgress
    from glle_engine.reliability.resamples import Embedder
    from worker.records.cache_entry import Array, Entry
    from worker.records.draws import DrawAddress
    from worker.records.job import Kind


class AnalysisContext(Protocol):
    """Inputs, progress and cache of an analysis."""

    @property
    def on_progress(self) -> OnProgress:
        """Write progress; raises `worker.jobs.store.Cancelled` if the job is not wanted."""

    @property
    def subject(self) -> str:
        """The id of the job's posterior, or of its data set."""

    @property
    def arrays_id(self) -> str:
        """The name of the arrays of the job's posterior (`PosteriorRecord.arrays_id`)."""

    @property
    def dataset(self) -> str:
        """The id of the data set of the job's posterior."""

    def posterior(self) -> Posterior:
        """Return the job's posterior, fitted again if it was evicted."""

    def training(self) -> Array:
        """Return the data (n, d) of the posterior's fit."""

    def values(self, dataset: str, like: str | None = None) -> Array:
        """Return a data set's values, with the columns in the order of those of the data set `like`."""

    def calibration(self) -> Entry:
        """Return the posterior's default calibration, the result of `CalibrationSpec()`."""

    def draws(self, posterior: Posterior, keys: Iterable[DrawAddress]) -> Iterator[Draw]:
        """Yield draws from the cache; make and cache the missing ones."""

    def embedder(self) -> Embedder:
        """Return the job's posterior and its data, to be embedded again."""

    def extras(self, dataset: str) -> dict[str, Array]:
        """Return a data set's extra arrays: labels, color, coordinates, if any."""

    def find_cached(self, key: str) -> Entry | None:
        """Return an entry of the cache, or None."""

    def cache(self, key: str, entry: Entry, *, seconds: float = 0.0, together: int = 0) -> Entry:
        """Cache a finite entry that took so many seconds, and return it with its digest.

        `together` is the number of bytes of all entries that are read together; without room for these nothing is
        cached.
        """


@dataclass(frozen=True)
class Part:
    """Part of an analysis that any worker can make before the analysis runs.

    Parameters
    ----------
    size
        Resamples in it.
    make
        Makes and caches it, unless it is cached.

    """

    size: int
    make: Callable[[AnalysisContext], object]


@dataclass(frozen=True, kw_only=True)
class AnalysisSpec:
    """Base of all analyses; the fields of each are the parameters of its request."""

    kind: ClassVar[Kind]
    main: ClassVar[str | None] = None  # the array that represents the result in formats for one array
    may_be_nan: ClassVar[frozenset[str]] = frozenset()  # arrays in which NaN has a meaning

    engine: str = NUMBERS  # the version of the engine's numbers

    @property
    def total(self) -> int:
        """The number of steps of its progress, as far as it is known in advance."""
        return 1

    def parts(self) -> Sequence[Part]:
        """Return its parts, in an order that never changes; `run` makes those that are missing."""
        return ()

    def run(self, context: AnalysisContext) -> Entry:
        """Return the result: JSON-able metadata, and arrays."""
        raise NotImplementedError

    def cache_key(self, subject: str) -> str:
        """Return the cache key of the result; `subject` is the id of the posterior, or of the data set."""
        return f"{results_prefix(subject)}{self.kind}:{digest(self.to_dict())}"

    def partial_key(self, subject: str) -> str:
        """Return the cache key of the latest result before the job's end."""
        return f"{self.cache_key(subject)}:partial"

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


def results_prefix(subject: str) -> str:
    """Return the prefix of the cache keys of all results about a posterior or a data set."""
    return versioned_key(f"result:{subject}:")
