r"""Simulation-based calibration of the weight posterior.

Talts et al. 2018, *Validating Bayesian Inference Algorithms with Simulation-Based Calibration*.

Given the k neighbors X of one point (d x k), the model is

.. math:: w \sim N(1/k,\ (s^2 / \lambda) I)\ \text{on}\ 1^T w = 1, \qquad x = X w + e,\quad e \sim N(0, s^2 I_d),

which is :math:`D w + e = 0` with :math:`D = X - x 1^T`, because 1^T w = 1. The likelihood of w is
:math:`\exp(-|D w|^2 / 2 s^2)`, so that for known s^2 and lambda the posterior is that of
`glle_engine.weights.constrained`. The engine takes lambda from the data as reg tr(D^T D). The tests fix lambda first
and give the reg that amounts to it, for which the dirichlet variance s^2 = lambda / (k (k + 1)) is fixed, too. Then the
rank of the true w among draws from its posterior is uniform, for any function of w and x.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import chi2

from glle_engine import FitSpec
from glle_engine.weights.constrained import constrained_law
from glle_engine.weights.lle import lle_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.weights.gaussian import WeightLaw

REPLICATES, DRAWS, BINS = 1000, 39, 10
UNLIKELY = 1e-4  # of the largest of three statistics of a correct posterior, for one fixed seed


def posterior_of(
    x: NDArray[np.float64], X: NDArray[np.float64], ridge: float, kept: NDArray[np.bool_] | None
) -> WeightLaw:
    """Return the engine's law of the weights of x (d,) on its neighbors X (k, d) for a given lambda."""
    data, neighbors = np.concatenate([x[None], X]), np.arange(1, len(X) + 1, dtype=np.int32)[None]
    apart = X - x if kept is None else (X - x)[kept]
    spec = FitSpec(n_neighbors=len(X), reg=ridge / float((apart**2).sum()), variance="dirichlet")
    own = None if kept is None else kept[None]
    mean = lle_weights(data, neighbors, spec.reg, kept=own)
    return constrained_law(data, neighbors, np.empty((0, 2)), mean, spec, kept=own)[0]


@pytest.mark.parametrize(
    ("k", "d", "ridge", "dropped"),
    [(6, 2, 1e-2, 0), (6, 3, 1.0, 0), (5, 12, 0.3, 0), (8, 3, 0.1, 3)],
    ids=["null space", "wide prior", "many features", "adaptive"],
)
def test_ranks_of_true_weights_are_uniform(k: int, d: int, ridge: float, dropped: int) -> None:
    """Chi-square statistics of the ranks of a weight, of a contrast and of the reconstruction error."""
    rng = np.random.default_rng(20_211)
    kept = np.arange(k) >= dropped
    count = int(kept.sum())
    noise = ridge / (count * (count + 1))
    contrast = rng.standard_normal(k)
    ranks = np.empty((REPLICATES, 3), int)
    for replicate in range(REPLICATES):
        X, z = rng.standard_normal((k, d)), rng.standard_normal(k) * kept
        true = kept / count + np.sqrt(noise / ridge) * (z - kept * z.sum() / count)
        x = true @ X + np.sqrt(noise) * rng.standard_normal(d)
        law = posterior_of(x, X, ridge, kept if dropped else None)
        mean, factor = law.gaussian("posterior")
        drawn = mean[0] + rng.standard_normal((DRAWS, k)) @ factor[0].T
        every = np.concatenate([true[None], drawn])
        values = np.stack([every[:, -1], every @ contrast, ((every @ X - x) ** 2).sum(axis=1)], axis=1)
        ranks[replicate] = (values[1:] < values[0]).sum(axis=0)
    expected = REPLICATES / BINS
    for statistic in ranks.T:
        counts = np.bincount(statistic * BINS // (DRAWS + 1), minlength=BINS)
        assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(UNLIKELY, BINS - 1)
