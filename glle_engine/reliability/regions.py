r"""Regions around the points of an embedding, whose coverage is calibrated on held-out resamples.

The region of point i at level q is :math:`\{y : (y - c_i)^T C_i^{-1} (y - c_i) \le r_q^2\}`, an ellipse in two
dimensions; :math:`c_i` is its place in the reference embedding and :math:`C_i` its covariance. The radius
:math:`r_q`, one for all points, is found by cross-conformal calibration (Vovk, "Cross-conformal predictors", Annals of
Mathematics and Artificial Intelligence 74, 2015): resamples are split into folds, the covariance is computed without a
fold, and :math:`r_q` is the quantile of the distances of the held-out resamples from the mean of the others, in units
of that covariance. For normal resamples with the covariance :math:`C_i` it is that of the chi-squared distribution,
1.18 and 2.15 for 50 % and 90 % in two dimensions.

So the regions around the consensus contain the stated share of the places of a further resample, on average over points
and resamples. Around the reference they are meant to contain the mean place of a point over new samples of the data
(confidence regions). The place of a point in one new sample scatters around that mean as the reference does, so that
its regions are wider by the root of 2 (prediction regions, `Regions.of_new_sample`). No region shows bias, and the
level holds for the average point, not for each. The points of an embedding move together, so that the share of points
inside varies widely between samples of the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.brief import brief
from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.progress import OnProgress, silent
from glle_engine.linalg import dense
from glle_engine.linalg.procrustes import moments
from glle_engine.reliability.alignment import mean_covariance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.reliability.alignment import Alignment

LEVELS = (0.5, 0.9)
FOLDS = 4
CALIBRATED = 20_000  # points at most, evenly spaced: their distances are in memory for all resamples at once
NEW_SAMPLE = math.sqrt(2)  # a new place scatters around the mean place, which scatters around the reference
FLAT = 1e-12  # of the largest eigenvalue of a covariance: a direction without variance


@dataclass(frozen=True, eq=False)
class Regions:
    """Ellipses, or ellipsoids, around the points of an embedding.

    Attributes
    ----------
    center : (n, p) float64
    half_axes : (n, p, p) float64
        Row j of half_axes[i] is the vector of half-axis j at radius 1, the longest first: the root of an eigenvalue of
        the covariance times its eigenvector. The sign of a row means nothing.
    levels : tuple of float
        Share of the places of a point that its region holds, on average over the points.
    radii : tuple of float
        Factor on the half-axes for each level.

    """

    center: NDArray[np.float64]
    half_axes: NDArray[np.float64]
    levels: tuple[float, ...]
    radii: tuple[float, ...]

    __repr__ = brief

    def axes(self, level: float) -> NDArray[np.float64]:
        """Return the half-axes (n, p, p) of the regions of a level, one vector in each row, the longest first."""
        return self.radius(level) * self.half_axes

    def radius(self, level: float) -> float:
        """Return the radius of a level.

        Raises
        ------
        InvalidParameterError
            For a level that is not one of `levels`.

        """
        if level not in self.levels:
            raise InvalidParameterError(
                f"level={level} has no regions.", remedy=f"Choose one of {', '.join(map(str, self.levels))}."
            )
        return self.radii[self.levels.index(level)]

    def of_new_sample(self) -> Regions:
        """Return the regions of the place of each point in one new sample: of confidence become those of prediction."""
        return replace(self, radii=tuple(NEW_SAMPLE * radius for radius in self.radii))

    def contains(self, places: NDArray[np.float64], level: float) -> NDArray[np.bool_]:
        """Return whether the place (n, p) of each point lies in its region: (n,) bool."""
        return _distances(places - self.center, self.half_axes) <= self.radius(level)

    def to_dict(self) -> dict[str, Any]:
        """Return levels and radii as a JSON-able dictionary."""
        return {"levels": list(self.levels), "radii": list(self.radii)}


def calibrated_regions(aligned: Alignment, on_progress: OnProgress = silent) -> Regions:
    """Return regions around the original of aligned embeddings.

    `on_progress` is called with (folds done, folds, "regions").
    """
    n, factors = len(aligned.original), aligned.factors
    rows = np.arange(0, n, -(-n // CALIBRATED))
    distances = []
    for fold in range(FOLDS):
        # A fold is every fourth resample, so that each fold has some of every kind.
        fitted = [moments(np.delete(kind[:, rows], np.s_[fold::FOLDS], axis=0)) for kind in aligned.kinds]
        half_axes = _half_axes(mean_covariance([covariance for _, covariance in fitted], factors))
        for kind, factor, (mean, _) in zip(aligned.kinds, factors, fitted, strict=True):
            distances += [math.sqrt(factor) * _distances(place[rows] - mean, half_axes) for place in kind[fold::FOLDS]]
        on_progress(fold + 1, FOLDS, "regions")
    ordered = np.sort(np.concatenate(distances))
    radii = tuple(float(ordered[min(math.ceil((len(ordered) + 1) * level), len(ordered)) - 1]) for level in LEVELS)
    return Regions(aligned.original, _half_axes(aligned.covariance), LEVELS, radii)


def _half_axes(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the half-axes (n, p, p) of covariances at radius 1, in rows, the longest first."""
    values, vectors = dense.eigh(covariance)
    values = np.maximum(values, FLAT * values[:, -1:])
    return np.ascontiguousarray((np.sqrt(values)[:, None, :] * vectors)[:, :, ::-1].transpose(0, 2, 1))


def _distances(off: NDArray[np.float64], half_axes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the lengths (n,) of vectors (n, p) in units of the half-axes; infinity off a point without variance."""
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
