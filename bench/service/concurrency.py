"""Draws per second of many clients that request single uncached draws, against the engine without a service."""

from __future__ import annotations

import itertools
import multiprocessing
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from typing import TYPE_CHECKING

from bench.data import data_of
from bench.report import Row
from bench.service.load import Load, load, median
from glle_engine import fit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.service.deployment import Service
    from bench.service.load import Measured
    from glle_engine import Posterior

N = 2_000
CLIENTS = 32
POSTERIORS = [(1, 0.6), (8, 0.45)]  # number, goal
BATCH = 64  # draws of the engine at a time
LOAD_SECONDS, ENGINE_SECONDS = 3.0, 1.5
ROUNDS = 3

# Every request has another seed, so that no draw of it or of its lane group is cached.
first_seeds = itertools.count(10**7, 10**6)


def rows(service: Service, workers: int) -> Iterator[Row]:
    """Yield the draws per second that clients get from one posterior and from several, against the engine alone."""
    for count, goal in POSTERIORS:
        paths = [service.fit_synthetic("swiss_roll", N, seed) for seed in range(count)]
        for seed in range(count):
            _posterior(seed)  # fitted before the processes fork
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork")) as engine:
            pairs = [(load(_asking(service, paths)), _engine_rate(engine, workers, count)) for _ in range(ROUNDS + 1)]
        yield _rate_row(pairs[1:], count, goal, workers, service.apis)  # without the warm-up


def _asking(service: Service, paths: list[str]) -> Load:
    return Load(
        url=service.up.url,
        paths=[f"/v1{path}/draws/0?seed={{}}&wait=30" for path in paths],
        clients=CLIENTS,
        seconds=LOAD_SECONDS,
        first=next(first_seeds),
        different=0,
    )


def _rate_row(pairs: list[tuple[Measured, float]], count: int, goal: float, workers: int, apis: int) -> Row:
    ours = [rates for rates, _ in pairs]
    ratio = statistics.median(rates.rate / rate for rates, rate in pairs)
    detail = {"HTTP draws/s": median(ours, "rate"), "engine draws/s": statistics.median(rate for _, rate in pairs)}
    detail |= {f"{name} ms": 1e3 * median(ours, name) for name in ("p50", "p99")}
    detail["clients' share of a core"] = median(ours, "cpu")
    of = "one posterior" if count == 1 else f"{count} posteriors"
    processes = f"{workers} worker{'s' * (workers > 1)}, {apis} API process{'es' * (apis > 1)}"
    work = f"{CLIENTS} clients, single uncached draws of {of}, n = {N:,}, {processes}"
    against = f"batches of the engine in {workers} process{'es' * (workers > 1)}"
    return Row(work, against, ratio, "x", goal, detail=detail)


def _engine_rate(engine: ProcessPoolExecutor, workers: int, count: int) -> float:
    """Return the draws per second of the engine in as many processes as workers, all together."""
    return sum(engine.map(partial(_draw, count), range(workers)))


def _draw(count: int, process: int) -> float:
    """Return the draws per second of one process, which draws batches from several posteriors in turn."""
    posteriors = [_posterior(seed) for seed in range(count)]
    started, number = time.perf_counter(), 0
    while (took := time.perf_counter() - started) < ENGINE_SECONDS:
        for _ in posteriors[number % count].draws(BATCH, seed=1000 * process + number):
            pass
        number += 1
    return BATCH * number / took


@cache
def _posterior(seed: int) -> Posterior:
    return fit(data_of("swiss_roll", N, seed), n_neighbors=10)
