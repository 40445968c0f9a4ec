"""The eigenproblem without a sparse LU: dense for a handful of points, ARPACK on M as the last resort."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array, identity
from scipy.sparse.linalg import ArpackError, eigsh

from glle_engine.eigenpairs import Eigenpairs, start_vector
from glle_engine.errors import ConvergenceError
from glle_engine.linalg import dense

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.embedding import Eigenproblem


def shift_invert(problem: Eigenproblem, weights: NDArray[np.float64], wanted: int, tried: list[str]) -> Eigenpairs:
    """Last resort: ARPACK on M, shifted. Less accurate (1e-7 in angle), and the diagnostics say so."""
    n, k = problem.neighbors.shape
    indptr = np.arange(0, n * k + 1, k)
    residual = identity(n, format="csr") - csr_array((weights.ravel(), problem.neighbors.ravel(), indptr), shape=(n, n))
    gram = (residual.T @ residual).tocsc()
    norm = abs(gram).sum(axis=0).max()
    null = max(1, len(problem.pins))
    try:
        values, vectors = eigsh(gram, wanted + null, sigma=-1e-9 * norm, v0=start_vector(n), tol=0.0)
    except (ArpackError, RuntimeError) as error:
        raise ConvergenceError(
            f"No solver found the embedding: {'; '.join(tried)}; eigsh: {error}.",
            remedy="Raise reg or n_neighbors, or lower the scale; duplicated points make this likelier.",
            details={"tried": tried},
        ) from error
    ascending = np.argsort(values)
    values, vectors = values[ascending], vectors[:, ascending]
    vectors = _without_constant(vectors) if len(problem.pins) else vectors[:, 1:]
    image = problem.apply(weights, vectors)
    measured = np.einsum("nm,nm->m", image, image)
    gram_residual = np.linalg.norm(gram @ vectors - vectors * measured, axis=0).max() / norm
    return Eigenpairs(
        measured,
        vectors,
        {
            "solver": "eigsh",
            "steps": 0,
            "deviation": float(gram_residual),
            "pin": 1.0,
            "next_eigenvalue": None,
        },
    )


def few_points(problem: Eigenproblem, weights: NDArray[np.float64], wanted: int) -> Eigenpairs:
    """Return singular vectors of B, dense, for a handful of points."""
    n = len(weights)
    residual = np.eye(n)
    np.subtract.at(residual, (np.arange(n)[:, None], problem.neighbors), weights)
    if len(problem.pins):  # one more row lifts the constant off the bottom, exactly
        residual = np.vstack([residual, np.full(n, 10 * dense.norm(residual) / np.sqrt(n))])
    # Eigenvectors of the Gram matrix come fast but inexact; the rotations that are left make them singular vectors.
    near = dense.eigh(dense.cross(residual, residual))[1]
    _, singular, rotations = dense.svd(dense.matmul(residual, near))
    right = dense.matmul(rotations, np.ascontiguousarray(near.T))
    skip = 0 if len(problem.pins) else 1
    values = singular[::-1][skip : skip + wanted] ** 2
    vectors = right[::-1][skip : skip + wanted].T
    values[: max(0, len(problem.pins) - 1)] = 0.0
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


def _without_constant(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rotate an orthonormal basis whose span holds the constant so that the constant drops out."""
    overlap = vectors.sum(axis=0)
    drop = int(np.argmax(np.abs(overlap)))
    rest = np.delete(vectors, drop, axis=1)
    rest -= rest.mean(axis=0)
    basis, triangle = np.linalg.qr(rest)
    return np.asarray(basis * np.sign(np.diag(triangle)))
