"""A body that is sent to `POST /v1/datasets`, and what came of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

NPY, NPZ, CSV, JSON = "application/x-npy", "application/zip", "text/csv", "application/json"
ARROW, PARQUET = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"
KINDS = {"npy": NPY, "npz": NPZ, "csv": CSV, "json": JSON, "arrow": ARROW, "parquet": PARQUET}


_SLOW = {
    "the smallest cells, a million times",
    "one long label, many short ones",
    "line ends alone",
    "carriage returns alone",
    "very many columns",
    "words encoded by their differences",
    "very many members",
    "one wide letter, then numbers",
}


@dataclass(frozen=True)
class Attack:
    """A body made by hand.

    Parameters
    ----------
    reader
        Of `KINDS`.
    name
        What it tries.
    build
        Makes the body, which may be large.
    query
        Of the request.
    taken
        Whether it is good after all, and costs as little as another; None where that is for the reader to say.

    """

    reader: str
    name: str
    build: Callable[[], bytes]
    query: dict[str, str] = field(default_factory=dict)
    taken: bool | None = False

    @property
    def is_slow(self) -> bool:
        """Return whether making or reading it takes a large part of a second with any limits."""
        return self.name in _SLOW


@dataclass(frozen=True)
class Outcome:
    """Outcome of one body.

    Parameters
    ----------
    status, media, code
        Of the answer: the HTTP status, the Content-Type, and the problem's kind where it is one.
    seconds
        Of processor time.
    peak
        Bytes of memory at most, beyond those before.
    left
        Files that are there afterwards and belong to no data set.

    """

    status: int
    media: str
    code: str
    seconds: float
    peak: int
    left: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON-able dictionary."""
        return asdict(self)
