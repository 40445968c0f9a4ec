"""Costs of fits and draws in the engine: processor seconds by stage, peak memory and bytes, one process per setting."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from glle_engine import fit, manifolds
from glle_engine.base.progress import StageClock
from glle_engine.eigen.eigenproblem import warm
from glle_engine.linalg import LANES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from glle_engine import Posterior

SIZES = (500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)
LARGE = 20_000  # above this size, every other combination is enough
NEIGHBORS, COMPONENTS, FEATURES = (8, 12, 20), (2, 3), (3, 8, 64)
NOISE = 0.02  # fraction of each feature's spread, so that no feature is an exact sum of others
SEEDS = 20
GROUPS = 4  # lane groups; the cost of a draw is their median
SECONDS = 0.4  # seconds of repetitions of a small fit; the result is their median

Row = dict[str, float]


def rows(largest: int) -> Iterator[Row]:
    """Yield the costs of each setting of the grid, the smallest first."""
    warm()
    context = multiprocessing.get_context("fork")
    grid = product([n for n in SIZES if n <= largest], NEIGHBORS, COMPONENTS, FEATURES)
    chosen = [setting for number, setting in enumerate(grid) if setting[0] < LARGE or number % 2]
    with context.Pool(1, maxtasksperchild=1) as apart:  # a separate peak for each
        for setting in chosen:
            yield apart.apply(_measured, (setting, apart.apply(_seed, (setting,))))


def data_of(n: int, d: int, seed: int = 0) -> NDArray[np.float64]:
    """Return n points of a roll, mapped linearly to d features with a little noise."""
    random = np.random.default_rng(seed)
    sheet = manifolds.make("swiss_roll", n, seed=seed).X
    turned = sheet @ np.linalg.qr(random.normal(size=(d, 3)))[0].T
    return np.asarray(turned + NOISE * turned.std() * random.normal(size=turned.shape))


def _seed(setting: tuple[int, int, int, int]) -> int:
    """Return a seed whose neighbor graph has one closed class; otherwise the lanes make no draws."""
    n, k, _, d = setting
    return next(seed for seed in range(SEEDS) if len(fit(data_of(n, d, seed), n_neighbors=k).pins) == 1)


def _measured(setting: tuple[int, int, int, int], seed: int) -> Row:
    n, k, p, d = setting
    fit(data_of(200, d), n_neighbors=k, n_components=p)  # imports are not counted
    X = data_of(n, d, seed)
    before = _forget_peak()
    posterior, stages = _fitted(X, k, p)
    fields: Row = {"n": n, "k": k, "p": p, "d": d, "fit_bytes": _peak() - before}
    again = [stages]
    while sum(sum(one.values()) for one in again) < SECONDS:
        again.append(_fitted(X, k, p)[1])
    fields |= {f"fit_{stage}": statistics.median(one.get(stage, 0.0) for one in again) for stage in stages}
    fields["posterior_bytes"] = sum(array.nbytes for array in posterior.arrays().values())
    before, started = _forget_peak(), time.process_time()
    solver = posterior.lane_solver
    fields["analysis"] = time.process_time() - started
    assert solver is not None
    _drawn(posterior, LANES, 0)
    fields["lane"] = statistics.median(
        _drawn(posterior, LANES, group * LANES) / LANES for group in range(1, GROUPS + 1)
    )
    fields["draw_bytes"] = _peak() - before
    _drawn(posterior, 1, 0)
    fields["single"] = statistics.median(_drawn(posterior, 1, index) for index in range(1, GROUPS))
    return fields


def _fitted(X: NDArray[np.float64], k: int, p: int) -> tuple[Posterior, dict[str, float]]:
    clock = StageClock(clock=time.process_time)
    return fit(X, n_neighbors=k, n_components=p, on_progress=clock), clock.stop()


def _drawn(posterior: Posterior, count: int, first: int) -> float:
    """Return the processor seconds of this number of draws together."""
    started = time.process_time()
    for _ in posterior.draws(count, first=first):
        pass
    return time.process_time() - started


def _forget_peak() -> int:
    """Reset the peak of this process's memory; return the present use."""
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


def _peak() -> int:
    return _memory("VmHWM")


def _memory(what: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))
