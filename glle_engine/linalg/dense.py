"""Products, factorizations and decompositions of small dense matrices and of batches of them.

The loops are compiled code of fixed order (`glle_engine.linalg.dense_kernels`), with the same bits on every processor.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.linalg import dense_kernels as kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DECIMAL_DIGITS = 40  # digits of intermediate results; a double has 17, and the others keep the rounding correct


def gram(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the Gram matrices A A^T (m, k, k) of a batch of matrices A (m, k, d)."""
    out = np.empty((len(rows), rows.shape[1], rows.shape[1]))
    kernels.grams(kernels.TAG, readable(rows), out)
    return out


def gram_about(
    data: NDArray[np.float64], points: NDArray[np.float64], neighbors: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Return, for each of `points` (m, d), the Gram matrix of the differences to its k neighbors, in all (m, k, k).

    `neighbors` (m, k) are row numbers of `data`; others raise `IndexError`. The result has the same bits as `gram` of
    the differences, but the differences of all points need not be in memory.
    """
    if neighbors.size and not (neighbors.min() >= 0 and neighbors.max() < len(data)):  # compiled code does not check
        raise IndexError(f"Neighbors must be row numbers of the data, from 0 to {len(data) - 1}.")
    out = np.empty((*neighbors.shape, neighbors.shape[1]))
    kernels.grams_about(kernels.TAG, readable(data), readable(points), readable(neighbors, np.int32), out)
    return out


def cross(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the product A^T B (a, b) of two tall matrices, A (n, a) and B (n, b)."""
    return np.asarray(_products(left[None], right[None])[0])


def matmul(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the products A B of matrices (a, l) and (l, b); either may be a batch, (m, a, l) or (m, l, b)."""
    if left.ndim == right.ndim == 2:
        return np.asarray(_products(left.T[None], right[None])[0])
    if right.ndim == 2:
        m, a, length = left.shape
        return matmul(left.reshape(m * a, length), right).reshape(m, a, right.shape[1])
    if left.ndim == 2:
        m, length, b = right.shape
        flat = matmul(left, right.transpose(1, 0, 2).reshape(length, m * b))
        return flat.reshape(len(left), m, b).transpose(1, 0, 2)
    return _products(left.transpose(0, 2, 1), right)


def _products(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    out = np.empty((len(left), left.shape[2], right.shape[2]))
    kernels.products(kernels.TAG, readable(left), readable(right), out)
    return out


def dot(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return the inner product of two arrays of one shape, summed in numpy's order and not by BLAS."""
    return float((a * b).sum())


def norm(a: NDArray[np.float64]) -> float:
    """Return the Euclidean norm of all entries of an array, summed in numpy's order and not by BLAS."""
    return float(np.sqrt(dot(a, a)))


def inverse_factor(precision: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return L^-T (m, k, k), upper triangular, of each positive definite P = L L^T in `precision` (m, k, k).

    Raises
    ------
    numpy.linalg.LinAlgError
        If a matrix is not positive definite in floating point.

    """
    out = np.empty(precision.shape)
    kernels.inverse_factors(kernels.TAG, readable(precision), out)
    if not np.isfinite(out[:, -1, -1]).all():  # a pivot that is not positive makes the last entry NaN or infinite
        raise np.linalg.LinAlgError("A matrix is not positive definite.")
    return out


def affine_solution(
    factor: NDArray[np.float64], kept: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the w that minimizes w^T P w subject to 1^T w = 1, and the minimum, for positive definite P = L L^T.

    Parameters
    ----------
    factor : (m, k, k) float64
        L^-T of each P, from `inverse_factor`.
    kept : (m, k) bool, optional
        Which entries of w have to sum to one; by default all. An entry i of w that is not kept is exactly 0 if P_ij is
        0 for all kept entries j.

    Returns
    -------
    weights : (m, k) float64
        P^-1 1 / (1^T P^-1 1), where 1 is the vector that is 1 for kept entries and 0 for others.
    minimum : (m,) float64
        w^T P w = 1 / (1^T P^-1 1).

    """
    ones = np.ones(factor.shape[:2]) if kept is None else kept.astype(float)
    weights, minimum = np.empty(ones.shape), np.empty(len(ones))
    kernels.affine_solutions(readable(factor), ones, weights, minimum)
    return weights, minimum


def eigh(matrices: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the eigenvalues, ascending, and the eigenvectors, in columns, of one or more symmetric matrices.

    By Householder tridiagonalization and the implicit QL method. Only the lower triangles are read.

    Parameters
    ----------
    matrices : (k, k) or (m, k, k) float64

    Raises
    ------
    numpy.linalg.LinAlgError
        If a matrix is not finite, or its eigenvalues do not converge.

    """
    batch = readable(matrices if matrices.ndim == 3 else matrices[None])
    values, vectors = np.empty(batch.shape[:2]), np.empty(batch.shape)
    if kernels.eigensystems(batch, values, vectors) >= 0:
        raise np.linalg.LinAlgError("A matrix is not finite, or its eigenvalues did not converge.")
    return (values, vectors) if matrices.ndim == 3 else (values[0], vectors[0])


def eigvalsh(matrices: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the eigenvalues (m, k), ascending, of symmetric matrices (m, k, k), as `eigh` does, without vectors.

    Raises
    ------
    numpy.linalg.LinAlgError
        If a matrix is not finite, or its eigenvalues do not converge.

    """
    values = np.empty(matrices.shape[:2])
    if kernels.eigensystems(readable(matrices), values, np.empty((len(matrices), 0, 0))) >= 0:
        raise np.linalg.LinAlgError("A matrix is not finite, or its eigenvalues did not converge.")
    return values


def svd(
    matrices: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the thin singular value decomposition A = U diag(s) V^T of one or more matrices (a, b): U, s and V^T.

    s is descending. The method is one-sided Jacobi rotations (Hestenes 1958).

    Raises
    ------
    numpy.linalg.LinAlgError
        If a matrix is not finite, or its singular values do not converge.

    """
    batch = matrices if matrices.ndim == 3 else matrices[None]
    m, a, b = batch.shape
    tall = a >= b
    # A writable array, as in `procrustes._decompose`: numba compiles the kernel again for read-only arrays.
    batch = np.array(batch if tall else batch.transpose(0, 2, 1), np.float64, order="C")
    rank = min(a, b)
    left, values, right = np.empty(batch.shape), np.empty((m, rank)), np.empty((m, rank, rank))
    if kernels.singular_systems(batch, left, values, right) >= 0:
        raise np.linalg.LinAlgError("A matrix is not finite, or its singular values did not converge.")
    u, vt = (left, right.transpose(0, 2, 1)) if tall else (right, left.transpose(0, 2, 1))
    return (u, values, vt) if matrices.ndim == 3 else (u[0], values[0], vt[0])


def pinv(matrices: NDArray[np.float64], rcond: float = 1e-15) -> NDArray[np.float64]:
    """Return the pseudo-inverses (m, b, a) of matrices (m, a, b).

    Singular values up to `rcond` times the largest count as 0.
    """
    u, s, vt = svd(matrices)
    is_kept = s > rcond * s.max(axis=-1, initial=0.0)[..., None]
    inverse = np.where(is_kept, 1 / np.where(is_kept, s, 1.0), 0.0)
    return matmul(vt.transpose(0, 2, 1) * inverse[:, None, :], np.ascontiguousarray(u.transpose(0, 2, 1)))


def log(x: float) -> float:
    """Return the natural logarithm of a positive number, correctly rounded on every platform."""
    with localcontext() as context:
        context.prec = _DECIMAL_DIGITS
        return float(Decimal(x).ln())


def exp(x: float) -> float:
    """Return the exponential of a number, correctly rounded on every platform."""
    with localcontext() as context:
        context.prec = _DECIMAL_DIGITS
        return float(Decimal(x).exp())


def logs(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the natural logarithm of each number of an array of any shape; the numbers must be positive and normal."""
    flat = np.ascontiguousarray(x, np.float64).ravel()
    out = np.empty(len(flat))
    kernels.logarithms(flat, out)
    return out.reshape(x.shape)


def readable(array: NDArray[Any], dtype: type[np.generic] = np.float64) -> NDArray[Any]:
    """Return a contiguous read-only view of an array, or of a copy that is converted to `dtype`.

    With this view as argument, compiled functions see the same array type from all callers, and are compiled once.
    """
    view = np.ascontiguousarray(array, dtype).view()
    view.flags.writeable = False
    return view
