"""Compiled loops behind `glle_engine.linalg.rows`, in a fixed order of operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.linalg.compiled import compiled
from glle_engine.linalg.vectors import address, fill, fma, fnma, load, offset, store

if TYPE_CHECKING:
    from numpy.typing import NDArray

TAG = (0, 0, 0, 0)  # four doubles a vector on every processor


@compiled
def overlaps(
    tag: tuple[int, ...], rows: NDArray[np.float64], vector: NDArray[np.float64], found: NDArray[np.float64]
) -> None:
    """Put the inner product of each row (m, n) with a vector (n,) into `found` (m,)."""
    lanes = len(tag)
    m, n = rows.shape
    whole = n // (2 * lanes)
    x = address(vector)
    part = np.empty(2 * lanes)
    parts = address(part)
    for i in range(m):
        row = offset(address(rows), i * n)
        even, odd = fill(tag, 0.0), fill(tag, 0.0)
        for j in range(whole):
            even = fma(load(tag, row, 2 * j), load(tag, x, 2 * j), even)
            odd = fma(load(tag, row, 2 * j + 1), load(tag, x, 2 * j + 1), odd)
        store(parts, 0, even)
        store(parts, 1, odd)
        for j in range(whole * 2 * lanes, n):
            part[j - whole * 2 * lanes] += rows[i, j] * vector[j]
        total = 0.0
        for j in range(2 * lanes):
            total += part[j]
        found[i] = total


@compiled
def subtract(
    tag: tuple[int, ...], factors: NDArray[np.float64], rows: NDArray[np.float64], vector: NDArray[np.float64]
) -> None:
    """Subtract sum_i factors_i rows_i from a vector, in place, i ascending."""
    lanes = len(tag)
    m, n = rows.shape
    whole = n // lanes
    x, all_rows = address(vector), address(rows)
    for j in range(whole):
        value = load(tag, x, j)
        for i in range(m):
            value = fnma(load(tag, offset(all_rows, i * n), j), fill(tag, factors[i]), value)
        store(x, j, value)
    for j in range(whole * lanes, n):
        for i in range(m):
            vector[j] -= rows[i, j] * factors[i]
