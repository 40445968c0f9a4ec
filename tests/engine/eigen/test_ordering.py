"""Elimination orders are permutations with the predicted cost, and the same on every machine."""

import numpy as np
import pytest
from numpy.typing import NDArray

from glle_engine import fit
from glle_engine.base.errors import InvalidParameterError
from glle_engine.eigen import pattern
from glle_engine.eigen.batched.elimination import symmetric
from glle_engine.eigen.dissection import SEPARATOR_LABEL, Graph, nested_dissection, separator
from glle_engine.eigen.minimum_degree import minimum_degree
from glle_engine.eigen.pattern import Pattern, cheapest_order, distinct, predicted_cost

Adjacency = tuple["NDArray[np.int64]", "NDArray[np.int32]"]


def grid_neighbors(side: int, dimensions: int) -> NDArray[np.int32]:
    """Return the 2 d neighbors of each point of a grid that closes on itself."""
    shape = (side,) * dimensions
    place = np.stack(np.unravel_index(np.arange(side**dimensions), shape), axis=1)
    steps = np.concatenate([np.eye(dimensions, dtype=int), -np.eye(dimensions, dtype=int)])
    there = (place[:, None, :] + steps) % side
    return np.asarray(np.ravel_multi_index(tuple(np.moveaxis(there, -1, 0)), shape), np.int32)


def random_neighbors(n: int, k: int, seed: int) -> NDArray[np.int32]:
    """Return k distinct neighbors of each of n points, near on a line or anywhere."""
    rng = np.random.default_rng(seed)
    rows = np.arange(n)[:, None]
    near = (rows + 1 + np.arange(k // 2)) % n
    far = np.argsort(rng.random((n, n)) + 10 * (np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= k), axis=1)
    return np.sort(np.concatenate([near, far[:, : k - k // 2]], axis=1), axis=1).astype(np.int32)


def graph_of(neighbors: NDArray[np.int32]) -> Adjacency:
    """Return the undirected graph of a kNN graph as adjacency lists without repetitions."""
    start, adjacent = distinct(*symmetric(neighbors))
    return start, adjacent


def dense_of(start: NDArray[np.int64], adjacent: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return the adjacency matrix (n, n) of a graph."""
    n = len(start) - 1
    matrix = np.zeros((n, n), bool)
    matrix[np.repeat(np.arange(n), np.diff(start)), adjacent] = True
    return matrix


def eliminate(matrix: NDArray[np.bool_], order: NDArray[np.int32]) -> tuple[int, int]:
    """Eliminate point by point; return the floating-point operations and the bytes of L and U."""
    filled = matrix[np.ix_(order, order)].copy()
    flops, entries = 0, 0
    for j in range(len(order)):
        below = j + 1 + np.flatnonzero(filled[j, j + 1 :])
        filled[np.ix_(below, below)] = True
        flops += len(below) + 2 * len(below) ** 2
        entries += 1 + 2 * len(below)
    return flops, 8 * entries


@pytest.mark.parametrize("neighbors", [grid_neighbors(6, 3), random_neighbors(300, 6, 1), grid_neighbors(17, 2)])
def test_orders_are_permutations_with_the_predicted_cost(neighbors: NDArray[np.int32]) -> None:
    """Predicted costs equal those of a plain elimination, and groups are eliminated one after another."""
    start, adjacent = graph_of(neighbors)
    n = len(neighbors)
    group = np.random.default_rng(3).integers(0, 5, n).astype(np.int32)
    assert np.array_equal(group[minimum_degree(start, adjacent, group)], np.sort(group))
    natural, _ = eliminate(dense_of(start, adjacent), np.arange(n, dtype=np.int32))
    for order in (minimum_degree(start, adjacent, np.zeros(n, np.int32)), nested_dissection(start, adjacent, 0)):
        assert np.array_equal(np.sort(order), np.arange(n))
        cost = eliminate(dense_of(start, adjacent), order)
        assert predicted_cost(start, adjacent, order) == cost
        assert cost[0] < natural


def test_minimum_degree_is_exact_on_a_tree() -> None:
    """A tree is eliminated from its leaves, so that L and U have no fill."""
    n = 400
    parent = np.array([(i - 1) // 3 if i else 1 for i in range(n)], np.int32)
    start, adjacent = graph_of(parent[:, None])
    order = minimum_degree(start, adjacent, np.zeros(n, np.int32))
    assert predicted_cost(start, adjacent, order)[1] == 8 * (n + 2 * (n - 1))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_separator_separates_balanced_sides(seed: int) -> None:
    """No edge joins the two sides of a separator, and neither side is too heavy."""
    start, adjacent = graph_of(grid_neighbors(12, 3))
    graph = Graph(start, adjacent, np.ones(len(adjacent), np.int32), np.ones(12**3, np.int32))
    label, _ = separator(graph, seed)
    assert not dense_of(start, adjacent)[np.ix_(label == 0, label == 1)].any()
    sizes = np.bincount(label, minlength=3)
    assert max(sizes[0], sizes[1]) <= 0.6 * len(label)
    assert sizes[SEPARATOR_LABEL] <= 2 * 144 * 1.1  # two planes cut a closed grid


def test_graphs_with_an_empty_separator_or_none_are_ordered() -> None:
    """Graphs in several parts, and complete graphs, which have no separator, get an order."""
    parts = np.concatenate([grid_neighbors(9, 2) + 81 * part for part in range(4)])
    complete = np.array([[j for j in range(150) if j != i] for i in range(150)])
    for neighbors in (parts, complete):
        order = nested_dissection(*graph_of(neighbors.astype(np.int32)), 0)
        assert np.array_equal(np.sort(order), np.arange(len(neighbors)))


def test_the_cheapest_order_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dissection wins for a volume, and is not tried if it would take longer than the factorizations."""
    neighbors = grid_neighbors(12, 3)
    start, adjacent = graph_of(neighbors)
    by_degree = minimum_degree(start, adjacent, np.zeros(len(neighbors), np.int32))
    order, prediction = cheapest_order(neighbors, 10**6)
    assert prediction.order == "nested-dissection"
    assert (prediction.flops, prediction.bytes) == predicted_cost(start, adjacent, order)
    assert prediction.flops < predicted_cost(start, adjacent, by_degree)[0]

    monkeypatch.setattr(pattern, "nested_dissection", None)
    order, prediction = cheapest_order(neighbors, 1)
    assert prediction.order == "minimum-degree"
    assert np.array_equal(order, by_degree)


def test_the_prediction_is_in_the_diagnostics(sheet: NDArray[np.float64]) -> None:
    """The diagnostics of a fit have the elimination order's name and its predicted cost."""
    posterior = fit(sheet)
    elimination = posterior.diagnostics.figures["elimination"]
    start, adjacent = graph_of(posterior.neighbors)
    assert elimination["order"] in {"minimum-degree", "nested-dissection"}
    assert (elimination["flops"], elimination["bytes"]) == predicted_cost(start, adjacent, posterior.order)
    structure = posterior.eigenproblem.pattern.structure  # supernodes store some zeros
    assert 1 <= 8 * (structure.lower_size + structure.upper_size) / elimination["bytes"] <= 1.5


def test_patterns_of_more_entries_than_an_int32_counts_are_refused() -> None:
    """A graph with more entries than int32 can index is refused, with the largest possible n_neighbors."""
    wide = np.broadcast_to(np.int32(0), (2**20, 2**11 - 1))  # without memory
    with pytest.raises(InvalidParameterError, match="2047 neighbors") as caught:
        Pattern.from_neighbors(wide)
    assert caught.value.remedy.startswith("Give n_neighbors of at most 2046")
    assert Pattern.from_neighbors(wide[:, :-1]).neighbors.shape == (2**20, 2046)
