"""Entries: JSON metadata with named arrays, stored as a file, or as a value in the cache.

An entry has the length of its head (8 bytes, little-endian), the head, and the data of the arrays. The head is JSON:
the metadata, and name, dtype and shape of each array. Each array begins at a multiple of `ALIGNMENT_BYTES`, so that the
arrays of a memory-mapped file can be used without a copy.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

ALIGNMENT_BYTES = 64  # arrays begin at a multiple of a cache line, which is enough for every dtype
_LENGTH_BYTES = 8  # the length of a head is stored in this many bytes


@dataclass(frozen=True)
class Entry:
    """JSON-able metadata and named arrays: a result, an embedding, a posterior or a draw in its stored form."""

    meta: dict[str, Any]
    arrays: dict[str, Array]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in self.arrays.values())


def bytes_of(array: Array) -> memoryview:
    """Return a view of the bytes of a C-contiguous array."""
    return array.reshape(-1).view(np.uint8).data


def entry_parts(entry: Entry) -> list[bytes | memoryview]:
    """Return the bytes of an entry as consecutive parts, which are views of the arrays and not copies.

    Raises ValueError if the metadata are not JSON.
    """
    described = [[name, array.dtype.str, array.shape] for name, array in entry.arrays.items()]
    head = json.dumps({"meta": entry.meta, "arrays": described}, allow_nan=False).encode()
    start = len(head) + _padding(_LENGTH_BYTES + len(head))
    parts: list[bytes | memoryview] = [start.to_bytes(_LENGTH_BYTES, "little"), head.ljust(start)]
    for array in entry.arrays.values():
        data = bytes_of(np.asarray(array, order="C"))
        parts += [data, bytes(_padding(len(data)))]
    return parts


def parse_entry(data: memoryview) -> Entry:
    """Return the entry whose bytes are `data`; its arrays are read-only views of `data`.

    Raises ValueError, KeyError or TypeError if `data` are not an entry.
    """
    start = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    content = json.loads(bytes(data[_LENGTH_BYTES:start]))
    arrays: dict[str, Array] = {}
    for name, dtype, shape in content["arrays"]:
        count = math.prod(shape)
        arrays[name] = np.frombuffer(data, dtype, count, start).reshape(shape) if count else np.empty(shape, dtype)
        nbytes = np.dtype(dtype).itemsize * count
        start += nbytes + _padding(nbytes)
    return Entry(content["meta"], arrays)


def file_bytes(*shapes: tuple[int, ...]) -> int:
    """Return about how many bytes the file of an entry with float64 arrays of these shapes has, without metadata."""
    return sum(8 * math.prod(shape) for shape in shapes)


def _padding(nbytes: int) -> int:
    """Return how many bytes are missing from `nbytes` to the next multiple of `ALIGNMENT_BYTES`."""
    return -nbytes % ALIGNMENT_BYTES
