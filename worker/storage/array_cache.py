"""Array cache: named arrays with JSON metadata in Redis, with the object store behind it.

An entry is visible completely or not at all. It is two fields of a Redis hash: `head:` is JSON, the caller's metadata
and the arrays' names, dtypes and shapes; `data:` is the arrays' concatenated bytes. The draws of a lane group share one
hash, and the number of a draw ends the names of its fields (`worker.records.draws.place_of`). An entry larger than
`PIECE` has a separate hash under its key, with the pieces of each array in the fields `0`, `1`, ... It is written under
the temporary key `key:tmp:...`, which is renamed if it has all pieces. In the hash of a lane group, an empty head
refers to such a separate hash.

The hashes about a subject, a posterior or a data set, are named `<kind>:<subject>:...`. A deletion finds them by a scan
of all names, so that a write needs no index: a millisecond for some thousand names.

With a store, entries that are too large for the cache, each or together, go past it, so that they do not evict
everything else. An entry that takes longer to compute than to read from the store is in both.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import redis

from worker.base.problems import ProblemError, refuse
from worker.records.cache_entry import PIECE, Array, Entry, bytes_of, entry_content, pack_entry, parse_entry
from worker.records.draws import place_of
from worker.records.ids import text
from worker.storage.object_store.results import subject_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from worker.connections.loop_commands import LoopCommands
    from worker.observability.counters import Counters
    from worker.records.draws import DrawAddress
    from worker.storage.object_store.results import ResultStore, StoredObject

    Objects = Mapping[str, StoredObject]  # by key
    Fields = list[bytes | None]

T = TypeVar("T")

TEMPORARY_SECONDS = 120  # lifetime of a killed writer's entry
SCANNED = 1000  # keys of one command
_ATTEMPTS = 3  # at a large entry whose pieces get lost
_SEPARATE = b""  # the head of an entry with a separate hash
log = logging.getLogger(__name__)


@dataclass(eq=False)
class ArrayCache:
    """Cache of entries in one Redis, with an object store behind it.

    Parameters
    ----------
    client
        The cache's Redis, bytes in and out.
    budget
        Bytes of the server; it takes no entry of more than half, because that would evict all others.
    ttl
        Lifetime of an entry in seconds, if space allows.
    counts
        Counters of hits and misses.
    objects
        The store; None: the cache alone.

    """

    client: redis.Redis
    budget: int
    ttl: int
    counts: Counters
    objects: ResultStore | None = None

    def check_size(self, nbytes: int, name: str) -> None:
        """Raise ``cache-too-small``, or with a store ``store-too-small``, if there is no room for `nbytes`.

        `name` begins the detail.
        """
        if self.fits(nbytes):
            return
        if self.objects is not None:
            self.objects.check_room(nbytes, name)
            return
        raise refuse(
            "cache-too-small",
            422,
            f"{name} takes {nbytes:,} bytes; the cache of {self.budget:,} bytes allows half of that.",
            "Ask for less at a time, raise GLLE_CACHE_BYTES and the cache server's memory, or set GLLE_STORE_URL.",
            bytes=nbytes,
            allowed=self.budget // 2,
        )

    def fits(self, nbytes: int) -> bool:
        """Return whether the cache takes so many bytes, of one entry or of entries that are read together."""
        return nbytes <= self.budget // 2

    def put(
        self, key: str, meta: dict[str, Any], arrays: Mapping[str, Array], *, together: int = 0, seconds: float = 0.0
    ) -> None:
        """Write an entry that took `seconds` to compute; otherwise as `put_many`."""
        self.put_many({key: Entry(meta, dict(arrays))}, together=together, seconds=seconds)

    def put_many(self, entries: Mapping[str, Entry], *, together: int = 0, seconds: float = 0.0) -> None:
        """Write entries to the cache, to the store, or to both.

        Parameters
        ----------
        together
            Bytes of all entries that are read together with these.
        seconds
            Time that each took to compute.

        Raises
        ------
        ProblemError
            ``cache-too-small``: larger than half the budget, or evicted during the write. ``store-unavailable`` and
            the like for entries of the store alone. For an entry that is in the cache as well, a failure of the store
            is only logged.

        """
        if self.objects is None:
            for key, entry in entries.items():
                self.check_size(entry.nbytes, key)
            self._write(entries)
            return
        stored = {key: entry for key, entry in entries.items() if not self.fits(max(together, entry.nbytes))}
        cached = {key: entry for key, entry in entries.items() if key not in stored}
        if stored:
            self.objects.put(stored)
        self._write(cached)
        costly = {key: entry for key, entry in cached.items() if self.objects.worth_keeping(seconds, entry.nbytes)}
        try:
            if costly:
                self.objects.put(costly, cached=True)
        except ProblemError as error:
            log.warning("%s is in the cache alone: %s", ", ".join(costly), error)

    def get(self, key: str) -> Entry | None:
        """Return an entry, its arrays perhaps read-only, or None if a part is missing."""
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[str]) -> list[Entry | None]:
        """Return entries, each as `get` does; the small ones in one round trip, those of one hash by one command."""
        replies = self._read_fields(keys, "head", "data")
        read_back = {key: self._assemble(key, head, data) for key, (head, data) in replies.items()}
        entries = {key: entry for key, entry in read_back.items() if entry is not None}
        cached = len(entries)
        found = self._fill_from_store(keys, entries, self._read_stored)
        self.count_reads("server", cached, len(replies) - cached)
        if self.objects is not None:
            self.count_reads("store", len(entries) - cached, len(replies) - len(entries))
        return found

    def head(self, key: str) -> dict[str, Any] | None:
        """Return an entry's metadata without its arrays, or None."""
        return self.heads([key])[0]

    def heads(self, keys: Sequence[str]) -> list[dict[str, Any] | None]:
        """Return the metadata of entries, each as `head` does."""
        cached = {key: json.loads(head)["meta"] for key, (head,) in self._read_fields(keys, "head").items() if head}
        return self._fill_from_store(keys, cached, lambda objects, stored: objects.heads(stored))

    def contains(self, keys: Sequence[str]) -> list[bool]:
        """Return for each key whether it has an entry."""
        hashes = {place_of(key)[0] for key in keys}
        is_empty = len(hashes) > 1 and not self.client.exists(*hashes)  # one command, as for draws of a new seed
        replies = {} if is_empty else self._read_fields(keys, "head")
        present = {key: True for key, (head,) in replies.items() if head}
        found: list[bool | None] = self._fill_from_store(keys, present, lambda _, stored: dict.fromkeys(stored, True))
        return [is_found is True for is_found in found]

    def delete(self, key: str) -> None:
        """Remove an entry, if it exists."""
        place, member = place_of(key)
        self.client.hdel(place, f"head:{member}", f"data:{member}")
        self.client.unlink(key)
        if self.objects is not None:
            self.objects.remove(subject_of(key), [key])

    def keys_of(self, subject: str) -> set[str]:
        """Return the keys of a subject's entries in the store, and its hashes in the cache."""
        stored = () if self.objects is None else (key for key, _ in self.objects.index.of(subject))
        return {*self._hashes_of(subject), *stored}

    def forget(self, subject: str) -> None:
        """Remove all entries about a subject."""
        remaining = self._hashes_of(subject)
        while batch := list(islice(remaining, SCANNED)):
            self.client.unlink(*batch)
        if self.objects is not None:
            self.objects.remove(subject)

    def close(self) -> None:
        """Close the connections."""
        self.client.close()

    def info(self) -> dict[str, Any]:
        """Return the server's INFO; raises `redis.RedisError`."""
        return dict(self.client.info())

    def _write(self, entries: Mapping[str, Entry]) -> None:
        """Write entries to the server, the small ones in one round trip; raises ``cache-too-small``."""
        hashes: defaultdict[str, dict[Any, Any]] = defaultdict(dict)
        large = {key: entry for key, entry in entries.items() if entry.nbytes > PIECE}
        for key, entry in entries.items():
            place, member = place_of(key)
            if key not in large or place != key:
                head, data = (_SEPARATE, b"") if key in large else pack_entry(entry)
                hashes[place] |= {f"head:{member}": head, f"data:{member}": data}
        with self.client.pipeline(transaction=False) as pipeline:
            for name, fields in hashes.items():
                pipeline.hset(name, mapping=fields)
                pipeline.expire(name, self.ttl)
            if hashes:
                pipeline.execute()
        for key, entry in large.items():
            self._write_large(key, entry)

    def _write_large(self, key: str, entry: Entry) -> None:
        """Write an entry piece by piece, then publish it; again if pieces were lost, as a restart loses them."""
        generation = secrets.token_hex(8)
        temporary = f"{key}:tmp:{generation}"
        head = json.dumps({**entry_content(entry), "generation": generation}, allow_nan=False)
        views = [bytes_of(np.asarray(array, order="C")) for array in entry.arrays.values()]
        pieces = [view[start : start + PIECE] for view in views for start in range(0, len(view), PIECE)]
        for _ in range(_ATTEMPTS):
            self.client.hset(temporary, "head:", head)
            self.client.expire(temporary, TEMPORARY_SECONDS)
            for number, piece in enumerate(pieces):
                self.client.hset(temporary, str(number), piece)  # sent uncopied
            if self.client.hlen(temporary) == len(pieces) + 1:
                with suppress(redis.ResponseError):  # evicted since
                    self.client.rename(temporary, key)
                    self.client.expire(key, self.ttl)
                    return
            self.client.unlink(temporary)
        raise refuse(
            "cache-too-small",
            422,
            f"{key} was evicted while it was being written.",
            "Raise GLLE_CACHE_BYTES and the cache server's memory, or run fewer jobs at once.",
        )

    def _read_stored(self, objects: ResultStore, stored: Objects) -> dict[str, Entry | None]:
        """Return entries of the store; those that belong in the cache are written to it again."""
        entries = objects.entries(stored)
        evicted = {key: entry for key, entry in entries.items() if stored[key].cached and entry is not None}
        self._write({key: entry for key, entry in evicted.items() if self.fits(entry.nbytes)})
        return entries

    def count_reads(self, place: str, hits: int, misses: int) -> None:
        """Count reads of entries in the cache's server or in the store."""
        for outcome, number in (("hit", hits), ("miss", misses)):
            if number:
                self.counts.add("cache_reads", place, outcome, by=number)

    def _read_fields(self, keys: Sequence[str], *names: str) -> dict[str, Fields]:
        """Return the named fields of each entry, of its separate hash if it has one."""
        replies = self._fetch({key: place_of(key) for key in keys}, names)
        return replies | self._fetch({key: (key, "") for key, reply in replies.items() if reply[0] == _SEPARATE}, names)

    def _fetch(self, places: Mapping[str, tuple[str, str]], names: Sequence[str]) -> dict[str, Fields]:
        """Return the named fields of entries, with one command per hash, in one round trip."""
        members: defaultdict[str, list[str]] = defaultdict(list)
        for key, (place, _) in places.items():
            members[place].append(key)
        commands = [
            (place, [f"{name}:{places[key][1]}" for key in keys for name in names]) for place, keys in members.items()
        ]
        if len(commands) == 1:  # a pipeline takes a third longer
            replies: list[list[Any]] = [self.client.hmget(*commands[0])]
        else:
            with self.client.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.hmget(*command)
                replies = pipeline.execute() if commands else []
        width = len(names)
        return {
            key: reply[width * i : width * (i + 1)]
            for keys, reply in zip(members.values(), replies, strict=True)
            for i, key in enumerate(keys)
        }

    def _assemble(self, key: str, head: bytes | None, data: bytes | None) -> Entry | None:
        """Return an entry of the values of its fields; read the pieces of a large one."""
        if not head or data is not None:
            return parse_entry(head, data)
        content = json.loads(head)
        arrays: dict[str, Array] = {}
        numbers = count()
        for name, dtype, shape in content["arrays"]:
            arrays[name] = np.empty(shape, dtype)
            view = bytes_of(arrays[name])
            for start in range(0, len(view), PIECE):
                piece: Any = self.client.hget(key, str(next(numbers)))
                if piece is None or len(piece) != len(view[start : start + PIECE]):  # evicted
                    return None
                view[start : start + PIECE] = piece
        # Overwritten during the read: the pieces may be of two generations.
        return Entry(content["meta"], arrays) if self.client.hget(key, "head:") == head else None

    def _fill_from_store(
        self, keys: Sequence[str], cached: dict[str, T], read: Callable[[ResultStore, Objects], Mapping[str, T | None]]
    ) -> list[T | None]:
        """Add the values in the store to the cached ones; return them in the order of the keys."""
        missing = [key for key in dict.fromkeys(keys) if key not in cached]
        if self.objects is not None and missing and (stored := self.objects.index.find(missing)):
            found = read(self.objects, stored)
            cached.update((key, value) for key, value in found.items() if value is not None)
        return [cached.get(key) for key in keys]

    def _hashes_of(self, subject: str) -> Iterator[str]:
        """Yield the names of a subject's hashes, perhaps one of them twice."""
        return map(text, self.client.scan_iter(match=f"*:{subject}:*", count=SCANNED))


class DrawCache:
    """Draws in the cache of all entries; the methods are those of `ArrayCache`.

    `arrays_id` names a posterior's arrays (`PosteriorRecord.arrays_id`).
    """

    def __init__(self, cache: ArrayCache, commands: LoopCommands) -> None:
        self._cache = cache
        self._commands = commands

    async def read(self, arrays_id: str, key: DrawAddress) -> Entry | None:
        """Return a draw, or None; a thread reads a large one, and looks in the object store."""
        head, data = await self._commands.call(
            "HMGET", key.group_key(arrays_id), f"head:{key.index}", f"data:{key.index}"
        )
        if head is None and self._cache.objects is None:
            self._cache.count_reads("server", 0, 1)
            return None
        if not head or data is None:
            return await asyncio.to_thread(self.get, arrays_id, key)
        self._cache.count_reads("server", 1, 0)
        return parse_entry(head, data)

    def get(self, arrays_id: str, key: DrawAddress) -> Entry | None:
        """Return a draw, or None."""
        return self._cache.get(key.cache_key(arrays_id))

    def get_many(self, arrays_id: str, keys: Sequence[DrawAddress]) -> list[Entry | None]:
        """Return draws, each as `get` does."""
        return self._cache.get_many(_cache_keys(arrays_id, keys))

    def heads(self, arrays_id: str, keys: Sequence[DrawAddress]) -> list[dict[str, Any] | None]:
        """Return the metadata of draws, None for a missing one."""
        return self._cache.heads(_cache_keys(arrays_id, keys))

    def contains(self, arrays_id: str, keys: Sequence[DrawAddress]) -> list[bool]:
        """Return for each draw whether it is cached."""
        return self._cache.contains(_cache_keys(arrays_id, keys))

    def put(self, arrays_id: str, draws: Mapping[DrawAddress, Entry], together: int = 0) -> None:
        """Write draws; raises as `ArrayCache.put_many`."""
        self._cache.put_many({key.cache_key(arrays_id): entry for key, entry in draws.items()}, together=together)


def _cache_keys(arrays_id: str, keys: Iterable[DrawAddress]) -> list[str]:
    return [key.cache_key(arrays_id) for key in keys]
