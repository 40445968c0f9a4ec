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

# Nested dissection takes as long, per point, as this many floating-point operations of a factorization.
DISSECTION_FLOPS_PER_POINT = 300_000
MAX_ENTRIES = 2**31 - 1  # entries are counted by int32
_MAX_DISSECTIONS = 3  # at most this many dissections are tried, each with another seed
# Dissection divides the number of operations by at most this factor; 4 was seen for 20,000 to 50,000 points in three
# dimensions.
_MAX_SAVING_FACTOR = 8
# For more points, only one dissection is tried: a second one would take more than a few percent of the time of 64
# factorizations, as many as a fit expects.
_MAX_POINTS_TO_REPEAT = 200_000


class Prediction(NamedTuple):
    """Predicted cost of one factorization without pivoting, in the elimination order that was chosen.

    Attributes
    ----------
    order : str
        The method that found the elimination order.
    flops, bytes : int
        Floating-point operations of the factorization, and the memory of the factors L and U together.

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
        Largest allowed number of operations of a factorization. If the order by minimum degree takes more than eight
        times as many, dissection is not tried, because it does not save that much.

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
    """Return how often to try nested dissection of n points, from 0 to 3 times.

    The tries are so few that they take little time compared with `factorizations` factorizations of `flops`
    floating-point operations each.
    """
    max_repeats = _MAX_DISSECTIONS if n <= _MAX_POINTS_TO_REPEAT else 1
    return sum(flops * factorizations > DISSECTION_FLOPS_PER_POINT * n * 4**seed for seed in range(max_repeats))


def predicted_cost(start: NDArray[np.int64], adjacent: NDArray[np.int32], order: NDArray[np.int32]) -> tuple[int, int]:
    """Return the floating-point operations of an LU factorization in the elimination `order` (n,), and its bytes.

    The bytes are the memory of L and U together. The matrix has the pattern of an undirected graph: the neighbors of
    vertex i are adjacent[start[i]:start[i + 1]].
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
    """Remove repeated neighbors from adjacency lists, and return the new `start` (n + 1,) and `adjacent`.

    The neighbors of vertex i are adjacent[start[i]:start[i + 1]], before and after.
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
    """kNN graph of n points, and an order in which the points are eliminated; all weights W on the graph share both.

    The graph and the diagonal are the positions of the nonzero entries of B = I - W.

    Attributes
    ----------
    neighbors : (n, k) int32
    order : (n,) int32
        Row and column j of the factored matrix belong to point order[j].

    Raises
    ------
    InvalidParameterError
        If n (k + 1), the number of entries of B, is too large for int32.

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
        """Return this graph with a cheap elimination order, and the predicted cost of a factorization as a dictionary.

        The dictionary has the fields of `Prediction`. The more `factorizations` are expected, the longer an order is
        searched for. Raises `TooCostlyError` if a factorization would take more than `max_flops` floating-point
        operations.
        """
        order, prediction = cheapest_order(self.neighbors, factorizations, max_flops)
        return type(self)(self.neighbors, order), prediction._asdict()

    @cached_property
    def structure(self) -> Structure:
        """The symbolic factorization, computed once for the mean weights and all draws."""
        return analyze(self.neighbors, self.order)

    @cached_property
    def transposed(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """Three arrays from which B^T, B = I - W, is built as a CSC matrix in the elimination order.

        Each column of B^T has k + 1 entries, so that no array of column starts is needed. The first array, flat
        (n (k + 1),), has the row of each entry. The second, of the same shape, says where the entry's value is in
        ``values.ravel()``, where row i of `values` (n, k + 1) has the diagonal entry of point i in B and then its
        entries for the k neighbors. The third is the inverse of the elimination order (n,): the position of each point.
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
        """Return (I - W) V for `vectors` V (n, m), where the rows of W are the `weights` (n, k) of the neighbors."""
        image = np.array(vectors)
        for j, column in enumerate(vectors.T.copy()):  # gathering from contiguous numbers is twice as fast
            image[:, j] -= (weights * column[self.neighbors]).sum(axis=1)
        return image

    def apply_transposed(self, weights: NDArray[np.float64], vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (I - W)^T v for a `vector` v (n,), where the rows of W are the `weights` (n, k) of the neighbors."""
        spread = np.bincount(self.neighbors.ravel(), (weights * vector[:, None]).ravel(), len(vector))
        return np.asarray(vector - spread)
