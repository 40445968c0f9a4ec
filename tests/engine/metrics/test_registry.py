"""Scores of embeddings, and their errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_blobs
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score
from sklearn.neighbors import KNeighborsClassifier

from glle_engine import manifolds
from glle_engine.base.errors import (
    DegenerateDataError,
    DisconnectedGraphError,
    GlleError,
    InvalidParameterError,
    InvalidShapeError,
    NotFiniteError,
)
from glle_engine.methods import METHODS
from glle_engine.metrics import ranks
from glle_engine.metrics.ranks import affine_r_squared
from glle_engine.metrics.registry import SCORES, neighborhood_hit, score
from glle_engine.metrics.residual_variance import residual_variance

N = 60
SHEET = manifolds.make("swiss_roll", N, seed=1)
LABELS = np.arange(N) % 3


def test_every_score_of_one_embedding() -> None:
    """In the order of the names, finite, the same to the bit, with progress reports."""
    stages: list[str] = []
    names = list(reversed(SCORES))
    found = score(
        SHEET.X,
        SHEET.coordinates,
        names,
        labels=LABELS,
        truth=SHEET.coordinates,
        on_progress=lambda *scores: stages.append(scores[2]),
    )
    assert list(found) == names
    assert all(type(value) is float and np.isfinite(value) for value in found.values())
    assert set(stages) >= {"scores", "gplvm", "geodesics"}
    assert found["procrustes"] == pytest.approx(0, abs=1e-12)
    assert found["trustworthiness"] == ranks.trustworthiness(SHEET.X, SHEET.coordinates)
    assert found["continuity"] == ranks.continuity(SHEET.X, SHEET.coordinates)
    assert found == score(SHEET.X, SHEET.coordinates, names, labels=LABELS, truth=SHEET.coordinates)


@pytest.mark.parametrize("one", SCORES.values(), ids=SCORES)
def test_the_better_embedding_scores_better(one: Any) -> None:
    """The sheet laid flat beats its points in another order, the way that the score says is better."""
    sheet = manifolds.make("s_curve", N, seed=1)
    labels = (sheet.coordinates[:, 0] > 0).astype(int)
    shuffled = np.random.default_rng(0).permutation(sheet.coordinates)
    good, bad = (
        score(sheet.X, Y, [one.name], n_neighbors=6, labels=labels, truth=sheet.coordinates)[one.name]
        for Y in (sheet.coordinates, shuffled)
    )
    assert good > bad if one.better == "higher" else good < bad


@pytest.mark.parametrize("one", SCORES.values(), ids=SCORES)
def test_is_reported(one: Any) -> None:
    """Every score says what it is, what it needs, which way is better and how it grows."""
    assert SCORES[one.name] is one
    assert all((one.title, one.about.endswith("."), one.growth))
    assert one.needs in {"nothing", "labels", "truth"}
    assert one.better in {"higher", "lower"}


def test_neighborhood_hit_is_what_a_classifier_votes() -> None:
    """The mean probability that the nearest neighbors give to the own label; words are labels too."""
    Y, labels = make_blobs(90, centers=3, cluster_std=4.0, random_state=2)
    votes = KNeighborsClassifier(6).fit(Y, labels)
    nearest = votes.kneighbors(return_distance=False)  # the point itself left out
    expected = np.mean(labels[nearest] == labels[:, None])
    assert 0.3 < neighborhood_hit(Y, labels, 6) < 1
    assert neighborhood_hit(Y, labels, 6) == pytest.approx(expected)
    words = np.array(["red", "green", "blue"])[labels]
    assert score(Y, Y, ["neighborhood_hit"], n_neighbors=6, labels=words)["neighborhood_hit"] == pytest.approx(expected)


def test_residual_variance_of_a_flat_sheet_is_that_of_its_graph() -> None:
    """All pairs, against numpy's correlation with the shortest ways that another program finds."""
    from scipy.sparse.csgraph import floyd_warshall  # noqa: PLC0415 -- this test alone
    from sklearn.neighbors import kneighbors_graph  # noqa: PLC0415 -- an extra

    Y = np.random.default_rng(3).uniform(size=(80, 2))
    graph = kneighbors_graph(Y, 8, mode="distance").toarray()
    along = floyd_warshall(np.maximum(graph, graph.T))
    straight = np.linalg.norm(Y[:, None] - Y, axis=2)
    pairs = np.triu_indices(80, 1)
    expected = 1 - np.corrcoef(along[pairs], straight[pairs])[0, 1] ** 2
    assert residual_variance(Y, Y, 8) == pytest.approx(expected, rel=1e-9)
    assert 0 < expected < 0.05


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), unit=st.integers(-460, 490), other=st.integers(-460, 490))
def test_residual_variance_has_one_definition_in_every_unit(seed: int, unit: int, other: int) -> None:
    """Paths that are straight and Isomap's own give one number; units of 2^u change no bit."""
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((30, 3)), rng.standard_normal((30, 2))
    whole = residual_variance(X, Y, 29)  # every pair is an edge: the shortest path is the straight line
    pairs = np.triu_indices(30, 1)
    a, b = (np.linalg.norm(points[:, None] - points, axis=2)[pairs] for points in (X, Y))
    assert whole == pytest.approx(1 - np.corrcoef(a, b)[0, 1] ** 2, abs=1e-12)
    isomap = METHODS["isomap"].embed(X, METHODS["isomap"].spec(n_neighbors=29))
    assert isomap.figures["residual_variance"] == pytest.approx(residual_variance(X, isomap.Y, 29))
    assert residual_variance(X * 2.0**unit, Y * 2.0**other, 29) == whole


def test_residual_variance_from_landmarks_is_near_that_of_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the exact size a fixed sample stands for all; equal points are no obstacle."""
    sheet = manifolds.make("swiss_roll", 600, seed=0)
    X = np.concatenate([sheet.X, sheet.X[:5]])
    Y = np.concatenate([sheet.coordinates, sheet.coordinates[:5]])
    exact = residual_variance(X, Y, 8)
    monkeypatch.setattr("glle_engine.metrics.residual_variance.EXACT_POINTS", 500)
    monkeypatch.setattr("glle_engine.metrics.residual_variance.LANDMARKS", 150)
    sampled = residual_variance(X, Y, 8)
    assert sampled == residual_variance(X, Y, 8)
    assert sampled != exact
    assert sampled == pytest.approx(exact, abs=0.05)


def test_procrustes_to_a_truth_of_another_width() -> None:
    """The embedding of a line is padded with zeros to a plane."""
    line = np.linspace(0, 1, 20)[:, None]
    plane = np.concatenate([line * 0.6, line * 0.8], axis=1)
    assert score(plane, plane, ["procrustes"], truth=line)["procrustes"] == pytest.approx(0, abs=1e-12)


def test_affine_r2_of_hessian_lle() -> None:
    """A roll laid flat with unit covariance is an affine image of the truth, far from it by Procrustes."""
    roll = manifolds.make("swiss_roll", 1000, seed=0)
    found = METHODS["hessian-lle"].embed(roll.X, METHODS["hessian-lle"].spec(n_neighbors=10)).Y
    scores = score(roll.X, found, ["affine_r2", "procrustes"], truth=roll.coordinates)
    assert scores["affine_r2"] > 0.999
    assert scores["procrustes"] == pytest.approx(0.272, abs=0.01)


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 4))
def test_affine_r2_is_that_of_a_linear_regression(seed: int, p: int, q: int) -> None:
    """Whatever the widths, it is scikit-learn's, and an invertible affine map of the embedding changes nothing."""
    rng = np.random.default_rng(seed)
    Y = rng.standard_normal((30, p))
    truth = Y @ rng.standard_normal((p, q)) + rng.standard_normal((30, q)) + 5
    predicted = LinearRegression().fit(Y, truth).predict(Y)
    found = affine_r_squared(Y, truth)
    assert found == pytest.approx(r2_score(truth, predicted, multioutput="variance_weighted"), abs=1e-12)
    turned = np.linalg.qr(rng.standard_normal((p, p)))[0] * 10.0 ** rng.integers(-3, 4, p)
    assert affine_r_squared(Y @ turned - 3, truth) == pytest.approx(found, abs=1e-9)
    assert affine_r_squared(truth @ rng.standard_normal((q, q)), truth) == pytest.approx(1, abs=1e-9)


def test_affine_r2_of_a_collapsed_embedding() -> None:
    """A column that is constant, or a copy of another, explains nothing more."""
    Y = SHEET.coordinates[:, :1]
    alone = affine_r_squared(Y, SHEET.coordinates)
    assert 0 < alone < 1
    assert affine_r_squared(np.concatenate([Y, Y, np.ones_like(Y)], axis=1), SHEET.coordinates) == pytest.approx(alone)


@pytest.mark.parametrize(
    ("names", "options", "error"),
    [
        (["nope"], {}, InvalidParameterError),
        (["continuity", "continuity"], {}, InvalidParameterError),
        (["neighborhood_hit"], {}, InvalidParameterError),
        (["procrustes"], {}, InvalidParameterError),
        (["trustworthiness"], {"n_neighbors": N // 2}, InvalidParameterError),
        (["residual_variance"], {"n_neighbors": N}, InvalidParameterError),
        (["residual_variance"], {"n_neighbors": 0}, InvalidParameterError),
        (["neighborhood_hit"], {"labels": LABELS[:-1]}, InvalidShapeError),
        (["neighborhood_hit"], {"labels": LABELS * 0.5}, InvalidShapeError),
        (["procrustes"], {"truth": SHEET.coordinates[:-1]}, InvalidShapeError),
        (["procrustes"], {"truth": np.full((N, 2), np.nan)}, NotFiniteError),
        (["procrustes"], {"truth": np.ones((N, 2))}, DegenerateDataError),
    ],
)
def test_refuses_with_a_remedy(names: list[str], options: dict[str, Any], error: type[GlleError]) -> None:
    """Unknown names, missing inputs, and mismatched ones."""
    with pytest.raises(error) as caught:
        score(SHEET.X, SHEET.coordinates, names, **options)
    assert caught.value.remedy


def test_refuses_embeddings_that_do_not_belong_to_the_data() -> None:
    """Another length, all points equal, or too many for the likelihood."""
    with pytest.raises(InvalidShapeError):
        score(SHEET.X, SHEET.coordinates[1:], ["continuity"])
    with pytest.raises(InvalidShapeError):
        residual_variance(SHEET.X, SHEET.coordinates[1:])
    with pytest.raises(DegenerateDataError):
        score(SHEET.X, np.ones((N, 2)), ["continuity"])
    big = np.arange(4002.0).reshape(2001, 2)
    with pytest.raises(InvalidParameterError, match="at most 2,000 points"):
        score(big, big, ["gplvm"])


def test_residual_variance_refuses_what_has_no_distances() -> None:
    """Two clusters have no way between them; three points at one distance do not vary."""
    apart = np.concatenate([SHEET.X, SHEET.X + 1e4])
    with pytest.raises(DisconnectedGraphError, match="smallest n_neighbors"):
        score(apart, apart, ["residual_variance"], n_neighbors=8)
    with pytest.raises(DegenerateDataError, match="nothing varies"):
        score(np.eye(3), np.eye(3), ["residual_variance"], n_neighbors=2)
