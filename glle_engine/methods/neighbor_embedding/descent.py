r"""Descent along the spectral direction, for objectives with a quadratic attraction and a repulsion.

The attractive term :math:`\sum_{nm} w_{nm} |y_n - y_m|^2` has the constant Hessian 4 L in every dimension of the
embedding, where L is the graph Laplacian of w. A Newton step that uses only this Hessian is the spectral direction
(Vladymyrov and Carreira-Perpinan 2012, "Partial-Hessian strategies for fast learning of nonlinear embeddings"). With
the Cholesky factorization :math:`B = 4 L + \mu I = R^T R` and the variables Z = R Y, this step is the gradient step.
L-BFGS in the variables Z begins with this step, and then learns the curvature of the repulsion.

Sums over all pairs of points are computed in blocks that fit in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from glle_engine.base.progress import blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

Objective = Callable[["NDArray[np.float64]"], "tuple[float, NDArray[np.float64]]"]
"""A function from coordinates Y (n, p) to the value of the objective and its gradient (n, p)."""

# `attraction_factor` adds mu I to the Hessian of the attraction; mu is this share of the Hessian's mean diagonal entry.
# Without mu, parts of the data that are nearly separate would fly apart in one step.
_RELATIVE_REGULARIZATION = 1e-8
_BLOCK_ENTRIES = 1 << 16


@dataclass(frozen=True, eq=False)
class Descent:
    """Result of a gradient descent.

    Attributes
    ----------
    Y : (n, p) float64
        The last positions.
    value : float
        Value of the objective at Y.
    iterations, evaluations : int
        Iterations of L-BFGS, and evaluations of the objective.
    converged : bool
        Whether the decrease of the objective fell below the tolerance before the iterations were used up.

    """

    Y: NDArray[np.float64]
    value: float
    iterations: int
    evaluations: int
    converged: bool


def attraction_factor(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Return R (n, n), upper triangular, with :math:`R^T R = 4 L + \mu I + \nu 1 1^T / n`.

    L = diag(W 1) - W is the Laplacian of the symmetric weights W (n, n), nu is four times the mean row sum of W, and mu
    is 1e-8 nu. The term with nu only affects translations, which do not change the objectives.
    """
    n = len(weights)
    degrees = 4 * weights.sum(axis=1)
    mean = float(degrees.mean())
    B = -4 * weights
    B += mean / n
    B[np.diag_indices(n)] += degrees + _RELATIVE_REGULARIZATION * mean
    # B is symmetric. Its transpose has Fortran order, so that LAPACK overwrites it and needs no second matrix.
    return np.asarray(cholesky(B.T, lower=False, overwrite_a=True, check_finite=False))


def descend(
    objective: Objective,
    start: NDArray[np.float64],
    factor: NDArray[np.float64],
    *,
    max_iter: int,
    tol: float,
    on_progress: OnProgress,
) -> Descent:
    """Minimize an objective with an attraction between points by L-BFGS, preconditioned by the attraction's Hessian.

    The objective must not change if all points are translated.

    Parameters
    ----------
    objective : callable
        Takes Y (n, p), and returns the value and the gradient (n, p).
    start : (n, p) float64
    factor : (n, n) float64
        The result of `attraction_factor` for the weights of the attraction.
    max_iter : int
        Largest number of iterations.
    tol : float
        The descent has converged if an iteration decreases the value by less than `tol`, relative to the larger of 1
        and the value.
    on_progress
        Called after each iteration; its exceptions end the descent.

    Returns
    -------
    Descent
        The columns of its Y have mean zero.

    """
    from scipy.optimize import minimize  # noqa: PLC0415 -- slow to import; the API does not need it

    shape = start.shape
    done = 0

    def coordinates(z: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(solve_triangular(factor, z.reshape(shape), check_finite=False))

    def evaluate(z: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value, gradient = objective(coordinates(z))
        return value, solve_triangular(factor, gradient, trans="T", check_finite=False).ravel()

    def count(_: NDArray[np.float64]) -> None:
        nonlocal done
        done += 1
        on_progress(min(done, max_iter), max_iter, "descent")

    on_progress(0, max_iter, "descent")
    result = minimize(
        evaluate,
        (factor @ start).ravel(),
        jac=True,
        method="L-BFGS-B",
        callback=count,
        options={"maxiter": max_iter, "maxfun": 4 * max_iter, "ftol": tol, "gtol": 0.0, "maxcor": 20},
    )
    Y = coordinates(result.x)
    return Descent(Y - Y.mean(axis=0), float(result.fun), int(result.nit), int(result.nfev), result.status == 0)


class GaussianSums(NamedTuple):
    r"""Sums of :math:`k_{ij} = w_{ij} \exp(s - |y_i - y_j|^2)` over pairs of distinct points y.

    w are symmetric weights, and s is a constant.

    Attributes
    ----------
    total : float
        :math:`\sum_{ij} k_{ij}`, in which each pair of points counts twice.
    degrees : (n,) float64
        :math:`\sum_j k_{ij}` for each point i.
    products : (n, p) float64
        :math:`\sum_j k_{ij} y_j` for each point i.
    least : float
        The smallest :math:`|y_i - y_j|^2` of distinct points.

    """

    total: float
    degrees: NDArray[np.float64]
    products: NDArray[np.float64]
    least: float

    def spread(self, Y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return sum_j k_ij (y_i - y_j) for each point i of Y (n, p), the direction in which repulsion moves the point.

        k_ij is the repulsion of the points i and j, a weighted Gaussian function of their distance (`GaussianSums`).
        """
        return np.asarray(self.degrees[:, None] * Y - self.products)


def attraction(
    weights: NDArray[np.float64], degrees: NDArray[np.float64], Y: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """Return the attraction sum_ij w_ij |y_i - y_j|^2 and its gradient 4 L Y (n, p), for symmetric weights (n, n).

    `degrees` (n,) are the row sums of the weights, and L is the graph Laplacian.
    """
    laplacian = degrees[:, None] * Y - weights @ Y
    return 2 * float(np.vdot(Y, laplacian)), 4 * laplacian


def squared_distances(
    Y: NDArray[np.float64], squares: NDArray[np.float64], rows: slice, columns: slice
) -> NDArray[np.float64]:
    """Return a block of the matrix |y_i - y_j|^2, with rows i in `rows` and columns j in `columns`.

    Y is (n, p), and `squares` (n,) are all |y_i|^2. Entries with i = j are infinite.
    """
    distances = (-2 * Y[rows]) @ Y[columns].T
    distances += squares[rows, None]
    distances += squares[None, columns]
    np.maximum(distances, 0.0, out=distances)  # rounding errors may make a square negative
    index = np.arange(rows.start, rows.stop)
    distances[index - rows.start, index - columns.start] = np.inf
    return distances


def row_blocks(n: int) -> Iterator[slice]:
    """Return slices that divide the rows of a matrix (n, n) into blocks that fit in the processor's cache."""
    return blocks(n, max(1, _BLOCK_ENTRIES // n), "descent")


def gaussian_sums(
    Y: NDArray[np.float64], weights: NDArray[np.float64] | None = None, shift: float = 0.0
) -> GaussianSums:
    """Return the sums of w_ij exp(shift - |y_i - y_j|^2) over all pairs of rows of Y (n, p).

    The weights w (n, n) are symmetric, and 1 by default. The exponential of a pair is computed once, for both orders.
    """
    n, p = Y.shape
    squares = np.einsum("ij,ij->i", Y, Y)
    degrees, products = np.zeros(n), np.zeros((n, p))
    smallest_kernel = np.inf
    for rows in row_blocks(n):
        columns = slice(rows.start, n)
        kernel = squared_distances(Y, squares, rows, columns)
        smallest_kernel = min(smallest_kernel, float(kernel.min()))
        np.subtract(shift, kernel, out=kernel)
        np.exp(kernel, out=kernel)
        if weights is not None:
            kernel *= weights[rows, columns]
        degrees[rows] += kernel.sum(axis=1)
        products[rows] += kernel @ Y[columns]
        beyond = kernel[:, rows.stop - rows.start :]
        degrees[rows.stop :] += beyond.sum(axis=0)
        products[rows.stop :] += beyond.T @ Y[rows]
    return GaussianSums(float(degrees.sum()), degrees, products, smallest_kernel)
