"""Bars for jobs that take a while, in a terminal or a notebook; silence elsewhere."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glle.types import ProgressOut


class Bar:
    """One job's bar, which appears when it is first told something."""

    def __init__(self, bars: Bars, title: str) -> None:
        self._bars = bars
        self._title = title
        self._task: Any = None

    @property
    def shown(self) -> bool:
        """Whether anyone looks: then progress is asked for more often."""
        return self._bars.console is not None

    def tell(self, progress: ProgressOut) -> None:
        """Show how far it is, unless that is already the end."""
        if self._bars.console is None:
            return
        if self._task is None:
            if progress["done"] >= progress["total"] > 0:
                return  # over before anyone had to wait
            self._task = self._bars.begin(self._title)
        total = progress["total"] or None
        self._bars.progress.update(self._task, completed=progress["done"], total=total, stage=progress["stage"])

    def end(self) -> None:
        """Take it away."""
        if self._task is not None:
            self._bars.finish(self._task)


class Bars:
    """The bars of one client: several jobs at once share one display.

    Parameters
    ----------
    switch
        None: in a terminal, and in a notebook. True and False: always, never.

    """

    def __init__(self, switch: bool | None = None) -> None:  # noqa: FBT001 # handed on as it came
        self.console = _console(switch)
        self.progress: Any = None
        self._open = 0
        self._lock = threading.Lock()

    @contextmanager
    def bar(self, title: str) -> Iterator[Bar]:
        """Yield a bar for one job."""
        made = Bar(self, title)
        try:
            yield made
        finally:
            made.end()

    def begin(self, title: str) -> Any:
        """Add a bar to the display, which begins with its first one."""
        with self._lock:
            if self._open == 0:
                self.progress = _display(self.console)
                self.progress.start()
            self._open += 1
            return self.progress.add_task(title, total=None, stage="")

    def finish(self, task: Any) -> None:
        """Remove a bar; the display ends with its last one."""
        with self._lock:
            self.progress.remove_task(task)
            self._open -= 1
            if self._open == 0:
                self.progress.stop()


def _console(switch: bool | None) -> Any:  # noqa: FBT001 # handed on as it came
    """Return where to show bars, or None."""
    if switch is False:
        return None
    try:
        from rich.console import Console  # noqa: PLC0415 # the client works without
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
