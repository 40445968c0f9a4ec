"""What an analysis is: a value that says what is asked for, with a function from what it names to a result.

One task of a worker runs an analysis at its `Desk`, which has the data, the posterior and the draws; the result
is one entry of the cache, under a key made of everything that it depends on.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from glle_engine import NUMBERS
from worker.base.versions import versioned
from worker.records.ids import digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from glle_engine import Draw, Posterior
    from glle_engine.base.progress import OnProgress
    from worker.jobs.store import Kind
    from worker.records.cache_entry import Array, Entry
    from worker.records.draws import DrawKey


class Desk(Protocol):
    """What a worker lays out for an analysis."""

    @property
    def tell(self) -> OnProgress:
        """Writes progress; raises when the job is no longer wanted."""

    @property
    def subject(self) -> str:
        """The posterior that the job is about, or the data set where there is none."""

    @property
    def dataset(self) -> str:
        """The data set that the job's posterior was fitted to."""

    def posterior(self) -> Posterior:
        """Return the job's posterior, fitted again when it was evicted."""

    def training(self) -> Array:
        """Return the data (n, d) that it was fitted to."""

    def values(self, dataset: str) -> Array:
        """Return a data set's values."""

    def calibration(self) -> Entry:
        """Return the posterior's own calibration, the result of a `CalibrationSpec` as it stands."""

    def draws(self, posterior: Posterior, keys: Iterable[DrawKey]) -> Iterator[Draw]:
        """Yield draws, from the cache where they are there."""

    def beside(self, dataset: str) -> dict[str, Array]:
        """Return what is kept beside a data set's values: labels, color, coordinates, where there are."""

    def kept(self, key: str) -> Entry | None:
        """Return an entry of the cache."""

    def keep(self, key: str, entry: Entry) -> Entry:
        """Put an entry into the cache, and return it with its digest; one that is not finite is a problem."""


@dataclass(frozen=True, kw_only=True)
class AnalysisSpec:
    """What all analyses have in common; the fields of each are what was asked for.

    Parameters
    ----------
    engine
        The version of the engine's numbers that the result is of.

    """

    kind: ClassVar[Kind]
    main: ClassVar[str | None] = None  # the array that stands for the result where there is room for one
    may_be_nan: ClassVar[frozenset[str]] = frozenset()  # arrays in which NaN has a meaning

    engine: str = NUMBERS

    @property
    def total(self) -> int:
        """What its progress counts to, as far as it can be known."""
        raise NotImplementedError

    def run(self, desk: Desk) -> Entry:
        """Return the result: `meta`, JSON-able, and arrays."""
        raise NotImplementedError

    def cache_key(self, subject: str) -> str:
        """Return where the result is cached; `subject` is the posterior, or the data set where there is none."""
        return f"{results_prefix(subject)}{self.kind}:{digest(self.to_dict())}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON-able dictionary."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """Return the inverse of `to_dict`."""
        return cls(**value)


def results_prefix(subject: str) -> str:
    """Return what the cache keys of all results about a posterior, or a data set, begin with."""
    return versioned(f"result:{subject}:")
