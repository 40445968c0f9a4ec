"""Print the numbers of `make believe`, and draw the picture of docs/explanation/believe.md."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import pyplot as plt

from docs.figures.believe.peers import FIGURES
from docs.figures.methods.tables import table

if TYPE_CHECKING:
    from docs.figures.believe.measure import Row

LEVELS = (0.5, 0.9)


def print_goals(title: str, rows: list[Row]) -> None:
    """Print a line for each distribution, and then how well the audits did over all of them."""
    print(f"\n{title}")
    for row in rows:
        cells = [row["remains"], row["remains found"], row["ratio"], row["rank"], row["ceiling"]]
        cells += [row["mean 0.9"], row["new sample 0.9"]]
        text = " | ".join("-" if cell is None else f"{cell:.2f}" for cell in cells)
        print(f"| {row['distribution']} | {row['n']} | {row['beyond']} | {row['level']} | {text} |")
    noise, structure = ([row for row in rows if row["noise"] is is_noise] for is_noise in (True, False))
    print(f"noise beyond chance: {sum(row['beyond'] is True for row in noise)} of {len(noise)}")
    print(f"structure beyond chance: {sum(row['beyond'] is True for row in structure)} of {len(structure)}")
    gaps = np.array([abs(row["remains"] - row["remains found"]) for row in rows])
    print(f"remains: mean error {gaps.mean():.2f}, within .15 {np.mean(gaps <= 0.15):.0%}")
    ratio = np.array([row["ratio"] for row in structure])
    print(f"ratio: median {np.median(ratio):.2f}, within .7-1.4 {np.mean((ratio >= 0.7) & (ratio <= 1.4)):.0%}")
    for name in ("mean", "new sample"):
        for level in LEVELS:
            key = f"{name} {level}"
            inside, lowest = np.array([(row[key], row[f"{key}, lowest tenth"]) for row in rows]).T
            near = [f"within {by:g} {np.mean(abs(inside - level) <= by):.0%}" for by in (0.05, 0.1)]
            print(f"{name}, {level:.0%}: mean {inside.mean():.2f}, {', '.join(near)}; lowest tenth {lowest.mean():.2f}")
    rank, ceiling = (np.array([row[name] for row in structure]) for name in ("rank", "ceiling"))
    print(f"rank correlation: mean {rank.mean():.2f}, of its ceiling {rank.mean() / ceiling.mean():.2f}")
    for name in ("neighbors", "apart", "member"):
        tables = [row[name] for row in rows if name in row]
        if tables:
            total = np.sum(tables, axis=0)
            cells = [f"{stated / count:.2f}-{observed / count:.2f}" for count, stated, observed in total if count >= 20]
            print(f"{name}, stated-found: {', '.join(cells)}")
    print(f"processor seconds of an audit: median {np.median([row['seconds'] for row in rows]):.1f}")


def peer_figures(rows: list[Row]) -> dict[str, list[float]]:
    """Return the means over distributions of the numbers `peers.FIGURES`, by score; NaN where a score has no number."""
    names = {name: None for row in rows for name in row["peers"]}
    return {
        name: [
            float(np.mean([np.nan if (value := row["peers"][name][index]) is None else value for row in rows]))
            for index in range(len(FIGURES))
        ]
        for name in names
    }


def peer_table(rows: dict[str, list[Row]]) -> str:
    """Return a Markdown table with a row for each score; each cell has a number for each method, the best one bold."""
    means = {method: peer_figures(of) for method, of in rows.items()}
    lines = []
    for name in next(iter(means.values())):
        cells = [name]
        for index, figure in enumerate(FIGURES):
            values = [of[name][index] for of in means.values()]
            best = [np.nanmax([each[index] for each in of.values()]) for of in means.values()]
            texts = [_short(value, figure, each) for value, each in zip(values, best, strict=True)]
            cells.append("" if np.isnan(values).any() else ", ".join(texts))
        lines.append(cells)
    ceilings = ", ".join(f"{np.mean([row['ceiling'] for row in of]):.2f}".lstrip("0") for of in rows.values())
    return table(["score", *FIGURES], [*lines, ["*ceiling*", ceilings, *[""] * (len(FIGURES) - 1)]])


def _short(value: float, figure: str, best: float) -> str:
    """Return a number with two decimals, bold if it is `best`; seconds have one decimal and are never bold."""
    if figure == "seconds":
        return f"{value:.1f}" if value >= 0.05 else "0"
    text, highest = (f"{round(each, 2) + 0.0:.2f}".replace("0.", ".", 1) for each in (value, best))  # no -0
    return f"**{text}**" if text == highest else text


PICTURE = Path(__file__).parents[2] / "images" / "believe.png"
# Okabe and Ito's colors, safe for color blindness, and a marker each for readers without colors.
LOOKS = {"pca": ("#0072B2", "s"), "glle": ("#E69F00", "^"), "umap": ("#009E73", "o"), "t-sne": ("#CC79A7", "D")}
NAMES = {"pca": "PCA", "glle": "LLE", "umap": "UMAP", "t-sne": "t-SNE"}
PANELS = {
    "rank correlation": "Which points do other samples move?\nrank correlation",
    "worst tenth": "Which tenth do they move most?\narea under the curve",
    "planted": "Which points have a wrong place?\narea under the curve",
    "seconds": "Time of the score\nprocessor seconds",
}


def draw_picture(rows: dict[str, list[Row]], path: Path = PICTURE) -> None:
    """Save a picture with a panel for each question, a row for each score and a marker for each method."""
    means = {method: peer_figures(of) for method, of in rows.items()}
    scores = list(next(iter(means.values())))
    figure, axes = plt.subplots(1, len(PANELS), figsize=(12.5, 1.3 + 0.36 * len(scores)), sharey=True)
    for ax, (name, title) in zip(axes, PANELS.items(), strict=True):
        for place in range(0, len(scores), 2):
            ax.axhspan(place - 0.5, place + 0.5, color="0.95", zorder=0)
        for lane, (method, of) in enumerate(means.items()):
            color, marker = LOOKS[method]
            values = [of[score][FIGURES.index(name)] for score in scores]
            heights = np.arange(len(scores)) + 0.16 * (lane - (len(means) - 1) / 2)
            ax.scatter(values, heights, color=color, marker=marker, s=30, label=NAMES[method], zorder=3)
        if name == "seconds":
            ax.set_xscale("log")
        else:
            ax.axvline(0 if name == "rank correlation" else 0.5, color="0.6", linewidth=0.8, zorder=1)
            ax.set_xlim(right=1.02)
        ax.set_title(title, fontsize=10)
        ax.tick_params(labelsize=9, length=0)
        ax.spines[["top", "right", "left"]].set_visible(False)
    axes[0].set_yticks(range(len(scores)), scores)
    axes[0].set_ylim(len(scores) - 0.5, -0.5)
    for label in axes[0].get_yticklabels():
        label.set_weight("bold" if label.get_text().startswith("audit") else "normal")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncols=4, fontsize=10, frameon=False)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(path, dpi=100)
    plt.close(figure)
