"""Gaussian distribution of the reconstruction weights, fitted once and sampled by draws."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.linalg import LANES, dense
from glle_engine.weights.lane_sampling import GROUP, sample

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.spec import Source


@dataclass(frozen=True)
class WeightLaw:
    r"""Independent Gaussians over the weights of each point.

    Posterior: :math:`w_i \sim N(m_i, a F_i F_i^T)`; prior: :math:`w_i \sim N(m_0, a R_i R_i^T)`, a the scale.

    Attributes
    ----------
    mean : (n, k) float64
        m_i.
    factor : (n, k, k) float64
        F_i; the covariance is F F^T. It depends continuously on the data (no eigenvectors), so
        that rounding cannot change a draw.
    prior_mean : float
        Every entry of m_0: 1/k (constrained) or 0 (published); 1/k_i for k_i neighbors among the candidates.
    prior_factor : (n,) or (n, k, k) float64, or None
        R_i, as a standard deviation or as a matrix; None if the method has no prior.
    constrained : bool
        Whether 1^T w_i = 1 holds for every draw.
    sigma : (n,) float64 or None
        Published em, spherical: sigma_i of GLLE Eq. 29, signs kept.
    kept : (n, k) bool or None
        The neighbors among the candidates, None if all are; the weights of the others are 0.

    """

    mean: NDArray[np.float64]
    factor: NDArray[np.float64]
    prior_mean: float
    prior_factor: NDArray[np.float64] | None
    constrained: bool
    sigma: NDArray[np.float64] | None
    kept: NDArray[np.bool_] | None = None

    def at(self, rows: NDArray[np.integer]) -> WeightLaw:
        """Return the law of some points, as copies."""
        return WeightLaw(
            self.mean[rows],
            self.factor[rows],
            self.prior_mean,
            None if self.prior_factor is None else self.prior_factor[rows],
            constrained=self.constrained,
            sigma=None if self.sigma is None else self.sigma[rows],
            kept=None if self.kept is None else self.kept[rows],
        )

    def draw(self, key: tuple[int, int], scale: float, source: Source, counter: int = 0) -> NDArray[np.float64]:
        """Return the weights (n, k) of a key (seed, index), from `counter` of its stream on, with the bits of lanes."""
        streams = [(*key, math.sqrt(scale))] * LANES
        return sample_lanes(streams, *self.gaussian(source), counter)[:, :, 0].copy()

    def gaussian(self, source: Source) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return mean (n, k) and factor (n, k, k), so that weights are mean + sqrt(scale) factor z."""
        if source == "posterior":
            return self.mean, self.factor
        if self.prior_factor is None:
            raise ValueError("this law has no prior")
        n, k = self.mean.shape
        mean = np.full((n, k), self.prior_mean)
        if self.prior_factor.ndim == 3:
            return mean, self.prior_factor
        if not self.constrained:
            return mean, self.prior_factor[:, None, None] * np.eye(k)
        own = np.ones((n, k)) if self.kept is None else self.kept.astype(float)
        mean = own / own.sum(axis=1, keepdims=True)
        plane = own[:, :, None] * (np.eye(k) - mean[:, None, :])
        return mean, self.prior_factor[:, None, None] * plane


def sample_lanes(
    streams: list[tuple[int, int, float]], mean: NDArray[np.float64], factor: NDArray[np.float64], counter: int
) -> NDArray[np.float64]:
    """Return weights (n, k, lanes), from `counter` of each stream on: keys (seed, index) and roots of the scale."""
    n, k = mean.shape
    seeds, indices = (np.array([stream[i] for stream in streams], np.uint64) for i in (0, 1))
    spread = np.array([stream[2] for stream in streams])
    weights, scratch = np.empty(n * k * LANES), np.empty(GROUP * k * LANES)
    order, law = np.arange(n, dtype=np.int32), (dense.readable(mean), dense.readable(factor))
    sample((0,) * LANES, order, counter, *law, seeds, indices, spread, scratch, weights)
    return weights.reshape(n, k, LANES)
