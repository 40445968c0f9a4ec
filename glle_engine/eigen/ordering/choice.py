"""Choice of the elimination order by its predicted cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from glle_engine.eigen.batched.symbolic.elimination import column_counts, elimination_tree, postorder, symmetric
from glle_engine.eigen.ordering.dissection import nested_dissection
from glle_engine.eigen.ordering.minimum_degree import minimum_degree
from glle_engine.linalg.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

DISSECTION = 300_000  # floating-point operations that take as long as dissection, for each point
_DISSECTIONS = 3
_MAX_REPEATED = 200_000  # points; a further dissection of more takes longer than a few percent of 64 factorizations


class Prediction(NamedTuple):
    """Predicted cost of one factorization without pivoting.

    Attributes
    ----------
    order : str
        The name of the elimination order.
    flops, bytes : int
        Floating-point operations of the factorization, and the size of L and U.

    """

    order: Literal["minimum-degree", "nested-dissection"]
    flops: int
    bytes: int


def cheapest_order(neighbors: NDArray[np.int32], factorizations: int) -> tuple[NDArray[np.int32], Prediction]:
    """Return the cheaper elimination order (n,) of B + B^T, and its cost: minimum degree or nested dissection.

    Dissection is tried only if it takes little time beside the factorizations that will use the order, and tried with
    further seeds if it takes very little.

    Parameters
    ----------
    neighbors : (n, k) int32
    factorizations : int
        The expected number.

    """
    start, adjacent = distinct(*symmetric(neighbors))
    order = minimum_degree(start, adjacent, np.zeros(len(neighbors), np.int32))
    best = Prediction("minimum-degree", *predicted_cost(start, adjacent, order))
    for seed in range(_DISSECTIONS):
        if seed >= dissections(best.flops, len(neighbors), factorizations):
            break
        other = nested_dissection(start, adjacent, seed)
        prediction = Prediction("nested-dissection", *predicted_cost(start, adjacent, other))
        if prediction.flops < best.flops:
            order, best = other, prediction
        elif best.order == "minimum-degree":  # another dissection is no better
            break
    return order, best


def dissections(flops: int, n: int, factorizations: int) -> int:
    """Return the largest number of dissections of n points that take little time beside factorizations of `flops`."""
    most = _DISSECTIONS if n <= _MAX_REPEATED else 1
    return sum(flops * factorizations > DISSECTION * n * 4**seed for seed in range(most))


def predicted_cost(start: NDArray[np.int64], adjacent: NDArray[np.int32], order: NDArray[np.int32]) -> tuple[int, int]:
    """Return the flops of a factorization in an order, and the bytes of L and U."""
    start, adjacent = _relabel(start, adjacent, order)
    tree = elimination_tree(start, adjacent)
    count = column_counts(tree, postorder(tree), start, adjacent).astype(np.int64)
    below = count - 1
    return int((below * (2 * below + 1)).sum()), 8 * int((count + below).sum())


@compiled
def distinct(start: NDArray[np.int64], adjacent: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return a graph without repeated neighbors."""
    n = len(start) - 1
    begin = np.zeros(n + 1, np.int64)
    single = np.empty(len(adjacent), np.int32)
    seen = np.full(n, -1, np.int32)
    at = 0
    for i in range(n):
        for e in range(start[i], start[i + 1]):
            j = adjacent[e]
            if seen[j] != i:
                seen[j] = i
                single[at] = j
                at += 1
        begin[i + 1] = at
    return begin, single[:at].copy()


@compiled
def _relabel(
    start: NDArray[np.int64], adjacent: NDArray[np.int32], order: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return a graph whose vertex j is order[j] of the given one."""
    n = len(order)
    position = np.empty(n, np.int32)
    for j in range(n):
        position[order[j]] = j
    begin = np.zeros(n + 1, np.int64)
    moved = np.empty(len(adjacent), np.int32)
    at = 0
    for j in range(n):
        for e in range(start[order[j]], start[order[j] + 1]):
            moved[at] = position[adjacent[e]]
            at += 1
        begin[j + 1] = at
    return begin, moved
