"""Object store of entries that are larger than the cache, or cheaper to read than to compute again."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from worker.base.problems import ProblemError, refuse
from worker.records.cache_entry import Entry
from worker.storage.object_store.backend import PIECE, RETRIES, Bucket
from worker.storage.object_store.index import ObjectIndex, StoredObject, path_of, subject_of
from worker.storage.object_store.lazy_array import LazyArray, Payload
from worker.storage.object_store.object_format import BLOCK, CorruptObjectError, ObjectHead, PackedObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import redis

    from worker.base.settings import Settings
    from worker.observability.counters import Counters
    from worker.records.cache_entry import Array

# Model of a read from a store across a network; docs/how-to/storage.md has the measurements.
READ_BYTES_PER_SECOND = 50e6
READ_SECONDS = 0.1
SECONDS = 15.0  # time limit for 8 MB
PATIENT_RETRIES = 30  # of a worker's failed request, within `SECONDS`: the computation took longer
READS, WRITES = 16, 4  # at the same time, of one call; a write has up to 16 MB in memory

WAITS = (2.5, 5.0)  # pauses in seconds before a read of an item is repeated

T = TypeVar("T")
R = TypeVar("R")

log = logging.getLogger(__name__)


class ObjectStore:
    """Store of entries as objects.

    Parameters
    ----------
    bucket
        The objects.
    index
        Their index.
    ttl
        Lifetime of an object in seconds.
    max_bytes
        Limit of all objects; 0: none.

    """

    def __init__(self, bucket: Bucket, index: ObjectIndex, *, ttl: int, max_bytes: int) -> None:
        self.bucket = bucket
        self.index = index
        self._ttl = ttl
        self._max_bytes = max_bytes

    @classmethod
    def of(
        cls, settings: Settings, client: redis.Redis, counts: Counters, *, patient: bool = False
    ) -> ObjectStore | None:
        """Return the store of the settings, or None; raises `SettingsError`."""
        if not settings.store_url:
            return None
        retries = PATIENT_RETRIES if patient else RETRIES
        bucket = Bucket(settings.store_url, seconds=SECONDS, counts=counts, retries=retries)
        return cls(bucket, ObjectIndex(client), ttl=settings.cache_ttl, max_bytes=settings.store_bytes)

    def worth_keeping(self, seconds: float, nbytes: int) -> bool:
        """Return whether an entry belongs in the store as well: if a read takes less than `seconds`."""
        return seconds > READ_SECONDS + nbytes / READ_BYTES_PER_SECOND

    def check_room(self, nbytes: int, name: str) -> None:
        """Raise ``store-too-small`` if `nbytes` more exceed the limit; `name` begins the detail."""
        stored = self.index.sums()[1] if self._max_bytes else 0
        if self._max_bytes and stored + nbytes > self._max_bytes:
            raise refuse(
                "store-too-small",
                422,
                f"{name} takes {nbytes:,} bytes; the object store has {stored:,} of {self._max_bytes:,} allowed.",
                "Ask for less, delete posteriors that are no longer needed, or raise GLLE_STORE_BYTES.",
                bytes=nbytes,
                allowed=self._max_bytes,
            )

    def put(self, entries: Mapping[str, Entry], *, cached: bool = False) -> None:
        """Write entries, and add each to the index after its write.

        Parameters
        ----------
        cached
            Whether a read writes them to the cache again.

        Raises
        ------
        ProblemError
            ``store-too-small``, ``store-unavailable``, ``storage-full``; the entries written so far stay.

        """
        _in_parallel(partial(self._put, cached=cached), entries.items(), WRITES)

    def _put(self, item: tuple[str, Entry], *, cached: bool) -> None:
        key, entry = item
        packed = PackedObject.of(key, entry)
        self.check_room(packed.size, key)
        self.bucket.write(path_of(subject_of(key), key), packed.parts(), packed.size)
        self.index.add(key, StoredObject(packed.size, len(packed.head), time.time() + self._ttl, cached))

    def get(self, key: str) -> Entry | None:
        """Return an entry, None if its object is missing or corrupt.

        It is read into memory, because a mapped file could change after the check.
        """
        try:
            head, payload = self._read(path_of(subject_of(key), key))
        except CorruptObjectError:
            self._lost(key)
            return None
        return Entry(head.meta, {name: head.array(name, payload) for name in head.arrays})

    def _read(self, path: str) -> tuple[ObjectHead, Array]:
        """Read and verify an object piece by piece; raises `CorruptObjectError`, also if it is missing."""
        raw = self.bucket.read(path, 0, PIECE) or b""
        head = ObjectHead.read(raw)
        payload = np.empty(head.size, np.uint8)
        first = np.frombuffer(raw, np.uint8)[head.start :][: head.size]
        ready = len(first) if len(first) == head.size else len(first) // BLOCK * BLOCK
        payload[:ready] = first[:ready]
        head.check(0, payload[:ready].data)
        for begin in range(ready, head.size, PIECE):
            end = min(begin + PIECE, head.size)
            piece = self.bucket.read(path, head.start + begin, head.start + end)
            if piece is None or len(piece) < end - begin:
                raise CorruptObjectError
            payload[begin:end] = np.frombuffer(piece, np.uint8)
            head.check(begin // BLOCK, payload[begin:end].data)
        return head, payload

    def views(self, objects: Mapping[str, StoredObject]) -> dict[str, Entry | None]:
        """Return entries whose large arrays are `LazyArray`s, None for a missing or corrupt object."""
        return dict(zip(objects, _in_parallel(self._view, objects.items()), strict=True))

    def _view(self, item: tuple[str, StoredObject]) -> Entry | None:
        key, stored = item
        try:
            raw, head = self._read_head(key, stored.start + BLOCK)
            payload = Payload(head, partial(self._fetch, key))
            payload.keep(0, raw[head.start : head.start + min(BLOCK, head.size)])
        except CorruptObjectError:
            self._lost(key)
            return None
        arrays: dict[str, Any] = {}
        for name, layout in head.arrays.items():
            array = LazyArray(payload, layout)
            arrays[name] = array if layout.start + layout.nbytes > BLOCK else np.asarray(array)
        return Entry(head.meta, arrays)

    def _fetch(self, key: str, start: int, stop: int, keep: Callable[[bytes], None]) -> None:
        """Read bytes of an open object, and pass them to `keep`.

        Raises
        ------
        ProblemError
            ``object-lost``: the object is missing or corrupt.

        """
        raw = self.bucket.read(path_of(subject_of(key), key), start, stop)
        with suppress(CorruptObjectError):
            if raw is not None and len(raw) == stop - start:
                keep(raw)
                return
        self._lost(key)
        detail = "An object was removed, or changed, during its read."
        raise refuse("object-lost", 503, detail, "Send the request again: the result is computed again.")

    def heads(self, objects: Mapping[str, StoredObject]) -> dict[str, dict[str, Any] | None]:
        """Return the metadata of entries, None for a missing or corrupt object."""
        return dict(zip(objects, _in_parallel(self._meta, objects.items()), strict=True))

    def _meta(self, item: tuple[str, StoredObject]) -> dict[str, Any] | None:
        key, stored = item
        try:
            return self._read_head(key, stored.start)[1].meta
        except CorruptObjectError:
            self._lost(key)
            return None

    def _read_head(self, key: str, stop: int) -> tuple[bytes, ObjectHead]:
        """Return the first bytes of an object and its head; raises `CorruptObjectError`, also if it is missing."""
        raw = self.bucket.read(path_of(subject_of(key), key), 0, stop) or b""
        return raw, ObjectHead.read(raw)

    def remove(self, subject: str, keys: list[str] | None = None) -> None:
        """Remove entries of a subject, or all; the sweep removes the objects that the store does not remove now."""
        keys = [key for key, _ in self.index.of(subject)] if keys is None else keys
        self.index.drop(subject, keys)
        try:
            _in_parallel(self.bucket.remove, [path_of(subject, key) for key in keys])
        except ProblemError as error:
            log.warning("Objects of %s could not be removed yet: %s", subject, error)

    def _lost(self, key: str) -> None:
        """Remove the entry of a missing or corrupt object."""
        log.warning("The object of %s is missing or corrupt", key)
        self.remove(subject_of(key), [key])


def _in_parallel(call: Callable[[T], R], items: Iterable[T], threads: int = READS) -> list[R]:
    """Return the results of calls, which mostly wait for the store; the first failure ends them."""
    with ThreadPoolExecutor(threads, "objects") as pool:
        return list(pool.map(call, items))
