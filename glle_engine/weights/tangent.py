r"""Local tangent frames, and reconstruction noise that differs along and off the sheet.

With ``noise="tangent"`` the noise of a neighborhood is :math:`e \sim N(0, s_i^2 (U U^T + r (I - U U^T)))`: U (d x p)
spans the tangent space, the top p principal directions of the 3k nearest neighbors, and r = 10 is the ratio of the
variances in normal and tangent directions. Curvature and measurement noise off the sheet are no fault of the weights,
and pooling 3k points makes the frame robust to them. In units of s_i the differences have the Gram matrix

.. math:: \tilde G_i = T_i T_i^T + (G_i - T_i T_i^T) / r, \qquad T_i = D_i^T U,

which replaces G_i in the precision. The mean is that of the limit without tangential noise: weights that rebuild
the tangent coordinates exactly. The ridge of LLE instead draws every point towards its neighbors' center and bends
the embedding. The covariance keeps the tangential noise, whose scale is `reg`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.progress import OnProgress, blocks, silent
from glle_engine.graph.neighbors import kneighbors
from glle_engine.linalg import dense
from glle_engine.weights.lle import neighborhoods, normalised_precision, ridge_factor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.spec import Search
    from glle_engine.weights.lle import Neighborhoods

POOLED = 3  # times k neighbors a frame
NORMAL_NOISE = 10.0  # variance off the sheet, in units of the variance along it
VANISHING = 1e-6  # variance along the sheet in the limit that gives the mean
SQUARED_TO_ROUNDING = 1e-8  # a Gram matrix holds directions whose variance is a smaller share with half the digits
_BLOCK_ENTRIES = 1 << 20


def tangent_frames(
    X: NDArray[np.float64],
    n_neighbors: int,
    n_components: int,
    on_progress: OnProgress = silent,
    search: Search = "exact",
) -> NDArray[np.float64]:
    """Return orthonormal bases (n, min(p, d), d) of the points' tangent spaces; only their spans are determined.

    A frame is fitted to 3 k neighbors and the point, or to all points of X (n, d) if there are fewer. `on_progress` is
    called with (points done, n, "frames").
    """
    nearest, _ = kneighbors(X, pooled_neighbors(len(X), n_neighbors), search=search)
    return frames_at(X, X, nearest, n_components, on_progress)


def pooled_neighbors(n: int, n_neighbors: int) -> int:
    """Return the number of neighbors, of n points, that a frame is fitted to."""
    return min(POOLED * n_neighbors, n - 1)


def frames_at(
    points: NDArray[np.float64],
    X: NDArray[np.float64],
    nearest: NDArray[np.int32],
    n_components: int,
    on_progress: OnProgress = silent,
) -> NDArray[np.float64]:
    """Return the top principal directions (m, min(p, d), d) of each point (m, d) and its neighbors `nearest` in X."""
    d, pooled = X.shape[1], nearest.shape[1]
    p = min(n_components, d)
    frames = np.empty((len(points), p, d))
    size = max(1, _BLOCK_ENTRIES // ((pooled + 1) * max(pooled, d)))
    for rows in blocks(len(points), size, "frames", on_progress):
        cloud = np.concatenate([points[rows, None, :], X[nearest[rows]]], axis=1)
        cloud -= cloud.mean(axis=1, keepdims=True)
        frames[rows] = _principal_directions(cloud, p)
    return frames


def _principal_directions(cloud: NDArray[np.float64], p: int) -> NDArray[np.float64]:
    """Return the top p right singular vectors (m, p, d) of each matrix (m, q, d), by the smaller Gram matrix."""
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
    """Return the Gram matrices (m, k, k) of the differences in units of the noise; G itself without frames.

    `frames` is (n, p, d), and `tangent_noise` the variance along the sheet.
    """
    if frames is None:
        return block.gram
    tangent = dense.gram(dense.matmul(block.differences, frames[block.rows].transpose(0, 2, 1)))
    return tangent / tangent_noise + (block.gram - tangent) / NORMAL_NOISE


def frame_weights(
    X: NDArray[np.float64],
    neighbors: NDArray[np.int32],
    frames: NDArray[np.float64],
    reg: float,
    on_progress: OnProgress = silent,
    points: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Return the mean weights (n, k) of tangent noise: tangent coordinates rebuilt exactly, the rest by ridge.

    X is (n, d), `neighbors` (n, k) and `frames` (n, p, d). New points (m, d), with neighbors in X and frames of their
    own number m, replace the rows of X. `on_progress` is called with (points done, n, "weights").
    """
    weights = np.empty(neighbors.shape)
    for block in neighborhoods(X, neighbors, "weights", on_progress, points=points):
        precision, _ = normalised_precision(whiten(block, frames, VANISHING), block.trace, reg)
        weights[block.rows] = dense.affine_solution(ridge_factor(precision))[0]
    return weights
