"""Progress of a long computation, told to whoever asked."""

from __future__ import annotations

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
