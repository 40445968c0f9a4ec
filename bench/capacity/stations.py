"""Parts of the simulation: first-come first-served stations, an LRU cache, jobs, and the outcome."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.capacity.model.plan import Demand
    from worker.records.draws import DrawsSpec


@dataclass
class Line:
    """Station that serves in order; `busy` counts its seconds of service."""

    servers: list[float]
    busy: float = 0.0

    def leave(self, now: float, seconds: float) -> float:
        """Return the time at which a request that arrives now leaves after its service."""
        end = max(now, heapq.heappop(self.servers)) + seconds
        heapq.heappush(self.servers, end)
        self.busy += seconds
        return end


class LruCache:
    """LRU cache of values by name with a limit in bytes."""

    def __init__(self, room: float) -> None:
        self._room = room
        self._bytes = 0.0
        self._cached: OrderedDict[object, float] = OrderedDict()
        self.evicted = 0

    def has(self, name: object) -> bool:
        """Return whether a value is cached, and mark it as used."""
        if name in self._cached:
            self._cached.move_to_end(name)
            return True
        return False

    def put(self, name: object, nbytes: float) -> None:
        """Add a value."""
        self._bytes += nbytes - self._cached.pop(name, 0.0)
        self._cached[name] = nbytes
        while self._bytes > self._room and len(self._cached) > 1:
            self._bytes -= self._cached.popitem(last=False)[1]
            self.evicted += 1


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A deployment and its demand.

    Parameters
    ----------
    demand
        Rates per second, and the number of `posteriors`; initially the cache is full of the most popular ones.
    cache_bytes
        Size of the cache.
    seconds
        Duration of the arrivals; the first tenth is not counted.
    zipf
        The posterior of rank r is requested in proportion to 1 / r^zipf.

    """

    demand: Demand
    workers: int
    api: int
    cache_bytes: float
    seconds: float
    zipf: float = 1.0
    seed: int = 0


@dataclass
class Job:
    """A running draws job, and the number of its unfinished shards."""

    posterior: int
    spec: DrawsSpec
    began: float
    free_at: int


@dataclass
class Outcome:
    """Result: waiting times by kind of request, utilization of each station, evictions."""

    waits: dict[str, list[float]]
    asked: int
    done: int
    busy: dict[str, float]
    spent: dict[str, float]
    refits: int
    evicted: int


Steps = Iterator[tuple[Line | None, float]]
"""A request in progress: each step is a line, or None, and seconds."""
