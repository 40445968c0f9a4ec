"""The k nearest neighbors of every point, exactly, ordered by (distance, index)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from scipy.spatial import cKDTree

from glle_engine.base.progress import OnProgress, blocks, silent
from glle_engine.graph.relations import Distances
from glle_engine.graph.sparse import SparsePoints
from glle_engine.linalg.distances import Products, nearest_among, unit_of
from glle_engine.linalg.distances import distances as distances_between
from glle_engine.linalg.nearest.leaves import Leaves

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from glle_engine.graph.relations import Data

# Above some 15 features scipy's KD-tree visits most of its leaves and BLAS wins (5,000 x 64: .08 s against .8 s).
KD_TREE_MAX_FEATURES = 15
FEW_POINTS = 300  # besides one a feature: searched before the leaves of a tree are filled
_TREE_BLOCK = 20_000
_BRUTE_BLOCK_ENTRIES = 1 << 23
_ROUNDING = 1e-12  # relative, of a distance of the KD-tree
_DOUBLINGS = 4  # of the number of candidates, before those within the k-th distance are listed
_LISTED = 1 << 22  # candidates that are listed at once


def kneighbors(
    X: Data, n_neighbors: int, on_progress: OnProgress = silent
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    r"""Return the k points nearest to each point in Euclidean distance, the point itself left out.

    The result is the k smallest pairs (distance, index), for distances computed in one order of operations
    (`glle_engine.linalg.distances`), so that neighbors and distances are the same bits on every processor. A k-d tree
    on the principal axes leaves out whole leaves, and products in float32 leave out rows of the others
    (`glle_engine.linalg.nearest.tile_kernels`). For few points the candidates are those of scipy's KD-tree for few
    features, and of blocks of :math:`|x|^2 + |y|^2 - 2 x^T y` for more. Each leaves out only rows whose distance is
    proved to be greater, so that the result does not depend on the choice.

    Parameters
    ----------
    X : (n, d) float64, Distances or SparsePoints
    n_neighbors : int
        k < n.
    on_progress
        Called with (points done, n, "neighbors").

    Returns
    -------
    indices : (n, k) int32
        Nearest first; of equal distances the smaller index first.
    distances : (n, k) float64

    """
    if isinstance(X, Distances):
        return X.nearest(n_neighbors, on_progress)
    if isinstance(X, SparsePoints):
        return X.nearest(X, np.arange(len(X)), n_neighbors, on_progress)
    return _search(X, X, np.arange(len(X)), n_neighbors, on_progress)


def kneighbors_of(
    X: NDArray[np.float64], points: NDArray[np.intp], n_neighbors: int, on_progress: OnProgress = silent
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the k nearest of all points to some of them (m,), as `kneighbors` does: two arrays (m, k)."""
    return _search(X, X[points], np.asarray(points), n_neighbors, on_progress)


def kneighbors_to(
    data: Data, points: Data, n_neighbors: int, on_progress: OnProgress = silent
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the k <= n rows of data (n, d) nearest to each of some other points (m, d), each point independently.

    The results (m, k) are those of `kneighbors`, but for identical rows of data, whose distance is exactly 0.
    `on_progress` is called with (points done, m, "neighbors").
    """
    if isinstance(data, Distances) or isinstance(points, Distances):
        assert isinstance(points, Distances)
        return points.nearest(n_neighbors, on_progress)
    if isinstance(data, SparsePoints) or isinstance(points, SparsePoints):
        assert isinstance(data, SparsePoints)
        assert isinstance(points, SparsePoints)
        return data.nearest(points, np.full(len(points), -1), n_neighbors, on_progress)
    return _search(data, points, np.full(len(points), -1), n_neighbors, on_progress)


def _search(
    data: NDArray[np.float64], points: NDArray[np.float64], own: NDArray[np.intp], k: int, on_progress: OnProgress
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the k nearest rows of data to points (m, d), without row own[i] for point i; -1 for none."""
    unit = unit_of(data)
    if unit != 1.0:
        scaled = data / unit
        data, points = scaled, scaled if points is data else points / unit
    indices, distances = np.empty((len(points), k), np.int32), np.empty((len(points), k))
    done = 0
    for rows, nearest, apart in _found(data, points, own, k):
        indices[rows], distances[rows] = nearest, apart
        done += len(nearest)
        on_progress(done, len(points), "neighbors")
    if unit != 1.0:
        distances *= unit
    return indices, distances


def _found(
    data: NDArray[np.float64], points: NDArray[np.float64], own: NDArray[np.intp], k: int
) -> Iterator[tuple[NDArray[np.intp] | slice, NDArray[np.int32], NDArray[np.float64]]]:
    """Yield some of the points, and the indices and distances of their nearest rows, until all are done."""
    n, d = data.shape
    if len(points) >= FEW_POINTS + d:
        yield from Leaves(data).nearest(points, own, k)
        return
    few = d <= KD_TREE_MAX_FEATURES
    find = _Tree(data).nearest if few else Products(data).nearest
    for rows in blocks(len(points), _TREE_BLOCK if few else max(1, _BRUTE_BLOCK_ENTRIES // n), "neighbors"):
        yield rows, *find(points[rows], own[rows], k)


class _Tree:
    """KD-tree whose candidates are ordered by (distance, index) and completed if the k-th is tied."""

    def __init__(self, data: NDArray[np.float64]) -> None:
        self._data = data
        self._tree = cKDTree(data)

    def nearest(
        self, points: NDArray[np.float64], own: NDArray[np.intp], k: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return the k nearest rows of each point: see `nearest_among`."""
        n = len(self._data)
        taken = min(k + 2, n)
        indices, distances, is_open = self._of_candidates(points, own, k, taken)
        rows = np.flatnonzero(is_open)
        is_copy = distances[rows, -1] == 0
        if is_copy.any():
            rows = self._among_copies(rows, is_copy, own, indices)
        for _ in range(_DOUBLINGS):
            if not len(rows):
                return indices, distances
            taken = min(2 * taken, n)
            indices[rows], distances[rows], is_open = self._of_candidates(points[rows], own[rows], k, taken)
            rows = rows[is_open]
        self._within_radius(rows, points, own, indices, distances)
        return indices, distances

    def _of_candidates(
        self, points: NDArray[np.float64], own: NDArray[np.intp], k: int, taken: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.bool_]]:
        """Return the nearest of `taken` candidates, and whether others may be as near as the k-th."""
        reached, candidates = (np.reshape(part, (len(points), taken)) for part in self._tree.query(points, taken))
        indices, distances = nearest_among(points, self._data, candidates, own, k)
        is_open = distances[:, -1] * (1 + _ROUNDING) >= reached[:, -1]
        return indices, distances, is_open & (taken < len(self._data))

    def _among_copies(
        self, rows: NDArray[np.intp], is_copy: NDArray[np.bool_], own: NDArray[np.intp], indices: NDArray[np.int32]
    ) -> NDArray[np.intp]:
        """Write the first k copies of points with more than k copies; return the other rows."""
        distinct, k = Distinct.of(self._data), indices.shape[1]
        groups = distinct.group[indices[rows, 0]]
        is_copy = is_copy & (distinct.size[groups] > k)
        for row, group in zip(rows[is_copy], groups[is_copy], strict=True):
            members = distinct.members(group, k + 1)
            indices[row] = members[members != own[row]][:k]
        return rows[~is_copy]

    def _within_radius(
        self,
        rows: NDArray[np.intp],
        points: NDArray[np.float64],
        own: NDArray[np.intp],
        indices: NDArray[np.int32],
        distances: NDArray[np.float64],
    ) -> None:
        """Order all rows of data within the k-th distance of some points."""
        if not len(rows):
            return
        k = indices.shape[1]
        radius = distances[rows, -1] * (1 + _ROUNDING)
        counts = self._tree.query_ball_point(points[rows], radius, return_length=True)
        for part in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(np.cumsum(counts) // _LISTED)) + 1):
            listed = self._tree.query_ball_point(points[rows[part]], radius[part])
            for row, within in zip(rows[part], listed, strict=True):
                candidates = np.sort([j for j in within if j != own[row]])
                apart = distances_between(points[row : row + 1], self._data, candidates[None])[0]
                order = np.argsort(apart, kind="stable")[:k]
                indices[row], distances[row] = candidates[order], apart[order]


@dataclass(frozen=True, eq=False)
class Distinct:
    """Groups of equal points, in the order of their first point.

    `first` (m,) is the first point of each group and `group` (n,) the group of each point; group g is
    ordered[start[g] : start[g] + size[g]].
    """

    first: NDArray[np.intp]
    group: NDArray[np.intp]
    ordered: NDArray[np.intp]
    start: NDArray[np.intp]
    size: NDArray[np.intp]

    @classmethod
    def of(cls, X: NDArray[np.float64]) -> Self:
        """Group the rows of X (n, d)."""
        rows = np.ascontiguousarray(X + 0.0)  # -0 is 0
        keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(first))
        group = rank[inverse.ravel()]
        size = np.bincount(group)
        return cls(np.sort(first), group, np.argsort(group, kind="stable"), np.cumsum(size) - size, size)

    def __len__(self) -> int:
        return len(self.first)

    def members(self, group: int, at_most: int | None = None) -> NDArray[np.intp]:
        """Return the points of a group, ascending."""
        count = self.size[group] if at_most is None else min(self.size[group], at_most)
        return self.ordered[self.start[group] : self.start[group] + count]
