"""Tables of docs/reference/methods.md, each between two markers, from the registries and from the measurements."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from glle_engine.methods import METHODS
from glle_engine.metrics.registry import SCORES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from docs.figures.methods.rows import Row

SHEET = ("trustworthiness", "procrustes")
COLUMNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "swiss_roll": ("Swiss roll", SHEET),
    "digits": ("digits", ("neighborhood_hit",)),
}
SHORT = {"trustworthiness": "trust", "procrustes": "disparity", "neighborhood_hit": "hit"}
TIMED = "swiss_roll"  # set of the times in the table
FULL = 1000  # points of the sheets and the digits; a cell names a smaller number


def between(page: str, name: str) -> str:
    """Return the text of a page between the marker `<!-- name -->` and the next `<!-- end -->`."""
    match = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- end -->", page, re.DOTALL)
    assert match is not None, f"the page has no marker {name}"
    return match[1]


def put(path: Path, name: str, text: str) -> None:
    """Replace the text of a page between the marker `<!-- name -->` and the next `<!-- end -->`."""
    page = path.read_text(encoding="utf-8")
    path.write_text(page.replace(f"<!-- {name} -->\n{between(page, name)}\n", f"<!-- {name} -->\n{text}\n"), "utf-8")


def listing() -> str:
    """Return a Markdown table of the methods for each family, and a list of the bitwise reproducible methods."""
    families: dict[str, list[list[str]]] = {}
    for method in METHODS.values():
        defaults = method.spec().to_dict()
        options = ", ".join(f"`{name}` {_default(value)}" for name, value in defaults.items() if name != "n_components")
        takes = [options or "none", *(["labels"] if method.labels else [])]
        extra = f" (extra `{method.extra}`)" if method.extra else ""
        row = [f"`{method.name}`", f"{method.title}{extra}", method.growth, "; ".join(takes)]
        families.setdefault(method.family, []).append(row)
    head = ["name", "method", "time grows with", "parameters and defaults"]
    tables = [f"**{family}**\n\n{table(head, rows)}" for family, rows in families.items()]
    same = ", ".join(f"`{name}`" for name, method in METHODS.items() if method.reproducible)
    text = (
        f"The same bits on all processors, also with another number of threads: {same}. The other methods give "
        "the same bits on one processor with one number of threads (`OMP_NUM_THREADS`), because BLAS rounds "
        "differently with another number; descents such as `meu` and `sne` then differ in about the ninth digit."
    )
    return "\n\n".join([*tables, text])


def score_listing() -> str:
    """Return a Markdown table of all scores of embeddings."""
    rows = []
    for each in SCORES.values():
        limit = f"; at most {each.most_points:,} points" if each.most_points else ""
        default = "yes" if each.by_default else "no"
        rows.append([f"`{each.name}`", each.about, each.needs, each.better, default, f"{each.growth}{limit}"])
    return table(["score", "what it measures", "needs", "better", "default", "time grows with"], rows)


def overview(rows: list[Row]) -> str:
    """Return a Markdown table of measured methods: time, and scores on each data set.

    Below the table is a numbered list of the reasons for which methods refused a data set.
    """
    by_place = {(row.method, row.data): row for row in rows}
    reasons: list[str] = []
    lines = []
    for name in METHODS:
        timed = by_place.get((name, TIMED))
        cells = [f"`{name}`", _time(timed.seconds) if timed and not timed.refused else ""]
        for data, (_, chosen) in COLUMNS.items():
            row = by_place.get((name, data))
            cells.append("" if row is None else _cell(row, chosen, reasons))
        lines.append(cells)
    head = [
        "method",
        "seconds",
        *(f"{title}: {', '.join(map(SHORT.__getitem__, chosen))}" for title, chosen in COLUMNS.values()),
    ]
    notes = "\n".join(f"{place}. {reason}" for place, reason in enumerate(reasons, 1))
    return table(head, lines) + (f"\n\nRefused:\n\n{notes}" if notes else "")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(row: Row, chosen: tuple[str, ...], reasons: list[str]) -> str:
    if row.refused:
        if row.refused not in reasons:
            reasons.append(row.refused)
        return f"refused ({reasons.index(row.refused) + 1})"
    fewer = f", n = {row.n}" if row.n != FULL else ""
    return f"{format_scores(row, chosen)}{fewer}"


def format_scores(row: Row, chosen: tuple[str, ...]) -> str:
    """Return the scores with the names `chosen` as a text such as "0.981, 0.012"."""
    return ", ".join(_score(row.scores, name) for name in chosen)


def _score(scores: dict[str, float], name: str) -> str:
    if name not in scores:
        return ""
    return f"{scores[name]:.3f}"


def _time(seconds: float) -> str:
    return f"{seconds:.3f}" if seconds < 0.1 else f"{seconds:.2g}" if seconds < 10 else f"{seconds:.0f}"


def _default(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
