"""The extensions of LLE that choose for the user, set points aside, or add them later."""

from typing import Any

import numpy as np
import pytest

from glle_engine import manifolds
from glle_engine.base.errors import DisconnectedGraphError, TooFewPointsError
from glle_engine.base.progress import silent
from glle_engine.graph.neighbors import kneighbors
from glle_engine.linalg.procrustes import disparity
from glle_engine.methods import METHODS
from glle_engine.methods.lle_variants.adjusted_lle import reliability, residual_ridge
from glle_engine.metrics.ranks import trustworthiness
from glle_engine.weights.lle import neighborhoods
from tests.engine.methods.reference import codes_of, embed


@pytest.fixture(scope="module")
def saddle() -> np.ndarray:
    """Return 400 points of a saddle twice as long as wide, whose bottom spectrum is not crowded."""
    plane = np.random.default_rng(1).uniform(-1, 1, (400, 2)) * [1.3, 1.0]
    return np.column_stack([plane, 0.4 * (plane[:, 0] ** 2 - plane[:, 1] ** 2)])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("robust-lle", {"min_reliability": 0.0}),
        ("auto-k-lle", {"k_least": 10, "k_most": 10}),
        ("auto-reg-lle", {"reg_least": 1e-3, "reg_most": 1e-3}),
        ("incremental-lle", {"initial_share": 1.0}),
    ],
)
def test_limits_are_lle(saddle: np.ndarray, name: str, options: dict[str, Any]) -> None:
    """Without outliers, with one k, with one ridge, or with all points initial, the result has the bits of LLE."""
    embedding = embed(name, saddle, **options)
    assert np.array_equal(embed("lle", saddle).Y, embedding.Y)
    assert not embedding.notes


def with_outliers(n: int, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a roll of n points, of which `count` are moved anywhere in its bounding box, and their indices."""
    X = manifolds.make("swiss_roll", n, seed=seed).X
    rng = np.random.default_rng(seed)
    moved = np.sort(rng.choice(n, count, replace=False))
    X[moved] = rng.uniform(X.min(axis=0), X.max(axis=0), (count, 3))
    return X, moved


@pytest.mark.parametrize("seed", [0, 1])
def test_outliers_are_found_and_the_rest_unharmed(seed: int) -> None:
    """Most moved points are found as outliers, few others; the inliers have the embedding of LLE without outliers."""
    X, moved = with_outliers(800, 30, seed)
    inliers = np.setdiff1d(np.arange(800), moved)
    embedding = embed("robust-lle", X)
    outliers = embedding.figures["outliers"]
    assert np.isin(moved, outliers).mean() > 0.7
    assert embedding.figures["n_outliers"] == len(outliers) < 30 + 0.02 * 800
    assert "outliers-placed" in codes_of(embedding)
    lost = 1 - trustworthiness(X[inliers], embed("lle", X).Y[inliers])
    assert 1 - trustworthiness(X[inliers], embedding.Y[inliers]) < 0.2 * lost
    assert lost > 0.05
    kept = np.setdiff1d(np.arange(800), outliers)
    assert np.array_equal(embed("lle", X[kept]).Y, embedding.Y[kept])
    assert np.abs(embedding.Y).max() < 2 * np.abs(embedding.Y[kept]).max()


def test_a_point_off_the_plane_loses_its_weight() -> None:
    """A point off the plane of all others is the least reliable; without it all weights are equal."""
    X = np.column_stack([np.random.default_rng(2).random((30, 2)), np.zeros(30)])
    nearest = kneighbors(X, 10)[0]
    reliable, unsettled = reliability(X, nearest, 2, 30, silent)
    assert np.allclose(np.bincount(nearest.ravel(), minlength=30) / 10, reliable)
    assert unsettled == 0
    X[4, 2] = 0.3
    reliable, _ = reliability(X, kneighbors(X, 29)[0], 2, 100, silent)
    assert reliable[4] < 0.2 < 0.9 * np.delete(reliable, 4).min()
    noisy = X + 0.1 * np.random.default_rng(0).standard_normal(X.shape)
    assert "planes-unsettled" in codes_of(embed("robust-lle", noisy, max_iter=1))


def test_outliers_that_cannot_be_left_out_are_reported(saddle: np.ndarray) -> None:
    """Too many outliers, or outliers that connect two clouds, raise an error with a remedy."""
    with pytest.raises(TooFewPointsError, match="Lower min_reliability"):
        embed("robust-lle", saddle[:40], min_reliability=0.999, n_neighbors=30)
    rng = np.random.default_rng(0)
    bridge = np.column_stack([np.linspace(1.5, 5.5, 4), np.full((4, 2), 0.5)])
    X = np.concatenate([rng.random((60, 3)), bridge, rng.random((60, 3)) + np.array([6.0, 0.0, 0.0])])
    assert np.isfinite(embed("robust-lle", X, min_reliability=0.0, n_neighbors=6).Y).all()
    with pytest.raises(DisconnectedGraphError, match=r"After \d+ outliers were set aside.* A lower min_reliability"):
        embed("robust-lle", X, min_reliability=0.5, n_neighbors=6, disconnected="error")
    joined = embed("robust-lle", X, min_reliability=0.5, n_neighbors=6)
    assert np.isfinite(joined.Y).all()
    assert not set(joined.figures["outliers"]) & set(np.ravel(joined.figures["bridges"]))


def test_automatic_k_is_better_than_a_bad_one() -> None:
    """On a roll that needs small neighborhoods, the automatic k keeps more neighbors than k = 20."""
    roll = manifolds.make("swiss_roll", 400, seed=0)
    embedding = embed("auto-k-lle", roll.X, k_least=5, k_most=20)
    curve = embedding.figures["curve"]
    best = max(curve, key=lambda row: row["kept"])["n_neighbors"]
    assert embedding.figures["n_neighbors"] == best < 20
    assert np.array_equal(embed("lle", roll.X, n_neighbors=best).Y, embedding.Y)
    assert trustworthiness(roll.X, embedding.Y) > trustworthiness(roll.X, embed("lle", roll.X, n_neighbors=20).Y) + 0.02
    tried = METHODS["auto-k-lle"].spec(k_least=5, k_most=20).candidates()
    assert sorted([row["n_neighbors"] for row in curve] + embedding.figures["left_out"]) == list(tried)


def test_ridges_are_those_of_their_formulas() -> None:
    """The ridge of each point equals its formula, computed from singular values."""
    X = np.random.default_rng(0).standard_normal((40, 6))
    neighbors = np.sort(kneighbors(X, 8)[0], axis=1)
    block = next(neighborhoods(X, neighbors))
    values = np.sort(np.linalg.svd(block.differences, compute_uv=False) ** 2, axis=1)[:, ::-1]
    assert np.allclose(values[:, 2:].sum(axis=1) / 6 / values.sum(axis=1), residual_ridge(block, 2))


def test_automatic_ridge_is_better_under_noise(saddle: np.ndarray) -> None:
    """On noisy bowls, automatic ridges keep more neighbors than .001; ridges at a bound have a note."""
    fixed, chosen = [], []
    for seed in range(2):
        X = manifolds.make("severed_bowl", 500, noise=0.04, seed=seed).X
        embedding = embed("auto-reg-lle", X, n_neighbors=12)
        fixed.append(trustworthiness(X, embed("lle", X, n_neighbors=12).Y))
        chosen.append(trustworthiness(X, embedding.Y))
        assert 1e-3 < embedding.figures["reg_median"] <= embedding.figures["reg_95"]
    assert np.mean(chosen) > np.mean(fixed) + 0.02
    clean = embed("auto-reg-lle", manifolds.make("severed_bowl", 500, seed=3).X, n_neighbors=12)
    assert clean.figures["reg_median"] < embedding.figures["reg_median"]
    bounded = embed("auto-reg-lle", saddle, reg_least=0.1, reg_most=0.2)
    assert codes_of(bounded) == ["ridge-at-bound"]
    assert bounded.figures["at_reg_least"] > 200


def test_additions_are_near_where_all_at_once_would_be(saddle: np.ndarray) -> None:
    """Embedding half of the points first gives nearly the embedding of all at once; the seed matters."""
    embedding = embed("incremental-lle", saddle, n_neighbors=12)
    assert disparity(embedding.Y, embed("lle", saddle, n_neighbors=12).Y) < 0.05
    assert embedding.figures["n_initial"] == 200
    assert not np.allclose(embedding.Y, embed("incremental-lle", saddle, n_neighbors=12, seed=1).Y)
    in_order = embed("incremental-lle", saddle, order="given", initial_share=0.6)
    assert np.array_equal(embed("lle", saddle[:240]).Y, in_order.Y[:240])
