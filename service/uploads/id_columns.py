"""Ids of the rows, which are stored as they are in the file; a missing id is the empty text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from service.uploads.label_columns import MOST_LABEL, MOST_LABELS
from service.uploads.limits import is_text
from worker.base.problems import refuse
from worker.storage.validation import EXACT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Array = np.ndarray[Any, np.dtype[Any]]

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,15}")
_REMEDY = "Use shorter ids, or leave the column out with ignore."


class Ids:
    """Collector of the ids of the rows, from any number of columns.

    Whole numbers to 2^53 in their usual digits are stored as int64, all others as text, so that ``007`` stays.
    """

    def __init__(self) -> None:
        self._blocks: list[Array] = []
        self._count = 0
        self._longest = 0
        self._missing = 0
        self._has_text = False

    def add(self, columns: Iterable[Sequence[str]]) -> None:
        """Add the ids of a block of rows, column by column.

        Raises
        ------
        ProblemError
            ``id-too-long``, ``invalid-id``.

        """
        texts = [list(column) for column in columns]
        if not texts or not texts[0]:
            return
        for column in texts:
            self._check(column)
        self._missing += sum(not all(row) for row in zip(*texts, strict=True))
        self._count += len(texts[0])
        is_text_block = not all(map(_are_integers, texts))
        self._has_text = self._has_text or is_text_block
        self._blocks.append(np.array(texts, np.str_).T if is_text_block else _integers(texts))
        self._longest = max(self._longest, *(len(text) for column in texts for text in column))
        cells = self._count * len(texts)
        if self._has_text and self._longest * cells > MOST_LABELS:
            allowed = MOST_LABELS // cells
            detail = f"The longest of {cells:,} ids has {self._longest} characters; {allowed} are allowed."
            raise refuse("id-too-long", 422, detail, _REMEDY, allowed=allowed)

    def array(self) -> Array | None:
        """Return the ids (n,), those of several columns (n, columns), or None without a column."""
        if not self._blocks:
            return None
        blocks = [block.astype(np.str_) for block in self._blocks] if self._has_text else self._blocks
        ids = np.concatenate(blocks)
        return np.ascontiguousarray(ids[:, 0] if ids.shape[1] == 1 else ids)

    def notices(self) -> list[str]:
        """Return the notice of missing ids, or none."""
        if not self._missing:
            return []
        return [f"The id is missing in {self._missing:,} of {self._count:,} rows; these rows have the empty id."]

    def _check(self, texts: list[str]) -> None:
        for row, text in enumerate(texts, self._count + 1):
            if len(text) > MOST_LABEL:
                detail = f"The id of row {row} has {len(text):,} characters; {MOST_LABEL:,} are allowed."
                raise refuse("id-too-long", 422, detail, _REMEDY, row=row, allowed=MOST_LABEL)
            if not is_text(text):
                detail = f"The id of row {row} is {text!r}, with half a surrogate pair or U+0000."
                raise refuse("invalid-id", 422, detail, "Remove that character.", row=row)


def id_text(value: Any) -> str:
    """Return an id as text: None and NaN are missing; a whole number has its digits, also a float."""
    if value is None or value != value:  # noqa: PLR0124 # NaN
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _are_integers(texts: list[str]) -> bool:
    return all(_INTEGER.fullmatch(text) and abs(int(text)) <= EXACT for text in texts)


def _integers(texts: list[list[str]]) -> Array:
    return np.array([[int(text) for text in column] for column in texts], np.int64).T
