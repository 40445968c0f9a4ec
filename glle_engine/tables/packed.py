"""Pack the columns of a table into named arrays, which a client sends to a service, and unpack them without loss."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.tables.columns import Column, WholeTable, date_column, number_column, object_array, text_column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

HEAD_MEMBER = "columns"
"""Name of the array with the kinds of the columns, as JSON. The names of column i's arrays begin with its number."""
MAX_HEAD_BYTES = 2**26  # a service refuses a longer array `HEAD_MEMBER`, which describes the columns


def pack(table: WholeTable) -> dict[str, NDArray[Any]]:
    """Return arrays by name that hold the columns of a table, for `unpack`.

    A column of texts becomes two arrays: all texts in UTF-8, and the length of each text in bytes, -1 if missing.
    """
    arrays: dict[str, NDArray[Any]] = {}
    heads = []
    for index, (name, column) in enumerate(zip(table.names or (), table.head, strict=True)):
        kind = "text" if column.cells is not None else column.kind
        heads.append({"name": name, "kind": kind, "type": column.type, "is_category": column.is_category})
        if kind == "text":
            texts = column.objects() if column.cells is None else column.texts()
            encoded = [b"" if text is None else str(text).encode("utf-8", "surrogatepass") for text in texts]
            arrays[f"{index}_text"] = np.frombuffer(b"".join(encoded) or b"\0", np.uint8)
            lengths = [-1 if text is None else len(raw) for text, raw in zip(texts, encoded, strict=True)]
            arrays[f"{index}_lengths"] = np.array(lengths, np.int64)
        elif kind != "other":
            arrays[f"{index}_values"] = column.values
            if column.missing.any():
                arrays[f"{index}_missing"] = column.missing
    head = {"rows": len(table), "index": list(table.index), "columns": heads}
    return {HEAD_MEMBER: np.frombuffer(json.dumps(head).encode(), np.uint8), **arrays}


def unpack(
    head: bytes,
    array: Callable[[str, str, int], NDArray[Any]],
    names: Sequence[str],
    check: Callable[[tuple[int, int]], None],
) -> WholeTable:
    """Return the table that `pack` has packed into arrays.

    Parameters
    ----------
    head
        Content of the array `HEAD_MEMBER`: JSON.
    array
        Called with the name of an array, the allowed kinds of its dtype, and its length (-1: any length); returns the
        array, or raises an error if it is not as expected.
    names
        Names of all arrays that were sent.
    check
        Called with (rows, 1), as if the table had one column, to check the number of rows alone; raises an error if
        there are too many.

    Raises
    ------
    ValueError
        For a head or arrays that `pack` cannot have written.

    """
    try:
        members = json.loads(head)
        rows, index, heads = members["rows"], members["index"], members["columns"]
        if type(rows) is not int or rows < 0:
            raise ValueError(f"the number of rows is {rows!r:.50}, not an integer of at least 0")
        check((rows, 1))
        columns = [
            _column(each, str(number), rows, array, has_missing=f"{number}_missing" in names)
            for number, each in enumerate(heads)
        ]
        if not all(isinstance(each["name"], str) and isinstance(each["type"], str) for each in heads):
            raise ValueError("the name or the type of a column is not a text")
        if not all(type(number) is int and 0 <= number < len(heads) for number in index):
            raise ValueError(f"the index {index!r:.50} names columns that do not exist; there are {len(heads)}")
    except (KeyError, TypeError, AttributeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"the description of the columns cannot be read ({error!r:.100})") from None
    return WholeTable([each["name"] for each in heads], columns, index=tuple(index))


def _column(
    head: dict[str, Any], index: str, rows: int, array: Callable[[str, str, int], NDArray[Any]], *, has_missing: bool
) -> Column:
    kind, is_category = head["kind"], head["is_category"] is True
    if kind == "text":
        lengths = array(f"{index}_lengths", "i", rows)
        content = array(f"{index}_text", "u", -1).tobytes()
        ends = np.cumsum(np.maximum(lengths, 0))
        is_outside = (lengths > len(content)) | (np.diff(ends, prepend=0) < 0) | (ends > len(content))
        if is_outside.any():
            row = int(is_outside.argmax())
            raise ValueError(
                f"the text in row {row} (counted from 0) of column {head['name']!r:.60} has {lengths[row]:,} bytes, "
                f"which go beyond the {len(content):,} bytes of all texts of the column"
            )
        bounds = zip((ends - np.maximum(lengths, 0)).tolist(), ends.tolist(), (lengths >= 0).tolist(), strict=True)
        texts = [content[start:end].decode("utf-8", "surrogatepass") if there else None for start, end, there in bounds]
        return text_column(texts, is_category=is_category)
    if kind == "other":
        return Column("other", head["type"], object_array([None] * rows), np.zeros(rows, bool))
    values = array(f"{index}_values", "f" if kind == "date" else "fiub", rows)
    missing = array(f"{index}_missing", "b", rows) if has_missing else None
    if kind == "date":
        return date_column(values.astype(np.float64), head["type"])
    if (values.ndim > 1) != (kind == "vector"):
        raise ValueError(
            f"by the header the column {head['name']!r:.60} has the kind {kind!r:.20}, which does not go "
            f"with its values of shape {values.shape}"
        )
    return replace(number_column(values, missing, head["type"]), is_category=is_category)
