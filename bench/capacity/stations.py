"""Parts of the simulation: stations that serve in order, a cache that evicts, jobs, and the result."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.capacity.model.plan import Demand
    from worker.records.draws import DrawsSpec


@dataclass
class Line:
    """Station that serves in order; `busy` seconds of its time were used."""

    servers: list[float]
    busy: float = 0.0

    def leave(self, now: float, seconds: float) -> float:
        """Return when who comes now, and is served for so long, leaves."""
        end = max(now, heapq.heappop(self.servers)) + seconds
        heapq.heappush(self.servers, end)
        self.busy += seconds
        return end


class Kept:
    """Values by name in so many bytes: what was used longest ago goes first."""

    def __init__(self, room: float) -> None:
        self._room = room
        self._bytes = 0.0
        self._kept: OrderedDict[object, float] = OrderedDict()
        self.evicted = 0

    def has(self, name: object) -> bool:
        """Say whether a value is there, which uses it."""
        if name in self._kept:
            self._kept.move_to_end(name)
            return True
        return False

    def put(self, name: object, nbytes: float) -> None:
        """Keep a value."""
        self._bytes += nbytes - self._kept.pop(name, 0.0)
        self._kept[name] = nbytes
        while self._bytes > self._room and len(self._kept) > 1:
            self._bytes -= self._kept.popitem(last=False)[1]
            self.evicted += 1


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A deployment, and what is asked of it.

    Parameters
    ----------
    demand
        Rates a second; `posteriors` there are, of which as many are cached at first as there is room for.
    cache_bytes
        Room of the cache.
    seconds
        That requests come; a tenth before counts not.
    zipf
        The posterior of rank r is asked for in proportion to 1 / r^zipf.

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
    """A draws job at work: shards that wait, and how many are still to be made."""

    posterior: int
    spec: DrawsSpec
    began: float
    left: int
    waiting: set[int] = field(default_factory=set)


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
"""A request on its way: each step is a line to stand in, or none, and seconds."""
