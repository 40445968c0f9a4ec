"""Graphs of neighbours that are not the k nearest: refused, with a remedy of their own, where they fall apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

from glle_engine.base.errors import DisconnectedGraphError
from glle_engine.graph.connectivity import components

if TYPE_CHECKING:
    from numpy.typing import NDArray


def require_whole(graph: NDArray[np.int32], told: str, remedy: str) -> None:
    """Raise `DisconnectedGraphError` unless the graph (n, k) is one component.

    Parameters
    ----------
    graph : (n, k) int32
    told : str
        What made the graph, the start of the sentence: "With alpha=1".
    remedy : str

    """
    sizes = np.sort(np.bincount(components(graph)))[::-1]
    if len(sizes) > 1:
        raise DisconnectedGraphError(
            f"{told} the graph falls into {len(sizes)} components, the largest of {sizes[0]} points.",
            remedy=remedy,
            details={"components": len(sizes), "sizes": [int(size) for size in sizes[:100]]},
        )


def first_connecting(nearest: NDArray[np.int32], least: int) -> int:
    """Return how many of the nearest it takes, at least `least`, for one component; all of them must connect.

    Parameters
    ----------
    nearest : (n, k) int32
        Nearest first: what connects, connects with more.

    """
    low, high = least - 1, int(nearest.shape[1])
    while high - low > 1:
        middle = (low + high) // 2
        if components(nearest[:, :middle]).max() > 0:
            low = middle
        else:
            high = middle
    return high


def undirected(nearest: NDArray[np.int32], lengths: NDArray[np.float64]) -> csr_array:
    """Return the edges of a graph (n, k) with their lengths (n, k), each in both directions.

    Duplicates are apart by the smallest normal number: an edge of length 0 would be none.
    """
    n, k = nearest.shape
    longer = np.maximum(lengths, np.finfo(float).tiny)
    graph = csr_array((longer.ravel(), nearest.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n))
    return csr_array(graph.maximum(graph.T))


def smallest_of_rows(distances: NDArray[np.float64], k: int) -> NDArray[np.int32]:
    """Return the columns of the k smallest entries of each row (m, k), by (entry, column)."""
    if k == distances.shape[1]:
        return np.argsort(distances, axis=1, kind="stable").astype(np.int32)
    near = np.sort(np.argpartition(distances, k - 1, axis=1)[:, :k], axis=1)
    order = np.argsort(np.take_along_axis(distances, near, axis=1), axis=1, kind="stable")
    found = np.take_along_axis(near, order, axis=1).astype(np.int32)
    # Of entries that tie at the k-th a partition keeps any, by the processor's vector unit.
    kth = np.take_along_axis(distances, found[:, -1:], axis=1)
    for row in np.flatnonzero((distances <= kth).sum(axis=1) > k):
        candidates = np.flatnonzero(distances[row] <= kth[row])
        found[row] = candidates[np.argsort(distances[row, candidates], kind="stable")[:k]]
    return found
