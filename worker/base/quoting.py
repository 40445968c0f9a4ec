"""Texts and facts that go into an answer or a record: finite JSON of bounded size, whatever a user sent."""

from __future__ import annotations

import math
from typing import Any

MOST_TEXT = 2000  # characters of a text; the longest remedy has some 300
MOST_MEMBERS = 100  # of a list or an object
MOST_DEPTH = 6  # lists and objects within each other
MOST_TOTAL = 32_768  # characters of all texts and numbers together
CUT = "truncated"  # the member of details that were cut
_MOST_BITS = 128  # of an integer: seeds have 64


def shortened(text: str, most: int = MOST_TEXT) -> str:
    """Return a text of at most `most` characters and a note on the rest."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text) - most:,} more characters)"


def quotable(details: dict[str, Any]) -> dict[str, Any]:
    """Return facts as finite JSON of bounded size; `truncated` is true where something was cut.

    A number that is not finite becomes the text ``inf``, ``-inf`` or ``nan``, because JSON has none; an array becomes
    lists, and any other object its text.
    """
    quoter = _Quoter()
    quoted: dict[str, Any] = quoter.quoted(details, 0)
    return {**quoted, CUT: True} if quoter.has_cut else quoted


class _Quoter:
    """Conversion of one object, with the characters that are left for it."""

    def __init__(self) -> None:
        self.has_cut = False
        self._left = MOST_TOTAL

    def quoted(self, value: Any, depth: int) -> Any:
        """Return a value as finite JSON."""
        if value is None or isinstance(value, bool):
            return value
        if hasattr(value, "dtype"):  # of numpy
            value = self._unpacked(value)
        if isinstance(value, int | float):
            return self._number(value)
        if isinstance(value, dict | list | tuple | set | frozenset):
            return self._nested(value, depth)
        return self._text(value if isinstance(value, str) else str(value))

    def _unpacked(self, value: Any) -> Any:
        """Return an array or a number of numpy as Python's."""
        if value.size > MOST_TOTAL:
            self.has_cut = True
            value = value.reshape(-1)[:MOST_MEMBERS]
        return value.tolist()

    def _nested(self, value: Any, depth: int) -> Any:
        if depth > MOST_DEPTH:
            self.has_cut = True
            return "..."
        if isinstance(value, dict):
            pairs = self._members(list(value.items()))
            return {self._text(str(name)): self.quoted(member, depth + 1) for name, member in pairs}
        return [self.quoted(member, depth + 1) for member in self._members(list(value))]

    def _number(self, value: float) -> int | float | str:
        self._left -= 20
        if isinstance(value, int):
            return int(value) if value.bit_length() <= _MOST_BITS else f"an integer of {value.bit_length():,} bits"
        return float(value) if math.isfinite(value) else str(float(value))

    def _text(self, text: str) -> str:
        most = max(0, min(MOST_TEXT, self._left))
        self.has_cut |= len(text) > most
        self._left -= min(len(text), most)
        return shortened(text, most)

    def _members(self, members: list[Any]) -> list[Any]:
        """Return the first members, none when no characters are left."""
        most = MOST_MEMBERS if self._left > 0 else 0
        self.has_cut |= len(members) > most
        self._left -= min(len(members), most)
        return members[:most]
