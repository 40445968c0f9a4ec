"""Tables of docs/explanation/honesty.md: goals and stated reliability; settings and candidates are printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from docs.figures.honesty.rows import BASELINE, DRAWN, ENSEMBLE, HALVES, LARGER, MIXED, RANDOM_K
from docs.figures.methods.tables import table
from glle_engine.reliability.alignment import rank_correlation

if TYPE_CHECKING:
    from collections.abc import Callable

    from docs.figures.honesty.rows import Row

RHO = 0.80  # mean rank correlation with the truth
RATIO = (0.7, 1.4)  # of the median spreads, in a share of .95 of the cases
RATIO_SHARE = 0.95
COVERAGE = (0.85, 0.97)  # of 90 % regions, in a share of .90 of the settings
COVERAGE_SHARE = 0.90
RELIABILITY = 0.7  # rank correlation over settings of the expected correlation with the found one
CANDIDATES = (DRAWN, HALVES, RANDOM_K, LARGER, MIXED, ENSEMBLE, BASELINE)


def render(rows: list[Row]) -> dict[str, str]:
    """Return all tables as Markdown, by the name of their markers in the page."""
    return {
        "goals": against_goals(rows),
        "words": by_word(rows),
    }


def group_rows(rows: list[Row]) -> dict[str, list[Row]]:
    """Return the rows by setting, in their order."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.setting, []).append(row)
    return groups


def by_setting(rows: list[Row]) -> str:
    """Return the ensemble's figures for each setting: means over its samples."""
    lines = []
    for name, group in group_rows(rows).items():
        cells = (
            f"{name}{' *' if group[0].held_out else ''}",
            f"{group[0].n:,}",
            _mean(group, lambda row: row.rho[ENSEMBLE]),
            _mean(group, lambda row: np.sqrt(max(0.0, row.reliable_truth))),
            _range(group, lambda row: row.ratio[ENSEMBLE]),
            _mean(group, lambda row: row.coverage[1]),
            ", ".join(row.level for row in group),
        )
        lines.append(cells)
    return table(["data", "n", "ensemble", "ceiling", "ratio", "90 %", "stated"], lines)


def by_candidate(rows: list[Row]) -> str:
    """Return the mean rank correlation of each candidate, and the share of ratios within the goal."""
    lines = []
    groups = group_rows(rows)
    for name in CANDIDATES:
        means = {setting: float(np.mean([row.rho[name] for row in group])) for setting, group in groups.items()}
        parts = [
            _number(float(np.mean([means[setting] for setting, group in groups.items() if group[0].held_out == out])))
            for out in (False, True)
        ]
        ratios = [row.ratio[name] for row in rows if name in row.ratio]
        size = (_number(float(np.exp(np.mean(np.log(ratios))))), _share(_within(ratios))) if ratios else ("", "")
        lines.append((name, *parts, _number(min(means.values())), *size))
    head = ("candidate", "rho, known settings", "rho, held out", "lowest setting", "ratio", "ratio within .7-1.4")
    return table(head, lines)


def against_goals(rows: list[Row]) -> str:
    """Return the goals, and what was found in all settings and in those that were held out."""
    lines = []
    held_out = [row for row in rows if row.held_out]
    names = (
        ("rank correlation of the ensemble, mean", f"at least {_number(RHO)}"),
        ("ratio within .7-1.4, share of samples", f"{_share(RATIO_SHARE)}"),
        ("coverage of 90 % regions within .85-.97, share of settings", f"{_share(COVERAGE_SHARE)}"),
        ("rank correlation over settings, expected against found", f"at least {_number(RELIABILITY)}"),
    )
    for (name, goal), every, out in zip(names, figures(rows), figures(held_out), strict=True):
        show = _share if "share" in name else _number
        lines.append((name, goal, show(every), show(out)))
    return table(["figure", "goal", "all settings", "held out"], lines)


def figures(rows: list[Row]) -> tuple[float, float, float, float]:
    """Return the four figures with goals."""
    groups = list(group_rows(rows).values())
    values = [[(row.rho[ENSEMBLE], row.expected, row.coverage[1]) for row in group] for group in groups]
    found, expected, covered = np.array([np.mean(of, axis=0) for of in values]).T
    inside = (covered >= COVERAGE[0]) & (covered <= COVERAGE[1])
    ratios = [row.ratio[ENSEMBLE] for row in rows]
    return float(found.mean()), _within(ratios), float(inside.mean()), rank_correlation(expected, found)


def by_word(rows: list[Row]) -> str:
    """Return the found rank correlations for each stated word."""
    lines = []
    for word in ("high", "moderate", "low"):
        values = [row.rho[ENSEMBLE] for row in rows if row.level == word]
        cells = [_number(float(of(values))) for of in (np.mean, np.min, np.max)] if values else ["", "", ""]
        lines.append((word, str(len(values)), *cells))
    return table(["stated", "samples", "rho found: mean", "lowest", "highest"], lines)


def _within(ratios: list[float]) -> float:
    return float(np.mean([RATIO[0] <= ratio <= RATIO[1] for ratio in ratios]))


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def _number(value: float) -> str:
    text = f"{value:.2f}"
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def _mean(rows: list[Row], of: Callable[[Row], float]) -> str:
    return _number(float(np.mean([of(row) for row in rows])))


def _range(rows: list[Row], of: Callable[[Row], float]) -> str:
    values = [of(row) for row in rows]
    middle = float(np.exp(np.mean(np.log(values))))
    return f"{_number(middle)} [{_number(min(values))}-{_number(max(values))}]"
