"""Tables for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def aligned(lines: Iterable[Sequence[object]]) -> str:
    """Return rows as aligned columns; the first row is the head."""
    words = [[str(value) for value in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*words, strict=True)]
    shown = [" | ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip() for line in words]
    return "\n".join([shown[0], "-|-".join("-" * width for width in widths), *shown[1:]])
