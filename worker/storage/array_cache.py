"""The array cache: named arrays with a small head, published whole or not at all.

A value is one Redis hash, so it is evicted and expires as one: field `head` (JSON: the caller's meta, the
arrays' names, dtypes and shapes) and fields `0`, `1`, ... with the arrays' bytes, one after the other and cut into
pieces of 1 MB (larger pieces were slower, and past 512 MB a server hangs up). A small one is written in one
transaction; a larger one under a temporary key, renamed by one script that counts the pieces: a reader sees all of it
or none. The temporary key `{key}:tmp:...` has its key in braces, so that both lie on one server of a cluster.
"""

from __future__ import annotations

import json
import math
import re
import secrets
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from worker.base.problems import refuse
from worker.records.cache_entry import Array, Entry
from worker.records.ids import text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import redis
    from redis.client import Pipeline

    from worker.observability.counters import Counters

PIECE = 2**20
_LAYOUT = 2  # the arrays' bytes without a break between them; layout 1 began a piece with each array
_FIRST = ["head", "0"]  # most values are one piece: one round trip
TEMPORARY_SECONDS = 120  # an unfinished value of a killed writer

_PUBLISH = """
if redis.call('HLEN', KEYS[1]) ~= tonumber(ARGV[1]) then
  redis.call('UNLINK', KEYS[1])
  return 0
end
redis.call('EXPIRE', KEYS[1], ARGV[2])
redis.call('RENAME', KEYS[1], KEYS[2])
return 1
"""

MOST_INDEXED = 100_000  # keys of an index; one of more is given up, or it would take the room of what it names
TOGETHER = 1000
_SUBJECT = re.compile(r"(?:v\d+:)?[^:]+:([^:]+):")  # in a key, which may begin with the version of its format
_NOBODY = ""  # a set has to have a member

# KEYS: an index. ARGV: seconds it is kept, most keys, then keys.
_NOTE = """
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('SADD', KEYS[1], unpack(ARGV, 3))
redis.call('EXPIRE', KEYS[1], ARGV[1])
if redis.call('SCARD', KEYS[1]) > tonumber(ARGV[2]) then redis.call('UNLINK', KEYS[1]) end
return 1
"""


class ArrayCache:
    """Reads and writes entries.

    Parameters
    ----------
    client
        The cache's Redis, bytes in and out.
    budget
        Bytes the server may hold; an entry of more than half is refused before it evicts everything else.
    ttl
        Seconds an entry is kept when space allows.
    counts
        Where what is found and what is not is counted; None: nowhere.

    """

    def __init__(self, client: redis.Redis, *, budget: int, ttl: int, counts: Counters | None = None) -> None:
        self._client = client
        self._counts = counts
        self.budget = budget
        self._ttl = ttl
        self._index = CacheIndex(client, ttl)

    def check_size(self, nbytes: int, what: str) -> None:
        """Raise the problem ``cache-too-small`` when `nbytes` are more than half of the budget."""
        if nbytes > self.budget // 2:
            raise refuse(
                "cache-too-small",
                422,
                f"{what} takes {nbytes:,} bytes; the cache of {self.budget:,} bytes allows half of that.",
                "Ask for less at a time, raise GLLE_CACHE_BYTES and the cache server's memory, or set GLLE_STORE_URL.",
                bytes=nbytes,
                allowed=self.budget // 2,
            )

    def put(self, key: str, meta: dict[str, Any], arrays: Mapping[str, Array]) -> None:
        """Write an entry; readers see it when it is complete.

        Raises
        ------
        ProblemError
            ``cache-too-small``: larger than half the budget, or evicted while it was being written.

        """
        self.put_many({key: Entry(meta, dict(arrays))})

    def put_many(self, entries: Mapping[str, Entry]) -> None:
        """Write entries, each as `put` does; the small ones of them in one round trip."""
        large: list[tuple[str, str, str, list[bytes | memoryview]]] = []
        with self._client.pipeline(transaction=True) as together:
            self._index.note(together, entries)
            for key, entry in entries.items():
                whole = [np.asarray(array, order="C") for array in entry.arrays.values()]
                size = sum(array.nbytes for array in whole)
                self.check_size(size, key)
                generation = secrets.token_hex(8)
                kinds = [[name, array.dtype.str, array.shape] for name, array in zip(entry.arrays, whole, strict=True)]
                told = {"layout": _LAYOUT, "meta": entry.meta, "arrays": kinds, "generation": generation}
                head = json.dumps(told, allow_nan=False)
                pieces = list(_pieces(whole))
                if size > PIECE:
                    large.append((key, f"{{{key}}}:tmp:{generation}", head, pieces))
                    continue
                fields: dict[Any, Any] = {str(number): piece for number, piece in enumerate(pieces)}
                together.unlink(key)  # what is there may have more pieces
                together.hset(key, mapping={**fields, "head": head})
                together.expire(key, self._ttl)
            together.execute()
        for one in large:
            self._put_alone(*one)

    def _put_alone(self, key: str, temporary: str, head: str, pieces: list[bytes | memoryview]) -> None:
        """Write a large entry piece by piece, and publish it when it is whole."""
        self._client.hset(temporary, "head", head)
        self._client.expire(temporary, TEMPORARY_SECONDS)
        for number, piece in enumerate(pieces):
            self._client.hset(temporary, str(number), piece)  # sent uncopied
        if not self._publish(temporary, key, len(pieces) + 1):
            raise refuse(
                "cache-too-small",
                422,
                f"{key} was evicted while it was being written.",
                "Raise GLLE_CACHE_BYTES and the cache server's memory, or run fewer jobs at once.",
            )

    def _publish(self, temporary: str, key: str, fields: int) -> bool:
        """Give a value its name, if all its fields are there."""
        return bool(self._client.eval(_PUBLISH, 2, temporary, key, fields, self._ttl))

    def head(self, key: str) -> dict[str, Any] | None:
        """Return an entry's meta without its arrays, or None."""
        raw = self._client.hget(key, "head")
        return None if raw is None else dict(json.loads(raw)["meta"])

    def heads(self, keys: list[str]) -> list[dict[str, Any] | None]:
        """Return the metas of entries in one round trip, each as `head` does."""
        with self._client.pipeline(transaction=False) as together:
            for key in keys:
                together.hget(key, "head")
            found = together.execute()
        return [None if raw is None else dict(json.loads(raw)["meta"]) for raw in found]

    def get(self, key: str) -> Entry | None:
        """Return an entry, its arrays perhaps read-only, or None when it is not (wholly) there."""
        return self._entry(key, self._client.hmget(key, _FIRST))

    def get_many(self, keys: list[str]) -> list[Entry | None]:
        """Return entries, each as `get` does; those that are one piece in one round trip."""
        with self._client.pipeline(transaction=False) as together:
            for key in keys:
                together.hmget(key, _FIRST)
            return [self._entry(key, found) for key, found in zip(keys, together.execute(), strict=True)]

    def _entry(self, key: str, found: list[Any]) -> Entry | None:
        entry = self._put_together(key, found)
        if self._counts is not None:
            self._counts.add("cache_reads", "server", "miss" if entry is None else "hit")
        return entry

    def _put_together(self, key: str, found: list[Any]) -> Entry | None:
        """Put an entry together from its head and first piece, and the others, which are read now."""
        raw, first = found
        if raw is None:
            return None
        head = json.loads(raw)
        if head.get("layout") != _LAYOUT:  # of another version
            return None
        arrays: dict[str, Array] = {}
        number, rest = 1, memoryview(first or b"")
        for name, dtype, shape in head["arrays"]:
            size = np.dtype(dtype).itemsize * math.prod(shape)
            if size <= len(rest):  # as it came, uncopied
                arrays[name] = np.frombuffer(rest[:size], dtype).reshape(shape)
                rest = rest[size:]
                continue
            arrays[name] = array = np.empty(shape, dtype)
            view = _bytes(array)
            while view:
                if not rest:
                    piece = self._client.hget(key, str(number)) if first is not None else None
                    if not isinstance(piece, bytes):  # None: evicted
                        return None
                    number, rest = number + 1, memoryview(piece)
                taken = min(len(view), len(rest))
                view[:taken] = rest[:taken]
                view, rest = view[taken:], rest[taken:]
        # Overwritten while it was read: the pieces may be of two generations.
        if number > 1 and self._client.hget(key, "head") != raw:
            return None
        return Entry(head["meta"], arrays)

    def contains(self, keys: list[str]) -> list[bool]:
        """Say for each key whether it is there."""
        with self._client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.exists(key)
            return [bool(found) for found in pipeline.execute()]

    def delete(self, key: str) -> None:
        """Forget an entry, if it is there."""
        self._client.unlink(key)

    def create_index(self, subject: str) -> None:
        """Know from now on by name what is cached about a subject; nothing is yet."""
        self._index.create(subject)

    def forget(self, subject: str) -> None:
        """Forget every entry about a subject: each whose key is `<kind>:<subject>:...`."""
        self._index.forget(subject)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    @property
    def client(self) -> redis.Redis:
        """The server itself, for who looks at its health."""
        return self._client

    def info(self) -> dict[str, Any]:
        """Return what the server says of itself; raise a `redis.RedisError` unless it answers."""
        return dict(self._client.info())


def _bytes(array: Array) -> memoryview:
    """Return the bytes of a C-contiguous array, uncopied."""
    return array.reshape(-1).view(np.uint8).data


def _pieces(arrays: list[Array]) -> Iterator[bytes | memoryview]:
    """Cut the bytes of arrays, one after the other, into pieces; what lies within one array is not copied."""
    begun = b""
    for array in arrays:
        view = _bytes(array)
        if begun:
            missing = PIECE - len(begun)
            begun, view = begun + view[:missing], view[missing:]
            if len(begun) == PIECE:
                yield begun
                begun = b""
        while len(view) >= PIECE:
            yield view[:PIECE]
            view = view[PIECE:]
        if view:
            begun = bytes(view)
    if begun:
        yield begun


class CacheIndex:
    """The keys of the array cache by subject.

    Parameters
    ----------
    client
        The cache's Redis.
    ttl
        Seconds an entry is kept: an index is kept as long after its last entry.

    """

    def __init__(self, client: redis.Redis, ttl: int) -> None:
        self._client = client
        self._ttl = ttl

    def create(self, subject: str) -> None:
        """Begin the index of a subject about which there is nothing yet."""
        with self._client.pipeline() as together:
            together.sadd(_index(subject), _NOBODY)
            together.expire(_index(subject), self._ttl)
            together.execute()

    def note(self, pipeline: Pipeline, keys: Iterable[str]) -> None:
        """Have a pipeline note keys that it, or something after it, writes."""
        of: defaultdict[str, list[str]] = defaultdict(list)
        for key in keys:
            if (found := _SUBJECT.match(key)) is not None:
                of[found[1]].append(key)
        for subject, its in of.items():
            pipeline.eval(_NOTE, 1, _index(subject), str(self._ttl), str(MOST_INDEXED), *its)

    def forget(self, subject: str) -> None:
        """Unlink everything about a subject, and its index."""
        found = {text(raw) for raw in self._client.smembers(_index(subject))}
        keys = (
            sorted(found - {_NOBODY})
            if found
            else map(text, self._client.scan_iter(match=f"*:{subject}:*", count=TOGETHER))
        )
        self._unlink(keys)
        self._client.unlink(_index(subject))

    def _unlink(self, keys: Iterable[str]) -> None:
        some: list[str] = []
        for key in keys:
            some.append(key)
            if len(some) == TOGETHER:
                self._client.unlink(*some)
                some.clear()
        if some:
            self._client.unlink(*some)


def _index(subject: str) -> str:
    return f"keys:{subject}"
