"""Which objects there are: an index in the queue's Redis, where nothing is evicted.

An object is written once, under a path that nobody has, and is there from when the index names it: so nobody reads what
is half written, whatever the store can do, and nobody asks the store for what is not there. What the index names no
more is condemned: a list of paths to be removed, which outlives a store that does not answer.

    glle:stored:<subject>   hash: an entry's key -> its object, as JSON; a subject is a posterior or a data set
    glle:stored             sorted set: subjects, by when the first of their objects expires
    glle:stored:sums        hash: objects, bytes
    glle:stored:condemned   set of paths
"""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Self

from worker.base import versions
from worker.records.ids import digest, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import redis

_SUBJECTS = "glle:stored"
_SUMS = "glle:stored:sums"
_CONDEMNED = "glle:stored:condemned"

_LOOKED_AT = 500  # entries of one call: a script holds the server

# KEYS: the subject's hash, subjects, sums, condemned. ARGV: subject, key, object, its bytes, when it expires.
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

# KEYS: as above. ARGV: subject, then pairs of key and path: entries that name another object by now stay.
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
    """An object as the index knows it.

    Parameters
    ----------
    path
        Below the store's root.
    start
        Where its payload begins.
    until
        When it expires, seconds of the epoch.
    cached
        Whether the entry belongs into the cache, too, when it was evicted there.

    """

    path: str
    size: int
    start: int
    until: float
    cached: bool

    def told(self) -> str:
        """Return it as the index keeps it."""
        return json.dumps({"layout": versions.SCHEMA, **asdict(self)})

    @classmethod
    def read(cls, raw: bytes | None) -> Self | None:
        """Return the inverse of `told`, None for None, and for what another version of the index says."""
        told = {} if raw is None else json.loads(raw)
        return cls(**told) if told.pop("layout", None) == versions.SCHEMA else None

    @classmethod
    def new(cls, key: str, *, size: int, start: int, ttl: int, cached: bool) -> Self:
        """Return an object for an entry at a path that nobody has; it tells when it was made."""
        now = time.time()
        name = f"{digest(key)}-{int(now):x}-{secrets.token_hex(4)}"
        return cls(f"{subject_of(key)}/{name}", size, start, now + ttl, cached)


def subject_of(key: str) -> str:
    """Return whose a key is: the posterior, or the data set, that it is about."""
    return key.removeprefix(versions.versioned("")).split(":", 2)[1]


def created_at(path: str) -> float | None:
    """Return when an object of this path was made, None for what is none of ours."""
    parts = path.rpartition("/")[2].split("-")
    try:
        return float(int(parts[1], 16)) if len(parts) == 3 else None
    except ValueError:
        return None


class ObjectIndex:
    """The index.

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
        """Name an object that is wholly written; return the path of the one before it, condemned now, if any."""
        subject = subject_of(key)
        before = self._add(keys=_keys(subject), args=[subject, key, stored.told(), stored.size, stored.until])
        return [] if before is None else [text(before)]

    def find(self, keys: list[str]) -> list[StoredObject | None]:
        """Return the objects of entries, None where there is none or it has expired, in one round trip."""
        with self._client.pipeline(transaction=False) as together:
            for key in keys:
                together.hget(_hash(subject_of(key)), key)
            found = [StoredObject.read(raw) for raw in together.execute()]
        now = time.time()
        return [stored if stored is not None and stored.until > now else None for stored in found]

    def drop(self, subject: str, entries: Iterable[tuple[str, StoredObject]]) -> None:
        """Name objects no more, and condemn them."""
        pairs = [(key, stored.path) for key, stored in entries]
        for first in range(0, len(pairs), _LOOKED_AT):
            flat = [part for pair in pairs[first : first + _LOOKED_AT] for part in pair]
            self._drop(keys=_keys(subject), args=[subject, *flat])

    def of(self, subject: str) -> Iterator[tuple[str, StoredObject]]:
        """Yield (key, object) of all entries about a subject, expired ones, too."""
        for key, raw in self._client.hscan_iter(_hash(subject), count=_LOOKED_AT):
            if (stored := StoredObject.read(raw)) is not None:
                yield text(key), stored

    def named(self) -> set[str]:
        """Return the paths of all objects that are named, by whatever version."""
        return {
            json.loads(raw)["path"]
            for subject in self.subjects()
            for _, raw in self._client.hscan_iter(_hash(subject), count=_LOOKED_AT)
        }

    def subjects(self) -> list[str]:
        """Return all subjects."""
        return [text(raw) for raw in self._client.zrange(_SUBJECTS, 0, -1)]

    def due(self, subject: str, until: float) -> None:
        """Note when the first of a subject's objects expires."""
        self._client.zadd(_SUBJECTS, {subject: until}, xx=True)

    def condemned(self) -> list[str]:
        """Return the paths that are to be removed."""
        return sorted(text(raw) for raw in self._client.smembers(_CONDEMNED))

    def removed(self, path: str) -> None:
        """Note that a condemned object is no more."""
        self._client.srem(_CONDEMNED, path)

    def overdue(self) -> int:
        """Return the number of subjects of which an object has expired."""
        return int(self._client.zcount(_SUBJECTS, "-inf", time.time()))

    def sums(self) -> tuple[int, int, int]:
        """Return the number of objects, their bytes, and the number of those that are condemned."""
        with self._client.pipeline(transaction=False) as together:
            together.hmget(_SUMS, "objects", "bytes")
            together.scard(_CONDEMNED)
            (objects, nbytes), condemned = together.execute()
        return int(objects or 0), int(nbytes or 0), int(condemned)


def _hash(subject: str) -> str:
    return f"{_SUBJECTS}:{subject}"


def _keys(subject: str) -> list[str]:
    return [_hash(subject), _SUBJECTS, _SUMS, _CONDEMNED]
