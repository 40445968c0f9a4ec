"""Connectivity of the kNN graph: components, closed classes, the smallest k that connects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from glle_engine.base.errors import DisconnectedGraphError
from glle_engine.graph.neighbors import kneighbors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.base.spec import Search
    from glle_engine.graph.relations import Data

_SEARCH_ENTRIES = 100_000_000


def edges(nearest: NDArray[np.int32], kept: NDArray[np.bool_] | None) -> NDArray[np.int32]:
    """Return the graph of the kept candidates; a row's first kept neighbor replaces its dropped ones. Shape (n, k).

    `nearest` is (n, k) int32; `kept` (n, k) bool has at least one True in each row, or is None.
    """
    if kept is None:
        return nearest
    return np.where(kept, nearest, np.take_along_axis(nearest, kept.argmax(axis=1)[:, None], axis=1))


def components(neighbors: NDArray[np.int32]) -> NDArray[np.int32]:
    """Label the weak components of a kNN graph (n, k); returns (n,) int32."""
    return np.asarray(connected_components(_adjacency(neighbors), directed=True, connection="weak")[1])


def closed_classes(neighbors: NDArray[np.int32]) -> list[NDArray[np.intp]]:
    """List the closed strong components of the directed kNN graph (n, k) as index arrays, by smallest index.

    A class is closed if no edge leaves it. The left null space of :math:`I - W`, for weights W on this graph whose
    rows sum to one, has one dimension for each closed class, and its vectors vanish outside the classes. With c
    classes LLE cannot distinguish c - 1 further functions from the constant.
    """
    count, label = connected_components(_adjacency(neighbors), directed=True, connection="strong")
    leaves = (label[neighbors] != label[:, None]).any(axis=1)
    closed = np.ones(count, bool)
    closed[label[leaves]] = False
    members = [np.flatnonzero(label == c) for c in np.flatnonzero(closed)]
    return sorted(members, key=lambda points: int(points[0]))


def smallest_connecting_k(X: Data, n_neighbors: int, search: Search = "exact") -> int | None:
    """Return the smallest k > n_neighbors at which the kNN graph of X is one weak component.

    Returns
    -------
    int or None
        None if no k whose graph has at most 100 million edges connects.

    """
    n = len(X)
    k = n_neighbors
    while k < n - 1 and k * n < _SEARCH_ENTRIES:
        k = min(2 * k, n - 1)
        neighbors, _ = kneighbors(X, k, search=search)
        if components(neighbors).max() == 0:
            return first_connecting(neighbors, n_neighbors + 1)
    return None


def first_connecting(nearest: NDArray[np.int32], least: int) -> int:
    """Return the smallest k, at least `least`, whose graph is one component; the graph of all columns must be.

    Parameters
    ----------
    nearest : (n, k) int32
        Nearest first, so that a larger k only adds edges.

    """
    low, high = least - 1, int(nearest.shape[1])
    while high - low > 1:
        middle = (low + high) // 2
        if components(nearest[:, :middle]).max() > 0:
            low = middle
        else:
            high = middle
    return high


def connected_neighbors(
    X: Data, n_neighbors: int, on_progress: OnProgress
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the k nearest of each point and their distances, both (n, k), nearest first.

    Raises
    ------
    DisconnectedGraphError
        With the smallest k that connects.

    """
    nearest, distances = kneighbors(X, n_neighbors, on_progress)
    require_connected(X, nearest)
    return nearest, distances


def require_connected(
    X: Data,
    neighbors: NDArray[np.int32],
    search: Search = "exact",
    instead: str = "Or embed each component as a separate data set.",
) -> None:
    """Raise `DisconnectedGraphError`, with sizes and the smallest sufficient k, unless there is one component.

    `instead` is the remedy without other neighbors.
    """
    label = components(neighbors)
    if not label.any():
        return
    sizes = np.sort(np.bincount(label))[::-1]
    k = neighbors.shape[1]
    enough = smallest_connecting_k(X, k, search)
    shown = ", ".join(str(size) for size in sizes[:5]) + (", ..." if len(sizes) > 5 else "")
    raise DisconnectedGraphError(
        f"With n_neighbors={k} the graph falls into {len(sizes)} components, of {shown} points.",
        remedy=(
            f"The smallest n_neighbors that connects it is {enough}. "
            if enough
            else "No n_neighbors of reasonable size connects it. "
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


def _adjacency(neighbors: NDArray[np.int32]) -> csr_array:
    n, k = neighbors.shape
    indptr = np.arange(0, n * k + 1, k)
    return csr_array((np.ones(n * k, np.int8), neighbors.ravel(), indptr), shape=(n, n))
