"""Bytes of arrays as npy, npz, JSON, CSV and Arrow, in pieces of about a megabyte, and responses that may end early."""

from __future__ import annotations

import csv
import io
import json
import logging
import math
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import orjson
import redis
from fastapi.responses import StreamingResponse
from starlette.concurrency import iterate_in_threadpool

from service.encoding.representations import ACCEPT_RANGES, ByteRange, requested_range, unsatisfiable
from worker.base.problems import ProblemError, refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

    from starlette.types import Receive, Scope, Send

log = logging.getLogger(__name__)
Array = np.ndarray[Any, np.dtype[Any]]
Dtype = Literal["float64", "float32"]
JSON = "application/json"
NPY = "application/x-npy"
NPZ = "application/zip"
CSV = "text/csv"
SHEET_CSV = "text/csv; formulas=quoted"  # for spreadsheets, which run a text that begins like a formula
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_PIECE_BYTES = 2**20
_JSON_VALUES = 2**14  # values encoded at a time; the encoder holds the interpreter lock for 0.7 ms
# Part of strong ETags, because another version of the encoder may write other digits of the same numbers.
JSON_ENCODER = f"orjson-{orjson.__version__}"
_ARROW_VALUES = 2**17  # values in a record batch, 1 MB
_CSV_VALUES = 2**11  # values written at a time; the writer holds the interpreter lock for 3 ms


class ResponseAbortedError(RuntimeError):
    """The rest of a started response cannot be produced."""


class AbortableResponse(StreamingResponse):
    """Streaming response that closes the connection if its rest cannot be produced, so that the client notices."""

    def __init__(self, content: Any, *arguments: Any, **options: Any) -> None:
        self.content = content
        super().__init__(content, *arguments, **options)

    async def stream_response(self, send: Send) -> None:
        """Send the stream; if it fails, no last message is sent, and the server closes the connection."""
        try:
            await super().stream_response(send)
        except (ResponseAbortedError, ProblemError, redis.RedisError) as error:
            log.warning("A response was aborted: %s", error)


@dataclass(frozen=True)
class Stack:
    """Array of shape ``lead + trail`` as an iterable of matrices, so that the whole array is never in memory.

    The matrices have the shape `trail`, come in the C order of the axes `lead`, and are converted to `dtype`.
    `matrices_from`, if any, is called with a number and returns the matrices from this number on, which is cheaper than
    to skip the earlier ones. With `is_resident` the matrices are in memory, so that reading them needs no thread.
    """

    lead: tuple[int, ...]
    trail: tuple[int, ...]
    dtype: np.dtype[Any]
    matrices: Iterable[Array]
    matrices_from: Callable[[int], Iterable[Array]] | None = None
    is_resident: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""
        return (*self.lead, *self.trail)

    @classmethod
    def from_array(cls, array: Array | Stack, dtype: str | None = None) -> Stack:
        """Return an array as a `Stack`, an array that is sent matrix by matrix; this one has a single matrix.

        If `dtype` is not None, floats are converted to this type when they are sent. A `Stack` is returned unchanged.
        """
        if isinstance(array, Stack):
            return array
        target = np.dtype(dtype) if dtype and array.dtype.kind == "f" else array.dtype
        return cls((), array.shape, target, [array])

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return math.prod(self.shape) * self.dtype.itemsize

    def window(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes `start` to `stop` of the values; matrices and rows outside this range are not encoded."""
        size = math.prod(self.trail) * self.dtype.itemsize
        number = start // size if size else 0
        matrices = iter(self.matrices_from(number) if self.matrices_from else islice(self.matrices, number, None))
        while start < stop:
            matrix = next(matrices)
            row = size // len(matrix)
            begin, end = start - number * size, min(size, stop - number * size)
            rows = matrix[begin // row : -(-end // row)]
            yield from _trim(Stack((), rows.shape, self.dtype, [rows]).pieces(), begin % row, end - begin)
            number += 1
            start = number * size

    def pieces(self) -> Iterator[bytes]:
        """Return an iterator over the bytes of all values in pieces of about a megabyte; small matrices are joined."""
        values = _PIECE_BYTES // max(1, self.dtype.itemsize)
        blocks = (rows for matrix in self.matrices for rows in _row_blocks(matrix, values))
        return join_pieces(np.ascontiguousarray(rows, self.dtype).reshape(-1).view(np.uint8).data for rows in blocks)

    def json(self) -> Iterator[bytes | memoryview]:
        """Yield the values as nested JSON lists; raise ValueError for a value that is not finite."""
        if 0 in self.shape:
            yield orjson.dumps(np.empty(self.shape).tolist())
            return
        for position, matrix in enumerate(self.matrices):
            sizes = [math.prod(self.lead[axis:]) for axis in range(len(self.lead))]
            yield b"," * (position > 0) + b"[" * (sum(position % size == 0 for size in sizes) + 1)
            for number, rows in enumerate(_row_blocks(matrix, _JSON_VALUES)):
                if number:
                    yield b","
                yield memoryview(_json(rows.astype(self.dtype)))[1:-1]
            yield b"]" * (sum((position + 1) % size == 0 for size in sizes) + 1)

    def json_object(self) -> Iterator[bytes | memoryview]:
        """Yield a JSON object of `shape`, `dtype` and `data`, without its closing brace, so that members can follow."""
        yield f'{{"shape":{json.dumps(self.shape)},"dtype":"{self.dtype.name}","data":'.encode()
        yield from self.json()


@lru_cache(256)
def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the header of an npy file for an array in C order."""
    buffer = io.BytesIO()
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue()


class NpyResponse(AbortableResponse):
    """Response with an array as npy; if it has an ETag, it supports byte ranges."""

    def __init__(self, stack: Stack, headers: dict[str, str] | None = None) -> None:
        self._stack = stack
        self._header = npy_header(stack.dtype, stack.shape)
        self._size = len(self._header) + stack.nbytes
        headers = {"Content-Length": str(self._size), **(headers or {})}
        super().__init__(self._body(), media_type=NPY, headers=headers | (ACCEPT_RANGES if "ETag" in headers else {}))
        if stack.is_resident:
            self.body_iterator = _without_thread(self.content)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the array or the requested range."""
        try:
            byte_range = requested_range(scope, self.raw_headers, self._size)
        except ProblemError as error:
            await unsatisfiable(error)(scope, receive, send)
            return
        if byte_range is not None:
            self.status_code = 206
            self.raw_headers = byte_range.partial(self.raw_headers)
            self.body_iterator = iterate_in_threadpool(self._partial_body(byte_range))
        await super().__call__(scope, receive, send)

    def _body(self) -> Iterator[bytes]:
        yield self._header
        yield from self._stack.pieces()

    def _partial_body(self, byte_range: ByteRange) -> Iterator[bytes]:
        yield self._header[byte_range.start : byte_range.stop]
        offset = len(self._header)
        yield from self._stack.window(max(0, byte_range.start - offset), max(0, byte_range.stop - offset))


async def _without_thread(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def _json(rows: Array) -> bytes:
    """Return a block of rows as JSON; raise ValueError for a value that is not finite, which orjson writes as null."""
    if rows.dtype.kind == "f":
        if not np.isfinite(rows).all():
            raise ValueError("A value that is not finite is not JSON compliant.")
        rows = rows.astype(np.float64)  # the shortest digits of a float32 would be read as another double
    elif rows.dtype.kind not in "iub":
        return json.dumps(rows.tolist()).encode()
    return orjson.dumps(np.ascontiguousarray(rows), option=orjson.OPT_SERIALIZE_NUMPY)


def join_pieces(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Yield small pieces joined to about `_PIECE_BYTES`, because fetching each piece from a thread takes time."""
    small: list[bytes | memoryview] = []
    size = 0
    for piece in pieces:
        small.append(piece)
        size += len(piece)
        if size >= _PIECE_BYTES:
            yield b"".join(small)
            small, size = [], 0
    if small:
        yield b"".join(small)


def check_float32(values: Array | Stack) -> None:
    """Raise `ProblemError` (``float32-overflow``) if an array has a value beyond the range of float32.

    A `Stack` is not checked, because its values are not in memory.
    """
    if isinstance(values, Stack) or values.dtype != np.float64:
        return
    limit = float(np.finfo(np.float32).max)
    for rows in _row_blocks(values, 2**22):
        if (np.abs(rows) > limit).any():
            raise refuse(
                "float32-overflow",
                422,
                "The result has values beyond the range of float32, which was asked for.",
                "Ask for float64, or rescale the data.",
            )


def _trim(pieces: Iterator[bytes], skip: int, length: int) -> Iterator[bytes]:
    """Yield the bytes `skip` to `skip + length` of the pieces, counted through all pieces."""
    for piece in pieces:
        kept = piece[skip : skip + length]
        skip = max(0, skip - len(piece))
        length -= len(kept)
        if kept:
            yield kept


def _row_blocks(matrix: Array, values: int) -> Iterator[Array]:
    rows = max(1, values // max(1, math.prod(matrix.shape[1:])))
    return (matrix[start : start + rows] for start in range(0, len(matrix), rows))


def npz_pieces(stacks: dict[str, Stack]) -> Iterator[bytes]:
    """Yield the bytes of an npz file with these arrays; each array is read only when its bytes are due."""
    buffer = PieceBuffer()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, stack in stacks.items():
            member = zipfile.ZipInfo(name + ".npy")  # dated 1980, so that equal arrays have equal bytes
            with archive.open(member, "w", force_zip64=True) as file:
                file.write(npy_header(stack.dtype, stack.shape))
                for piece in stack.pieces():
                    file.write(piece)
                    yield buffer.drain()
    yield buffer.drain()


class PieceBuffer(io.RawIOBase):
    """File object that collects what a zip or Arrow writer writes; it cannot seek, so that writers do not try."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        """Return true, as writers of files require."""
        return True

    def write(self, data: Any) -> int:
        """Append bytes."""
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def drain(self) -> bytes:
        """Return and remove the bytes written so far."""
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken


@dataclass(frozen=True)
class ResultTable:
    """Table to send: `columns` are pairs of name and dtype; `parts` are blocks of rows with one vector per column."""

    columns: Sequence[tuple[str, np.dtype[Any]]]
    parts: Iterable[Sequence[Array]]

    @classmethod
    def from_columns(cls, columns: dict[str, Array], dtype: str | None = None) -> ResultTable:
        """Return the table of columns in memory; `dtype`, if any, is the type for floating-point columns."""
        kinds = [np.dtype(dtype) if dtype and c.dtype.kind == "f" else c.dtype for c in columns.values()]
        return cls(list(zip(columns, kinds, strict=True)), [list(columns.values())])

    def blocks(self, values: int) -> Iterator[list[Array]]:
        """Yield blocks of rows with about `values` values each; a block is a list of one vector for each column."""
        rows = max(1, values // len(self.columns))
        for vectors in self.parts:
            for start in range(0, len(vectors[0]), rows):
                yield [
                    vector[start : start + rows].astype(dtype, copy=False)
                    for vector, (_, dtype) in zip(vectors, self.columns, strict=True)
                ]


def matrix_columns(matrix: Array, prefix: str, names: Sequence[str] | None = None) -> dict[str, Array]:
    """Return the columns of a matrix by name; without `names`, a name is the prefix and a number from 1."""
    names = names or [f"{prefix}{number}" for number in range(1, matrix.shape[1] + 1)]
    return {name: matrix[:, column] for column, name in enumerate(names)}


def id_columns(ids: Array | None) -> dict[str, Array]:
    """Return the ids of the points as columns: `id`, or `id_1`, `id_2`, ... if there are several; none without ids."""
    if ids is None:
        return {}
    return {"id": ids} if ids.ndim == 1 else matrix_columns(ids, "id_")


def with_ids(columns: dict[str, Array], ids: Array | None) -> dict[str, Array]:
    """Return the columns of a table, preceded by columns of ids, whose names get `_` at the end if they are taken."""
    first = {}
    for name, values in id_columns(ids).items():
        while name in columns:
            name += "_"  # noqa: PLW2901 # until no column has this name
        first[name] = values
    return first | columns


def csv_pieces(table: ResultTable, *, quotes_formulas: bool = False) -> Iterator[str]:
    """Yield a table as CSV with a header; each number is the shortest decimal that reads back to the same bits.

    With `quotes_formulas` an apostrophe precedes each name and text that a spreadsheet would run as a formula.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    names = [name for name, _ in table.columns]
    writer.writerow(map(_quote_formula, names) if quotes_formulas else names)
    for block in table.blocks(_CSV_VALUES):
        cells = [vector.tolist() for vector in block]
        if quotes_formulas:
            texts = [vector.dtype.kind == "U" for vector in block]
            cells = [list(map(_quote_formula, c)) if is_text else c for c, is_text in zip(cells, texts, strict=True)]
        writer.writerows(zip(*cells, strict=True))
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def _quote_formula(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def arrow_pieces(table: ResultTable) -> Iterator[bytes]:
    """Yield the bytes of a table as an Arrow stream: the schema, record batches, and the end mark."""
    import pyarrow as pa  # noqa: PLC0415 # an extra; its import takes 0.1 s

    arrow_types = [pa.string() if dtype.kind == "U" else pa.from_numpy_dtype(dtype) for _, dtype in table.columns]
    schema = pa.schema([(name, arrow_type) for (name, _), arrow_type in zip(table.columns, arrow_types, strict=True)])
    buffer = PieceBuffer()
    with pa.ipc.new_stream(pa.PythonFile(buffer, "w"), schema) as writer:
        for block in table.blocks(_ARROW_VALUES):
            vectors = [pa.array(vector, arrow_type) for vector, arrow_type in zip(block, arrow_types, strict=True)]
            writer.write_batch(pa.record_batch(vectors, schema=schema))
            yield buffer.drain()
    yield buffer.drain()
