"""Object store of entries that are larger than the cache, or cheaper to read than to compute again."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from worker.base.problems import ProblemError, refuse
from worker.records.cache_entry import Entry
from worker.storage.object_store.backend import PIECE, Bucket
from worker.storage.object_store.index import ObjectIndex, StoredObject, subject_of
from worker.storage.object_store.lazy_array import LazyArray, Payload
from worker.storage.object_store.object_format import BLOCK, CorruptObjectError, ObjectHead, PackedObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import redis

    from worker.base.settings import Settings
    from worker.observability.counters import Counters
    from worker.records.cache_entry import Array

# Model of a read from a store across a network; docs/how-to/storage.md has the measurements.
READ_BYTES_PER_SECOND = 50e6
READ_SECONDS = 0.1
SECONDS = 15.0  # time limit for 8 MB

WAITS = (2.5, 5.0)  # pauses in seconds before a write is repeated; the computation took longer


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
    most_bytes
        Limit of all objects; 0: none.

    """

    def __init__(self, bucket: Bucket, index: ObjectIndex, *, ttl: int, most_bytes: int) -> None:
        self.bucket = bucket
        self.index = index
        self._ttl = ttl
        self._most_bytes = most_bytes

    @classmethod
    def of(cls, settings: Settings, client: redis.Redis, counts: Counters) -> ObjectStore | None:
        """Return the store of the settings, or None; raises `SettingsError`."""
        if not settings.store_url:
            return None
        bucket = Bucket(settings.store_url, seconds=SECONDS, counts=counts)
        return cls(
            bucket,
            ObjectIndex(client),
            ttl=settings.cache_ttl,
            most_bytes=settings.store_bytes,
        )

    def worth_keeping(self, seconds: float, nbytes: int) -> bool:
        """Return whether an entry belongs in the store as well: if a read takes less than `seconds`."""
        return seconds > READ_SECONDS + nbytes / READ_BYTES_PER_SECOND

    def check_room(self, nbytes: int, name: str) -> None:
        """Raise ``store-too-small`` if `nbytes` more exceed the limit; `name` begins the detail."""
        stored = self.index.sums()[1] if self._most_bytes else 0
        if self._most_bytes and stored + nbytes > self._most_bytes:
            raise refuse(
                "store-too-small",
                422,
                f"{name} takes {nbytes:,} bytes; the object store has {stored:,} of {self._most_bytes:,} allowed.",
                "Ask for less, delete posteriors that are no longer needed, or raise GLLE_STORE_BYTES.",
                bytes=nbytes,
                allowed=self._most_bytes,
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
        for wait in () if cached else WAITS:
            try:
                self._put(entries, cached=cached)
            except ProblemError as error:
                if error.problem.code != "store-unavailable":
                    raise
                time.sleep(wait)
            else:
                return
        self._put(entries, cached=cached)

    def _put(self, entries: Mapping[str, Entry], *, cached: bool) -> None:
        batch: dict[str, tuple[StoredObject, PackedObject]] = {}
        room = PIECE
        for key, entry in entries.items():
            packed = PackedObject.of(key, entry)
            self.check_room(packed.size, key)
            start = len(packed.head)
            stored = StoredObject.new(key, size=packed.size, start=start, ttl=self._ttl, cached=cached)
            if self.bucket.is_local or packed.size > PIECE:
                self.bucket.write(stored.path, packed.parts(), packed.size)
                self._remove(self.index.add(key, stored))
                continue
            if packed.size > room:
                self._put_batch(batch)
                batch, room = {}, PIECE
            batch[key] = stored, packed
            room -= packed.size
        self._put_batch(batch)

    def _put_batch(self, batch: Mapping[str, tuple[StoredObject, PackedObject]]) -> None:
        if batch:
            self.bucket.write_small({stored.path: b"".join(packed.parts()) for stored, packed in batch.values()})
        for key, (stored, _) in batch.items():
            self._remove(self.index.add(key, stored))

    def find(self, keys: list[str]) -> list[StoredObject | None]:
        """Return the objects of entries, without a request to the store."""
        return self.index.find(keys)

    def get(self, key: str, stored: StoredObject) -> Entry | None:
        """Return an entry, None if its object is missing or corrupt.

        It is read into memory, because a mapped file could change after the check.
        """
        try:
            head, payload = self._read(stored)
        except CorruptObjectError:
            return self._lost(key, stored)
        return Entry(head.meta, {name: head.array(name, payload) for name in head.arrays})

    def _read(self, stored: StoredObject) -> tuple[ObjectHead, Array]:
        """Read and verify an object piece by piece; raises `CorruptObjectError`, also if it is missing."""
        raw = self.bucket.read(stored.path, 0, min(stored.size, PIECE))
        if raw is None:
            raise CorruptObjectError
        head = ObjectHead.read(raw)
        payload = np.empty(head.size, np.uint8)
        ready = min(head.size, (len(raw) - head.start) // BLOCK * BLOCK if stored.size > PIECE else head.size)
        if len(raw) < head.start + ready:
            raise CorruptObjectError
        payload[:ready] = np.frombuffer(raw, np.uint8)[head.start : head.start + ready]
        head.check(0, payload[:ready].data)
        for begin in range(ready, head.size, PIECE):
            end = min(begin + PIECE, head.size)
            piece = self.bucket.read(stored.path, head.start + begin, head.start + end)
            if piece is None or len(piece) < end - begin:
                raise CorruptObjectError
            payload[begin:end] = np.frombuffer(piece, np.uint8)
            head.check(begin // BLOCK, payload[begin:end].data)
        return head, payload

    def views(self, objects: Sequence[tuple[str, StoredObject]]) -> list[Entry | None]:
        """Return entries whose large arrays are `LazyArray`s."""
        first = self.bucket.read_several(
            [(stored.path, min(stored.size, stored.start + BLOCK)) for _, stored in objects]
        )
        return [self._view(key, stored, raw) for (key, stored), raw in zip(objects, first, strict=True)]

    def _view(self, key: str, stored: StoredObject, raw: bytes | None) -> Entry | None:
        try:
            if raw is None:
                return self._lost(key, stored)
            payload = Payload(ObjectHead.read(raw), partial(self._fetch, key, stored))
            payload.keep(0, raw[payload.head.start :])
        except CorruptObjectError:
            return self._lost(key, stored)
        arrays: dict[str, Any] = {}
        for name, layout in payload.head.arrays.items():
            array = LazyArray(payload, layout)
            arrays[name] = array if layout.start + layout.nbytes > BLOCK else np.asarray(array)
        return Entry(payload.head.meta, arrays)

    def _fetch(self, key: str, stored: StoredObject, start: int, stop: int, keep: Callable[[bytes], None]) -> None:
        """Read bytes of an open object, and pass them to `keep`.

        Raises
        ------
        ProblemError
            ``object-lost``: the object is missing or corrupt.

        """
        raw = self.bucket.read(stored.path, start, stop)
        with suppress(CorruptObjectError):
            if raw is not None and len(raw) == stop - start:
                keep(raw)
                return
        self._lost(key, stored)
        detail = "An object was removed, or changed, during its read."
        raise refuse("object-lost", 503, detail, "Send the request again: the result is computed again.")

    def heads(self, objects: Sequence[tuple[str, StoredObject]]) -> list[dict[str, Any] | None]:
        """Return the metadata of entries, None for a missing or corrupt object."""
        first = self.bucket.read_several([(stored.path, stored.start) for _, stored in objects])
        metas: list[dict[str, Any] | None] = []
        for (key, stored), raw in zip(objects, first, strict=True):
            try:
                metas.append(None if raw is None else ObjectHead.read(raw).meta)
            except CorruptObjectError:
                metas.append(None)
            if metas[-1] is None:
                self._lost(key, stored)
        return metas

    def delete(self, keys: Iterable[str]) -> None:
        """Remove entries; an object that cannot be removed now stays condemned and unreadable."""
        keys = list(keys)
        for key, stored in zip(keys, self.index.find(keys), strict=True):
            if stored is not None:
                self._forget(subject_of(key), [(key, stored)])

    def forget(self, subject: str) -> None:
        """Remove all entries of a subject."""
        self._forget(subject, list(self.index.of(subject)))

    def _forget(self, subject: str, entries: list[tuple[str, StoredObject]]) -> None:
        self.index.drop(subject, entries)
        self._remove(stored.path for _, stored in entries)

    def _lost(self, key: str, stored: StoredObject) -> Entry | None:
        """Remove the entry of a missing or corrupt object; return None."""
        log.warning("Object %s is missing or corrupt", stored.path)
        self._forget(subject_of(key), [(key, stored)])
        return None

    def _remove(self, paths: Iterable[str]) -> None:
        """Remove condemned objects; if the store fails, `worker.operations.store_sweep` removes them later."""
        try:
            for path in paths:
                self.bucket.remove(path)
                self.index.removed(path)
        except ProblemError as error:
            log.warning("Condemned objects could not be removed yet: %s", error)
