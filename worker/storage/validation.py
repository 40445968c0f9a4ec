"""The values of a data set in blocks of rows, converted, and checked: what is not finite, or not exact, is refused."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from worker.base.problems import ProblemError, refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Array = np.ndarray[Any, np.dtype[Any]]

BLOCK = 2**22  # values converted, checked and hashed at a time: 32 MB
EXACT = 2**53  # integers up to here are float64 without loss
LISTED = 20
SHOWN = 50  # characters of a bad value

REMEDIES = {
    "not-finite": "Remove the row, or fill the value in before uploading.",
    "missing-value": "Fill the value in, remove its row, or set its column apart with ?label=.",
    "inexact-integer": "Subtract an offset or rescale: beyond 2^53 float64 cannot tell neighbours apart.",
}


def checked_blocks(values: Array, dtype: np.dtype[Any], names: list[str] | None) -> Iterator[memoryview]:
    """Yield the bytes of the values in blocks of rows; refuse what is not finite, or not exact."""
    rows = max(1, BLOCK // max(1, values.shape[1]))
    for start in range(0, len(values), rows):
        raw = values[start : start + rows]
        block = _converted(raw, dtype)
        for code, bad in _faults(raw, block).items():
            if bad.any():
                raise _refused(values[start:], start, dtype, names, code)
        yield block.reshape(-1).view(np.uint8).data


def _converted(raw: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore"):  # past float64 becomes infinite: refused
        return np.ascontiguousarray(raw, dtype)


def _faults(raw: Array, block: Array) -> dict[str, Array]:
    """Return where values are not finite, and where integers are beyond what float64 can tell apart."""
    faults = {"not-finite": ~np.isfinite(block)}
    if raw.dtype.kind in "iu":
        faults["inexact-integer"] = (raw > EXACT) | (raw < -EXACT)
    return faults


def _refused(values: Array, start: int, dtype: np.dtype[Any], names: list[str] | None, code: str) -> ProblemError:
    """Return the problem of values of which the first rows have one with this fault; all rows that have are counted."""
    found: ProblemError | None = None
    bad_rows = BadRows()
    rows = max(1, BLOCK // max(1, values.shape[1]))
    for first in range(0, len(values), rows):
        raw = values[first : first + rows]
        block = _converted(raw, dtype)
        bad = _faults(raw, block)[code]
        bad_rows.add(start + first + np.flatnonzero(bad.any(axis=1)))
        if found is None:
            row, column = (int(i) for i in np.argwhere(bad)[0])
            value = str((block if code == "not-finite" else raw)[row, column])
            found = bad_value(code, value, start + row, column, names=names, remedy=REMEDIES[code])
    assert found is not None
    return bad_rows.told(found)


@dataclass
class BadRows:
    """Rows with a bad value, in their order, counted from 0."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, rows: Iterable[int]) -> None:
        """Count more rows; each comes once."""
        for row in rows:
            self.count += 1
            if len(self.first) < LISTED:
                self.first.append(int(row))

    def told(self, error: ProblemError) -> ProblemError:
        """Return the problem of the first bad value, which tells of the other rows, too."""
        problem = error.problem
        others = self.count - 1
        more = f" {others:,} other row{'s have' if others > 1 else ' has'} such values." if others else ""
        details = {**problem.details, "rows_affected": self.count, "rows": [row + 1 for row in self.first]}
        return ProblemError(replace(problem, detail=problem.detail + more, details=details))


def bad_value(code: str, value: str, row: int, column: int, *, names: list[str] | None, remedy: str) -> ProblemError:
    """Return the problem of one value of a body; `row` and `column` count from 0. A long value is told in part."""
    value = value[:SHOWN]
    where = f"row {row + 1}, column {column + 1}" + (f" ({names[column]})" if names else "")
    return refuse(
        code,
        422,
        f"The value at {where} is {value!r}.",
        remedy,
        row=row + 1,
        column=column + 1,
        name=names[column] if names else None,
        value=value,
    )
