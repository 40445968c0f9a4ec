"""Columns of Arrow streams, Arrow files (Feather) and Parquet files, by pyarrow, which is an extra."""

from __future__ import annotations

import contextlib
import mmap
import os
from typing import IO, TYPE_CHECKING

import pyarrow as pa
from pyarrow import parquet

from glle_engine import GlleError
from glle_engine.tables.cells import KIND_SAMPLE_ROWS
from glle_engine.tables.columns import Block, Columns
from glle_engine.tables.frames import series_column
from glle_engine.tables.table import read_table
from service.uploads.limits import BAD_ALLOC
from service.uploads.uploaded import uploaded
from worker.base.problems import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from glle_engine.tables.cells import TextKind
    from glle_engine.tables.columns import Column
    from glle_engine.tables.roles import ColumnRoles
    from glle_engine.tables.table import Table
    from service.uploads.limits import Limits

BLOCK_VALUES = 2**20  # values that are converted at a time: 8 MB as float64
# Limits on the footer of a Parquet file: bytes of a text, and members of a list.
_FOOTER = {"thrift_string_size_limit": 2**20, "thrift_container_size_limit": 2**20}
_FILE_MARK = b"ARROW1"


def read_arrow(file: IO[bytes], out: IO[bytes], limits: Limits, roles: ColumnRoles) -> Table:
    """Return the table of an Arrow stream, or of an Arrow file (Feather); its values are memory-mapped from `out`.

    Raises
    ------
    ProblemError, TableError
        ``malformed-arrow``, ``inflated-too-large``, ``missing-value`` and ``not-finite`` with row and column, and
        others.

    """
    mark = os.pread(file.fileno(), len(_FILE_MARK), 0)
    remedy = "Save the table again as an Arrow stream or as Feather of version 2, or as CSV."
    with _malformed_as("malformed-arrow", "an Arrow stream", remedy):
        mapped = pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        if mark.startswith(_FILE_MARK):
            body = pa.ipc.open_file(mapped)
            batches = lambda _: (body.get_batch(number) for number in range(body.num_record_batches))  # noqa: E731
            return _read(_ArrowColumns(body.schema, batches), "feather", out, limits, roles)
        with pa.ipc.open_stream(mapped) as stream:
            schema = stream.schema
        return _read(_ArrowColumns(schema, lambda _: iter(pa.ipc.open_stream(mapped))), "arrow", out, limits, roles)


def read_parquet(file: IO[bytes], out: IO[bytes], limits: Limits, roles: ColumnRoles) -> Table:
    """Return the table of a Parquet file; its values are memory-mapped from `out`.

    Raises `ProblemError` (such as ``malformed-parquet``) and `TableError`.
    """
    remedy = "Save the table as Parquet again, or as CSV."
    with _malformed_as("malformed-parquet", "a Parquet file", remedy), parquet.ParquetFile(file, **_FOOTER) as body:
        batches = lambda rows: body.iter_batches(rows, use_threads=False)  # noqa: E731
        return _read(_ArrowColumns(body.schema_arrow, batches), "parquet", out, limits, roles)


def _read(columns: _ArrowColumns, format_: str, out: IO[bytes], limits: Limits, roles: ColumnRoles) -> Table:
    return uploaded(read_table(columns, roles, out, limits), format_)


@contextlib.contextmanager
def _malformed_as(code: str, noun: str, remedy: str) -> Iterator[None]:
    """Turn an error of pyarrow about an invalid body into a `ProblemError`: the body cannot be read as `noun`."""
    try:
        yield
    except (GlleError, MemoryError):  # these are also a ValueError or an ArrowException
        raise
    except (pa.ArrowException, ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk failed, and the body may be valid
            raise
        if BAD_ALLOC in str(error):
            raise MemoryError from None
        raise refuse(code, 422, f"The body cannot be read as {noun}: {str(error)[:200]}.", remedy) from None


class _ArrowColumns(Columns):
    """Columns of Arrow record batches.

    Parameters
    ----------
    batches
        Returns an iterator over the batches; its argument is the number of rows to read at a time.

    """

    base = 1

    def __init__(self, schema: pa.Schema, batches: Callable[[int], Iterator[pa.RecordBatch]]) -> None:
        self.names, self._schema, self._batches = list(schema.names), schema, batches
        head, count = [], 0
        for batch in self._valid(KIND_SAMPLE_ROWS):
            head.append(batch.slice(0, KIND_SAMPLE_ROWS - count))
            count += len(head[-1])
            if count == KIND_SAMPLE_ROWS:
                break
        table = pa.Table.from_batches(head, schema)
        self.head = [series_column(column) for column in table.columns]
        self._kinds = [_text_kind(column) for column in self.head]

    def _valid(self, rows: int) -> Iterator[pa.RecordBatch]:
        for batch in self._batches(rows):
            batch.validate(full=True)  # an invalid batch may point outside the body
            yield batch

    def blocks(self) -> Iterator[Block]:
        """Yield the rows in blocks of at most `BLOCK_VALUES` values, from batches that pyarrow has validated."""
        rows = max(1, BLOCK_VALUES // max(1, len(self.names or ())))
        for batch in self._valid(rows):
            for start in range(0, batch.num_rows, rows):
                yield _ArrowBlock(batch.slice(start, rows), self._kinds)


class _ArrowBlock(Block):
    """Block of rows of an Arrow record batch."""

    def __init__(self, batch: pa.RecordBatch, kinds: list[TextKind]) -> None:
        self._batch, self._kinds = batch, kinds

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    def column(self, index: int) -> Column:
        """Return the column with this index, for the rows of the block."""
        return series_column(pa.chunked_array([self._batch.column(index)]), self._kinds[index])


def _text_kind(column: Column) -> TextKind:
    """Return how the texts in later rows of a column are read, judged by `column`, its first rows."""
    if column.cells is None:
        return "text"
    return "date" if column.kind == "date" else "bool"
