"""Draws of many against eigsh and against a dense eigenproblem, on one core."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from bench.data import posterior_of
from bench.engine.peers import by_dense, by_eigsh
from bench.report.table import Row
from bench.report.timing import in_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from bench.report.timing import Pair
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


def rows(largest: int) -> Iterator[Row]:
    """Measure draws of many up to `largest` points."""
    medians: dict[tuple[str, int], float] = {}
    for settings, embed, against in PEERS:
        for name, n, count, repeats, goal in settings:
            if n > largest:
                continue
            posterior = posterior_of(name, n)
            pair = in_turn(_many(posterior, count), partial(_draw_with_peer, embed, posterior), repeats, units=count)
            medians.setdefault((name, n), pair.our_median)
            yield _row(name, n, against, pair, goal)
    for name in ("swiss_roll", "s_curve"):
        small, large = medians.get((name, 5_000)), medians.get((name, 100_000))
        if small and large:
            exponent = math.log(large / small) / math.log(20)
            work = f"growth of a draw from 5,000 to 100,000 points, {name}"
            yield Row(work, "n to the power of", exponent, "", GROWTH, at_least=False)


def _draw_with_peer(embed: Embed, posterior: Posterior, number: int) -> None:
    """Draw as the peer does: weights by numpy, then the peer's embedding."""
    embed(posterior, posterior.weights(number))


def _many(posterior: Posterior, count: int) -> Callable[[int], None]:
    def draw(number: int) -> None:
        for _ in posterior.draws(count, first=number * count):
            pass

    return draw


def _row(name: str, n: int, against: str, pair: Pair, goal: float | None) -> Row:
    detail = {"ours ms": pair.our_median * 1e3, "theirs ms": pair.their_median * 1e3}
    return Row(f"one draw of many, {name}, n = {n:,}", against, pair.ratio, "x", goal, detail=detail)
