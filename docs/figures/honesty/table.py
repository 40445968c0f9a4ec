"""Tables of docs/explanation/honesty.md: the candidates, the reachable limit, and how often the goals are met."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from docs.figures.honesty.goals import COVERAGE, RATIO, RHO
from docs.figures.honesty.rows import CALIBRATED, HALVES, MIXED, SCALE_1

if TYPE_CHECKING:
    from collections.abc import Callable

    from docs.figures.honesty.rows import Row

SHOWN = (SCALE_1, CALIBRATED, HALVES, MIXED)


def met(row: Row) -> tuple[bool, bool, bool]:
    """Return whether a row meets each of the three goals."""
    return (row.rho >= RHO, RATIO[0] <= row.ratio <= RATIO[1], COVERAGE[0] <= row.coverage <= COVERAGE[1])


def grouped(rows: list[Row]) -> dict[tuple[str, str, str], dict[str, list[Row]]]:
    """Return the rows by (group, law, truth) and candidate, in their order."""
    grouped_rows: dict[tuple[str, str, str], dict[str, list[Row]]] = {}
    for row in rows:
        grouped_rows.setdefault((row.group, row.law, row.truth), {}).setdefault(row.candidate, []).append(row)
    return grouped_rows


def tables(rows: list[Row]) -> str:
    """Return the three tables as Markdown."""
    return "\n\n".join((_candidates(rows), _attainable(rows), _goals(rows)))


def _candidates(rows: list[Row]) -> str:
    lines = ["| data, law | truth | candidate | rho | corrected | ratio | coverage |", "|---|---|---|---|---|---|---|"]
    for (group, law, truth), candidates in grouped(rows).items():
        for place, name in enumerate(SHOWN):
            group_rows = candidates[name]
            cells = (
                *((f"{group}, {law}", f"{truth} ({len(group_rows)})") if place == 0 else ("", "")),
                name,
                _range(group_rows, lambda row: row.rho),
                _mean(group_rows, lambda row: row.corrected),
                _range(group_rows, lambda row: row.ratio, geometric=True),
                _range(group_rows, lambda row: row.coverage),
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _attainable(rows: list[Row]) -> str:
    lines = [
        "| data, law | truth | ceiling | one sample | six samples | true ellipses | bias |",
        "|---|---|---|---|---|---|---|",
    ]
    for (group, law, truth), candidates in grouped(rows).items():
        group_rows = candidates[SCALE_1]
        samples = [_mean(candidates[name], lambda row: row.one_sample) for name in (SCALE_1, HALVES)]
        six = [_mean(candidates[name], lambda row: row.rho_many) for name in (SCALE_1, HALVES, MIXED)]
        own = f"{_mean(group_rows, lambda row: row.own_coverage)} ({_mean(group_rows, lambda row: row.own_within)})"
        cells = (
            f"{group}, {law}",
            truth,
            _mean(group_rows, lambda row: row.ceiling),
            ", ".join(filter(None, samples)),
            ", ".join(filter(None, six)),
            own,
            _mean(group_rows, lambda row: np.nan if row.bias is None else row.bias),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _goals(rows: list[Row]) -> str:
    lines = [
        "| candidate | settings | mean rho | rho, own motion | rho met | ratio met | coverage met | all three |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for candidate in dict.fromkeys(row.candidate for row in rows):
        group_rows = [row for row in rows if row.candidate == candidate]
        goals = np.array([met(row) for row in group_rows])
        counts = " | ".join(str(count) for count in (*goals.sum(axis=0), goals.all(axis=1).sum()))
        means = f"{_mean(group_rows, lambda row: row.rho)} | {_mean(group_rows, lambda row: row.rho_local)}"
        lines.append(f"| {candidate} | {len(group_rows)} | {means} | {counts} |")
    return "\n".join(lines)


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.2f}".removeprefix("0")


def _mean(rows: list[Row], of: Callable[[Row], float]) -> str:
    return _number(float(np.mean([of(row) for row in rows])))


def _range(rows: list[Row], of: Callable[[Row], float], *, geometric: bool = False) -> str:
    values = [of(row) for row in rows]
    middle = float(np.exp(np.mean(np.log(values)))) if geometric else float(np.mean(values))
    return _number(middle) + (f" [{_number(min(values))}-{_number(max(values))}]" if len(values) > 1 else "")
