"""Euclidean distances with the same bits on every processor, searches for the nearest rows, and ranks of distances.

The square of feature f of a difference is added to partial sum f mod 4, and the distance is the root of
:math:`(s_0 + s_1) + (s_2 + s_3)`. No operation is fused, and BLAS is not called, so that the bits are the same on every
processor. Matrix products, whose bits depend on the processor, only bound distances.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.progress import OnProgress, block_size, blocks, silent
from glle_engine.base.texts import Way
from glle_engine.linalg.dense import readable
from glle_engine.linalg.nearest import distance_kernels as kernels
from glle_engine.linalg.nearest.leaves import Leaves

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_POINTS_WITHOUT_TREE = 60  # fewer points are compared with all rows, which is faster than building a tree
# Squares of differences between 2^-300 and 2^300 are far from the least and the largest double, 2^-1022 and 2^1024.
_MAX_EXPONENT = 300


def power_of_two(extent: float) -> float:
    """Return the largest power of 2 that is at most `extent`, but at least 2^-1020; 1 if `extent` is 0."""
    if not extent > 0:
        return 1.0
    return float(np.ldexp(1.0, max(int(np.frexp(extent)[1]) - 1, -1020)))


def unit_of(X: NDArray[np.float64]) -> float:
    """Return the power of 2 by which to divide X (n, d) so that squared differences neither overflow nor underflow.

    The result is 1 unless numbers in X exceed 2^300, or all features vary by less than 2^-300.
    """
    extent = float(np.ptp(X, axis=0).max())
    largest = float(np.abs(X).max())
    usual = extent >= 2.0**-_MAX_EXPONENT and largest <= 2.0**_MAX_EXPONENT
    return 1.0 if usual or extent == 0 else power_of_two(max(extent, largest * 2.0**-_MAX_EXPONENT))


def distances(
    points: NDArray[np.float64], data: NDArray[np.float64], candidates: NDArray[np.integer[Any]]
) -> NDArray[np.float64]:
    """Return the distances (m, c) from each of `points` (m, d) to its `candidates` (m, c), row numbers of `data`."""
    out = np.empty(candidates.shape)
    kernels.distances(readable(points), readable(data), readable(candidates, np.int64), out)
    return out


def ranks_of(distances: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return an integer for each distance: the *rank* of the distance, which is the distance rounded to 34 bits.

    Ranks grow with the distances. Nearest neighbors are chosen by ranks and not by distances, so that rounding errors
    do not decide. Compiled code computes the same ranks by `glle_engine.linalg.nearest.distance_kernels.rank_of`.
    """
    bits = np.ascontiguousarray(distances).view(np.int64)
    return np.asarray((bits + (1 << (kernels.DROPPED_BITS - 1))) >> kernels.DROPPED_BITS)


def smallest_of_rows(distances: NDArray[np.float64], k: int) -> NDArray[np.int32]:
    """Return the columns (m, k) of the k smallest distances in each row, ascending.

    Distances that agree to 34 bits count as equal (`ranks_of`); of these, the smaller column comes first.
    """
    ranks = ranks_of(distances)
    if k == ranks.shape[1]:
        return np.argsort(ranks, axis=1, kind="stable").astype(np.int32)
    near = np.sort(np.argpartition(ranks, k - 1, axis=1)[:, :k], axis=1)
    order = np.argsort(np.take_along_axis(ranks, near, axis=1), axis=1, kind="stable")
    smallest = np.take_along_axis(near, order, axis=1).astype(np.int32)
    # If several entries tie for the k-th smallest, numpy's partition keeps some that depend on the processor.
    kth = np.take_along_axis(ranks, smallest[:, -1:], axis=1)
    for row in np.flatnonzero((ranks <= kth).sum(axis=1) > k):
        candidates = np.flatnonzero(ranks[row] <= kth[row])
        smallest[row] = candidates[np.argsort(ranks[row, candidates], kind="stable")[:k]]
    return smallest


def counts_nearer(
    data: NDArray[np.float64],
    points: NDArray[np.float64],
    excluded: NDArray[np.integer[Any]],
    thresholds: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Count the rows of `data` (n, d) that are nearer to a point than a threshold, for m points with k thresholds each.

    Entry (i, c) of the result (m, k) counts the rows that are nearer to point i of `points` (m, d) than
    thresholds[i, c], without row excluded[i]. The thresholds of a point ascend. Squared distances are first bounded by
    :math:`|x|^2 + |y|^2 - 2 x^T y`, in matrix products about the mean of the data. Where the bounds do not decide, the
    distance is computed.
    """
    mean = data.mean(axis=0)
    centered, others = points - mean, data - mean
    square_points, square_data = (np.einsum("ij,ij->i", rows, rows) for rows in (centered, others))
    # Rounding errors of |x|^2 + |y|^2 - 2 x^T y are at most (1.25 d + 8) epsilon (|x|^2 + |y|^2), in any order of the
    # sums; this bound has a margin.
    error = 2 * (data.shape[1] + 8) * float(np.finfo(np.float64).eps)
    out = np.zeros(thresholds.shape, np.int64)
    products = (centered * -2) @ others.T
    values = readable(points), readable(data), products, square_points, square_data, error
    kernels.counts_by_products(*values, readable(excluded, np.int64), readable(thresholds), out)
    return out


def nearest_rows(
    data: NDArray[np.float64],
    points: NDArray[np.float64],
    excluded: NDArray[np.intp],
    k: int,
    on_progress: OnProgress = silent,
    groups: NDArray[np.intp] | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the indices and distances, two arrays (m, k), of the k rows of `data` (n, d) nearest to each point (m, d).

    If distances agree to 34 bits, the smaller index comes first, so that rounding, which depends on the order and the
    unit of the features, does not decide.

    For point i, row excluded[i] is left out; -1 leaves out no row. With `groups` (n,), the group of each row, all rows
    of group excluded[i] are left out, and at least k rows must be outside each group. Many points are searched by a k-d
    tree, and fewer than 60 points are compared with all rows; both searches are exact. `on_progress` is called with
    (points done, m, "neighbors").

    Raises
    ------
    InvalidParameterError
        Unless 1 <= k <= n, and k < n if rows are left out.

    """
    max_neighbors = len(data) - int((excluded >= 0).any())
    of_rows = np.arange(len(data)) if groups is None else groups
    if not 1 <= k <= max_neighbors:  # else compiled code would write beyond its arrays, or leave indices undefined
        raise InvalidParameterError(
            f"{Way('n_neighbors', k)} is not between 1 and {max_neighbors}, the number of other points.",
            remedy=f"Give {Way('n_neighbors')} from 1 to {max_neighbors}, or more points.",
        )
    unit = unit_of(data)
    if unit != 1.0:
        scaled = data / unit
        data, points = scaled, scaled if points is data else points / unit
    indices, nearest = np.empty((len(points), k), np.int32), np.empty((len(points), k))
    if len(points) < MAX_POINTS_WITHOUT_TREE:
        for rows in blocks(len(points), block_size(len(data)), "neighbors", on_progress):
            apart = distances(points[rows], data, np.tile(np.arange(len(data)), (len(excluded[rows]), 1)))
            apart[of_rows == excluded[rows][:, None]] = np.inf
            indices[rows] = smallest_of_rows(apart, k)
            nearest[rows] = np.take_along_axis(apart, indices[rows], axis=1)
    else:
        done = 0
        for some, neighbors, apart in Leaves(data, groups).nearest(points, excluded, k):
            indices[some], nearest[some] = neighbors, apart
            done += len(some)
            on_progress(done, len(points), "neighbors")
    return indices, nearest if unit == 1.0 else nearest * unit


def nearest_in_sample(
    data: NDArray[np.float64],
    rows: NDArray[np.intp],
    candidates: NDArray[np.int32],
    chosen: NDArray[np.intp],
    k: int,
) -> NDArray[np.int32]:
    """Return the k points of a sample that are nearest to each of m rows of `data` (n, d), as indices (m, k).

    The sample is the rows `chosen` of the data, ascending, and an index is a position in `chosen`. `rows` (m,) are the
    row numbers to search for, and `candidates` (m, w) their w nearest rows among all data, nearest first, from an
    earlier search that serves several samples. Only rows with fewer than k candidates in the sample are searched again.
    """
    place = np.full(len(data), -1, np.int32)
    place[chosen] = np.arange(len(chosen))
    nearest, has_all = np.empty((len(rows), k), np.int32), np.empty(len(rows), bool)
    kernels.first_present(np.ascontiguousarray(candidates), place, nearest, has_all)
    few = rows[~has_all]
    nearest[~has_all] = nearest_rows(np.ascontiguousarray(data[chosen]), data[few], place[few].astype(np.intp), k)[0]
    return nearest


def warm() -> None:
    """Compile the kernels of distances and searches, or load them from the cache, so that later calls start at once."""
    data, rows = np.eye(5), np.arange(5)
    distances(data, data, np.broadcast_to(rows, (5, 5)))
    counts_nearer(data, data, rows, np.ones((5, 2)))
    for _ in Leaves(data).nearest(data, rows, 2):
        pass
