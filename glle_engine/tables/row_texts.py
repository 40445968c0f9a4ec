"""Convert the labels and the ids of a table's rows to arrays; a missing label or id becomes an empty text."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.arrays import EXACT
from glle_engine.base.errors import TableError
from glle_engine.base.texts import Note

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

MAX_TEXT_CHARACTERS = 1000  # a label or an id with more characters is refused
# Labels or ids are refused if their number times the characters of the longest one exceeds this: numpy gives each text
# the room of the longest one, and 4 bytes to a character, so that they would take more than 256 MB.
MAX_TOTAL_CHARACTERS = 2**26
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,15}")
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")


def is_text(text: str) -> bool:
    """Return whether a string can be stored: half a surrogate pair is not UTF-8, and numpy's texts end at U+0000."""
    return _NOT_TEXT.search(text) is None


def text_of(value: Any) -> str:
    """Return a value as text: empty for None and NaN, and without a decimal point for whole numbers."""
    if value is None or value != value:  # noqa: PLR0124 # NaN
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def label_array(labels: Sequence[Any], base: int = 1) -> NDArray[Any]:
    """Convert labels to an array (n,): float64 if all labels are numbers that float64 holds exactly, otherwise texts.

    None and NaN become empty texts. If one label is missing, all other labels therefore become texts, too.

    Parameters
    ----------
    labels
        A number, a text or None for each row.
    base
        Number of the first row in messages.

    Raises
    ------
    TableError
        ``label-too-long``, ``invalid-label`` (characters that cannot be stored), ``not-finite`` (infinity).

    """
    infinite = [row for row, label in enumerate(labels) if isinstance(label, float) and math.isinf(label)]
    if infinite:
        detail = f"{len(infinite):,} labels are infinite; the first, {labels[infinite[0]]}, is in row "
        detail += f"{infinite[0] + base} (counted from {base})."
        details = {"row": infinite[0] + base, "rows_affected": len(infinite)}
        remedy = "Replace infinite labels, or remove their rows."
        raise TableError("not-finite", detail, remedy=remedy, details=details)
    if all(_is_exact(label) for label in labels):
        return np.array(labels, np.float64)
    texts = list(map(text_of, labels))
    _check_texts("label", texts, base)
    _check_room("label", max(map(len, texts)), len(texts))
    return np.array(texts, np.str_)


def _is_exact(label: Any) -> bool:
    if isinstance(label, int):
        return abs(label) <= EXACT
    return isinstance(label, float) and label == label  # noqa: PLR0124 # NaN


def missing_labels(labels: NDArray[Any] | None) -> list[Note]:
    """Return a list with a notice for the user if some labels are missing (empty texts), or else an empty list."""
    if labels is None or labels.dtype.kind != "U" or not (missing := int((labels == "").sum())):
        return []
    message = f"The label is missing in {missing:,} of {len(labels):,} rows; these rows share the empty label."
    return [Note("missing-label", message)]


class Ids:
    """Collects the ids of rows, which are read in blocks, from any number of columns of ids.

    Ids are stored as int64 if all of them are whole numbers up to 2^53 without leading zeros, and otherwise as texts,
    so that ``007`` keeps its zeros.
    """

    def __init__(self, columns: Iterable[Sequence[object]] = (), base: int = 1) -> None:
        self._blocks: list[NDArray[Any]] = []
        self._count = self._missing = 0
        self._base = base
        self.add(columns)

    def add(self, columns: Iterable[Sequence[object]]) -> None:
        """Add the ids of the next block of rows; `columns` are the columns of ids, each with one value for each row.

        Raises
        ------
        TableError
            ``id-too-long``, ``invalid-id`` (characters that cannot be stored).

        """
        texts = [list(map(text_of, column)) for column in columns]
        if not texts or not texts[0]:
            return
        for column in texts:
            _check_texts("id", column, self._base + self._count)
        self._missing += sum(not all(row) for row in zip(*texts, strict=True))
        self._count += len(texts[0])
        are_integers = all(_INTEGER.fullmatch(text) and abs(int(text)) <= EXACT for column in texts for text in column)
        block = np.array([list(map(int, column)) for column in texts], np.int64) if are_integers else np.array(texts)
        self._blocks.append(block.T)

    def array(self) -> NDArray[Any] | None:
        """Return the ids: (n,) from one column, (n, columns) from several, None if there is no column."""
        if not self._blocks:
            return None
        has_text = any(block.dtype.kind == "U" for block in self._blocks)
        blocks = [block.astype(np.str_) for block in self._blocks] if has_text else self._blocks
        if has_text:
            longest = max(int(np.char.str_len(block).max()) for block in blocks)
            _check_room("id", longest, self._count * blocks[0].shape[1])
        ids = np.concatenate(blocks)
        return np.ascontiguousarray(ids[:, 0] if ids.shape[1] == 1 else ids)

    def notices(self) -> list[Note]:
        """Return a list with a notice for the user if some ids are missing, or else an empty list."""
        if not self._missing:
            return []
        message = f"The id is missing in {self._missing:,} of {self._count:,} rows; these rows have the empty id."
        return [Note("missing-id", message)]


def _check_texts(noun: str, texts: list[str], start: int) -> None:
    """Raise `TableError` if a text is too long, or cannot be encoded; `start` is the number of the first row."""
    for row, text in enumerate(texts, start):
        if len(text) > MAX_TEXT_CHARACTERS:
            detail = f"The {noun} of row {row} has {len(text):,} characters; {MAX_TEXT_CHARACTERS:,} are allowed."
            remedy = f"Use shorter {noun}s, or leave the column out with ignore."
            raise TableError(
                f"{noun}-too-long", detail, remedy=remedy, details={"row": row, "allowed": MAX_TEXT_CHARACTERS}
            )
        if not is_text(text):
            detail = f"The {noun} of row {row} is {text!r}, which has a character that cannot be stored: U+0000, or "
            detail += "half of a surrogate pair."
            remedy = f"Remove that character from the {noun}."
            raise TableError(f"invalid-{noun}", detail, remedy=remedy, details={"row": row})


def _check_room(noun: str, longest: int, count: int) -> None:
    """Raise `TableError` if an array of `count` texts, each with the room of the longest, would be too large."""
    if longest * count > MAX_TOTAL_CHARACTERS:
        allowed = MAX_TOTAL_CHARACTERS // count
        detail = f"The longest {noun} has {longest:,} characters; with {count:,} {noun}s, {allowed:,} are allowed."
        remedy = f"Use shorter {noun}s, such as numbers, or leave the column out with ignore."
        raise TableError(f"{noun}-too-long", detail, remedy=remedy, details={"allowed": allowed})
