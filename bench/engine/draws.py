"""Time of draws, against scipy's eigsh and a dense eigenproblem on one core, and of one core against two."""

from __future__ import annotations

import math
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from bench.data import posterior_of
from bench.engine.peers import by_dense, by_eigsh
from bench.report import Row, at_most, in_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from glle_engine import Posterior

    Embed = Callable[[Posterior, NDArray[np.float64]], NDArray[np.float64]]

# Data, n, draws of glle, repetitions, goal.
AGAINST_EIGSH: list[tuple[str, int, int, int, float | None]] = [
    ("swiss_roll", 5_000, 16, 9, 65.0),
    ("s_curve", 5_000, 16, 9, 65.0),
    ("cube-2", 5_000, 16, 9, None),
    ("digits", 1_797, 16, 9, 60.0),
    ("cube-3", 5_000, 8, 5, 70.0),
    ("cube-5", 5_000, 8, 3, 45.0),
    ("cube-8", 3_000, 8, 3, 40.0),
    ("rank-10", 3_000, 8, 3, 30.0),
    ("gaussian-20", 3_000, 8, 3, None),
    ("swiss_roll", 20_000, 8, 5, 75.0),
    ("s_curve", 20_000, 8, 5, 75.0),
    ("patches", 20_000, 4, 1, None),
    ("swiss_roll", 100_000, 4, 3, 100.0),
    ("s_curve", 100_000, 4, 3, 100.0),
]
AGAINST_DENSE: list[tuple[str, int, int, int, float | None]] = [
    ("swiss_roll", 2_000, 16, 3, 1500.0),
    ("swiss_roll", 5_000, 16, 1, 6000.0),
]
PEERS = [(AGAINST_EIGSH, by_eigsh, "scipy's eigsh on M"), (AGAINST_DENSE, by_dense, "a dense eigenproblem")]
GROWTH = 1.35
SPEED_UP = 1.9
REPEATS = 5
PRODUCTS = 5_000
CASES = [(5_000, 64), (20_000, 16)]


def rows(largest: int) -> Iterator[Row]:
    """Yield the results for draws from posteriors of up to `largest` points."""
    medians: dict[tuple[str, int], float] = {}
    for settings, embed, against in PEERS:
        for name, n, count, repeats, goal in settings:
            if n > largest:
                continue
            posterior = posterior_of(name, n)
            pair = in_turn(
                partial(_draw_all, name, n, count), partial(_draw_with_peer, embed, posterior), repeats, units=count
            )
            medians.setdefault((name, n), pair.our_median)
            work = f"one draw of many, {name}, n = {n:,}"
            yield Row(work, against, pair.ratio, "x", goal, detail=pair.medians("ms", 1e3))
    for name in ("swiss_roll", "s_curve"):
        small, large = medians.get((name, 5_000)), medians.get((name, 100_000))
        if small and large:
            exponent = math.log(large / small) / math.log(20)
            work = f"growth of a draw from 5,000 to 100,000 points, {name}"
            yield at_most(work, exponent, "", GROWTH, "n to the power of")


def _draw_with_peer(embed: Embed, posterior: Posterior, number: int) -> None:
    """Draw weights by the posterior, and embed them by another library's solver."""
    embed(posterior, posterior.weights(number))


def _draw_all(name: str, n: int, count: int, number: int) -> None:
    for _ in posterior_of(name, n).draws(count, first=number * count):
        pass


def parallel_rows() -> Iterator[Row]:
    """Yield the speed-up of draws on two cores, by threads and by processes, and of plain matrix products."""
    with ThreadPoolExecutor(2) as pool:
        yield from _speed_ups("threads", pool)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:  # the posteriors are fitted
        yield from _speed_ups("processes", pool)
        one, two = partial(_multiply_in, pool, [2 * PRODUCTS]), partial(_multiply_in, pool, [PRODUCTS, PRODUCTS])
        pair = in_turn(two, one, REPEATS)
        yield Row("two processes, products of small matrices in cache", "one", pair.ratio, "x")


def _in_halves(pool: Executor, n: int, count: int, number: int) -> None:
    half = count // 2
    list(pool.map(partial(_draw_all, "swiss_roll", n, half), [2 * number, 2 * number + 1]))


def _multiply(count: int) -> None:
    a = np.full((96, 96), 1e-3)
    for _ in range(count):
        np.matmul(a, a)


def _multiply_in(pool: Executor, counts: list[int], number: int) -> None:  # noqa: ARG001 # number of the repetition
    list(pool.map(_multiply, counts))


def _speed_ups(what: str, pool: Executor) -> Iterator[Row]:
    for n, count in CASES:
        pair = in_turn(partial(_in_halves, pool, n, count), partial(_draw_all, "swiss_roll", n, count), REPEATS)
        detail = {"two, ms a draw": pair.our_median / count * 1e3, "one, ms a draw": pair.their_median / count * 1e3}
        yield Row(f"two {what}, swiss_roll, n = {n:,}", "one", pair.ratio, "x", SPEED_UP, detail=detail)
