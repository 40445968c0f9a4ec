"""Counters and histograms of the whole deployment, in one Redis hash.

Each process counts in memory and then adds its counts to the hash, so that the counts outlive short processes and any
API process can report the totals. The name of a field is the name of the series, its labels, and a part, joined by
`SEPARATOR`. A counter has one field, with the part ``n``. A histogram has a field for each bucket, whose part is the
bucket's index, and a field with the part ``us`` for the sum of the durations in microseconds.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import redis

from worker.records.ids import text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Upper edges of buckets in seconds, densest where single draws lie (5 to 100 ms). One more bucket has no upper edge.
BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.0, 10.0, 60.0, 600.0)
KEY = "glle:counts"  # one key for all versions, so that an upgrade keeps the totals
SEPARATOR = "\t"

# KEYS: the hash. ARGV: fields and increments.
_ADD = "for at = 1, #ARGV, 2 do redis.call('HINCRBY', KEYS[1], ARGV[at], ARGV[at + 1]) end"

Series = tuple[str, ...]  # name of a counter or histogram, and its labels

log = logging.getLogger(__name__)


@dataclass
class Histogram:
    """Histogram of durations: how many fall into each of `BUCKETS`, and the sum of all in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    seconds: float = 0.0

    def cumulative(self) -> Iterator[tuple[str, float]]:
        """Yield (upper edge, number of durations up to this edge) for each bucket; the last edge is ``+Inf``."""
        total = 0
        for edge, count in zip((*map(str, BUCKETS), "+Inf"), self.counts, strict=True):
            total += count
            yield edge, total


class Counters:
    """Counters and histograms of this process, kept in memory until `flush` adds them to the hash in Redis.

    Parameters
    ----------
    client
        The queue's Redis.

    """

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._add_all = client.register_script(_ADD)
        self._lock = threading.Lock()
        self._pending: dict[Series, int] = {}

    def add(self, *series: str, increment: int = 1) -> None:
        """Increment a counter; `series` is the counter's name, followed by its labels."""
        self._add({(*series, "n"): increment})

    def observe(self, *series: str, seconds: float) -> None:
        """Add a duration to a histogram; `series` is the histogram's name, followed by its labels."""
        self._add({(*series, str(bisect_left(BUCKETS, seconds))): 1, (*series, "us"): round(seconds * 1e6)})

    def observe_counts(self, *series: str, counts: Sequence[float], seconds: float) -> None:
        """Add many durations to a histogram; `series` is the histogram's name, followed by its labels.

        `counts` has the number of durations in each of `BUCKETS`, and last the number beyond all of them; `seconds` is
        the sum of all durations.
        """
        buckets = {(*series, str(bucket)): int(count) for bucket, count in enumerate(counts) if count}
        self._add({**buckets, (*series, "us"): round(seconds * 1e6)})

    def _add(self, increments: dict[Series, int]) -> None:
        with self._lock:
            for name, increment in increments.items():
                self._pending[name] = self._pending.get(name, 0) + increment

    def clear(self) -> None:
        """Drop the counts that are not sent yet: a forked child has copies of counts that its parent will send."""
        self._lock = threading.Lock()
        self._pending = {}

    def flush(self) -> bool:
        """Add the counts of this process to the totals in Redis; return False, and keep the counts, if Redis fails."""
        with self._lock:
            pending, self._pending = self._pending, {}
        if not pending:
            return True
        try:
            args = [argument for name, increment in pending.items() for argument in (SEPARATOR.join(name), increment)]
            self._add_all(keys=[KEY], args=args)
        except redis.RedisError as error:
            log.debug("Counts are kept for later: %s", error)
            self._add(pending)
            return False
        return True

    def read(self) -> tuple[dict[Series, int], dict[Series, Histogram]]:
        """Return the counters and the histograms of the whole deployment, by their series: (name, label, ...)."""
        counters: dict[Series, int] = {}
        histograms: dict[Series, Histogram] = {}
        for raw, count in sorted(self._client.hgetall(KEY).items()):
            *series, suffix = text(raw).split(SEPARATOR)
            if suffix == "n":
                counters[tuple(series)] = int(count)
                continue
            histogram = histograms.setdefault(tuple(series), Histogram())
            if suffix == "us":
                histogram.seconds = int(count) / 1e6
            else:
                histogram.counts[int(suffix)] = int(count)
        return counters, histograms
