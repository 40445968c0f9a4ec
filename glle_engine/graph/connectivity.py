r"""Connectivity of the kNN graph: components, closed classes, the smallest k that connects, and bridges.

A closed class is a set of points that no edge leaves. A bridge is an added edge from a closed class to a point from
which edges lead into another closed class. Every point of the class reaches the start of the bridge, so that the class
is no longer closed. No new closed class appears, so that each bridge reduces their number by one. Bridges are chosen as
in Boruvka's algorithm for spanning trees: each round at least halves the number of closed classes.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from glle_engine.base.errors import DisconnectedGraphError
from glle_engine.base.texts import Way
from glle_engine.graph.neighbors import kneighbors, kneighbors_to, nearest_outside
from glle_engine.graph.relations import Distances
from glle_engine.linalg.distances import ranks_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.spec import Search
    from glle_engine.graph.relations import Data

_SEARCH_ENTRIES = 100_000_000  # no graph with more edges than about this is searched for a connecting k
# Two points are equal if their distance is at most this share of the largest coordinate: 64 times the machine epsilon
# of float64, to allow for rounding errors in the coordinates.
_MAX_RELATIVE_ROUNDING = 2.0**-46


def edges(nearest: NDArray[np.int32], kept: NDArray[np.bool_] | None) -> NDArray[np.int32]:
    """Return the neighbor graph (n, k): `nearest` (n, k) without the entries for which `kept` (n, k) is False.

    So that each row still has k entries, the first kept entry of a row replaces the entries that are not kept. Each row
    of `kept` has at least one True; None means that all entries are kept.
    """
    if kept is None:
        return nearest
    return np.where(kept, nearest, np.take_along_axis(nearest, kept.argmax(axis=1)[:, None], axis=1))


def components(neighbors: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return which weak component each point of a kNN graph (n, k) belongs to, as numbers (n,) from 0 on."""
    return np.asarray(connected_components(_edges_alone(neighbors), directed=True, connection="weak")[1])


def closed_classes(neighbors: NDArray[np.int32]) -> list[NDArray[np.intp]]:
    """Return the closed classes of the directed kNN graph (n, k): arrays of indices, ordered by their smallest index.

    A class is a strong component of the graph, and is closed if no edge leaves it. For weights W on this graph whose
    rows sum to one, the left null space of :math:`I - W` has one dimension for each closed class, and vectors in this
    space vanish outside the closed classes. With c closed classes, LLE has c eigenvectors of eigenvalue 0, of which
    only one is the constant.
    """
    count, label = connected_components(_edges_alone(neighbors), directed=True, connection="strong")
    leaves = (label[neighbors] != label[:, None]).any(axis=1)
    closed = np.ones(count, bool)
    closed[label[leaves]] = False
    members = [np.flatnonzero(label == c) for c in np.flatnonzero(closed)]
    return sorted(members, key=lambda points: int(points[0]))


def smallest_connecting_k(X: Data, n_neighbors: int, search: Search = "exact") -> int | None:
    """Return the smallest k > n_neighbors at which the kNN graph of X is one weak component.

    Returns None if none of the graphs with up to about 100 million edges is one component.
    """
    n = len(X)
    k = n_neighbors
    while k < n - 1 and k * n < _SEARCH_ENTRIES:
        k = min(2 * k, n - 1)
        neighbors, _ = kneighbors(X, k, search=search)
        if components(neighbors).max() == 0:
            return first_connecting(neighbors, n_neighbors + 1)
    return None


def first_connecting(nearest: NDArray[np.int32], min_k: int) -> int:
    """Return the smallest k >= `min_k` for which the first k columns of `nearest` are a graph of one weak component.

    `nearest` (n, m) are the neighbors of each point, nearest first. The graph of all m columns must be one component.
    """
    sizes = range(min_k, nearest.shape[1])
    return min_k + bisect_left(sizes, True, key=lambda k: bool(components(nearest[:, :k]).max() == 0))  # noqa: FBT003


def distinct_points(X: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Group equal points of X (n, d): return the first point (m,) of each group, and the group (n,) of each point.

    Two points are equal if their distance is within the rounding error of the largest coordinate, or if a chain of such
    pairs joins them. The groups are in the order of their first points.
    """
    first, group = np.arange(len(X)), np.arange(len(X))
    while len(first) > 1:
        nearest, distances = kneighbors(X[first], 1)
        is_equal = distances[:, 0] <= _MAX_RELATIVE_ROUNDING * np.abs(X).max()
        if not is_equal.any():
            break
        label = components(np.where(is_equal[:, None], nearest, np.arange(len(first), dtype=np.int32)[:, None]))
        _, start, order = np.unique(label, return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(start))
        first, group = first[np.sort(start)], rank[order][group]
    return first, group


def require_connected(
    X: Data,
    neighbors: NDArray[np.int32],
    search: Search = "exact",
    *,
    option: str = "n_neighbors",
    instead: str = "Or take the method glle, which bridges the components, or embed each as a separate data set.",
) -> None:
    """Raise `DisconnectedGraphError` unless the kNN graph `neighbors` (n, k) of X is one weak component.

    The error has the sizes of the components and the smallest k that connects them. `option` is the name that the user
    has for k, and `instead` is a further remedy, for users who want to keep their number of neighbors.
    """
    label = components(neighbors)
    if not label.any():
        return
    sizes = np.sort(np.bincount(label))[::-1]
    k = neighbors.shape[1]
    enough = smallest_connecting_k(X, k, search)
    shown = ", ".join(str(size) for size in sizes[:5]) + (", ..." if len(sizes) > 5 else "")
    raise DisconnectedGraphError(
        f"With {Way(option, k)} the graph falls into {len(sizes)} components, of {shown} points.",
        remedy=(
            f"The smallest {Way(option)} that connects it is {enough}. "
            if enough
            else f"No {Way(option)} of reasonable size connects it. "
        )
        + instead
        + (" Duplicated points may be the cause." if sizes[-1] <= k + 1 else ""),
        details={
            "n_neighbors": k,
            "components": len(sizes),
            "sizes": [int(size) for size in sizes[:100]],
            "smallest_connecting_k": enough,
        },
    )


def directed_graph(neighbors: NDArray[np.int32], values: NDArray[np.float64] | None = None) -> csr_array:
    """Return the directed graph of `neighbors` (n, k) as a sparse matrix (n, n).

    The entry of the edge from point i to neighbors[i, j] is values[i, j]; without `values`, it is 1, of type int8.
    """
    n, k = neighbors.shape
    entries = np.ones(n * k, np.int8) if values is None else values.ravel()
    return csr_array((entries, neighbors.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n))


def _edges_alone(neighbors: NDArray[np.int32]) -> csr_array:
    """Return the directed graph of `neighbors` (n, k) with entries 1, for scipy's `connected_components`.

    The entries are float64, which scipy uses without a copy. If a row of `neighbors` has the same neighbor twice, the
    entries are int8 instead. (`edges` makes such rows for points with fewer than k neighbors: it repeats a neighbor, so
    that the row has k entries.) scipy then converts the entries to float64, and merges repeated entries as it does so.
    This takes longer, but with repeated entries scipy's search would never end.
    """
    ordered = np.sort(neighbors, axis=1)
    has_repeated = bool((ordered[:, 1:] == ordered[:, :-1]).any())
    return directed_graph(neighbors, None if has_repeated else np.ones(neighbors.shape))


class _Edge(NamedTuple):
    """An edge that may be added to connect the graph. Edges sort by `rank`, then by the points `start` and `end`.

    `rank` is an integer that grows with the length of the edge, and is the same for lengths that agree to 34 bits
    (`ranks_of`).
    """

    rank: int
    start: int
    end: int


def bridge(
    X: Data, nearest: NDArray[np.int32], kept: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.int32], NDArray[np.bool_] | None, list[tuple[int, int]]]:
    """Connect a kNN graph by the fewest possible new edges, called bridges.

    A closed class is a set of points that no edge leaves. Each of the c closed classes but one gets a bridge. The
    bridge goes from a point of the class to a point outside, from which a path leads into another closed class; of all
    such edges, it is the shortest. The bridge replaces the edge from its first point to the farthest neighbor of that
    point, so that each point keeps k neighbors. There are c - 1 bridges; fewer would not be enough. The graph then has
    one closed class and is one weak component.

    Parameters
    ----------
    X : (n, d) float64, Distances or SparsePoints
    nearest : (n, k) int32
        The candidates of each point, nearest first.
    kept : (n, k) bool or None
        Which candidates are neighbors; None if all are.

    Returns
    -------
    nearest, kept
        Copies. For each bridge from `start` to `end`, `end` replaces the last candidate of `start`; if `end` was among
        the candidates of `start`, but not kept, it stays in its column and becomes kept.
    bridges : list of (start, end)
        The new edges; empty if the graph had one closed class.

    """
    nearest = nearest.copy()
    kept = None if kept is None else kept.copy()
    bridges: list[tuple[int, int]] = []
    while len(classes := closed_classes(edges(nearest, kept))) > 1:
        reached = _reachable_classes(edges(nearest, kept), classes)
        for _, start, end in _chosen_edges(_shortest_edges(X, classes, reached), reached):
            column = np.flatnonzero(nearest[start] == end)  # `end` may be a candidate of `start` that was not kept
            if not len(column):
                column = np.array([nearest.shape[1] - 1])
                nearest[start, column] = end
            if kept is not None:
                kept[start, column] = True
            bridges.append((start, end))
    return nearest, kept, bridges


def _reachable_classes(graph: NDArray[np.int32], classes: list[NDArray[np.intp]]) -> NDArray[np.intp]:
    """Return, for each point, two closed classes that it reaches along edges, as indices (n, 2) of the list `classes`.

    `graph` (n, k) are the neighbors of each point, and `classes` are the closed classes, sets of points that no edge
    leaves. A point that reaches only one class has the index of this class twice.
    """
    n = len(graph)
    label = np.full(n, -1)
    for number, members in enumerate(classes):
        label[members] = number
    into = directed_graph(graph).T.tocsr()
    first = label[_sources(into, np.flatnonzero(label >= 0))]
    differs = first[graph] != first[:, None]
    forks = np.flatnonzero(differs.any(axis=1))
    reached = np.stack([first, first], axis=1)
    if len(forks):
        reached[forks, 1] = first[graph[forks, differs[forks].argmax(axis=1)]]
        fork = _sources(into, forks)
        reached = np.where(fork[:, None] >= 0, reached[fork], reached)
    return reached


def _sources(into: csr_array, sources: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return, for each point (n,), one of the points `sources` that it reaches along edges, or -1 if it reaches none.

    `into` (n, n) is the graph with reversed edges.
    """
    n = into.shape[0]
    indptr = np.append(into.indptr, into.nnz + len(sources))  # an additional point, number n, has edges to all sources
    indices = np.append(into.indices, sources)
    reversed_edges = csr_array((np.ones(len(indices), np.int8), indices, indptr), shape=(n + 1, n + 1))
    order, above = breadth_first_order(reversed_edges, n)
    source = np.arange(n + 1)
    source[order[1:]] = above[order[1:]]
    source[sources] = sources
    while (source[source] != source).any():
        source = source[source]
    is_found = np.zeros(n + 1, bool)
    is_found[order] = True
    return np.where(is_found, source, -1)[:n]


def _chosen_edges(possible: list[_Edge], reached: NDArray[np.intp]) -> list[_Edge]:
    """Choose which of the `possible` edges to add, shortest first, so that none joins classes that are joined already.

    A closed class is a set of points that no edge leaves. Each possible edge starts in a different closed class.
    `reached` (n, 2) has two different closed classes that each point reaches along edges, or the same class twice if
    the point reaches only one. Of the classes that the end of an edge reaches, one must not yet be joined with the
    class in which the edge starts; otherwise, the edge is skipped. Two classes are joined if a chosen edge leads from
    one to the other, or if both are joined with a third class.
    """
    target = list(range(int(reached.max()) + 1))  # the class that each class leads to by its chosen edge, or itself
    chosen = []
    for edge in sorted(possible):
        start = int(reached[edge.start, 0])
        for end in reached[edge.end].tolist():
            while target[end] != end:
                end = target[end]  # noqa: PLW2901 -- along the chosen edges
            if end != start:
                target[start] = end
                chosen.append(edge)
                break
    return chosen


def _shortest_edges(X: Data, classes: list[NDArray[np.intp]], reached: NDArray[np.intp]) -> list[_Edge]:
    """Return, for each closed class, the shortest edge from the class to a point that reaches another closed class.

    A closed class is a set of points that no edge leaves, and a point reaches a class if edges lead from the point into
    the class. `reached` (n, 2) has two different closed classes that each point reaches, or the same class twice if the
    point reaches only one. One nearest-neighbor search finds the edges of all classes but a class with more than half
    of the points, for which a separate search is faster. With `Distances`, all searches are separate.
    """
    only = np.where(reached[:, 0] == reached[:, 1], reached[:, 0], -1)  # the one class that a point reaches, or -1
    sizes = np.array([len(members) for members in classes])
    is_apart = np.full(len(classes), fill_value=True) if isinstance(X, Distances) else sizes > len(X) // 2
    edges_of = {
        number: _closest_pair(X, classes[number], np.flatnonzero(only != number))
        for number in np.flatnonzero(is_apart).tolist()
    }
    if not isinstance(X, Distances) and not is_apart.all():
        starts = np.concatenate([members for members, apart in zip(classes, is_apart, strict=True) if not apart])
        ends, lengths = nearest_outside(X, starts, only)
        ranks = ranks_of(lengths)
        order = np.lexsort((starts, ranks))
        numbers, first = np.unique(only[starts][order], return_index=True)
        for number, row in zip(numbers.tolist(), order[first], strict=True):
            edges_of[number] = _Edge(int(ranks[row]), int(starts[row]), int(ends[row]))
    return [edges_of[number] for number in range(len(classes))]


def _closest_pair(X: Data, a: NDArray[np.intp], b: NDArray[np.intp]) -> _Edge:
    """Return the shortest edge from a point of the set `a` to a point of the set `b`; the sets are row numbers of X.

    Among equally short edges, the edge with the smallest indices is returned.
    """
    if isinstance(X, Distances):
        start, end = X.closest(a, b)
        return _Edge(int(ranks_of(X.known[[start], [end]])[0]), start, end)
    index, distance = kneighbors_to(X[b], X[a], 1)
    ranks = ranks_of(distance[:, 0])
    best = int(np.argmin(ranks))
    return _Edge(int(ranks[best]), int(a[best]), int(b[index[best, 0]]))
