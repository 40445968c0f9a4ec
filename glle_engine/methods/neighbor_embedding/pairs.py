"""Sums over all pairs of points of an embedding, in blocks that fit in the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_BLOCK_ENTRIES = 1 << 16


class GaussianSums(NamedTuple):
    r"""Sums of :math:`k_{ij} = w_{ij} \exp(s - |y_i - y_j|^2)` over pairs of distinct points.

    Attributes
    ----------
    total : float
        Of all k.
    degrees : (n,) float64
        Of each point.
    products : (n, p) float64
        :math:`\sum_j k_{ij} y_j`.
    least : float
        The smallest :math:`|y_i - y_j|^2`.

    """

    total: float
    degrees: NDArray[np.float64]
    products: NDArray[np.float64]
    least: float

    def spread(self, Y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return sum_j k_ij (y_i - y_j), (n, p)."""
        return np.asarray(self.degrees[:, None] * Y - self.products)


def attraction(
    weights: NDArray[np.float64], degrees: NDArray[np.float64], Y: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """Return sum_ij w_ij |y_i - y_j|^2 of symmetric weights (n, n) and its gradient 4 L Y (n, p); degrees = W 1."""
    laplacian = degrees[:, None] * Y - weights @ Y
    return 2 * float(np.vdot(Y, laplacian)), 4 * laplacian


def squared_distances(
    Y: NDArray[np.float64], squares: NDArray[np.float64], rows: slice, columns: slice
) -> NDArray[np.float64]:
    """Return |y_i - y_j|^2 for i in rows and j in columns, infinite for i = j; squares = |y_i|^2 (n,)."""
    distances = (-2 * Y[rows]) @ Y[columns].T
    distances += squares[rows, None]
    distances += squares[None, columns]
    np.maximum(distances, 0.0, out=distances)  # rounding may leave less
    index = np.arange(rows.start, rows.stop)
    distances[index - rows.start, index - columns.start] = np.inf
    return distances


def row_blocks(n: int) -> Iterator[slice]:
    """Yield slices of n rows of n entries."""
    size = max(1, _BLOCK_ENTRIES // n)
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def gaussian_sums(
    Y: NDArray[np.float64], weights: NDArray[np.float64] | None = None, shift: float = 0.0
) -> GaussianSums:
    """Sum Gaussians over all pairs, each visited once, with symmetric weights (n, n); default: one."""
    n, p = Y.shape
    squares = np.einsum("ij,ij->i", Y, Y)
    degrees, products = np.zeros(n), np.zeros((n, p))
    least = np.inf
    for rows in row_blocks(n):
        columns = slice(rows.start, n)
        kernel = squared_distances(Y, squares, rows, columns)
        least = min(least, float(kernel.min()))
        np.subtract(shift, kernel, out=kernel)
        np.exp(kernel, out=kernel)
        if weights is not None:
            kernel *= weights[rows, columns]
        degrees[rows] += kernel.sum(axis=1)
        products[rows] += kernel @ Y[columns]
        beyond = kernel[:, rows.stop - rows.start :]
        degrees[rows.stop :] += beyond.sum(axis=0)
        products[rows.stop :] += beyond.T @ Y[rows]
    return GaussianSums(float(degrees.sum()), degrees, products, least)
