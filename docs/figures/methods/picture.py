"""Pictures of docs/reference/methods.md."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import pyplot as plt
from PIL import Image

from docs.figures.methods.rows import SIZES, make
from docs.figures.methods.tables import COLUMNS, format_scores
from glle_engine import fit
from glle_engine.methods import METHODS

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from docs.figures.methods.rows import Row

ACROSS = 7
DRAWS = 3


def save(figure: Figure, path: Path) -> None:
    """Save a figure as PNG with 128 colors, which has a third of the bytes, and close the figure."""
    whole = io.BytesIO()
    figure.savefig(whole, dpi=80)
    plt.close(figure)
    Image.open(whole).convert("RGB").quantize(128).save(path, optimize=True)


def multiples(rows: list[Row], name: str, path: Path) -> None:
    """Save a picture of the embeddings of one data set by all methods, and of draws of GLLE.

    Points are colored by their position along the sheet, or by their digit.
    """
    matching = {row.method: row for row in rows if row.data == name and not row.refused}
    panels = [(method, matching[method]) for method in METHODS if method in matching]
    posterior = fit(make(name, SIZES[0]).X, n_neighbors=10, disconnected="bridge")
    count = len(panels) + DRAWS
    down = -(-count // ACROSS)
    figure, axes = plt.subplots(down, ACROSS, figsize=(ACROSS * 1.55, down * 1.75), layout="constrained", squeeze=False)
    looks = {"cmap": "tab10" if name == "digits" else "Spectral", "s": 2.2, "linewidths": 0}
    flat = axes.ravel()
    for ax, (method, row) in zip(flat, panels, strict=False):
        ax.scatter(*np.array(row.Y)[:, :2].T, c=make(name, row.n).color, **looks)
        chosen = COLUMNS[name][1]
        fewer = f", n = {row.n}" if row.n < SIZES[0] else ""
        _title(ax, method, f"{format_scores(row, chosen)}{fewer}")
    for i, ax in enumerate(flat[len(panels) : count], 1):  # the panel of the method is draw 0
        ax.scatter(*posterior.draw(i).embedding.T, c=make(name, SIZES[0]).color, **looks)
        _title(ax, f"GLLE, draw {i}", "its mean is LLE")
    for ax in flat[count:]:
        ax.set_axis_off()
    save(figure, path)


def _title(ax: Axes, first: str, second: str) -> None:
    ax.set_title(f"{first}\n{second}", fontsize=7)
    ax.set_xticks([])
    ax.set_yticks([])
    for side in ax.spines.values():
        side.set_linewidth(0.4)
