"""Compute the largest eigenvalues and their vectors of a dense symmetric matrix, by Lanczos or, if small, by LAPACK."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import LinAlgError, eigh
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from glle_engine.eigen.eigenpairs import start_vector

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

MAX_DENSE_ROWS = 600  # up to this number of rows LAPACK is as fast as Lanczos
MAX_RESTARTS = 60  # if Lanczos needs more restarts, because eigenvalues are close to each other, LAPACK takes over
PRODUCTS_PER_REPORT = 8  # progress is reported after every 8 products with the matrix
# Lanczos has missed an eigenvalue if a second run finds one that exceeds the smallest result by this relative amount.
MAX_MISSED_GAIN = 1e-8


def leading_eigenpairs(
    matrix: NDArray[np.float64], count: int, on_progress: OnProgress
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the `count` largest eigenvalues, descending, and their vectors (m, count) of a symmetric matrix (m, m).

    The matrix has to be nearly positive semidefinite. Lanczos may miss an eigenvector of a multiple eigenvalue, so that
    a second run of Lanczos searches for one. If one was missed, if Lanczos is slow, or for few rows, LAPACK computes
    the result. `on_progress` is called with (0, 1, "eigenvectors") again and again; it may cancel the computation by
    raising an exception.
    """
    m = len(matrix)
    on_progress(0, 1, "eigenvectors")
    pairs = None if m <= MAX_DENSE_ROWS or count > m // 10 else _lanczos(matrix, count, on_progress)
    if pairs is not None:
        return pairs
    values, vectors = eigenpairs_between(matrix, m - count, m - 1)
    return values[::-1], vectors[:, ::-1]


def eigenpairs_between(
    matrix: NDArray[np.float64], first: int, last: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the eigenvalues number `first` to `last` of a symmetric matrix (m, m), and their vectors (columns).

    Eigenvalues are ascending, counted from 0, and `last` is included. For an eigenvalue of high multiplicity, LAPACK's
    partial solver may return too few pairs, or fail. Then the full decomposition is computed.
    """
    try:
        values, vectors = eigh(matrix, subset_by_index=(first, last))
    except LinAlgError:
        values, vectors = np.empty(0), np.empty((0, 0))
    if len(values) <= last - first:
        values, vectors = (array[..., first : last + 1] for array in eigh(matrix))
    return values, vectors


def least_eigenvalue(matrix: NDArray[np.float64], largest: float, on_progress: OnProgress) -> float:
    """Return the least eigenvalue of a symmetric matrix (m, m), with an error of about 1e-6 times `largest`.

    `largest` is an upper bound of the absolute eigenvalues.
    """
    m = len(matrix)
    if m > MAX_DENSE_ROWS and largest > 0:
        # ARPACK's tolerance is relative to the eigenvalue, which may be near 0. The shift by -1 moves it near -1.
        values = _extreme(lambda v: matrix @ v / largest - v, m, 1, on_progress, tolerance=1e-6, which="SA")
        if values is not None:
            return float(largest * (values[0][0] + 1))
    return float(eigenpairs_between(matrix, 0, 0)[0][0])


def _lanczos(
    matrix: NDArray[np.float64], count: int, on_progress: OnProgress
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return the `count` largest eigenpairs by Lanczos, or None if Lanczos does not converge or misses an eigenpair."""
    m = len(matrix)
    pairs = _extreme(lambda v: matrix @ v, m, count, on_progress, tolerance=0.0)
    if pairs is None:
        return None
    values, vectors = pairs[0][::-1], pairs[1][:, ::-1]
    rest = _extreme(lambda v: matrix @ v - vectors @ (values * (vectors.T @ v)), m, 1, on_progress, tolerance=1e-3)
    if rest is None or rest[0][0] > values[-1] * (1 + MAX_MISSED_GAIN):
        return None
    return values, vectors


def _extreme(
    product: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    m: int,
    count: int,
    on_progress: OnProgress,
    *,
    tolerance: float,
    which: str = "LA",
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return the `count` largest eigenvalues of a symmetric operator, ascending, and their vectors (m, count).

    With ``which="SA"``, the smallest eigenvalues are returned. `product` multiplies a vector (m,) by the operator.
    Lanczos runs in ARPACK, whose `tolerance` 0 means machine precision. The result is None if it does not converge
    within `MAX_RESTARTS` restarts. `on_progress` is called again and again, and may raise an exception to cancel.
    """
    products = 0

    def multiply(v: NDArray[np.float64]) -> NDArray[np.float64]:
        nonlocal products
        products += 1
        if products % PRODUCTS_PER_REPORT == 0:
            on_progress(0, 1, "eigenvectors")
        return product(v.ravel())

    operator = LinearOperator((m, m), matvec=multiply, dtype=np.float64)
    try:
        values, vectors = eigsh(
            operator, count, which=which, v0=start_vector(m), tol=tolerance, maxiter=MAX_RESTARTS, ncv=2 * count + 20
        )
    except ArpackError:
        return None
    order = np.argsort(values)
    return values[order], vectors[:, order]
