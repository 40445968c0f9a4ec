"""Slices of an axis, `?points=` or `?draws=`: `a:b` as in Python (half open, negative from the end), or a list.

Positions outside the axis are refused, not clipped; so is an empty slice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from fastapi import Query

from worker.base.problems import ProblemError, refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

Array = np.ndarray[Any, np.dtype[Any]]

MAX_LISTED = 1000
_SLICE = re.compile(r"(-?\d{1,18})?:(-?\d{1,18})?")
_LIST = re.compile(r"-?\d{1,18}(,-?\d{1,18})*")

_SYNTAX = f"`a:b` as in Python, half open; or a comma list of at most {MAX_LISTED:,} positions from 0."
Points = Annotated[str | None, Query(description=f"Only these points: {_SYNTAX}", examples=["0:100"])]
Draws = Annotated[str | None, Query(description=f"Only these of the draws, by position: {_SYNTAX}", examples=["0:8"])]


@dataclass(frozen=True)
class Selection:
    """Positions along an axis of length `size`; `tag` identifies them in an ETag, and is empty for all."""

    size: int
    positions: Sequence[int]
    tag: str

    @classmethod
    def of(cls, text: str | None, size: int, name: str) -> Self:
        """Return the positions of a query parameter, or raise ``invalid-slice`` or ``slice-out-of-range``."""
        if text is None:
            return cls(size, range(size), "")
        if (bounds := _SLICE.fullmatch(text)) is not None:
            start = _position(bounds[1] or "0", size, name, last=size)
            stop = _position(bounds[2] or str(size), size, name, last=size)
            if start >= stop:
                raise _invalid(f"{name}={text} is empty.")
            is_whole = (start, stop) == (0, size)
            return cls(size, range(start, stop), "" if is_whole else f"{name}={start}:{stop}")
        if _LIST.fullmatch(text) is None:
            raise _invalid(f"{name}={text[:50]!r} is no slice.")
        numbers = text.split(",")
        if len(numbers) > MAX_LISTED:
            raise _invalid(f"{name} lists {len(numbers):,} positions; {MAX_LISTED:,} are allowed.")
        positions = [_position(number, size, name, last=size - 1) for number in numbers]
        return cls(size, positions, f"{name}={','.join(map(str, positions))}")

    def take(self, array: Array, axis: int = 0) -> Array:
        """Return these positions of an array's axis; a slice is a view."""
        lead = (slice(None),) * axis
        if isinstance(self.positions, range):
            return array[(*lead, slice(self.positions.start, self.positions.stop))]
        return np.take(array, self.positions, axis)

    def __len__(self) -> int:
        return len(self.positions)


def reject_slice(name: str, text: str | None) -> None:
    """Refuse a slice of an axis that a resource does not have."""
    if text is not None:
        raise refuse("not-sliceable", 422, f"This resource has no {name} to slice.", f"Leave ?{name}= out.")


def _position(text: str, size: int, name: str, *, last: int) -> int:
    position = int(text)
    if not -size <= position <= last:
        raise refuse(
            "slice-out-of-range",
            422,
            f"{name}: {position} is outside; there are {size:,}.",
            f"Choose positions of 0 to {last}, or of {-size} to -1 from the end.",
            allowed=[0, last],
            size=size,
        )
    return position + size if position < 0 else position


def _invalid(detail: str) -> ProblemError:
    remedy = f"Give a:b with a below b, or a comma list of at most {MAX_LISTED:,} positions."
    return refuse("invalid-slice", 422, detail, remedy)
