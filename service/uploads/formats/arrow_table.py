"""Columns of Arrow streams, Arrow files (Feather) and Parquet files, by pyarrow, which is an extra."""

from __future__ import annotations

import contextlib
import mmap
import os
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from glle_engine import GlleError
from glle_engine.base.columns import MAX_LISTED, no_features
from service.uploads.column_table import Columns, read_columns
from service.uploads.limits import BAD_ALLOC
from worker.base.problems import refuse
from worker.storage.validation import EXACT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from glle_engine.base.columns import ColumnRoles, Kind, Layout
    from service.uploads.limits import Limits
    from worker.records.dataset import Array, Table

BLOCK_VALUES = 2**20  # converted at a time: 8 MB
_FOOTER = {"thrift_string_size_limit": 2**20, "thrift_container_size_limit": 2**20}  # bytes, and members of a list
_KINDS: dict[str, Kind] = {"s": "text", "t": "date", "": "other"}
_FILE_MARK, _OLD_MARK = b"ARROW1\0\0", b"FEA1"


def read_arrow(file: IO[bytes], out: IO[bytes], limits: Limits, roles: ColumnRoles) -> Table:
    """Return the table of an Arrow stream, or of an Arrow file (Feather), which is a stream between two marks.

    Raises
    ------
    ProblemError
        ``malformed-arrow``, ``inflated-too-large``, ``missing-value`` and ``not-finite`` with row and column, and
        others.

    """
    mark = os.pread(file.fileno(), len(_FILE_MARK), 0)
    if mark.startswith(_OLD_MARK):
        remedy = "Write it with pandas' to_feather or pyarrow.feather.write_feather(version=2), or send Parquet."
        raise refuse("malformed-arrow", 422, "The body is a Feather file of version 1.", remedy)
    start = len(_FILE_MARK) if mark == _FILE_MARK else 0
    remedy = "Write it with pyarrow.ipc.new_stream, or with pandas' to_feather."
    with _malformed_as("malformed-arrow", "an Arrow stream", remedy):
        mapped = pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)).slice(start)
        with pa.ipc.open_stream(mapped) as stream:
            schema = stream.schema
        batches = lambda _: iter(pa.ipc.open_stream(mapped))  # noqa: E731
        return read_columns(_ArrowColumns(schema, batches, "feather" if start else "arrow"), out, limits, roles)


def read_parquet(file: IO[bytes], out: IO[bytes], limits: Limits, roles: ColumnRoles) -> Table:
    """Return the table of a Parquet file; raises as `read_arrow`, and ``malformed-parquet``."""
    remedy = "Write it with pyarrow.parquet.write_table or with pandas' to_parquet."
    with _malformed_as("malformed-parquet", "a Parquet file", remedy), parquet.ParquetFile(file, **_FOOTER) as body:
        batches = lambda rows: body.iter_batches(rows, use_threads=False)  # noqa: E731
        return read_columns(_ArrowColumns(body.schema_arrow, batches, "parquet"), out, limits, roles)


@contextlib.contextmanager
def _malformed_as(code: str, noun: str, remedy: str) -> Iterator[None]:
    """Raise the errors of pyarrow about an invalid body as a problem."""
    try:
        yield
    except (GlleError, MemoryError):  # also a ValueError, and an ArrowException
        raise
    except (pa.ArrowException, ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # an error of the disk, not of the body
            raise
        if BAD_ALLOC in str(error):
            raise MemoryError from None
        raise refuse(code, 422, f"The body is not {noun}: {str(error)[:200]}.", remedy) from None


class _ArrowColumns(Columns[pa.RecordBatch]):
    """Columns of record batches.

    Parameters
    ----------
    batches
        Begins a pass over the batches; the argument is the number of rows to read at a time.

    """

    missing = "null"

    def __init__(self, schema: pa.Schema, batches: Callable[[int], Iterator[pa.RecordBatch]], source: str) -> None:
        self.names, self.width, self.format = list(schema.names), len(schema.names), source
        self._types = list(schema.types)
        self.categories = frozenset(at for at, each in enumerate(self._types) if pa.types.is_dictionary(each))
        self._kinds = [_kind(each) for each in self._types]
        self.kinds = [_KINDS.get(kind, "number") for kind in self._kinds]
        self._batches = batches

    def check(self, layout: Layout) -> np.dtype[Any]:
        """Return the dtype of the features; refuse columns whose type does not suit their role."""
        _require_features(layout, self._types, self._kinds)
        for at, role, values, others in (
            (layout.color, "color", "numbers or dates", {"", "s"}),
            (layout.label, "label", "texts or numbers", {"", "t"}),
        ):
            if at is not None and self._kinds[at] in others:
                name, kind = layout.name(at), str(self._types[at])
                detail = f"The column {name!r} of type {kind} cannot be the {role}, which has {values}."
                remedy = "Name another column, or cast this one."
                raise refuse("unsupported-column", 422, detail, remedy, column=name, type=kind)
        return np.dtype("<f4" if all(pa.types.is_float32(self._types[at]) for at in layout.features) else "<f8")

    def blocks(self) -> Iterator[pa.RecordBatch]:
        """Yield valid batches in slices of bounded size."""
        rows = max(1, BLOCK_VALUES // max(1, self.width))
        for batch in self._batches(rows):
            batch.validate(full=True)  # an invalid batch may point outside the body
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)

    def values(self, block: pa.RecordBatch, column: int) -> list[Any]:
        """Return a column as Python values."""
        values: list[Any] = _decode(block.column(column)).to_pylist()
        return values

    def numbers(self, block: pa.RecordBatch, column: int) -> tuple[Array, Array]:
        """Return a column of numbers, and the mask of nulls and of values that are not finite or not exact."""
        array = block.column(column)
        if self._kinds[column] == "t":
            array = array.cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64())
        null = array.is_null().to_numpy(zero_copy_only=False)
        if array.null_count:
            array = array.fill_null(False if self._kinds[column] == "b" else 0)  # the value of a null
        values: Array = array.to_numpy(zero_copy_only=False)
        if self._kinds[column] == "t":
            values = values / 1e6  # seconds since 1970
        inexact = (values > EXACT) | (values < -EXACT) if values.dtype.kind in "iu" else ~np.isfinite(values)
        return values, null | inexact

    def gaps(self, block: pa.RecordBatch, column: int) -> Array:
        """Return the mask of nulls and NaN."""
        array = block.column(column)
        null: Array = array.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
        return null

    def fault(self, value: Any, column: int) -> str:
        """Return the problem code of a bad value."""
        del column
        return "missing-value" if value is None else "inexact-integer" if isinstance(value, int) else "not-finite"

    def keys(self, values: list[Any], column: int) -> list[Any] | None:
        """Return integers and texts."""
        return values if self._kinds[column] in {"i", "u", "s"} else None


def _decode(array: pa.Array) -> pa.Array:
    """Return the values of an array with or without a dictionary."""
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _kind(kind: pa.DataType) -> str:
    """Return numpy's kind f, i, u or b, s for text, t for dates with or without a time, or an empty string."""
    if pa.types.is_floating(kind):
        return "f"
    if pa.types.is_integer(kind):
        return "i" if pa.types.is_signed_integer(kind) else "u"
    if pa.types.is_boolean(kind):
        return "b"
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return "t"
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return "s" if pa.types.is_string(value) or pa.types.is_large_string(value) else ""


def _require_features(layout: Layout, types: list[Any], kinds: list[str]) -> None:
    """Raise a problem that names all features whose values are no numbers, with the options for their kinds."""
    others = [at for at in layout.features if kinds[at] in {"", "t"}]
    one_hot = set(layout.roles["one_hot"])
    texts = [at for at in layout.features if kinds[at] == "s" and at not in one_hot]
    if not (refused := sorted([*others, *texts])):
        return
    listed = [f"{layout.name(at)!r} of type {types[at]}" for at in refused[:MAX_LISTED]]
    listed += [f"{len(refused) - MAX_LISTED:,} more"] if len(refused) > MAX_LISTED else []
    noun, verb = ("column", "is not a feature") if len(refused) == 1 else ("columns", "are no features")
    detail = f"The {noun} {', '.join(listed)} {verb}."
    details = {"column": layout.name(refused[0]), "type": str(types[refused[0]])}
    raise no_features("unsupported-column", layout, texts, others, detail, **details)
