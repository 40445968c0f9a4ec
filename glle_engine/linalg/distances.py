"""Euclidean distances in one order of operations, nearest rows, and ranks.

Feature f of a difference is squared and added to partial sum f mod 4, and the distance is the root of
:math:`(s_0 + s_1) + (s_2 + s_3)`. No fused operation and no BLAS: the bits are the same on every processor. Matrix
products, whose bits depend on the processor, only bound distances.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.progress import OnProgress, blocks, silent
from glle_engine.linalg.dense import readable
from glle_engine.linalg.nearest import distance_kernels as kernels
from glle_engine.linalg.nearest.leaves import Leaves

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

_EPSILON = float(np.finfo(np.float64).eps)
_MARGIN = 16 * _EPSILON  # relative: above the rounding of a distance's square and of sums of bounds
_SLACK = 4
FEW_POINTS = 300  # besides one a feature: compared with all rows before the leaves of a tree are filled
_BLOCK_ENTRIES = 1 << 23
_LARGEST_EXPONENT = 300  # of 2: fourth powers of differences within it are normal numbers


def power_of_two(extent: float) -> float:
    """Return the largest power of 2 that is at most a positive number; 1 for 0."""
    if not extent > 0:
        return 1.0
    return float(np.ldexp(1.0, max(int(np.frexp(extent)[1]) - 1, -1020)))


def unit_of(X: NDArray[np.float64]) -> float:
    """Return the power of 2 by which to divide X (n, d) so that squared differences stay in range; usually 1."""
    extent = float(np.ptp(X, axis=0).max())
    largest = float(np.abs(X).max())
    usual = extent >= 2.0**-_LARGEST_EXPONENT and largest <= 2.0**_LARGEST_EXPONENT
    return 1.0 if usual or extent == 0 else power_of_two(max(extent, largest * 2.0**-_LARGEST_EXPONENT))


def distances(
    points: NDArray[np.float64], data: NDArray[np.float64], candidates: NDArray[np.integer[Any]]
) -> NDArray[np.float64]:
    """Return the distances of points (m, d) to rows `candidates` (m, c) of data (n, d)."""
    out = np.empty(candidates.shape)
    kernels.distances(readable(points), readable(data), _integers(candidates), out)
    return out


def nearest_among(
    points: NDArray[np.float64],
    data: NDArray[np.float64],
    candidates: NDArray[np.integer[Any]],
    own: NDArray[np.integer[Any]],
    k: int,
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the k candidates of smallest (distance, index), in this order: two arrays (m, k).

    `candidates` (m, c) are rows of data (n, d) for each point (m, d), none twice, k or more of them other than `own`
    (m,), the row to leave out (-1 for none).
    """
    indices, apart = np.empty((len(points), k), np.int32), np.empty((len(points), k))
    kernels.nearest_among(readable(points), readable(data), _integers(candidates), _integers(own), indices, apart)
    return indices, apart


class Products:
    """Bounds of squared distances :math:`|x|^2 + |y|^2 - 2 x^T y` to the rows of data (n, d), about their mean."""

    def __init__(self, data: NDArray[np.float64]) -> None:
        self.data = data
        self._mean = data.mean(axis=0)
        self._centred = data - self._mean
        self._square = np.einsum("ij,ij->i", self._centred, self._centred)
        # Bound of |computed - true| / (|x|^2 + |y|^2) for any order of the sums: (1.25 d + 8) epsilon, and some more.
        self._error = 2 * (data.shape[1] + 8) * _EPSILON

    def nearest(
        self, points: NDArray[np.float64], own: NDArray[np.integer[Any]], k: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return the k rows of data of smallest (distance, index) for each point: see `nearest_among`."""
        products, square = self._of(points)
        low_points, low_data = (1 - self._error) * square, (1 - self._error) * self._square
        products += low_data
        rows = np.flatnonzero(own >= 0)
        products[rows, own[rows]] = np.inf
        n = products.shape[1]
        taken = min(k + _SLACK, n)
        candidates = np.argpartition(products, taken - 1, axis=1)[:, :taken]
        indices, apart = nearest_among(points, self.data, candidates, own, k)
        limit = apart[:, -1] ** 2 * (1 + _MARGIN) - low_points
        furthest = np.take_along_axis(products, candidates, axis=1).max(axis=1)
        for row in np.flatnonzero(~(limit < furthest)):
            within = np.flatnonzero(~(products[row] > limit[row]))
            one = slice(row, row + 1)
            indices[one], apart[one] = nearest_among(points[one], self.data, within[None], own[one], k)
        return indices, apart

    def counts(
        self, points: NDArray[np.float64], own: NDArray[np.integer[Any]], thresholds: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Return the number (m, k) of rows other than `own` (m,) that are nearer to each point than its thresholds.

        `thresholds` (m, k) are distances, ascending in each row.
        """
        products, square = self._of(points)
        out = np.zeros(thresholds.shape, np.int64)
        arrays = (readable(points), readable(self.data), products, square, self._square)
        kernels.counts_by_products(*arrays, self._error, _integers(own), readable(thresholds), out)
        return out

    def _of(self, points: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return -2 x^T y (m, n) and |x|^2 (m,) of points, about the mean of the data."""
        centred = points - self._mean
        return (centred * -2) @ self._centred.T, np.einsum("ij,ij->i", centred, centred)


def nearest_rows(
    data: NDArray[np.float64],
    points: NDArray[np.float64],
    own: NDArray[np.intp],
    k: int,
    on_progress: OnProgress = silent,
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the k rows of data (n, d) of smallest (distance, index) for points (m, d): two arrays (m, k).

    Row own[i] is left out for point i; -1 for none. Many points are searched in the leaves of a tree, few by products
    with all rows. Both leave out only rows whose distance is proved to be greater, so that the result does not depend
    on the choice. `on_progress` is called with (points done, m, "neighbors").
    """
    unit = unit_of(data)
    if unit != 1.0:
        scaled = data / unit
        data, points = scaled, scaled if points is data else points / unit
    n, d = data.shape
    indices, distances = np.empty((len(points), k), np.int32), np.empty((len(points), k))
    done = 0
    found: Iterable[tuple[NDArray[np.intp] | slice, NDArray[np.int32], NDArray[np.float64]]]
    if len(points) >= FEW_POINTS + d:
        found = Leaves(data).nearest(points, own, k)
    else:
        products = Products(data)
        parts = blocks(len(points), max(1, _BLOCK_ENTRIES // n), "neighbors")
        found = ((rows, *products.nearest(points[rows], own[rows], k)) for rows in parts)
    for rows, nearest, apart in found:
        indices[rows], distances[rows] = nearest, apart
        done += len(nearest)
        on_progress(done, len(points), "neighbors")
    return indices, distances if unit == 1.0 else distances * unit


def warm() -> None:
    """Compile the kernels of this package, or load them from the cache."""
    data, own = np.eye(5), np.arange(5)
    everyone = np.broadcast_to(own, (5, 5))
    distances(data, data, everyone)
    nearest_among(data, data, everyone, own, 2)
    products = Products(data)
    products.nearest(data, own, 2)
    products.counts(data, own, np.ones((5, 2)))
    for _ in Leaves(data).nearest(data, own, 2):
        pass


def _integers(array: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    view = np.ascontiguousarray(array, np.int64).view()
    view.flags.writeable = False
    return view
