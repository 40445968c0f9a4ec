"""Figures from arrays: a grid of titled scatter plots, as PNG or SVG bytes.

The same arrays give the same bytes. No global state of matplotlib is changed, so any thread may draw a figure.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from worker.analyses.plots.palette import THEMES, PointColors, Theme, ThemeColors

if TYPE_CHECKING:
    from collections.abc import Sequence

Format = Literal["png", "svg"]

_PANEL_INCHES = 3.2
_SVG_DPI = 200
_MAX_VECTORS = 5000  # points of a panel; more are a bitmap within the SVG, which browsers could not show otherwise
_OUTLYING = 0.002  # share of the points at each end that may lie outside of a panel


@dataclass(frozen=True, eq=False)
class Panel:
    """One scatter plot of points Y (n, p): two components, or a single one against its rank."""

    title: str
    Y: np.ndarray[Any, Any]
    colors: PointColors
    below: str = ""
    has_colorbar: bool = False


def render(
    panels: Sequence[Panel],
    *,
    columns: int,
    title: str = "",
    format_: Format = "png",
    theme: Theme = "light",
    width: int = 1200,
) -> bytes:
    """Draw panels in rows of `columns`; return a PNG of `width` pixels, or an SVG."""
    import matplotlib as mpl  # noqa: PLC0415 -- of an extra
    from matplotlib.figure import Figure  # noqa: PLC0415 -- of an extra
    from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415 -- of an extra

    style = THEMES[theme]
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    head = 0.45 if title else 0.0
    legend = next((panel.colors for panel in panels if panel.colors.classes), None)
    foot = 0.35 if legend else 0.0
    settings: Any = {"svg.hashsalt": "glle", "svg.fonttype": "path", "text.parse_math": False}
    with mpl.rc_context(settings):
        size = (_PANEL_INCHES * columns, (_PANEL_INCHES + 0.35) * rows + head + foot)
        layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)
        figure = Figure(figsize=size, facecolor=style.background, layout=layout)
        if title:
            figure.suptitle(title, fontsize=12, color=style.text)
        for position, panel in enumerate(panels, start=1):
            axes = figure.add_subplot(rows, columns, position)
            _decorate(axes, panel, style)
            points = _scatter(axes, panel, columns, theme)
            if panel.has_colorbar:
                scale = figure.colorbar(points, ax=axes, shrink=0.8, pad=0.02)
                scale.ax.tick_params(labelsize=7, colors=style.text)
                scale.outline.set_edgecolor(style.frame)
        if legend:
            _legend(figure, legend, style, theme)
        buffer = io.BytesIO()
        metadata = {"Date": None} if format_ == "svg" else {"Software": None}
        dpi = width / size[0] if format_ == "png" else _SVG_DPI
        figure.savefig(buffer, format=format_, dpi=dpi, metadata=metadata)
    return buffer.getvalue()


def _decorate(axes: Any, panel: Panel, style: ThemeColors) -> None:
    axes.set_facecolor(style.background)
    axes.set_title(panel.title, fontsize=9, color=style.text, pad=4)
    if panel.below:
        axes.set_xlabel(panel.below, fontsize=7.5, color=style.text)
    for edge in axes.spines.values():
        edge.set_color(style.frame)
    axes.set_xticks([])
    axes.set_yticks([])


def _scatter(axes: Any, panel: Panel, columns: int, theme: Theme) -> Any:
    """Draw points, smaller ones if there are many; cut off outliers, which would shrink all others to a dot."""
    points = _planar(panel.Y)
    n = len(points)
    area = float(np.clip(9000 / n, 0.6, 14.0)) * (1.0 if columns < 4 else 0.6)
    colors = panel.colors.arguments(theme)
    scatter = axes.scatter(*points.T, s=area, linewidths=0, rasterized=n > _MAX_VECTORS, **colors)
    low, high = np.quantile(points, [_OUTLYING, 1 - _OUTLYING], axis=0)
    margin = 0.08 * (high - low) + 1e-9 * (1 + np.abs(high))
    outside = int(((points < low - 3 * margin) | (points > high + 3 * margin)).any(axis=1).sum())
    if outside:
        axes.set_xlim(low[0] - margin[0], high[0] + margin[0])
        axes.set_ylim(low[1] - margin[1], high[1] + margin[1])
        label = f"{outside} points outside" if outside > 1 else "1 point outside"
        axes.text(
            0.98, 0.02, label, transform=axes.transAxes, fontsize=6, ha="right", color=axes.xaxis.label.get_color()
        )
    return scatter


def _planar(Y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the first two components, or a single one with the rank of each point."""
    if Y.shape[1] > 1:
        return np.asarray(Y[:, :2])
    rank = np.empty(len(Y))
    rank[np.argsort(Y[:, 0], kind="stable")] = np.arange(len(Y))
    return np.stack([Y[:, 0], rank], axis=1)


def _legend(figure: Any, colors: PointColors, style: ThemeColors, theme: Theme) -> None:
    from matplotlib.lines import Line2D  # noqa: PLC0415 -- of an extra

    cmap = colors.arguments(theme)["cmap"]
    handles = [
        Line2D([], [], marker="o", linestyle="", markersize=4, color=cmap(i), label=name)
        for i, name in enumerate(colors.classes)
    ]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=min(10, len(handles)), fontsize=7, frameon=False,
        labelcolor=style.text, handletextpad=0.1, columnspacing=1.0,
    )  # fmt: skip
