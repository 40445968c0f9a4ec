"""Tables of text."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def score_rows(scores: Mapping[str, Mapping[str, float]]) -> list[list[str]]:
    """Return the scores by label and name as rows of cells, the first with the names."""
    names = list(dict.fromkeys(name for row in scores.values() for name in row))
    rows = [[label, *(f"{row[name]:.4g}" if name in row else "" for name in names)] for label, row in scores.items()]
    return [["", *names], *rows]


def table_text(rows: Sequence[Sequence[object]]) -> str:
    """Return rows of cells as lines whose columns are aligned."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in texts)


def table_html(rows: Sequence[Sequence[object]], above: Iterable[str] = (), below: Iterable[str] = ()) -> str:
    """Return rows of cells as HTML, with sentences above and below; the first row and column are headings."""
    head, *others = [[escape(str(cell)) for cell in row] for row in rows]
    lines = [f"<tr><th>{name}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>" for name, *cells in others]
    top = "".join(f"<p><strong>{escape(sentence)}</strong></p>" for sentence in above)
    notes = "".join(f"<p>{escape(line)}</p>" for line in below)
    names = "".join(f"<th>{cell}</th>" for cell in head)
    return f"<div>{top}<table><tr>{names}</tr>{''.join(lines)}</table>{notes}</div>"
