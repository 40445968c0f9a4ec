"""Stored object: one entry with checksums, and its arrays with numpy's slicing, which read only the required rows.

    GLLEOBJ1            name and version of the layout
    8 bytes             length of the head, little endian
    16 bytes            digest of the head
    head                JSON: the entry's key and meta; name, dtype, shape and start of each array; digests of blocks
    payload             the arrays' bytes, small ones first, each beginning at a multiple of 64

The head has the digest (BLAKE2b, 128 bits) of each payload block of 256 kB, so that a slice is verified from its blocks
alone. This version treats an object of another layout as missing.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from worker.base.problems import ProblemError, refuse
from worker.storage.object_store.backend import PIECE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from worker.records.cache_entry import Entry

Array = np.ndarray[Any, np.dtype[Any]]
Index = range | list[int]

BLOCK = 2**18
_MAGIC = b"GLLEOBJ1"
_DIGEST = 16
_FIXED = len(_MAGIC) + 8 + _DIGEST
_ALIGNED = 64  # bytes: alignment of the arrays in the payload
_KEPT = PIECE // BLOCK  # blocks in memory, so that successive columns of the same rows are read once


class CorruptObjectError(ProblemError):
    """``object-lost``: an object is missing, or its bytes are missing or changed."""

    def __init__(self) -> None:
        detail = "An object was removed, or changed, during its read."
        super().__init__(
            refuse("object-lost", 503, detail, "Repeat the request: the result is computed again.").problem
        )


@dataclass(frozen=True)
class ArrayLayout:
    """Dtype, shape and payload offset of an array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.dtype.itemsize * math.prod(self.shape)


@dataclass(frozen=True)
class ObjectHead:
    """Head of an object.

    Parameters
    ----------
    start
        Offset of the payload.
    size
        Bytes of the payload.
    digests
        Concatenated digests of its blocks.

    """

    meta: dict[str, Any]
    arrays: dict[str, ArrayLayout]
    start: int
    size: int
    digests: bytes

    @classmethod
    def read(cls, raw: bytes) -> Self:
        """Parse the first bytes of an object.

        Raises
        ------
        CorruptObjectError
            If they contain no complete head of this layout.

        """
        length = int.from_bytes(raw[len(_MAGIC) : len(_MAGIC) + 8], "little")
        text = raw[_FIXED : _FIXED + length]
        if raw[: len(_MAGIC)] != _MAGIC or len(text) < length or _digest(text) != raw[_FIXED - _DIGEST : _FIXED]:
            raise CorruptObjectError
        head = json.loads(text)
        arrays = {name: ArrayLayout(np.dtype(kind), tuple(shape), start) for name, kind, shape, start in head["arrays"]}
        return cls(head["meta"], arrays, _FIXED + length, head["size"], bytes.fromhex(head["digests"]))

    def check(self, first: int, last: int, data: memoryview) -> None:
        """Raise `CorruptObjectError` unless `data` are the payload's blocks from `first` to before `last`."""
        if len(data) != min(last * BLOCK, self.size) - first * BLOCK:
            raise CorruptObjectError
        for number, begin in enumerate(range(0, len(data), BLOCK), start=first):
            if _digest(data[begin : begin + BLOCK]) != self.digests[number * _DIGEST : (number + 1) * _DIGEST]:
                raise CorruptObjectError


def pack_object(key: str, entry: Entry) -> list[bytes | memoryview]:
    """Return an entry's object in uncopied parts, the head first; the metadata must be JSON-able and finite."""
    arrays = {name: np.asarray(array, order="C") for name, array in entry.arrays.items()}
    starts: dict[str, int] = {}
    parts: list[memoryview] = []
    size = 0
    for name in sorted(arrays, key=lambda name: arrays[name].nbytes):
        starts[name] = size
        filler = -arrays[name].nbytes % _ALIGNED
        parts += [arrays[name].reshape(-1).view(np.uint8).data, memoryview(bytes(filler))]
        size += arrays[name].nbytes + filler
    content = {
        "key": key,
        "meta": entry.meta,
        "arrays": [[name, array.dtype.str, array.shape, starts[name]] for name, array in arrays.items()],
        "size": size,
        "digests": b"".join(_digests(parts)).hex(),
    }
    text = json.dumps(content, allow_nan=False).encode()
    text += b" " * (-(_FIXED + len(text)) % _ALIGNED)
    return [b"".join([_MAGIC, len(text).to_bytes(8, "little"), _digest(text), text]), *parts]


class Payload:
    """Payload of one object, verified in blocks, with a cache of the last ones.

    Parameters
    ----------
    raw
        First bytes of the object, at least its head; raises `CorruptObjectError`.
    read
        Reads bytes `start` to `stop` of the object, or None if it is missing.
    lose
        Is called for a missing or corrupt object.

    """

    def __init__(self, raw: bytes, read: Callable[[int, int], bytes | None], lose: Callable[[], None]) -> None:
        self._read = read
        self._lose = lose
        self._blocks: dict[int, Array] = {}
        try:
            self.head = ObjectHead.read(raw)
            data = memoryview(raw)[self.head.start :][: self.head.size]
            whole = len(data) if len(data) == self.head.size else len(data) // BLOCK * BLOCK
            self._keep(0, -(-whole // BLOCK), data[:whole])
        except CorruptObjectError:
            lose()
            raise

    def read(self, start: int, stop: int) -> Array:
        """Return bytes of the payload; raises `CorruptObjectError`."""
        values = np.empty(stop - start, np.uint8)
        for begin in range(start // BLOCK, -(-stop // BLOCK), _KEPT):
            blocks = range(begin, min(begin + _KEPT, -(-stop // BLOCK)))
            if missing := [number for number in blocks if number not in self._blocks]:
                self._load(missing[0], missing[-1] + 1)
            for number in blocks:
                low, high = max(start, number * BLOCK), min(stop, (number + 1) * BLOCK)
                values[low - start : high - start] = self._blocks[number][low - number * BLOCK : high - number * BLOCK]
            for number in list(self._blocks)[:-_KEPT]:
                del self._blocks[number]
        return values

    def _load(self, first: int, last: int) -> None:
        begin, end = first * BLOCK, min(last * BLOCK, self.head.size)
        try:
            self._keep(first, last, memoryview(self._read(self.head.start + begin, self.head.start + end) or b""))
        except CorruptObjectError:
            self._lose()
            raise

    def _keep(self, first: int, last: int, data: memoryview) -> None:
        """Verify and cache blocks."""
        self.head.check(first, last, data)
        values = np.frombuffer(data, np.uint8)
        for number, begin in enumerate(range(0, len(data), BLOCK), start=first):
            self._blocks[number] = values[begin : begin + BLOCK]


class LazyArray:
    """Array of a payload, or a part of it; a slice is lazy too.

    Parameters
    ----------
    index
        Positions of each axis; None: all.
    dropped
        Axes indexed by an integer.

    """

    def __init__(
        self,
        payload: Payload,
        layout: ArrayLayout,
        index: Sequence[Index] | None = None,
        dropped: frozenset[int] = frozenset(),
    ) -> None:
        self._payload = payload
        self._layout = layout
        self._index: list[Index] = [range(size) for size in layout.shape] if index is None else list(index)
        self._dropped = dropped
        self.dtype = layout.dtype
        self.shape = tuple(len(positions) for axis, positions in enumerate(self._index) if axis not in dropped)
        self.ndim = len(self.shape)
        self.nbytes = self.dtype.itemsize * math.prod(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[LazyArray]:
        return (self[position] for position in range(len(self)))

    def __getitem__(self, item: int | slice | tuple[int | slice, ...]) -> LazyArray:
        items = item if isinstance(item, tuple) else (item,)
        index, dropped = list(self._index), set(self._dropped)
        for axis, part in zip(self._axes(), items, strict=False):
            if isinstance(part, slice):
                index[axis] = index[axis][part]
            else:
                index[axis] = [index[axis][part]]
                dropped.add(axis)
        return LazyArray(self._payload, self._layout, index, frozenset(dropped))

    def take(self, indices: Sequence[int], axis: int = 0, out: None = None, mode: str = "raise") -> LazyArray:
        """Return positions of an axis, for `numpy.take`."""
        del out, mode  # the defaults
        index = list(self._index)
        axis = self._axes()[axis]
        index[axis] = [index[axis][position] for position in indices]
        return LazyArray(self._payload, self._layout, index, self._dropped)

    def astype(self, dtype: Any, *, copy: bool = True) -> Array:
        """Return the values in another dtype."""
        return np.asarray(self).astype(dtype, copy=copy)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:  # noqa: FBT001 # numpy's signature
        del copy  # always a copy
        values = self._read().reshape(self.shape)
        return values if dtype is None else values.astype(dtype, copy=False)

    def _axes(self) -> list[int]:
        return [axis for axis in range(len(self._index)) if axis not in self._dropped]

    def _read(self) -> Array:
        """Read the selected rows, or of large rows the selected parts, and select the other axes in memory."""
        shape, index = self._layout.shape, self._index
        rows, axis = _positions(index[0]) if shape else np.arange(1), 1
        while axis < len(shape) and self._is_partial(axis) and self._row_bytes(axis) >= BLOCK:
            rows, axis = np.add.outer(rows * shape[axis], _positions(index[axis])).ravel(), axis + 1
        values = self._read_rows(rows, self._row_bytes(axis)).reshape(len(rows), *shape[axis:])
        for number in range(axis, len(shape)):
            if self._is_partial(number):
                values = np.take(values, _positions(index[number]), number - axis + 1)
        return values

    def _is_partial(self, axis: int) -> bool:
        return self._index[axis] != range(self._layout.shape[axis])

    def _row_bytes(self, axis: int) -> int:
        """Return the bytes of an element of the axes before `axis`."""
        return self.dtype.itemsize * math.prod(self._layout.shape[axis:])

    def _read_rows(self, rows: Array, each: int) -> Array:
        """Read rows of `each` bytes; nearby rows are read at once, with those between them."""
        ends = np.flatnonzero((np.diff(rows) < 0) | (np.diff(rows) > max(1, BLOCK // max(1, each)))) + 1
        parts = [np.empty((0, each), np.uint8)]
        for run in np.split(rows, ends) if len(rows) else []:
            first, start = int(run[0]), self._layout.start
            values = self._payload.read(start + first * each, start + (int(run[-1]) + 1) * each)
            values = values.reshape(int(run[-1]) - first + 1, each)
            parts.append(values if (np.diff(run) == 1).all() else values[run - first])
        return (np.concatenate(parts) if len(parts) != 2 else parts[1]).reshape(-1).view(self.dtype)


def _positions(index: Index) -> Array:
    return np.arange(index.start, index.stop, index.step) if isinstance(index, range) else np.asarray(index, int)


def _digest(data: bytes | memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST).digest()


def _digests(parts: Iterable[memoryview]) -> Iterator[bytes]:
    """Yield the digests of the blocks of concatenated parts."""
    hasher, room = hashlib.blake2b(digest_size=_DIGEST), BLOCK
    for part in parts:
        view = part
        while view:
            chunk = view[:room]
            hasher.update(chunk)
            view, room = view[len(chunk) :], room - len(chunk)
            if not room:
                yield hasher.digest()
                hasher, room = hashlib.blake2b(digest_size=_DIGEST), BLOCK
    if room < BLOCK:
        yield hasher.digest()
