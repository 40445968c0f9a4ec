"""Arrays of the object store that are sliced as numpy's are, and of which those rows are read that are needed."""

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

_KEPT = 32  # blocks at hand: columns of the same rows, asked for one after the other, are read once


class Payload:
    """The payload of one object, in blocks that are checked; those used last stay at hand.

    Parameters
    ----------
    head
        Of the object.
    fetch
        Reads bytes `start` to `stop` of the object, and gives them to a function that checks and keeps them.

    """

    def __init__(self, head: ObjectHead, fetch: Callable[[int, int, Callable[[bytes], None]], None]) -> None:
        self.head = head
        self._fetch = fetch
        self._blocks: OrderedDict[int, bytes] = OrderedDict()

    def keep(self, first: int, data: bytes) -> None:
        """Check the bytes from block `first` on, and have them at hand; raises `CorruptObjectError`."""
        self.head.check(first, memoryview(data))
        for number, begin in enumerate(range(0, len(data), BLOCK), start=first):
            self._blocks[number] = data[begin : begin + BLOCK]
        while len(self._blocks) > _KEPT:
            self._blocks.popitem(last=False)

    def read(self, start: int, stop: int) -> bytes:
        """Return bytes of the payload; raises what `fetch` raises."""
        parts = []
        step = _KEPT * BLOCK // 2
        for begin in range(start, stop, step):
            end = min(begin + step, stop)
            wanted = range(begin // BLOCK, -(-end // BLOCK))
            missing = [number for number in wanted if number not in self._blocks]
            for number in set(wanted).difference(missing):
                self._blocks.move_to_end(number)  # or what is read now might drive it out
            if missing:
                first, last = missing[0] * BLOCK, min((missing[-1] + 1) * BLOCK, self.head.size)
                self._fetch(self.head.start + first, self.head.start + last, partial(self.keep, missing[0]))
            data = b"".join([self._blocks[number] for number in wanted])
            parts.append(data[begin - wanted.start * BLOCK : end - wanted.start * BLOCK])
        return b"".join(parts)


class LazyArray:
    """An array of a payload, or a part of it; slices of it read nothing yet.

    Parameters
    ----------
    index
        Which positions of each axis; None: all.
    dropped
        Axes of which one position was taken by its number.

    """

    def __init__(
        self,
        payload: Payload,
        place: ArrayLayout,
        index: Sequence[Index] | None = None,
        dropped: frozenset[int] = frozenset(),
    ) -> None:
        self._payload = payload
        self._place = place
        self._index: list[Index] = [range(size) for size in place.shape] if index is None else list(index)
        self._dropped = dropped
        self.dtype = place.dtype
        self.shape = tuple(len(one) for axis, one in enumerate(self._index) if axis not in dropped)
        self.ndim = len(self.shape)
        self.nbytes = self.dtype.itemsize * math.prod(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[LazyArray]:
        return (self[position] for position in range(len(self)))

    def __getitem__(self, item: int | slice | tuple[int | slice, ...]) -> LazyArray:
        items = item if isinstance(item, tuple) else (item,)
        index, dropped = list(self._index), set(self._dropped)
        for axis, one in zip(self._axes(), items, strict=False):
            if isinstance(one, slice):
                index[axis] = index[axis][one]
            else:
                index[axis] = [index[axis][one]]
                dropped.add(axis)
        return LazyArray(self._payload, self._place, index, frozenset(dropped))

    def take(self, indices: Sequence[int], axis: int = 0, out: None = None, mode: str = "raise") -> LazyArray:
        """Return these positions of an axis, as `numpy.take` asks for them."""
        del out, mode  # as they are by default
        index = list(self._index)
        where = self._axes()[axis]
        index[where] = [index[where][position] for position in indices]
        return LazyArray(self._payload, self._place, index, self._dropped)

    def astype(self, dtype: Any, *, copy: bool = True) -> Array:
        """Return the values as another dtype."""
        return np.asarray(self).astype(dtype, copy=copy)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:  # noqa: FBT001 # numpy's signature
        del copy  # it is always new
        values = self._read().reshape(self.shape)
        return values if dtype is None else values.astype(dtype, copy=False)

    def _axes(self) -> list[int]:
        return [axis for axis in range(len(self._index)) if axis not in self._dropped]

    def _read(self) -> Array:
        """Read what is chosen: runs of rows, or of large rows the part that its own axis needs."""
        shape, rows = self._place.shape, self._index[0] if self._index else range(1)
        each = self.dtype.itemsize * math.prod(shape[1:])
        if each >= BLOCK and len(shape) > 1:
            found = [self._inside(row, each) for row in rows]
            return np.stack(found) if found else np.empty([len(one) for one in self._index], self.dtype)
        runs = [
            np.frombuffer(self._bytes(first * each, stop * each), self.dtype).reshape(stop - first, *shape[1:])
            for first, stop in _runs(rows)
        ]
        whole = np.concatenate(runs) if len(runs) != 1 else runs[0]
        for axis, one in enumerate(self._index[1:], start=1):
            whole = _chosen(whole, one, axis)
        return whole

    def _inside(self, row: int, each: int) -> Array:
        """Return what is chosen of one large row."""
        shape, second = self._place.shape, self._index[1]
        part = each // shape[1]
        low, high = (min(second), max(second) + 1) if len(second) else (0, 0)
        raw = self._bytes(row * each + low * part, row * each + high * part)
        values = np.frombuffer(raw, self.dtype).reshape(high - low, *shape[2:])
        values = _chosen(values, [position - low for position in second], 0)
        for axis, one in enumerate(self._index[2:], start=1):
            values = _chosen(values, one, axis)
        return values

    def _bytes(self, start: int, stop: int) -> bytes:
        return self._payload.read(self._place.start + start, self._place.start + stop)


def _chosen(values: Array, index: Index, axis: int) -> Array:
    return values if index == range(values.shape[axis]) else np.take(values, list(index), axis)


def _runs(rows: Index) -> Iterator[tuple[int, int]]:
    """Yield the runs of neighbours in a list of rows, half open; one empty run for none."""
    if isinstance(rows, range) and rows.step == 1:
        yield rows.start, max(rows.start, rows.stop)
        return
    begin = end = None
    for row in rows:
        if begin is None:
            begin, end = row, row + 1
        elif row == end:
            end = row + 1
        else:
            assert end is not None
            yield begin, end
            begin, end = row, row + 1
    yield (0, 0) if begin is None or end is None else (begin, end)
