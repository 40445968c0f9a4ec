r"""Number of directions of LLE's residuals.

With :math:`r_i = \sum_j w_{ij} (x_j - x_i)` the residuals at the mean weights and C their second moments over all
points, the participation ratio

.. math:: \nu = (\mathrm{tr}\, C)^2 / \mathrm{tr}\, C^2 = \Big(\sum \lambda\Big)^2 \Big/ \sum \lambda^2

of the eigenvalues :math:`\lambda` of C is the number of directions that share the residuals: d if all features have
the same, independent noise; 1 if all lie in one line. For Gaussian noise of covariance C the squared length has the
mean and the variance of :math:`\mathrm{tr}\, C / \nu` times a chi-square of :math:`\nu` degrees of freedom
(Satterthwaite 1946). Rotations, units, an isometric embedding into more features, constant features and repeated ones
do not change it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.graph.relations import Distances
from glle_engine.graph.sparse import SparsePoints
from glle_engine.linalg import dense

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.graph.relations import Data

_BLOCK_ENTRIES = 1 << 20
_TILE = 512  # rows or columns of the second moments at a time
_ROUNDING = 2.0**-46  # 64 times the relative rounding error of a double


def residual_dimension(X: Data, neighbors: NDArray[np.int32], weights: NDArray[np.float64]) -> float:
    """Return the participation ratio of the residuals of weights (n, k), whose rows sum to 1.

    It is in [1, min(n, d)], to rounding, or 0 if the residuals are no larger than the rounding of the data.
    """
    if isinstance(X, Distances | SparsePoints):
        return X.residual_dimension(neighbors, weights)
    rest = residuals(X, neighbors, weights)
    if dense.dot(rest, rest) <= _ROUNDING**2 * dense.dot(X, X):
        return 0.0
    np.ldexp(rest, -int(np.frexp(np.abs(rest).max())[1]), out=rest)  # exact; fourth powers stay in the range
    if rest.shape[0] < rest.shape[1]:
        rest = np.ascontiguousarray(rest.T)  # R R^T and R^T R have the same eigenvalues but for zeros
    total, squares = 0.0, 0.0
    tiles = [rest[:, start : start + _TILE] for start in range(0, rest.shape[1], _TILE)]
    for i, left in enumerate(tiles):
        total += float((left * left).sum())
        for j, right in enumerate(tiles[: i + 1]):
            product = dense.cross(left, right)
            squares += (1 if i == j else 2) * dense.dot(product, product)
    return total * total / squares


def residuals(
    X: NDArray[np.float64], neighbors: NDArray[np.int32], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return X_i w_i - x_i of every point (n, d), summed over the differences, which no translation changes."""
    n, k = neighbors.shape
    rest = np.zeros((n, X.shape[1]))
    rows = max(1, _BLOCK_ENTRIES // X.shape[1])
    for start in range(0, n, rows):
        part = slice(start, min(start + rows, n))
        for j in range(k):
            rest[part] += weights[part, j, None] * (X[neighbors[part, j]] - X[part])
    return rest
