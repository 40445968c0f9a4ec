"""Simulated deployments of up to a thousand workers and a million posteriors, beside the closed form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bench.capacity.model.plan import Demand, plan
from bench.capacity.model.queueing_model import Shape
from bench.capacity.simulation import Simulation
from bench.capacity.stations import Setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.capacity.model.queueing_model import Model

POSTERIORS = 1_000_000
WORKERS = (1, 10, 30, 100, 300, 1_000)
LOAD = 0.7  # fraction of the workers' capacity
REQUESTS = 40_000  # approximate number of requests in a run
CACHE_BYTES = 512e9
LEAST_SECONDS = 10.0  # minimum duration of a run, so that queues exceed a task's time
# Proportions: fits, draws in jobs, first single draws, reads.
MIXES = {
    "interactive": Demand(shape=Shape(n=5_000), fits=1, draws=640, singles=60, reads=300, posteriors=POSTERIORS),
    "heavy": Demand(
        shape=Shape(n=50_000, k=12), fits=20, draws=16_000, singles=10, reads=50, job=256, posteriors=POSTERIORS
    ),
}


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result of one scenario.

    Attributes
    ----------
    asked, done
        Requests per second.
    p50, p95, p99
        Quantiles of the response time in seconds, over requests that ended after a tenth of the run; None without any.
    busy, expected
        Utilization of each station, simulated and by the closed form without refits and waiting.
    refits
        Refits per second.

    """

    mix: str
    workers: int
    api: int
    asked: float
    done: float
    p50: float | None
    p95: float | None
    p99: float | None
    busy: dict[str, float]
    expected: dict[str, float]
    refits: float


def results(model: Model) -> Iterator[Result]:
    """Simulate every mix with every number of workers at equal load."""
    for mix, demand in MIXES.items():
        for workers in WORKERS:
            yield simulated(model, mix, demand, workers)


def simulated(model: Model, mix: str, demand: Demand, workers: int, requests: int = REQUESTS) -> Result:
    """Simulate a mix at a rate that loads the workers by `LOAD`, if only they limit it."""
    rate = LOAD * workers / plan(model, demand).cost.worker_cpu
    asked = _at(demand, rate)
    found = plan(model, asked)
    a_second = asked.fits + asked.draws / asked.job + asked.singles + asked.reads
    seconds = max(LEAST_SECONDS, min(requests / a_second, 2_000.0))
    setting = Setting(demand=asked, workers=workers, api=found.api, cache_bytes=CACHE_BYTES, seconds=seconds)
    outcome = Simulation(model, setting).run()
    waits = np.concatenate([np.zeros(0), *map(np.asarray, outcome.waits.values())])
    p50, p95, p99 = np.quantile(waits, (0.5, 0.95, 0.99)).tolist() if len(waits) else (None, None, None)
    cost = found.cost
    stations = {one.name: one.busy for one in found.stations}
    expected = {
        "workers": cost.worker_cpu / workers,
        "api": cost.api_cpu / found.api,
        "queue": cost.queue_cpu,
        "cache": cost.cache_cpu,
        "network": stations["cache network"],
    }
    return Result(
        mix=mix, workers=workers, api=found.api, asked=outcome.asked / seconds, done=outcome.done / seconds, p50=p50,
        p95=p95, p99=p99, busy=outcome.busy, expected=expected, refits=outcome.refits / seconds,
    )  # fmt: skip


def _at(demand: Demand, rate: float) -> Demand:
    return replace(
        demand,
        fits=rate * demand.fits,
        draws=rate * demand.draws,
        singles=rate * demand.singles,
        reads=rate * demand.reads,
    )
