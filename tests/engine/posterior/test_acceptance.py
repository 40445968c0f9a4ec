"""Trustworthiness and diversity of the default posterior on the four sheets."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from glle_engine import fit, manifolds
from glle_engine.metrics.ranks import disparity, trustworthiness


@pytest.mark.parametrize(
    "name",
    ["swiss_roll", *(pytest.param(name, marks=pytest.mark.slow) for name in manifolds.NAMES if name != "swiss_roll")],
)
def test_draws_are_true_and_diverse(name: str) -> None:
    """At n = 5,000, k = 10, scale 1: mean trust of 8 draws at least .995, mean pairwise disparity at least .05.

    Means over three samples of the sheet, since the disparity of one sample ranges from .03 to .4.
    """
    trust, apart = [], []
    for seed in range(3):
        X = manifolds.make(name, 5000, seed=seed).X
        drawn = [d.embedding for d in fit(X, n_neighbors=10).draws(8)]
        probes = np.random.default_rng(seed).choice(5000, 1000, replace=False)
        trust += [trustworthiness(X, Y, points=probes) for Y in drawn]
        apart += [disparity(a, b) for a, b in combinations(drawn, 2)]
    assert np.mean(trust) >= 0.995
    assert np.mean(apart) >= 0.05


@pytest.mark.parametrize(
    ("n", "noise"),
    [pytest.param(2000, 0.0, marks=pytest.mark.slow), (2000, 0.01), pytest.param(5000, 0.03, marks=pytest.mark.slow)],
)
def test_tangent_noise_draws_are_true_under_noise(n: int, noise: float) -> None:
    """Mean trust over the four sheets at least .99 at scale 1, mean disparity at least .05, k = 10.

    Two samples of each sheet, six draws each; isotropic noise has .9709 at n = 5,000 and noise .03.
    """
    trust, apart = [], []
    for name in manifolds.NAMES:
        for seed in range(2):
            X = manifolds.make(name, n, noise=noise, seed=seed).X
            drawn = [d.embedding for d in fit(X, n_neighbors=10, noise="tangent").draws(6)]
            probes = np.random.default_rng(seed).choice(n, 500, replace=False)
            trust += [trustworthiness(X, Y, points=probes) for Y in drawn]
            apart += [disparity(a, b) for a, b in combinations(drawn, 2)]
    assert np.mean(trust) >= 0.99
    assert np.mean(apart) >= 0.05
