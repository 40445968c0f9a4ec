r"""Align embeddings of the same points, measure how each point spreads, and make confidence regions around the points.

The confidence region of point i at level q is :math:`\{y : (y - c_i)^T C_i^{-1} (y - c_i) \le r_q^2\}`, an ellipse in
two dimensions; :math:`c_i` is the position of the point in the reference embedding and :math:`C_i` the covariance of
its positions in resamples, embeddings of random halves of the data. The radius :math:`r_q`, one for all points, is
found by cross-conformal calibration
(Vovk, "Cross-conformal predictors", Annals of Mathematics and Artificial Intelligence 74, 2015). Resamples are split
into folds, where two halves without common points stay together. Mean and covariance are computed without one fold, and
:math:`r_q` is the quantile, over all folds, of the distances of the held-out resamples from the mean, in units of the
covariance. For normal resamples with the covariance :math:`C_i`, :math:`r_q` is the root of the quantile of the
chi-squared distribution: 1.18 and 2.15 for 50 % and 90 % in two dimensions.

Regions around the mean of the resamples contain the stated share of the positions in a further resample, on average
over points and resamples. Regions around the reference are confidence regions: they are meant to contain the mean
position of a point over new samples of the data. The position in one new sample scatters around this mean as the
reference does, so that prediction regions are wider by the root of 2 (`Regions.of_new_sample`). No region shows
bias, and the level holds on average over the points, not for each point. The points of an embedding move together, so
that the share of points inside their regions varies widely between samples of the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from glle_engine.base.errors import InvalidParameterError, InvalidShapeError
from glle_engine.base.results import brief
from glle_engine.linalg import dense
from glle_engine.linalg.procrustes import generalized_procrustes, moments, root_trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

MIN_EMBEDDINGS = 4  # so that three embeddings are left for a covariance if a quarter is held out
REGION_COVERAGES = (0.5, 0.9)  # regions are calibrated for these coverages
FOLDS = 4
# The radii are calibrated on at most this many evenly spaced points, to limit memory use.
MAX_CALIBRATION_POINTS = 20_000
# A prediction region is wider than a confidence region by this factor, because its center scatters, too.
NEW_SAMPLE_FACTOR = math.sqrt(2)
MIN_EIGENVALUE_RATIO = 1e-12  # smaller eigenvalues (relative to the largest) are directions without variance


@dataclass(frozen=True, eq=False)
class Alignment:
    """Embeddings of the same points from random halves of the data, rotated so that each point can be compared.

    Attributes
    ----------
    original : (n, p) float64
        The reference embedding.
    embeddings : (m, n, p) float64
        At least 4 embeddings, rotated to their mean, with the mean rotated to the reference embedding.

    """

    original: NDArray[np.float64]
    embeddings: NDArray[np.float64]

    __repr__ = brief

    @classmethod
    def from_maps(cls, embeddings: NDArray[np.float64], original: NDArray[np.float64]) -> Self:
        """Align embeddings (m, n, p) by generalized Procrustes analysis, and rotate their mean to `original` (n, p).

        Raises
        ------
        InvalidShapeError
            For fewer than 4 embeddings, or embeddings of another shape than `original`.

        """
        if embeddings.shape[1:] != original.shape or len(embeddings) < MIN_EMBEDDINGS:
            raise InvalidShapeError(
                f"The embeddings have shape {embeddings.shape}, and the original embedding has shape {original.shape}.",
                remedy=f"Give an array of at least {MIN_EMBEDDINGS} embeddings, each of the shape of the original.",
            )
        return cls(original, generalized_procrustes(embeddings, original))

    @cached_property
    def covariance(self) -> NDArray[np.float64]:
        """Covariance (n, p, p) of each point's position over the embeddings."""
        return moments(self.embeddings)[1]

    @property
    def spread(self) -> NDArray[np.float64]:
        """How far each point moves between the embeddings (n,): the root of the trace of its covariance."""
        return root_trace(self.covariance)


def normalize(Y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return Y (n, p) shifted to mean 0 and scaled to mean square radius 1, with the removed mean (p,) and scale.

    If all points are equal, the result is 0 and the scale is 1.
    """
    center = Y.mean(axis=0)
    size = float(np.sqrt(((Y - center) ** 2).sum(axis=1).mean()))
    return (Y - center) / (size or 1.0), center, size or 1.0


def normalize_all(embeddings: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the embeddings (m, n, p), each shifted to mean 0 and scaled to mean square radius 1."""
    return np.array([normalize(Y)[0] for Y in embeddings]).reshape(embeddings.shape)


@dataclass(frozen=True, eq=False)
class Regions:
    """Confidence regions around the points of an embedding: ellipses in two dimensions, ellipsoids in three.

    Attributes
    ----------
    center : (n, p) float64
        Centers of the regions: the positions of the points in the embedding.
    half_axes : (n, p, p) float64
        Half-axes at radius 1: row j of half_axes[i] is the vector of half-axis j at point i, the longest first. It is a
        unit eigenvector of the covariance, multiplied by the square root of the eigenvalue. The sign of a row means
        nothing.
    levels : tuple of float
        For each region, the coverage that it is meant to have. Coverage is the share of the resampled positions of a
        point that lie in the region around the point, averaged over the points.
    radii : tuple of float
        Factors on the half-axes, one for each level.

    """

    center: NDArray[np.float64]
    half_axes: NDArray[np.float64]
    levels: tuple[float, ...]
    radii: tuple[float, ...]

    __repr__ = brief

    def axes(self, level: float) -> NDArray[np.float64]:
        """Return the half-axes (n, p, p) of the regions of coverage `level`: [i, j] is the j-th longest at point i."""
        return self.radius(level) * self.half_axes

    def radius(self, level: float) -> float:
        """Return the factor by which `half_axes` are multiplied in the regions of coverage `level`, one of `levels`.

        Raises
        ------
        InvalidParameterError
            For a level that is not one of `levels`.

        """
        if level not in self.levels:
            raise InvalidParameterError(
                f"There are no regions of coverage {level}.",
                remedy=f"Choose one of the coverages {', '.join(map(str, self.levels))}.",
            )
        return self.radii[self.levels.index(level)]

    def of_new_sample(self) -> Regions:
        """Return prediction regions, which are to contain the positions in one new sample: wider by the root of 2."""
        return replace(self, radii=tuple(NEW_SAMPLE_FACTOR * radius for radius in self.radii))

    def contains(self, places: NDArray[np.float64], level: float) -> NDArray[np.bool_]:
        """Return whether each point's position in `places` (n, p) lies in its region of coverage `level`: (n,) bool."""
        return _distances(places - self.center, self.half_axes) <= self.radius(level)

    def to_dict(self) -> dict[str, Any]:
        """Return the coverages (`levels`), and the factors on the half-axes (`radii`), as a JSON-able dictionary.

        The arrays of all points, `center` and `half_axes`, are left out.
        """
        return {"levels": list(self.levels), "radii": list(self.radii)}


def calibrated_regions(aligned: Alignment, *, together: int = 1) -> Regions:
    """Return confidence regions around the points of the reference, with radii calibrated on held-out embeddings.

    `together` is the number of consecutive embeddings that are held out together. It has to be 2 if embeddings 2 j and
    2 j + 1 are of halves without common points: such halves deviate from the mean in opposite directions, so that one
    predicts the other.
    """
    n, embeddings = len(aligned.original), aligned.embeddings
    rows = np.arange(0, n, -(-n // MAX_CALIBRATION_POINTS))
    distances = []
    for fold in range(FOLDS):
        is_held = np.arange(len(embeddings)) // together % FOLDS == fold
        mean, covariance = moments(embeddings[~is_held][:, rows])
        half_axes = _half_axes(covariance)
        distances += [_distances(place[rows] - mean, half_axes) for place in embeddings[is_held]]
    ordered = np.sort(np.concatenate(distances))
    radii = tuple(
        float(ordered[min(math.ceil((len(ordered) + 1) * level), len(ordered)) - 1]) for level in REGION_COVERAGES
    )
    return Regions(aligned.original, _half_axes(aligned.covariance), REGION_COVERAGES, radii)


def _half_axes(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the half-axes (n, p, p) of the ellipsoids of covariances (n, p, p): vectors in rows, the longest first.

    A direction without variance gets a tiny half-axis instead of 0, because `_distances` divides by the half-axes. Only
    a point without any variance has half-axes of 0.
    """
    values, vectors = dense.eigh(covariance)
    values = np.maximum(values, MIN_EIGENVALUE_RATIO * values[:, -1:])
    return np.ascontiguousarray((np.sqrt(values)[:, None, :] * vectors)[:, :, ::-1].transpose(0, 2, 1))


def _distances(off: NDArray[np.float64], half_axes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the Mahalanobis lengths (n,) of vectors `off` (n, p): 1 on the ellipsoid with the half-axes (n, p, p).

    At a point without variance, the length is 0 for the zero vector and infinite for any other vector.
    """
    p = off.shape[1]
    total = np.zeros(len(off))
    for j in range(p):
        squared = sum(half_axes[:, j, a] ** 2 for a in range(p))
        along = sum(off[:, a] * half_axes[:, j, a] for a in range(p))
        with np.errstate(divide="ignore", invalid="ignore"):
            total += (along / squared) ** 2
    still = (half_axes == 0).all(axis=(1, 2))
    total[still] = np.where((off[still] == 0).all(axis=1), 0.0, np.inf)
    return np.sqrt(total)
