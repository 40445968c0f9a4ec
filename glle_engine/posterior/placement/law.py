"""Neighborhoods, mean places and law of all points, from those of the landmarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.progress import OnProgress, blocks
from glle_engine.base.validation import Unit
from glle_engine.posterior.placement.out_of_sample import attach
from glle_engine.weights.constrained import Noise, law_at
from glle_engine.weights.gaussian import WeightLaw

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.spec import FitSpec

_BLOCK_ENTRIES = 1 << 22  # of the factors of some points: 32 MB


@dataclass(frozen=True, eq=False)
class Points:
    """Neighborhoods, places and law of points.

    Attributes
    ----------
    neighbors : (n, k) int32
    embedding : (n, p) float64
        Mean places.
    law : WeightLaw
    flatness : (k + 1,) float64, optional
        Thresholds of adaptive neighborhoods.

    """

    neighbors: NDArray[np.int32]
    embedding: NDArray[np.float64]
    law: WeightLaw
    flatness: NDArray[np.float64] | None


def of_all_points(
    fitted: Points,
    given: NDArray[np.float64],
    landmarks: NDArray[np.int32],
    spec: FitSpec,
    directions: float,
    on_progress: OnProgress,
) -> tuple[Points, dict[str, Any]]:
    r"""Return all points of data (n, d) and figures, from the landmarks, the rows `landmarks` (m,), alone.

    Another point has its k nearest landmarks as neighbors, the mean weights of a new point, and their posterior under
    the noise of the landmarks: Gaussian, on the plane :math:`1^T w = 1` (`glle_engine.weights.constrained`). A
    duplicate of a landmark has its place in every draw. Memory beside the result is that of a block of points.

    Parameters
    ----------
    fitted : Points
        Of given[landmarks], by a constrained posterior.
    given : (n, d) float64
    landmarks : (m,) int32
        Ascending, m < n.
    spec : FitSpec
    directions : float
        `glle_engine.weights.residuals.residual_dimension` of the landmarks.
    on_progress
        Called with (points done, n - m, "placing").

    """
    n, k = len(given), spec.n_neighbors
    unit = Unit.of(given)
    data = unit.shift(given[landmarks])
    noise = Noise.of(data, fitted.neighbors, fitted.embedding, spec, directions, fitted.law.kept)
    neighbors, embedding = np.empty((n, k), np.int32), np.empty((n, spec.n_components))
    mean, factor, prior = np.empty((n, k)), np.empty((n, k, k)), np.empty(n)
    kept = None if fitted.law.kept is None else np.empty((n, k), bool)
    neighbors[landmarks], embedding[landmarks] = landmarks[fitted.neighbors], fitted.embedding
    mean[landmarks], factor[landmarks], prior[landmarks] = fitted.law.mean, fitted.law.factor, fitted.law.prior_factor
    if kept is not None:
        kept[landmarks] = fitted.law.kept
    others = np.setdiff1d(np.arange(n), landmarks, assume_unique=True)
    distances = np.empty(len(others))
    on_progress(0, len(others), "placing")
    for rows in blocks(len(others), max(1, _BLOCK_ENTRIES // (k * k)), "placing", on_progress):
        points, at = unit.shift(given[others[rows]]), others[rows]
        attached = attach(
            data,
            points,
            k,
            spec.reg,
            n_components=spec.n_components,
            noise=spec.noise,
            flatness=fitted.flatness,
        )
        extension = attached.extension()
        places = extension.embed(fitted.embedding)
        law, _ = law_at(
            data,
            attached.neighbors,
            fitted.embedding,
            attached.weights,
            spec,
            noise,
            points=points,
            places=places,
            frames=attached.frames,
            kept=attached.kept,
        )
        equal: NDArray[np.bool_] = np.any(attached.same, axis=1)
        neighbors[at], embedding[at], distances[rows] = landmarks[extension.neighbors], places, extension.distances
        mean[at] = np.where(equal[:, None], extension.weights, law.mean)
        factor[at] = np.where(equal[:, None, None], 0.0, law.factor)
        prior[at] = law.prior_factor
        if kept is not None:
            kept[at] = attached.kept
    away = unit.restore(distances)
    figures = {
        "n_points": n,
        "landmarks": len(landmarks),
        "landmark_distance": [float(np.median(away)), float(away.max())],
        "points_on_landmarks": int((distances == 0).sum()),
    }
    law = WeightLaw(mean, factor, fitted.law.prior_mean, prior, constrained=True, sigma=None, kept=kept)
    return Points(neighbors, embedding, law, fitted.flatness), figures
