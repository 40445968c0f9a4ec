"""A job's progress in a line of the demo's own, which stays when the job is over."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from glle.progress import Bar, Bars

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress, TaskID

    from glle.types import ProgressOut


class Lines(Bars):
    """Shows what the client tells in the line that is being worked on.

    Parameters
    ----------
    progress
        The display.

    """

    def __init__(self, progress: Progress) -> None:
        super().__init__(switch=False)  # no bars beside the lines
        self.display = progress
        self.line: TaskID | None = None

    @contextmanager
    def bar(self, title: str) -> Iterator[Bar]:
        """Yield the line of the moment."""
        yield _Line(self, title)


class _Line(Bar):
    def __init__(self, lines: Lines, title: str) -> None:
        super().__init__(lines, title)
        self._lines = lines

    @property
    def is_visible(self) -> bool:
        """Whether a line is there."""
        return self._lines.line is not None

    def update(self, progress: ProgressOut) -> None:
        """Show how far it is."""
        if self._lines.line is not None:
            done, total, stage = progress["done"], progress["total"], progress["stage"]
            self._lines.display.update(self._lines.line, completed=done, total=total, stage=stage)
