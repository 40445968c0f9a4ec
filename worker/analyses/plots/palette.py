"""Colours that people with any colour vision can tell apart, on light and on dark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Theme = Literal["light", "dark"]

# Petroff 2021, "Accessible Color Sequences for Data Visualization": ten that hold on light and on dark.
CLASSES = (
    "#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6", "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd",
)  # fmt: skip
SEQUENCE = "viridis"
MOST_CLASSES = 20
_DARKEST = {"light": 0.0, "dark": 0.22}  # the start of the sequence that can be seen on the paper


@dataclass(frozen=True)
class Ink:
    """What is drawn with, beside the points."""

    paper: str
    text: str
    faint: str


INKS: dict[Theme, Ink] = {
    "light": Ink(paper="#ffffff", text="#1f2328", faint="#d0d7de"),
    "dark": Ink(paper="#14171c", text="#e6e8eb", faint="#3a4048"),
}


@dataclass(frozen=True, eq=False)
class Colours:
    """A colour of each point: classes, or numbers along a scale.

    Attributes
    ----------
    title : str
        What the colour shows.
    values : (n,) float64
        Numbers, or the number of each point's class.
    classes : tuple of str
        Names of the classes; empty for numbers.

    """

    title: str
    values: np.ndarray[Any, Any]
    classes: tuple[str, ...] = ()

    @classmethod
    def of(cls, title: str, raw: np.ndarray[Any, Any]) -> Colours:
        """Take text and few distinct whole numbers for classes, and anything else for numbers."""
        distinct, inverse = np.unique(raw, return_inverse=True)
        whole = raw.dtype.kind in "US" or bool((distinct == np.round(distinct)).all())
        if whole and len(distinct) <= MOST_CLASSES:
            return cls(title, inverse.astype(np.float64), tuple(_name(value) for value in distinct))
        if raw.dtype.kind in "US":  # more classes than colours: by their order
            return cls(f"{title} ({len(distinct):,} classes)", inverse.astype(np.float64))
        return cls(title, np.asarray(raw, np.float64))

    def arguments(self, theme: Theme) -> dict[str, Any]:
        """Return what matplotlib's scatter takes."""
        from matplotlib import colormaps  # noqa: PLC0415 -- of an extra
        from matplotlib.colors import ListedColormap  # noqa: PLC0415 -- of an extra

        if self.classes:
            count = len(self.classes)
            # Beyond ten the eye tells few apart at a glance; those differ in lightness, too.
            many = [colormaps["turbo"](0.04 + 0.92 * i / max(1, count - 1)) for i in range(count)]
            shades: list[Any] = list(CLASSES[:count]) if count <= len(CLASSES) else many
            return {"c": self.values, "cmap": ListedColormap(shades), "vmin": -0.5, "vmax": count - 0.5}
        low, high = float(self.values.min()), float(self.values.max())
        seen = ListedColormap(colormaps[SEQUENCE](np.linspace(_DARKEST[theme], 1, 256)))
        return {"c": self.values, "cmap": seen, "vmin": low, "vmax": high if high > low else low + 1}


def _name(value: Any) -> str:
    return str(value) if isinstance(value, str) else f"{value:g}"
