"""Counters of the deployment."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import redis

from worker.observability.counters import BUCKETS, Counters, Histogram

if TYPE_CHECKING:
    from worker.stores import Stores


def test_counts_of_processes_add_up(stores: Stores) -> None:
    """Two processes that count the same series give the sum; unflushed counts are not readable."""
    first, second = Counters(stores.client), Counters(stores.client)
    first.add("draws", "lanes", increment=8)
    second.add("draws", "lanes", increment=3)
    second.add("draws", "lu")
    assert first.read() == ({}, {})
    assert first.flush()
    assert second.flush()
    assert first.read()[0] == {("draws", "lanes"): 11, ("draws", "lu"): 1}
    assert first.flush()
    assert second.read()[0] == {("draws", "lanes"): 11, ("draws", "lu"): 1}


def test_durations_fall_into_buckets(stores: Stores) -> None:
    """A duration that equals an edge belongs to the bucket below the edge; the sum is exact."""
    for seconds in (0.0, BUCKETS[0], BUCKETS[1], 1e4):
        stores.counts.observe("task_seconds", "fit", "weights", seconds=seconds)
    stores.counts.flush()
    spread = stores.counts.read()[1]["task_seconds", "fit", "weights"]
    assert spread.counts == [2, 1, *[0] * (len(BUCKETS) - 2), 1]
    assert spread.seconds == pytest.approx(BUCKETS[0] + BUCKETS[1] + 1e4)
    assert next(spread.cumulative()) == (str(BUCKETS[0]), 2)
    assert list(spread.cumulative())[-1] == ("+Inf", 4)
    assert len(list(Histogram().cumulative())) == len(BUCKETS) + 1


def test_counts_wait_for_an_unavailable_server(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed writes are repeated with the next flush, once."""
    counts = Counters(stores.client)
    counts.add("draws", "lanes")

    def away(**_: object) -> None:
        raise redis.ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(counts, "_add_all", away)
        assert not counts.flush()
    counts.add("draws", "lanes")
    assert counts.flush()
    assert counts.read()[0] == {("draws", "lanes"): 2}


def test_threads_lose_no_count(stores: Stores) -> None:
    """Concurrent counts and flushes give the right sum."""
    counts = Counters(stores.client)

    def count() -> None:
        for number in range(2000):
            counts.add("cache_reads", "server", "hit")
            if number % 500 == 0:
                counts.flush()

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts.flush()
    assert counts.read()[0] == {("cache_reads", "server", "hit"): 8000}
