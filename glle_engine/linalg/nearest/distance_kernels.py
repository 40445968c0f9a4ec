"""The compiled loops behind `glle_engine.linalg.distances`: distances, their ranks, heaps of neighbors, and counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.linalg.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray


DROPPED_BITS = 19  # distances are compared by the first 34 of their 53 bits, because rounding errors change the others
TIE_TOLERANCE = 2.0 ** (DROPPED_BITS - 52)  # distances with a smaller relative difference may count as equal
_HALF = 1 << (DROPPED_BITS - 1)


@compiled
def distance(points: NDArray[np.float64], i: int, data: NDArray[np.float64], j: int) -> float:
    """Return the Euclidean distance of row i of `points` and row j of `data`, added up in a fixed order.

    The square of feature f is added to partial sum f mod 4.
    """
    d = points.shape[1]
    fours = d - d % 4
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    for f in range(0, fours, 4):
        a, b = points[i, f] - data[j, f], points[i, f + 1] - data[j, f + 1]
        s0 += a * a
        s1 += b * b
        a, b = points[i, f + 2] - data[j, f + 2], points[i, f + 3] - data[j, f + 3]
        s2 += a * a
        s3 += b * b
    if fours < d:
        a = points[i, fours] - data[j, fours]
        s0 += a * a
    if fours + 1 < d:
        a = points[i, fours + 1] - data[j, fours + 1]
        s1 += a * a
    if fours + 2 < d:
        a = points[i, fours + 2] - data[j, fours + 2]
        s2 += a * a
    return float(np.sqrt((s0 + s1) + (s2 + s3)))


@compiled
def distances(
    points: NDArray[np.float64], data: NDArray[np.float64], candidates: NDArray[np.int64], out: NDArray[np.float64]
) -> None:
    """Write the distances from each of `points` (m, d) to its `candidates` (m, c), row numbers of `data`, to `out`."""
    m, count = candidates.shape
    for i in range(m):
        for c in range(count):
            out[i, c] = distance(points, i, data, candidates[i, c])


@compiled
def first_present(
    candidates: NDArray[np.int32], place: NDArray[np.int32], out: NDArray[np.int32], has_all: NDArray[np.bool_]
) -> None:
    """Find, for each of m points, the first k of its `candidates` (m, w) that belong to a sample.

    `place` (n,) is the position of each row of the data in the sample, or -1 if it is not in the sample. The positions
    of the k candidates are written to `out` (m, k), and `has_all` (m,) becomes True. If a point has fewer than k
    candidates in the sample, `has_all` becomes False, and its row of `out` is incomplete.
    """
    m, width = candidates.shape
    k = out.shape[1]
    for i in range(m):
        count = 0
        for c in range(width):
            if place[candidates[i, c]] >= 0:
                out[i, count] = place[candidates[i, c]]
                count += 1
                if count == k:
                    break
        has_all[i] = count == k


@compiled
def rank_of(distance: float) -> int:
    """Return an integer that grows with a distance and is the same for distances that agree to 34 bits.

    If neighbors are compared by this rank of their distance, rounding errors, which depend on the order of the
    features, do not decide which is nearer. The distance must not be negative.
    """
    return int((np.float64(distance).view(np.int64) + _HALF) >> DROPPED_BITS)


@compiled
def sink(index: NDArray[np.int64], distance: NDArray[np.float64], size: int, entry: int) -> None:
    """Restore the order of a binary heap in which only entry number `entry` may be too small for its position.

    The heap is the first `size` entries of both arrays. On top is the greatest pair of (`rank_of` the distance, index).
    """
    sunk_distance, sunk_index = distance[entry], index[entry]
    sunk_rank = rank_of(sunk_distance)
    while True:
        child = 2 * entry + 1
        if child >= size:
            break
        rank, other = rank_of(distance[child]), child + 1
        if other < size:
            other_rank = rank_of(distance[other])
            if other_rank > rank or (other_rank == rank and index[other] > index[child]):
                child, rank = other, other_rank
        if rank < sunk_rank or (rank == sunk_rank and index[child] < sunk_index):
            break
        distance[entry], index[entry] = distance[child], index[child]
        entry = child
    distance[entry], index[entry] = sunk_distance, sunk_index


@compiled
def ascending(index: NDArray[np.int64], distance: NDArray[np.float64]) -> None:
    """Sort a heap of distances and indices in place, ascending by (`rank_of` the distance, index)."""
    for size in range(len(index) - 1, 0, -1):
        distance[0], distance[size] = distance[size], distance[0]
        index[0], index[size] = index[size], index[0]
        sink(index, distance, size, 0)


@compiled
def _not_above(thresholds: NDArray[np.float64], value: float) -> int:
    """Return how many of the `thresholds`, which ascend, are at most `value`, by binary search."""
    low, high = 0, len(thresholds)
    while low < high:
        middle = (low + high) // 2
        if thresholds[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def counts_by_products(
    points: NDArray[np.float64],
    data: NDArray[np.float64],
    products: NDArray[np.float64],
    square_points: NDArray[np.float64],
    square_data: NDArray[np.float64],
    error: float,
    excluded_rows: NDArray[np.int64],
    thresholds: NDArray[np.float64],
    out: NDArray[np.int64],
) -> None:
    """Write the number of rows of `data` that are nearer to point i than thresholds[i, c] to out[i, c].

    Row excluded_rows[i] is not counted, and the thresholds (m, k) ascend in each row. The squared distance of point i
    and row j is products[i, j] + square_points[i] + square_data[j], with an error of at most `error` times
    square_points[i] + square_data[j]. If a threshold lies within this error, the distance is computed from the
    differences of the features.
    """
    m, n = products.shape
    k = thresholds.shape[1]
    squares, counts = np.empty(k), np.empty(k + 1, np.int64)
    for i in range(m):
        for c in range(k):
            squares[c] = thresholds[i, c] * thresholds[i, c]
        counts[:] = 0
        for j in range(n):
            both = square_points[i] + square_data[j]
            about, off = products[i, j] + both, error * both
            if about - off > squares[k - 1] or j == excluded_rows[i]:
                continue
            passed = _not_above(squares, about - off)
            if passed < k and squares[passed] <= about + off:
                passed = _not_above(thresholds[i], distance(points, i, data, j))
            counts[passed] += 1
        total = 0
        for c in range(k):
            total += counts[c]
            out[i, c] = total
