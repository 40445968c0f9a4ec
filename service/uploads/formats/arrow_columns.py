"""Columns of Arrow streams and Parquet files: read features block by block, refuse nulls with their rows."""

from __future__ import annotations

import contextlib
import re
import struct
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from service.uploads.disk_array import NO_MEMORY, DiskArray, check_inflated
from service.uploads.label_columns import MOST_LABEL, Labels, no_such_column, require_distinct
from service.uploads.limits import check_names
from worker.base.problems import ProblemError, refuse
from worker.storage.datasets import Table
from worker.storage.validation import EXACT, REMEDIES, BadRows, bad_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from service.uploads.label_columns import LabelColumns
    from service.uploads.limits import Limits

    Array = np.ndarray[Any, np.dtype[Any]]

BLOCK_VALUES = 2**20  # converted at a time: 8 MB
_INDEX = re.compile(r"__index_level_\d+__")  # the index of a pandas frame is not a feature


@contextlib.contextmanager
def malformed_as(code: str, noun: str, remedy: str) -> Iterator[None]:
    """Raise the errors of pyarrow about an invalid body as a problem."""
    import pyarrow as pa  # noqa: PLC0415 # an extra

    try:
        yield
    except MemoryError:  # pyarrow's is also an ArrowException
        raise
    except (pa.ArrowException, ValueError, struct.error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # an error of the disk, not of the body
            raise
        if NO_MEMORY in str(error):
            raise MemoryError from None
        raise refuse(code, 422, f"The body is not {noun}: {str(error)[:200]}.", remedy) from None


@dataclass(frozen=True)
class Columns:
    """Roles of the columns of a schema: features, label, color."""

    names: list[str]
    features: list[int]
    label: int | None
    color: int | None
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, schema: pa.Schema, label_columns: LabelColumns, limits: Limits) -> Columns:
        """Return the columns of a schema.

        Raises
        ------
        ProblemError
            ``unsupported-column``, ``no-such-column``, ``invalid-names``.

        """
        import pyarrow as pa  # noqa: PLC0415 # an extra

        names = list(schema.names)
        limits.check(
            (1, max(0, len(names) - sum(name is not None for name in (label_columns.label, label_columns.color))))
        )
        check_names(names, len(names))
        chosen = [
            names.index(name) if name in names else None for name in (label_columns.label, label_columns.color) if name
        ]
        if None in chosen:
            missing = next(name for name in (label_columns.label, label_columns.color) if name and name not in names)
            raise no_such_column(missing, ", ".join(names[:100]))
        label = None if label_columns.label is None else names.index(label_columns.label)
        color = None if label_columns.color is None else names.index(label_columns.color)
        require_distinct(label, color)
        features = [column for column in range(len(names)) if column not in {label, color}]
        for column in [*features, *([] if color is None else [color])]:
            if _kind(schema.field(column).type) not in {"f", "i", "u"} or _INDEX.fullmatch(names[column]):
                raise _unsupported(names[column], schema.field(column).type)
        if label is not None and not _kind(schema.field(label).type):
            raise _unsupported(names[label], schema.field(label).type)
        single = all(pa.types.is_float32(schema.field(column).type) for column in features)
        return cls(names, features, label, color, np.dtype("<f4" if single else "<f8"))


def table_of(
    file: IO[bytes], columns: Columns, batches: Iterator[pa.RecordBatch], limits: Limits, *, source: str
) -> Table:
    """Return the table of record batches, with its values unpacked behind the body."""
    features = len(columns.features)
    disk_array = DiskArray(file, columns.dtype, features)
    color: list[Array] = []
    labels, numbers = Labels(), []
    bad, first, count = BadRows(), None, 0
    rows = max(1, BLOCK_VALUES // max(1, len(columns.names)))
    for batch in batches:
        batch.validate(full=True)  # an invalid batch may point outside the body
        for start in range(0, batch.num_rows, rows):
            block = batch.slice(start, rows)
            limits.check((count + block.num_rows, features))
            faults = _faults(block, columns)
            if faults.any():
                first = first or _problem(block, columns, faults, count)
                bad.add(count + np.flatnonzero(faults.any(axis=1)))
            if first is None:
                matrix = np.column_stack([_numbers(block, column).astype(columns.dtype) for column in columns.features])
                disk_array.write(matrix.reshape(-1).view(np.uint8).data)
                if columns.color is not None:
                    color.append(_numbers(block, columns.color).astype(np.float64))
                if columns.label is not None and _kind(block.column(columns.label).type) == "s":
                    labels.add(_texts(block.column(columns.label), count))
                elif columns.label is not None:
                    numbers += block.column(columns.label).to_pylist()
            count += block.num_rows
    if first is not None:
        raise bad.annotate(first)
    limits.check((count, features))
    return Table(
        values=disk_array.values(),
        names=[columns.names[column] for column in columns.features],
        labels=None if columns.label is None else np.array(numbers, np.float64) if numbers else labels.array(),
        color=np.concatenate(color) if color else None,
        source={"kind": "upload", "format": source},
    )


def check_size(rows: int, columns: Columns, limits: Limits) -> None:
    """Raise a problem if the table is too large, before it is unpacked."""
    limits.check((rows, len(columns.features)))
    check_inflated("The table", rows * len(columns.features) * columns.dtype.itemsize, limits)


def _faults(block: pa.RecordBatch, columns: Columns) -> Array:
    """Return the mask of cells that are missing, not finite or not exact. Shape (rows, columns)."""
    faults = np.zeros((block.num_rows, len(columns.names)), bool)
    for column, array in enumerate(block.columns):
        faults[:, column] = _is_null(array)
        if column != columns.label:
            values = _numbers(block, column)
            faults[:, column] |= (
                (values > EXACT) | (values < -EXACT) if values.dtype.kind in "iu" else ~np.isfinite(values)
            )
        elif _kind(array.type) == "f":
            faults[:, column] |= ~np.isfinite(_numbers(block, column))
    return faults


def _problem(block: pa.RecordBatch, columns: Columns, faults: Array, start: int) -> ProblemError:
    """Return the problem of the first bad cell."""
    row, column = (int(i) for i in np.argwhere(faults)[0])
    value = block.column(column)[row].as_py()
    code = "missing-value" if value is None else "inexact-integer" if isinstance(value, int) else "not-finite"
    text = "null" if value is None else str(value)[:50]
    return bad_value(code, text, start + row, column, names=columns.names, remedy=REMEDIES[code])


def _numbers(block: pa.RecordBatch, column: int) -> Array:
    """Return a column of numbers, with zero for null."""
    array = block.column(column)
    if array.null_count:
        array = array.fill_null(0)
    values: Array = array.to_numpy(zero_copy_only=False)
    return values


def _texts(array: pa.Array, start: int) -> list[str]:
    """Return a column of texts; the rows of a dictionary share one string object."""
    import pyarrow as pa  # noqa: PLC0415 # an extra
    from pyarrow import compute  # noqa: PLC0415 # an extra

    rows = None
    if pa.types.is_dictionary(array.type):
        used, rows = np.unique(array.indices.to_numpy(), return_inverse=True)
        array = array.dictionary.take(pa.array(used))
    if (compute.max(compute.utf8_length(array)).as_py() or 0) > MOST_LABEL:
        detail = f"A label in row {start + 1} or later has more than {MOST_LABEL:,} characters."
        raise refuse("label-too-long", 422, detail, "Use shorter labels.", allowed=MOST_LABEL)
    texts: list[str] = array.to_pylist()
    return texts if rows is None else [texts[row] for row in rows]


def _is_null(array: pa.Array) -> Array:
    """Return the mask of null values, directly or by a null entry of the dictionary."""
    import pyarrow as pa  # noqa: PLC0415 # an extra
    from pyarrow import compute  # noqa: PLC0415 # an extra

    null = array.is_null()
    if pa.types.is_dictionary(array.type):
        null = compute.fill_null(array.dictionary.is_null().take(array.indices), fill_value=True)
    mask: Array = null.to_numpy(zero_copy_only=False)
    return mask


def _kind(kind: pa.DataType) -> str:
    """Return numpy's kind f, i or u, or s for text, or an empty string."""
    import pyarrow as pa  # noqa: PLC0415 # an extra

    if pa.types.is_floating(kind):
        return "f"
    if pa.types.is_integer(kind):
        return "i" if pa.types.is_signed_integer(kind) else "u"
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return "s" if pa.types.is_string(value) or pa.types.is_large_string(value) else ""


def _unsupported(name: str, kind: Any) -> ProblemError:
    return refuse(
        "unsupported-column",
        422,
        f"The column {name!r} of type {kind} is not a feature.",
        "Remove it, cast it to float64, or set it apart with ?label= if it holds labels.",
        column=name,
        type=str(kind),
    )
