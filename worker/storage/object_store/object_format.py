"""An object of the store: one entry, laid out so that it tells what it is, and that it is whole.

    GLLEOBJ1            name and version of the layout
    8 bytes             length of the head, little endian
    16 bytes            digest of the head
    head                JSON: the entry's key and meta; name, dtype, shape and start of each array; digests of blocks
    payload             the arrays' bytes, small ones first, each beginning at a multiple of 64

The payload is cut into blocks of 256 kB, and the head has the digest (BLAKE2b, 128 bits) of each: who reads a slice
reads its blocks, and knows that they are what was written. Another layout has another name: to this version an object
of it is not there.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from worker.records.cache_entry import Entry

Array = np.ndarray[Any, np.dtype[Any]]

BLOCK = 2**18
_MAGIC = b"GLLEOBJ1"
_DIGEST = 16
_FIXED = len(_MAGIC) + 8 + _DIGEST
_ALIGNED = 64  # where an array begins in the payload's bytes, its first value does


class CorruptObjectError(Exception):
    """Bytes that are not what was written."""


@dataclass(frozen=True)
class ArrayLayout:
    """Where an array lies in the payload."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return self.dtype.itemsize * math.prod(self.shape)


@dataclass(frozen=True)
class ObjectHead:
    """What an object says of itself.

    Parameters
    ----------
    start
        Where the payload begins.
    size
        Bytes of the payload.
    digests
        Of its blocks, one after the other.

    """

    key: str
    meta: dict[str, Any]
    arrays: dict[str, ArrayLayout]
    start: int
    size: int
    digests: bytes

    @classmethod
    def read(cls, raw: bytes) -> Self:
        """Return the head that the first bytes of an object are.

        Raises
        ------
        TornError
            When they are not a whole head of this layout.

        """
        length = int.from_bytes(raw[len(_MAGIC) : len(_MAGIC) + 8], "little")
        text = raw[_FIXED : _FIXED + length]
        if raw[: len(_MAGIC)] != _MAGIC or len(text) < length or _digest(text) != raw[_FIXED - _DIGEST : _FIXED]:
            raise CorruptObjectError
        told = json.loads(text)
        arrays = {name: ArrayLayout(np.dtype(kind), tuple(shape), start) for name, kind, shape, start in told["arrays"]}
        return cls(told["key"], told["meta"], arrays, _FIXED + length, told["size"], bytes.fromhex(told["digests"]))

    def check_all(self, payload: memoryview) -> None:
        """Raise `CorruptObjectError` unless these bytes are the whole payload."""
        if len(payload) != self.size:
            raise CorruptObjectError
        self.check(0, payload)

    def check(self, first: int, data: memoryview) -> None:
        """Raise `CorruptObjectError` unless `data` is the payload from block `first` on, to a block's end or the last's."""
        if len(data) % BLOCK and first * BLOCK + len(data) != self.size:
            raise CorruptObjectError
        for number, begin in enumerate(range(0, len(data), BLOCK), start=first):
            if _digest(data[begin : begin + BLOCK]) != self.digests[number * _DIGEST : (number + 1) * _DIGEST]:
                raise CorruptObjectError

    def array(self, name: str, payload: Array) -> Array:
        """Return an array, uncopied, of the payload as bytes."""
        place = self.arrays[name]
        return payload[place.start : place.start + place.nbytes].view(place.dtype).reshape(place.shape)


@dataclass(frozen=True)
class PackedObject:
    """An entry as the bytes of an object: its head, and the payload in parts, uncopied.

    Parameters
    ----------
    size
        Bytes of all.

    """

    head: bytes
    payload: list[memoryview]
    size: int

    @classmethod
    def of(cls, key: str, entry: Entry) -> Self:
        """Lay out an entry; its meta must be JSON-able and finite."""
        whole = {name: np.asarray(array, order="C") for name, array in entry.arrays.items()}
        starts: dict[str, int] = {}
        parts: list[memoryview] = []
        size = 0
        for name in sorted(whole, key=lambda name: whole[name].nbytes):
            starts[name] = size
            filler = -whole[name].nbytes % _ALIGNED
            parts += [whole[name].reshape(-1).view(np.uint8).data, memoryview(bytes(filler))]
            size += whole[name].nbytes + filler
        told = {
            "key": key,
            "meta": entry.meta,
            "arrays": [[name, array.dtype.str, array.shape, starts[name]] for name, array in whole.items()],
            "size": size,
            "digests": b"".join(_digests(parts)).hex(),
        }
        text = json.dumps(told, allow_nan=False).encode()
        text += b" " * (-(_FIXED + len(text)) % _ALIGNED)
        head = b"".join([_MAGIC, len(text).to_bytes(8, "little"), _digest(text), text])
        return cls(head, parts, len(head) + size)

    def parts(self) -> Iterator[bytes | memoryview]:
        """Yield all of it in order."""
        yield self.head
        yield from self.payload


def _digest(data: bytes | memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST).digest()


def _digests(parts: Iterable[memoryview]) -> Iterator[bytes]:
    """Yield the digest of each block of bytes that come in parts."""
    hasher, room = hashlib.blake2b(digest_size=_DIGEST), BLOCK
    for part in parts:
        view = part
        while view:
            taken = view[:room]
            hasher.update(taken)
            view, room = view[len(taken) :], room - len(taken)
            if not room:
                yield hasher.digest()
                hasher, room = hashlib.blake2b(digest_size=_DIGEST), BLOCK
    if room < BLOCK:
        yield hasher.digest()
