"""Tables of docs/reference/methods.md, each between two markers, from the registries and from the measurements."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.methods import METHODS
from glle_engine.metrics.registry import SCORES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from docs.figures.methods.likelihood import Likely
    from docs.figures.methods.rows import Row
    from glle_engine.methods import Method
    from glle_engine.metrics.registry import Score

SHEET = ("trustworthiness", "procrustes", "affine_r2")
COLUMNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "s_curve": ("S-curve", SHEET),
    "swiss_roll": ("Swiss roll", SHEET),
    "swiss_roll_hole": ("with a hole", SHEET),
    "severed_bowl": ("severed bowl", SHEET),
    "digits": ("digits", ("neighborhood_hit",)),
    "mocap_run1": ("motion capture", ("gplvm",)),
    "robot_wifi": ("robot", ("gplvm",)),
}
ABSENT = "not here"  # a missing real set
FULL = 1000  # points of the sheets and the digits; a cell names a smaller number


def between(page: str, name: str) -> str:
    """Return the text between the markers of a name."""
    match = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- end -->", page, re.DOTALL)
    assert match is not None, f"the page has no marker {name}"
    return match[1]


def put(path: Path, name: str, text: str) -> None:
    """Replace the text between the markers of a name."""
    page = path.read_text(encoding="utf-8")
    path.write_text(page.replace(f"<!-- {name} -->\n{between(page, name)}\n", f"<!-- {name} -->\n{text}\n"), "utf-8")


def listing() -> str:
    """Return the table of all methods."""
    rows = []
    for method in METHODS.values():
        defaults = method.spec().to_dict()
        options = ", ".join(f"`{name}` {_default(value)}" for name, value in defaults.items() if name != "n_components")
        takes = [options or "none", *(["labels"] if method.labels else [])]
        extra = f" (extra `{method.extra}`)" if method.extra else ""
        rows.append(
            [
                method.family,
                f"`{method.name}`",
                f"{method.title}{extra}",
                method.source,
                method.growth,
                _bits(method),
                "; ".join(takes),
            ]
        )
    head = ["family", "name", "method", "source", "time grows with", "same bits on", "parameters and defaults"]
    return table(head, rows)


def score_listing() -> str:
    """Return the table of all scores."""
    rows = [
        [
            f"`{score.name}`",
            score.about,
            score.needs,
            score.better,
            score.growth,
            _most(score.most_points),
            _bits(score),
        ]
        for score in SCORES.values()
    ]
    head = ["score", "what it measures", "needs", "better", "time grows with", "most points", "same bits on"]
    return table(head, rows)


def _bits(item: Method[Any] | Score) -> str:
    """Return the machines on which a request has the same bits."""
    return "every processor" if item.reproducible else "one processor"


def overview(rows: list[Row]) -> str:
    """Return the chosen scores and the time of every method on every set, with numbered reasons of refusals."""
    by_place = {(row.method, row.data): row for row in rows}
    reasons: list[str] = []
    lines = []
    for name in METHODS:
        cells = [f"`{name}`"]
        for data, (_, chosen) in COLUMNS.items():
            row = by_place.get((name, data))
            cells.append(ABSENT if row is None else _cell(row, chosen, reasons))
        lines.append(cells)
    head = ["method", *(f"{title}: {', '.join(map(_short, chosen))}" for title, chosen in COLUMNS.values())]
    notes = "\n".join(f"{place}. {reason}" for place, reason in enumerate(reasons, 1))
    return table(head, lines) + (f"\n\nRefused:\n\n{notes}" if notes else "")


def details(rows: list[Row]) -> str:
    """Return every score of every method, with a table for each data set."""
    parts = []
    for data, (title, _) in COLUMNS.items():
        matching = {row.method: row for row in rows if row.data == data and not row.refused}
        if not matching:
            continue
        names = [name for name in SCORES if any(name in row.scores for row in matching.values())]
        lines = [
            [
                f"`{name}`",
                f"{row.n:,}",
                _time(row.seconds),
                *(_score(row.scores, score) for score in names),
                _remarks(row),
            ]
            for name, row in ((name, matching[name]) for name in METHODS if name in matching)
        ]
        body = table(["method", "n", "seconds", *(f"`{score}`" for score in names), "notes"], lines)
        parts.append(f"<details><summary>{title}</summary>\n\n{body}\n\n</details>")
    return "\n\n".join(parts)


def likelihoods(rows: list[Likely]) -> str:
    """Return the table of figure 7, the best first."""
    keys = [("mocap_run1", "6"), ("mocap_run1", "7"), ("robot_wifi", "6"), ("robot_wifi", "7")]
    lines = []
    for method in dict.fromkeys(row.method for row in rows):
        cells, rank = [_method_name(method)], -np.inf
        for data, k in keys:
            matching = [row for row in rows if (row.data, row.method, row.option) == (data, method, k)]
            values = [row.value for row in matching if row.value is not None]
            cells.append(_values(values) if values else ("refused" if matching else ""))
            if (data, k) == keys[0] and values:
                rank = float(np.median(values))
        lines.append((rank, cells))
    lines.sort(key=lambda line: -line[0])
    head = ["method", "motion capture, k = 6", "k = 7", "robot, k = 6", "k = 7"]
    refused = dict.fromkeys(f"- {row.data}, k = {row.option}: {row.refused}" for row in rows if row.refused)
    reasons = "\n\nRefused:\n\n" + "\n".join(refused) if refused else ""
    return table(head, [cells for _, cells in lines]) + reasons


def penalties(rows: list[Likely]) -> str:
    """Return the table of figures 8 and 9."""
    lines: dict[str, list[str]] = {}
    head = ["L1"]
    for data, title in (("mocap_run1", "motion capture"), ("robot_wifi", "robot")):
        for candidates in dict.fromkeys(row.option.split()[0] for row in rows if row.data == data):
            head.append(f"{title}, {candidates} neighbors" if candidates != "all" else f"{title}, all points")
            matching = [row for row in rows if row.data == data and row.option.split()[0] == candidates]
            best = max((row.value for row in matching if row.value is not None), default=None)
            for row in matching:
                cell = "refused" if row.value is None else f"{row.value:,.0f}"
                is_best = row.value is not None and row.value == best
                lines.setdefault(row.option.split()[1], []).append(f"**{cell}**" if is_best else cell)
    return table(head, [[l1, *cells] for l1, cells in lines.items()])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _values(values: list[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:,.0f}"
    return f"{np.median(values):,.0f} [{min(values):,.0f} to {max(values):,.0f}]"


def _method_name(method: str) -> str:
    """Return the method's name as code, followed by the option of a variant; GLLE's rows are several draws."""
    name, *option = method.split(", ")
    return ", ".join([f"`{name}`", *(["draws"] if method == "glle" else option)])


def _cell(row: Row, chosen: tuple[str, ...], reasons: list[str]) -> str:
    if row.refused:
        if row.refused not in reasons:
            reasons.append(row.refused)
        return f"refused ({reasons.index(row.refused) + 1})"
    fewer = f", n = {row.n}" if "gplvm" not in chosen and row.n != FULL else ""
    return f"{format_scores(row, chosen)} in {_time(row.seconds)} s{fewer}"


def format_scores(row: Row, chosen: tuple[str, ...]) -> str:
    """Return the chosen scores as text."""
    return ", ".join(_score(row.scores, name) for name in chosen)


def _score(scores: dict[str, float], name: str) -> str:
    if name not in scores:
        return ""
    return f"{scores[name]:,.0f}" if name == "gplvm" else f"{scores[name]:.3f}"


def _short(name: str) -> str:
    return {
        "trustworthiness": "trust",
        "procrustes": "disparity",
        "affine_r2": "affine R^2",
        "neighborhood_hit": "hit",
        "gplvm": "GP-LVM",
    }[name]


def _time(seconds: float) -> str:
    return f"{seconds:.3f}" if seconds < 0.1 else f"{seconds:.2g}" if seconds < 10 else f"{seconds:.0f}"


def _remarks(row: Row) -> str:
    return ", ".join(f"`{code}`" for code in row.notes)


def _default(value: object) -> str:
    return (
        "true" if value is True else "false" if value is False else f"{value:g}" if type(value) is float else f"{value}"
    )


def _most(points: int | None) -> str:
    return "" if points is None else f"{points:,}"
