r"""Gaussian fields over the points, shared by the maximum entropy methods.

The d features of the centered data are draws of :math:`N(0, K)` over the n points. Their likelihood needs only
:math:`S = Y Y^T / d`: :math:`\log p(Y) = -\frac d2 (n \log 2\pi - \log|P| + tr(S P))` with :math:`P = K^{-1}`
(Lawrence 2012, section 2). The embedding is the leading principal coordinates of K.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from scipy.linalg.lapack import dpotri
from scipy.sparse import triu

from glle_engine.base.errors import DegenerateDataError
from glle_engine.eigen.eigenproblem import sign_convention
from glle_engine.eigen.leading import eigenpairs_between
from glle_engine.graph.radius import symmetric_graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

T = TypeVar("T", bound=tuple[Any, ...])

# Smallest accepted squared distance of neighbors, relative to the mean over all edges. For an edge at this bound, the
# precision matrix has an entry about 1e10 times as large as for other edges, and its Cholesky factor has only about six
# correct digits of sixteen.
_MIN_RELATIVE_SQUARED_DISTANCE = 1e-10
_ARMIJO = 1e-4  # a step must have this share of the decrease that the gradient predicts, the usual value
_HALVINGS = 40  # the last step that is tried is 1e-12 of the first, near the rounding errors


def second_moment(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return S = Y Y^T / d (n, n) of the centered data Y (n, d), in squared units of the data."""
    Y = X - X.mean(axis=0)
    return np.asarray(Y @ Y.T / X.shape[1])


def log_likelihood(log_det: float, trace: float, n: int, d: int) -> float:
    """Return the log likelihood of n points with d features in a Gaussian field with the precision matrix P.

    `log_det` is log |P|, and `trace` is tr(S P) with the second moment S of the data (`second_moment`).
    """
    return d / 2 * (log_det - trace - n * math.log(2 * math.pi))


def undirected_edges(
    nearest: NDArray[np.int32], kept: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the ends i < j of the undirected edges of a kNN graph (n, k), as two arrays (m,) with each edge once.

    Two points have an edge if at least one is a neighbor of the other. `kept` (n, k) is True where an entry of
    `nearest` is a neighbor; None means that all entries are neighbors.
    """
    graph = symmetric_graph(nearest, np.ones(nearest.shape), kept)
    graph.sort_indices()
    i, j = triu(graph).nonzero()
    return i.astype(np.intp), j.astype(np.intp)


def edge_distances(K: NDArray[np.float64], i: NDArray[np.intp], j: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return k_ii + k_jj - 2 k_ij (m,), the squared lengths of the edges (i, j) if K (n, n) is a Gram matrix."""
    diagonal = np.diagonal(K)
    return np.asarray(diagonal[i] + diagonal[j] - 2 * K[i, j])


def inverse_of(factor: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the inverse, exactly symmetric, of the matrix whose upper Cholesky factor is `factor` (n, n)."""
    inverse, _ = dpotri(factor)
    return np.asarray(np.triu(inverse) + np.triu(inverse, 1).T)


def require_apart(i: NDArray[np.intp], j: NDArray[np.intp], squared: NDArray[np.float64]) -> None:
    """Raise `DegenerateDataError` if two neighbors are almost equal: the likelihood would then be inaccurate.

    `squared` (m,) are the squared distances of the edges from i (m,) to j (m,).
    """
    closest = int(squared.argmin())
    if squared[closest] <= _MIN_RELATIVE_SQUARED_DISTANCE * squared.mean():
        first, second = int(i[closest]), int(j[closest])
        share = math.sqrt(float(squared[closest] / squared.mean()))
        raise DegenerateDataError(
            f"The points {first} and {second} (counted from 0) are only {share:.1g} of the usual distance of neighbors "
            "apart, too close for an accurate likelihood.",
            remedy="Round the data, so that such points are equal and embedded as one, or add a little noise.",
            details={"points": [first, second]},
        )


def backtrack(
    evaluate: Callable[[NDArray[np.float64]], T],
    start: NDArray[np.float64],
    value: float,
    slope: NDArray[np.float64],
    step: NDArray[np.float64],
    negligible_gain: float = 0.0,
    lower: NDArray[np.float64] | float = -np.inf,
) -> tuple[NDArray[np.float64], T] | None:
    """Halve a step (m,) from `start` (m,) until the objective falls enough, by Armijo's rule.

    `value` is the objective at `start`, and `slope` (m,) is the gradient there. `evaluate` takes a point (m,), and
    returns a tuple whose first entry is the objective. A step that misses Armijo's rule by at most `negligible_gain`,
    relative to the objective, is accepted, because rounding errors are as large. The coordinates of the new point are
    raised to `lower` where they are smaller. Returns the new point and what `evaluate` returns for it, or None if even
    the smallest of 40 steps misses the rule.
    """
    length = 1.0
    for _ in range(_HALVINGS):
        trial = np.maximum(start + length * step, lower)
        result = evaluate(trial)
        if result[0] <= value + _ARMIJO * float(slope @ (trial - start)) + negligible_gain * abs(value):
            return trial, result
        length /= 2
    return None


def principal_coordinates(K: NDArray[np.float64], p: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the p leading principal coordinates of K, and the eigenvalues of the centered K that belong to them.

    The coordinates are eigenvectors of the centered K, times the square roots of their eigenvalues.

    Parameters
    ----------
    K : (n, n) float64
        Symmetric and positive semidefinite.
    p : int

    Returns
    -------
    Y : (n, p) float64
        The best approximation in p dimensions of the squared distances k_ii + k_jj - 2 k_ij.
    eigenvalues : (p,) float64
        Descending.

    """
    n = len(K)
    means = K.mean(axis=0)
    centered = K - means - means[:, None] + means.mean()
    values, vectors = eigenpairs_between(centered, n - p, n - 1)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    return sign_convention(vectors * np.sqrt(values)), values
