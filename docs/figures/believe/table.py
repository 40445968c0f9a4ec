"""Goals of the study of audits, and the figures found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.reliability.alignment import rank_correlation

if TYPE_CHECKING:
    from docs.figures.believe.measure import Row

LEVELS = (0.5, 0.9)


def print_goals(title: str, rows: list[Row]) -> None:
    """Print a row of figures for each law, and the goals over all of them."""
    print(f"\n{title}")
    for row in rows:
        cells = [row["remains"], row["remains found"], row["ratio"], row["expected"], row["rank"], row["ceiling"]]
        cells += [row["mean 0.9"], row["new sample 0.9"]]
        text = " | ".join("-" if cell is None else f"{cell:.2f}" for cell in cells)
        print(f"| {row['law']} | {row['n']} | {row['beyond']} | {row['word']} | {text} |")
    noise, structure = ([row for row in rows if row["noise"] is is_noise] for is_noise in (True, False))
    print(f"noise beyond chance: {sum(row['beyond'] is True for row in noise)} of {len(noise)}")
    print(f"structure beyond chance: {sum(row['beyond'] is True for row in structure)} of {len(structure)}")
    gaps = np.array([abs(row["remains"] - row["remains found"]) for row in rows])
    print(f"remains: mean error {gaps.mean():.2f}, within .15 {np.mean(gaps <= 0.15):.0%}")
    drawn = [row for row in structure if not row["finite"]]  # parts of one data set vary less
    ratio = np.array([row["ratio"] for row in drawn])
    print(f"ratio: median {np.median(ratio):.2f}, within .7-1.4 {np.mean((ratio >= 0.7) & (ratio <= 1.4)):.0%}")
    for name in ("mean", "new sample"):
        for level in LEVELS:
            inside = np.array([row[f"{name} {level}"] for row in rows if not row["finite"]])
            lowest = np.array([row[f"{name} {level}, lowest tenth"] for row in rows if not row["finite"]])
            print(
                f"{name}, {level:.0%}: mean {inside.mean():.2f}, within .05 {np.mean(abs(inside - level) <= 0.05):.0%}"
                f", within .1 {np.mean(abs(inside - level) <= 0.1):.0%}; lowest tenth of samples {lowest.mean():.2f}"
            )
    _print_ranking([row for row in structure if row["expected"] is not None])
    for name in ("neighbors", "apart", "member"):
        tables = [row[name] for row in rows if name in row]
        if tables:
            total = np.sum(tables, axis=0)
            cells = [f"{stated / count:.2f}-{found / count:.2f}" for count, stated, found in total if count >= 20]
            print(f"{name}, stated-found: {', '.join(cells)}")
    print(f"processor seconds of an audit: median {np.median([row['seconds'] for row in rows]):.1f}")


def _print_ranking(rows: list[Row]) -> None:
    rank, ceiling, expected = (np.array([row[name] for row in rows]) for name in ("rank", "ceiling", "expected"))
    print(f"rank correlation: mean {rank.mean():.2f}, of its ceiling {rank.mean() / ceiling.mean():.2f}")
    print(f"expected against found: {rank_correlation(expected, rank):.2f}")
    for level in ("high", "moderate", "low"):
        of = rank[[row["word"] == level for row in rows]]
        if len(of):
            figures = f"mean {of.mean():.2f}, lowest {of.min():.2f}, {np.mean(of >= 0.8):.0%} from .8 on"
            print(f"{level}: {len(of)} laws, {figures}")
