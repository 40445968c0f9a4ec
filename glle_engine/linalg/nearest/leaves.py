"""Exact search for nearest neighbors in a k-d tree, which splits the data along their principal axes.

Coordinates on the principal axes only bound distances and order the work, so that their rounding errors change no
result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from glle_engine.base.progress import block_size
from glle_engine.linalg.nearest.tile_kernels import PANEL, TAG, Queries, Tree, nearest_in_leaves, panels_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

AXES = 16  # at most this many principal axes are used to bound distances
_AXIS_SAMPLE_ROWS = 2000  # the axes of the tree are the principal axes of a sample of this many rows
_ITERATIONS = 3  # steps of subspace iteration; any axes give correct results, and good axes save time
_SPLIT_SAMPLE_POINTS = 128  # about this many points of a node decide along which axis the node is split
_EPSILON = float(np.finfo(np.float64).eps)
_SHRINK = 1 - 2.0**-20  # shortens the axes, whose rounding errors could otherwise make a lower bound too large
# Rows per leaf, from measurements with 2 to 784 features: 192 from 4 features on, else 64. In larger leaves a pair of
# points costs less time; with smaller leaves, fewer pairs are compared.
_SIZE, _SIZE_OF_MANY, _MANY = 64, 192, 4
_PRODUCTS_PER_REPORT = 1e10  # a progress report comes after at most this many products, which take less than a second


@dataclass(frozen=True, eq=False)
class PrincipalAxes:
    """The leading principal axes of data, about their mean.

    Attributes
    ----------
    mean : (d,) float64
    axes : (d, up to 16) float64
        Orthogonal columns of length 1 - 2^-20, so that rounding never makes a distance on the axes too long.

    """

    mean: NDArray[np.float64]
    axes: NDArray[np.float64]

    @classmethod
    def from_data(cls, data: NDArray[np.float64]) -> Self:
        """Return the principal axes of data (n, d), by a few steps of subspace iteration on about 2,000 rows."""
        n, d = data.shape
        mean = data.mean(axis=0)
        sample = data[:: max(1, n // _AXIS_SAMPLE_ROWS)] - mean
        basis = np.linalg.qr(np.random.default_rng(d).standard_normal((d, min(AXES, d))))[0]
        extent = np.abs(sample).max()
        if extent > 0:
            sample /= extent
            for _ in range(_ITERATIONS if d > AXES else 0):
                basis = np.linalg.qr(sample.T @ (sample @ basis))[0]
            reduced = sample @ basis
            basis = np.linalg.qr(basis @ np.linalg.eigh(reduced.T @ reduced)[1])[0]
        return cls(mean, basis * _SHRINK)

    def places(self, points: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the coordinates (m, axes) of `points` (m, d) on these axes, and a bound on their rounding errors (m,).

        The axes are the principal axes of the data. Coordinates of points far outside the data may be infinite or NaN;
        the bound is then infinite.
        """
        m, d = points.shape
        places, tolerance = np.empty((m, self.axes.shape[1])), np.empty(m)
        step = block_size(d)
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, m, step):
                rows = slice(start, start + step)
                centered = points[rows] - self.mean
                places[rows] = centered @ self.axes
                tolerance[rows] = 2 * (d + 8) * _EPSILON * np.sqrt(np.einsum("ij,ij->i", centered, centered))
        return places, tolerance


def leaf_order(places: NDArray[np.float64], size: int) -> NDArray[np.intp]:
    """Return an order (n,) of points in which each run of `size` successive points is a leaf of a k-d tree.

    `places` (n, axes) are the coordinates of the points. A node with several leaves is split along the axis on which a
    sample of the node's points has the greatest range. The first half of its leaves, rounded down, gets the points with
    the smallest coordinates.
    """
    n = len(places)
    order, places = np.arange(n), places.copy()
    nodes = [(0, -(-n // size))]
    while nodes:
        first, last = nodes.pop()
        if last - first == 1:
            continue
        middle = (first + last) // 2
        rows = slice(first * size, min(last * size, n))
        with np.errstate(invalid="ignore"):
            some = places[rows][:: max(1, (last - first) * size // _SPLIT_SAMPLE_POINTS)]
            axis = int(np.argmax(some.max(axis=0) - some.min(axis=0)))
        chosen = np.argpartition(places[rows, axis], (middle - first) * size)
        places[rows], order[rows] = places[rows][chosen], order[rows][chosen]
        nodes += [(first, middle), (middle, last)]
    return order


def leaf_boxes(places: NDArray[np.float64], tolerance: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return the bounding box (2, axes) of each leaf: the smallest and the largest coordinates of its points.

    `places` (n, axes) are the coordinates in the order of the leaves, which have `size` points each. The boxes are
    wider by `tolerance` (n,), a bound on the errors of the coordinates.
    """
    starts = np.arange(0, len(places), size)
    low = np.minimum.reduceat(places - tolerance[:, None], starts)
    return np.stack([low, np.maximum.reduceat(places + tolerance[:, None], starts)], axis=1)


def node_boxes(leaves: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the bounding boxes (nodes, 2, axes) of all nodes of a k-d tree, from the boxes of its leaves.

    A box is the smallest and the largest coordinates. The children of node i are 2 i + 1 and 2 i + 2. Boxes of node
    numbers that do not occur are 0.
    """
    nodes = np.zeros((4 * len(leaves), *leaves.shape[1:]))
    spans = [(0, 0, len(leaves))]
    for node, first, last in spans:  # `spans` grows in this loop, and has parents before children
        if last - first > 1:
            middle = (first + last) // 2
            spans += [(2 * node + 1, first, middle), (2 * node + 2, middle, last)]
    for node, first, last in reversed(spans):
        if last - first == 1:
            nodes[node] = leaves[first]
        else:
            left, right = nodes[2 * node + 1], nodes[2 * node + 2]
            nodes[node, 0] = np.minimum(left[0], right[0])
            nodes[node, 1] = np.maximum(left[1], right[1])
    return nodes


class Leaves:
    """A k-d tree of the rows of data (n, d), for the search of nearest neighbors.

    Squared differences of the data must neither overflow nor underflow.
    """

    def __init__(self, data: NDArray[np.float64], groups: NDArray[np.intp] | None = None) -> None:
        """Build the tree of the rows of `data` (n, d).

        `groups` (n,) has a group number for each row. A search can leave out one group for each query point; without
        `groups`, row i is the only row of group i.
        """
        n, d = data.shape
        self.size = _SIZE_OF_MANY if d >= _MANY else _SIZE
        self._data = data
        self._axes = PrincipalAxes.from_data(data)
        self._places, self._tolerance = self._axes.places(data)
        self._order = leaf_order(self._places, self.size)
        rows, starts = data[self._order], np.arange(0, n, self.size)
        count = len(starts)
        centers = np.zeros((count, -(-d // len(TAG)) * len(TAG)))
        centers[:, :d] = np.add.reduceat(rows, starts) / np.diff(starts, append=n)[:, None]
        panels = np.zeros((count * self.size // PANEL, d, PANEL), np.float32)
        halves = np.full(count * self.size, np.inf, np.float32)
        scale = float(np.ldexp(1.0, -int(np.frexp(np.ptp(data, axis=0).max())[1])))
        panels_of(rows, centers, scale, panels, halves)
        boxes = leaf_boxes(self._places[self._order], self._tolerance[self._order], self.size)
        lowest = np.minimum.reduceat(self._order, starts)
        self._tree = Tree(
            self.size, rows, self._order, self._order if groups is None else groups[self._order], node_boxes(boxes),
            boxes, lowest, centers, panels, halves, scale,
        )  # fmt: skip

    def nearest(
        self,
        points: NDArray[np.float64],
        excluded: NDArray[np.intp],
        k: int,
        order: NDArray[np.intp] | None = None,
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.int32], NDArray[np.float64]]]:
        """Find the k nearest rows of each of `points` (m, d), and yield the results for one batch of points at a time.

        A result is the numbers of the points (c,), and the indices and distances (c, k) of their nearest rows, nearest
        first; of rows whose distances agree to 34 bits, the smaller index comes first.

        For point i, row excluded[i] is left out, or no row if excluded[i] is -1. If the tree was built with group
        numbers of its rows (`groups`), all rows of group excluded[i] are left out. `order` (m,) is an order in which
        successive points are near each other; by default it is computed here. It is ignored if `points` is the very
        array of which the tree was built, since the order of the tree serves.
        """
        order, queries = self._queries(points, excluded, order)
        step = max(1, int(_PRODUCTS_PER_REPORT // (self.size * self._data.size)))
        groups = len(queries.starts) - 1
        for first in range(0, groups, step):
            last = min(first + step, groups)
            rows = slice(queries.starts[first], queries.starts[last])
            indices, distances, _ = self._search(queries, first, last, k)
            yield order[rows], indices, distances

    def _queries(
        self, points: NDArray[np.float64], excluded: NDArray[np.intp], order: NDArray[np.intp] | None = None
    ) -> tuple[NDArray[np.intp], Queries]:
        """Sort `points` (m, d) so that successive points are near each other, and divide them into batches.

        Returns the order (m,) and the sorted points as `Queries`. `excluded` and `order` are the parameters of
        `nearest`: if `order` is given, it is taken in place of sorting.
        """
        if points is self._data:
            order, places, tolerance, rows = self._order, self._places, self._tolerance, self._tree.data
        else:
            places, tolerance = self._axes.places(points)
            order = leaf_order(places, self.size) if order is None else order
            rows = points[order]
        starts = np.arange(0, len(points), self.size)
        widest = np.maximum.reduceat(tolerance[order], starts)
        return order, Queries(np.append(starts, len(points)), rows, excluded[order], places[order], widest)

    def _search(
        self, queries: Queries, first: int, last: int, k: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int64]]:
        begin, end = queries.starts[first], queries.starts[last]
        indices, distances = np.empty((end - begin, k), np.int32), np.empty((end - begin, k))
        work = np.zeros(2, np.int64)
        nearest_in_leaves(self._tree, queries, first, last, indices, distances, work)
        return indices, distances, work
