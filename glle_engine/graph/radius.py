r"""Connected neighbor graphs of the k nearest points, or of all points within a radius (epsilon-neighborhoods).

Points have different numbers of neighbors within a radius. As for adaptive neighborhoods, the arrays have columns for
the largest number: each point has candidates, nearest first, and a mask is True for the candidates within the radius.
The graph of a radius is symmetric. It is connected if the radius is at least the longest edge of the minimum spanning
tree of the points.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from glle_engine.base.errors import DisconnectedGraphError, InvalidParameterError
from glle_engine.base.progress import silent
from glle_engine.base.texts import Way
from glle_engine.graph.connectivity import (
    bridge,
    components,
    directed_graph,
    edges,
    require_connected,
    smallest_connecting_k,
)
from glle_engine.graph.neighbors import kneighbors, kneighbors_to
from glle_engine.graph.relations import Distances
from glle_engine.graph.sparse import SparsePoints
from glle_engine.linalg.distances import distances as distances_between

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.graph.relations import Data

# A radius is refused if more pairs of a point and a possible neighbor would have to be stored; these take 400 MB.
MAX_CANDIDATE_PAIRS = 1 << 25
_BRIDGE = f"join the components by their shortest distances with {Way('disconnected', 'bridge')}"
BRIDGE_INSTEAD = f"Or {_BRIDGE}, or embed each component as a separate data set."
_FIRST = 16  # a search within a radius begins with this many nearest points, and doubles them until they are enough


class NeighborGraph(NamedTuple):
    """The neighbors of each point, and their distances, in arrays with k columns.

    Attributes
    ----------
    nearest : (n, k) int32
        The candidates of each point, nearest first.
    distances : (n, k) float64
        The distances from a point to its candidates.
    kept : (n, k) bool, optional
        Which candidates are neighbors, for points with fewer than k neighbors; None if all candidates are.

    """

    nearest: NDArray[np.int32]
    distances: NDArray[np.float64]
    kept: NDArray[np.bool_] | None = None


def symmetric_graph(
    nearest: NDArray[np.int32], distances: NDArray[np.float64], kept: NDArray[np.bool_] | None = None
) -> csr_array:
    """Return a neighbor graph as a sparse symmetric matrix (n, n) of distances.

    Two points have an entry, their distance, if either is a neighbor of the other. The parameters are the fields of
    `NeighborGraph`. Duplicates have the smallest normal number in place of the distance 0, because a sparse matrix
    drops zeros.
    """
    n = len(nearest)
    apart = np.maximum(distances, np.finfo(np.float64).tiny)
    if kept is None:
        directed = directed_graph(nearest, apart)
    else:
        ends = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
        directed = csr_array((apart[kept], nearest[kept], ends), shape=(n, n))
    return csr_array(directed.maximum(directed.T))


def neighbor_graph(X: Data, n_neighbors: int, radius: float | None, on_progress: OnProgress) -> NeighborGraph:
    """Return the graph of each point's k nearest neighbors, or of all points within a `radius`, if it is connected.

    Raises
    ------
    DisconnectedGraphError
        If the graph is not connected. The remedy is the smallest k, or the smallest radius, that connects it.
    InvalidParameterError
        If so many points are within the radius that the graph would be too large.

    """
    if radius is None:
        nearest, distances = kneighbors(X, n_neighbors, on_progress)
        require_connected(X, nearest, instead=BRIDGE_INSTEAD)
        return NeighborGraph(nearest, distances)
    graph = neighbors_within(X, radius, on_progress)
    _require_one_component(X, graph, radius)
    return graph


def bridged_graph(
    X: Data, n_neighbors: int, radius: float | None, on_progress: OnProgress
) -> tuple[NeighborGraph, list[tuple[int, int]]]:
    """Return the graph of k nearest neighbors or of a `radius`, connected by added edges, and the list of these edges.

    Parts of the graph are joined by the shortest edges between them (`glle_engine.graph.connectivity.bridge`). A point
    without neighbors within the radius is joined to its nearest point.
    """
    if radius is None:
        graph = NeighborGraph(*kneighbors(X, n_neighbors, on_progress))
    else:
        graph = neighbors_within(X, radius, on_progress)
    nearest, kept = graph.nearest, graph.kept
    pairs: set[tuple[int, int]] = set()
    if kept is not None:
        lonely = np.flatnonzero(~kept.any(axis=1))
        kept[lonely, 0] = True
        pairs = {(min(pair), max(pair)) for pair in zip(lonely.tolist(), nearest[lonely, 0].tolist(), strict=True)}
    if not components(edges(nearest, kept)).any():
        return graph, sorted(pairs)
    nearest, kept, bridges = bridge(X, nearest, kept)
    return NeighborGraph(nearest, distances_to(X, nearest), kept), [*sorted(pairs), *bridges]


def distances_to(X: Data, indices: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return the distances (n, k) from each point to the points `indices` (n, k)."""
    if isinstance(X, Distances):
        return np.take_along_axis(X.known, indices.astype(np.intp), axis=1)
    return X.distances(X, indices) if isinstance(X, SparsePoints) else distances_between(X, X, indices)


def neighbors_within(X: Data, radius: float, on_progress: OnProgress) -> NeighborGraph:
    """Return the neighbors of each point at a distance of at most `radius`; a point may have no neighbor.

    Raises
    ------
    InvalidParameterError
        If the arrays of the result would have more than 2^25 entries.

    """
    n, k = len(X), min(_FIRST, len(X) - 1)
    nearest, distances = kneighbors(X, k, on_progress)
    while k < n - 1 and (distances[:, -1] <= radius).any():
        if 2 * k * n > MAX_CANDIDATE_PAIRS:
            raise InvalidParameterError(
                f"With {Way('radius', radius)} the neighbor graph is too large: more than {k} of {n:,} points are "
                "within the radius of a single point.",
                remedy=f"Give a smaller radius, or {Way('n_neighbors')}.",
                details={"radius": radius, "n_points": n},
            )
        k = min(2 * k, n - 1)
        nearest, distances = kneighbors(X, k, on_progress)
    kept = distances <= radius
    width = max(1, int(kept.sum(axis=1).max()))
    return NeighborGraph(nearest[:, :width].copy(), distances[:, :width].copy(), kept[:, :width].copy())


def neighbors_of_others(
    X: NDArray[np.float64], points: NDArray[np.float64], n_neighbors: int, radius: float | None
) -> NeighborGraph:
    """Return the neighbors of new `points` (m, d) among X (n, d): the k nearest, or, with a `radius`, all within it.

    The neighbors of a point do not depend on the other new points.

    Raises
    ------
    InvalidParameterError
        If a new point has no neighbor within the radius. The remedy is a radius that is large enough.

    """
    if radius is None:
        return NeighborGraph(*kneighbors_to(X, points, n_neighbors))
    k = min(_FIRST, len(X))
    nearest, distances = kneighbors_to(X, points, k)
    while k < len(X) and (distances[:, -1] <= radius).any():
        k = min(2 * k, len(X))
        nearest, distances = kneighbors_to(X, points, k)
    away = float(distances[:, 0].max())
    if away > radius:
        raise InvalidParameterError(
            f"A new point is {away:.4g} from the nearest point of the data, beyond {Way('radius', radius)}.",
            remedy=f"Leave that point out, or embed the data with a radius of at least {away!r}.",
            details={"radius": radius, "distance": away},
        )
    return NeighborGraph(nearest, distances, distances <= radius)


def smallest_connecting_radius(X: Data, on_progress: OnProgress) -> float:
    """Return the smallest radius that connects the points: the longest edge of their minimum spanning tree.

    If too many pairs of points (`MAX_CANDIDATE_PAIRS`) would be needed to find it, a larger radius that also connects
    the points is returned.
    """
    k = smallest_connecting_k(X, 1) or len(X) - 1
    longest = _longest_edge(symmetric_graph(*kneighbors(X, k, on_progress)))
    try:  # this radius connects the points, but pairs that are not in the kNN graph may allow a smaller one
        return _longest_edge(symmetric_graph(*neighbors_within(X, longest, on_progress)))
    except InvalidParameterError:
        return longest


def _longest_edge(graph: csr_array) -> float:
    return float(minimum_spanning_tree(graph).data.max())


def _require_one_component(X: Data, graph: NeighborGraph, radius: float) -> None:
    """Raise `DisconnectedGraphError` unless `graph`, the graph of all points of X within `radius`, is connected."""
    count, label = connected_components(symmetric_graph(*graph), directed=False)
    if count == 1:
        return
    assert graph.kept is not None
    sizes = np.sort(np.bincount(label))[::-1]
    lonely = int((~graph.kept.any(axis=1)).sum())
    enough = smallest_connecting_radius(X, silent)
    alone = f"{lonely} points have no neighbor within {Way('radius', radius)}, and the" if lonely else "The"
    raise DisconnectedGraphError(
        f"{alone} graph of {Way('radius', radius)} falls into {count} components, of "
        f"{', '.join(str(size) for size in sizes[:5])}{', ...' if count > 5 else ''} points.",
        remedy=f"The smallest radius that connects it is {enough!r}. Or {_BRIDGE}.",
        details={
            "radius": radius,
            "components": int(count),
            "sizes": [int(size) for size in sizes[:100]],
            "points_without_neighbors": lonely,
            "smallest_radius": enough,
        },
    )
