"""Fits of LLE, including neighbors and weights, against other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.data import data_of
from bench.engine.peers import fit_sklearn, fit_tapkee, has_tapkee
from bench.report.table import Row
from bench.report.timing import always, in_turn
from glle_engine import FitSpec, fit
from glle_engine.graph.neighbors import kneighbors
from glle_engine.posterior.fit import reference_embedding

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

# n and repetitions.
AGAINST_SKLEARN = [(5_000, 5), (20_000, 3), (100_000, 1)]
AGAINST_TAPKEE = [(5_000, 3), (20_000, 1)]
GOAL_SKLEARN = 6.0
GOAL_TAPKEE = {20_000: 40.0}


def lle(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Embed by LLE alone: the part of a fit before the posterior."""
    spec = FitSpec()
    nearest, _ = kneighbors(X, spec.n_neighbors)
    return reference_embedding(X, nearest, spec).embedding


def rows(largest: int) -> Iterator[Row]:
    """Measure fits up to `largest` points."""
    for n, repeats in AGAINST_SKLEARN:
        if n > largest:
            continue
        X = data_of("swiss_roll", n)
        pair = in_turn(always(lle, X), always(fit_sklearn, X), repeats, warm=n <= 20_000)
        detail = {"ours s": pair.our_median, "theirs s": pair.their_median}
        yield Row(f"LLE, swiss_roll, n = {n:,}", "scikit-learn", pair.ratio, "x", GOAL_SKLEARN, detail=detail)
        whole = in_turn(always(fit, X), always(len, X), repeats, warm=False).our_median
        detail = {"ours s": whole, "theirs s": pair.their_median}
        work = f"fit of a posterior with its diagnostics, swiss_roll, n = {n:,}"
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
        detail = {"ours s": pair.our_median, "theirs s": pair.their_median}
        yield Row(work, "tapkee", pair.ratio, "x", goal, detail=detail)
