"""Overhead of a job over HTTP: many draws, and a small fit."""

from __future__ import annotations

import io
import itertools
import statistics
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from bench.data import data_of, posterior_of
from bench.report.table import Row
from bench.report.timing import in_turn, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.service.deployment import Http, Service

JOBS = [(5_000, 7, 1.15), (20_000, 4, 1.05)]  # points, repetitions, goal
DRAWS = 64
FITTED, FITS, FIT_GOAL_MS = 500, 20, 40.0
WARM_UPS = 3

seeds = itertools.count(1)


def rows(service: Service, largest: int) -> Iterator[Row]:
    """Measure jobs of many draws, and a small fit."""
    for n, repeats, goal in JOBS:
        if n <= largest:
            yield _job(service, n, repeats, goal)
    yield _small_fit(service)


def run_job(http: Http, posterior: str, n: int, count: int, seed: int) -> None:
    """Draw over HTTP, from the request to the array."""
    job = http.post(f"{posterior}/draws?wait=60", {"count": count, "seed": seed})
    while job["status"] in {"queued", "running"}:
        job = http.get(f"/jobs/{job['id']}?wait=60")
    drawn = np.load(io.BytesIO(http.npy(f"/jobs/{job['id']}/result")))
    assert drawn.shape == (count, n, 2), drawn.shape


def _job(service: Service, n: int, repeats: int, goal: float) -> Row:
    """Compare uncached draws over HTTP with the same draws by the engine alone."""
    own = posterior_of("swiss_roll", n)
    posterior = service.fit_synthetic("swiss_roll", n)

    def ask(number: int) -> None:
        run_job(service.http, posterior, n, DRAWS, 1 + number)

    def alone(number: int) -> None:
        drawn = np.stack([draw.embedding for draw in own.draws(DRAWS, seed=1 + number)])
        assert drawn.shape == (DRAWS, n, 2)

    alone(repeats)
    pair = in_turn(ask, alone, repeats)
    detail = {"HTTP s": pair.our_median, "engine s": pair.their_median}
    work = f"a job of {DRAWS} draws over HTTP, npy, n = {n:,}"
    return Row(work, "the engine alone", 1 / pair.ratio, "x", goal, at_least=False, detail=detail)


def _small_fit(service: Service) -> Row:
    times = []
    for number in range(-WARM_UPS, FITS):
        buffer = io.BytesIO()
        np.save(buffer, data_of("swiss_roll", FITTED, seed=100 + number))
        dataset = service.http.post("/datasets", buffer.getvalue())["id"]
        took = seconds(partial(service.posterior, dataset))
        if number >= 0:
            times.append(took)
    detail = {"slowest ms": max(times) * 1e3}
    work = f"a small fit, n = {FITTED}, from POST to succeeded"
    figure = statistics.median(times) * 1e3
    return Row(work, "-", figure, "ms", FIT_GOAL_MS, at_least=False, detail=detail)
