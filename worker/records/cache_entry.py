"""Entry of the array cache: JSON metadata and named arrays, and its bytes: a head in JSON, and the arrays' data."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

# Bytes of a field of the cache: larger ones were slower, and a server disconnects at 512 MB. With its header, 2 ** 20
# bytes would take the next size of the server's allocator, 25 % more.
PIECE = 2**20 - 64
_HEAD_BYTES = 2048  # of the metadata, names and expiry of an entry
_PAGE, _MAPPED = 4096, 2**17  # libc maps larger blocks, in whole pages


@dataclass(frozen=True)
class Entry:
    """Value of the array cache: JSON-able metadata and arrays by name."""

    meta: dict[str, Any]
    arrays: dict[str, Array]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in self.arrays.values())


def bytes_of(array: Array) -> memoryview:
    """Return the bytes of a C-contiguous array, uncopied."""
    return array.reshape(-1).view(np.uint8).data


def entry_content(entry: Entry) -> dict[str, Any]:
    """Return the content of a head."""
    return {
        "meta": entry.meta,
        "arrays": [[name, array.dtype.str, array.shape] for name, array in entry.arrays.items()],
    }


def pack_parts(entry: Entry) -> tuple[bytes, list[memoryview]]:
    """Return the head of an entry, and the data of each array, uncopied; raises ValueError if it is not JSON."""
    arrays = (np.asarray(array, order="C") for array in entry.arrays.values())
    return json.dumps(entry_content(entry), allow_nan=False).encode(), [bytes_of(array) for array in arrays]


def pack_entry(entry: Entry) -> tuple[bytes, bytes]:
    """Return head and data of a small entry."""
    head, parts = pack_parts(entry)
    return head, b"".join(parts)


def parse_entry(head: bytes | None, data: bytes | memoryview | None) -> Entry | None:
    """Return the entry of a head and data, None if a part is missing."""
    if not head or data is None:
        return None
    content = json.loads(head)
    arrays: dict[str, Array] = {}
    rest = memoryview(data)
    for name, dtype, shape in content["arrays"]:
        size = np.dtype(dtype).itemsize * math.prod(shape)
        if size > len(rest):
            return None
        arrays[name] = np.frombuffer(rest[:size], dtype).reshape(shape)
        rest = rest[size:]
    return None if rest else Entry(content["meta"], arrays)


def entry_bytes(*shapes: tuple[int, ...]) -> int:
    """Return an upper bound of the bytes that an entry with float64 arrays of these shapes takes on the server."""
    sizes = [8 * math.prod(shape) for shape in shapes]
    if sum(sizes) <= PIECE:  # one field
        sizes = [sum(sizes)]
    return _HEAD_BYTES + sum(nbytes // PIECE * _allocation(PIECE) + _allocation(nbytes % PIECE) for nbytes in sizes)


def _allocation(nbytes: int) -> int:
    """Return the bytes that the server's allocator takes for a field: jemalloc has four sizes per power of two."""
    nbytes += 32  # the header of a string
    step = 1 << max(4, (nbytes - 1).bit_length() - 3)
    return -(-nbytes // step) * step + _PAGE * (nbytes >= _MAPPED)
