r"""LLE's reconstruction weights of each point from its neighbors.

With :math:`D_i = X_i - x_i 1^T` the differences to the k neighbors, :math:`G_i = D_i^T D_i` and
:math:`A_i = G_i + \lambda_i I`, :math:`\lambda_i = \mathrm{reg} \cdot \mathrm{tr}(G_i)`, the weights are
:math:`w_i = A_i^{-1} 1 / (1^T A_i^{-1} 1)` (GLLE Eq. 9; Roweis and Saul 2000).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.progress import OnProgress, blocks, silent
from glle_engine.graph.relations import Distances
from glle_engine.graph.sparse import SparsePoints
from glle_engine.linalg import dense

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from glle_engine.graph.relations import Data

_BLOCK_ENTRIES = 1 << 20


@dataclass(frozen=True)
class Neighborhoods:
    """Block of neighborhoods.

    Attributes
    ----------
    rows : slice
        The points.
    differences : (m, k, d) float64
        Row j of an item is x_j - x_i, the transpose of D_i.
    gram : (m, k, k) float64
        G_i = D_i^T D_i.
    trace : (m,) float64
        tr(G_i); 0 if all neighbors are duplicates of the point.
    kept : (m, k) bool
        The neighbors among the candidates; rows of `differences` and of `gram` are 0 for the others.

    """

    rows: slice
    differences: NDArray[np.float64]
    gram: NDArray[np.float64]
    trace: NDArray[np.float64]
    kept: NDArray[np.bool_]


def neighborhoods(
    X: Data,
    neighbors: NDArray[np.int32],
    stage: str = "weights",
    on_progress: OnProgress = silent,
    kept: NDArray[np.bool_] | None = None,
    points: Data | None = None,
) -> Iterator[Neighborhoods]:
    """Yield the neighborhoods of X in blocks that fit the processor's caches.

    Parameters
    ----------
    X : (n, d) float64, Distances or SparsePoints
        Distances have no differences, and the Gram matrices of `glle_engine.graph.relations`. The differences of sparse
        points are dense in the columns of their neighborhood (`SparsePoints.differences`).
    neighbors : (n, k) int32
    stage, on_progress
        `on_progress` is called with (points done, n, stage).
    kept : (n, k) bool, optional
        The neighbors among the candidates; all by default.
    points : (m, d) float64, optional
        New points with neighbors (m, k) in X; the rows of X by default.

    """
    n, k = neighbors.shape
    points = X if points is None else points
    width = (k + 1) * X.neighborhood_width if isinstance(X, SparsePoints) else X.shape[1]
    size = max(1, _BLOCK_ENTRIES // (k * max(k, width)))
    for rows in blocks(n, size, stage, on_progress):
        if isinstance(X, Distances) or isinstance(points, Distances):
            assert isinstance(points, Distances)
            gram = points.gram(rows, neighbors[rows])
            own = np.ones(gram.shape[:2], bool)
            yield Neighborhoods(rows, np.empty((len(gram), k, 0)), gram, np.trace(gram, axis1=1, axis2=2), own)
            continue
        if isinstance(X, SparsePoints) or isinstance(points, SparsePoints):
            assert isinstance(X, SparsePoints)
            assert isinstance(points, SparsePoints)
            differences = X.differences(points[rows], neighbors[rows])
        else:
            differences = X[neighbors[rows]] - points[rows, None, :]
        if kept is not None:
            differences *= kept[rows, :, None]
        gram = dense.gram(differences)
        own = np.ones(gram.shape[:2], bool) if kept is None else kept[rows]
        yield Neighborhoods(rows, differences, gram, np.trace(gram, axis1=1, axis2=2), own)


def lle_weights(
    X: Data,
    neighbors: NDArray[np.int32],
    reg: float = 1e-3,
    on_progress: OnProgress = silent,
    kept: NDArray[np.bool_] | None = None,
    points: Data | None = None,
) -> NDArray[np.float64]:
    """Return LLE's regularised reconstruction weights (GLLE Eq. 9).

    If all neighbors are duplicates of the point, every weight reconstructs it and the ridge chooses 1/k.

    Parameters
    ----------
    X : (n, d) float64
    neighbors : (n, k) int32
    reg : float
        The ridge relative to tr(G_i).
    on_progress
        Called with (points done, n, "weights").
    kept, points
        As for `neighborhoods`.

    Returns
    -------
    (n, k) float64, rows summing to 1; exactly 0 for dropped candidates.

    """
    weights = np.empty(neighbors.shape)
    for block in neighborhoods(X, neighbors, "weights", on_progress, kept, points):
        root = ridge_factor(normalised_precision(block.gram, block.trace, reg)[0])
        weights[block.rows] = dense.affine_solution(root, None if kept is None else block.kept)[0]
    return weights


def ridge_factor(precision: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `dense.inverse_factor` of precisions (m, k, k) with their ridge.

    Raises
    ------
    InvalidParameterError
        If rounding loses the ridge of a singular Gram matrix.

    """
    try:
        return dense.inverse_factor(precision)
    except np.linalg.LinAlgError as error:
        raise InvalidParameterError(
            "reg is so small that rounding loses it: the neighbors of a point span fewer than n_neighbors directions.",
            remedy="Give a larger reg, such as 1e-3, or n_neighbors of at most the number of features.",
        ) from error


def normalised_precision(
    gram: NDArray[np.float64], trace: NDArray[np.float64], reg: float | NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return A_i / u_i (m, k, k) and the unit u_i = tr(G_i) (m,), or 1 if that is 0; free of the data's units.

    `gram` is (m, k, k), `trace` is tr(G_i) (m,), and `reg` is a number or (m, 1). The first result is
    gram / tr(G_i) + reg I, or reg I where G_i = 0.
    """
    unit = np.where(trace > 0, trace, 1.0)
    precision = gram / unit[:, None, None]
    diagonal = np.arange(precision.shape[1])
    precision[:, diagonal, diagonal] += reg
    return precision, unit
