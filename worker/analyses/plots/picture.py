"""A picture as an analysis: of draws, of a summary, of an embedding, of a comparison."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from glle_engine.base.errors import MissingLibraryError
from worker.analyses.base import AnalysisSpec
from worker.analyses.plots.figure import Format, render
from worker.analyses.plots.panels import LAYOUTS
from worker.records.cache_entry import Entry

if TYPE_CHECKING:
    from worker.analyses.base import AnalysisContext
    from worker.analyses.plots.palette import Theme

Subject = Literal["draws", "summary", "embedding", "comparison"]

MEDIA: dict[Format, str] = {"png": "image/png", "svg": "image/svg+xml"}


@dataclass(frozen=True, kw_only=True)
class PictureSpec(AnalysisSpec):
    """A picture."""

    kind = "picture"

    of: Subject
    asked: dict[str, Any]  # `worker.analyses.plots.panels.DrawGrid`, or an analysis
    dataset: str | None = None  # of an embedding or a comparison
    color: str = "auto"  # the first available one of label, color, sheet, and reference
    format: Format = "png"
    theme: Theme = "light"
    width: int = 1200  # pixels

    def run(self, context: AnalysisContext) -> Entry:
        """Return the bytes as the array `picture`."""
        panels, columns, title = LAYOUTS[self.of](context, self.asked, self.color)
        context.on_progress(0, 1, "picture")
        picture = render(panels, columns=columns, title=title, format_=self.format, theme=self.theme, width=self.width)
        return Entry({**asdict(self), "media": MEDIA[self.format]}, {"picture": np.frombuffer(picture, np.uint8)})


def require_matplotlib() -> None:
    """Raise `MissingLibraryError` unless matplotlib is installed."""
    if find_spec("matplotlib") is None:
        raise MissingLibraryError(
            "Pictures need matplotlib, which is not installed.",
            remedy='Install it: pip install "glle-server[pictures]". Or request the arrays and plot them yourself.',
            details={"library": "matplotlib", "extra": "pictures"},
        )
