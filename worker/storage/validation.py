"""The values of a data set in blocks of rows, converted, and checked: what is not finite, or not exact, is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from worker.storage.bad_values import REMEDIES, BadRows, bad_cell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.base.problems import ProblemError

Array = np.ndarray[Any, np.dtype[Any]]

BLOCK = 2**22  # values converted, checked and hashed at a time: 32 MB
EXACT = 2**53  # integers up to here are float64 without loss


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
            found = bad_cell(code, value, start + row, column, names=names, remedy=REMEDIES[code])
    assert found is not None
    return bad_rows.told(found)
