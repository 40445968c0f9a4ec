"""Layout of a stored object: one entry with checksums.

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

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from worker.records.cache_entry import Entry

Array = np.ndarray[Any, np.dtype[Any]]

BLOCK = 2**18
_MAGIC = b"GLLEOBJ1"
_DIGEST = 16
_FIXED = len(_MAGIC) + 8 + _DIGEST
_ALIGNED = 64  # bytes: alignment of the arrays in the payload


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

    key: str
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
        return cls(head["key"], head["meta"], arrays, _FIXED + length, head["size"], bytes.fromhex(head["digests"]))

    def check(self, first: int, last: int, data: memoryview) -> None:
        """Raise `CorruptObjectError` unless `data` are the payload's blocks from `first` to before `last`."""
        if len(data) != min(last * BLOCK, self.size) - first * BLOCK:
            raise CorruptObjectError
        for number, begin in enumerate(range(0, len(data), BLOCK), start=first):
            if _digest(data[begin : begin + BLOCK]) != self.digests[number * _DIGEST : (number + 1) * _DIGEST]:
                raise CorruptObjectError


@dataclass(frozen=True)
class PackedObject:
    """Entry as the bytes of an object: head, and the payload in uncopied parts.

    Parameters
    ----------
    size
        Bytes of the object.

    """

    head: bytes
    payload: list[memoryview]
    size: int

    @classmethod
    def of(cls, key: str, entry: Entry) -> Self:
        """Pack an entry; its metadata must be JSON-able and finite."""
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
        head = b"".join([_MAGIC, len(text).to_bytes(8, "little"), _digest(text), text])
        return cls(head, parts, len(head) + size)

    def parts(self) -> Iterator[bytes | memoryview]:
        """Yield head and payload."""
        yield self.head
        yield from self.payload


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
