r"""The bottom eigenpairs of a Laplacian: sparse, symmetric, positive semidefinite, with one null vector that is known.

The null vector u is put above the spectrum, :math:`A + c\,u u^T`, where the matrix is small enough to be dense. A
sparse one is factored once, shifted by a little below zero, and Lanczos on the inverse starts orthogonal to u.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import identity
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh, splu

from glle_engine.base.errors import ConvergenceError
from glle_engine.eigen.eigenpairs import start_vector
from glle_engine.eigen.leading import eigenpairs_between
from glle_engine.methods.base import Cost

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_array

DENSE_MOST = 300
_SHIFT = 1e-9  # relative to the norm: the factors exist, and still the bottom converges in some ten steps
_ACCEPTED_RESIDUAL = 1e-10
_SHEET = 3  # features up to which a graph of neighbours has small separators, whatever the data


def bottom_pairs(
    A: csr_array, null: NDArray[np.float64], wanted: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], str]:
    """Return the smallest eigenvalues (m,), ascending, their orthonormal vectors (n, m), and which solver found them.

    Parameters
    ----------
    A : (n, n) sparse, symmetric, positive semidefinite
    null : (n,) float64
        Its null vector, of any length; the only one.
    wanted : int
        m, at most n - 2; the null vector is not counted and not returned.

    Raises
    ------
    ConvergenceError

    """
    u = null / np.linalg.norm(null)
    norm = float(abs(A).sum(axis=0).max())
    if len(u) <= max(DENSE_MOST, 3 * wanted):  # for a third of all pairs, Lanczos is no faster
        values, vectors = eigenpairs_between(A.toarray() + norm * np.outer(u, u), 0, wanted - 1)
        return values, vectors, "dense"
    try:
        values, vectors = _shift_inverted(A, u, norm, wanted)
    except (ArpackError, RuntimeError) as error:
        raise ConvergenceError(
            f"The eigensolver found no embedding: {error}.",
            remedy="Raise n_neighbors or the bandwidth: almost separate parts have eigenvalues that crowd at zero.",
        ) from error
    residual = float(np.linalg.norm(A @ vectors - vectors * values, axis=0).max()) / norm
    if not residual < _ACCEPTED_RESIDUAL:
        raise ConvergenceError(
            f"The eigensolver left a residual of {residual:.1e} of the matrix.",
            remedy="Raise n_neighbors or the bandwidth: almost separate parts have eigenvalues that crowd at zero.",
            details={"residual": residual},
        )
    return values, vectors, "shift-invert"


def bottom_cost(n: int, d: int, row: float, pairs: int) -> Cost:
    """Return the cost of `bottom_pairs` on a graph of neighbours.

    Parameters
    ----------
    n, d : int
        Points and features. The factors of a sheet grow like n log n; among many features they are taken to fill in as
        they do for data of five dimensions or more, like n^2.
    row : float
        Entries of the matrix in a row.
    pairs : int

    """
    if n <= max(DENSE_MOST, 3 * pairs):
        return Cost(seconds=1e-9 * n**3, bytes=32.0 * n * n)
    solves = (1.5e-6 + 7e-8 * pairs) * n * row * max(1.0, n / 1e4) ** 0.3
    if d <= _SHEET:
        return Cost(seconds=solves, bytes=16.0 * n * (8 * row + 3 * pairs))
    filled = min(1.0, 0.01 * row) * n * n
    return Cost(
        seconds=solves + 3.5e-9 * row * n * n * max(1.0, n / 6e3), bytes=24.0 * filled + 48.0 * n * (row + pairs)
    )


def _shift_inverted(
    A: csr_array, u: NDArray[np.float64], norm: float, wanted: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    n = len(u)
    shift = _SHIFT * norm
    lu = splu(
        (A + shift * identity(n, format="csr")).tocsc(),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,  # positive definite: no pivot is needed, and the order stays
        options={"SymmetricMode": True},
    )

    def inverse(vector: NDArray[np.float64]) -> NDArray[np.float64]:
        solved = lu.solve(vector - u * (u @ vector))
        return np.asarray(solved - u * (u @ solved))

    start = start_vector(n)
    operator = LinearOperator((n, n), matvec=inverse, dtype=np.float64)
    _, vectors = eigsh(operator, wanted, which="LA", v0=start - u * (u @ start), tol=0.0)
    values = np.einsum("nm,nm->m", vectors, A @ vectors)
    ascending = np.argsort(values)
    return values[ascending], vectors[:, ascending]
