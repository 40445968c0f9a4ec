"""Figures from arrays: scatters side by side, each with a title, and a spectrum; as PNG or SVG bytes.

The same arrays are the same bytes. No global state of matplotlib is touched, so figures may be drawn anywhere.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from worker.analyses.plots.palette import CLASSES, INKS, Colours, Ink, Theme

if TYPE_CHECKING:
    from collections.abc import Sequence

Format = Literal["png", "svg"]

_INCHES = 3.2  # of a panel
_DPI = 200
_MOST_VECTORS = 5000  # points of a panel; more are a bitmap within the SVG, which no browser would show otherwise
_OUTLYING = 0.002  # share of the points at each end that may lie outside of a panel


@dataclass(frozen=True, eq=False)
class Panel:
    """One scatter: points Y (n, p), of which the first two components are shown, or one against its order."""

    title: str
    Y: np.ndarray[Any, Any]
    colours: Colours
    below: str = ""
    bar: bool = False  # a scale of its own beside it


@dataclass(frozen=True, eq=False)
class Bars:
    """One bar chart: values by name."""

    title: str
    names: Sequence[str]
    values: Sequence[float]
    below: str = ""


def sheet(
    panels: Sequence[Panel | Bars],
    *,
    columns: int,
    title: str = "",
    format_: Format = "png",
    theme: Theme = "light",
    width: int = 1200,
) -> bytes:
    """Draw panels in rows.

    Parameters
    ----------
    columns
        Panels a row.
    width
        Of the whole, in pixels.

    Returns
    -------
    bytes
        A PNG, or an SVG.

    """
    import matplotlib as mpl  # noqa: PLC0415 -- of an extra
    from matplotlib.figure import Figure  # noqa: PLC0415 -- of an extra
    from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415 -- of an extra

    ink = INKS[theme]
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    head = 0.45 if title else 0.0
    scatters = [panel for panel in panels if isinstance(panel, Panel)]
    legend = next((p.colours for p in scatters if p.colours.classes), None)
    foot = 0.35 if legend else 0.0
    settings: Any = {"svg.hashsalt": "glle", "svg.fonttype": "path", "text.parse_math": False}
    with mpl.rc_context(settings):
        size = (_INCHES * columns, (_INCHES + 0.35) * rows + head + foot)
        figure = Figure(figsize=size, facecolor=ink.paper, layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))
        if title:
            figure.suptitle(title, fontsize=12, color=ink.text)
        for place, panel in enumerate(panels, start=1):
            axes = figure.add_subplot(rows, columns, place)
            _frame(axes, panel.title, panel.below, ink)
            if isinstance(panel, Bars):
                _bars(axes, panel, ink)
            else:
                drawn = _scatter(axes, panel, columns, theme)
                if panel.bar:
                    scale = figure.colorbar(drawn, ax=axes, shrink=0.8, pad=0.02)
                    scale.ax.tick_params(labelsize=7, colors=ink.text)
                    scale.outline.set_edgecolor(ink.faint)
        if legend:
            _legend(figure, legend, ink, theme)
        written = io.BytesIO()
        about = {"Date": None} if format_ == "svg" else {"Software": None}
        figure.savefig(written, format=format_, dpi=width / size[0] if format_ == "png" else _DPI, metadata=about)
    return written.getvalue()


def _frame(axes: Any, title: str, below: str, ink: Ink) -> None:
    axes.set_facecolor(ink.paper)
    axes.set_title(title, fontsize=9, color=ink.text, pad=4)
    if below:
        axes.set_xlabel(below, fontsize=7.5, color=ink.text)
    for edge in axes.spines.values():
        edge.set_color(ink.faint)
    axes.tick_params(colors=ink.text, labelsize=7)


def _scatter(axes: Any, panel: Panel, columns: int, theme: Theme) -> Any:
    """Draw points, the small ones of a crowd; the few that lie far out would shrink all others to a dot."""
    places = _planar(panel.Y)
    n = len(places)
    area = float(np.clip(9000 / n, 0.6, 14.0)) * (1.0 if columns < 4 else 0.6)
    drawn = axes.scatter(
        *places.T, s=area, linewidths=0, rasterized=n > _MOST_VECTORS, **panel.colours.arguments(theme)
    )
    low, high = np.quantile(places, [_OUTLYING, 1 - _OUTLYING], axis=0)
    margin = 0.08 * (high - low) + 1e-9 * (1 + np.abs(high))
    outside = int(((places < low - 3 * margin) | (places > high + 3 * margin)).any(axis=1).sum())
    if outside:
        axes.set_xlim(low[0] - margin[0], high[0] + margin[0])
        axes.set_ylim(low[1] - margin[1], high[1] + margin[1])
        told = f"{outside} points outside" if outside > 1 else "1 point outside"
        axes.text(
            0.98, 0.02, told, transform=axes.transAxes, fontsize=6, ha="right", color=axes.xaxis.label.get_color()
        )
    axes.set_xticks([])
    axes.set_yticks([])
    return drawn


def _planar(Y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the first two components; of one component, it and each point's rank by it."""
    if Y.shape[1] > 1:
        return np.asarray(Y[:, :2])
    rank = np.empty(len(Y))
    rank[np.argsort(Y[:, 0], kind="stable")] = np.arange(len(Y))
    return np.stack([Y[:, 0], rank], axis=1)


def _bars(axes: Any, bars: Bars, ink: Ink) -> None:
    axes.bar(range(len(bars.values)), bars.values, color=CLASSES[0])
    axes.set_xticks(range(len(bars.names)), bars.names, fontsize=7, color=ink.text)
    axes.axhline(0, color=ink.faint, linewidth=0.8)


def _legend(figure: Any, colours: Colours, ink: Ink, theme: Theme) -> None:
    from matplotlib.lines import Line2D  # noqa: PLC0415 -- of an extra

    shade = colours.arguments(theme)["cmap"]
    marks = [
        Line2D([], [], marker="o", linestyle="", markersize=4, color=shade(i), label=name)
        for i, name in enumerate(colours.classes)
    ]
    figure.legend(
        handles=marks, loc="outside lower center", ncols=min(10, len(marks)), fontsize=7, frameon=False,
        labelcolor=ink.text, handletextpad=0.1, columnspacing=1.0,
    )  # fmt: skip
