"""Posteriors and functions that can be embedded again on a part of their data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.validation import checked_matrix, finite_data, require_training_data
from glle_engine.graph.neighbors import kneighbors
from glle_engine.graph.relations import Distances, locate
from glle_engine.graph.sparse import SparsePoints
from glle_engine.linalg import dense
from glle_engine.linalg.procrustes import procrustes_rotation, rotate
from glle_engine.posterior.fit import reference_embedding
from glle_engine.posterior.placement.out_of_sample import attach
from glle_engine.reliability.resamples import Embedder

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.base.spec import FitSpec
    from glle_engine.graph.relations import Data
    from glle_engine.posterior.posterior import Posterior
    from glle_engine.reliability.resamples import Sample, Stream

SMALLEST_K, LARGEST_K = 0.7, 1.5  # of random n_neighbors, relative to that of the fit
LEAST_POINTS = 20
PLACING = 10  # neighbors in the sample of a point that is placed
_REG = 1e-3  # ridge of their weights


@dataclass(frozen=True, eq=False)
class PosteriorEmbedder(Embedder):
    """The reference embedding of a posterior, by random parts of its points, or of its landmarks.

    A sample with a disconnected graph is bridged, for any value of `FitSpec.disconnected`. The other points are placed
    by their LLE weights on the sample, and the embedding is rotated to the reference.

    Attributes
    ----------
    points : Data
        In the unit of computation.
    spec : FitSpec
    reference : (n, p) float64, optional
        None: resamples are not rotated.
    landmarks : (m,) int32, optional

    """

    points: Data
    spec: FitSpec
    reference: NDArray[np.float64] | None
    landmarks: NDArray[np.int32] | None = None

    @classmethod
    def of(cls, posterior: Posterior, X: ArrayLike) -> Self:
        """Return the embedder of a posterior on its training data.

        Raises
        ------
        InvalidParameterError
            For a published posterior, or one with given neighbors.
        DataMismatchError
            For other data than those of the fit.

        """
        given = bool(posterior.diagnostics.figures.get("given_neighbors"))
        require_resamplable_posterior(posterior.spec, posterior.n_points, given_neighbors=given)
        require_training_data(X, posterior.data_sha256)
        points = locate(finite_data(X), posterior.spec)
        return cls(points, posterior.spec, posterior.embedding, posterior.landmarks)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n, p) of an embedding of all points."""
        return len(self.points), self.spec.n_components

    @property
    def rows(self) -> NDArray[np.intp]:
        """Rows of which samples are drawn."""
        return super().rows if self.landmarks is None else self.landmarks.astype(np.intp)

    def require_possible(self, stream: Stream) -> None:  # noqa: ARG002 # half-samples are the smallest
        """Raise `InvalidParameterError` if half of the points cannot be embedded."""
        require_resamplable_posterior(self.spec, len(self.points))

    def __call__(self, sample: Sample, on_progress: OnProgress) -> NDArray[np.float64]:
        """Return an embedding (n, p) of all points by a sample."""
        k = self.spec.n_neighbors
        if sample.uniform is not None:
            k = _random_neighbors(sample.uniform, k, self.spec.n_components + 1, len(sample.chosen) - 1)
        spec = replace(self.spec, n_neighbors=k, disconnected="bridge", landmarks=None)
        known, rest = parts_of(self.points, sample)
        nearest, _ = kneighbors(known, k, on_progress, spec.search)
        fitted = reference_embedding(known, nearest, spec, on_progress)
        extension = attach(
            known, rest, k, spec.reg, n_components=spec.n_components, noise=spec.noise, flatness=fitted.flatness
        ).extension()
        placed = np.empty(self.shape)
        placed[sample.chosen], placed[sample.others] = fitted.embedding, extension.embed(fitted.embedding)
        if self.reference is None:
            return placed
        return rotate(placed, procrustes_rotation(placed, self.reference))


@dataclass(frozen=True, eq=False)
class FunctionEmbedder(Embedder):
    """A function from points (m, d) to an embedding (m, p); other points are placed by their LLE weights.

    Attributes
    ----------
    function : callable
        Of a random part of the points.
    X : (n, d) float64
        The data.
    n_components : int
        Columns p of an embedding.

    """

    function: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    X: NDArray[np.float64]
    n_components: int = 2

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n, p) of an embedding of all points."""
        return len(self.X), self.n_components

    def require_possible(self, stream: Stream) -> None:  # noqa: ARG002 # half-samples are the smallest
        """Raise `InvalidParameterError` for too few points."""
        require_enough_for_halves(len(self.X))

    def __call__(self, sample: Sample, on_progress: OnProgress) -> NDArray[np.float64]:  # noqa: ARG002 # one step
        """Return an embedding (n, p) of all points by a sample."""
        points = checked_matrix(self.X)
        return placed_by_weights(points, sample, self.function(points[sample.chosen]))


def require_resamplable_posterior(spec: FitSpec, n: int, *, given_neighbors: bool = False) -> None:
    """Raise `InvalidParameterError` if resamples cannot measure the spread of a posterior of n points."""
    if given_neighbors:
        raise InvalidParameterError(
            "Half-samples need the neighbors of random halves of the data, but the posterior has given neighbors.",
            remedy="Give the scale as a number, or fit without neighbors.",
        )
    if spec.variant != "constrained":
        raise InvalidParameterError(
            "Only constrained posteriors can be calibrated.", remedy="Fit with variant='constrained'."
        )
    sampled, unit = (n, "points") if spec.landmarks is None else (min(n, spec.landmarks), "landmarks")
    if sampled // 2 <= max(spec.n_neighbors, spec.n_components + 2):
        raise InvalidParameterError(
            f"Half of {sampled} {unit} is too few for n_neighbors={spec.n_neighbors}.",
            remedy=f"Give n_neighbors below {sampled // 2 - 1}, or more {unit}.",
        )


def require_enough_for_halves(n: int) -> None:
    """Raise `InvalidParameterError` for fewer than 20 points."""
    if n < LEAST_POINTS:
        raise InvalidParameterError(
            f"{n} points are too few for half-samples.",
            remedy=f"Give at least {LEAST_POINTS} points.",
            details={"n_points": n, "least": LEAST_POINTS},
        )


def placed_by_weights(points: Data, sample: Sample, Y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the places (n, p) of all points: the embedding Y of the chosen ones, the others by their LLE weights."""
    known, rest = parts_of(points, sample)
    placed = np.empty((len(points), Y.shape[1]))
    placed[sample.chosen] = Y
    placed[sample.others] = attach(known, rest, min(PLACING, len(Y) - 1), _REG).extension().embed(Y)
    return placed


def parts_of(points: Data, sample: Sample) -> tuple[Data, Data]:
    """Return the chosen points, and the others in relation to them."""
    if isinstance(points, Distances):
        return points.at(sample.chosen), points.of_others(sample.others, sample.chosen)
    if isinstance(points, SparsePoints):
        return points[sample.chosen], points[sample.others]
    return np.ascontiguousarray(points[sample.chosen]), points[sample.others]


def _random_neighbors(uniform: float, k: int, least: int, most: int) -> int:
    """Return n_neighbors, log-uniform on [.7 k, 1.5 k] within the bounds; `uniform` is in [0, 1)."""
    low, high = dense.log(SMALLEST_K * k), dense.log(LARGEST_K * k)
    return min(max(int(dense.exp(low + (high - low) * uniform) + 0.5), min(least, k)), most)
