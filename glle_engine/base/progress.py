"""Progress of a long computation, told to whoever asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

OnProgress = Callable[[int, int, str], None]
"""Called with (done, total, stage) between blocks of work; what it raises leaves the computation."""


def silent(done: int, total: int, stage: str) -> None:
    """Say nothing."""


def blocks(n: int, size: int, stage: str, on_progress: OnProgress = silent) -> Iterator[slice]:
    """Cut n points into slices of at most `size`, saying after each how many are done."""
    for start in range(0, n, size):
        stop = min(start + size, n)
        yield slice(start, stop)
        on_progress(stop, n, stage)


class StageClock:
    """An `on_progress` that finds out how long each stage takes, and passes on what it is told.

    The time up to a call belongs to its stage; up to a call with done = 0, which begins a stage, to the one before.

    Parameters
    ----------
    on_progress : callable
        Whom to pass on to.
    clock : callable
        What tells the seconds; the wall's by default, a processor's for who asks what a stage costs.

    Attributes
    ----------
    seconds : dict
        By stage, in the order in which they came.

    """

    def __init__(self, on_progress: OnProgress = silent, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[str, float] = {}
        self._on_progress = on_progress
        self._clock = clock
        self._stage = ""
        self._since = clock()

    def __call__(self, done: int, total: int, stage: str) -> None:
        """Note the time, and pass on."""
        self._spend(stage if done or not self._stage else self._stage)
        self._stage = stage
        self._on_progress(done, total, stage)

    def stop(self) -> dict[str, float]:
        """Give what is left to the last stage, and return the seconds of all."""
        self._spend(self._stage)
        return self.seconds

    def _spend(self, stage: str) -> None:
        now = self._clock()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._since
        self._since = now
