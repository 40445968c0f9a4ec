"""Progress bars of jobs, in terminals and notebooks."""

from __future__ import annotations

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
        self.display: Any = _display(switch)

    @property
    def is_visible(self) -> bool:
        """Whether bars are displayed; the session then asks for progress more often."""
        return self.display is not None

    @contextmanager
    def bar(self, title: str) -> Iterator[Callable[[ProgressOut], None]]:
        """Yield a function that displays the progress of a job; the bar appears with the first unfinished progress."""
        task: Any = None

        def update(progress: ProgressOut) -> None:
            nonlocal task
            done, total = progress["done"], progress["total"]
            if task is None and self.is_visible and not 0 < total <= done:
                self.display.start()
                task = self.display.add_task(title, total=None, stage="")
            if task is not None:
                self.display.update(task, completed=done, total=total or None, stage=progress["stage"])

        try:
            yield update
        finally:
            if task is not None:
                self.display.remove_task(task)
                if not self.display.tasks:
                    self.display.stop()


def _display(switch: bool | None) -> Any:  # noqa: FBT001 # the value of Client(progress=)
    """Return the display, which has not been started yet, or None."""
    if switch is False:
        return None
    try:
        from rich.console import Console  # noqa: PLC0415 # optional
    except ImportError:
        if switch is None:
            return None
        raise ImportError("Progress bars need rich: pip install rich, or give progress=False.") from None
    console = Console(stderr=True)
    if not (switch or console.is_terminal or console.is_jupyter):
        return None
    from rich import progress as rich  # noqa: PLC0415 # optional, and takes some time

    texts = rich.TextColumn("{task.description}"), rich.TextColumn("{task.fields[stage]}")
    columns = texts[0], rich.BarColumn(), rich.MofNCompleteColumn(), texts[1], rich.TimeElapsedColumn()
    return rich.Progress(*columns, console=console, transient=True)
