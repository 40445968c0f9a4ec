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
from worker.storage.object_store.object_format import BLOCK, CorruptObjectError, PackedObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import redis

    from worker.base.settings import Settings
    from worker.observability.counters import Counters

# Model of a read from a store across a network; docs/how-to/storage.md has the measurements.
READ_BYTES_PER_SECOND = 50e6
READ_SECONDS = 0.1
SECONDS = 15.0  # time limit for 8 MB
PATIENT_RETRIES = 30  # of a worker's failed request, within `SECONDS`: the computation took longer
READS, WRITES = 16, 4  # at the same time, of one call; a write has up to 16 MB in memory

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

    def entries(self, objects: Mapping[str, StoredObject]) -> dict[str, Entry | None]:
        """Return entries, None for a missing or corrupt object.

        They are read into memory, because a mapped file could change after the check.
        """
        return _read_each(self._entry, objects)

    def views(self, objects: Mapping[str, StoredObject]) -> dict[str, Entry | None]:
        """Return entries whose large arrays are `LazyArray`s, None for a missing or corrupt object."""
        return _read_each(self._view, objects)

    def heads(self, objects: Mapping[str, StoredObject]) -> dict[str, dict[str, Any] | None]:
        """Return the metadata of entries, None for a missing or corrupt object."""
        return _read_each(lambda key, stored: self._open(key, stored.start).head.meta, objects)

    def _entry(self, key: str, stored: StoredObject) -> Entry:
        payload = self._open(key, min(stored.size, PIECE))
        arrays = payload.head.arrays.items()
        return Entry(payload.head.meta, {name: np.asarray(LazyArray(payload, layout)) for name, layout in arrays})

    def _view(self, key: str, stored: StoredObject) -> Entry:
        payload = self._open(key, stored.start + BLOCK)
        arrays: dict[str, Any] = {name: LazyArray(payload, layout) for name, layout in payload.head.arrays.items()}
        for name, layout in payload.head.arrays.items():
            if layout.start + layout.nbytes <= BLOCK:
                arrays[name] = np.asarray(arrays[name])
        return Entry(payload.head.meta, arrays)

    def _open(self, key: str, stop: int) -> Payload:
        """Read the head of an object and the blocks before `stop`; raises `CorruptObjectError`."""
        read = partial(self.bucket.read, path_of(subject_of(key), key))
        return Payload(read(0, stop) or b"", read, partial(self._lose, key))

    def remove(self, subject: str, keys: list[str] | None = None) -> None:
        """Remove entries of a subject, or all; the sweep removes the objects that the store does not remove now."""
        keys = [key for key, _ in self.index.of(subject)] if keys is None else keys
        self.index.drop(subject, keys)
        try:
            _in_parallel(self.bucket.remove, [path_of(subject, key) for key in keys])
        except ProblemError as error:
            log.warning("Objects of %s could not be removed yet: %s", subject, error)

    def _lose(self, key: str) -> None:
        """Remove the entry of a missing or corrupt object."""
        log.warning("The object of %s is missing or corrupt", key)
        self.remove(subject_of(key), [key])


def _read_each(read: Callable[[str, StoredObject], T], objects: Mapping[str, StoredObject]) -> dict[str, T | None]:
    def read_intact(key: str) -> T | None:
        with suppress(CorruptObjectError):
            return read(key, objects[key])
        return None

    return dict(zip(objects, _in_parallel(read_intact, objects), strict=True))


def _in_parallel(call: Callable[[T], R], items: Iterable[T], threads: int = READS) -> list[R]:
    """Return the results of calls, which mostly wait for the store; the first failure ends them."""
    with ThreadPoolExecutor(threads, "objects") as pool:
        return list(pool.map(call, items))
