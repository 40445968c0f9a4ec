"""Arrays as tables, in blocks of rows: CSV, and Arrow streams with the extra `arrow`."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from service.encoding.arrays import CSV, Array, PieceBuffer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_ARROW_VALUES = 2**17  # of a record batch, 1 MB
_CSV_VALUES = 2**11  # written at a time; the writer holds the interpreter, 3 ms for 2,048 values


@dataclass(frozen=True)
class ResultTable:
    """Named columns with their dtypes, as an iterable of row blocks, each a list of equally long vectors."""

    columns: Sequence[tuple[str, np.dtype[Any]]]
    parts: Iterable[Sequence[Array]]

    @classmethod
    def of(cls, columns: dict[str, Array], dtype: str | None = None) -> ResultTable:
        """Return the table of columns in memory; `dtype` converts floating-point columns."""
        kinds = [np.dtype(dtype) if dtype and c.dtype.kind == "f" else c.dtype for c in columns.values()]
        return cls(list(zip(columns, kinds, strict=True)), [list(columns.values())])

    def blocks(self, values: int) -> Iterator[list[Array]]:
        """Yield the rows in blocks of about this many values."""
        rows = max(1, values // len(self.columns))
        for part in self.parts:
            for start in range(0, len(part[0]), rows):
                yield [
                    vector[start : start + rows].astype(dtype, copy=False)
                    for vector, (_, dtype) in zip(part, self.columns, strict=True)
                ]


def matrix_columns(matrix: Array, prefix: str, names: Sequence[str] | None = None) -> dict[str, Array]:
    """Return the columns of a matrix by name: `names`, or the prefix with a number from 1."""
    names = names or [f"{prefix}{number}" for number in range(1, matrix.shape[1] + 1)]
    return {name: matrix[:, column] for column, name in enumerate(names)}


def id_columns(ids: Array | None) -> dict[str, Array]:
    """Return the ids of the points as columns: `id`, or `id_1`, `id_2`, ... of several; none without ids."""
    if ids is None:
        return {}
    return {"id": ids} if ids.ndim == 1 else matrix_columns(ids, "id_")


def with_ids(columns: dict[str, Array], ids: Array | None) -> dict[str, Array]:
    """Return the columns of a table behind those of the ids, whose names get a `_` where a column has the same."""
    first = {}
    for name, values in id_columns(ids).items():
        while name in columns:
            name += "_"  # noqa: PLW2901 # until no column has it
        first[name] = values
    return first | columns


def table_pieces(table: ResultTable, media: str) -> Iterator[str] | Iterator[bytes]:
    """Yield a table as CSV or as an Arrow stream."""
    return _csv(table) if media == CSV else _arrow(table)


def _csv(table: ResultTable) -> Iterator[str]:
    """Yield a header and the rows; each number is the shortest decimal that reads back to the same bits."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow([name for name, _ in table.columns])
    for block in table.blocks(_CSV_VALUES):
        writer.writerows(zip(*(vector.tolist() for vector in block), strict=True))
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def _arrow(table: ResultTable) -> Iterator[bytes]:
    """Yield the schema, record batches, and the end of the stream."""
    import pyarrow as pa  # noqa: PLC0415 # an extra; its import takes 0.1 s

    kinds = [pa.string() if dtype.kind == "U" else pa.from_numpy_dtype(dtype) for _, dtype in table.columns]
    schema = pa.schema([(name, kind) for (name, _), kind in zip(table.columns, kinds, strict=True)])
    buffer = PieceBuffer()
    with pa.ipc.new_stream(pa.PythonFile(buffer, "w"), schema) as writer:
        for block in table.blocks(_ARROW_VALUES):
            vectors = [pa.array(vector, kind) for vector, kind in zip(block, kinds, strict=True)]
            writer.write_batch(pa.record_batch(vectors, schema=schema))
            yield buffer.take()
    yield buffer.take()
