"""Tables of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def table_text(rows: Sequence[Sequence[object]]) -> str:
    """Return rows of cells as lines whose columns are aligned."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in texts)
