"""The k nearest neighbours of every point, exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial import cKDTree

from glle_engine.progress import OnProgress, blocks, silent

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Above some 15 features a KD-tree visits most of its leaves and BLAS wins (5,000 x 64: .08 s against .8 s).
KD_TREE_MAX_FEATURES = 15
_TREE_BLOCK = 20_000
_BRUTE_BLOCK_ENTRIES = 1 << 23
_SLACK = 4


def kneighbors(
    X: NDArray[np.float64], n_neighbors: int, on_progress: OnProgress = silent
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    r"""Return the k points nearest to each point in Euclidean distance, the point itself left out.

    A KD-tree for few features; for more, distances by blocks through
    :math:`|x|^2 + |y|^2 - 2 x^T y`, of which only candidates are taken: their distances are computed
    again from the differences, and a row whose candidates cannot be proved complete against the
    rounding error of that formula is searched directly.

    Parameters
    ----------
    X : (n, d) float64
    n_neighbors : int
        k < n.
    on_progress
        Called with (points done, n, "neighbors").

    Returns
    -------
    indices : (n, k) int32
        Nearest first.
    distances : (n, k) float64

    """
    return kneighbors_of(X, np.arange(len(X)), n_neighbors, on_progress)


def kneighbors_of(
    X: NDArray[np.float64], points: NDArray[np.intp], n_neighbors: int, on_progress: OnProgress = silent
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the k nearest of all points to some of them (m,), as `kneighbors` does: two arrays (m, k)."""
    if X.shape[1] <= KD_TREE_MAX_FEATURES:
        return _by_tree(X, points, n_neighbors, on_progress)
    return _by_products(X, points, n_neighbors, on_progress)


def _by_tree(
    X: NDArray[np.float64], points: NDArray[np.intp], k: int, on_progress: OnProgress
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    indices = np.empty((len(points), k), np.int32)
    distances = np.empty((len(points), k))
    tree = cKDTree(X)
    for rows in blocks(len(points), _TREE_BLOCK, "neighbors", on_progress):
        distance, index = tree.query(X[points[rows]], k + 1)
        itself = index == points[rows, None]
        itself[~itself.any(axis=1), -1] = True  # more than k exact duplicates crowded it out
        indices[rows] = index[~itself].reshape(-1, k)
        distances[rows] = distance[~itself].reshape(-1, k)
    return indices, distances


def _by_products(
    X: NDArray[np.float64], points: NDArray[np.intp], k: int, on_progress: OnProgress
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    n, d = X.shape
    centred = X - X.mean(axis=0)
    square = np.einsum("ij,ij->i", centred, centred)
    # |computed - true| <= error * (|x|^2 + |y|^2); subtracting it makes every entry a lower bound.
    error = 2 * (d + 4) * np.finfo(float).eps
    taken = min(k + _SLACK, n - 1)
    indices = np.empty((len(points), k), np.int32)
    distances = np.empty((len(points), k))
    for rows in blocks(len(points), max(1, _BRUTE_BLOCK_ENTRIES // n), "neighbors", on_progress):
        own = points[rows]
        bound = (centred[own] * -2) @ centred.T
        bound += (1 - error) * square
        bound[np.arange(len(own)), own] = np.inf
        candidate = np.argpartition(bound, taken - 1, axis=1)[:, :taken]
        exact = np.linalg.norm(X[candidate] - X[own, None, :], axis=2)
        order = np.argsort(exact, axis=1, kind="stable")[:, :k]
        indices[rows] = np.take_along_axis(candidate, order, axis=1)
        distances[rows] = np.take_along_axis(exact, order, axis=1)
        if taken < n - 1:
            furthest = np.take_along_axis(bound, candidate, axis=1).max(axis=1) + (1 - error) * square[own]
            for row in np.flatnonzero(distances[rows, -1] ** 2 > furthest) + rows.start:
                indices[row], distances[row] = _of_one(X, points[row], k)
    return indices, distances


def _of_one(X: NDArray[np.float64], i: int, k: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Search one row by its differences to all others."""
    distance = np.linalg.norm(X - X[i], axis=1)
    distance[i] = np.inf
    nearest = np.argsort(distance, kind="stable")[:k]
    return nearest, distance[nearest]
