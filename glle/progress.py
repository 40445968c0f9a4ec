"""One line of progress on stderr, in terminals and notebooks."""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from glle.types import ProgressOut

DELAY_SECONDS = 2.0  # a computation in this process shows its progress only if it takes longer than this
_REDRAW_SECONDS = 0.1  # the line is written at most ten times a second


class Bars:
    """Line on stderr that shows the progress of all jobs of one client.

    `switch` says whether the line appears; with None, it appears in terminals and notebooks. A job is shown once it has
    run for `delay` seconds.
    """

    def __init__(self, switch: bool | None = None, *, delay: float = 0.0) -> None:  # noqa: FBT001 # Client(progress=)
        self.is_visible = _is_watched() if switch is None else switch  # the session then asks for progress more often
        self._delay = delay
        self._shown: dict[object, str] = {}
        self._width = 0

    @contextmanager
    def bar(self, title: str) -> Iterator[Callable[[ProgressOut], None]]:
        """Yield a function that shows the progress of a job, with `title` as its name; afterwards remove the job.

        Jobs that end within the delay are never shown.
        """
        key, started, last = object(), time.monotonic(), 0.0

        def update(progress: ProgressOut) -> None:
            nonlocal last
            done, total, now = progress["done"], progress["total"], time.monotonic()
            is_new = key not in self._shown
            if is_new and (not self.is_visible or 0 < total <= done or now - started < self._delay):
                return
            if is_new or now - last >= _REDRAW_SECONDS:
                last = now
                count = f" {done:,}/{total:,}" if total else ""
                self._shown[key] = f"{title}: {progress['stage']}{count}, {now - started:.0f} s"
                self._draw()

        try:
            yield update
        finally:
            if self._shown.pop(key, None) is not None:
                self._draw()

    def _draw(self) -> None:
        """Write the progress of all jobs over the line, or erase the line if no job is running."""
        text = " | ".join(self._shown.values())[: shutil.get_terminal_size().columns - 1]
        sys.stderr.write(f"\r{text.ljust(self._width)}" + ("" if text else "\r"))
        sys.stderr.flush()
        self._width = len(text)


@contextmanager
def watched(
    title: str,
    verbose: bool | None,  # noqa: FBT001 # the value of glle.fit(verbose=)
    on_progress: Callable[[int, int, str], None] | None,
) -> Iterator[Callable[[int, int, str], None]]:
    """Yield a function for a computation to call with (done, total, stage): it shows a line and calls `on_progress`.

    If `verbose` is True, the line appears on stderr after two seconds. If it is None, the line appears only in
    terminals and notebooks, and only without an `on_progress`.
    """
    bars = Bars(False if verbose is None and on_progress is not None else verbose, delay=DELAY_SECONDS)
    with bars.bar(title) as update:

        def report(done: int, total: int, stage: str) -> None:
            update({"done": done, "total": total, "stage": stage, "eta": None})
            if on_progress is not None:
                on_progress(done, total, stage)

        yield report


def _is_watched() -> bool:
    """Return whether stderr is a terminal or the output of a notebook's cell."""
    stderr = sys.stderr
    return stderr is not None and (stderr.isatty() or type(stderr).__module__.startswith("ipykernel"))
