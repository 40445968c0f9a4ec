"""Tables of features with the labels and ids of their rows; a missing label or id is the empty text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.validation import resolve_missing
from service.uploads.limits import is_text
from worker.base.problems import refuse
from worker.records.dataset import Array, Table
from worker.storage.validation import BLOCK, EXACT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from glle_engine.base.validation import Missing

MAX_TEXT = 1000  # characters of a label or an id
MAX_TEXTS = 2**26  # characters of all labels or ids of a data set, each stored as long as the longest
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,15}")


def label_array(labels: Sequence[str | float | None]) -> Array:
    """Return labels as numbers if all are, else as text; None and NaN are missing, so that they become empty texts.

    Numbers beside a missing label become text, as in a CSV file.

    Raises
    ------
    ProblemError
        ``label-too-long``, ``invalid-label``.

    """
    if all(type(label) in {int, float} and label == label for label in labels):  # noqa: PLR0124 # NaN
        return np.array(labels, np.float64)
    texts = ["" if label is None or label != label else str(label) for label in labels]  # noqa: PLR0124 # NaN
    _check_texts("label", texts)
    _check_room("label", max(map(len, texts)), len(texts))
    return np.array(texts, np.str_)


def build_table(
    format_: str,
    values: Array,
    names: list[str] | None = None,
    *,
    labels: Array | None = None,
    color: Array | None = None,
    coordinates: Array | None = None,
    ids: Ids | None = None,
    source: dict[str, Any] | None = None,
    notices: Sequence[str] = (),
    missing: Missing | None = None,
) -> Table:
    """Return the table of an upload, with the notices of missing values, labels and ids in its source."""
    found = [*notices, *_missing_labels(labels), *(ids.notices() if ids else ())]
    extras = {"labels": labels, "color": color, "coordinates": coordinates, "ids": ids.array() if ids else None}
    if missing is not None:
        values, extras, changes = _without_missing(values, extras, missing, names)
        found += changes
    return Table(
        values=values,
        names=names,
        **extras,
        source={"kind": "upload", "format": format_, **(source or {}), **({"notices": found} if found else {})},
    )


def _without_missing(
    values: Array, extras: dict[str, Array | None], missing: Missing, names: list[str] | None
) -> tuple[Array, dict[str, Array | None], list[str]]:
    """Return values, arrays beside them and notices, without missing values in the features and the color."""
    values = values if values.flags.writeable or values.dtype.kind != "f" else np.array(values)
    kept, change = resolve_missing(values, missing, names)
    changes = [change] if change else []
    color = extras["color"]
    if color is not None:
        of_color, change = resolve_missing(color[:, None], missing, ["the color"])
        changes += [change] if change else []
        kept = of_color if kept is None else kept if of_color is None else kept & of_color
    if kept is None:
        return values, extras, changes
    if not kept.any():
        raise refuse("empty-data", 422, "Every row has a missing value.", "Leave columns out, or use ?missing=median.")
    extras = {name: None if extra is None else extra[kept] for name, extra in extras.items()}
    return _keep_rows(values, kept), extras, changes


def _keep_rows(values: Array, kept: Array) -> Array:
    """Return the rows to keep; those of a file that is mapped in C order move within it."""
    if not values.flags.c_contiguous:
        return np.ascontiguousarray(values[kept])
    end, size = 0, max(1, BLOCK // values.shape[1])
    for start in range(0, len(values), size):
        block = values[start : start + size][kept[start : start + size]]
        values[end : end + len(block)] = block
        end += len(block)
    return values[:end]


def _missing_labels(labels: Array | None) -> list[str]:
    """Return the notice of missing labels, or none."""
    if labels is None or labels.dtype.kind != "U" or not (missing := int((labels == "").sum())):
        return []
    return [f"The label is missing in {missing:,} of {len(labels):,} rows; these rows share the empty label."]


class Ids:
    """Collector of the ids of the rows, from any number of columns.

    Whole numbers to 2^53 in their usual digits are stored as int64, all others as text, so that ``007`` stays.
    """

    def __init__(self, columns: Iterable[Sequence[object]] = ()) -> None:
        self._blocks: list[Array] = []
        self._count = self._missing = 0
        self.add(columns)

    def add(self, columns: Iterable[Sequence[object]]) -> None:
        """Add the ids of a block of rows, column by column.

        Raises
        ------
        ProblemError
            ``id-too-long``, ``invalid-id``.

        """
        texts = [[_id_text(value) for value in column] for column in columns]
        if not texts or not texts[0]:
            return
        for column in texts:
            _check_texts("id", column, self._count)
        self._missing += sum(not all(row) for row in zip(*texts, strict=True))
        self._count += len(texts[0])
        are_integers = all(_INTEGER.fullmatch(text) and abs(int(text)) <= EXACT for column in texts for text in column)
        block = np.array([list(map(int, column)) for column in texts], np.int64) if are_integers else np.array(texts)
        self._blocks.append(block.T)

    def array(self) -> Array | None:
        """Return the ids (n,), those of several columns (n, columns), or None without a column."""
        if not self._blocks:
            return None
        has_text = any(block.dtype.kind == "U" for block in self._blocks)
        blocks = [block.astype(np.str_) for block in self._blocks] if has_text else self._blocks
        if has_text:
            longest = max(int(np.char.str_len(block).max()) for block in blocks)
            _check_room("id", longest, self._count * blocks[0].shape[1])
        ids = np.concatenate(blocks)
        return np.ascontiguousarray(ids[:, 0] if ids.shape[1] == 1 else ids)

    def notices(self) -> list[str]:
        """Return the notice of missing ids, or none."""
        if not self._missing:
            return []
        return [f"The id is missing in {self._missing:,} of {self._count:,} rows; these rows have the empty id."]


def _id_text(value: Any) -> str:
    """Return an id as text: None and NaN are missing; a whole number has its digits, also a float."""
    if value is None or value != value:  # noqa: PLR0124 # NaN
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_texts(noun: str, texts: list[str], start: int = 0) -> None:
    """Raise a problem if a text is too long, or is no text."""
    for row, text in enumerate(texts, start + 1):
        if len(text) > MAX_TEXT:
            detail = f"The {noun} of row {row} has {len(text):,} characters; {MAX_TEXT:,} are allowed."
            remedy = f"Use shorter {noun}s, or leave the column out with ignore."
            raise refuse(f"{noun}-too-long", 422, detail, remedy, row=row, allowed=MAX_TEXT)
        if not is_text(text):
            detail = f"The {noun} of row {row} is {text!r}, with half a surrogate pair or U+0000."
            raise refuse(f"invalid-{noun}", 422, detail, "Remove that character.", row=row)


def _check_room(noun: str, longest: int, count: int) -> None:
    """Raise a problem if all texts together are too long."""
    if longest * count > MAX_TEXTS:
        allowed = MAX_TEXTS // count
        detail = f"The longest of {count:,} {noun}s has {longest} characters; {allowed} are allowed."
        remedy = f"Use shorter {noun}s, such as numbers, or leave the column out with ignore."
        raise refuse(f"{noun}-too-long", 422, detail, remedy, allowed=allowed)
