"""Colors of points by labels of any type: classes with names, numbers, or dates; points without a label are gray."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.pictures.points import name_of_label, require_rows, texts_of_labels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

# Petroff 2021, "Accessible Color Sequences for Data Visualization".
CLASSES = (
    "#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6", "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd",
)  # fmt: skip
SEQUENCE = "viridis"
MISSING, MISSING_NAME = "#c8c8c8", "no value"  # color and name of points without a label
MAX_CLASS_COLORS = 20
# If there are more classes than colors, they are drawn on a color scale, beside which at most this many names fit.
MAX_SHOWN_NAMES = 24
_MAX_LEGEND_LETTERS = 30  # a longer name is cut in a legend


@dataclass(frozen=True, eq=False)
class PointColors:
    """Values from which the colors of points follow: their classes, or numbers on a color scale."""

    title: str
    values: NDArray[Any]  # (n,) float64: numbers, or the index of each point's class; NaN without a label
    # Names of the classes, if there are at most `MAX_CLASS_COLORS`, so that each has its own color; else empty.
    classes: tuple[str, ...] = ()
    is_time: bool = False  # numbers are days since 1970
    # Names of all classes if there are more than `MAX_CLASS_COLORS`, so that they need a color scale; else empty.
    names: tuple[str, ...] = ()

    @classmethod
    def from_values(cls, title: str, raw: NDArray[Any], *, are_groups: bool = False) -> PointColors:
        """Return the `PointColors` of labels: texts and few distinct integers are classes, other values are numbers.

        If there are more different texts than class colors, and all are numbers or all are dates, they are read as
        numbers or dates. Integers that name the groups of an audit (`are_groups`) are classes, however many they are.
        """
        if raw.dtype.kind in "Mm":
            days = raw.astype("M8[us]" if raw.dtype.kind == "M" else "m8[us]").astype(np.float64) / 86_400e6
            is_time = raw.dtype.kind == "M"
            title = title if is_time else f"{title} (days)".strip()
            return cls(title, np.where(np.isnat(raw), np.nan, days), is_time=is_time)
        is_text = raw.dtype.kind in "US"
        is_known = raw != "" if is_text else np.isfinite(raw)
        distinct, inverse = np.unique(raw[is_known], return_inverse=True)
        if is_text and len(distinct) > MAX_CLASS_COLORS and (measured := _measured(distinct)) is not None:
            values = np.full(len(raw), np.nan) if measured.dtype.kind == "f" else np.full(len(raw), "NaT", "M8[us]")
            values[is_known] = measured[inverse]
            return cls.from_values(title, values)
        places = np.full(len(raw), np.nan)
        places[is_known] = inverse
        is_discrete = is_text or bool((distinct == np.round(distinct)).all())
        named = tuple(name_of_label(value) for value in distinct)
        if is_discrete and 0 < len(distinct) <= MAX_CLASS_COLORS:
            return cls(title, places, named)
        if is_text or (is_discrete and are_groups):  # more classes than colors: sorted, on a color scale
            return cls(f"{title} ({len(distinct):,} classes)".strip(), places, names=named)
        return cls(title, np.asarray(raw, np.float64))

    @classmethod
    def from_labels(cls, labels: ArrayLike, rows: int, title: str = "", *, are_groups: bool = False) -> PointColors:
        """Return the `PointColors` of labels of any type; without a `title`, it is the name of a pandas series."""
        values = _values(labels)
        require_rows("labels", values, rows)
        named = str(title or getattr(labels, "name", None) or "")
        return cls.from_values(named, values, are_groups=are_groups)

    @property
    def missing(self) -> int:
        """Number of points without a label."""
        return int(np.isnan(self.values).sum())

    def short_names(self) -> tuple[str, ...]:
        """Return short and distinct names of the classes."""
        return shorten(self.classes or self.names)

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of matplotlib's `scatter`; points without a label are gray."""
        from matplotlib import colormaps  # noqa: PLC0415 # optional
        from matplotlib.colors import ListedColormap  # noqa: PLC0415 # optional

        gray: dict[str, Any] = {"plotnonfinite": True} if self.missing else {}
        if self.classes:
            count = len(self.classes)
            # Beyond ten, hues alone are hard to distinguish; turbo's colors differ in lightness, too.
            turbo = [colormaps["turbo"](0.04 + 0.92 * i / max(1, count - 1)) for i in range(count)]
            shades: list[Any] = list(CLASSES[:count]) if count <= len(CLASSES) else turbo
            cmap = ListedColormap(shades).with_extremes(bad=MISSING)
            return {"c": self.values, "cmap": cmap, "vmin": -0.5, "vmax": count - 0.5, **gray}
        known = self.values[np.isfinite(self.values)]
        low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
        cmap = colormaps[SEQUENCE].with_extremes(bad=MISSING)
        return {"c": self.values, "cmap": cmap, "vmin": low, "vmax": high if high > low else low + 1, **gray}

    def handles(self) -> list[Any]:
        """Return matplotlib's entries of a legend: the classes, or some of many classes, and points without a label."""
        from matplotlib.lines import Line2D  # noqa: PLC0415 # optional

        arguments, names = self.arguments(), self.short_names()
        cmap, low, high = arguments["cmap"], arguments["vmin"], arguments["vmax"]
        shown = range(len(names)) if self.classes else self.some_names()
        entries = [(cmap(i if self.classes else (i - low) / (high - low)), names[i]) for i in shown if any(names)]
        if self.missing:
            entries.append((MISSING, f"{MISSING_NAME} ({self.missing:,} points)"))
        return [Line2D([], [], marker="o", linestyle="", markersize=4, color=c, label=text) for c, text in entries]

    def some_names(self) -> list[int]:
        """Return the indices of at most `MAX_SHOWN_NAMES` evenly spaced items of `names`."""
        count = len(self.names)
        return [round(place) for place in np.linspace(0, count - 1, min(count, MAX_SHOWN_NAMES))]


def shorten(names: Sequence[str]) -> tuple[str, ...]:
    """Shorten names to about 30 letters; distinct names stay distinct.

    A long name loses its end. If names become equal, they lose their middle or the part before the first difference.
    """
    texts = [name if len(name) <= _MAX_LEGEND_LETTERS else f"{name[: _MAX_LEGEND_LETTERS - 1]}…" for name in names]
    cuts: tuple[Callable[[str, int], str], ...] = (
        lambda name, _: f"{name[:14]}…{name[-15:]}",
        lambda name, start: f"{'…' if start else ''}{name[start : start + _MAX_LEGEND_LETTERS - 2]}…",
    )
    for cut in cuts:
        for text in {text for text in texts if texts.count(text) > 1}:
            alike = [index for index, other in enumerate(texts) if other == text]
            letters = list(zip(*(names[index] for index in alike), strict=False))
            same = next((index for index, each in enumerate(letters) if len(set(each)) > 1), len(letters))
            start = max(same - 4, 0)
            for index in alike:
                texts[index] = cut(names[index], start) if len(names[index]) > _MAX_LEGEND_LETTERS else names[index]
    numbered = [text if texts.count(text) == 1 else f"{text} ({index})" for index, text in enumerate(texts, start=1)]
    return tuple(numbered)


def _values(labels: Any) -> NDArray[Any]:
    """Convert labels to an array (n,) of numbers, texts or dates; missing labels are NaN, empty texts or NaT."""
    values = np.asarray(labels)
    if values.dtype.kind in "fiuMm":
        return values
    if values.dtype.kind == "O":
        texts = np.asarray(texts_of_labels(list(values.ravel())), str)
        known = values.ravel()[texts != ""]
        if len(known) and all(isinstance(value, Real) and not isinstance(value, bool | np.bool_) for value in known):
            return np.array([np.nan if not text else float(value) for value, text in zip(values, texts, strict=True)])
        if len(known) and all(isinstance(value, timedelta) for value in known):
            return np.array(["NaT" if not text else value for value, text in zip(values, texts, strict=True)], "m8[us]")
        if len(known) and all(isinstance(value, date) for value in known):
            return _dates(list(values), texts)
    return np.asarray(texts_of_labels(values)).astype(str)


def _dates(values: list[Any], texts: NDArray[np.str_]) -> NDArray[np.datetime64]:
    """Convert dates and times to datetime64 without a zone, all in the time zone of the first value that has one.

    Where `texts` is empty, the label is missing, and the result is NaT.
    """
    zone = next((value.tzinfo for value in values if getattr(value, "tzinfo", None) is not None), None)
    dates = np.full(len(values), "NaT", "M8[us]")
    for row, (value, text) in enumerate(zip(values, texts, strict=True)):
        if not text:
            continue
        moment = value if isinstance(value, datetime) else datetime.combine(value, time())
        moment = moment if moment.tzinfo is None or zone is None else moment.astimezone(zone)
        dates[row] = np.datetime64(moment.replace(tzinfo=None), "us")
    return dates


def _measured(texts: NDArray[Any]) -> NDArray[Any] | None:
    """Read texts (m,) as numbers, if all are finite numbers, or as dates, if all are dates; else return None."""
    try:
        numbers = texts.astype(np.float64)
    except ValueError:
        pass
    else:
        return np.asarray(numbers) if np.isfinite(numbers).all() else None
    try:
        moments = [datetime.fromisoformat(str(text)) for text in texts]
    except ValueError:
        return None
    return _dates(moments, texts)
