"""Slow and plain references of the eigensolvers: dense linear algebra, and random numbers by numpy."""

import numpy as np
from numpy.typing import NDArray


def residual_matrix(neighbors: NDArray[np.int32], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return B = I - W (n, n) as a dense matrix, for weights W (n, k) on neighbors (n, k)."""
    matrix = np.eye(len(neighbors))
    matrix[np.arange(len(neighbors))[:, None], neighbors] -= weights
    return matrix


def bottom(
    neighbors: NDArray[np.int32], weights: NDArray[np.float64], count: int, *, constrained: bool = True
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the bottom eigenpairs of M orthogonal to the constant, from the SVD of B in that complement.

    Published weights have no constant null vector: all eigenpairs but the first then.
    """
    n = len(neighbors)
    if not constrained:
        _, singular, right = np.linalg.svd(residual_matrix(neighbors, weights))
        return singular[::-1][1 : count + 1] ** 2, right[::-1][1 : count + 1].T
    complement = np.linalg.qr(np.concatenate([np.ones((n, 1)), np.eye(n)[:, 1:]], axis=1))[0][:, 1:]
    _, singular, right = np.linalg.svd(residual_matrix(neighbors, weights) @ complement, full_matrices=False)
    return singular[::-1][:count] ** 2, complement @ right[::-1][:count].T


def angle(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return the sine of the largest principal angle between two spans."""
    qa, qb = np.linalg.qr(a)[0], np.linalg.qr(b)[0]
    return float(np.linalg.norm(qa - qb @ (qb.T @ qa), 2))


def normals_by_numpy(seed: int, index: int, count: int) -> NDArray[np.float64]:
    """Return `count` (even) standard normal numbers of the stream (seed, index), computed by numpy."""
    words = np.random.Philox(key=np.array([seed, index], np.uint64)).random_raw(count)
    uniform = ((words >> np.uint64(11)) * 2.0**-53).reshape(-1, 2)
    radius, angle = np.sqrt(-2.0 * np.log(1.0 - uniform[:, 0])), 2.0 * np.pi * uniform[:, 1]
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).ravel()
