"""A slice of an axis, `?points=` or `?draws=`: `a:b` as in Python (half open, negative from the end), or a list.

What lies outside the axis is refused, not clipped; so is an empty slice.
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

MOST_LISTED = 1000
_SLICE = re.compile(r"(-?\d{1,18})?:(-?\d{1,18})?")
_LIST = re.compile(r"-?\d{1,18}(,-?\d{1,18})*")

_TOLD = f"`a:b` as in Python, half open; or a comma list of at most {MOST_LISTED:,} positions from 0."
Points = Annotated[str | None, Query(description=f"Only these points: {_TOLD}", examples=["0:100"])]
Draws = Annotated[str | None, Query(description=f"Only these of the draws, by position: {_TOLD}", examples=["0:8"])]


@dataclass(frozen=True)
class Selection:
    """Positions along an axis of length `size`; `tag` tells them, and is empty for all."""

    size: int
    positions: Sequence[int]
    tag: str

    @classmethod
    def of(cls, text: str | None, size: int, what: str) -> Self:
        """Return the positions that a parameter named `what` asks for.

        Raises
        ------
        ProblemError
            ``invalid-slice``, ``slice-out-of-range``.

        """
        if text is None:
            return cls(size, range(size), "")
        if (bounds := _SLICE.fullmatch(text)) is not None:
            start = _inside(bounds[1] or "0", size, what, last=size)
            stop = _inside(bounds[2] or str(size), size, what, last=size)
            if start >= stop:
                raise _invalid(f"{what}={text} is empty.")
            whole = (start, stop) == (0, size)
            return cls(size, range(start, stop), "" if whole else f"{what}={start}:{stop}")
        if _LIST.fullmatch(text) is None:
            raise _invalid(f"{what}={text[:50]!r} is no slice.")
        listed = text.split(",")
        if len(listed) > MOST_LISTED:
            raise _invalid(f"{what} lists {len(listed):,} positions; {MOST_LISTED:,} are allowed.")
        places = [_inside(number, size, what, last=size - 1) for number in listed]
        return cls(size, places, f"{what}={','.join(map(str, places))}")

    def take(self, array: Array, axis: int = 0) -> Array:
        """Return these positions of an array's axis; a slice is not copied."""
        lead = (slice(None),) * axis
        if isinstance(self.positions, range):
            return array[(*lead, slice(self.positions.start, self.positions.stop))]
        return np.take(array, self.positions, axis)

    def __len__(self) -> int:
        return len(self.positions)


def reject_slice(what: str, text: str | None) -> None:
    """Refuse a slice where there is no such axis."""
    if text is not None:
        remedy = f"Leave ?{what}= out."
        raise refuse("not-sliceable", 422, f"There are no {what} to choose from here.", remedy)


def _inside(number: str, size: int, what: str, *, last: int) -> int:
    place = int(number)
    if not -size <= place <= last:
        raise refuse(
            "slice-out-of-range",
            422,
            f"{what}: {place} is outside; there are {size:,}.",
            f"Choose positions of 0 to {last}, or of {-size} to -1 from the end.",
            allowed=[0, last],
            size=size,
        )
    return place + size if place < 0 else place


def _invalid(detail: str) -> ProblemError:
    remedy = f"Give a:b with a below b, or a comma list of at most {MOST_LISTED:,} positions."
    return refuse("invalid-slice", 422, detail, remedy)
