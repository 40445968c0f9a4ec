"""Tables of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def score_table(scores: Mapping[str, Mapping[str, float]], lines: Iterable[str]) -> str:
    """Return the scores by label and name as a table, with lines below."""
    names = list(dict.fromkeys(name for row in scores.values() for name in row))
    rows = [[label, *(f"{row[name]:.4g}" if name in row else "" for name in names)] for label, row in scores.items()]
    return "\n".join([table_text([["", *names], *rows]), *lines])


def table_text(rows: Sequence[Sequence[object]]) -> str:
    """Return rows of cells as lines whose columns are aligned."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in texts)
