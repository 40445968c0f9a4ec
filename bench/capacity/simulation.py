"""Discrete event simulation of a deployment with the costs of the model: queues, bottlenecks and refits.

Requests arrive at random (Poisson) for posteriors of unequal popularity (Zipf). Each passes an API process, the single
thread of the queue server, the queue (single draws first), a worker, and the single thread and the network of the cache
server. The cache evicts the least recently used entry; an evicted posterior is fitted again.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict, deque
from typing import TYPE_CHECKING

import numpy as np

from bench.capacity.model.plan import NETWORK, reading
from bench.capacity.stations import Job, Line, LruCache, Outcome
from worker.records.draws import DrawsSpec
from worker.records.sharding import SHARD_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.capacity.model.queueing_model import Cost, Model
    from bench.capacity.stations import Setting, Steps

GROUP = 4  # draws that a first single draw adds to the cache


class Simulation:
    """Result of one simulation."""

    def __init__(self, model: Model, setting: Setting) -> None:
        self._model, self._setting, self._demand = model, setting, setting.demand
        self._shape = setting.demand.shape
        self.now = 0.0
        self._events: list[tuple[float, int, Steps]] = []
        self._order = itertools.count()
        self.api, self.queue = Line([0.0] * setting.api), Line([0.0])
        self.cache, self.network = Line([0.0]), Line([0.0])
        self._idle = list(range(setting.workers))
        self._worked = 0.0
        self._urgent: deque[Steps] = deque()
        self._batch: deque[Steps] = deque()
        self._given = -1
        self._waits: defaultdict[str, list[float]] = defaultdict(list)
        self._asked = self._done = self._refits = 0
        self._random = np.random.default_rng(setting.seed)
        self._costs()
        self._cached = LruCache(setting.cache_bytes)
        # The most popular posteriors were used last.
        room = int(setting.cache_bytes / (self._posterior_bytes + GROUP * self._draw_bytes))
        for rank in reversed(range(min(self._demand.posteriors, room))):
            self._cached.put(rank, self._posterior_bytes)
            self._cached.put((rank, "draw"), GROUP * self._draw_bytes)

    def _costs(self) -> None:
        """Compute all costs once."""
        model, shape, job = self._model, self._shape, float(self._demand.job)
        answer = model.answer_bytes(shape)
        self._cost = {
            "fit": model.cost("fit", shape),
            "upload": model.cost("upload", shape, bytes=8.0 * shape.n * shape.d),
            "first": model.cost("first", shape, draws=float(GROUP), bytes=answer),
            "read": model.cost("cached npy", shape, bytes=answer),
            "job": model.cost("job", shape, draws=job, tasks=0.0),
            "task": _finish(
                model.cost("job", shape, draws=job, tasks=1.0), model.cost("job", shape, draws=job, tasks=0.0)
            ),
            "result": model.cost("result npy", shape, draws=job, bytes=job * answer),
            "reading": reading(model, shape),
        }
        self._posterior_bytes = model.engine("posterior_cached", shape)
        self._draw_bytes = model.engine("draw_cached", shape)
        self._fit_seconds = model.fit_seconds(shape)
        seconds = 1e-6 * shape.n * (shape.p + 1) / 3
        self.spec = DrawsSpec(
            n=shape.n, p=shape.p, count=self._demand.job, first=0, seed=0, scales=(1.0,), grid=False,
            source="posterior", align="procrustes", draw_seconds=seconds, shard_seconds=SHARD_SECONDS,
        )  # fmt: skip

    def run(self) -> Outcome:
        """Simulate the arrivals and their service for the configured time; return the outcome."""
        for at, kind, posterior in self._arrivals():
            self._push(at, getattr(self, f"_{kind}")(posterior))
        end = self._setting.seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, steps = heapq.heappop(self._events)
            self._advance(steps)
        stations = {"api": self.api, "queue": self.queue, "cache": self.cache, "network": self.network}
        spent = {name: line.busy for name, line in stations.items()} | {"workers": self._worked}
        size = {"api": self._setting.api, "workers": self._setting.workers}
        busy = {name: min(1.0, seconds / end / size.get(name, 1)) for name, seconds in spent.items()}
        return Outcome(dict(self._waits), self._asked, self._done, busy, spent, self._refits, self._cached.evicted)

    def _arrivals(self) -> Iterator[tuple[float, str, int]]:
        demand, seconds = self._demand, self._setting.seconds
        rates = {"fit": demand.fits, "single": demand.singles, "job": demand.draws / demand.job, "read": demand.reads}
        popularity = np.cumsum(1.0 / np.arange(1, max(2, demand.posteriors) + 1) ** self._setting.zipf)
        new = itertools.count(demand.posteriors)
        for kind, rate in rates.items():
            times = np.sort(self._random.uniform(0, seconds, self._random.poisson(rate * seconds)))
            ranks = np.searchsorted(popularity, self._random.uniform(0, popularity[-1], len(times)))
            for at, rank in zip(times.tolist(), ranks.tolist(), strict=True):
                yield at, kind, next(new) if kind == "fit" else rank

    def _push(self, at: float, steps: Steps) -> None:
        heapq.heappush(self._events, (at, next(self._order), steps))

    def _advance(self, steps: Steps) -> None:
        """Take the next step of a request: enter a line, or let time pass."""
        step = next(steps, None)
        if step is not None:
            line, seconds = step
            self._push(self.now + seconds if line is None else line.leave(self.now, seconds), steps)

    def _fit(self, posterior: int) -> Steps:
        began = self._begin()
        cost, upload = self._cost["fit"], self._cost["upload"]
        yield self.api, cost.api_cpu + upload.api_cpu
        yield self.queue, (cost.queue_cpu + upload.queue_cpu) / 2

        def task() -> Steps:
            worker = self._given
            yield None, self._work(cost.worker_cpu)
            yield self.cache, cost.cache_cpu
            yield self.network, cost.cache_in / NETWORK
            self._cached.put(posterior, self._posterior_bytes)
            yield self.queue, (cost.queue_cpu + upload.queue_cpu) / 2
            self._free(worker)
            self._end("fit", began)

        self._enqueue(task())

    def _read(self, posterior: int) -> Steps:
        if not self._cached.has((posterior, "draw")):
            yield from self._single(posterior)
            return
        began, cost = self._begin(), self._cost["read"]
        yield self.api, cost.api_cpu
        yield self.queue, cost.queue_cpu
        yield self.cache, cost.cache_cpu
        yield self.network, cost.cache_out / NETWORK
        self._end("read", began)

    def _single(self, posterior: int) -> Steps:
        began, cost = self._begin(), self._cost["first"]
        yield self.api, cost.api_cpu
        yield self.queue, cost.queue_cpu / 2

        def task() -> Steps:
            worker = self._given
            yield from self._load_posterior(posterior)
            yield None, self._work(cost.worker_cpu)
            yield self.cache, cost.cache_cpu
            yield self.network, cost.cache_in / NETWORK
            self._cached.put((posterior, "draw"), GROUP * self._draw_bytes)
            yield self.queue, cost.queue_cpu / 2
            self._free(worker)
            self._end("single", began)

        self._enqueue(task(), urgent=True)

    def _job(self, posterior: int) -> Steps:
        job = Job(posterior, self.spec, self._begin(), self.spec.shards)
        yield self.api, self._cost["job"].api_cpu
        yield self.queue, self._cost["job"].queue_cpu / 2
        self._open(job, [0])

    def _open(self, job: Job, shards: list[int]) -> None:
        for shard in shards:
            self._enqueue(self._shard(job, shard))

    def _shard(self, job: Job, shard: int) -> Steps:
        """Run a shard of a job; the first one enqueues the others."""
        worker, whole = self._given, self._cost["job"]
        yield self.queue, self._cost["task"].queue_cpu
        yield None, self._work(self._cost["task"].worker_cpu)
        yield from self._load_posterior(job.posterior)
        share = job.spec.shard_size(shard) / job.spec.total
        if shard == 0:
            self._open(job, list(range(1, job.spec.shards)))
        yield None, self._work(share * whole.worker_cpu)
        yield self.cache, share * whole.cache_cpu
        yield self.network, share * whole.cache_in / NETWORK
        yield self.queue, share * whole.queue_cpu / 2
        self._cached.put((job.posterior, job.began, shard), job.spec.shard_size(shard) * self._draw_bytes)
        job.free_at -= 1
        self._free(worker)
        if not job.free_at:
            result = self._cost["result"]
            yield self.api, result.api_cpu
            yield self.queue, result.queue_cpu
            yield self.cache, result.cache_cpu
            yield self.network, result.cache_out / NETWORK
            self._end("job", job.began)

    def _load_posterior(self, posterior: int) -> Steps:
        """Load a posterior into a task's memory: from the cache, or by a refit."""
        cost = self._cost["reading"]
        if not self._cached.has(posterior):
            self._refits += 1
            yield None, self._work(self._fit_seconds)
            yield self.cache, self._cost["fit"].cache_cpu
            yield self.network, self._cost["fit"].cache_in / NETWORK
            self._cached.put(posterior, self._posterior_bytes)
        yield self.cache, cost.cache_cpu
        yield self.network, cost.cache_out / NETWORK
        yield None, self._work(cost.worker_cpu)

    def _enqueue(self, steps: Steps, *, urgent: bool = False) -> None:
        if urgent:
            self._urgent.append(steps)
        else:
            self._batch.append(steps)
        self._dispatch()

    def _dispatch(self) -> None:
        """Give waiting tasks to idle workers."""
        while self._idle and (self._urgent or self._batch):
            steps = (self._urgent or self._batch).popleft()
            self._given = self._idle.pop()  # read by its first step
            self._advance(steps)

    def _free(self, worker: int) -> None:
        self._idle.append(worker)
        self._dispatch()

    def _work(self, seconds: float) -> float:
        self._worked += seconds
        return seconds

    def _begin(self) -> float:
        self._asked += 1
        return self.now

    def _end(self, kind: str, began: float) -> None:
        self._done += 1
        if began > self._setting.seconds / 10:
            self._waits[kind].append(self.now - began)


def _finish(more: Cost, less: Cost) -> Cost:
    return more.plus(less.times(-1.0))
