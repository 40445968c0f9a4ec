"""Array cache: named arrays with JSON metadata, visible completely or not at all.

An entry is one Redis hash, so Redis evicts it as a whole. Field `head` is JSON: the caller's metadata, and the arrays'
names, dtypes and shapes. Fields `0`, `1`, ... are the arrays' concatenated bytes in pieces of `PIECE`. A small entry is
written in one transaction. A larger one is written under the temporary key `{key}:tmp:...`, and one script counts its
pieces and renames it. The braces put both keys on one server of a cluster.

The index of a subject, a posterior or a data set, lists the keys `<kind>:<subject>:...`, so that `forget` need not scan
all keys. It is created before the subject's first entry, and a key is added before its entry is written, so the index
is complete. An evicted index is not created again; `forget` then scans all keys.
"""

from __future__ import annotations

import json
import math
import re
import secrets
from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from worker.base.problems import refuse
from worker.connections.cluster import Cluster
from worker.records.cache_entry import PIECE, Array, Entry
from worker.records.ids import text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import redis
    from redis.client import Pipeline

    from worker.observability.counters import Counters

_FIRST = ["head", "0"]  # one round trip, because most entries are one piece
TEMPORARY_SECONDS = 120  # lifetime of a killed writer's entry
_ATTEMPTS = 3  # at a large entry whose pieces get lost

_PUBLISH = """
if redis.call('HLEN', KEYS[1]) ~= tonumber(ARGV[1]) then
  redis.call('UNLINK', KEYS[1])
  return 0
end
redis.call('EXPIRE', KEYS[1], ARGV[2])
redis.call('RENAME', KEYS[1], KEYS[2])
return 1
"""

MOST_INDEXED = 100_000  # keys of an index; a larger one is dropped, because it takes the room of its entries
SCANNED = 1000  # keys of one command
_SUBJECT = re.compile(r"(?:v\d+:)?[^:]+:([^:]+):")  # in a key, which may begin with its schema
_PLACEHOLDER = ""  # a set needs a member

# KEYS: an index. ARGV: its lifetime in seconds, the largest number of keys, then keys.
_ADD_TO_INDEX = """
if redis.call('EXPIRE', KEYS[1], ARGV[1]) == 0 then return 0 end
local added = redis.call('SADD', KEYS[1], unpack(ARGV, 3))
if added > 0 and redis.call('SCARD', KEYS[1]) > tonumber(ARGV[2]) then redis.call('UNLINK', KEYS[1]) end
return 1
"""

# KEYS: any, then hashes. ARGV: their lifetime in seconds. An empty field keeps the expiry until the fields are written.
_CREATE_HASHES = """
for i = 2, #KEYS do
  redis.call('HSETNX', KEYS[i], '', '')
  redis.call('EXPIRE', KEYS[i], ARGV[1])
end
"""


class ArrayCache:
    """Cache of entries in one Redis.

    Parameters
    ----------
    client
        The cache's Redis, bytes in and out.
    budget
        Bytes of the server; an entry of more than half is refused, because it would evict all others.
    ttl
        Lifetime of an entry in seconds, if space allows.
    counts
        Counters of hits and misses, or None.

    """

    def __init__(self, client: redis.Redis, *, budget: int, ttl: int, counts: Counters | None = None) -> None:
        self.client = client
        self.budget = budget
        self.ttl = ttl
        self._counts = counts

    def check_size(self, nbytes: int, name: str) -> None:
        """Raise ``cache-too-small`` if `nbytes` exceed half of the budget; `name` begins the detail."""
        if nbytes > self.budget // 2:
            raise refuse(
                "cache-too-small",
                422,
                f"{name} takes {nbytes:,} bytes; the cache of {self.budget:,} bytes allows half of that.",
                "Ask for less at a time, raise GLLE_CACHE_BYTES and the cache server's memory, or set GLLE_STORE_URL.",
                bytes=nbytes,
                allowed=self.budget // 2,
            )

    def put(self, key: str, meta: dict[str, Any], arrays: Mapping[str, Array]) -> None:
        """Write an entry.

        Raises
        ------
        ProblemError
            ``cache-too-small``: larger than half the budget, or evicted during the write.

        """
        self.put_many({key: Entry(meta, dict(arrays))})

    def put_many(self, entries: Mapping[str, Entry]) -> None:
        """Write entries, the small ones in one round trip; raises as `put`."""
        large: list[tuple[str, str, str, list[bytes | memoryview]]] = []
        with self.client.pipeline(transaction=True) as pipeline:
            self._add_to_indexes(pipeline, entries)
            for key, entry in entries.items():
                arrays = [np.asarray(array, order="C") for array in entry.arrays.values()]
                size = sum(array.nbytes for array in arrays)
                self.check_size(size, key)
                generation = secrets.token_hex(8)
                kinds = [[name, array.dtype.str, array.shape] for name, array in zip(entry.arrays, arrays, strict=True)]
                head = json.dumps({"meta": entry.meta, "arrays": kinds, "generation": generation}, allow_nan=False)
                pieces = list(_pieces(arrays))
                if size > PIECE:
                    large.append((key, f"{{{key}}}:tmp:{generation}", head, pieces))
                    continue
                fields: dict[Any, Any] = {str(number): piece for number, piece in enumerate(pieces)}
                pipeline.unlink(key)  # the previous entry may have more pieces
                pipeline.hset(key, mapping={**fields, "head": head})
                pipeline.expire(key, self.ttl)
            pipeline.execute()
        for item in large:
            self._put_large(*item)

    def _put_large(self, key: str, temporary: str, head: str, pieces: list[bytes | memoryview]) -> None:
        """Write a large entry piece by piece, then publish it; again if pieces were lost, as a restart loses them."""
        for _ in range(_ATTEMPTS):
            self.client.hset(temporary, "head", head)
            self.client.expire(temporary, TEMPORARY_SECONDS)
            for number, piece in enumerate(pieces):
                self.client.hset(temporary, str(number), piece)  # sent uncopied
            if self.client.eval(_PUBLISH, 2, temporary, key, len(pieces) + 1, self.ttl):
                return
        raise refuse(
            "cache-too-small",
            422,
            f"{key} was evicted while it was being written.",
            "Raise GLLE_CACHE_BYTES and the cache server's memory, or run fewer jobs at once.",
        )

    def head(self, key: str) -> dict[str, Any] | None:
        """Return an entry's metadata without its arrays, or None."""
        return self.heads([key])[0]

    def heads(self, keys: list[str]) -> list[dict[str, Any] | None]:
        """Return the metadata of entries in one round trip, each as `head` does."""
        with self.client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hget(key, "head")
            replies = pipeline.execute()
        return [None if raw is None else dict(json.loads(raw)["meta"]) for raw in replies]

    def get(self, key: str) -> Entry | None:
        """Return an entry, its arrays perhaps read-only, or None if a part is missing."""
        return self._entry(key, self.client.hmget(key, _FIRST))

    def get_many(self, keys: list[str]) -> list[Entry | None]:
        """Return entries, each as `get` does; those of one piece in one round trip."""
        with self.client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hmget(key, _FIRST)
            return [self._entry(key, reply) for key, reply in zip(keys, pipeline.execute(), strict=True)]

    def _entry(self, key: str, reply: list[Any]) -> Entry | None:
        entry = self._assemble(key, reply)
        self.count_read(is_hit=entry is not None)
        return entry

    def count_read(self, *, is_hit: bool) -> None:
        """Count the read of an entry."""
        if self._counts is not None:
            self._counts.add("cache_reads", "server", "hit" if is_hit else "miss")

    def _assemble(self, key: str, reply: list[Any]) -> Entry | None:
        """Build an entry from its head and first piece; read the other pieces."""
        raw, first = reply
        if raw is None:
            return None
        head = json.loads(raw)
        arrays: dict[str, Array] = {}
        number, rest = 1, memoryview(first or b"")
        for name, dtype, shape in head["arrays"]:
            size = np.dtype(dtype).itemsize * math.prod(shape)
            if size <= len(rest):  # uncopied
                arrays[name] = np.frombuffer(rest[:size], dtype).reshape(shape)
                rest = rest[size:]
                continue
            arrays[name] = array = np.empty(shape, dtype)
            view = bytes_of(array)
            while view:
                if not rest:
                    piece = self.client.hget(key, str(number)) if first is not None else None
                    if not isinstance(piece, bytes):  # evicted
                        return None
                    number, rest = number + 1, memoryview(piece)
                length = min(len(view), len(rest))
                view[:length] = rest[:length]
                view, rest = view[length:], rest[length:]
        # Overwritten during the read: the pieces may be of two generations.
        if number > 1 and self.client.hget(key, "head") != raw:
            return None
        return Entry(head["meta"], arrays)

    def contains(self, keys: list[str]) -> list[bool]:
        """Return for each key whether it has an entry."""
        with self.client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.exists(key)
            return [bool(count) for count in pipeline.execute()]

    def delete(self, key: str) -> None:
        """Remove an entry, if it exists."""
        self.client.unlink(key)

    def create_index(self, subject: str) -> None:
        """Create the index of a subject that has no entries yet."""
        with self.client.pipeline() as pipeline:
            pipeline.sadd(_index(subject), _PLACEHOLDER)
            pipeline.expire(_index(subject), self.ttl)
            pipeline.execute()

    def prepare_hashes(self, pipeline: Pipeline, subject: str, keys: Sequence[str]) -> None:
        """Within a pipeline, index keys and create their hashes with an expiry; the fields follow in the pipeline.

        It is one command: a script that writes the fields as well would copy their bytes twice, which takes ten times
        as long. On a cluster it is one command per key after that of the index, because their servers differ.
        """
        indexed = (str(self.ttl), str(MOST_INDEXED), *keys)
        if isinstance(self.client, Cluster):
            self.client.eval(_ADD_TO_INDEX, 1, _index(subject), *indexed)
            for key in keys:
                pipeline.eval(_CREATE_HASHES, 2, key, key, str(self.ttl))
        else:
            pipeline.eval(_CREATE_HASHES + _ADD_TO_INDEX, 1 + len(keys), _index(subject), *keys, *indexed)

    def may_contain(self, subject: str, keys: Sequence[str]) -> list[bool]:
        """Return False for each key that the index of its subject excludes, in one command."""
        has_index, *indexed = self.client.smismember(_index(subject), [_PLACEHOLDER, *keys])
        return [bool(is_indexed) or not has_index for is_indexed in indexed]

    def _add_to_indexes(self, pipeline: Pipeline, keys: Iterable[str]) -> None:
        """Add keys to the indexes of their subjects, within a pipeline."""
        by_subject: defaultdict[str, list[str]] = defaultdict(list)
        for key in keys:
            if (match := _SUBJECT.match(key)) is not None:
                by_subject[match[1]].append(key)
        for subject, members in by_subject.items():
            pipeline.eval(_ADD_TO_INDEX, 1, _index(subject), str(self.ttl), str(MOST_INDEXED), *members)

    def keys_of(self, subject: str) -> Iterable[str]:
        """Return the keys of a subject's entries, which are `<kind>:<subject>:...`; some may have been evicted."""
        members = {text(raw) for raw in self.client.smembers(_index(subject))}
        if members:
            return members - {_PLACEHOLDER}
        return map(text, self.client.scan_iter(match=f"*:{subject}:*", count=SCANNED))

    def forget(self, subject: str) -> None:
        """Remove a subject's index and all its entries."""
        remaining = iter(self.keys_of(subject))
        while batch := list(islice(remaining, SCANNED)):
            self.client.unlink(*batch)
        self.client.unlink(_index(subject))

    def close(self) -> None:
        """Close the connections."""
        self.client.close()

    def info(self) -> dict[str, Any]:
        """Return the server's INFO; raises `redis.RedisError`."""
        return dict(self.client.info())


def _index(subject: str) -> str:
    return f"keys:{subject}"


def bytes_of(array: Array) -> memoryview:
    """Return the bytes of a C-contiguous array, uncopied."""
    return array.reshape(-1).view(np.uint8).data


def _pieces(arrays: list[Array]) -> Iterator[bytes | memoryview]:
    """Cut the concatenated bytes of arrays into pieces; a piece within one array is not copied."""
    partial = b""
    for array in arrays:
        view = bytes_of(array)
        if partial:
            missing = PIECE - len(partial)
            partial, view = partial + view[:missing], view[missing:]
            if len(partial) == PIECE:
                yield partial
                partial = b""
        while len(view) >= PIECE:
            yield view[:PIECE]
            view = view[PIECE:]
        if view:
            partial = bytes(view)
    if partial:
        yield partial
