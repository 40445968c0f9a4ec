"""The sparsity pattern of B = I - W, shared by all weights W on one graph, and the search for an elimination order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_array

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.texts import Way
from glle_engine.eigen.batched.elimination import column_counts, elimination_tree, postorder, symmetric
from glle_engine.eigen.batched.structure import Structure, analyze
from glle_engine.eigen.dissection import nested_dissection
from glle_engine.eigen.minimum_degree import minimum_degree
from glle_engine.linalg.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

DISSECTION_FLOPS_PER_POINT = 300_000  # per point, dissection takes as long as this many floating-point operations
MAX_ENTRIES = 2**31 - 1
_MAX_DISSECTIONS = 3  # at most this many dissections are tried, each with another seed
# Dissection saves at most this factor of operations, about 4 for volumes of 20,000 to 50,000 points.
_MAX_SAVING_FACTOR = 8
# For more points, a further dissection takes more than a few percent of 64 factorizations.
_MAX_POINTS_TO_REPEAT = 200_000


class Prediction(NamedTuple):
    """Predicted cost of one factorization without pivoting, in the elimination order that was chosen.

    Attributes
    ----------
    order : str
        How the elimination order was found.
    flops, bytes : int
        Floating-point operations of the factorization, and the size of L and U.

    """

    order: Literal["minimum-degree", "nested-dissection"]
    flops: int
    bytes: int


class TooCostlyError(Exception):
    """Raised if a factorization would take more operations than a fit with ``landmarks="auto"`` allows.

    The fit then tries fewer points; users never see this error.
    """


def cheapest_order(
    neighbors: NDArray[np.int32], factorizations: int, max_flops: float = math.inf
) -> tuple[NDArray[np.int32], Prediction]:
    """Return the cheapest elimination order (n,) of a kNN graph, by minimum degree or nested dissection, and its cost.

    Nested dissection is tried only if it takes little time compared with the factorizations that will use the order. If
    it takes very little time, it is tried with further seeds.

    Parameters
    ----------
    neighbors : (n, k) int32
    factorizations : int
        The expected number of factorizations.
    max_flops : float
        Largest allowed number of operations of a factorization. If minimum degree takes more, dissection is tried,
        unless it would have to save more than it ever does.

    Raises
    ------
    TooCostlyError
        If a factorization would take more operations than allowed.

    """
    start, adjacent = distinct(*symmetric(neighbors))
    order = minimum_degree(start, adjacent, np.zeros(len(neighbors), np.int32))
    best = Prediction("minimum-degree", *predicted_cost(start, adjacent, order))
    allowed = _MAX_SAVING_FACTOR * max_flops
    for seed in range(_MAX_DISSECTIONS):
        if best.flops > allowed or seed >= dissections(best.flops, len(neighbors), factorizations):
            break
        other = nested_dissection(start, adjacent, seed)
        prediction = Prediction("nested-dissection", *predicted_cost(start, adjacent, other))
        if prediction.flops < best.flops:
            order, best = other, prediction
        elif best.order == "minimum-degree":  # dissection is no better: try no further seed
            break
        allowed = max_flops
    if best.flops > max_flops:
        raise TooCostlyError
    return order, best


def is_cheaper(neighbors: NDArray[np.int32], max_flops: float) -> bool:
    """Return whether a factorization for a kNN graph (n, k) takes at most `max_flops` floating-point operations.

    The elimination order is the cheaper of minimum degree and one nested dissection.
    """
    start, adjacent = distinct(*symmetric(neighbors))
    order = minimum_degree(start, adjacent, np.zeros(len(neighbors), np.int32))
    flops, _ = predicted_cost(start, adjacent, order)
    if max_flops < flops <= _MAX_SAVING_FACTOR * max_flops:
        flops, _ = predicted_cost(start, adjacent, nested_dissection(start, adjacent, 0))
    return flops <= max_flops


def dissections(flops: int, n: int, factorizations: int) -> int:
    """Return how often to try nested dissection of n points, from 0 to 3.

    All tries together take little time compared with `factorizations` factorizations of `flops` operations each.
    """
    max_repeats = _MAX_DISSECTIONS if n <= _MAX_POINTS_TO_REPEAT else 1
    return sum(flops * factorizations > DISSECTION_FLOPS_PER_POINT * n * 4**seed for seed in range(max_repeats))


def predicted_cost(start: NDArray[np.int64], adjacent: NDArray[np.int32], order: NDArray[np.int32]) -> tuple[int, int]:
    """Return the floating-point operations of an LU factorization in an elimination order, and the bytes of L and U.

    The neighbors of vertex i in the undirected graph are adjacent[start[i]:start[i + 1]].
    """
    n = len(order)
    moved = csr_array((np.ones(len(adjacent), np.int8), adjacent, start), shape=(n, n))[order][:, order]
    start, adjacent = moved.indptr.astype(np.int64), moved.indices.astype(np.int32)
    tree = elimination_tree(start, adjacent)
    count = column_counts(tree, postorder(tree), start, adjacent).astype(np.int64)
    below = count - 1
    return int((below * (2 * below + 1)).sum()), 8 * int((count + below).sum())


@compiled
def distinct(start: NDArray[np.int64], adjacent: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Remove repeated neighbors from adjacency lists; return the new `start` (n + 1,) and `adjacent`.

    The neighbors of vertex i are adjacent[start[i]:start[i + 1]].
    """
    n = len(start) - 1
    begin = np.zeros(n + 1, np.int64)
    single = np.empty(len(adjacent), np.int32)
    last_point = np.full(n, -1, np.int32)
    used = 0
    for i in range(n):
        for e in range(start[i], start[i + 1]):
            j = adjacent[e]
            if last_point[j] != i:
                last_point[j] = i
                single[used] = j
                used += 1
        begin[i + 1] = used
    return begin, single[:used].copy()


@dataclass(frozen=True, eq=False)
class Pattern:
    """Neighbor graph of n points and an elimination order, which all weights on the graph share.

    Attributes
    ----------
    neighbors : (n, k) int32
    order : (n,) int32
        Position j of the factored matrix is point order[j].

    Raises
    ------
    InvalidParameterError
        If B has too many entries for the int32 indices with which compiled code finds the weights.

    """

    neighbors: NDArray[np.int32]
    order: NDArray[np.int32]

    def __post_init__(self) -> None:
        n, k = self.neighbors.shape
        if n * (k + 1) > MAX_ENTRIES:
            raise InvalidParameterError(
                f"{n:,} points with {k} neighbors each are more than one factorization can hold.",
                remedy=f"Give {Way('n_neighbors')} of at most {MAX_ENTRIES // n - 1}, or fewer points or landmarks.",
                details={"n_points": n, "n_neighbors": k},
            )

    @classmethod
    def from_neighbors(cls, neighbors: NDArray[np.int32]) -> Self:
        """Return the pattern of a kNN graph (n, k), with 0, 1, ..., n - 1 as its elimination order."""
        return cls(neighbors, np.arange(len(neighbors), dtype=np.int32))

    def order_for(self, factorizations: int, max_flops: float = math.inf) -> tuple[Self, dict[str, Any]]:
        """Return this graph with a cheap elimination order, and its `Prediction` as a dictionary.

        The more `factorizations` are expected, the longer the order is searched for. Raises `TooCostlyError` if a
        factorization would take more than `max_flops` operations.
        """
        order, prediction = cheapest_order(self.neighbors, factorizations, max_flops)
        return type(self)(self.neighbors, order), prediction._asdict()

    @cached_property
    def structure(self) -> Structure:
        """The symbolic factorization, computed once for the mean weights and all draws."""
        return analyze(self.neighbors, self.order)

    @cached_property
    def transposed(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """What builds B^T as a CSC matrix in the elimination order: row indices, value indices, and the inverse order.

        Column j of B^T has k + 1 entries. A value index points into the flattened rows (n, k + 1) of B, each of which
        begins with its diagonal entry. The inverse order (n,) has the position of each point.
        """
        n, k = self.neighbors.shape
        inverse = np.empty(n, np.int32)
        inverse[self.order] = np.arange(n, dtype=np.int32)
        points = np.arange(n, dtype=np.int32)[:, None]
        row = inverse[np.concatenate([points, self.neighbors], axis=1)[self.order]]
        sort = np.argsort(row, axis=1, kind="stable")
        source = (self.order[:, None].astype(np.intp) * (k + 1) + sort).astype(np.int32).ravel()
        return np.take_along_axis(row, sort, axis=1).ravel(), source, inverse

    def apply(self, weights: NDArray[np.float64], vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (I - W) V for vectors V (n, m) and weights W (n, k) on the neighbors."""
        image = np.array(vectors)
        for j, column in enumerate(vectors.T.copy()):  # gathering from contiguous numbers is twice as fast
            image[:, j] -= (weights * column[self.neighbors]).sum(axis=1)
        return image

    def apply_transposed(self, weights: NDArray[np.float64], vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (I - W)^T v for a vector v (n,) and weights W (n, k) on the neighbors."""
        spread = np.bincount(self.neighbors.ravel(), (weights * vector[:, None]).ravel(), len(vector))
        return np.asarray(vector - spread)
