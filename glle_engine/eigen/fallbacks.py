"""Eigenpairs without factors of B: a dense solver for few points, and shifted M as the last resort."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csc_array, csr_array, identity
from scipy.sparse.linalg import spilu

from glle_engine.base.errors import ConvergenceError
from glle_engine.eigen.eigenpairs import Eigenpairs, start_vector
from glle_engine.eigen.lanczos import largest_eigenpairs
from glle_engine.linalg import dense
from glle_engine.linalg.sparse_lu import SparseLU

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from glle_engine.eigen.pattern import Pattern

_SHIFT = 1e-9  # of the norm of M: far above its rounding errors, far below the eigenvalues that matter


def shift_invert(
    pattern: Pattern, weights: NDArray[np.float64], wanted: int, tried: list[str], *, constrained: bool
) -> Eigenpairs:
    """Return the bottom eigenpairs by the inverse of M + s I, for a B that is singular to rounding.

    M squares the condition number of B, so that vectors are accurate to some 1e-7 in angle. Singular vectors of B
    restricted to their span separate near-null vectors. With `constrained` the constant is a null vector to leave out;
    otherwise the first eigenvector is. `tried` are the rejections of the other solvers, for the `ConvergenceError`.
    """
    n, k = pattern.neighbors.shape
    indptr = np.arange(0, n * k + 1, k)
    residual = identity(n, format="csr") - csr_array((weights.ravel(), pattern.neighbors.ravel(), indptr), shape=(n, n))
    gram = (residual.T @ residual).tocsc()
    gram.sort_indices()
    norm = float(abs(gram).sum(axis=0).max())
    locked = np.full((1, n), 1 / np.sqrt(n)) if constrained else np.empty((0, n))
    need = wanted if constrained else wanted + 1
    try:
        solve = _factor((gram + _SHIFT * norm * identity(n, format="csc")).tocsc())
        rows = largest_eigenpairs(solve, start_vector(n), need, locked)[1]
        singular, rotations = dense.svd(pattern.apply(weights, np.ascontiguousarray(rows.T)))[1:]
    except (RuntimeError, FloatingPointError, np.linalg.LinAlgError) as error:
        raise ConvergenceError(
            f"No solver found the embedding: {'; '.join(tried)}; shift-invert: {error}.",
            remedy="Raise reg or n_neighbors, or lower the scale; duplicated points make this likelier.",
            details={"tried": tried},
        ) from error
    vectors = dense.cross(rows, np.ascontiguousarray(rotations[::-1].T))[:, need - wanted :]
    values = singular[::-1][need - wanted :] ** 2
    off = gram @ vectors - vectors * values
    return Eigenpairs(
        values,
        np.ascontiguousarray(vectors),
        {
            "solver": "shift-invert",
            "steps": 0,
            "deviation": float(np.sqrt((off * off).sum(axis=0).max())) / norm,
            "pin": 1.0,
            "next_eigenvalue": None,
        },
    )


def _factor(matrix: csc_array) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Return the solver of a sparse positive definite matrix."""
    order = _minimum_degree(matrix)
    permuted = matrix[order][:, order].tocsc()
    permuted.sort_indices()
    factors = SparseLU.factor(permuted.indptr.astype(np.int32), permuted.indices, permuted.data, 0.0)
    position = np.argsort(order, kind="stable")
    return lambda f: factors.solve(f[order])[position]


def _minimum_degree(matrix: csc_array) -> NDArray[np.intp]:
    """Return SuperLU's order (n,) of a symmetric matrix with a full diagonal; column order[j] becomes j.

    It depends on the pattern alone: the incomplete factorisation of an identity with explicit zeros does no numerical
    work.
    """
    pattern = matrix.copy()
    pattern.data = (pattern.indices == np.repeat(np.arange(matrix.shape[0]), np.diff(pattern.indptr))).astype(float)
    options = {"SymmetricMode": True}
    factors = spilu(
        pattern, drop_tol=1.0, fill_factor=1.0, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options
    )
    return np.argsort(factors.perm_c, kind="stable")


def few_points(neighbors: NDArray[np.int32], weights: NDArray[np.float64], wanted: int, n_classes: int) -> Eigenpairs:
    """Return singular vectors of B by dense linear algebra, for weights (n, k) on neighbors (n, k).

    `n_classes` is the number of closed classes, each of which has a null vector; 0 for published weights.

    Raises
    ------
    ConvergenceError
        For weights whose squares leave the range of floating-point numbers.

    """
    n = len(weights)
    residual = np.eye(n)
    np.subtract.at(residual, (np.arange(n)[:, None], neighbors), weights)
    if n_classes:  # one more row lifts the constant off the bottom, exactly
        residual = np.vstack([residual, np.full(n, 10 * dense.norm(residual) / np.sqrt(n))])
    # Eigenvectors of the Gram matrix come fast but inexact; the rotations that are left make them singular vectors.
    try:
        near = dense.eigh(dense.cross(residual, residual))[1]
        _, singular, rotations = dense.svd(dense.matmul(residual, near))
    except np.linalg.LinAlgError as error:
        raise ConvergenceError(
            f"The dense solver found no embedding: {error} The largest weight is {np.abs(weights).max():.2g}.",
            remedy="Raise reg or n_neighbors, or lower the scale.",
        ) from error
    right = dense.matmul(rotations, np.ascontiguousarray(near.T))
    skip = 0 if n_classes else 1
    values = singular[::-1][skip : skip + wanted] ** 2
    vectors = right[::-1][skip : skip + wanted].T
    values[: max(0, n_classes - 1)] = 0.0
    following = float(singular[::-1][skip + wanted] ** 2) if skip + wanted < n - 1 else None
    return Eigenpairs(
        values,
        np.ascontiguousarray(vectors),
        {
            "solver": "dense",
            "steps": 0,
            "deviation": 0.0,
            "pin": 1.0,
            "next_eigenvalue": following,
            "rejected": [],
        },
    )
