"""The array cache and, behind it, an object store: what is too large for the first, or to be kept, is in the second.

Callers see one cache. `keep` says of an entry where it belongs: ``cache``, where it is evicted when there is no room;
``store``, past the cache, so that one large result does not drive everything out of it; ``both``. One that is too large
for the cache is stored whatever was said. Without a store all is as `ArrayCache` does it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from worker.base.problems import ProblemError
from worker.records.cache_entry import Entry
from worker.storage.array_cache import ArrayCache

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import redis

    from worker.observability.counters import Counters
    from worker.records.cache_entry import Array
    from worker.storage.object_store.index import StoredObject
    from worker.storage.object_store.store import ObjectStore

    Found = list[tuple[str, StoredObject]]

T = TypeVar("T")
Tier = Literal["cache", "store", "both"]

_HEAD = "#head"  # of a stored entry, in the cache: thousands of draws are described without asking the store

log = logging.getLogger(__name__)


class TieredCache(ArrayCache):
    """An `ArrayCache` with an object store behind it.

    Parameters
    ----------
    client, budget, ttl, counts
        As of `ArrayCache`.
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

    def check_size(self, nbytes: int, what: str) -> None:
        """Raise ``cache-too-small``, or where there is a store ``store-too-small``, when there is no room."""
        if self.objects is None:
            super().check_size(nbytes, what)
        elif not self.fits(nbytes):
            self.objects.check_room(nbytes, what)

    def fits(self, nbytes: int) -> bool:
        """Say whether so many bytes, of one entry or of those read together, belong into the cache."""
        return nbytes <= self.budget // 2

    def tier_by_size(self, nbytes: int) -> Tier:
        """Return where entries belong that are read together, and take so many bytes together."""
        return "cache" if self.objects is None or self.fits(nbytes) else "store"

    def tier_by_cost(self, seconds: float, nbytes: int) -> Tier:
        """Return where an entry belongs that took so many seconds to make."""
        return "both" if self.objects is not None and self.objects.worth_keeping(seconds, nbytes) else "cache"

    def put(self, key: str, meta: dict[str, Any], arrays: Mapping[str, Array], keep: Tier = "cache") -> None:
        """Write an entry; readers see it when it is complete; raises as `put_many`."""
        self.put_many({key: Entry(meta, dict(arrays))}, keep)

    def put_many(self, entries: Mapping[str, Entry], keep: Tier = "cache") -> None:
        """Write entries where they belong.

        Raises
        ------
        ProblemError
            ``cache-too-small``; ``store-unavailable`` and the like for what is in the store alone. One that is in
            the cache, too, is only logged not to be stored.

        """
        if self.objects is None:
            super().put_many(entries)
            return
        past = {key: entry for key, entry in entries.items() if keep == "store" or not self.fits(_size(entry))}
        rest = {key: entry for key, entry in entries.items() if key not in past}
        if past:
            self.objects.put(past)
            self._keep_heads(past)
        if rest:
            super().put_many(rest)
        if rest and keep == "both":
            try:
                self.objects.put(rest, cached=True)
            except ProblemError as error:
                log.warning("%s is in the cache alone: %s", ", ".join(rest), error)

    def get(self, key: str) -> Entry | None:
        """Return an entry, its arrays perhaps read-only, or None when it is (wholly) in neither."""
        return super().get(key) or self._behind([key], self._whole)[0]

    def get_many(self, keys: list[str]) -> list[Entry | None]:
        """Return entries, each as `get` does."""
        return self._filled(keys, super().get_many(keys), self._whole)

    def view(self, key: str) -> Entry | None:
        """Return an entry as `views` does."""
        return super().get(key) or self._behind([key], self._sliced)[0]

    def views(self, keys: list[str]) -> list[Entry | None]:
        """Return entries to look at parts of: large arrays of the store are `worker.storage.object_store.lazy_array.LazyArray`s."""
        return self._filled(keys, super().get_many(keys), self._sliced)

    def head(self, key: str) -> dict[str, Any] | None:
        """Return an entry's meta without its arrays, or None."""
        return self.heads([key])[0]

    def heads(self, keys: list[str]) -> list[dict[str, Any] | None]:
        """Return the metas of entries, each as `head` does."""
        return self._filled(keys, super().heads(keys), self._stored_heads)

    def contains(self, keys: list[str]) -> list[bool]:
        """Say for each key whether it is there."""
        found = super().contains(keys)
        if self.objects is None or all(found):
            return found
        stored = self.objects.find(keys)
        return [there or one is not None for there, one in zip(found, stored, strict=True)]

    def delete(self, key: str) -> None:
        """Forget an entry, if it is there."""
        super().delete(key)
        super().delete(key + _HEAD)
        if self.objects is not None:
            self.objects.delete([key])

    def forget(self, subject: str) -> None:
        """Forget every entry about a subject."""
        super().forget(subject)
        if self.objects is not None:
            self.objects.forget(subject)

    def _filled(
        self, keys: list[str], found: list[T | None], look: Callable[[Found], list[T | None]]
    ) -> list[T | None]:
        """Return what was found, and for what was not what the store has."""
        missing = [key for key, one in zip(keys, found, strict=True) if one is None]
        more = dict(zip(missing, self._behind(missing, look), strict=True))
        return [more[key] if one is None else one for key, one in zip(keys, found, strict=True)]

    def _behind(self, keys: list[str], look: Callable[[Found], list[T | None]]) -> list[T | None]:
        """Return what the store has of entries, in their order."""
        if self.objects is None or not keys:
            return [None] * len(keys)
        indexed = zip(keys, self.objects.find(keys), strict=True)
        stored = [(key, one) for key, one in indexed if one is not None]
        found = dict(zip([key for key, _ in stored], look(stored), strict=True)) if stored else {}
        if self._counts is not None:
            hits = sum(one is not None for one in found.values())
            self._counts.add("cache_reads", "store", "hit", by=hits)
            self._counts.add("cache_reads", "store", "miss", by=len(keys) - hits)
        return [found.get(key) for key in keys]

    def _whole(self, stored: Found) -> list[Entry | None]:
        """Read entries, and put those back into the cache that belong there."""
        assert self.objects is not None
        entries = [self.objects.get(key, one) for key, one in stored]
        for (key, one), entry in zip(stored, entries, strict=True):
            if one.cached and entry is not None and self.fits(_size(entry)):
                super().put_many({key: entry})
        return entries

    def _sliced(self, stored: Found) -> list[Entry | None]:
        assert self.objects is not None
        return self.objects.views(stored)

    def _stored_heads(self, stored: Found) -> list[dict[str, Any] | None]:
        """Return metas, from the cache where they are the index's object's own."""
        assert self.objects is not None
        near = super().heads([key + _HEAD for key, _ in stored])
        known = {
            key: head["meta"]
            for (key, one), head in zip(stored, near, strict=True)
            if head is not None and head["path"] == one.path
        }
        far = [(key, one) for key, one in stored if key not in known]
        read = zip([key for key, _ in far], self.objects.heads(far) if far else [], strict=True)
        found: dict[str, dict[str, Any] | None] = {**known, **dict(read)}
        return [found[key] for key, _ in stored]

    def _keep_heads(self, entries: Mapping[str, Entry]) -> None:
        """Put the heads of stored entries into the cache."""
        assert self.objects is not None
        paths = self.objects.find(list(entries))
        super().put_many(
            {
                key + _HEAD: Entry({"path": one.path, "meta": entry.meta}, {})
                for (key, entry), one in zip(entries.items(), paths, strict=True)
                if one is not None  # deleted meanwhile
            }
        )


def _size(entry: Entry) -> int:
    return sum(array.nbytes for array in entry.arrays.values())
