"""Bytes of arrays as npy, npz and JSON, in pieces of about a megabyte."""

from __future__ import annotations

import io
import json
import math
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import orjson
from starlette.concurrency import iterate_in_threadpool

from service.encoding.aborted import AbortableResponse
from service.encoding.ranges import ACCEPT_RANGES, ByteRange, requested_range, unsatisfiable
from worker.base.problems import ProblemError, refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from starlette.types import Receive, Scope, Send

Array = np.ndarray[Any, np.dtype[Any]]
Dtype = Literal["float64", "float32"]

JSON = "application/json"
NPY = "application/x-npy"
NPZ = "application/zip"
CSV = "text/csv"
_PIECE_BYTES = 2**20
_JSON_VALUES = 2**14  # encoded at a time; the encoder holds the interpreter, 0.7 ms for so many
# Of the encoder, for strong ETags: another version may write other digits of the same numbers.
JSON_ENCODER = f"orjson-{orjson.__version__}"


@dataclass(frozen=True)
class Stack:
    """Array of shape ``lead + trail`` as an iterable of matrices, so that it is never in memory as a whole.

    The matrices have the shape `trail`, come in C order, and are converted to `dtype`. `matrices_from` returns them
    from a number on, if that is cheaper than skipping. With `is_resident` they are in memory, so that a piece needs no
    thread.
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
    def of(cls, array: Array | Stack, dtype: str | None = None) -> Stack:
        """Return a stack as it is, or that of an array in memory; `dtype` converts floating-point arrays."""
        if isinstance(array, Stack):
            return array
        target = np.dtype(dtype) if dtype and array.dtype.kind == "f" else array.dtype
        return cls((), array.shape, target, [array])

    def npy_header(self) -> bytes:
        """Return the header of the npy format."""
        return _npy_header(self.dtype, self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return math.prod(self.shape) * self.dtype.itemsize

    def window(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes `start` to `stop` of the values, without reading matrices and rows outside."""
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
        """Yield the bytes of the values, with small matrices joined."""
        small: list[memoryview] = []
        size = 0
        for matrix in self.matrices:
            for rows in _row_blocks(matrix, _PIECE_BYTES // max(1, self.dtype.itemsize)):
                small.append(np.ascontiguousarray(rows, self.dtype).reshape(-1).view(np.uint8).data)
                size += small[-1].nbytes
                if size >= _PIECE_BYTES:
                    yield b"".join(small)
                    small, size = [], 0
        if small:
            yield b"".join(small)

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
        """Yield ``{"shape", "dtype", "data"}`` without the closing brace."""
        yield f'{{"shape":{json.dumps(self.shape)},"dtype":"{self.dtype.name}","data":'.encode()
        yield from self.json()


@lru_cache(256)
def _npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    buffer = io.BytesIO()
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue()


def npy_bytes(array: Array, dtype: str) -> bytes:
    """Return a small array as npy; `dtype` converts floating-point arrays."""
    values = np.ascontiguousarray(array, dtype if array.dtype.kind == "f" else None)
    return _npy_header(values.dtype, values.shape) + values.tobytes()


class NpyResponse(AbortableResponse):
    """Array as npy; with an ETag it supports ranges."""

    def __init__(self, stack: Stack, headers: dict[str, str] | None = None) -> None:
        self._stack = stack
        self._header = stack.npy_header()
        self._size = len(self._header) + stack.nbytes
        headers = {"Content-Length": str(self._size), **(headers or {})}
        super().__init__(self._body(), media_type=NPY, headers=headers | (ACCEPT_RANGES if "ETag" in headers else {}))
        if stack.is_resident:
            self.body_iterator = _without_thread(self.content)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the array or the requested range."""
        try:
            part = requested_range(scope, self.raw_headers, self._size)
        except ProblemError as error:
            await unsatisfiable(error)(scope, receive, send)
            return
        if part is not None:
            self.status_code = 206
            self.raw_headers = part.partial(self.raw_headers)
            self.body_iterator = iterate_in_threadpool(self._partial_body(part))
        await super().__call__(scope, receive, send)

    def _body(self) -> Iterator[bytes]:
        yield self._header
        yield from self._stack.pieces()

    def _partial_body(self, part: ByteRange) -> Iterator[bytes]:
        yield self._header[part.start : part.stop]
        offset = len(self._header)
        yield from self._stack.window(max(0, part.start - offset), max(0, part.stop - offset))


async def _without_thread(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def _json(rows: Array) -> bytes:
    """Return a block of rows as JSON; orjson would write a value that is not finite as null."""
    if rows.dtype.kind == "f":
        if not np.isfinite(rows).all():
            raise ValueError("A value that is not finite is not JSON compliant.")
        rows = rows.astype(np.float64)  # orjson writes a float32's shortest digits, those of another double
    elif rows.dtype.kind not in "iub":
        return json.dumps(rows.tolist()).encode()
    return orjson.dumps(np.ascontiguousarray(rows), option=orjson.OPT_SERIALIZE_NUMPY)


def join_pieces(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Join pieces up to about `_PIECE_BYTES`, because the server takes each one from a thread."""
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
    """Raise ``float32-overflow`` if a value in memory would become infinite in float32."""
    if isinstance(values, Stack) or values.dtype != np.float64:
        return
    limit = float(np.finfo(np.float32).max)
    for rows in _row_blocks(values, 2**22):
        if (np.abs(rows) > limit).any():
            raise refuse(
                "float32-overflow",
                422,
                "The data have values beyond the range of float32.",
                "Ask for float64, or rescale the data.",
            )


def _trim(pieces: Iterator[bytes], skip: int, length: int) -> Iterator[bytes]:
    """Yield `length` bytes after the first `skip`."""
    for piece in pieces:
        part = piece[skip : skip + length]
        skip = max(0, skip - len(piece))
        length -= len(part)
        if part:
            yield part


def _row_blocks(matrix: Array, values: int) -> Iterator[Array]:
    rows = max(1, values // max(1, math.prod(matrix.shape[1:])))
    return (matrix[start : start + rows] for start in range(0, len(matrix), rows))


def npz_pieces(stacks: dict[str, Stack]) -> Iterator[bytes]:
    """Yield an npz file, each array read when its turn comes."""
    buffer = PieceBuffer()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, stack in stacks.items():
            member = zipfile.ZipInfo(name + ".npy")  # dated 1980, so that equal arrays have equal bytes
            with archive.open(member, "w", force_zip64=True) as file:
                file.write(stack.npy_header())
                for piece in stack.pieces():
                    file.write(piece)
                    yield buffer.take()
    yield buffer.take()


class PieceBuffer(io.RawIOBase):
    """File object that hands on what a zip or Arrow writer writes; it cannot seek, so the writer does not try."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        """Return true."""
        return True

    def write(self, data: Any) -> int:
        """Append bytes."""
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def take(self) -> bytes:
        """Return and remove the bytes written so far."""
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken
