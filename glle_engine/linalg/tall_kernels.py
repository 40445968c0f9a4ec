"""Compiled loops over a few long vectors, in a fixed order of operations: projections, and orthogonal Procrustes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.linalg.compiled import compiled
from glle_engine.linalg.dense_kernels import singular_systems
from glle_engine.linalg.vectors import address, fill, fma, fnma, load, offset, store

if TYPE_CHECKING:
    from numpy.typing import NDArray

TAG = (0, 0, 0, 0)  # four doubles a vector on every processor


@compiled
def overlaps(
    tag: tuple[int, ...], rows: NDArray[np.float64], vector: NDArray[np.float64], products: NDArray[np.float64]
) -> None:
    """Put the inner product of each row (m, n) with a vector (n,) into `products` (m,)."""
    lanes = len(tag)
    m, n = rows.shape
    full = n // (2 * lanes)
    x = address(vector)
    part = np.empty(2 * lanes)
    parts = address(part)
    for i in range(m):
        row = offset(address(rows), i * n)
        even, odd = fill(tag, 0.0), fill(tag, 0.0)
        for j in range(full):
            even = fma(load(tag, row, 2 * j), load(tag, x, 2 * j), even)
            odd = fma(load(tag, row, 2 * j + 1), load(tag, x, 2 * j + 1), odd)
        store(parts, 0, even)
        store(parts, 1, odd)
        for j in range(full * 2 * lanes, n):
            part[j - full * 2 * lanes] += rows[i, j] * vector[j]
        total = 0.0
        for j in range(2 * lanes):
            total += part[j]
        products[i] = total


@compiled
def subtract(
    tag: tuple[int, ...], factors: NDArray[np.float64], rows: NDArray[np.float64], vector: NDArray[np.float64]
) -> None:
    """Subtract sum_i factors_i rows_i from a vector, in place, i ascending."""
    lanes = len(tag)
    m, n = rows.shape
    full = n // lanes
    x, all_rows = address(vector), address(rows)
    for j in range(full):
        value = load(tag, x, j)
        for i in range(m):
            value = fnma(load(tag, offset(all_rows, i * n), j), fill(tag, factors[i]), value)
        store(x, j, value)
    for j in range(full * lanes, n):
        for i in range(m):
            vector[j] -= rows[i, j] * factors[i]


@compiled
def rotation(
    Y: NDArray[np.float64], reference: NDArray[np.float64], turn: NDArray[np.float64]
) -> tuple[float, float, float]:
    """Put U V^T of Y^T Y_0 = U S V^T into `turn` (p, p).

    Returns
    -------
    tr S, |Y|^2, |Y_0|^2; the first is NaN if Y^T Y_0 is not finite.

    """
    n, p = Y.shape
    cross = np.zeros((1, p, p))
    own, other = 0.0, 0.0
    if p == 2:  # the usual case, with the sums in registers
        own, other = _planar_products(Y, reference, cross[0])
    else:
        for i in range(n):
            for a in range(p):
                y = Y[i, a]
                own += y * y
                other += reference[i, a] * reference[i, a]
                for b in range(p):
                    cross[0, a, b] += y * reference[i, b]
    left, values, right = np.empty((1, p, p)), np.empty((1, p)), np.empty((1, p, p))
    if singular_systems(cross, left, values, right) >= 0:
        return np.nan, own, other
    total = 0.0
    for a in range(p):
        total += values[0, a]
        for b in range(p):
            entry = 0.0
            for j in range(p):
                entry += left[0, a, j] * right[0, b, j]
            turn[a, b] = entry
    return total, own, other


@compiled
def _planar_products(
    Y: NDArray[np.float64], reference: NDArray[np.float64], cross: NDArray[np.float64]
) -> tuple[float, float]:
    """Put Y^T Y_0 of two columns into `cross`; return both squared norms."""
    xx, xy, yx, yy = 0.0, 0.0, 0.0, 0.0
    own_x, own_y, other_x, other_y = 0.0, 0.0, 0.0, 0.0
    for i in range(len(Y)):
        x, y, u, v = Y[i, 0], Y[i, 1], reference[i, 0], reference[i, 1]
        xx += x * u
        xy += x * v
        yx += y * u
        yy += y * v
        own_x += x * x
        own_y += y * y
        other_x += u * u
        other_y += v * v
    cross[0, 0], cross[0, 1], cross[1, 0], cross[1, 1] = xx, xy, yx, yy
    return own_x + own_y, other_x + other_y


@compiled
def rotate(Y: NDArray[np.float64], turn: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Put Y R (n, q) into `out`."""
    n, p = Y.shape
    if p == 2 and turn.shape[1] == 2:
        a, b, c, d = turn[0, 0], turn[0, 1], turn[1, 0], turn[1, 1]
        for i in range(n):
            x, y = Y[i, 0], Y[i, 1]
            out[i, 0] = x * a + y * c
            out[i, 1] = x * b + y * d
        return
    for i in range(n):
        for b in range(turn.shape[1]):
            entry = 0.0
            for a in range(p):
                entry += Y[i, a] * turn[a, b]
            out[i, b] = entry
