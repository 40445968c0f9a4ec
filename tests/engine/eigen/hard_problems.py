"""Weights with which solvers fail: left null vectors that vanish at the pin, and pivots of zero."""

import numpy as np
from numpy.typing import NDArray

from tests.engine.eigen.dense_reference import residual_matrix


def with_weak_point(
    neighbors: NDArray[np.int32], weights: NDArray[np.float64], point: int, size: float = 1e-9
) -> NDArray[np.float64]:
    """Return weights whose left null vector is about `size` at a point, because all edges to the point are weak."""
    weak = np.where(neighbors == point, size, weights)
    return np.asarray(weak / weak.sum(axis=1, keepdims=True))


def with_vanishing_pivot(
    neighbors: NDArray[np.int32], weights: NDArray[np.float64], order: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Return weights whose LU without pivoting, in an order, meets a pivot that is zero to rounding.

    A pivot is affine in each weight of its row that belongs to an earlier column. The row keeps its sum by a weight
    of a later column, on which the pivot does not depend.
    """
    n = len(order)
    position = np.empty(n, int)
    position[order] = np.arange(n)

    def pivot(tried: NDArray[np.float64], row: int) -> float:
        matrix = residual_matrix(neighbors, tried)[np.ix_(order, order)]
        for j in range(position[row]):
            matrix[j + 1 :] -= np.outer(matrix[j + 1 :, j] / matrix[j, j], matrix[j])
        return float(matrix[position[row], position[row]])

    for row in order[n // 4 :]:
        places = position[neighbors[row]]
        early, late = int(np.argmin(places)), int(np.argmax(places))
        if not places[early] < position[row] < places[late]:
            continue

        def move_weight(by: float, row: int = row, early: int = early, late: int = late) -> NDArray[np.float64]:
            changed = weights.copy()
            changed[row, early] += by
            changed[row, late] -= by
            return changed

        at_zero, at_one = pivot(weights, row), pivot(move_weight(1.0), row)
        if abs(at_one - at_zero) > 0.01:
            moved = move_weight(at_zero / (at_zero - at_one))
            assert abs(pivot(moved, row)) < 1e-13
            return moved
    raise AssertionError("no row with neighbors on both sides")
