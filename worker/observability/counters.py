"""Counts of the whole deployment: kept in memory for moments, added up in one Redis hash.

Work-horses are forked and die, API processes come and go; what each counted is added to the hash, so the numbers are
right however many there are, and whichever process is asked for them. A field is a name, labels and a part: ``n`` of a
counter; of a histogram the number of a bucket, and ``us``, the sum in microseconds.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import redis

from worker.base.versions import versioned
from worker.records.ids import text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BUCKETS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 600.0)  # seconds; one more bucket has what is longer
KEY = versioned("glle:counts")
_BETWEEN = "\t"

# KEYS: record. ARGV: field. Returns 1 to who comes first; a record that has expired is not made again.
_FIRST = """
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
return redis.call('HSETNX', KEYS[1], ARGV[1], 1)
"""

Series = tuple[str, ...]  # a name and its labels

log = logging.getLogger(__name__)


@dataclass
class Histogram:
    """A histogram of seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    seconds: float = 0.0

    def cumulative(self) -> Iterator[tuple[str, float]]:
        """Yield (upper edge, how many are no longer), as Prometheus has it."""
        total = 0
        for edge, count in zip((*map(str, BUCKETS), "+Inf"), self.counts, strict=True):
            total += count
            yield edge, total


class Counters:
    """Counters and histograms.

    Parameters
    ----------
    client
        The queue's Redis.

    """

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._first = client.register_script(_FIRST)
        self._lock = threading.Lock()
        self._pending: dict[Series, int] = {}

    def add(self, *series: str, by: int = 1) -> None:
        """Count; nothing is sent yet."""
        with self._lock:
            self._more((*series, "n"), by)

    def observe(self, *series: str, seconds: float) -> None:
        """Count a duration; nothing is sent yet."""
        with self._lock:
            self._more((*series, str(bisect_left(BUCKETS, seconds))), 1)
            self._more((*series, "us"), round(seconds * 1e6))

    def spread(self, *series: str, counts: Sequence[float], seconds: float) -> None:
        """Count durations that fell into buckets already; nothing is sent yet."""
        with self._lock:
            for bucket, count in enumerate(counts):
                if count:
                    self._more((*series, str(bucket)), int(count))
            self._more((*series, "us"), round(seconds * 1e6))

    def _more(self, name: Series, by: int) -> None:
        self._pending[name] = self._pending.get(name, 0) + by

    def forget(self) -> None:
        """Drop what is pending: a forked child must not count what its parent did."""
        self._lock = threading.Lock()
        self._pending = {}

    def flush(self) -> bool:
        """Add what is pending to the hash, in one round trip; return whether nothing is pending now."""
        with self._lock:
            pending, self._pending = self._pending, {}
        if not pending:
            return True
        try:
            with self._client.pipeline(transaction=True) as together:
                for name, by in pending.items():
                    together.hincrby(KEY, _BETWEEN.join(name), by)
                together.execute()
        except redis.RedisError as error:
            log.debug("Counts are kept for later: %s", error)
            with self._lock:
                for name, by in pending.items():
                    self._more(name, by)
            return False
        return True

    def is_first(self, record: str, name: str) -> bool:
        """Return True once for a record and a name, however many ask; False when the record is gone."""
        return bool(self._first(keys=[record], args=[name]))

    def read(self) -> tuple[dict[Series, int], dict[Series, Histogram]]:
        """Return all counters and all histograms, by name and labels."""
        counters: dict[Series, int] = {}
        spreads: dict[Series, Histogram] = {}
        for raw, count in sorted(self._client.hgetall(KEY).items()):
            *series, part = text(raw).split(_BETWEEN)
            if part == "n":
                counters[tuple(series)] = int(count)
                continue
            spread = spreads.setdefault(tuple(series), Histogram())
            if part == "us":
                spread.seconds = int(count) / 1e6
            else:
                spread.counts[int(part)] = int(count)
        return counters, spreads
