r"""Robust LLE: an embedding of the inliers, with the outliers placed among them.

Robust PCA of the k nearest of each point finds the plane of p dimensions that minimizes :math:`\sum_j a_j e_j^2`,
:math:`e_j` the distance from it, with Huber's weights

.. math:: a_j = \min(1, c / e_j),\quad c = \tfrac{1}{2}\, \mathrm{mean}_j\, e_j,

by iterative reweighting (Chang and Yeung 2006; survey arXiv 2011.10925, "robust LLE using least squares"). The
reliability of a point is the sum of its normalized weights, :math:`s_j = \sum_i a_{ij} / \sum_l a_{il}`, over the
neighborhoods that contain it: 1 on the average, 0 for a point in no neighborhood. Points below `threshold` are
outliers, which may include the corners of a sheet.

The inliers are embedded by LLE with neighbors among themselves, and each outlier is placed by its LLE weights on its k
nearest inliers. With threshold 0 there are no outliers and the result is LLE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.diagnostics import Note
from glle_engine.base.errors import DisconnectedGraphError, TooFewPointsError
from glle_engine.base.progress import blocks
from glle_engine.graph.connectivity import connected_neighbors
from glle_engine.graph.neighbors import kneighbors
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.costs import Cost, estimate
from glle_engine.methods.parameters import integer, number
from glle_engine.methods.spectral.lle import LleSpec, lle_of
from glle_engine.posterior.placement.out_of_sample import attach

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

_BLOCK_ENTRIES = 1 << 20
_SETTLED = 1e-3


@dataclass(frozen=True, kw_only=True)
class RobustLleSpec(LleSpec):
    """Parameters of robust LLE."""

    threshold: float = number(
        0.3, "Points of less reliability are outliers; the mean of all is 1, and 0 finds none.", least=0, below=1
    )
    max_iter: int = integer(30, "Iterations of the robust PCA of a neighborhood, at most.", least=1)

    def cost(self, row: str, n: int, d: int) -> Cost:
        """Return the expected cost."""
        return estimate(row, n, d, k=self.n_neighbors, p=self.n_components, steps=self.max_iter)


def reliability(
    X: NDArray[np.float64],
    nearest: NDArray[np.int32],
    n_components: int,
    max_iter: int,
    on_progress: OnProgress,
) -> tuple[NDArray[np.float64], int]:
    """Return the reliability (n,) of each point, and the number of neighborhoods that did not converge.

    Parameters
    ----------
    X : (n, d) float64
    nearest : (n, k) int32
    n_components : int
        p, the dimension of the planes.
    max_iter : int
        A neighborhood has converged if its weights change by at most .001.

    """
    n, k = nearest.shape
    total, unsettled = np.zeros(n), 0
    for rows in blocks(n, max(1, _BLOCK_ENTRIES // (k * max(k, X.shape[1]))), "reliability", on_progress):
        weights, moving = _robust_weights(X[nearest[rows]], n_components, max_iter)
        weights /= weights.sum(axis=1, keepdims=True)
        total += np.bincount(nearest[rows].ravel(), weights.ravel(), minlength=n)
        unsettled += moving
    return total, unsettled


def _robust_weights(points: NDArray[np.float64], p: int, max_iter: int) -> tuple[NDArray[np.float64], int]:
    """Return Huber's weights (m, k) of neighborhoods (m, k, d), and the number that did not converge."""
    weights = np.ones(points.shape[:2])
    moving = np.arange(len(points))
    for _ in range(max_iter):
        errors = _distances_from_plane(points[moving], weights[moving], p)
        limit = 0.5 * errors.mean(axis=1, keepdims=True)
        # The errors of points on a plane are rounding, and all weights stay 1.
        flat = limit <= 1e-7 * np.linalg.norm(np.ptp(points[moving], axis=1), axis=1)[:, None]
        update = np.where(flat | (errors <= limit), 1.0, limit / np.where(errors > 0, errors, 1.0))
        change = np.abs(update - weights[moving]).max(axis=1)
        weights[moving] = update
        moving = moving[change > _SETTLED]
        if not len(moving):
            break
    return weights, len(moving)


def _distances_from_plane(points: NDArray[np.float64], weights: NDArray[np.float64], p: int) -> NDArray[np.float64]:
    """Return the distance of each point (m, k) from the weighted principal plane of its neighborhood."""
    share = weights / weights.sum(axis=1, keepdims=True)
    offset = points - np.einsum("mk,mkd->md", share, points)[:, None, :]
    scaled = np.sqrt(share)[:, :, None] * offset
    if points.shape[2] <= points.shape[1]:
        axes = np.linalg.eigh(scaled.transpose(0, 2, 1) @ scaled)[1][:, :, -p:]
        along = offset @ axes
    else:  # the same plane from the smaller matrix
        values, vectors = np.linalg.eigh(scaled @ scaled.transpose(0, 2, 1))
        root = np.sqrt(np.maximum(values[:, None, -p:], np.finfo(float).tiny))
        along = offset @ (scaled.transpose(0, 2, 1) @ (vectors[:, :, -p:] / root))
    squares = np.einsum("mkd,mkd->mk", offset, offset) - np.einsum("mkp,mkp->mk", along, along)
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


@Method(
    spec=RobustLleSpec,
    title="Robust LLE",
    about="LLE of the points that robust local PCA finds reliable; outliers are placed by their weights on these.",
    source="Chang and Yeung 2006, Pattern Recognition 39; survey arXiv 2011.10925",
    growth="as LLE, and k min(d, k)^2 for each point and iteration",
)
def robust_lle(X: NDArray[np.float64], spec: RobustLleSpec, on_progress: OnProgress) -> Embedding:
    """Embed the inliers, and place the outliers by their weights on these."""
    n, k, p = len(X), spec.n_neighbors, spec.n_components
    nearest, _ = kneighbors(X, k, on_progress)
    reliable, unsettled = reliability(X, nearest, p, spec.max_iter, on_progress)
    outlier = reliable < spec.threshold
    outliers, inliers = np.flatnonzero(outlier), np.flatnonzero(~outlier)
    if len(inliers) <= max(k, p + 1):
        raise TooFewPointsError(
            f"{len(outliers)} of {n} points are outliers, too many to embed the others.",
            remedy="Lower threshold or n_neighbors.",
            details={"outliers": len(outliers)},
        )
    try:
        among, _ = connected_neighbors(X[inliers], k, on_progress)
    except DisconnectedGraphError as error:
        raise DisconnectedGraphError(
            f"Without {len(outliers)} outliers: {error.message}",
            remedy=f"{error.remedy} A lower threshold finds fewer outliers.",
            details={**error.details, "outliers": len(outliers)},
        ) from error
    embedding = lle_of(X[inliers], among, spec, on_progress)
    Y = np.empty((n, p))
    Y[inliers] = embedding.Y
    Y[outliers] = attach(X[inliers], X[outliers], k, spec.reg).extension().embed(embedding.Y)
    figures = {
        **embedding.figures,
        "n_outliers": len(outliers),
        "outliers": [int(i) for i in outliers],
        "least_reliability": float(reliable.min()),
        "unsettled": unsettled,
    }
    return Embedding(Y, embedding.eigenvalues, figures, _notes(len(outliers), n, unsettled, spec))


def _notes(outliers: int, n: int, unsettled: int, spec: RobustLleSpec) -> tuple[Note, ...]:
    """Return notes on outliers, and on planes that did not converge."""
    notes = []
    if outliers:
        message = (
            f"{outliers} of {n} points are outliers: the embedding is of the others, and they are placed by their "
            "weights on their nearest inliers. With threshold=0 they take part."
        )
        notes.append(Note("outliers-placed", message))
    if unsettled > n // 10:
        message = f"{unsettled} of {n} planes did not converge within {spec.max_iter} iterations. Raise max_iter."
        notes.append(Note("planes-unsettled", message))
    return tuple(notes)
