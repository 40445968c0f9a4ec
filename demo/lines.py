"""Progress lines of the demo, which stay after a job ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glle.progress import Bars

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Lines(Bars):
    """Progress line of the current job.

    Parameters
    ----------
    progress
        The display.

    """

    def __init__(self, progress: Progress) -> None:
        super().__init__(switch=False)  # no bars beside the lines
        self.display = progress
        self.line: TaskID | None = None

    @property
    def is_visible(self) -> bool:
        """Whether the demo has a current line."""
        return self.line is not None

    def start(self, title: str) -> TaskID | None:  # noqa: ARG002 # the line has a title already
        """Return the current line."""
        return self.line

    def stop(self, task: TaskID) -> None:
        """Keep the line after the end of the job."""
