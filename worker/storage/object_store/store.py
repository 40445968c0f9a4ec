"""Entries in an object store: for what is larger than the cache, and for what costs more to make again than to read."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

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

# A store across a network reads at 50 MB/s after 0.1 s: docs/how-to/storage.md has the figures.
READ_BYTES_PER_SECOND = 50e6
READ_SECONDS = 0.1

WAITS = (2.5, 5.0)  # seconds after which a write is tried again: the work that it ends was longer

Rule = Literal["auto", "always", "never"]

log = logging.getLogger(__name__)


class ObjectStore:
    """Reads and writes entries as objects.

    Parameters
    ----------
    bucket
        Where the objects are.
    index
        Which there are.
    ttl
        Seconds an object is kept.
    most_bytes
        What all objects may take together; 0: anything.
    rule
        Which posteriors are kept beside the cache: see `worth_keeping`.

    """

    def __init__(self, bucket: Bucket, index: ObjectIndex, *, ttl: int, most_bytes: int, rule: Rule) -> None:
        self.bucket = bucket
        self.index = index
        self._ttl = ttl
        self._most_bytes = most_bytes
        self._rule = rule

    @classmethod
    def of(cls, settings: Settings, client: redis.Redis, counts: Counters) -> ObjectStore | None:
        """Return the store of these settings, None where there is none; raises `SettingsError`."""
        if not settings.store_url:
            return None
        bucket = Bucket(settings.store_url, seconds=settings.store_seconds, counts=counts)
        return cls(
            bucket,
            ObjectIndex(client),
            ttl=settings.cache_ttl,
            most_bytes=settings.store_bytes,
            rule=cast("Rule", settings.store_posteriors),
        )

    def worth_keeping(self, seconds: float, nbytes: int) -> bool:
        """Say whether what took so long to make is to be kept beside the cache: reading it takes less."""
        if self._rule == "auto":
            return seconds > READ_SECONDS + nbytes / READ_BYTES_PER_SECOND
        return self._rule == "always"

    def check_room(self, nbytes: int, what: str) -> None:
        """Raise the problem ``store-too-small`` when `nbytes` more are beyond what the objects may take."""
        stored = self.index.sums()[1] if self._most_bytes else 0
        if self._most_bytes and stored + nbytes > self._most_bytes:
            raise refuse(
                "store-too-small",
                422,
                f"{what} takes {nbytes:,} bytes; the object store has {stored:,} of {self._most_bytes:,} allowed.",
                "Ask for less, delete posteriors that are no longer needed, or raise GLLE_STORE_BYTES.",
                bytes=nbytes,
                allowed=self._most_bytes,
            )

    def put(self, entries: Mapping[str, Entry], *, cached: bool = False) -> None:
        """Write entries, and let the index name each once it is wholly there.

        Parameters
        ----------
        cached
            Whether they belong into the cache, too, when they are read again.

        Raises
        ------
        ProblemError
            ``store-too-small``, ``store-unavailable``, ``storage-full``: what was written of them stays.

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
        together: dict[str, tuple[StoredObject, PackedObject]] = {}
        room = PIECE
        for key, entry in entries.items():
            packed = PackedObject.of(key, entry)
            self.check_room(packed.size, key)
            start = len(packed.head)
            stored = StoredObject.new(key, size=packed.size, start=start, ttl=self._ttl, cached=cached)
            if self.bucket.is_local or packed.size > PIECE:
                self.bucket.write(stored.path, packed.parts(), packed.size)
                self._named(key, stored)
                continue
            if packed.size > room:
                self._put_together(together)
                together, room = {}, PIECE
            together[key] = stored, packed
            room -= packed.size
        self._put_together(together)

    def _put_together(self, several: Mapping[str, tuple[StoredObject, PackedObject]]) -> None:
        if several:
            self.bucket.write_small({stored.path: b"".join(packed.parts()) for stored, packed in several.values()})
        for key, (stored, _) in several.items():
            self._named(key, stored)

    def _named(self, key: str, stored: StoredObject) -> None:
        self._remove(self.index.add(key, stored))

    def find(self, keys: list[str]) -> list[StoredObject | None]:
        """Return the objects of entries by the index alone."""
        return self.index.find(keys)

    def get(self, key: str, stored: StoredObject) -> Entry | None:
        """Return an entry, None when it is not (wholly) there.

        It is read into memory: a file that is mapped could change after it was checked.
        """
        try:
            found = self._read(stored)
        except CorruptObjectError:
            found = None
        if found is None:
            return self._lost(key, stored)
        head, payload = found
        return Entry(head.meta, {name: head.array(name, payload) for name in head.arrays})

    def _read(self, stored: StoredObject) -> tuple[ObjectHead, Array] | None:
        """Read an object in pieces, each of them checked, into one place."""
        raw = self.bucket.read(stored.path, 0, min(stored.size, PIECE))
        if raw is None:
            return None
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

    def views(self, found: Sequence[tuple[str, StoredObject]]) -> list[Entry | None]:
        """Return entries of which large arrays are `worker.storage.object_store.lazy_array.LazyArray`s, read where they are looked at."""
        first = self.bucket.read_several([(one.path, min(one.size, one.start + BLOCK)) for _, one in found])
        return [self._view(key, stored, raw) for (key, stored), raw in zip(found, first, strict=True)]

    def _view(self, key: str, stored: StoredObject, raw: bytes | None) -> Entry | None:
        try:
            if raw is None:
                return self._lost(key, stored)
            payload = Payload(ObjectHead.read(raw), partial(self._fetch, key, stored))
            payload.keep(0, raw[payload.head.start :])
        except CorruptObjectError:
            return self._lost(key, stored)
        arrays: dict[str, Any] = {}  # sliced as arrays are
        for name, place in payload.head.arrays.items():
            sliced = LazyArray(payload, place)
            arrays[name] = sliced if place.start + place.nbytes > BLOCK else np.asarray(sliced)
        return Entry(payload.head.meta, arrays)

    def _fetch(self, key: str, stored: StoredObject, start: int, stop: int, keep: Callable[[bytes], None]) -> None:
        """Read bytes of an object whose reading has begun, and have them checked and kept.

        Raises
        ------
        ProblemError
            ``object-lost``: it is gone, or torn.

        """
        raw = self.bucket.read(stored.path, start, stop)
        with suppress(CorruptObjectError):
            if raw is not None and len(raw) == stop - start:
                keep(raw)
                return
        self._lost(key, stored)
        told = "An object was removed, or changed, while it was read."
        raise refuse("object-lost", 503, told, "Ask again: what it was is made again.")

    def heads(self, found: Sequence[tuple[str, StoredObject]]) -> list[dict[str, Any] | None]:
        """Return the metas of entries."""
        first = self.bucket.read_several([(one.path, one.start) for _, one in found])
        metas: list[dict[str, Any] | None] = []
        for (key, stored), raw in zip(found, first, strict=True):
            try:
                metas.append(None if raw is None else ObjectHead.read(raw).meta)
            except CorruptObjectError:
                metas.append(None)
            if metas[-1] is None:
                self._lost(key, stored)
        return metas

    def delete(self, keys: Iterable[str]) -> None:
        """Forget entries; objects that cannot be removed now are condemned, and no more to be read by anybody."""
        keys = list(keys)
        for key, stored in zip(keys, self.index.find(keys), strict=True):
            if stored is not None:
                self._forget(subject_of(key), [(key, stored)])

    def forget(self, subject: str) -> None:
        """Forget every entry about a subject."""
        self._forget(subject, list(self.index.of(subject)))

    def _forget(self, subject: str, entries: list[tuple[str, StoredObject]]) -> None:
        self.index.drop(subject, entries)
        self._remove(stored.path for _, stored in entries)

    def _lost(self, key: str, stored: StoredObject) -> Entry | None:
        """Return None, and forget an object that is not there, or not whole: what it was can be made again."""
        log.warning("Object %s is not there, or not whole", stored.path)
        self._forget(subject_of(key), [(key, stored)])
        return None

    def _remove(self, paths: Iterable[str]) -> None:
        """Remove condemned objects; when the store does not answer, `worker.operations.store_sweep` does it later."""
        try:
            for path in paths:
                self.bucket.remove(path)
                self.index.removed(path)
        except ProblemError as error:
            log.warning("Objects are condemned, but not removed yet: %s", error)
