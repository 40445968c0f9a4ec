"""How many operations a factorization takes in the elimination order of glle, and in the elimination order of METIS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.data import data_of, neighbors_of
from bench.engine.peers import has_metis, metis_order
from bench.report import at_most
from glle_engine.eigen.batched.elimination import symmetric
from glle_engine.eigen.pattern import cheapest_order, distinct, predicted_cost
from glle_engine.graph.connectivity import bridge
from glle_engine.graph.neighbors import kneighbors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.report import Row

CASES = [("swiss_roll", 20_000), ("cube-3", 5_000), ("rank-10", 3_000), ("heavy-5", 5_000), ("patches", 20_000)]
GOAL = 1.1  # times the operations by METIS, at most
FACTORIZATIONS = 64


def rows(largest: int) -> Iterator[Row]:
    """Yield the operations of one factorization, against METIS and against a dense matrix of as many points."""
    if not has_metis():
        return
    for name, n in CASES:
        if n > largest:
            continue
        X = data_of(name, n)
        nearest, _, _ = bridge(X, kneighbors(X, neighbors_of(name))[0])
        start, adjacent = distinct(*symmetric(nearest))
        _, ours = cheapest_order(nearest, FACTORIZATIONS)
        theirs, _ = predicted_cost(start, adjacent, metis_order(start, adjacent))
        detail = {"operations": float(ours.flops), "share of dense": ours.flops / (2 * n**3 / 3)}
        work = f"operations of a factorization, {name}, n = {n:,}"
        yield at_most(work, ours.flops / theirs, "x", GOAL, "METIS", **detail)
