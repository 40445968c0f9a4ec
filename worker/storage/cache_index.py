"""What is cached about each subject, by name: so that forgetting a subject does not look through all keys.

A subject is a posterior or a data set; the keys of what is about it are `<kind>:<subject>:...`. Its index is begun
before there is anything about it, so while the index is there it has every key. It may be evicted like anything else:
it is not begun again, and who wants the keys then looks through all of them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from worker.records.ids import text

if TYPE_CHECKING:
    from collections.abc import Iterable

    import redis
    from redis.client import Pipeline

MOST = 100_000  # keys of an index; one of more is given up, or it would take the room of what it names
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

    def begin(self, subject: str) -> None:
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
            pipeline.eval(_NOTE, 1, _index(subject), str(self._ttl), str(MOST), *its)

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
