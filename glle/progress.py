"""Progress bars of jobs, in terminals and notebooks."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from glle.types import ProgressOut


class Bars:
    """Progress bars of one client: in terminals and notebooks (None), always (True) or never (False).

    Several jobs share one display.
    """

    def __init__(self, switch: bool | None = None) -> None:  # noqa: FBT001 # the value of Client(progress=)
        self._console = _console(switch)
        self._lock = threading.Lock()
        self.display: Any = None

    @property
    def is_visible(self) -> bool:
        """Whether bars are displayed, so that the session asks for progress more often."""
        return self._console is not None

    @contextmanager
    def bar(self, title: str) -> Iterator[Callable[[ProgressOut], None]]:
        """Yield the function that displays the progress of one job; its bar appears with the first unfinished one."""
        task: Any = None

        def update(progress: ProgressOut) -> None:
            nonlocal task
            done, total = progress["done"], progress["total"]
            if task is None and self.is_visible and not 0 < total <= done:
                task = self.start(title)
            if task is not None:
                self.display.update(task, completed=done, total=total or None, stage=progress["stage"])

        try:
            yield update
        finally:
            if task is not None:
                self.stop(task)

    def start(self, title: str) -> Any:
        """Add a bar; the first one starts the display."""
        with self._lock:
            if self.display is None:
                self.display = _display(self._console)
                self.display.start()
            return self.display.add_task(title, total=None, stage="")

    def stop(self, task: Any) -> None:
        """Remove a bar; the last one stops the display."""
        with self._lock:
            self.display.remove_task(task)
            if not self.display.tasks:
                self.display.stop()
                self.display = None


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
