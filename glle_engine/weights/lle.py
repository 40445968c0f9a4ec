r"""Reconstruction weights of each point on its neighbors: LLE's weights, and the mean weights for tangent noise.

Let :math:`D_i = X_i - x_i 1^T` be the differences to the k neighbors, :math:`G_i = D_i^T D_i`, and
:math:`A_i = G_i + \lambda_i I` with :math:`\lambda_i = \mathrm{reg} \cdot \mathrm{tr}(G_i)`. The weights are
:math:`w_i = A_i^{-1} 1 / (1^T A_i^{-1} 1)` (GLLE Eq. 9; Roweis and Saul 2000).

Reconstruction noise may differ along and off the sheet. With ``noise="tangent"`` the noise of a neighborhood is
:math:`e \sim N(0, s_i^2 (U U^T + r (I - U U^T)))`. The tangent space is spanned by the *frame* U (d x p), the top p
principal directions of the 3k nearest neighbors. r = 10 is the ratio of the variances in normal and tangent directions.
The larger variance off the sheet allows for curvature and for measurement noise, which no weights can reconstruct, and
pooling 3k points makes the frame robust to both. In units of s_i the differences have the Gram matrix

.. math:: \tilde G_i = T_i T_i^T + (G_i - T_i T_i^T) / r, \qquad T_i = D_i^T U,

which replaces G_i in A_i, the precision matrix of the weights up to the factor 1 / s_i^2. Mean and covariance of the
weights treat the tangential noise differently. The mean is the limit in which this noise vanishes: weights that
reconstruct the tangent coordinates exactly. The ridge of LLE, in contrast, pulls every point towards the center of its
neighbors, which bends the embedding. The covariance of the weights is computed with the tangential noise, of variance
s_i^2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.progress import OnProgress, block_size, blocks, silent
from glle_engine.base.texts import Way
from glle_engine.graph.neighbors import kneighbors
from glle_engine.graph.relations import Distances
from glle_engine.graph.sparse import SparsePoints
from glle_engine.linalg import dense

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from glle_engine.base.spec import Search
    from glle_engine.graph.relations import Data

Ridge = Literal["relative", "absolute"]
TANGENT_NEIGHBOR_FACTOR = 3  # a tangent space is fitted to 3 k neighbors, so that it is robust to noise
NORMAL_NOISE_RATIO = 10.0  # variance of the noise normal to the tangent space, over its variance in the tangent space
# With tangent noise, the mean weights are the limit in which the noise in the tangent space vanishes: its variance, of
# which the unit is s_i^2, is 0. This small variance stands for 0.
VANISHING_VARIANCE = 1e-6
# A Gram matrix has the squares of the singular values of the data, and so loses digits of the small ones. A direction
# whose variance is below this share of the largest variance keeps fewer than half of its digits.
SQUARED_TO_ROUNDING = 1e-8


@dataclass(frozen=True)
class Neighborhoods:
    """The neighborhoods of a block of m points: differences to the neighbors, and their Gram matrices.

    Attributes
    ----------
    rows : slice
        Rows of the points in the block.
    differences : (m, k, d) float64
        The transposes of D_i: row j of the matrix of point i is x_j - x_i.
    gram : (m, k, k) float64
        The Gram matrices G_i = D_i^T D_i.
    trace : (m,) float64
        tr(G_i), the sum of the squared distances to the neighbors; 0 if all neighbors are duplicates of the point.
    kept : (m, k) bool
        Which of the k candidates of each point are neighbors. For the other candidates, the rows of `differences` and
        the rows and columns of `gram` are 0.

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
    *,
    has_differences: bool = True,
) -> Iterator[Neighborhoods]:
    """Yield `Neighborhoods`, differences to the neighbors and their Gram matrices, of all points block by block.

    The blocks fit in the processor's cache.

    Parameters
    ----------
    X : (n, d) float64, Distances or SparsePoints
        For `Distances`, the field `differences` of the result is empty, and the Gram matrices follow from the distances
        (`Distances.gram`). For `SparsePoints`, the differences have only few columns, those in which their neighborhood
        has entries (`SparsePoints.differences`).
    neighbors : (n, k) int32
    stage, on_progress
        `on_progress` is called with (points done, n, stage).
    kept : (n, k) bool, optional
        Which candidates are neighbors; all by default.
    points : (m, d) float64, Distances or SparsePoints, optional
        New points with neighbors (m, k) in X; the rows of X by default.
    has_differences : bool
        If False, the field `differences` of the result may be empty, which saves memory and time for dense points
        without `kept`.

    """
    n, k = neighbors.shape
    points = X if points is None else points
    width = (k + 1) * X.neighborhood_width if isinstance(X, SparsePoints) else X.shape[1]
    size = block_size(k * max(k, width))
    for rows in blocks(n, size, stage, on_progress):
        is_kept = np.ones((rows.stop - rows.start, k), bool) if kept is None else kept[rows]
        differences = np.empty((len(is_kept), k, 0))
        if isinstance(points, Distances):
            gram = points.gram(rows, neighbors[rows])
            if kept is not None:
                gram *= is_kept[:, :, None] & is_kept[:, None, :]
        elif isinstance(X, np.ndarray) and kept is None and not has_differences:
            assert isinstance(points, np.ndarray)
            gram = dense.gram_about(X, points[rows], neighbors[rows])
        else:
            if isinstance(X, SparsePoints):
                assert isinstance(points, SparsePoints)
                differences = X.differences(points[rows], neighbors[rows])
            else:
                assert isinstance(X, np.ndarray)
                assert isinstance(points, np.ndarray)
                differences = X[neighbors[rows]] - points[rows, None, :]
            if kept is not None:
                differences *= kept[rows, :, None]
            gram = dense.gram(differences)
        yield Neighborhoods(rows, differences, gram, np.trace(gram, axis1=1, axis2=2), is_kept)


@dataclass(frozen=True, eq=False)
class MeanWeights:
    """Mean weights of points on their neighbors: LLE's weights, or the weights for tangent noise.

    Attributes
    ----------
    neighbors : (n, k) int32
    weights : (n, k) float64
    frames : (n, p, d) float64, optional
        Orthonormal bases of the tangent spaces at the points, for tangent noise; None for isotropic noise.
    kept : (n, k) bool, optional
        Which of the `neighbors` are used; None means all.

    """

    neighbors: NDArray[np.int32]
    weights: NDArray[np.float64]
    frames: NDArray[np.float64] | None
    kept: NDArray[np.bool_] | None


def lle_weights(
    X: Data,
    neighbors: NDArray[np.int32],
    reg: float = 1e-3,
    on_progress: OnProgress = silent,
    kept: NDArray[np.bool_] | None = None,
    points: Data | None = None,
    ridge: Ridge = "relative",
    frames: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Return LLE's regularized reconstruction weights (n, k) (GLLE Eq. 9), or the mean weights for tangent noise.

    If all neighbors are duplicates of the point, any weights reconstruct the point, and the ridge makes them all 1/k.
    With `frames`, the weights reconstruct the tangent coordinates exactly, and the ridge decides among such weights.

    Parameters
    ----------
    X : (n, d) float64, Distances or SparsePoints
    neighbors : (n, k) int32
    reg : float
        The ridge that is added to the diagonal of the Gram matrix G_i of each neighborhood.
    on_progress
        Called with (points done, n, "weights").
    kept : (n, k) bool, optional
        Which entries of `neighbors` are neighbors; all by default.
    points : (m, d) float64, Distances or SparsePoints, optional
        New points, whose `neighbors` (m, k) in X reconstruct them; the rows of X by default.
    ridge : {"relative", "absolute"}
        Whether `reg` is relative to the trace of G_i, or in squared units of the data, on which the weights then
        depend.
    frames : (n, p, d) float64, optional
        Orthonormal bases of the tangent spaces at the points, for tangent noise.

    Returns
    -------
    (n, k) float64
        Rows sum to 1. The weights of candidates that are not neighbors (`kept`) are exactly 0.

    """
    weights = np.empty(neighbors.shape)
    for block in neighborhoods(X, neighbors, "weights", on_progress, kept, points, has_differences=frames is not None):
        relative_reg = reg if ridge == "relative" else reg / np.where(block.trace > 0, block.trace, 1.0)[:, None]
        root = ridge_factor(
            normalized_precision(whiten(block, frames, VANISHING_VARIANCE), block.trace, relative_reg)[0]
        )
        weights[block.rows] = dense.affine_solution(root, None if kept is None else block.kept)[0]
    return weights


def ridge_factor(precision: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return L^-T (m, k, k), where L is the Cholesky factor of each matrix P = L L^T in `precision` (m, k, k).

    Each P is a Gram matrix plus a ridge on its diagonal.

    Raises
    ------
    InvalidParameterError
        If a Gram matrix is singular and its ridge is lost in rounding.

    """
    try:
        return dense.inverse_factor(precision)
    except np.linalg.LinAlgError as error:
        raise InvalidParameterError(
            "`reg` is so small that it is lost in rounding, and the neighbors of some point span fewer directions than "
            f"{Way('n_neighbors')}, so that many different weights reconstruct the point.",
            remedy=f"Give a larger reg, such as 1e-3, or {Way('n_neighbors')} of at most the number of features.",
        ) from error


def normalized_precision(
    gram: NDArray[np.float64], trace: NDArray[np.float64], reg: float | NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return G_i / u_i + reg I (m, k, k) for Gram matrices G_i, and the units u_i (m,): their traces, or 1 for trace 0.

    These are the precision matrices of LLE's weights. Because of the division, they do not depend on the unit of the
    data. `gram` (m, k, k) are the G_i, `trace` (m,) their traces, and `reg` is a number or (m, 1).
    """
    unit = np.where(trace > 0, trace, 1.0)
    precision = gram / unit[:, None, None]
    diagonal = np.arange(precision.shape[1])
    precision[:, diagonal, diagonal] += reg
    return precision, unit


def tangent_frames(
    X: NDArray[np.float64],
    n_neighbors: int,
    n_components: int,
    on_progress: OnProgress = silent,
    search: Search = "exact",
) -> NDArray[np.float64]:
    """Return orthonormal bases (n, min(p, d), d) of the tangent spaces at the points of X (n, d), called frames.

    The tangent space has p = `n_components` dimensions, and is fitted to the point and its 3 k nearest neighbors,
    k = `n_neighbors`, or to all points if there are fewer. Only the space that a frame spans has a meaning, not its
    single vectors. `on_progress` is called with (points done, n, "frames"). Raises `InvalidParameterError` if min(p, d)
    is more than the number of neighbors that a frame is fitted to.
    """
    pooled = pooled_neighbors(len(X), n_neighbors)
    if min(n_components, X.shape[1]) > pooled:
        raise InvalidParameterError(
            f"{Way('n_components', n_components)} tangent directions need at least as many neighbors, and with "
            f"{Way('n_neighbors', n_neighbors)} there are {pooled}.",
            remedy=f"Use {Way('n_components')} <= {pooled}, more neighbors, or {Way('noise', 'isotropic')}.",
        )
    nearest, _ = kneighbors(X, pooled, search=search)
    return frames_at(X, X, nearest, n_components, on_progress)


def pooled_neighbors(n: int, n_neighbors: int) -> int:
    """Return the number of neighbors to which the tangent space at a point is fitted: 3 k, or n - 1 if 3 k is more."""
    return min(TANGENT_NEIGHBOR_FACTOR * n_neighbors, n - 1)


def frames_at(
    points: NDArray[np.float64],
    X: NDArray[np.float64],
    nearest: NDArray[np.int32],
    n_components: int,
    on_progress: OnProgress = silent,
) -> NDArray[np.float64]:
    """Return bases (m, min(p, d), d) of tangent spaces: the top principal directions of each point and its neighbors.

    The `points` are (m, d), `nearest` (m, q) are the row numbers of their neighbors in X, and p is `n_components`.
    `on_progress` is called with (points done, m, "frames").
    """
    d, pooled = X.shape[1], nearest.shape[1]
    p = min(n_components, d)
    frames = np.empty((len(points), p, d))
    size = block_size((pooled + 1) * max(pooled, d))
    for rows in blocks(len(points), size, "frames", on_progress):
        cloud = np.concatenate([points[rows, None, :], X[nearest[rows]]], axis=1)
        cloud -= cloud.mean(axis=1, keepdims=True)
        frames[rows] = principal_directions(cloud, p)
    return frames


def principal_directions(cloud: NDArray[np.float64], p: int) -> NDArray[np.float64]:
    """Return the top p right singular vectors (m, p, d) of m matrices, `cloud` (m, q, d).

    They are computed from the eigenvectors of C^T C or C C^T, whichever is smaller, for each matrix C. Where C C^T
    would cost too many digits, the singular value decomposition of C is computed.
    """
    _, q, d = cloud.shape
    if d <= q:
        directions = dense.eigh(dense.gram(cloud.transpose(0, 2, 1)))[1]
        return directions[:, :, : -p - 1 : -1].transpose(0, 2, 1)
    squares, left = dense.eigh(dense.gram(cloud))
    squares, left = squares[:, : -p - 1 : -1], left[:, :, : -p - 1 : -1]
    weak = squares[:, -1] <= SQUARED_TO_ROUNDING * squares[:, 0]
    unit = np.sqrt(np.where(weak[:, None], 1.0, squares))
    frames = dense.matmul(left.transpose(0, 2, 1), cloud) / unit[:, :, None]
    if weak.any():
        frames[weak] = dense.svd(cloud[weak])[2][:, :p]
    return frames


def whiten(block: Neighborhoods, frames: NDArray[np.float64] | None, tangent_noise: float = 1.0) -> NDArray[np.float64]:
    """Return the Gram matrices (m, k, k) of the differences in a block of neighborhoods, in units of the noise.

    The differences are divided by the standard deviation of the noise in each direction. The variance of the noise is
    `tangent_noise` in directions of the tangent spaces, of which `frames` (n, p, d) are orthonormal bases, and
    `NORMAL_NOISE_RATIO` in directions normal to the tangent spaces. Without frames, the noise is isotropic, and the
    result is `block.gram`.
    """
    if frames is None:
        return block.gram
    tangent = dense.gram(dense.matmul(block.differences, frames[block.rows].transpose(0, 2, 1)))
    return tangent / tangent_noise + (block.gram - tangent) / NORMAL_NOISE_RATIO
