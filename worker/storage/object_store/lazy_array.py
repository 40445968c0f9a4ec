"""Arrays of the object store with numpy's slicing, which read only the required rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from worker.storage.object_store.backend import PIECE
from worker.storage.object_store.object_format import BLOCK, CorruptObjectError, ObjectHead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from worker.storage.object_store.object_format import ArrayLayout

Array = np.ndarray[Any, np.dtype[Any]]
Index = range | list[int]

_KEPT = PIECE // BLOCK  # blocks in memory, so that successive columns of the same rows are read once


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
