"""Scores on pairs of points, compared with scipy, scikit-learn and the formulas."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr
from sklearn.metrics import silhouette_score

from glle_engine.base.errors import DegenerateDataError, InvalidParameterError, TooFewPointsError
from glle_engine.metrics import pairs, ranks
from glle_engine.metrics.registry import score

rng = np.random.default_rng(0)
X = rng.standard_normal((70, 4)) * [3.0, 2.0, 1.0, 0.5]
Y = np.round(X[:, :2] + 0.5 * rng.standard_normal((70, 2)), 1)  # some distances are equal
LABELS = np.where(X[:, 0] > 1, "right", np.where(X[:, 0] > 0, "middle", "left"))


def test_stress_follows_from_the_distances_of_scipy() -> None:
    """The stresses follow their formulas, and no unit of the embedding has less than the scaled stress."""
    expected, embedded = pdist(X), pdist(Y)
    raw = float(((expected - embedded) ** 2).sum())
    assert pairs.raw_stress(X, Y) == pytest.approx(raw, rel=1e-12)
    assert pairs.normalized_stress(X, Y) == pytest.approx(np.sqrt(raw / (expected**2).sum()), rel=1e-12)
    units = np.linspace(0.5, 2, 3001)
    grid = [np.sqrt(((unit * embedded - expected) ** 2).sum() / (expected**2).sum()) for unit in units]
    assert pairs.scaled_stress(X, Y) == pytest.approx(min(grid), rel=1e-6)
    assert pairs.scaled_stress(X, 1e3 * Y) == pytest.approx(pairs.scaled_stress(X, Y), rel=1e-9)
    assert pairs.raw_stress(X, X) == pairs.normalized_stress(X, X) == 0


def test_shepard_correlation_is_that_of_scipy() -> None:
    """The correlation equals scipy's, also with ties; distances that are all equal are refused."""
    assert len(np.unique(pdist(Y))) < len(pdist(Y))
    assert pairs.shepard_correlation(X, Y) == pytest.approx(spearmanr(pdist(X), pdist(Y)).statistic, rel=1e-12)
    with pytest.raises(DegenerateDataError, match=r"points of the \w+ are equal"):
        pairs.shepard_correlation(np.eye(3), np.zeros((3, 2)))


def test_points_at_one_place_have_no_relative_stress() -> None:
    """Equal points are refused if the stress would divide by 0."""
    place = np.ones((70, 2))
    assert pairs.normalized_stress(X, place) == 1
    for stress, data, embedding in (
        (pairs.scaled_stress, X, place),
        (pairs.scaled_stress, place, Y),
        (pairs.normalized_stress, place, Y),
    ):
        with pytest.raises(DegenerateDataError, match="are equal"):
            stress(data, embedding)


def test_silhouette_is_that_of_scikit_learn() -> None:
    """The silhouette equals scikit-learn's, also for words as labels; one label, or all different, are refused."""
    assert pairs.silhouette(Y, LABELS) == pytest.approx(silhouette_score(Y, LABELS), rel=1e-12)
    alone = np.where(np.arange(70) == 3, 7, np.arange(70) % 5)
    assert pairs.silhouette(Y, alone) == pytest.approx(silhouette_score(Y, alone), rel=1e-12)
    for labels in (np.zeros(70, int), np.arange(70)):
        with pytest.raises(InvalidParameterError, match="at least two labels"):
            pairs.silhouette(Y, labels)


def test_triplets_are_random_and_their_accuracy_is_that_of_all() -> None:
    """The accuracy of random triplets differs from that of all triplets by chance only."""
    few, places = X[:24], Y[:24]
    everything = np.array(list(permutations(range(24), 3)))

    def accuracy(triplets: Any) -> float:
        def is_nearer(points: Any) -> Any:
            i, j, k = triplets.T
            return np.linalg.norm(points[i] - points[j], axis=1) < np.linalg.norm(points[i] - points[k], axis=1)

        return float((is_nearer(few) == is_nearer(places)).mean())

    triplets = pairs.random_triplets(24)
    assert (triplets.shape, np.unique(triplets[:, 0]).size) == ((120, 3), 24)
    assert all(len(set(each)) == 3 for each in triplets.tolist())
    assert pairs.triplet_accuracy(few, places, triplets) == accuracy(triplets)
    assert abs(accuracy(triplets) - accuracy(everything)) < 3 * 0.5 / np.sqrt(len(triplets))
    counts = np.bincount(pairs.random_triplets(4000)[:, 1:].ravel(), minlength=4000)
    assert counts.max() < 35  # each row is drawn 10 times in the mean
    with pytest.raises(TooFewPointsError, match="at least 3"):
        pairs.random_triplets(2)


def test_many_points_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores of a sample of the points are near the scores of all points."""
    exact = {name: score(X, Y, [name], labels=LABELS)[name] for name in ("raw_stress", "shepard", "silhouette")}
    monkeypatch.setattr(pairs, "MAX_POINTS_OF_ALL_PAIRS", 60)
    monkeypatch.setattr(ranks, "MAX_POINTS_OF_ALL_PAIRS", 60)
    sampled = score(X, Y, list(exact), labels=LABELS)
    assert sampled != exact
    assert sampled == pytest.approx(exact, rel=0.15)
