"""A hostile body for `POST /v1/datasets`, and its outcome."""

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
    """A handmade body.

    Parameters
    ----------
    reader
        One of `KINDS`.
    name
        Description of the attack.
    build
        Function that returns the body, which may be large.
    query
        Query of the request.
    taken
        Whether the body is valid and must be accepted; None if the reader may decide.

    """

    reader: str
    name: str
    build: Callable[[], bytes]
    query: dict[str, str] = field(default_factory=dict)
    is_accepted: bool | None = False

    @property
    def is_slow(self) -> bool:
        """Return whether building or reading the body takes a large part of a second at any caps."""
        return self.name in _SLOW


@dataclass(frozen=True)
class Outcome:
    """Outcome of one body.

    Parameters
    ----------
    status, media, code
        HTTP status, Content-Type, and the code of a problem.
    seconds
        Processor time.
    peak
        Peak memory beyond the initial memory, bytes.
    left
        Remaining files that belong to no data set.

    """

    status: int
    media: str
    code: str
    seconds: float
    peak: int
    left: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as a JSON-able dictionary."""
        return asdict(self)
