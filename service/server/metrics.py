"""Prometheus metrics of the whole deployment, with a bounded number of time series.

Counters are added up in Redis (`worker.observability.counters`), and gauges are read from Redis and the disk at each
scrape, so that every API process reports the same numbers. docs/how-to/operations.md lists the metrics.
"""

from __future__ import annotations

import asyncio
import platform
import shutil
import time
from bisect import bisect_left
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import redis
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

import glle_engine
from worker.base.clock import clock_skew
from worker.base.disk import nearest_existing
from worker.base.problems import ProblemError
from worker.jobs.draw_stream import stream_state
from worker.observability.counters import BUCKETS
from worker.observability.live_workers import live_workers
from worker.operations.health import queue_states
from worker.records.job import QUEUES
from worker.records.shares import MAX_DRAWS, MAX_JOBS, part_of
from worker.storage.mark import LOSSES, MAX_CHECK_AGE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client.metrics_core import Metric

    from service.middleware.answer_cache import AnswerCache
    from worker.stores import Stores

# A process sends its counts to Redis this long after the first new count, and at each scrape that it answers.
FLUSH_SECONDS = 5.0
LOG_STATUS = "aof_last_write_status"
UNKNOWN = float("nan")  # value of a gauge if a managed Redis server hides the number
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

_COUNTERS = {
    "http_requests": ("Responses.", ("method", "route", "status")),
    "cache_reads": (
        "Lookups of draws in an API process's memory, and on the cache server.",
        ("where", "result"),
    ),
    "store_requests": ("Requests to the object store.", ("what", "result")),
    "store_bytes": ("Bytes written to and read from the object store.", ("direction",)),
    "draws": ("Draws, by the solver whose result was accepted.", ("solver",)),
    "draws_rejected": ("Results that the acceptance test rejected.", ("solver",)),
    "sampler_draws": ("Draws by samplers, which draw four at once: the requested ones, and all.", ("what",)),
    "jobs_entered": ("Jobs that entered a status.", ("kind", "status")),
    "tasks_killed": ("Tasks whose process was killed.", ("queue",)),
}
_HISTOGRAMS = {
    "http_seconds": ("Time to the end of a response, waits included.", ("method", "route")),
    "job_seconds": ("From a request to the end of its job.", ("kind", "status")),
    "task_seconds": ("Time of a task by stage; queued is the wait for a worker.", ("kind", "stage")),
}

# Method, route and status -> number of responses in each bucket of seconds, then the sum of the seconds.
Responses = dict[tuple[str, str, int], list[float]]


class Metrics:
    """Metrics that GET /metrics of an API process returns, and the counts of this process that Redis does not have yet.

    The counts have no lock, so `observe` and `drain` must be called on the event loop.
    """

    def __init__(self, stores: Stores, answer_cache: AnswerCache) -> None:
        self._counts = stores.counts
        self._answer_cache = answer_cache
        self._responses: Responses = {}
        self._timer: asyncio.TimerHandle | None = None
        self._registry = CollectorRegistry()
        self._registry.register(_Deployment(stores))

    def observe(self, method: str, route: str, status: int, started: float) -> None:
        """Count a response; `route` is a path template, `started` the `time.perf_counter` at the request's arrival."""
        now = time.perf_counter()
        counts = self._responses.get((method, route, status))
        if counts is None:
            counts = self._responses[method, route, status] = [0] * (len(BUCKETS) + 2)
        counts[bisect_left(BUCKETS, now - started)] += 1
        counts[-1] += now - started
        if self._timer is None:  # a scrape may reach another process, which reads these counts from Redis
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self._flush_later)

    def _flush_later(self) -> None:
        self._timer = None
        asyncio.get_running_loop().run_in_executor(None, self.flush, self.drain())

    def drain(self) -> tuple[Responses, int]:
        """Return the counted responses and the hits of the answer cache, and reset both to zero."""
        responses, self._responses = self._responses, {}
        hits, self._answer_cache.hits = self._answer_cache.hits, 0
        return responses, hits

    def flush(self, counted: tuple[Responses, int]) -> None:
        """Add the counts that `drain` returned to the counters of the deployment in Redis."""
        responses, hits = counted
        for (method, route, status), (*counts, seconds) in responses.items():
            label = method if method in _METHODS else "(other)"  # a client may send anything as method
            self._counts.add("http_requests", label, route, str(status), increment=int(sum(counts)))
            self._counts.observe_counts("http_seconds", label, route, counts=counts, seconds=seconds)
        if hits:
            self._counts.add("cache_reads", "memory", "hit", increment=hits)
        self._counts.flush()

    def exposition(self, counted: tuple[Responses, int]) -> bytes:
        """Return the metrics of the whole deployment in the text format of Prometheus.

        First add `counted`, the counts of this process that `drain` returned, to the counters of the deployment in
        Redis.
        """
        self.flush(counted)
        return generate_latest(self._registry)


class _Deployment(Collector):
    """Prometheus collector that reads the state of the deployment from Redis and the disk at each scrape."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    def describe(self) -> Iterable[Metric]:
        """Return no metrics, because registration would otherwise call `collect`, which needs Redis."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics.

        If a Redis server does not answer, its only metric is the gauge `glle_redis_up` or `glle_cache_up`, which is 0.
        """
        versions = (glle_engine.__version__, np.__version__, platform.python_version())
        build = GaugeMetricFamily("glle_build_info", "Versions.", labels=("version", "numpy", "python"))
        build.add_metric(versions, 1)
        yield build
        yield from self._data()
        yield from _server("glle_redis_up", "Whether the queue's Redis answers.", self._queue)
        yield from _server("glle_cache_up", "Whether the cache's Redis answers.", self._cache)

    def _data(self) -> Iterator[Metric]:
        with suppress(redis.RedisError, ProblemError):  # without an answer it is unknown whether data are lost
            yield self._losses()
        with suppress(redis.RedisError):
            usage = self._stores.datasets.usage()
            yield _gauge("glle_datasets", "Data sets.", usage["datasets"])
            yield _gauge("glle_posteriors", "Posteriors.", usage["posteriors"])
            yield _gauge("glle_results", "Results of analyses, their parts, and shards of draws.", usage["results"])
            yield _gauge("glle_stored_bytes", "Bytes of the files of all records.", usage["stored_bytes"])
        disk = shutil.disk_usage(nearest_existing(Path(self._stores.settings.data_dir)))
        yield _gauge("glle_data_free_bytes", "Bytes free on the disk of the data folder.", disk.free)
        yield _gauge("glle_data_disk_bytes", "Bytes of the disk of the data folder.", disk.total)

    def _losses(self) -> Metric:
        """Return the gauge `glle_data_lost`: for each reason in `LOSSES` 1 if data are lost for this reason, else 0.

        Raises `redis.RedisError`, or `ProblemError` if the store of the files does not answer.
        """
        loss = self._stores.mark.find_loss(MAX_CHECK_AGE_SECONDS)
        gauge = GaugeMetricFamily(
            "glle_data_lost", "Whether data are lost or unreadable, by reason.", labels=("reason",)
        )
        for reason in LOSSES:
            gauge.add_metric((reason,), loss is not None and loss.problem.code == reason)
        return gauge

    def _queue(self) -> list[Metric]:
        length = GaugeMetricFamily("glle_queue_length", "Tasks and requests for draws that wait.", labels=("queue",))
        oldest = GaugeMetricFamily("glle_queue_oldest_seconds", "Longest wait of a task or request.", labels=("queue",))
        running = GaugeMetricFamily(
            "glle_queue_running", "Tasks and draw requests that are being processed.", labels=("queue",)
        )
        for state in queue_states(self._stores):
            length.add_metric((state.name,), state.length)
            oldest.add_metric((state.name,), state.oldest_seconds)
            running.add_metric((state.name,), state.running)
        client = self._stores.client
        workers = live_workers(client)
        info, log = client.info("memory"), client.info("persistence")
        skews = [clock_skew(client), *(worker.skew for worker in workers)]
        return [
            length,
            oldest,
            running,
            _gauge("glle_workers", "Workers with a recent heartbeat.", len(workers)),
            _gauge("glle_workers_busy", "Workers that are busy.", sum(worker.busy > 0 for worker in workers)),
            _gauge("glle_redis_bytes", "Memory in use by the queue's Redis.", info.get("used_memory", UNKNOWN)),
            _gauge("glle_redis_max_bytes", "Memory limit of this Redis; 0: none.", info.get("maxmemory", UNKNOWN)),
            _gauge("glle_redis_log_ok", "Whether the last write of its log succeeded.", log.get(LOG_STATUS) != "err"),
            _gauge("glle_clock_skew_seconds", "Largest difference from the clock of this Redis.", max(map(abs, skews))),
            _gauge("glle_admin_keys", "Valid keys with the scope admin.", self._admin_keys()),
            *self._counter_metrics(),
        ]

    def _admin_keys(self) -> float:
        try:
            return self._stores.keys.count_admins()
        except ProblemError:  # the record of a key was written by another version
            return UNKNOWN

    def _counter_metrics(self) -> Iterator[Metric]:
        counters, histograms = self._stores.counts.read()
        for queue in QUEUES:  # increase() in PromQL needs a value before the first event
            counters.setdefault(("tasks_killed", queue), 0)
        for name, (text, labels) in _COUNTERS.items():
            counter = CounterMetricFamily(f"glle_{name}", text, labels=labels)
            for series, count in counters.items():
                if series[0] == name:
                    counter.add_metric(series[1:], count)
            yield counter
        for name, (text, labels) in _HISTOGRAMS.items():
            histogram = HistogramMetricFamily(f"glle_{name}", text, labels=labels)
            for series, observed in histograms.items():
                if series[0] == name:
                    histogram.add_metric(series[1:], list(observed.cumulative()), observed.seconds)
            yield histogram

    def _shares(self) -> Metric:
        """Return the gauge `glle_share_in_use`: by resource, the largest fraction of a tenant's share that is used.

        Raises `redis.RedisError`.
        """
        stores, limit = self._stores, self._stores.quotas.limit
        fractions = {name: fraction for name, (_, fraction) in stores.shares.of_all(stores.cache.client).items()}
        draws = stream_state(stores.cache.client).lengths
        for name, held, total in (("draws", draws, MAX_DRAWS), ("jobs", stores.jobs.open_of_tenants(), MAX_JOBS)):
            of_tenants = (part_of(count, limit(name, tenant), total) for tenant, count in held.items())
            fractions[name] = max(of_tenants, default=0.0)
        text = "Largest fraction of its share that a tenant uses; at 1 the tenant is refused more."
        gauge = GaugeMetricFamily("glle_share_in_use", text, labels=("of",))
        for name, fraction in sorted(fractions.items()):
            gauge.add_metric((name,), fraction)
        return gauge

    def _cache(self) -> list[Metric]:
        info = self._stores.cache.client.info()
        evicted = CounterMetricFamily("glle_cache_evictions", "Evicted values since the server started.")
        evicted.add_metric((), info.get("evicted_keys", UNKNOWN))
        return [
            _gauge("glle_cache_bytes", "Memory in use by the cache's Redis.", info.get("used_memory", UNKNOWN)),
            _gauge("glle_cache_max_bytes", "Memory limit of this Redis; 0: none.", info.get("maxmemory", UNKNOWN)),
            _gauge("glle_cache_budget_bytes", "The setting GLLE_CACHE_BYTES.", self._stores.cache.budget),
            evicted,
            self._shares(),
        ]


def _server(name: str, text: str, collect: Callable[[], list[Metric]]) -> Iterator[Metric]:
    """Yield the gauge `name` (1 if the Redis server answers, else 0), and then the metrics that `collect` returns."""
    try:
        metrics = collect()
    except redis.RedisError:
        yield _gauge(name, text, 0)
        return
    yield _gauge(name, text, 1)
    yield from metrics


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
