"""What HTTP adds to work that is not cached: single draws, jobs of draws and a small fit, and their Redis commands."""

from __future__ import annotations

import itertools
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from bench.data import data_of, posterior_of
from bench.report import at_most, in_turn, seconds
from bench.service.monitor import Commands, count_commands
from glle_engine.linalg import LANES
from tests.system.arrays import from_npy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.report import Row
    from bench.service.deployment import Http, Service

JOBS = [(5_000, 7, 1.15), (20_000, 4, 1.05)]  # points, repetitions, goal
DRAWS = 64
FITTED, FITS, FIT_GOAL_MS = 500, 20, 40.0
CASES = [("swiss_roll", 5_000), ("digits", 1_797)]
REPEATS = 40
WARM_UPS = 5
GOAL_MS = 5.0  # more than the engine's lane group
COUNTED = 5_000  # points
CALM_SECONDS = 6.0  # counters are written every few seconds, and count for the operations before
# No two requests share a lane group.
seeds = itertools.count(10**6)


def job_rows(service: Service, largest: int) -> Iterator[Row]:
    """Yield the time of jobs of draws against the engine alone, and the time of a small fit."""
    for n, repeats, goal in JOBS:
        if n <= largest:
            yield _job(service, n, repeats, goal)
    yield _small_fit(service)


def run_job(http: Http, posterior: str, n: int, count: int, seed: int) -> None:
    """Request draws as a job over HTTP, wait for the job, and read the array of its result."""
    job = http.post(f"{posterior}/draws?wait=60", {"n_draws": count, "seed": seed})
    while job["status"] in {"queued", "running"}:
        job = http.get(f"/jobs/{job['id']}?wait=60")
    drawn = from_npy(http.npy(f"/jobs/{job['id']}/result"))
    assert drawn.shape == (count, n, 2), drawn.shape


def _job(service: Service, n: int, repeats: int, goal: float) -> Row:
    """Return how many times longer a job of draws over HTTP takes than the same draws by the engine alone."""
    local = posterior_of("swiss_roll", n)
    posterior = service.fit_synthetic("swiss_roll", n)

    def ask(number: int) -> None:
        run_job(service.http, posterior, n, DRAWS, 1 + number)

    def alone(number: int) -> None:
        drawn = np.stack([draw.embedding for draw in local.draws(DRAWS, seed=1 + number)])
        assert drawn.shape == (DRAWS, n, 2)

    alone(repeats)
    pair = in_turn(ask, alone, repeats)
    detail = {"HTTP s": pair.our_median, "engine s": pair.their_median}
    work = f"a job of {DRAWS} draws over HTTP, npy, n = {n:,}"
    return at_most(work, 1 / pair.ratio, "x", goal, "the engine alone", **detail)


def _small_fit(service: Service) -> Row:
    times = []
    for number in range(-WARM_UPS, FITS):
        dataset = service.upload(data_of("swiss_roll", FITTED, seed=100 + number))
        took = seconds(partial(service.posterior, dataset))
        if number >= 0:
            times.append(took)
    work = f"a small fit, n = {FITTED}, from POST to succeeded"
    return at_most(work, statistics.median(times) * 1e3, "ms", FIT_GOAL_MS, "-", **{"slowest ms": max(times) * 1e3})


SINGLES, SINGLE_GOAL = 30, 8.0
COUNTED_JOBS, JOB_GOAL = 6, 40.0


def rows(service: Service, largest: int) -> Iterator[Row]:
    """Yield the time of uncached single draws against the engine alone, and the Redis commands of draws and jobs."""
    for name, n in CASES:
        if n <= largest:
            yield _single(service, name, n)
    if largest >= COUNTED:
        yield from _commands(service)


def _single(service: Service, name: str, n: int) -> Row:
    """Return how much longer a draw over HTTP takes than the engine, which computes four draws at once, as well."""
    local = posterior_of(name, n)
    posterior = service.posterior(service.upload(data_of(name, n)))
    lanes = LANES if local.lane_solver else 1

    def ask(_: int) -> None:
        assert from_npy(service.http.npy(f"{posterior}/draws/0?seed={next(seeds)}")).shape == (n, 2)

    def alone(number: int) -> None:
        assert len(list(local.draws(lanes, seed=number))) == lanes

    for number in range(WARM_UPS):
        ask(number)
        alone(number)
    pair = in_turn(ask, alone, REPEATS)
    overhead = statistics.median(a - b for a, b in zip(pair.ours, pair.theirs, strict=True))
    detail = pair.medians("ms", 1e3) | {"slowest ours ms": max(pair.ours) * 1e3}
    work = f"an uncached single draw by GET, npy, {name}, n = {n:,}: ms more"
    return at_most(work, overhead * 1e3, "ms", GOAL_MS, "the engine's lane group", **detail)


def _commands(service: Service) -> Iterator[Row]:
    """Yield how many Redis commands a draw takes, and a job of draws, beyond the commands of an idle service."""
    posterior = service.fit_synthetic("swiss_roll", COUNTED)

    def draw() -> None:
        service.http.npy(f"{posterior}/draws/0?seed={next(seeds)}")

    def job() -> None:
        run_job(service.http, posterior, COUNTED, DRAWS, next(seeds))

    draw()
    job()
    time.sleep(CALM_SECONDS)
    idle = _window(service, 0, draw)
    cases = (
        ("an uncached single draw", SINGLES, SINGLE_GOAL, draw),
        (f"a job of {DRAWS} draws", COUNTED_JOBS, JOB_GOAL, job),
    )
    for what, times, goal, do in cases:
        busy = _window(service, times, do)
        scale, counts = busy.seconds / idle.seconds, ((busy.sent, idle.sent), (busy.inner, idle.inner))
        sent, inner = ((mine.total() - scale * others.total()) / times for mine, others in counts)
        work = f"Redis commands of {what}, n = {COUNTED:,}"
        yield at_most(work, sent, "", goal, "-", **{"inside Lua": inner})


def _window(service: Service, times: int, do: Callable[[], None]) -> Commands:
    with count_commands(**service.urls) as commands:
        for _ in range(times):
            do()
        time.sleep(CALM_SECONDS)
    return commands
