"""Index of the stored objects, in the queue's Redis, where nothing is evicted.

An object is written as a whole, under a path that its key determines, and the index names it after the write. A removal
starts with the index. So a missing entry costs no request to the store, and an object that could not be removed is one
that the index does not name: the sweep removes it.

    glle:stored:<subject>   hash: an entry's key -> its object, as JSON; a subject is a posterior or a data set
    glle:stored             hash: objects, bytes, swept (the time of the last sweep, or of the first object)
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING

from worker.base import versions
from worker.records.ids import digest, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

_SUMS = "glle:stored"
FOLDER = "cache"  # of the entries' objects in the store
ORPHAN_SECONDS = 6 * 3600  # an object may be written so long before the index names it

_BATCH = 500  # entries of one script, because a script blocks the server

# KEYS: the subject's hash, the sums. ARGV: the time, then pairs of a key and its object, or nothing to remove the key.
_CHANGE = """
redis.call('HSETNX', KEYS[2], 'swept', ARGV[1])
for i = 2, #ARGV, 2 do
  local key, new, objects, bytes = ARGV[i], ARGV[i + 1], 0, 0
  local old = redis.call('HGET', KEYS[1], key)
  if old then objects, bytes = -1, -cjson.decode(old).size end
  if new == '' then
    redis.call('HDEL', KEYS[1], key)
  else
    redis.call('HSET', KEYS[1], key, new)
    objects, bytes = objects + 1, bytes + cjson.decode(new).size
  end
  redis.call('HINCRBY', KEYS[2], 'objects', objects)
  redis.call('HINCRBY', KEYS[2], 'bytes', bytes)
end
"""


@dataclass(frozen=True)
class StoredObject:
    """Index entry of an object.

    Parameters
    ----------
    size
        Bytes of the object.
    start
        Offset of its payload.
    until
        Expiry, seconds since 1970.
    cached
        Whether the entry belongs in the cache as well.

    """

    size: int
    start: int
    until: float
    cached: bool


def subject_of(key: str) -> str:
    """Return the posterior or data set of an entry's key."""
    return key.removeprefix(versions.versioned("")).split(":", 2)[1]


def path_of(subject: str, key: str) -> str:
    """Return the path of an entry's object, relative to the store's root."""
    return f"{FOLDER}/{subject}/{digest(key)}"


class ObjectIndex:
    """Index of objects.

    Parameters
    ----------
    client
        The queue's Redis, bytes in and out.

    """

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._change = client.register_script(_CHANGE)

    def add(self, key: str, stored: StoredObject) -> None:
        """Name a written object."""
        keys = [_hash(subject_of(key)), _SUMS]
        self._change(keys=keys, args=[time.time(), key, json.dumps(asdict(stored))])

    def drop(self, subject: str, keys: list[str]) -> None:
        """Remove entries of a subject."""
        for first in range(0, len(keys), _BATCH):
            pairs = chain.from_iterable((key, "") for key in keys[first : first + _BATCH])
            self._change(keys=[_hash(subject), _SUMS], args=[time.time(), *pairs])

    def find(self, keys: list[str]) -> dict[str, StoredObject]:
        """Return the objects of entries that exist and have not expired, in one round trip."""
        with self._client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hget(_hash(subject_of(key)), key)
            replies = zip(keys, pipeline.execute(), strict=True)
        objects = {key: StoredObject(**json.loads(raw)) for key, raw in replies if raw is not None}
        return {key: stored for key, stored in objects.items() if stored.until > time.time()}

    def of(self, subject: str) -> Iterator[tuple[str, StoredObject]]:
        """Yield (key, object) of all entries of a subject, including expired ones."""
        for key, raw in self._client.hscan_iter(_hash(subject), count=_BATCH):
            yield text(key), StoredObject(**json.loads(raw))

    def subjects(self) -> list[str]:
        """Return all subjects."""
        keys = self._client.scan_iter(match=_hash("*"), count=_BATCH, _type="hash")
        return sorted(text(raw).removeprefix(_hash("")) for raw in set(keys))

    def finish_sweep(self, started: float) -> None:
        """Note the start of a finished sweep."""
        self._client.hset(_SUMS, "swept", str(started))

    def unswept_seconds(self) -> float:
        """Return the seconds since the last sweep, or since the first object."""
        swept = self._client.hget(_SUMS, "swept")
        return 0.0 if swept is None else time.time() - float(swept)

    def sums(self) -> tuple[int, int]:
        """Return the number of objects, and their bytes."""
        objects, nbytes = self._client.hmget(_SUMS, "objects", "bytes")
        return int(objects or 0), int(nbytes or 0)


def _hash(subject: str) -> str:
    return f"{_SUMS}:{subject}"
