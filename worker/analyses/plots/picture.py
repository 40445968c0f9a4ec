"""A picture as an analysis: of draws, of what many say together, of an embedding, of a comparison."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from glle_engine.base.errors import MissingLibraryError
from worker.analyses.base import AnalysisSpec
from worker.analyses.plots.figures import Format, sheet
from worker.analyses.plots.subjects import SUBJECTS
from worker.storage.array_cache import Entry

if TYPE_CHECKING:
    from worker.analyses.base import Desk
    from worker.analyses.plots.palette import Theme

Subject = Literal["draws", "summary", "embedding", "comparison"]

MEDIA: dict[Format, str] = {"png": "image/png", "svg": "image/svg+xml"}


@dataclass(frozen=True, kw_only=True)
class PictureSpec(AnalysisSpec):
    """What is to be seen, and how.

    Parameters
    ----------
    of
        What is shown.
    asked
        The draws (`worker.analyses.plots.subjects.Grid`), or the analysis, as a dictionary.
    dataset
        Of an embedding or a comparison.
    color
        What the colour of a point shows: "auto" is the first there is of label, color, sheet, and reference.
    format, theme
        See `worker.analyses.plots.figures`.
    width
        Pixels.

    """

    kind = "picture"

    of: Subject
    asked: dict[str, Any]
    dataset: str | None = None
    color: str = "auto"
    format: Format = "png"
    theme: Theme = "light"
    width: int = 1200

    @property
    def total(self) -> int:
        """What is shown counts for itself."""
        return 1

    def run(self, desk: Desk) -> Entry:
        """Return the bytes as the array `picture`."""
        panels, columns, title = SUBJECTS[self.of](desk, self.asked, self.color)
        desk.tell(0, 1, "picture")
        drawn = sheet(panels, columns=columns, title=title, format_=self.format, theme=self.theme, width=self.width)
        told = {**asdict(self), "media": MEDIA[self.format]}
        return Entry(told, {"picture": np.frombuffer(drawn, np.uint8)})


def require_pictures() -> None:
    """Raise `MissingLibraryError` unless there is a plotting library."""
    if find_spec("matplotlib") is None:
        raise MissingLibraryError(
            "Pictures need matplotlib, which is not installed.",
            remedy='Install it: pip install "glle-server[pictures]". Or take the numbers and draw them yourself.',
            details={"library": "matplotlib", "extra": "pictures"},
        )
