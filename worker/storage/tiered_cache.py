"""Array cache with an object store behind it, for entries too large for the cache or worth keeping.

The tier of an entry is ``cache``, where it may be evicted; ``store``, past the cache, so that a large result does not
evict everything else; or ``both``. An entry too large for the cache goes to the store in any case. Without a store this
is an `ArrayCache`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from worker.base.problems import ProblemError
from worker.connections.event_loop import in_thread
from worker.records.cache_entry import Entry
from worker.storage.array_cache import ArrayCache
from worker.storage.object_store.index import subject_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import redis

    from worker.observability.counters import Counters
    from worker.records.cache_entry import Array
    from worker.storage.object_store.index import StoredObject
    from worker.storage.object_store.store import ObjectStore

    Objects = Mapping[str, StoredObject]  # by key
    Write = Callable[[Mapping[str, Entry]], None]

T = TypeVar("T")
K = TypeVar("K")
Tier = Literal["cache", "store", "both"]

HEAD = "#head"  # suffix of the cached metadata of a stored entry: lists of draws need no request to the store

log = logging.getLogger(__name__)


class TieredCache(ArrayCache):
    """Array cache with an object store behind it.

    Parameters
    ----------
    client, budget, ttl, counts
        As for `ArrayCache`.
    objects
        The store; None: the cache alone.

    """

    def __init__(
        self,
        client: redis.Redis,
        *,
        budget: int,
        ttl: int,
        counts: Counters | None = None,
        objects: ObjectStore | None = None,
    ) -> None:
        super().__init__(client, budget=budget, ttl=ttl, counts=counts)
        self.objects = objects

    def check_size(self, nbytes: int, name: str) -> None:
        """Raise ``cache-too-small``, or with a store ``store-too-small``, if there is no room."""
        if self.objects is None:
            super().check_size(nbytes, name)
        elif not self.fits(nbytes):
            self.objects.check_room(nbytes, name)

    def fits(self, nbytes: int) -> bool:
        """Return whether the cache takes so many bytes, of one entry or of entries that are read together."""
        return nbytes <= self.budget // 2

    def tier_by_size(self, nbytes: int) -> Tier:
        """Return the tier of entries that are read together; `nbytes` is their total."""
        return "cache" if self.objects is None or self.fits(nbytes) else "store"

    def tier_by_cost(self, seconds: float, nbytes: int) -> Tier:
        """Return the tier of an entry that took `seconds` to compute."""
        return "both" if self.objects is not None and self.objects.worth_keeping(seconds, nbytes) else "cache"

    def put(self, key: str, meta: dict[str, Any], arrays: Mapping[str, Array], tier: Tier = "cache") -> None:
        """Write an entry; raises as `put_many`."""
        self.put_many({key: Entry(meta, dict(arrays))}, tier)

    def put_many(self, entries: Mapping[str, Entry], tier: Tier = "cache") -> None:
        """Write entries to their tier; raises as `put_with`."""
        self.put_with(super().put_many, entries, tier)

    def put_with(self, write: Write, entries: Mapping[str, Entry], tier: Tier) -> None:
        """Write entries to their tier.

        Parameters
        ----------
        write
            Writes those of the cache.

        Raises
        ------
        ProblemError
            ``cache-too-small``; ``store-unavailable`` and the like for entries of the store alone. For an entry that
            is in the cache as well, a failure of the store is only logged.

        """
        if self.objects is None:
            write(entries)
            return
        stored = {key: entry for key, entry in entries.items() if tier == "store" or not self.fits(entry.nbytes)}
        cached = {key: entry for key, entry in entries.items() if key not in stored}
        if stored:
            self.objects.put(stored)
            super().put_many({key + HEAD: Entry(entry.meta, {}) for key, entry in stored.items()})
        if cached:
            write(cached)
        if cached and tier == "both":
            try:
                self.objects.put(cached, cached=True)
            except ProblemError as error:
                log.warning("%s is in the cache alone: %s", ", ".join(cached), error)

    def get(self, key: str) -> Entry | None:
        """Return an entry, its arrays perhaps read-only, or None if a part is missing."""
        return super().get(key) or self.stored_entries([key])[0]

    def get_many(self, keys: list[str]) -> list[Entry | None]:
        """Return entries, each as `get` does."""
        return fill(keys, super().get_many(keys), self.stored_entries)

    def view(self, key: str) -> Entry | None:
        """Return an entry as `views` does."""
        return super().get(key) or self.stored_views([key])[0]

    def views(self, keys: list[str]) -> list[Entry | None]:
        """Return entries for partial reads: large arrays of the store are `LazyArray`s."""
        return fill(keys, super().get_many(keys), self.stored_views)

    def heads(self, keys: list[str]) -> list[dict[str, Any] | None]:
        """Return the metadata of entries, each as `head` does."""
        return fill(keys, super().heads(keys), self.stored_heads)

    def contains(self, keys: list[str]) -> list[bool]:
        """Return for each key whether it has an entry."""
        cached: list[bool | None] = [is_cached or None for is_cached in super().contains(keys)]
        return list(map(bool, fill(keys, cached, self.stored)))

    def stored_entries(self, keys: list[str], write: Write | None = None) -> list[Entry | None]:
        """Return entries of the store; `write` caches evicted ones of tier ``both`` again."""
        write = write or super().put_many

        def read(objects: ObjectStore, stored: Objects) -> dict[str, Entry | None]:
            entries = in_thread(objects.entries, stored)
            for key, entry in entries.items():
                if stored[key].cached and entry is not None and self.fits(entry.nbytes):
                    write({key: entry})
            return entries

        return self._from_store(keys, read)

    def stored_views(self, keys: list[str]) -> list[Entry | None]:
        """Return entries of the store for partial reads, as `views` does."""
        return self._from_store(keys, lambda objects, stored: in_thread(objects.views, stored))

    def stored_heads(self, keys: list[str]) -> list[dict[str, Any] | None]:
        """Return the metadata of entries of the store."""

        def read(objects: ObjectStore, stored: Objects) -> dict[str, dict[str, Any] | None]:
            cached = dict(zip(stored, super(TieredCache, self).heads([key + HEAD for key in stored]), strict=True))
            missing = {key: item for key, item in stored.items() if cached[key] is None}
            return {**cached, **(in_thread(objects.heads, missing) if missing else {})}

        return self._from_store(keys, read)

    def stored(self, keys: list[str]) -> list[bool]:
        """Return for each key whether the store has an entry."""
        found = {} if self.objects is None else self.objects.index.find(keys)
        return [key in found for key in keys]

    def delete(self, key: str) -> None:
        """Remove an entry, if it exists."""
        super().delete(key)
        super().delete(key + HEAD)
        if self.objects is not None:
            in_thread(self.objects.remove, subject_of(key), [key])

    def keys_of(self, subject: str) -> set[str]:
        """Return the keys of a subject's entries in the cache and the store."""
        cached = set(super().keys_of(subject))
        return cached if self.objects is None else cached | {key for key, _ in self.objects.index.of(subject)}

    def forget(self, subject: str) -> None:
        """Remove all entries of a subject."""
        super().forget(subject)
        if self.objects is not None:
            in_thread(self.objects.remove, subject)

    def _from_store(
        self, keys: list[str], read: Callable[[ObjectStore, Objects], dict[str, T | None]]
    ) -> list[T | None]:
        """Return the store's values in the order of the keys."""
        if self.objects is None or not keys:
            return [None] * len(keys)
        stored = self.objects.index.find(keys)
        values = read(self.objects, stored) if stored else {}
        if self._counts is not None:
            hits = sum(value is not None for value in values.values())
            self._counts.add("cache_reads", "store", "hit", by=hits)
            self._counts.add("cache_reads", "store", "miss", by=len(keys) - hits)
        return [values.get(key) for key in keys]


def fill(
    keys: Sequence[K], values: Sequence[T | None], read: Callable[[list[K]], Sequence[T | None]]
) -> list[T | None]:
    """Replace each None among the values of keys by what `read` returns for its key."""
    missing = [key for key, value in zip(keys, values, strict=True) if value is None]
    later = dict(zip(missing, read(missing), strict=True)) if missing else {}
    return [later[key] if value is None else value for key, value in zip(keys, values, strict=True)]
