"""Speed-up of two threads and of two processes."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from bench.data import posterior_of
from bench.report.table import Row
from bench.report.timing import in_turn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.report.timing import Pair

GOAL = 1.9
REPEATS = 5
PRODUCTS = 5_000
CASES = [(5_000, 64), (20_000, 16)]


def rows() -> Iterator[Row]:
    """Measure the same draws on one and on two cores, and the speed-up of two independent processes."""
    for n, count in CASES:
        one, two = partial(_draw, n, count, 1), partial(_draw, n, count, 2)
        yield _row("threads", n, count, in_turn(two, one, REPEATS))
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:  # the posteriors are fitted
        for n, count in CASES:
            one, two = partial(_draw, n, count, 1), partial(_by_processes, pool, n, count)
            yield _row("processes", n, count, in_turn(two, one, REPEATS))
        pair = in_turn(partial(_multiply_on_two, pool), partial(_multiply_on_one, pool), REPEATS)
        yield Row("two processes, products of small matrices in cache", "one", pair.ratio, "x")


def _draw(n: int, count: int, threads: int, number: int) -> None:
    for _ in posterior_of("swiss_roll", n).draws(count, first=number * count, threads=threads):
        pass


def _by_processes(pool: ProcessPoolExecutor, n: int, count: int, number: int) -> None:
    half = count // 2
    list(pool.map(_draw, [n, n], [half, half], [1, 1], [2 * number, 2 * number + 1]))


def _multiply(count: int) -> None:
    a = np.full((96, 96), 1e-3)
    for _ in range(count):
        np.matmul(a, a)


def _multiply_on_one(pool: ProcessPoolExecutor, number: int) -> None:  # noqa: ARG001 # number of the repetition
    list(pool.map(_multiply, [2 * PRODUCTS]))


def _multiply_on_two(pool: ProcessPoolExecutor, number: int) -> None:  # noqa: ARG001 # number of the repetition
    list(pool.map(_multiply, [PRODUCTS, PRODUCTS]))


def _row(what: str, n: int, count: int, pair: Pair) -> Row:
    detail = {"two, ms a draw": pair.our_median / count * 1e3, "one, ms a draw": pair.their_median / count * 1e3}
    return Row(f"two {what}, swiss_roll, n = {n:,}", "one", pair.ratio, "x", GOAL, detail=detail)
