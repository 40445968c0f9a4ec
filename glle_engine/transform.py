r"""New points, embedded by their LLE weights on the training set; data, generated from drawn weights.

A new point x has k nearest training points and weights :math:`w = A^{-1} 1 / (1^T A^{-1} 1)` on them (GLLE Eq. 9); its
embedding is :math:`\sum_j w_j y_j` (Saul and Roweis 2003). A training point gets exactly its own embedding. Every point
is computed by itself: the answer does not depend on which others are in the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial import cKDTree

from glle_engine.data import LARGEST, require_finite
from glle_engine.errors import InvalidShapeError, OutOfRangeError
from glle_engine.neighbors import KD_TREE_MAX_FEATURES
from glle_engine.progress import OnProgress, silent
from glle_engine.summary import aligned_to_consensus, moments
from glle_engine.weights import affine_solution, inverse_factor, normalised_precision

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike, NDArray

    from glle_engine.draws import Draw
    from glle_engine.posterior import Posterior

_BLOCK = 256


@dataclass(frozen=True, eq=False)
class Extension:
    """How new points hang on training points; embeds them in any embedding of these.

    Attributes
    ----------
    neighbors : (m, k) int32
        The training points nearest to each new point. For a training point, itself, k times.
    weights : (m, k) float64
        Rows summing to 1.
    distances : (m,) float64
        To the nearest training point, in units of the data: far from all of them the embedding
        extrapolates.

    """

    neighbors: NDArray[np.int32]
    weights: NDArray[np.float64]
    distances: NDArray[np.float64]

    def embed(self, embedding: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the new points' places (m, p) in an embedding (n, p) of the training points."""
        return np.asarray(np.einsum("mk,mkp->mp", self.weights, embedding[self.neighbors]))

    def spread(
        self, draws: Iterable[Draw], reference: NDArray[np.float64], on_progress: OnProgress = silent
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return mean (m, p) and covariance (m, p, p) of the new points' places over draws.

        The draws are turned as `glle_engine.summary.summarize` turns them. A training point has exactly the mean and
        covariance of the summary. All draws are held at once.

        Parameters
        ----------
        draws
            At least two.
        reference : (n, p) float64
            The embedding that the consensus is turned to: `Posterior.embedding`.
        on_progress
            Called with (round, most rounds, "consensus").

        Raises
        ------
        InvalidParameterError
            For fewer than two draws.

        """
        stack = np.array([draw.embedding for draw in draws])
        return moments([self.embed(Y) for Y in aligned_to_consensus(stack, reference, on_progress)])


def extend(posterior: Posterior, X: ArrayLike, new: ArrayLike) -> Extension:
    """Hang new points on the training set.

    Parameters
    ----------
    posterior : Posterior
        Its n_neighbors and reg are used.
    X : (n, d)
        The data it was fitted to.
    new : (m, d)
        Finite.

    Raises
    ------
    InvalidShapeError
        When X is not what the posterior was fitted to, or `new` has other features.
    NotFiniteError
        With the first row and column.
    OutOfRangeError
        Where the squares of the new points overflow.

    """
    data, points = np.ascontiguousarray(X, np.float64), np.ascontiguousarray(new, np.float64)
    if data.ndim != 2 or len(data) != posterior.n_points:
        raise InvalidShapeError(
            f"The training data have shape {data.shape}; the posterior was fitted to {posterior.n_points} points.",
            remedy="Give the data that the posterior was fitted to.",
        )
    if points.ndim != 2 or points.shape[1] != data.shape[1]:
        raise InvalidShapeError(
            f"The new points have shape {points.shape}; the training data have {data.shape[1]} features.",
            remedy=f"Give a matrix of {data.shape[1]} columns.",
        )
    require_finite(points, "new")
    if len(points) and (largest := float(np.abs(points).max())) > LARGEST:
        raise OutOfRangeError(
            f"The new points reach {largest:.3g}: squared distances leave the range of floating-point numbers.",
            remedy="Give them in the unit of the training data.",
            details={"largest": largest},
        )
    return hang(data, points, posterior.spec.n_neighbors, posterior.spec.reg)


def hang(data: NDArray[np.float64], points: NDArray[np.float64], n_neighbors: int, reg: float) -> Extension:
    """Hang points (m, d) on data (n, d) by LLE weights on their nearest rows: see `extend`."""
    k = n_neighbors
    indices, distances = _nearest(data, points, k)
    weights = np.empty(indices.shape)
    for start in range(0, len(points), _BLOCK):
        part = slice(start, start + _BLOCK)
        apart = data[indices[part]] - points[part, None, :]
        gram = np.einsum("mid,mjd->mij", apart, apart)
        precision, _ = normalised_precision(gram, np.trace(gram, axis1=1, axis2=2), reg)
        weights[part] = affine_solution(inverse_factor(precision))[0]
    itself = distances[:, 0] == 0
    indices[itself] = indices[itself, :1]
    weights[itself] = 0.0
    weights[itself, 0] = 1.0
    return Extension(indices, weights, distances[:, 0])


def reconstruct(posterior: Posterior, X: ArrayLike, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Generate data from weights: :math:`x_i = X_i w_i`, the generative reading of the weights (GLLE, Algorithm 1).

    Parameters
    ----------
    posterior : Posterior
    X : (n, d)
        The data it was fitted to.
    weights : (n, k)
        As `Posterior.weights` draws them.

    Returns
    -------
    (n, d) float64
        For the published em the data mean is added, as its model does.

    """
    data = np.asarray(X, np.float64)
    rebuilt = np.empty(data.shape)
    rows = max(1, (1 << 22) // (weights.shape[1] * data.shape[1]))
    for start in range(0, len(data), rows):
        part = slice(start, start + rows)
        rebuilt[part] = np.einsum("nk,nkd->nd", weights[part], data[posterior.neighbors[part]])
    published_em = posterior.spec.variant == "published" and posterior.spec.method == "em"
    return np.asarray(rebuilt + data.mean(axis=0) if published_em else rebuilt)


def _nearest(
    data: NDArray[np.float64], points: NDArray[np.float64], k: int
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the k nearest rows of data of each point, nearest first, each point by itself."""
    if data.shape[1] <= KD_TREE_MAX_FEATURES:
        distances, indices = cKDTree(data).query(points, k)
        return indices.astype(np.int32), np.asarray(distances)
    indices, distances = np.empty((len(points), k), np.int32), np.empty((len(points), k))
    for i, point in enumerate(points):
        apart = data - point
        squares = np.einsum("nd,nd->n", apart, apart)
        near = np.argpartition(squares, k - 1)[:k]
        indices[i] = near[np.argsort(squares[near], kind="stable")]
        distances[i] = np.sqrt(squares[indices[i]])
    return indices, distances
