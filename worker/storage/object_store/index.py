"""Index of the stored objects, in the queue's Redis, where nothing is evicted.

Each object is written once, under a unique path, and the index names it after the write. So no reader sees a partial
object, whatever the store guarantees, and a missing entry costs no request to the store. Replaced and deleted objects
are condemned: their paths stay in a set until the store has removed them.

    glle:stored:<subject>   hash: an entry's key -> its object, as JSON; a subject is a posterior or a data set
    glle:stored             sorted set: subjects by the expiry of their first object
    glle:stored:sums        hash: objects, bytes
    glle:stored:condemned   set of paths
"""

from __future__ import annotations

import json
import secrets
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Self

from worker.base import versions
from worker.records.ids import digest, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import redis

_SUBJECTS = "glle:stored"
_SUMS = "glle:stored:sums"
CONDEMNED = "glle:stored:condemned"
ORPHAN_SECONDS = 6 * 3600  # an object may be written so long before the index names it

_BATCH = 500  # entries of one script, because a script blocks the server

# KEYS: the subject's hash, subjects, sums, condemned. ARGV: subject, key, object, its bytes, its expiry.
_ADD = """
local old = redis.call('HGET', KEYS[1], ARGV[2])
if old then
  local was = cjson.decode(old)
  redis.call('SADD', KEYS[4], was.path)
  redis.call('HINCRBY', KEYS[3], 'objects', -1)
  redis.call('HINCRBY', KEYS[3], 'bytes', -was.size)
end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
redis.call('HINCRBY', KEYS[3], 'objects', 1)
redis.call('HINCRBY', KEYS[3], 'bytes', ARGV[4])
redis.call('ZADD', KEYS[2], 'LT', ARGV[5], ARGV[1])
return old and cjson.decode(old).path
"""

# KEYS: as above. ARGV: subject, then pairs of key and path. Entries of another object stay.
_DROP = """
for i = 2, #ARGV, 2 do
  local raw = redis.call('HGET', KEYS[1], ARGV[i])
  if raw then
    local was = cjson.decode(raw)
    if was.path == ARGV[i + 1] then
      redis.call('HDEL', KEYS[1], ARGV[i])
      redis.call('SADD', KEYS[4], was.path)
      redis.call('HINCRBY', KEYS[3], 'objects', -1)
      redis.call('HINCRBY', KEYS[3], 'bytes', -was.size)
    end
  end
end
if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('ZREM', KEYS[2], ARGV[1]) end
"""


@dataclass(frozen=True)
class StoredObject:
    """Index entry of an object.

    Parameters
    ----------
    path
        Relative to the store's root.
    size
        Bytes of the object.
    start
        Offset of its payload.
    until
        Expiry, seconds since 1970.
    cached
        Whether the entry belongs in the cache as well.

    """

    path: str
    size: int
    start: int
    until: float
    cached: bool

    def to_json(self) -> str:
        """Return the value in the index."""
        return json.dumps({"layout": versions.SCHEMA, **asdict(self)})

    @classmethod
    def from_json(cls, raw: bytes | None) -> Self | None:
        """Return the inverse of `to_json`; None for None and for another schema."""
        value = {} if raw is None else json.loads(raw)
        return cls(**value) if value.pop("layout", 0) == versions.SCHEMA else None

    @classmethod
    def new(cls, key: str, *, size: int, start: int, ttl: int, cached: bool) -> Self:
        """Return an object at a unique path, which contains its creation time."""
        now = time.time()
        name = f"{digest(key)}-{int(now):x}-{secrets.token_hex(4)}"
        return cls(f"{subject_of(key)}/{name}", size, start, now + ttl, cached)


def subject_of(key: str) -> str:
    """Return the posterior or data set of an entry's key."""
    return key.removeprefix(versions.versioned("")).split(":", 2)[1]


def created_at(path: str) -> float | None:
    """Return the creation time of an object's path, None for a foreign path."""
    parts = path.rpartition("/")[2].split("-")
    try:
        return float(int(parts[1], 16)) if len(parts) == 3 else None
    except ValueError:
        return None


class ObjectIndex:
    """Index of objects.

    Parameters
    ----------
    client
        The queue's Redis, bytes in and out.

    """

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._add = client.register_script(_ADD)
        self._drop = client.register_script(_DROP)

    def add(self, key: str, stored: StoredObject) -> list[str]:
        """Name a written object; return the path of the object that it replaces, which is condemned now."""
        subject = subject_of(key)
        replaced = self._add(keys=_keys(subject), args=[subject, key, stored.to_json(), stored.size, stored.until])
        return [] if replaced is None else [text(replaced)]

    def find(self, keys: list[str]) -> list[StoredObject | None]:
        """Return the objects of entries in one round trip, one command per subject; None if missing or expired."""
        by_subject: defaultdict[str, list[str]] = defaultdict(list)
        for key in keys:
            by_subject[subject_of(key)].append(key)
        with self._client.pipeline(transaction=False) as pipeline:
            for subject, members in by_subject.items():
                pipeline.hmget(_hash(subject), members)
            replies = pipeline.execute() if keys else []
        pairs = zip(chain(*by_subject.values()), chain(*replies), strict=True)
        objects = {key: StoredObject.from_json(raw) for key, raw in pairs}
        now = time.time()
        return [stored if stored is not None and stored.until > now else None for stored in map(objects.get, keys)]

    def drop(self, subject: str, entries: Iterable[tuple[str, StoredObject]]) -> None:
        """Remove objects from the index, and condemn them."""
        pairs = [(key, stored.path) for key, stored in entries]
        for first in range(0, len(pairs), _BATCH):
            flat = [part for pair in pairs[first : first + _BATCH] for part in pair]
            self._drop(keys=_keys(subject), args=[subject, *flat])

    def of(self, subject: str) -> Iterator[tuple[str, StoredObject]]:
        """Yield (key, object) of all entries of a subject, including expired ones."""
        for key, raw in self._client.hscan_iter(_hash(subject), count=_BATCH):
            if (stored := StoredObject.from_json(raw)) is not None:
                yield text(key), stored

    def named(self) -> set[str]:
        """Return the paths of all indexed objects of all versions."""
        return {
            json.loads(raw)["path"]
            for subject in self.subjects()
            for _, raw in self._client.hscan_iter(_hash(subject), count=_BATCH)
        }

    def subjects(self) -> list[str]:
        """Return all subjects."""
        return [text(raw) for raw in self._client.zrange(_SUBJECTS, 0, -1)]

    def due(self, subject: str, until: float) -> None:
        """Set the expiry of a subject's first object."""
        self._client.zadd(_SUBJECTS, {subject: until}, xx=True)

    def condemned(self) -> list[str]:
        """Return the paths of condemned objects."""
        return sorted(text(raw) for raw in self._client.smembers(CONDEMNED))

    def removed(self, path: str) -> None:
        """Remove the path of a deleted object from the condemned ones."""
        self._client.srem(CONDEMNED, path)

    def overdue(self) -> int:
        """Return the number of subjects with an expired object."""
        return int(self._client.zcount(_SUBJECTS, "-inf", time.time()))

    def sums(self) -> tuple[int, int, int]:
        """Return the number of objects, their bytes, and the number of condemned objects."""
        with self._client.pipeline(transaction=False) as pipeline:
            pipeline.hmget(_SUMS, "objects", "bytes")
            pipeline.scard(CONDEMNED)
            (objects, nbytes), condemned = pipeline.execute()
        return int(objects or 0), int(nbytes or 0), int(condemned)


def _hash(subject: str) -> str:
    return f"{_SUBJECTS}:{subject}"


def _keys(subject: str) -> list[str]:
    return [_hash(subject), _SUBJECTS, _SUMS, CONDEMNED]
