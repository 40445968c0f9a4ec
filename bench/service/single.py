"""Cost of uncached draws by GET: milliseconds over the engine, and Redis commands."""

from __future__ import annotations

import io
import itertools
import statistics
import time
from typing import TYPE_CHECKING

import numpy as np

from bench.data import data_of, posterior_of
from bench.report.table import Row
from bench.report.timing import in_turn
from bench.service.jobs import DRAWS, run_job
from glle_engine.linalg import LANES
from tests.system.monitor import Commands, cost, monitored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.service.deployment import Service

CASES = [("swiss_roll", 5_000), ("digits", 1_797)]
REPEATS = 40
WARM_UPS = 5
GOAL_MS = 8.0  # more than the engine's lane group
COUNTED = 5_000  # points
SINGLES, SINGLE_GOAL = 30, 8.0
JOBS, JOB_GOAL = 6, 80.0
CALM_SECONDS = 6.0  # counters are written every few seconds, and count for the operations before

# No two requests share a lane group.
seeds = itertools.count(10**6)


def rows(service: Service, largest: int) -> Iterator[Row]:
    """Measure single draws, each the first of its lane group, and count their commands."""
    for name, n in CASES:
        if n <= largest:
            yield _single(service, name, n)
    if largest >= COUNTED:
        yield from _commands(service)


def _single(service: Service, name: str, n: int) -> Row:
    """Compare a draw over HTTP with one lane group of the engine, in turn."""
    own = posterior_of(name, n)
    posterior = _posterior(service, name, n)
    lanes = LANES if own.lane_solver else 1

    def ask(_: int) -> None:
        body = service.http.npy(f"{posterior}/draws/0?seed={next(seeds)}")
        assert np.load(io.BytesIO(body)).shape == (n, 2)

    def alone(number: int) -> None:
        assert len(list(own.draws(lanes, seed=number))) == lanes

    for number in range(WARM_UPS):
        ask(number)
        alone(number)
    pair = in_turn(ask, alone, REPEATS)
    more = [a - b for a, b in zip(pair.ours, pair.theirs, strict=True)]
    detail = {
        "HTTP ms": pair.our_median * 1e3,
        "engine ms": pair.their_median * 1e3,
        "slowest HTTP ms": max(pair.ours) * 1e3,
    }
    work = f"an uncached single draw by GET, npy, {name}, n = {n:,}: ms more"
    figure = statistics.median(more) * 1e3
    return Row(work, "the engine's lane group", figure, "ms", GOAL_MS, at_least=False, detail=detail)


def _posterior(service: Service, name: str, n: int) -> str:
    if name != "digits":
        return service.fit_synthetic(name, n)
    buffer = io.BytesIO()
    np.save(buffer, data_of(name, n))
    return service.posterior(service.http.post("/datasets", buffer.getvalue())["id"])


def _commands(service: Service) -> Iterator[Row]:
    """Count the commands of both servers, less those of the same service without requests."""
    posterior = service.fit_synthetic("swiss_roll", COUNTED)

    def draw() -> None:
        service.http.npy(f"{posterior}/draws/0?seed={next(seeds)}")

    def job() -> None:
        run_job(service.http, posterior, COUNTED, DRAWS, next(seeds))

    draw()
    job()
    time.sleep(CALM_SECONDS)
    idle = _window(service, 0, draw)
    cases = (("an uncached single draw", SINGLES, SINGLE_GOAL, draw), (f"a job of {DRAWS} draws", JOBS, JOB_GOAL, job))
    for what, times, goal, do in cases:
        found = cost(_window(service, times, do), idle, times)
        work = f"Redis commands of {what}, n = {COUNTED:,}"
        detail = {"inside Lua": found.total_inner}
        yield Row(work, "-", found.total, "", goal, at_least=False, detail=detail)


def _window(service: Service, times: int, do: Callable[[], None]) -> Commands:
    with monitored(**service.urls) as commands:
        for _ in range(times):
            do()
        time.sleep(CALM_SECONDS)
    return commands
