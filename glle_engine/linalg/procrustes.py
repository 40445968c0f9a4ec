"""Compiled loops of orthogonal Procrustes, for tall matrices with a few columns, in a fixed order of operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.linalg.compiled import compiled
from glle_engine.linalg.kernels import singular_systems

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
def turned(Y: NDArray[np.float64], turn: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Put Y R (n, q) into `out`."""
    n, p = Y.shape
    for i in range(n):
        for b in range(turn.shape[1]):
            entry = 0.0
            for a in range(p):
                entry += Y[i, a] * turn[a, b]
            out[i, b] = entry
