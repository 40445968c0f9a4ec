"""Neighbor graphs by other distances than the Euclidean one, and their connectivity."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial.distance import cdist

from glle_engine.base.errors import DisconnectedGraphError
from glle_engine.base.progress import blocks
from glle_engine.graph.connectivity import components

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

BLOCK_ENTRIES = 1 << 21


def require_whole(graph: NDArray[np.int32], cause: str, remedy: str) -> None:
    """Raise `DisconnectedGraphError` unless the graph (n, k) is one component.

    Parameters
    ----------
    graph : (n, k) int32
    cause : str
        The option that made the graph, as the start of the message: "With alpha=1".
    remedy : str

    """
    sizes = np.sort(np.bincount(components(graph)))[::-1]
    if len(sizes) > 1:
        raise DisconnectedGraphError(
            f"{cause} the graph falls into {len(sizes)} components, the largest of {sizes[0]} points.",
            remedy=remedy,
            details={"components": len(sizes), "sizes": [int(size) for size in sizes[:100]]},
        )


def nearest_by(
    X: NDArray[np.float64],
    k: int,
    adjust: Callable[[slice, NDArray[np.float64]], None],
    stage: str,
    on_progress: OnProgress,
) -> NDArray[np.int32]:
    """Return the k nearest of each point (n, k) by adjusted distances, nearest first.

    Parameters
    ----------
    X : (n, d) float64
    k : int
    adjust : callable
        (rows, distances): changes the Euclidean distances (len(rows), n) of some points to all in place.
    stage : str
    on_progress : callable

    """
    n = len(X)
    nearest = np.empty((n, k), np.int32)
    for rows in blocks(n, max(1, BLOCK_ENTRIES // n), stage, on_progress):
        distances = cdist(X[rows], X)
        adjust(rows, distances)
        distances[np.arange(len(distances)), np.arange(n)[rows]] = np.inf
        nearest[rows] = smallest_of_rows(distances, k)
    return nearest


def smallest_of_rows(distances: NDArray[np.float64], k: int) -> NDArray[np.int32]:
    """Return the columns of the k smallest entries of each row (m, k), by (entry, column)."""
    if k == distances.shape[1]:
        return np.argsort(distances, axis=1, kind="stable").astype(np.int32)
    near = np.sort(np.argpartition(distances, k - 1, axis=1)[:, :k], axis=1)
    order = np.argsort(np.take_along_axis(distances, near, axis=1), axis=1, kind="stable")
    smallest = np.take_along_axis(near, order, axis=1).astype(np.int32)
    # A partition keeps any of the entries that tie at the k-th, by the vector unit of the processor.
    kth = np.take_along_axis(distances, smallest[:, -1:], axis=1)
    for row in np.flatnonzero((distances <= kth).sum(axis=1) > k):
        candidates = np.flatnonzero(distances[row] <= kth[row])
        smallest[row] = candidates[np.argsort(distances[row, candidates], kind="stable")[:k]]
    return smallest
