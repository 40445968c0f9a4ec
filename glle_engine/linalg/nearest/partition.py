"""Coordinates of points on principal axes, and their partition into the leaves of a k-d tree.

Coordinates only bound distances and only order the work, so that their rounding changes no result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

AXES = 16
_SAMPLE = 2000  # rows that define the axes
_ITERATIONS = 3
_BLOCK_ENTRIES = 1 << 20
_EPSILON = float(np.finfo(np.float64).eps)
_SHRINK = 1 - 2.0**-20  # more than axes are off from unit length and right angles


@dataclass(frozen=True, eq=False)
class PrincipalAxes:
    """The leading principal axes (d, axes) of data, about the mean, a little shortened."""

    mean: NDArray[np.float64]
    axes: NDArray[np.float64]

    @classmethod
    def of(cls, data: NDArray[np.float64]) -> Self:
        """Return the axes of data (n, d) by a few steps of subspace iteration on some of its rows."""
        n, d = data.shape
        mean = data.mean(axis=0)
        sample = data[:: max(1, n // _SAMPLE)] - mean
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
        """Return the coordinates (m, axes) of points (m, d), and a bound of their error (m,).

        Coordinates of points far outside the data may be infinite or not a number. Their bound is infinite.
        """
        m, d = points.shape
        places, tolerance = np.empty((m, self.axes.shape[1])), np.empty(m)
        step = max(1, _BLOCK_ENTRIES // d)
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, m, step):
                rows = slice(start, start + step)
                centred = points[rows] - self.mean
                places[rows] = centred @ self.axes
                tolerance[rows] = 2 * (d + 8) * _EPSILON * np.sqrt(np.einsum("ij,ij->i", centred, centred))
        return places, tolerance


def leaf_order(places: NDArray[np.float64], size: int) -> NDArray[np.intp]:
    """Return an order (n,) of points (n, axes) in which each `size` of them are a leaf of a k-d tree.

    A node with several leaves gives the first half of them, rounded down, the points that are least along the axis of
    the greatest range.
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
            axis = int(np.argmax(np.ptp(places[rows], axis=0)))
        chosen = np.argpartition(places[rows, axis], (middle - first) * size)
        places[rows], order[rows] = places[rows][chosen], order[rows][chosen]
        nodes += [(first, middle), (middle, last)]
    return order


def leaf_boxes(places: NDArray[np.float64], tolerance: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return the least and the greatest coordinates (leaves, 2, axes) of the points of each leaf, in this order."""
    starts = np.arange(0, len(places), size)
    low = np.minimum.reduceat(places - tolerance[:, None], starts)
    return np.stack([low, np.maximum.reduceat(places + tolerance[:, None], starts)], axis=1)


def node_boxes(leaves: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the boxes (nodes, 2, axes) of all nodes above leaves (leaves, 2, axes), and of the leaves.

    The children of node i are 2 i + 1 and 2 i + 2. Unused nodes are 0.
    """
    nodes = np.zeros((4 * len(leaves), *leaves.shape[1:]))
    spans = [(0, 0, len(leaves))]
    for node, first, last in spans:  # grows: parents before children
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
