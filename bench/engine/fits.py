"""Time of LLE and of fits, including the search for neighbors, against scikit-learn and tapkee."""

from __future__ import annotations

import statistics
from functools import partial
from typing import TYPE_CHECKING

from bench.data import data_of, neighbors_of
from bench.engine.peers import fit_sklearn, fit_tapkee, has_tapkee
from bench.report import Row, always, at_most, in_turn, seconds
from glle_engine import FitSpec, fit
from glle_engine.graph.neighbors import kneighbors
from glle_engine.posterior.fit import reference_embedding

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

# Data, n and repetitions.
AGAINST_SKLEARN = [
    ("swiss_roll", 5_000, 5),
    ("cube-3", 5_000, 3),
    ("cube-5", 5_000, 1),
    ("swiss_roll", 20_000, 3),
    ("swiss_roll", 100_000, 1),
]
AGAINST_TAPKEE = [(5_000, 3), (20_000, 1)]
GOAL_SKLEARN = 6.0
GOAL_TAPKEE = {20_000: 40.0}
WHOLE = ("cube-3-50", 100_000, 60.0)  # data, n, seconds at most


def lle(X: NDArray[np.float64], n_neighbors: int = 10) -> NDArray[np.float64]:
    """Embed by LLE alone, which is the part of a fit that the other libraries also do."""
    spec = FitSpec(n_neighbors=n_neighbors)
    nearest, _ = kneighbors(X, spec.n_neighbors)
    return reference_embedding(X, nearest, spec).embedding


def rows(largest: int) -> Iterator[Row]:
    """Yield the results for fits of up to `largest` points."""
    for name, n, repeats in AGAINST_SKLEARN:
        if n > largest:
            continue
        X, k = data_of(name, n), neighbors_of(name)
        pair = in_turn(always(lle, X, k), always(fit_sklearn, X, k), repeats, warm=n <= 20_000)
        yield Row(f"LLE, {name}, n = {n:,}", "scikit-learn", pair.ratio, "x", GOAL_SKLEARN, detail=pair.medians("s"))
        whole = statistics.median(seconds(partial(fit, X, n_neighbors=k)) for _ in range(repeats))
        detail = {"ours s": whole, "theirs s": pair.their_median}
        work = f"fit of a posterior with its diagnostics, {name}, n = {n:,}"
        yield Row(work, "scikit-learn's LLE", pair.their_median / whole, "x", detail=detail)
    for n, repeats in AGAINST_TAPKEE:
        if n > largest:
            continue
        goal, work = GOAL_TAPKEE.get(n), f"LLE, swiss_roll, n = {n:,}"
        if not has_tapkee():
            yield Row(work, "tapkee", None, "x", goal)
            continue
        X = data_of("swiss_roll", n)
        pair = in_turn(always(lle, X), always(fit_tapkee, X), repeats)
        yield Row(work, "tapkee", pair.ratio, "x", goal, detail=pair.medians("s"))
    name, n, max_points = WHOLE
    if n <= largest:
        X = data_of(name, n)
        work = f"fit of a posterior with its diagnostics, {name}, n = {n:,}"
        yield at_most(work, seconds(partial(fit, X, n_neighbors=10, landmarks="all")), "s", max_points)
