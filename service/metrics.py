"""Prometheus metrics: one registry an app, few labels, nothing that grows with the users."""

from __future__ import annotations

from typing import TYPE_CHECKING

import redis
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric

    from worker.stores import Stores

_BUCKETS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0)


class Metrics:
    """The metrics of one app."""

    def __init__(self, stores: Stores) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "glle_http_requests", "Answers.", ("method", "route", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "glle_http_seconds", "Time to the end of an answer, waiting included.", ("method", "route"),
            buckets=_BUCKETS, registry=self._registry,
        )  # fmt: skip
        self._registry.register(_Jobs(stores))
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}  # found once: labels() is slow

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answer; `route` is the template."""
        known = self._children.get((method, route, status))
        if known is None:
            known = self._requests.labels(method, route, status), self._seconds.labels(method, route)
            self._children[method, route, status] = known
        known[0].inc()
        known[1].observe(seconds)

    def text(self) -> bytes:
        """Return the exposition."""
        return generate_latest(self._registry)


class _Jobs(Collector):
    """What Redis knows, asked for at each scrape."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    def describe(self) -> Iterable[Metric]:
        """Return nothing: registering must not ask Redis."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics of jobs, queue and workers; only `glle_redis_up` when Redis is away."""
        entered = CounterMetricFamily(
            "glle_jobs_entered", "Jobs that entered a status, ever.", labels=("kind", "status")
        )
        try:
            for (kind, status), count in sorted(self._stores.jobs.entered().items()):
                entered.add_metric((kind, status), count)
            length, alive = self._stores.queue.length(), self._stores.queue.live_workers()
        except redis.RedisError:
            yield GaugeMetricFamily("glle_redis_up", "Whether the queue's Redis answers.", value=0)
            return
        yield GaugeMetricFamily("glle_redis_up", "Whether the queue's Redis answers.", value=1)
        yield entered
        yield GaugeMetricFamily("glle_queue_length", "Tasks that wait for a worker.", value=length)
        yield GaugeMetricFamily("glle_workers", "Workers that gave a sign of life lately.", value=alive)
