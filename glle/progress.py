"""Progress bars of jobs, in terminals and notebooks."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glle.types import ProgressOut


class Bar:
    """Progress bar of one job, displayed from its first update on."""

    def __init__(self, bars: Bars, title: str) -> None:
        self._bars = bars
        self._title = title
        self._task: Any = None

    @property
    def is_visible(self) -> bool:
        """Whether the bar is displayed, so that the session asks for progress more often."""
        return self._bars.console is not None

    def update(self, progress: ProgressOut) -> None:
        """Display the progress of a job; a job that ends at once has no bar."""
        if self._bars.console is None:
            return
        if self._task is None:
            if progress["done"] >= progress["total"] > 0:
                return
            self._task = self._bars.start(self._title)
        total = progress["total"] or None
        self._bars.progress.update(self._task, completed=progress["done"], total=total, stage=progress["stage"])

    def end(self) -> None:
        """Remove the bar."""
        if self._task is not None:
            self._bars.stop(self._task)


class Bars:
    """Progress bars of one client: several jobs share one display.

    Parameters
    ----------
    switch
        None: in a terminal and in a notebook. True and False: always, never.

    """

    def __init__(self, switch: bool | None = None) -> None:  # noqa: FBT001 # the value of Client(progress=)
        self.console = _console(switch)
        self.progress: Any = None
        self._count = 0
        self._lock = threading.Lock()

    @contextmanager
    def bar(self, title: str) -> Iterator[Bar]:
        """Yield a bar for one job."""
        bar = Bar(self, title)
        try:
            yield bar
        finally:
            bar.end()

    def start(self, title: str) -> Any:
        """Add a bar; the first one starts the display."""
        with self._lock:
            if self._count == 0:
                self.progress = _display(self.console)
                self.progress.start()
            self._count += 1
            return self.progress.add_task(title, total=None, stage="")

    def stop(self, task: Any) -> None:
        """Remove a bar; the last one stops the display."""
        with self._lock:
            self.progress.remove_task(task)
            self._count -= 1
            if self._count == 0:
                self.progress.stop()


def _console(switch: bool | None) -> Any:  # noqa: FBT001 # the value of Client(progress=)
    if switch is False:
        return None
    try:
        from rich.console import Console  # noqa: PLC0415 # optional
    except ImportError:
        if switch is None:
            return None
        raise ImportError("Progress bars need rich: pip install rich, or give progress=False.") from None
    console = Console(stderr=True)
    return console if switch or console.is_terminal or console.is_jupyter else None


def _display(console: Any) -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[stage]}"),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, transient=True)
