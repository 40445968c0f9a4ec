"""Figure of docs/explanation/honesty.md: a dot for each setting, the goals shaded, the ceiling marked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from docs.figures.honesty.goals import COVERAGE, RATIO, RHO
from docs.figures.honesty.rows import CALIBRATED, HALVES, MIXED, SCALE_1
from docs.figures.honesty.table import grouped

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.artist import Artist

    from docs.figures.honesty.rows import Row

# Okabe and Ito's colors, safe for color blindness, and a marker each for readers without colors.
LOOKS = {
    SCALE_1: ("#E69F00", "o"),
    CALIBRATED: ("#0072B2", "s"),
    HALVES: ("#009E73", "^"),
    MIXED: ("#CC79A7", "D"),
}
GOALS = {"rank correlation": (RHO, 1.0), "ratio of medians": RATIO, "coverage of 90 % ellipses": COVERAGE}


def picture(rows: list[Row], path: Path) -> None:
    """Write the figure."""
    groups = grouped(rows)
    figure, axes = plt.subplots(1, 3, figsize=(11, 1.2 + 0.7 * len(groups)), sharey=True, layout="constrained")
    for ax, (title, goal) in zip(axes, GOALS.items(), strict=True):
        ax.axvspan(*goal, color="0.88", zorder=0)
        ax.set_title(title, fontsize=10)
        ax.grid(axis="x", color="0.93", zorder=0)
        ax.tick_params(axis="y", length=0)
        for side in ("top", "right", "left"):
            ax.spines[side].set_visible(False)
    for place, candidates in enumerate(groups.values()):
        if place:
            for ax in axes:
                ax.axhline(place - 0.5, color="0.8", linewidth=0.6)
        for lane, (candidate, (color, marker)) in enumerate(LOOKS.items()):
            candidate_rows = candidates[candidate]
            y = place + 0.2 * (lane - (len(LOOKS) - 1) / 2)
            for ax, values in zip(axes, _values(candidate_rows), strict=True):
                ax.scatter(values, np.full(len(values), y), color=color, marker=marker, s=16, linewidth=0, alpha=0.75)
                middle = np.exp(np.mean(np.log(values))) if ax is axes[1] else np.mean(values)
                if len(values) > 1:
                    ax.plot([middle, middle], [y - 0.09, y + 0.09], color="black", linewidth=1.6)
        halves = candidates[HALVES]
        for style, most in ((":", [row.ceiling for row in halves]), ("--", [row.one_sample for row in halves])):
            axes[0].plot([np.mean(most)] * 2, [place - 0.42, place + 0.42], color="black", linestyle=style, linewidth=1)
    axes[0].set_yticks(range(len(groups)), [_label(*key) for key in groups], fontsize=8)
    axes[0].set_ylim(len(groups) - 0.5, -0.5)
    axes[0].set_xlim(min(0.0, *(row.rho for row in rows)) - 0.02, 1.02)
    axes[1].set_xscale("log")
    axes[1].set_xticks([0.1, 0.2, 0.5, 1, 2, 4], ["0.1", "0.2", "0.5", "1", "2", "4"])
    axes[1].minorticks_off()
    axes[2].set_xlim(-0.02, 1.02)
    handles: list[Artist] = [
        Line2D([], [], color=color, marker=marker, linestyle="", markersize=5, label=candidate)
        for candidate, (color, marker) in LOOKS.items()
    ]
    handles += [
        Line2D([], [], color="black", linewidth=1.6, label="mean"),
        Line2D([], [], color="black", linestyle=":", label="most that the noise of the truth allows"),
        Line2D([], [], color="black", linestyle="--", label="most that one sample allows half-samples"),
        Patch(color="0.88", label="goal"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    figure.savefig(path, dpi=90)
    plt.close(figure)


def _values(rows: list[Row]) -> tuple[list[float], list[float], list[float]]:
    return [row.rho for row in rows], [row.ratio for row in rows], [row.coverage for row in rows]


def _label(group: str, law: str, truth: str) -> str:
    return f"{group}, {law}\n{truth}"
