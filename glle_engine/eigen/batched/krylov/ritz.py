"""Ritz pairs of a Lanczos run: convergence, and eigenvectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.linalg.compiled import compiled
from glle_engine.linalg.tridiagonal import diagonalise
from glle_engine.linalg.vectors import address, divide, fill, fma, load, root, store

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.linalg.vectors import Address

_EPSILON = float(np.finfo(np.float64).eps)


@compiled
def verdict(diagonal: NDArray[np.float64], off: NDArray[np.float64], wanted: int, tolerance: float) -> int:
    """Return 1 if the wanted Ritz values have converged, 0 if not, and -1 if a value is not finite."""
    m = len(diagonal)
    if not (np.isfinite(diagonal[m - 1]) and np.isfinite(off[m - 1])):
        return -1
    largest = 0.0
    for i in range(m):
        largest = max(largest, abs(diagonal[i]))
    exhausted = off[m - 1] <= _EPSILON * largest
    if m < wanted:
        return -1 if exhausted else 0
    if m == wanted and not exhausted:
        return 0
    values, rows = diagonal.copy(), np.zeros((1, m))
    rows[0, m - 1] = 1.0
    if not diagonalise(values, off.copy(), rows):
        return -1
    if exhausted:
        return 1
    top = _largest(values, wanted + 1)
    following = values[top[wanted]]
    for i in range(wanted):
        theta = values[top[i]]
        if not off[m - 1] * abs(rows[0, top[i]]) <= tolerance * min(theta, theta - following):
            return 0
    return 1


@compiled
def _largest(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return the indices of the largest few values, the largest first."""
    indices = np.empty(count, np.int64)
    for i in range(count):
        best = -1
        for j in range(len(values)):
            taken = False
            for before in range(i):
                taken = taken or indices[before] == j
            if not taken and (best < 0 or values[j] > values[best]):
                best = j
        indices[i] = best
    return indices


@compiled
def ritz(
    tag: tuple[int, ...],
    n: int,
    constrained: bool,  # noqa: FBT001
    wanted: int,
    points: Address,
    steps: NDArray[np.int64],
    diagonal: NDArray[np.float64],
    off: NDArray[np.float64],
    values: NDArray[np.float64],
    vectors: NDArray[np.float64],
) -> None:
    """Combine the eigenvectors from every lane's Ritz vectors."""
    lanes = len(tag)
    most = 1
    for lane in range(lanes):
        most = max(most, steps[lane])
    combination = np.zeros((wanted, most + 1, lanes))
    values[:] = np.nan
    for lane in range(lanes):
        m = steps[lane]
        if m <= 0:
            continue
        theta, rows = diagonal[lane, :m].copy(), np.eye(m)
        diagonalise(theta, off[lane, :m].copy(), rows)
        top = _largest(theta, min(wanted + 1, m))
        for i in range(len(top)):
            values[i, lane] = 1.0 / theta[top[i]]
        for i in range(min(wanted, m)):
            for j in range(m):
                combination[i, j + 1, lane] = rows[j, top[i]]
    for row in range(n):
        for i in range(wanted):
            store(address(vectors), i * n + row, fill(tag, 0.0))
        for j in range(1, most + 1):
            point = load(tag, points, j * n + row)
            for i in range(wanted):
                part = load(tag, address(combination), i * (most + 1) + j)
                store(address(vectors), i * n + row, fma(point, part, load(tag, address(vectors), i * n + row)))
    norm = np.empty(lanes)
    for i in range(wanted):
        x = address(vectors[i])
        mean = fill(tag, 0.0)
        if constrained:
            for row in range(n):
                mean = mean + load(tag, x, row)
            mean = mean * fill(tag, 1.0 / n)
        square = fill(tag, 0.0)
        for row in range(n):
            value = load(tag, x, row) - mean
            store(x, row, value)
            square = fma(value, value, square)
        store(address(norm), 0, divide(fill(tag, 1.0), root(square)))
        scale = load(tag, address(norm), 0)
        for row in range(n):
            store(x, row, load(tag, x, row) * scale)
