"""Results in the object store: entries larger than the cache, or cheaper to read than to compute again; their index.

The index is in the queue's Redis, where nothing is evicted. An object is written as a whole, under a path that its key
determines, and the index names it after the write. A removal starts with the index. So a missing entry costs no request
to the store, and an object that could not be removed is one that the index does not name: the sweep removes it. An
object is the head of an entry and the data of its arrays (`worker.records.cache_entry`).

    glle:stored:<subject>   hash: an entry's key -> its object, as JSON; a subject is a posterior or a data set
    glle:stored             hash: objects, bytes, swept (the time of the last sweep, or of the first object)
"""

from __future__ import annotations

import json
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from worker.base import versions
from worker.base.problems import ProblemError, refuse
from worker.records.cache_entry import pack_parts, parse_entry
from worker.records.ids import digest, text
from worker.records.stored_file import StoredFile
from worker.storage.object_store.files import DamagedFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import redis

    from worker.records.cache_entry import Entry
    from worker.storage.object_store.files import ObjectFiles

_SUMS = "glle:stored"
FOLDER = "cache"  # of the entries' objects in the store

_ALIGNED = 64  # bytes: alignment of the data in an object

_BATCH = 500  # entries of one script, because a script blocks the server

# Model of a read from a store across a network; docs/how-to/storage.md has the measurements.
READ_BYTES_PER_SECOND = 50e6
READ_SECONDS = 0.1
READS, WRITES = 16, 4  # at the same time, of one call; a write has up to 16 MB in memory

T = TypeVar("T")
R = TypeVar("R")

log = logging.getLogger(__name__)

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
class StoredObject(StoredFile):
    """Index entry of an object.

    Parameters
    ----------
    start
        Bytes of its head.
    until
        Expiry, seconds since 1970.
    cached
        Whether the entry belongs in the cache as well.

    """

    start: int
    until: float
    cached: bool


def subject_of(key: str) -> str:
    """Return the posterior or data set of an entry's key."""
    return key.removeprefix(versions.versioned_key("")).split(":", 2)[1]


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


class ResultStore:
    """Store of entries as objects.

    Parameters
    ----------
    files
        The objects.
    index
        Their index.
    ttl
        Lifetime of an object in seconds.
    max_bytes
        Limit of all objects; 0: none.

    """

    def __init__(self, files: ObjectFiles, index: ObjectIndex, *, ttl: int, max_bytes: int) -> None:
        self.bucket = files.bucket
        self.index = index
        self._files = files
        self._ttl = ttl
        self._max_bytes = max_bytes

    def worth_keeping(self, seconds: float, nbytes: int) -> bool:
        """Return whether an entry belongs in the store as well: if a read takes less than `seconds`."""
        return seconds > READ_SECONDS + nbytes / READ_BYTES_PER_SECOND

    def check_room(self, nbytes: int, name: str) -> None:
        """Raise ``store-too-small`` if `nbytes` more exceed the limit; `name` begins the detail."""
        stored = self.index.sums()[1] if self._max_bytes else 0
        if self._max_bytes and stored + nbytes > self._max_bytes:
            raise refuse(
                "store-too-small",
                422,
                f"{name} takes {nbytes:,} bytes; the object store has {stored:,} of {self._max_bytes:,} allowed.",
                "Ask for less, delete posteriors that are no longer needed, or raise GLLE_STORE_BYTES.",
                bytes=nbytes,
                allowed=self._max_bytes,
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
        _in_parallel(partial(self._put, cached=cached), entries.items(), WRITES)

    def _put(self, item: tuple[str, Entry], *, cached: bool) -> None:
        key, entry = item
        head, data = pack_parts(entry)
        head += b" " * (-len(head) % _ALIGNED)
        size = len(head) + sum(map(len, data))
        self.check_room(size, key)
        file = self._files.write(path_of(subject_of(key), key), [head, *data], size)
        until = time.time() + self._ttl
        self.index.add(key, StoredObject(**asdict(file), start=len(head), until=until, cached=cached))

    def entries(self, objects: Mapping[str, StoredObject]) -> dict[str, Entry | None]:
        """Return entries, their large arrays mapped from files; None for a missing or damaged object."""
        return self._read_each(self._entry, objects)

    def heads(self, objects: Mapping[str, StoredObject]) -> dict[str, dict[str, Any] | None]:
        """Return the metadata of entries, None for a missing or damaged object."""
        return self._read_each(self._head, objects)

    def _entry(self, stored: StoredObject) -> Entry | None:
        data = self._files.read(stored)
        return parse_entry(bytes(data[: stored.start]), data[stored.start :])

    def _head(self, stored: StoredObject) -> dict[str, Any]:
        meta: dict[str, Any] = json.loads(self.bucket.read(stored.path, 0, stored.start) or b"")["meta"]
        return meta

    def _read_each(
        self, read: Callable[[StoredObject], T | None], objects: Mapping[str, StoredObject]
    ) -> dict[str, T | None]:
        """Read objects; remove the entries of missing and damaged ones."""

        def read_intact(key: str) -> T | None:
            try:
                return read(objects[key])
            except (FileNotFoundError, DamagedFileError, ValueError):
                log.warning("The object of %s is missing or damaged", key)
                self.remove(subject_of(key), [key])
                return None

        return dict(zip(objects, _in_parallel(read_intact, objects), strict=True))

    def remove(self, subject: str, keys: list[str] | None = None) -> None:
        """Remove entries of a subject, or all; the sweep removes the objects that the store does not remove now."""
        keys = [key for key, _ in self.index.of(subject)] if keys is None else keys
        self.index.drop(subject, keys)
        try:
            _in_parallel(self.bucket.remove, [path_of(subject, key) for key in keys])
        except ProblemError as error:
            log.warning("Objects of %s could not be removed yet: %s", subject, error)


def _in_parallel(call: Callable[[T], R], items: Iterable[T], threads: int = READS) -> list[R]:
    """Return the results of calls, which mostly wait for the store; the first failure ends them."""
    with ThreadPoolExecutor(threads, "objects") as pool:
        return list(pool.map(call, items))


def _hash(subject: str) -> str:
    return f"{_SUMS}:{subject}"
