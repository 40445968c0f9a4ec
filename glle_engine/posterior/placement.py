r"""Embed new points by their LLE weights on the training points, and generate data from drawn weights.

A new point x has k nearest training points and weights :math:`w = A^{-1} 1 / (1^T A^{-1} 1)` on them (GLLE Eq. 9); its
embedding is :math:`\sum_j w_j y_j` (Saul and Roweis 2003). With tangent noise or adaptive neighborhoods, x has the
weights that the fit would give a training point at the same position. A training point gets exactly its own embedding;
if training points are exact duplicates, each gets the mean of their embeddings. The embedding of a new point does not
depend on the other new points. If the posterior has landmarks, a new point has weights on the landmarks only. By the
same functions, a fit places its own points that are not landmarks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from glle_engine.base.errors import InvalidParameterError, InvalidShapeError
from glle_engine.base.progress import OnProgress, silent
from glle_engine.base.results import brief
from glle_engine.base.space import Space
from glle_engine.base.validation import (
    FARTHEST,
    Unit,
    finite_data,
    finite_matrix,
    is_sparse,
    numbers_of,
    require_finite,
    require_near,
    require_training_data,
    restore_distances,
    rows_of_sparse,
    too_far,
)
from glle_engine.graph.adaptive import kept_of_new
from glle_engine.graph.neighbors import kneighbors_to
from glle_engine.graph.relations import DISTANCE_ROUNDING, Distances, checked_distances, coordinates
from glle_engine.graph.sparse import SparsePoints
from glle_engine.linalg.distances import distances as distances_between
from glle_engine.linalg.procrustes import generalized_procrustes, moments
from glle_engine.weights.lle import MeanWeights, frames_at, lle_weights, pooled_neighbors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike, NDArray

    from glle_engine.base.spec import FitSpec
    from glle_engine.graph.relations import Data
    from glle_engine.posterior.sampler import Draw


@dataclass(frozen=True, eq=False)
class Extension:
    """Weights of m new points on their nearest training points; they place the new points in any draw or embedding.

    Attributes
    ----------
    neighbors : (m, k) int32
        The nearest training points. If a new point equals a training point, its row has only this point, or this point
        and its duplicates.
    weights : (m, k) float64
        Rows summing to 1.
    distances : (m,) float64
        Distance of each new point to its nearest training point. It is in the units of the data, unless the fit
        standardizes the data or has another metric than Euclidean. A large distance means that the embedding
        extrapolates.

    """

    neighbors: NDArray[np.int32]
    weights: NDArray[np.float64]
    distances: NDArray[np.float64]

    __repr__ = brief

    def embed(self, embedding: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the positions (m, p) of the new points in an embedding (n, p) of the training points."""
        return combine(self.weights, self.neighbors, embedding)

    def spread(
        self, draws: Iterable[Draw], reference: NDArray[np.float64], on_progress: OnProgress = silent
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the mean (m, p) and the covariance (m, p, p) of the positions of the new points over draws.

        The draws are aligned as in `glle_engine.posterior.summary.summarize`, so that a new point that equals a
        training point has exactly the mean and covariance that the summary has for the training point. All draws are in
        memory at once. `reference` (n, p) is `Posterior.embedding`; `on_progress` is called with (round, largest number
        of rounds, "consensus").

        Raises
        ------
        InvalidParameterError
            For fewer than two draws.

        """
        stack = np.array([draw.embedding for draw in draws])
        return moments([self.embed(Y) for Y in generalized_procrustes(stack, reference, on_progress)])


def extend(
    X: ArrayLike,
    new: ArrayLike,
    spec: FitSpec,
    *,
    n_points: int,
    data_sha256: str,
    flatness: NDArray[np.float64] | None = None,
    landmarks: NDArray[np.int32] | None = None,
) -> Extension:
    """Return the weights of new points (m, d) on a posterior's training data X (n, d), or on its landmarks.

    X and the new points may be sparse; with ``metric="precomputed"`` they are distances, X (n, n) and `new` (m, n).
    `spec`, `n_points`, `data_sha256`, `flatness` and `landmarks` are the posterior's attributes of these names.

    Raises
    ------
    InvalidShapeError
        If X has another number of points than the posterior, or `new` has another number of features than X.
    DataMismatchError
        If X is not the training data: it has another digest than `data_sha256`.
    NotFiniteError
        If a new point has NaN, infinite or masked values; the error names the first.
    OutOfRangeError
        If a new point is so far from the training data that its distances to all training points are equal up to
        rounding, or overflow.

    """
    if is_sparse(X):
        return _among_sparse(X, new, spec, n_points, data_sha256)
    new_points: Any = new
    data = numbers_of(X, "the training data")
    points = numbers_of(rows_of_sparse(new_points).toarray() if is_sparse(new) else new, "the new points")
    if data.ndim != 2 or len(data) != n_points:
        raise InvalidShapeError(
            f"The training data have shape {data.shape}; the posterior was fitted to {n_points} points.",
            remedy="Give the data that the posterior was fitted to.",
        )
    if points.ndim != 2 or points.shape[1] != data.shape[1]:
        raise InvalidShapeError(
            f"The new points have shape {points.shape}; the training data have {data.shape[1]} features.",
            remedy=f"Give a matrix of {data.shape[1]} columns"
            + (", the distances to the training points." if spec.metric == "precomputed" else "."),
        )
    require_finite(points, "new")
    require_training_data(data, data_sha256)
    if spec.metric == "precomputed":
        return _among_distances(data, points, spec)
    space = Space.from_data(data, spec)
    data, points = space.points(data), space.points(points)
    require_near(data, points)
    unit = Unit.from_data(data)
    known = data if landmarks is None else data[landmarks]
    extension = attach(unit.shift(known), unit.shift(points), spec, flatness).extension()
    neighbors = extension.neighbors if landmarks is None else landmarks[extension.neighbors]
    return replace(extension, neighbors=neighbors, distances=restore_distances(extension.distances, unit.exponent))


def _among_sparse(X: ArrayLike, new: ArrayLike, spec: FitSpec, n_points: int, data_sha256: str) -> Extension:
    """Return the weights of new points (m, d) on sparse training data X (n, d).

    `spec`, `n_points` and `data_sha256` are attributes of the posterior. Raises the errors of `extend`.
    """
    data, points = finite_data(X), finite_data(new if is_sparse(new) else csr_array(finite_matrix(new, "new")), "new")
    assert not isinstance(data, np.ndarray)
    assert not isinstance(points, np.ndarray)
    if data.shape[0] != n_points or points.shape[1] != data.shape[1]:
        raise InvalidShapeError(
            f"The training data have shape {data.shape}, the new points {points.shape}; the posterior was fitted to "
            f"{n_points} points.",
            remedy="Give the data that the posterior was fitted to, and new points with the same number of columns.",
        )
    require_training_data(data, data_sha256)
    known, others = (SparsePoints.from_rows(rows, spec.metric) for rows in (data, points))
    exponent = known.exponent
    largest = np.ldexp(abs(others.rows).max(axis=1).toarray(), -exponent)
    _require_near(np.asarray(largest).ravel())
    extension = attach(known.over(exponent), others.over(exponent), spec).extension()
    return replace(extension, distances=restore_distances(extension.distances, exponent))


def _among_distances(data: NDArray[np.float64], points: NDArray[np.float64], spec: FitSpec) -> Extension:
    """Return the weights of m new points, of which only the distances `points` (m, n) to n training points are known.

    `data` (n, n) are the distances between the training points. Raises `InvalidParameterError` for negative distances,
    and `OutOfRangeError` if a new point is too far away.
    """
    is_negative = points < -DISTANCE_ROUNDING * data.max()
    if is_negative.any():
        row, column = (int(i) for i in np.argwhere(is_negative)[0])
        raise InvalidParameterError(
            f"The distance of new point {row} to training point {column} (both counted from 0) is negative: "
            f"{points[row, column]:g}.",
            remedy="Give the distances, of at least 0, of the new points, one row each, to all training points.",
        )
    exponent = int(np.frexp(data.max())[1])
    known = checked_distances(np.ldexp(data, -exponent))
    with np.errstate(over="ignore"):
        away = np.ldexp(np.maximum(points, 0.0), -exponent)
    _require_near(away.min(axis=1))
    extension = attach(Distances(known, known), Distances(away, known), spec).extension()
    return replace(extension, distances=np.ldexp(extension.distances, exponent))


def _require_near(away: NDArray[np.float64]) -> None:
    """Raise `OutOfRangeError` if a new point is so far from the data that rounding makes all its distances equal.

    `away` (m,) are the distances of the new points, in a unit in which the data have an extent of about one.
    """
    row = int(np.argmax(away))
    if away[row] > FARTHEST:
        raise too_far(row, float(away[row]))


@dataclass(frozen=True, eq=False)
class Attachment(MeanWeights):
    """Neighbors of m points in a data set, and the weights that reconstruct the points from these neighbors.

    If a point equals some of its neighbors, its weights are nevertheless spread over all neighbors; `extension` returns
    weights on the equal neighbors alone.

    Attributes
    ----------
    same : (m, k) bool
        Which neighbors equal the point.
    distances : (m,) float64
        Distance of each point to its nearest neighbor.

    """

    same: NDArray[np.bool_]
    distances: NDArray[np.float64]

    def extension(self) -> Extension:
        """Return the weights as an `Extension`, which places a point that equals training points at their positions.

        If a point equals q of its neighbors, its weights are 1/q on each of these, and 0 on the others.
        """
        weights, neighbors, equal = self.weights.copy(), self.neighbors.copy(), self.same.any(axis=1)
        same = self.same[equal]
        weights[equal] = same / same.sum(axis=1, keepdims=True)
        neighbors[equal] = np.where(same, neighbors[equal], neighbors[equal, :1])
        return Extension(neighbors, weights, self.distances)


def attach(
    data: Data,
    points: Data,
    spec: FitSpec,
    flatness: NDArray[np.float64] | None = None,
    nearest: NDArray[np.int32] | None = None,
) -> Attachment:
    """Find the k nearest rows of `data` (n, d) for each of `points` (m, d), and the weights that reconstruct the point.

    ``spec.n_neighbors`` is k <= n, and ``spec.noise`` selects LLE's weights or the mean weights of tangent noise
    (`glle_engine.weights.lle`). `flatness` (k + 1,) are the thresholds of adaptive neighborhoods
    (`glle_engine.graph.adaptive`); None for fixed neighborhoods. `nearest` (m, k) are the nearest rows if the caller
    knows them already, else None.
    """
    k, p = spec.n_neighbors, spec.n_components
    frames: NDArray[np.float64] | None = None
    kept: NDArray[np.bool_] | None = None
    pooled = pooled_neighbors(len(data), k) if spec.noise == "tangent" else k
    if nearest is None:
        nearest, distances = kneighbors_to(data, points, max(k, pooled))
    else:
        distances = distances_between(coordinates(points), coordinates(data), nearest)
    neighbors = nearest[:, :k].copy()
    if spec.noise == "tangent":
        frames = frames_at(coordinates(points), coordinates(data), nearest[:, :pooled], p)
    elif flatness is not None:
        kept = kept_of_new(coordinates(points), coordinates(data), neighbors, flatness, p)
    weights = lle_weights(data, neighbors, spec.reg, kept=kept, points=points, frames=frames)
    return Attachment(neighbors, weights, frames, kept, distances[:, :k] == 0, distances[:, 0].copy())


def reconstruct(
    data: NDArray[np.float64], neighbors: NDArray[np.int32], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return generated data (n, d): row i is the sum of the `neighbors` of point i times their `weights` (n, k).

    `neighbors` (n, k) are row numbers of `data` (n, d).
    """
    rebuilt = np.empty(data.shape)
    rows = max(1, (1 << 22) // (weights.shape[1] * data.shape[1]))
    for start in range(0, len(data), rows):
        block = slice(start, start + rows)
        rebuilt[block] = combine(weights[block], neighbors[block], data)
    return rebuilt


def combine(
    weights: NDArray[np.float64], neighbors: NDArray[np.int32], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return weighted sums (m, p) of rows of `values`: row i is sum_j weights[i, j] * values[neighbors[i, j]]."""
    total = weights[:, :1] * values[neighbors[:, 0]]
    for j in range(1, weights.shape[1]):
        total += weights[:, j, None] * values[neighbors[:, j]]
    return total
