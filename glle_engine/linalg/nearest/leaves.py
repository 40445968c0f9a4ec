"""Rows of data in the leaves of a tree, and the exact search of the nearest among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.linalg.nearest.partition import PrincipalAxes, leaf_boxes, leaf_order, node_boxes
from glle_engine.linalg.nearest.products import PANEL, TAG
from glle_engine.linalg.nearest.tile_kernels import Queries, Tree, nearest_in_leaves, panels_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

# Rows of a leaf, from measurements with 2 to 784 features. Pairs cost less in larger leaves, and are fewer in smaller.
_SIZE, _SIZE_OF_MANY, _MANY = 64, 192, 4
_CHUNK = 1e10  # products at most between two reports: less than a second


class Leaves:
    """Rows of data (n, d), whose squared differences are in range, in the leaves of a k-d tree on principal axes."""

    def __init__(self, data: NDArray[np.float64]) -> None:
        n, d = data.shape
        self.size = _SIZE_OF_MANY if d >= _MANY else _SIZE
        self._data = data
        self._axes = PrincipalAxes.of(data)
        self._places, self._tolerance = self._axes.places(data)
        self._order = leaf_order(self._places, self.size)
        rows, starts = data[self._order], np.arange(0, n, self.size)
        count = len(starts)
        centres = np.zeros((count, -(-d // len(TAG)) * len(TAG)))
        centres[:, :d] = np.add.reduceat(rows, starts) / np.diff(starts, append=n)[:, None]
        panels = np.zeros((count * self.size // PANEL, d, PANEL), np.float32)
        halves = np.full(count * self.size, np.inf, np.float32)
        scale = float(np.ldexp(1.0, -int(np.frexp(np.ptp(data, axis=0).max())[1])))
        panels_of(rows, centres, scale, panels, halves)
        boxes = leaf_boxes(self._places[self._order], self._tolerance[self._order], self.size)
        lowest = np.minimum.reduceat(self._order, starts)
        self._tree = Tree(
            self.size, rows, self._order, node_boxes(boxes), boxes, lowest, centres, panels, halves, scale
        )

    def nearest(
        self, points: NDArray[np.float64], own: NDArray[np.intp], k: int
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.int32], NDArray[np.float64]]]:
        """Yield some points (c,), and the indices and distances (c, k) of their nearest rows, until all are done.

        Row own[i] is left out for point i. The k rows are those of smallest (distance, index), in this order.
        """
        order, queries = self._queries(points, own)
        step = max(1, int(_CHUNK // (self.size * self._data.size)))
        groups = len(queries.starts) - 1
        for first in range(0, groups, step):
            last = min(first + step, groups)
            rows = slice(queries.starts[first], queries.starts[last])
            indices, distances, _ = self._search(queries, first, last, k)
            yield order[rows], indices, distances

    def work(self, k: int, groups: int) -> NDArray[np.float64]:
        """Return the work of the search for all rows, extrapolated from some groups of them evenly spaced.

        The two numbers are the pairs in tiles and the distances computed.
        """
        _, queries = self._queries(self._data, np.arange(len(self._data)))
        count = len(queries.starts) - 1
        total, points = np.zeros(2), 0
        for group in np.unique(np.linspace(0, count - 1, groups).round().astype(int)).tolist():
            indices, _, work = self._search(queries, group, group + 1, k)
            total, points = total + work, points + len(indices)
        return np.asarray(total * (len(self._data) / points))

    def _queries(self, points: NDArray[np.float64], own: NDArray[np.intp]) -> tuple[NDArray[np.intp], Queries]:
        """Return points in groups of neighbors, and their order."""
        if points is self._data:
            order, places, tolerance, rows = self._order, self._places, self._tolerance, self._tree.data
        else:
            places, tolerance = self._axes.places(points)
            order = leaf_order(places, self.size)
            rows = points[order]
        starts = np.arange(0, len(points), self.size)
        widest = np.maximum.reduceat(tolerance[order], starts)
        return order, Queries(np.append(starts, len(points)), rows, own[order], places[order], widest)

    def _search(
        self, queries: Queries, first: int, last: int, k: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int64]]:
        begin, end = queries.starts[first], queries.starts[last]
        indices, distances, work = (
            np.empty((end - begin, k), np.int32),
            np.empty((end - begin, k)),
            np.zeros(2, np.int64),
        )
        nearest_in_leaves(self._tree, queries, first, last, indices, distances, work)
        return indices, distances, work
