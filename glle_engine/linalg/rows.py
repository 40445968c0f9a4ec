"""Inner products and combinations of a few long vectors, for Lanczos, with the same bits on every processor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.linalg.compiled import compiled
from glle_engine.linalg.vectors import address, fill, fma, fnma, load, offset, store

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TAG = (0, 0, 0, 0)  # its length, 4, is the number of doubles in a SIMD vector, the same on every processor


@compiled
def overlaps(rows: NDArray[np.float64], vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the inner products (m,) of rows (m, n) with a vector (n,)."""
    lanes = len(_TAG)
    m, n = rows.shape
    products = np.empty(m)
    full = n // (2 * lanes)
    x = address(vector)
    sums = np.empty(2 * lanes)
    sums_at = address(sums)
    for i in range(m):
        row = offset(address(rows), i * n)
        even, odd = fill(_TAG, 0.0), fill(_TAG, 0.0)
        for j in range(full):
            even = fma(load(_TAG, row, 2 * j), load(_TAG, x, 2 * j), even)
            odd = fma(load(_TAG, row, 2 * j + 1), load(_TAG, x, 2 * j + 1), odd)
        store(sums_at, 0, even)
        store(sums_at, 1, odd)
        for j in range(full * 2 * lanes, n):
            sums[j - full * 2 * lanes] += rows[i, j] * vector[j]
        total = 0.0
        for j in range(2 * lanes):
            total += sums[j]
        products[i] = total
    return products


@compiled
def subtract(factors: NDArray[np.float64], rows: NDArray[np.float64], vector: NDArray[np.float64]) -> None:
    """Subtract factors[i] * rows[i] from `vector` (n,) in place, one row i of `rows` (m, n) after the other."""
    lanes = len(_TAG)
    m, n = rows.shape
    full = n // lanes
    x, all_rows = address(vector), address(rows)
    for j in range(full):
        value = load(_TAG, x, j)
        for i in range(m):
            value = fnma(load(_TAG, offset(all_rows, i * n), j), fill(_TAG, factors[i]), value)
        store(x, j, value)
    for j in range(full * lanes, n):
        for i in range(m):
            vector[j] -= rows[i, j] * factors[i]


def project_out(rows: NDArray[np.float64], vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Make `vector` (n,) orthogonal to orthonormal `rows` (m, n) in place, by one pass of Gram-Schmidt.

    Returns the inner products (m,) that the vector had with the rows.
    """
    products = overlaps(rows, vector)
    subtract(products, rows, vector)
    return products


def combination(factors: NDArray[np.float64], rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the product factors @ rows (q, n) of factors (q, m) and rows (m, n)."""
    products = np.zeros((len(factors), rows.shape[1]))
    for negated, target in zip(np.ascontiguousarray(-factors), products, strict=True):
        subtract(negated, rows, target)
    return products


def norm(vector: NDArray[np.float64]) -> float:
    """Return the Euclidean norm of a vector (n,)."""
    return float(np.sqrt(overlaps(vector[None], vector)[0]))
