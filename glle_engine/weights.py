r"""LLE's reconstruction weights: each point from its neighbours.

With :math:`D_i = X_i - x_i 1^T` the differences to the k neighbours, :math:`G_i = D_i^T D_i` and
:math:`A_i = G_i + \lambda_i I`, :math:`\lambda_i = \mathrm{reg} \cdot \mathrm{tr}(G_i)`, the weights are
:math:`w_i = A_i^{-1} 1 / (1^T A_i^{-1} 1)` (GLLE Eq. 9; Roweis and Saul 2000).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.progress import OnProgress, blocks, silent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_BLOCK_ENTRIES = 1 << 20
_TOGETHER = 512  # small matrices that are inverted at a time, some 400 kB of them


@dataclass(frozen=True)
class Neighborhoods:
    """A block of neighbourhoods.

    Attributes
    ----------
    rows : slice
        Which points these are.
    differences : (m, k, d) float64
        Row j of an item is x_j - x_i, the transpose of D_i.
    gram : (m, k, k) float64
        G_i = D_i^T D_i.
    trace : (m,) float64
        tr(G_i); 0 where all neighbours are duplicates of the point.
    kept : (m, k) bool
        Which of the candidates are neighbours; rows of `differences` and of `gram` are 0 for the others.

    """

    rows: slice
    differences: NDArray[np.float64]
    gram: NDArray[np.float64]
    trace: NDArray[np.float64]
    kept: NDArray[np.bool_]


def neighborhoods(
    X: NDArray[np.float64],
    neighbors: NDArray[np.int32],
    stage: str = "weights",
    on_progress: OnProgress = silent,
    kept: NDArray[np.bool_] | None = None,
) -> Iterator[Neighborhoods]:
    """Yield the neighbourhoods of X in blocks that fit the processor's caches.

    Parameters
    ----------
    X : (n, d) float64
    neighbors : (n, k) int32
    stage, on_progress
        `on_progress` is called with (points done, n, stage).
    kept : (n, k) bool, optional
        Which of the candidates are neighbours; all without it.

    """
    n, k = neighbors.shape
    size = max(1, _BLOCK_ENTRIES // (k * max(k, X.shape[1])))
    for rows in blocks(n, size, stage, on_progress):
        differences = X[neighbors[rows]] - X[rows, None, :]
        if kept is not None:
            differences *= kept[rows, :, None]
        gram = differences @ differences.transpose(0, 2, 1)
        own = np.ones(gram.shape[:2], bool) if kept is None else kept[rows]
        yield Neighborhoods(rows, differences, gram, np.trace(gram, axis1=1, axis2=2), own)


def inverse_factor(precision: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return L^-T of each precision matrix P = L L^T, so that P^-1 = L^-T L^-1.

    Parameters
    ----------
    precision : (m, k, k) float64, symmetric positive definite.

    Returns
    -------
    (m, k, k) float64, upper triangular.

    """
    m, k, _ = precision.shape
    result = np.empty_like(precision)
    for start in range(0, m, _TOGETHER):
        # The matrices innermost: each operation below is one on all of them, and BLAS is not called for every one.
        lower = np.ascontiguousarray(np.linalg.cholesky(precision[start : start + _TOGETHER]).transpose(1, 2, 0))
        inverse = np.zeros_like(lower)
        for i in range(k):
            inverse[i, i] = 1.0
            for j in range(i):
                inverse[i, : j + 1] -= lower[i, j] * inverse[j, : j + 1]
            inverse[i, : i + 1] /= lower[i, i]
        result[start : start + _TOGETHER] = inverse.transpose(2, 1, 0)
    return result


def affine_solution(
    root: NDArray[np.float64], kept: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Solve min w^T P w over 1^T w = 1, given L^-T of P.

    Parameters
    ----------
    root : (m, k, k) float64
        L^-T, as `inverse_factor` returns it.
    kept : (m, k) bool, optional
        1 is 0 for the others, whose weights are exactly 0 where P does not couple them to the rest.

    Returns
    -------
    weights : (m, k) float64
        P^-1 1 / (1^T P^-1 1); their sum is 1 to rounding.
    minimum : (m,) float64
        w^T P w = 1 / (1^T P^-1 1).

    """
    column = root.sum(axis=1) if kept is None else np.einsum("mi,mij->mj", kept.astype(float), root)
    solution = (root @ column[:, :, None])[:, :, 0]
    if kept is not None:
        solution *= kept
    total = solution.sum(axis=1)
    return solution / total[:, None], 1 / total


def lle_weights(
    X: NDArray[np.float64],
    neighbors: NDArray[np.int32],
    reg: float = 1e-3,
    on_progress: OnProgress = silent,
    kept: NDArray[np.bool_] | None = None,
) -> NDArray[np.float64]:
    """Return LLE's regularised reconstruction weights (GLLE Eq. 9).

    Where all neighbours are duplicates of the point, every weight reconstructs it and the ridge
    chooses 1/k.

    Parameters
    ----------
    X : (n, d) float64
    neighbors : (n, k) int32
    reg : float
        The ridge relative to tr(G_i).
    on_progress
        Called with (points done, n, "weights").
    kept : (n, k) bool, optional
        Which of the candidates are neighbours.

    Returns
    -------
    (n, k) float64, rows summing to 1; exactly 0 for candidates that are no neighbours.

    """
    weights = np.empty(neighbors.shape)
    for block in neighborhoods(X, neighbors, "weights", on_progress, kept):
        root = inverse_factor(normalised_precision(block.gram, block.trace, reg)[0])
        weights[block.rows] = affine_solution(root, None if kept is None else block.kept)[0]
    return weights


def normalised_precision(
    gram: NDArray[np.float64], trace: NDArray[np.float64], reg: float | NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return A_i / u_i and the unit u_i = tr(G_i), or 1 where that is 0: free of the data's units.

    Parameters
    ----------
    gram : (m, k, k) float64
    trace : (m,) float64
        tr(G_i).
    reg : float or (m, 1) float64
        One for all, or one a point.

    Returns
    -------
    precision : (m, k, k) float64
        gram / tr(G_i) + reg I; reg I where G_i = 0.
    unit : (m,) float64

    """
    unit = np.where(trace > 0, trace, 1.0)
    precision = gram / unit[:, None, None]
    diagonal = np.arange(precision.shape[1])
    precision[:, diagonal, diagonal] += reg
    return precision, unit
