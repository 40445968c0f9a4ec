"""Figure of the table: fraction of each goal, and the stages of a draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from pathlib import Path

    from bench.report.table import Row

STAGES = ("sample", "factor", "lanczos", "acceptance", "unpack", "finish")


def picture(path: Path, rows: list[Row], stages: list[dict[str, Any]]) -> None:
    """Plot bars of figure / goal (goal / figure if less is better), and of the stages of a draw."""
    shown = [row for row in rows if row.of_goal is not None][::-1]
    draws = [entry for entry in stages if entry["what"] == "draw"]
    figure, (bars, right) = plt.subplots(1, 2, figsize=(15, 0.32 * len(shown) + 1.8), width_ratios=[3, 1.4])
    shares = [row.of_goal or 0.0 for row in shown]
    bars.barh(range(len(shown)), shares, color=["#3b7a57" if row.reached else "#b5533c" for row in shown])
    bars.axvline(1.0, color="black", linewidth=1)
    labels = [f"{row.work}\nagainst {row.against}" if row.against != "-" else row.work for row in shown]
    bars.set_yticks(range(len(shown)), labels, fontsize=6.5)
    for at, row in enumerate(shown):
        _, _, figure_text, goal_text, _ = row.cells()
        bars.text(
            (shares[at] if row.reached else 1.0) + 0.02,
            at,
            f"{figure_text}  (goal {goal_text})",
            va="center",
            fontsize=6.5,
        )
    bars.set_xlim(0, max(1.2, min(4.0, max(shares))) * 1.35)
    bars.set_xlabel("share of the goal; to the right of the line it is reached")
    base = [0.0] * len(draws)
    for stage in STAGES:
        parts = [entry["seconds"][stage] / sum(entry["seconds"][name] for name in STAGES) for entry in draws]
        right.barh(range(len(draws)), parts, bars=base, label=stage)
        base = [before + part for before, part in zip(base, parts, strict=True)]
    names = [f"{entry['data']}\nn = {entry['n']:,}\n{entry['seconds']['whole'] * 1e3:.3g} ms" for entry in draws]
    right.set_yticks(range(len(draws)), names, fontsize=7)
    right.set_xlabel("share of a draw of many")
    right.set_xlim(0, 1)
    right.legend(fontsize=7, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)
