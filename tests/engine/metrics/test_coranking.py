"""Curves of kept neighbors, compared with the co-ranking matrix and the formulas."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from glle_engine.base.errors import TooFewPointsError
from glle_engine.metrics import coranking, ranks
from glle_engine.metrics.coranking import quality_curves
from glle_engine.metrics.registry import score

N = 40
rng = np.random.default_rng(0)
X = rng.standard_normal((N, 5))
Y = X[:, :2] + 0.2 * rng.standard_normal((N, 2))


def test_curves_are_sums_of_the_coranking_matrix() -> None:
    """The curves are sums over the co-ranking matrix (Lee and Verleysen 2009, Eq. 7)."""
    by_rank = [cdist(points, points).argsort(axis=1).argsort(axis=1) for points in (X, Y)]
    coranking = np.zeros((N, N), int)
    np.add.at(coranking, (by_rank[0].ravel(), by_rank[1].ravel()), 1)
    coranking = coranking[1:, 1:]
    curves = quality_curves(X, Y)
    k = np.arange(1, N - 1)
    q_nx = np.array([coranking[:each, :each].sum() / (N * each) for each in k])
    r_nx = ((N - 1) * q_nx - k) / (N - 1 - k)
    np.testing.assert_array_equal(curves.neighbors, k)
    np.testing.assert_allclose(curves.q_nx, q_nx, rtol=1e-12)
    np.testing.assert_allclose(curves.lcmc, q_nx - k / (N - 1), atol=1e-14)
    np.testing.assert_allclose(curves.r_nx, r_nx, atol=1e-12)
    assert curves.auc == pytest.approx(np.average(r_nx, weights=1 / k), rel=1e-12)


def test_scores_are_points_of_the_curves() -> None:
    """The scores q_nx, lcmc and r_nx are values of the curves; equal maps have 1 and random ones about 0."""
    scores, curves = score(X, Y, ["q_nx", "lcmc", "r_nx", "r_nx_auc"], score_neighbors=7), quality_curves(X, Y)
    expected = {"q_nx": curves.q_nx[6], "lcmc": curves.lcmc[6], "r_nx": curves.r_nx[6], "r_nx_auc": curves.auc}
    assert scores == pytest.approx(expected, rel=1e-12)
    assert score(X, 3 * X, ["q_nx", "r_nx", "r_nx_auc"]) == pytest.approx(
        dict.fromkeys(["q_nx", "r_nx", "r_nx_auc"], 1)
    )
    assert abs(quality_curves(X, rng.permutation(X)).auc) < 0.1


def test_many_points_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The curve over a sample of points is near the curve over all points; two points are refused."""
    exact = quality_curves(X, Y)
    monkeypatch.setattr(ranks, "MAX_POINTS_OF_ALL_PAIRS", 30)
    monkeypatch.setattr(coranking, "LANDMARKS", 25)
    sampled = quality_curves(X, Y)
    assert sampled.auc != exact.auc
    assert sampled.auc == pytest.approx(exact.auc, abs=0.08)
    with pytest.raises(TooFewPointsError, match="at least 3"):
        quality_curves(X[:2], Y[:2])
