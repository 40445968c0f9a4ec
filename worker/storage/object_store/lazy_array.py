"""Arrays of the object store with numpy's slicing, which read only the required rows."""

from __future__ import annotations

import math
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from worker.storage.object_store.object_format import BLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from worker.storage.object_store.object_format import ArrayLayout, ObjectHead

Array = np.ndarray[Any, np.dtype[Any]]
Index = range | list[int]

_KEPT = 32  # blocks in memory, so that successive columns of the same rows are read once


class Payload:
    """Payload of one object, verified in blocks, with a cache of the last ones.

    Parameters
    ----------
    head
        Head of the object.
    fetch
        Reads bytes `start` to `stop` of the object, and passes them to a function, `keep`.

    """

    def __init__(self, head: ObjectHead, fetch: Callable[[int, int, Callable[[bytes], None]], None]) -> None:
        self.head = head
        self._fetch = fetch
        self._blocks: OrderedDict[int, bytes] = OrderedDict()

    def keep(self, first: int, data: bytes) -> None:
        """Verify and cache the bytes from block `first` on; raises `CorruptObjectError`."""
        self.head.check(first, memoryview(data))
        for number, begin in enumerate(range(0, len(data), BLOCK), start=first):
            self._blocks[number] = data[begin : begin + BLOCK]
        while len(self._blocks) > _KEPT:
            self._blocks.popitem(last=False)

    def read(self, start: int, stop: int) -> bytes:
        """Return bytes of the payload; raises as `fetch`."""
        parts = []
        step = _KEPT * BLOCK // 2
        for begin in range(start, stop, step):
            end = min(begin + step, stop)
            blocks = range(begin // BLOCK, -(-end // BLOCK))
            missing = [number for number in blocks if number not in self._blocks]
            for number in set(blocks).difference(missing):
                self._blocks.move_to_end(number)  # otherwise the new blocks might evict it
            if missing:
                first, last = missing[0] * BLOCK, min((missing[-1] + 1) * BLOCK, self.head.size)
                self._fetch(self.head.start + first, self.head.start + last, partial(self.keep, missing[0]))
            data = b"".join([self._blocks[number] for number in blocks])
            parts.append(data[begin - blocks.start * BLOCK : end - blocks.start * BLOCK])
        return b"".join(parts)


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
        """Read the selected values: runs of rows, or of large rows the selected range of the second axis."""
        shape, rows = self._layout.shape, self._index[0] if self._index else range(1)
        each = self.dtype.itemsize * math.prod(shape[1:])
        if each >= BLOCK and len(shape) > 1:
            parts = [self._read_row(row, each) for row in rows]
            return np.stack(parts) if parts else np.empty([len(positions) for positions in self._index], self.dtype)
        runs = [
            np.frombuffer(self._bytes(first * each, stop * each), self.dtype).reshape(stop - first, *shape[1:])
            for first, stop in _runs(rows)
        ]
        values = np.concatenate(runs) if len(runs) != 1 else runs[0]
        for axis, positions in enumerate(self._index[1:], start=1):
            values = _take(values, positions, axis)
        return values

    def _read_row(self, row: int, each: int) -> Array:
        """Read the selected values of one large row."""
        shape, second = self._layout.shape, self._index[1]
        part = each // shape[1]
        low, high = (min(second), max(second) + 1) if len(second) else (0, 0)
        raw = self._bytes(row * each + low * part, row * each + high * part)
        values = np.frombuffer(raw, self.dtype).reshape(high - low, *shape[2:])
        values = _take(values, [position - low for position in second], 0)
        for axis, positions in enumerate(self._index[2:], start=1):
            values = _take(values, positions, axis)
        return values

    def _bytes(self, start: int, stop: int) -> bytes:
        return self._payload.read(self._layout.start + start, self._layout.start + stop)


def _take(values: Array, index: Index, axis: int) -> Array:
    return values if index == range(values.shape[axis]) else np.take(values, list(index), axis)


def _runs(rows: Index) -> Iterator[tuple[int, int]]:
    """Yield the runs of consecutive rows, half open; one empty run for no rows."""
    if isinstance(rows, range) and rows.step == 1:
        yield rows.start, max(rows.start, rows.stop)
        return
    begin = end = 0
    for row in rows:
        if row != end or begin == end:
            if begin != end:
                yield begin, end
            begin = row
        end = row + 1
    yield begin, end
