"""Validation of a data set's values in blocks of rows: they must be finite, and integers exact as float64."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.arrays import EXACT
from worker.base.problems import ProblemError, refuse
from worker.records.cache_entry import Array, bytes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BLOCK_VALUES = 2**22  # values are checked in blocks of this many, which take 32 MB
MAX_LISTED_ROWS = 20  # the details of a problem list at most this many rows
MAX_SHOWN_CHARACTERS = 50  # a message quotes at most this many characters of a bad value

_FLAWS = {
    "not-finite": "is not a finite number",
    "missing-value": "is missing",
    "inexact-integer": "is an integer that float64 cannot represent",
    "bad-cell": "is not a number",
}
REMEDIES = {
    "not-finite": "Remove the row, or fill the value in before uploading.",
    "missing-value": "Fill the value in, remove its row, or leave its column out.",
    "inexact-integer": "Subtract an offset or rescale: beyond 2^53 float64 cannot represent every integer.",
}


def checked_blocks(values: Array, dtype: np.dtype[Any], names: list[str] | None) -> Iterator[memoryview]:
    """Yield the bytes of values (n, d) converted to `dtype`, block by block; raise the problem of the first bad value.

    A value is bad if it is not finite, or if it is an integer that float64 would round.
    """
    for start, raw in _blocks(values):
        block = _convert(raw, dtype)
        for code, bad in _faults(raw, block).items():
            if bad.any():
                raise _problem(values[start:], start, dtype, names, code)
        yield bytes_of(block)


def converted_blocks(values: Array, dtype: np.dtype[Any]) -> Iterator[memoryview]:
    """Yield the bytes of values (n, d) converted to `dtype`, block by block, without any check."""
    return (bytes_of(_convert(raw, dtype)) for _, raw in _blocks(values))


def _blocks(values: Array) -> Iterator[tuple[int, Array]]:
    """Yield (index of the first row, rows) for consecutive blocks of rows."""
    rows = max(1, BLOCK_VALUES // max(1, values.shape[1]))
    return ((start, values[start : start + rows]) for start in range(0, len(values), rows))


def _convert(raw: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore"):  # an overflow becomes infinity, which is refused
        return np.ascontiguousarray(raw, dtype)


def _faults(raw: Array, block: Array) -> dict[str, Array]:
    """Return a mapping from problem codes to boolean masks of the bad values in a block."""
    faults = {"not-finite": ~np.isfinite(block)}
    if raw.dtype.kind in "iu":
        faults["inexact-integer"] = (raw > EXACT) | (raw < -EXACT)
    return faults


def _problem(values: Array, offset: int, dtype: np.dtype[Any], names: list[str] | None, code: str) -> ProblemError:
    """Return one error with the first bad value, the number of bad rows, and the indices of the first bad rows.

    `code` says what is bad, such as ``not-finite``. `offset` is the index of the first row of `values` in the data set.
    """
    problem: ProblemError | None = None
    bad_rows = BadRows()
    for start, raw in _blocks(values):
        block = _convert(raw, dtype)
        bad = _faults(raw, block)[code]
        bad_rows.add(offset + start + np.flatnonzero(bad.any(axis=1)))
        if problem is None:
            row, column = (int(i) for i in np.argwhere(bad)[0])
            value = str((block if code == "not-finite" else raw)[row, column])
            problem = bad_value(code, value, offset + start + row, column, names=names, remedy=REMEDIES[code])
    assert problem is not None
    return bad_rows.annotate(problem)


@dataclass
class BadRows:
    """Collects rows with a bad value: how many there are, and the indices (from 0) of the first `MAX_LISTED_ROWS`."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, rows: Iterable[int]) -> None:
        """Add the indices of further rows; no row may be added twice."""
        for row in rows:
            self.count += 1
            if len(self.first) < MAX_LISTED_ROWS:
                self.first.append(int(row))

    def annotate(self, error: ProblemError) -> ProblemError:
        """Return `error`, which describes the first bad value, with the number and a list of bad rows in its details.

        Its text also gets the number of other rows with such values.
        """
        problem = error.problem
        others = self.count - 1
        sentence = f" {others:,} other row{'s have' if others > 1 else ' has'} such values." if others else ""
        details = {**problem.details, "rows_affected": self.count, "rows": [row + 1 for row in self.first]}
        return ProblemError(replace(problem, detail=problem.detail + sentence, details=details))


def bad_value(code: str, value: str, row: int, column: int, *, names: list[str] | None, remedy: str) -> ProblemError:
    """Return the problem of a bad value at `row` and `column` (both from 0); `names` are the names of the columns."""
    value = value[:MAX_SHOWN_CHARACTERS]
    name = names[column] if names else None
    place = f"row {row + 1}, column {column + 1}" + (f" ({name})" if names else "") + ", counted from 1"
    return refuse(
        code,
        422,
        f"The value {value!r} in {place}, {_FLAWS[code]}.",
        remedy,
        row=row + 1,
        column=column + 1,
        name=name,
        value=value,
    )
