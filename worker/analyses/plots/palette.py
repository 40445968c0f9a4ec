"""Colors that are distinct for every kind of color vision, on light and on dark backgrounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Theme = Literal["light", "dark"]

# Petroff 2021, "Accessible Color Sequences for Data Visualization": ten colors for light and dark backgrounds.
CLASSES = (
    "#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6", "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd",
)  # fmt: skip
SEQUENCE = "viridis"
MAX_CLASSES = 20
_DARKEST = {"light": 0.0, "dark": 0.22}  # the first visible part of the sequence, by theme


@dataclass(frozen=True)
class ThemeColors:
    """Colors of a theme beside those of the points."""

    background: str
    text: str
    frame: str


THEMES: dict[Theme, ThemeColors] = {
    "light": ThemeColors(background="#ffffff", text="#1f2328", frame="#d0d7de"),
    "dark": ThemeColors(background="#14171c", text="#e6e8eb", frame="#3a4048"),
}


@dataclass(frozen=True, eq=False)
class PointColors:
    """The color of each point: classes, or numbers along a scale."""

    title: str
    values: np.ndarray[Any, Any]  # (n,) float64: numbers, or the index of each point's class
    classes: tuple[str, ...] = ()  # names; empty for numbers

    @classmethod
    def of(cls, title: str, raw: np.ndarray[Any, Any]) -> PointColors:
        """Return the colors of raw values: texts and few distinct integers are classes, other values numbers."""
        distinct, inverse = np.unique(raw, return_inverse=True)
        is_discrete = raw.dtype.kind in "US" or bool((distinct == np.round(distinct)).all())
        if is_discrete and len(distinct) <= MAX_CLASSES:
            return cls(title, inverse.astype(np.float64), tuple(_name(value) for value in distinct))
        if raw.dtype.kind in "US":  # more classes than colors: a scale in sorted order
            return cls(f"{title} ({len(distinct):,} classes)", inverse.astype(np.float64))
        return cls(title, np.asarray(raw, np.float64))

    def arguments(self, theme: Theme) -> dict[str, Any]:
        """Return the keyword arguments of matplotlib's `scatter`."""
        from matplotlib import colormaps  # noqa: PLC0415 -- of an extra
        from matplotlib.colors import ListedColormap  # noqa: PLC0415 -- of an extra

        if self.classes:
            count = len(self.classes)
            # Beyond ten, hues alone are hard to distinguish; those of turbo differ in lightness, too.
            turbo = [colormaps["turbo"](0.04 + 0.92 * i / max(1, count - 1)) for i in range(count)]
            shades: list[Any] = list(CLASSES[:count]) if count <= len(CLASSES) else turbo
            return {"c": self.values, "cmap": ListedColormap(shades), "vmin": -0.5, "vmax": count - 0.5}
        low, high = float(self.values.min()), float(self.values.max())
        scale = ListedColormap(colormaps[SEQUENCE](np.linspace(_DARKEST[theme], 1, 256)))
        return {"c": self.values, "cmap": scale, "vmin": low, "vmax": high if high > low else low + 1}


def _name(value: Any) -> str:
    return str(value) if isinstance(value, str) else f"{value:g}"
