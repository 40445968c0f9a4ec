"""Wall times, side by side."""

from __future__ import annotations

import gc
import statistics
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def seconds(work: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@dataclass(frozen=True)
class Pair:
    """Interleaved timings of two functions.

    Attributes
    ----------
    ours, theirs : list of float
        Seconds of each repetition.

    """

    ours: list[float]
    theirs: list[float]

    @property
    def ratio(self) -> float:
        """Median of theirs / ours by repetition, so that drift affects both."""
        return statistics.median(b / a for a, b in zip(self.ours, self.theirs, strict=True))

    @property
    def our_median(self) -> float:
        """Median of ours, seconds."""
        return statistics.median(self.ours)

    @property
    def their_median(self) -> float:
        """Median of theirs, seconds."""
        return statistics.median(self.theirs)


def always(work: Callable[..., object], *arguments: object) -> Callable[[int], object]:
    """Return a function that ignores the number of the repetition."""

    def do(_: int) -> object:
        return work(*arguments)

    return do


def in_turn(
    ours: Callable[[int], object], theirs: Callable[[int], object], repeats: int, *, units: int = 1, warm: bool = True
) -> Pair:
    """Time two functions in turn, by repetition number; one call of `ours` is worth `units` calls of `theirs`."""
    if warm:
        ours(repeats)
    pair = Pair([], [])
    for number in range(repeats):
        gc.collect()
        pair.ours.append(seconds(partial(ours, number)) / units)
        pair.theirs.append(seconds(partial(theirs, number)))
    return pair
