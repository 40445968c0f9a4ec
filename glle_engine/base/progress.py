"""Progress reports of long computations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

OnProgress = Callable[[int, int, str], None]
"""Called with (done, total, stage) between blocks of work, where `stage` names the current part of the computation.

An exception that it raises cancels the computation.
"""


def silent(done: int, total: int, stage: str) -> None:
    """Ignore a progress report."""


BLOCK_ENTRIES = 1 << 20
"""Numbers of a block of work, to limit its memory to 8 MiB, which also fits in the caches of most processors."""


def block_size(width: int) -> int:
    """Return how many points a block of work has, at least 1, if each point takes `width` numbers."""
    return max(1, BLOCK_ENTRIES // width)


def blocks(n: int, size: int, stage: str, on_progress: OnProgress = silent) -> Iterator[slice]:
    """Yield slices of n points, each of at most `size` points.

    After the caller has processed a slice, call `on_progress` with (points done, n, `stage`); `stage` names the
    computation.
    """
    for start in range(0, n, size):
        stop = min(start + size, n)
        yield slice(start, stop)
        on_progress(stop, n, stage)


class StageClock:
    """Progress callback that measures the time of each stage of a computation and forwards every report.

    A report is (done, total, stage), where the stage is the name of a part of the computation. The time between two
    reports belongs to the stage of the later one. If the later report has done = 0, it begins a stage, and the time
    before it belongs to the previous stage.

    Parameters
    ----------
    on_progress : callable
        Receiver of the reports.
    clock : callable
        Clock in seconds; wall-clock time by default.

    Attributes
    ----------
    seconds : dict
        Time by stage, in order of appearance.

    """

    def __init__(self, on_progress: OnProgress = silent, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[str, float] = {}
        self._on_progress = on_progress
        self._clock = clock
        self._stage = ""
        self._since = clock()

    def __call__(self, done: int, total: int, stage: str) -> None:
        """Forward a report, after adding the time since the previous report to `stage`.

        A report with done = 0 begins `stage`, so that the time is added to the stage of the previous report instead,
        if there was one.
        """
        self._spend(stage if done or not self._stage else self._stage)
        self._stage = stage
        self._on_progress(done, total, stage)

    def stop(self) -> dict[str, float]:
        """Assign the remaining time to the last stage, and return the seconds by stage."""
        self._spend(self._stage)
        return self.seconds

    def _spend(self, stage: str) -> None:
        now = self._clock()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._since
        self._since = now
