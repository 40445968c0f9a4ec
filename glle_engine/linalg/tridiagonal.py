"""Eigenvalues of small symmetric tridiagonal matrices, in compiled code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.linalg.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SWEEPS = 50
_EPSILON = float(np.finfo(np.float64).eps)


@compiled
def hypotenuse(a: float, b: float) -> float:
    """Return the root of a^2 + b^2 without overflow; libm's hypot differs between platforms."""
    large, small = max(abs(a), abs(b)), min(abs(a), abs(b))
    if large == 0.0:
        return 0.0
    ratio = small / large
    return float(large * np.sqrt(1.0 + ratio * ratio))


@compiled
def diagonalise(diagonal: NDArray[np.float64], off: NDArray[np.float64], rows: NDArray[np.float64]) -> bool:
    """Diagonalise in place by the implicit QL method (Bowdler, Martin, Reinsch, Wilkinson 1968).

    Parameters
    ----------
    diagonal : (m,) float64
        Overwritten with the eigenvalues, unordered.
    off : (m,) float64
        off[i] couples i and i + 1; the last one is scratch. Destroyed.
    rows : (r, m) float64
        Rows of the identity, overwritten with the same rows of the matrix of eigenvectors (columns).

    Returns
    -------
    bool
        False without convergence, and for values that are not finite.

    """
    m = len(diagonal)
    off[m - 1] = 0.0
    for first in range(m):
        for sweep in range(_SWEEPS + 1):
            last = first
            while last < m - 1:
                if not abs(off[last]) > _EPSILON * (abs(diagonal[last]) + abs(diagonal[last + 1])):
                    break
                last += 1
            if last == first:
                break
            if sweep == _SWEEPS:
                return False
            g = (diagonal[first + 1] - diagonal[first]) / (2.0 * off[first])
            g = diagonal[last] - diagonal[first] + off[first] / (g + np.copysign(hypotenuse(g, 1.0), g))
            s, c, shift = 1.0, 1.0, 0.0
            deflated = False
            for i in range(last - 1, first - 1, -1):
                f, b = s * off[i], c * off[i]
                r = hypotenuse(f, g)
                off[i + 1] = r
                if r == 0.0:
                    diagonal[i + 1] -= shift
                    off[last] = 0.0
                    deflated = True
                    break
                s, c = f / r, g / r
                g = diagonal[i + 1] - shift
                r = (diagonal[i] - g) * s + 2.0 * c * b
                shift = s * r
                diagonal[i + 1] = g + shift
                g = c * r - b
                for row in range(len(rows)):
                    upper = rows[row, i + 1]
                    rows[row, i + 1] = s * rows[row, i] + c * upper
                    rows[row, i] = c * rows[row, i] - s * upper
            if deflated:
                continue
            diagonal[first] -= shift
            off[first] = g
            off[last] = 0.0
    finite = True
    for i in range(m):
        finite = finite and np.isfinite(diagonal[i])
    return finite
