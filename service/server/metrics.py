"""Prometheus metrics of the deployment: few labels, nothing that grows with the users.

What happens is counted in Redis (`worker.observability.counters`), what is there is asked for at each scrape: so the numbers are those
of all processes together, whichever of them is asked. docs/how-to/operations.md lists them.
"""

from __future__ import annotations

import asyncio
import platform
import shutil
import time
from bisect import bisect_left
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import redis
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

import glle_engine
from worker.observability.counters import BUCKETS
from worker.operations.health import queue_states
from worker.storage.free_space import nearest_existing
from worker.storage.object_store.index import ObjectIndex

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.metrics_core import Metric

    from service.middleware.answer_cache import AnswerCache
    from worker.stores import Stores

FLUSH_SECONDS = 5.0  # what a process counted is added to the deployment's counts so often, and at each scrape
UNTOLD = float("nan")  # what a managed server does not say of itself
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

_COUNTERS = {
    "http_requests": ("Answers.", ("method", "route", "status")),
    "cache_reads": (
        "Arrays looked for, in an API process's memory, on the cache server and in the object store.",
        ("where", "result"),
    ),
    "store_requests": ("Requests to the object store.", ("what", "result")),
    "store_bytes": ("Bytes written to the object store, and read from it.", ("direction",)),
    "draws": ("Draws made, by the solver that passed.", ("solver",)),
    "draws_rejected": ("Results that the acceptance test refused: the next solver was tried.", ("solver",)),
}
_SPREADS = {
    "http_seconds": ("Time to the end of an answer, waiting included.", ("method", "route")),
    "job_seconds": ("From a request to the end of its job.", ("kind", "status")),
    "task_seconds": ("Time of a task by stage; queued is the wait for a worker.", ("kind", "stage")),
}


Answers = dict[tuple[str, str, int], list[float]]  # by method, route and status: how many a bucket, then all seconds


class Metrics:
    """The metrics as one API process gives them.

    Answers are counted on the event loop alone, without a lock: whoever wants what was counted takes it there.
    """

    def __init__(self, stores: Stores, recent: AnswerCache) -> None:
        self._counts = stores.counts
        self._recent = recent
        self._answers: Answers = {}
        self._due = time.perf_counter() + FLUSH_SECONDS
        self._registry = CollectorRegistry()
        self._registry.register(_Deployment(stores))

    def observe(self, method: str, route: str, status: int, started: float) -> None:
        """Count one answer that began at a `time.perf_counter`; `route` is the template."""
        now = time.perf_counter()
        known = self._answers.get((method, route, status))
        if known is None:
            known = self._answers[method, route, status] = [0] * (len(BUCKETS) + 2)
        known[bisect_left(BUCKETS, now - started)] += 1
        known[-1] += now - started
        if now > self._due:
            self._due = now + FLUSH_SECONDS
            asyncio.get_running_loop().run_in_executor(None, self.flush, self.taken())

    def taken(self) -> tuple[Answers, int]:
        """Return what was counted since this was last asked, on the event loop: answers, and hits in memory."""
        answers, self._answers = self._answers, {}
        hits, self._recent.hits = self._recent.hits, 0
        return answers, hits

    def flush(self, taken: tuple[Answers, int]) -> None:
        """Add what was taken to the deployment's counts."""
        answers, hits = taken
        for (method, route, status), (*counts, seconds) in answers.items():
            known = method if method in _METHODS else "(other)"  # a client's word: it may be any
            self._counts.add("http_requests", known, route, str(status), by=int(sum(counts)))
            self._counts.observe_counts("http_seconds", known, route, counts=counts, seconds=seconds)
        if hits:
            self._counts.add("cache_reads", "memory", "hit", by=hits)
        self._counts.flush()

    def text(self, taken: tuple[Answers, int]) -> bytes:
        """Return the exposition, with what was taken."""
        self.flush(taken)
        return generate_latest(self._registry)


class _Deployment(Collector):
    """What Redis and the disk know, asked for at each scrape."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    def describe(self) -> Iterable[Metric]:
        """Return nothing: registering must not ask Redis."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics; of a server that is away only that it is."""
        versions = (glle_engine.__version__, np.__version__, platform.python_version())
        build = GaugeMetricFamily("glle_build_info", "Versions.", labels=("version", "numpy", "python"))
        build.add_metric(versions, 1)
        yield build
        yield from self._data()
        yield from _told("glle_redis_up", "Whether the queue's Redis answers.", self._queue)
        yield from _told("glle_cache_up", "Whether the cache's Redis answers.", self._cache)

    def _data(self) -> Iterator[Metric]:
        count, size = self._stores.datasets.usage()
        yield _gauge("glle_datasets", "Data sets.", count)
        yield _gauge("glle_dataset_bytes", "Bytes of the data sets on disk.", size)
        free = shutil.disk_usage(nearest_existing(Path(self._stores.settings.data_dir))).free
        yield _gauge("glle_data_free_bytes", "Bytes free where the data sets are.", free)

    def _queue(self) -> list[Metric]:
        entered = CounterMetricFamily("glle_jobs_entered", "Jobs that entered a status.", labels=("kind", "status"))
        for (kind, status), count in sorted(self._stores.jobs.transition_counts().items()):
            entered.add_metric((kind, status), count)
        length = GaugeMetricFamily("glle_queue_length", "Tasks that wait for a worker.", labels=("queue",))
        oldest = GaugeMetricFamily("glle_queue_oldest_seconds", "How long the oldest of them waits.", labels=("queue",))
        states = queue_states(self._stores)
        for state in states:
            length.add_metric((state.name,), state.length)
            oldest.add_metric((state.name,), state.oldest_seconds)
        kinds = GaugeMetricFamily(
            "glle_numerics_workers", "Live workers by the bits of their results.", labels=("numbers", "pinned")
        )
        for state in states:
            kinds.add_metric((state.numbers, "yes" if state.is_pinned else "no"), len(state.workers))
        workers = {worker.name: worker.busy for state in states for worker in state.workers}  # one may serve several
        info = self._stores.client.info("memory")
        return [
            entered,
            length,
            oldest,
            kinds,
            _gauge("glle_workers", "Workers that gave a sign of life lately.", len(workers)),
            _gauge("glle_workers_busy", "Those of them that work.", sum(workers.values())),
            _gauge("glle_redis_bytes", "Memory in use by the queue's Redis.", info.get("used_memory", UNTOLD)),
            _gauge("glle_redis_max_bytes", "The most that it may use; 0: no limit.", info.get("maxmemory", UNTOLD)),
            *self._stored(),
            *self._counted(),
        ]

    def _stored(self) -> Iterator[Metric]:
        count, size, condemned = ObjectIndex(self._stores.client).sums()
        yield _gauge("glle_stored_objects", "Objects of the object store.", count)
        yield _gauge("glle_stored_object_bytes", "Their bytes.", size)
        yield _gauge("glle_store_condemned", "Objects to be removed that could not be yet.", condemned)

    def _counted(self) -> Iterator[Metric]:
        counters, spreads = self._stores.counts.read()
        for name, (told, labels) in _COUNTERS.items():
            counter = CounterMetricFamily(f"glle_{name}", told, labels=labels)
            for series, count in counters.items():
                if series[0] == name:
                    counter.add_metric(series[1:], count)
            yield counter
        for name, (told, labels) in _SPREADS.items():
            histogram = HistogramMetricFamily(f"glle_{name}", told, labels=labels)
            for series, spread in spreads.items():
                if series[0] == name:
                    histogram.add_metric(series[1:], list(spread.cumulative()), spread.seconds)
            yield histogram

    def _cache(self) -> list[Metric]:
        info = self._stores.cache.info()
        evicted = CounterMetricFamily("glle_cache_evictions", "Values that made room, since the server started.")
        evicted.add_metric((), info.get("evicted_keys", UNTOLD))
        return [
            _gauge("glle_cache_bytes", "Memory in use by the cache's Redis.", info.get("used_memory", UNTOLD)),
            _gauge("glle_cache_max_bytes", "The most that it may use; 0: no limit.", info.get("maxmemory", UNTOLD)),
            _gauge("glle_cache_budget_bytes", "What GLLE_CACHE_BYTES says it is.", self._stores.cache.budget),
            evicted,
        ]


def _told(name: str, told: str, ask: Any) -> Iterator[Metric]:
    """Yield whether a server answers, and what it says."""
    try:
        found = ask()
    except redis.RedisError:
        yield _gauge(name, told, 0)
        return
    yield _gauge(name, told, 1)
    yield from found


def _gauge(name: str, told: str, value: float) -> Metric:
    return GaugeMetricFamily(name, told, value=value)
