"""Figure of docs/explanation/honesty.md: settings with three figures each, and the stated reliability."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from docs.figures.honesty import table
from docs.figures.honesty.rows import DRAWN, ENSEMBLE, HALVES
from docs.figures.honesty.table import group_rows

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from docs.figures.honesty.rows import Row

# Okabe and Ito's colors, safe for color blindness, and a marker each for readers without colors.
LOOKS = {DRAWN: ("#0072B2", "s"), HALVES: ("#E69F00", "^"), ENSEMBLE: ("#000000", "o")}
WORDS = {"high": ("#009E73", "o"), "moderate": ("#E69F00", "D"), "low": ("#D55E00", "v")}


def picture(rows: list[Row], path: Path) -> None:
    """Write the figure."""
    groups = group_rows(rows)
    figure, axes = plt.subplots(
        1, 4, figsize=(13, 1.6 + 0.32 * len(groups)), width_ratios=[1, 0.8, 0.8, 1.1], layout="constrained"
    )
    left = list(axes[:3])
    for ax, title, goal in zip(
        left,
        ("rank correlation with the truth", "ratio of median spreads", "coverage of 50 % and 90 % regions"),
        ((table.RHO, 1.0), table.RATIO, table.COVERAGE),
        strict=True,
    ):
        _settle(ax, title)
        ax.axvspan(*goal, color="0.9", zorder=0)
        ax.set_ylim(len(groups) - 0.4, -0.6)
        ax.set_yticks([])
    names = [f"{name} *" if group[0].held_out else name for name, group in groups.items()]
    left[0].set_yticks(range(len(groups)), names, fontsize=8)
    for place, group in enumerate(groups.values()):
        for lane, (candidate, (color, marker)) in enumerate(LOOKS.items()):
            y = place + 0.22 * (lane - 1)
            look = {"color": color, "marker": marker, "s": 15, "linewidth": 0, "alpha": 0.8, "zorder": 3}
            left[0].scatter([row.rho[candidate] for row in group], [y] * len(group), **look)
            left[1].scatter([row.ratio[candidate] for row in group], [y] * len(group), **look)
        for level, color in ((0, "0.55"), (1, "black")):
            covered = [row.coverage[level] for row in group]
            left[2].scatter(covered, [place] * len(group), color=color, s=15, linewidth=0, alpha=0.8, zorder=3)
        for ax in left:
            ax.axhline(place + 0.5, color="0.93", linewidth=0.6, zorder=1)
    left[0].set_xlim(min(0.0, *(min(row.rho[name] for name in LOOKS) for row in rows)) - 0.02, 1.02)
    left[1].set_xscale("log")
    left[1].set_xticks([0.5, 0.7, 1, 1.4, 2, 4], ["0.5", "0.7", "1", "1.4", "2", "4"])
    left[1].minorticks_off()
    left[2].set_xlim(0, 1.02)
    left[2].axvline(0.5, color="0.8", linewidth=0.8, zorder=1)
    _draw_expected_correlation(axes[3], rows)
    handles = [*_marks(LOOKS), Patch(color="0.9", label="goal")]
    figure.legend(handles=handles, loc="outside lower left", ncols=4, fontsize=8, frameon=False)
    figure.savefig(path, dpi=90)
    plt.close(figure)


def _draw_expected_correlation(ax: Axes, rows: list[Row]) -> None:
    """Draw the found against the expected rank correlation, one mark for each sample."""
    _settle(ax, "stated reliability: expected and found")
    for word, (color, marker) in WORDS.items():
        chosen = [row for row in rows if row.level == word]
        ax.scatter(
            [row.expected for row in chosen],
            [row.rho[ENSEMBLE] for row in chosen],
            facecolor=[color if not row.held_out else "none" for row in chosen],
            edgecolor=color,
            marker=marker,
            s=26,
            label=word,
            zorder=3,
        )
    low = min(0.4, *(min(row.expected, row.rho[ENSEMBLE]) for row in rows)) - 0.02
    ax.plot([low, 1], [low, 1], color="0.7", linewidth=0.8, zorder=1)
    ax.set_xlim(low, 1)
    ax.set_ylim(low, 1)
    ax.set_xlabel("expected rank correlation", fontsize=8)
    ax.set_ylabel("found; hollow: held out", fontsize=8)
    ax.legend(handles=_marks(WORDS), fontsize=8, frameon=False, loc="lower right")


def _marks(looks: dict[str, tuple[str, str]]) -> list[Artist]:
    return [
        Line2D([], [], color=color, marker=marker, linestyle="", markersize=5, label=name)
        for name, (color, marker) in looks.items()
    ]


def _settle(ax: Axes, title: str) -> None:
    ax.set_title(title, fontsize=9)
    ax.grid(axis="x", color="0.95", zorder=0)
    ax.tick_params(labelsize=8, length=2)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
