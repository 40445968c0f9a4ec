"""Two threads, and two processes, against one."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from bench.data import posterior_of
from bench.table import Row
from bench.timing import in_turn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.timing import Pair

GOAL = 1.9
REPEATS = 5
CASES = [(5_000, 64), (20_000, 16)]


def rows() -> Iterator[Row]:
    """Measure the same draws by one and by two."""
    for n, count in CASES:
        one, two = partial(_draw, n, count, 1), partial(_draw, n, count, 2)
        yield _row("threads", n, count, in_turn(two, one, REPEATS))
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:  # the posteriors are there
        for n, count in CASES:
            one, two = partial(_draw, n, count, 1), partial(_by_processes, pool, n, count)
            yield _row("processes", n, count, in_turn(two, one, REPEATS))


def _draw(n: int, count: int, threads: int, number: int) -> None:
    for _ in posterior_of("swiss_roll", n).draws(count, first=number * count, threads=threads):
        pass


def _by_processes(pool: ProcessPoolExecutor, n: int, count: int, number: int) -> None:
    half = count // 2
    list(pool.map(_draw, [n, n], [half, half], [1, 1], [2 * number, 2 * number + 1]))


def _row(what: str, n: int, count: int, pair: Pair) -> Row:
    detail = {"two, ms a draw": pair.our_median / count * 1e3, "one, ms a draw": pair.their_median / count * 1e3}
    return Row(f"two {what}, swiss_roll, n = {n:,}", "one", pair.ratio, "x", GOAL, detail=detail)
