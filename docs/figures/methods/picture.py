"""Pictures of docs/reference/methods.md."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from PIL import Image

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from docs.figures.methods.likelihood import VARIANTS
from docs.figures.methods.sets import REAL, SIZES, make
from docs.figures.methods.tables import COLUMNS, format_scores
from glle_engine import fit
from glle_engine.methods import METHODS

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from docs.figures.methods.likelihood import Likely
    from docs.figures.methods.rows import Row

ACROSS = 7
DRAWS = 3
COLORS = {"spectral": "#0072B2", "maximum entropy": "#E69F00", "generative": "#009E73"}  # of Okabe and Ito
PAPER_NEIGHBORS = {"mocap_run1": "6", "robot_wifi": "7"}  # of the paper's figure 7


def save(figure: Figure, path: Path) -> None:
    """Write a figure in 128 colors: a third of the bytes."""
    whole = io.BytesIO()
    figure.savefig(whole, dpi=80)
    plt.close(figure)
    Image.open(whole).convert("RGB").quantize(128).save(path, optimize=True)


def multiples(rows: list[Row], name: str, data: Path, path: Path) -> None:
    """Plot every embedding of a set, and draws of GLLE, colored by the truth or the digit."""
    matching = {row.method: row for row in rows if row.data == name and not row.refused}
    panels = [(method, matching[method]) for method in METHODS if method in matching]
    posterior = fit(make(name, SIZES[0], data).X, n_neighbors=10, disconnected="bridge")
    count = len(panels) + DRAWS
    down = -(-count // ACROSS)
    figure, axes = plt.subplots(down, ACROSS, figsize=(ACROSS * 1.55, down * 1.75), layout="constrained", squeeze=False)
    looks = {"cmap": "tab10" if name == "digits" else "Spectral", "s": 2.2, "linewidths": 0}
    flat = axes.ravel()
    for ax, (method, row) in zip(flat, panels, strict=False):
        ax.scatter(*np.array(row.Y)[:, :2].T, c=make(name, row.n, data).color, **looks)
        chosen = COLUMNS[name][1]
        fewer = f", n = {row.n}" if row.n < SIZES[0] else ""
        _title(ax, method, f"{format_scores(row, chosen)}{fewer}")
    for i, ax in enumerate(flat[len(panels) : count], 1):  # the panel of the method is draw 0
        ax.scatter(*posterior.draw(i).embedding.T, c=make(name, SIZES[0], data).color, **looks)
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


def bars(rows: list[Likely], path: Path) -> None:
    """Plot figure 7, with a bar for each method and dots for draws of GLLE."""
    figure, axes = plt.subplots(1, len(PAPER_NEIGHBORS), figsize=(10, 3.8), layout="constrained")
    for ax, (data, k) in zip(axes, PAPER_NEIGHBORS.items(), strict=True):
        matching = [row for row in rows if (row.data, row.option) == (data, k) and row.value is not None]
        values = {
            name: [row.value for row in matching if row.method == name and row.value is not None]
            for name in dict.fromkeys(row.method for row in matching)
            if name not in VARIANTS
        }
        order = sorted(values, key=lambda name: float(np.median(values[name])))
        for place, name in enumerate(order):
            family = METHODS[name].family if name in METHODS else "generative"
            ax.barh(place, np.median(values[name]), color=COLORS.get(family, "0.5"), height=0.7)
            if len(values[name]) > 1:
                ax.plot(values[name], [place] * len(values[name]), "k.", markersize=3)
        ax.axvline(0, color="black", linewidth=0.6)
        ax.set_yticks(range(len(order)), ["glle, draws" if name == "glle" else name for name in order], fontsize=8)
        ax.set_title(f"{REAL[data][0]}, k = {k}", fontsize=9)
        ax.set_xlabel("GP-LVM log likelihood", fontsize=8)
        ax.tick_params(axis="x", labelsize=7)
    handles = [Patch(color=color, label=family) for family, color in COLORS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    save(figure, path)


def curves(rows: list[Likely], path: Path) -> None:
    """Plot figures 8 and 9, DRILL's likelihood over its penalty."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 2.9), layout="constrained")
    for ax, data in zip(axes, PAPER_NEIGHBORS, strict=True):
        for candidates, marker, color in (("20", "o", "#0072B2"), ("all", "s", "#E69F00")):
            points = [
                (float(row.option.split()[1]), row.value)
                for row in rows
                if row.data == data and row.option.split()[0] == candidates and row.value is not None
            ]
            if points:
                label = "all points" if candidates == "all" else f"{candidates} neighbors"
                ax.semilogx(*np.transpose(points), marker=marker, color=color, markersize=4, label=label)
        ax.set_title(REAL[data][0], fontsize=9)
        ax.set_xlabel("L1 penalty", fontsize=8)
        ax.tick_params(labelsize=7)
        ax.legend(fontsize=8, frameon=False)
    axes[0].set_ylabel("GP-LVM log likelihood", fontsize=8)
    save(figure, path)
