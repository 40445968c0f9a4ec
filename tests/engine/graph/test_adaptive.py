"""Neighborhoods that drop candidates off the tangent plane."""

import math
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glle_engine import Posterior, fit, manifolds
from glle_engine.base.errors import DisconnectedGraphError
from glle_engine.graph.adaptive import kept_candidates, kept_of_new
from glle_engine.graph.neighbors import kneighbors


@pytest.fixture(scope="module")
def roll() -> manifolds.Manifold:
    """Return a Swiss roll sampled so thinly that points on two turns are among each other's 20 nearest."""
    return manifolds.make("swiss_roll", 600, seed=0)


@pytest.fixture(scope="module")
def adaptive_posterior(roll: manifolds.Manifold) -> Posterior:
    """Return the posterior of the roll with adaptive neighborhoods."""
    return fit(roll.X, n_neighbors=20, neighborhoods="adaptive")


def kept_of(posterior: Posterior) -> NDArray[np.bool_]:
    """Return the mask (n, k) of the candidates that are neighbors."""
    assert posterior.distribution.kept is not None
    return posterior.distribution.kept


def jumps(roll: manifolds.Manifold, neighbors: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return the mask (n, k) of the edges that lead to another turn of the roll."""
    arc = roll.coordinates[:, 0]  # once round is 49 at least
    return np.asarray(np.abs(arc[neighbors] - arc[:, None]) > 20)


def test_short_circuits_are_dropped(roll: manifolds.Manifold, adaptive_posterior: Posterior) -> None:
    """Edges between two turns are dropped, nearly all others kept; figures and a note count the points with fewer."""
    bad = jumps(roll, adaptive_posterior.neighbors)
    kept = kept_of(adaptive_posterior)
    assert bad.sum() > 50
    assert (bad & kept).sum() == 0
    assert kept[~bad].mean() > 0.98
    figures, count = adaptive_posterior.diagnostics.figures, kept.sum(axis=1)
    assert figures["kept_neighbors"] == [count.min(), np.median(count), 20]
    assert figures["reduced_neighborhoods"] == (count < 20).sum() > 0
    assert "reduced-neighborhoods" in {note.code for note in adaptive_posterior.diagnostics.notes}


def test_a_flat_sheet_keeps_everything() -> None:
    """If all neighborhoods are flat, none is reduced, and the posterior equals the one with fixed neighborhoods."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    X = np.concatenate([rng.random((300, 2)), np.zeros((300, 1))], axis=1) @ turn
    stages: list[tuple[int, int, str]] = []
    fixed, adapted = fit(X), fit(X, neighborhoods="adaptive", on_progress=lambda *stage: stages.append(stage))
    assert kept_of(adapted).all()
    assert [stage[:2] for stage in stages if stage[2] == "neighborhoods"] == [(0, fixed.spec.n_neighbors - 4)]
    np.testing.assert_allclose(adapted.mean, fixed.mean, atol=1e-14)
    np.testing.assert_allclose(adapted.draw(0).embedding, fixed.draw(0).embedding, atol=1e-7)


@pytest.mark.parametrize(
    "options", [{}, {"variance": "ml"}, {"method": "direct"}, {"method": "direct", "mean": "derived"}]
)
def test_dropped_candidates_have_no_weight(roll: manifolds.Manifold, options: dict[str, Any]) -> None:
    """Their weights are exactly 0 in the mean, in every draw and in the covariance, and all rows sum to one."""
    posterior = fit(roll.X, n_neighbors=20, neighborhoods="adaptive", **options)
    dropped = ~kept_of(posterior)
    assert dropped.any()
    drawn = [posterior.weights(1), posterior.weights(2, source="prior"), posterior.weights(3, scale=9.0)]
    for weights in (posterior.mean, *drawn):
        assert not weights[dropped].any()
        np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-11)
    factor = posterior.covariance_factor
    assert not factor[dropped].any()
    np.testing.assert_allclose(factor.sum(axis=1), 0, atol=1e-9 * np.abs(factor).max())


def test_the_posterior_of_one_neighborhood(roll: manifolds.Manifold, adaptive_posterior: Posterior) -> None:
    """Mean and covariance of a point are computed from its kept neighbors alone."""
    kept = kept_of(adaptive_posterior)
    point = int(np.argmin(kept.sum(axis=1)))
    columns = np.flatnonzero(kept[point])
    k = len(columns)
    assert k < 20
    differences = roll.X[adaptive_posterior.neighbors[point, columns]] - roll.X[point]
    gram = differences @ differences.T
    inverse = np.linalg.inv(gram + 1e-3 * np.trace(gram) * np.eye(k))
    total = inverse.sum()
    np.testing.assert_allclose(adaptive_posterior.mean[point, columns], inverse.sum(axis=0) / total, atol=1e-10)
    noise = 1e-3 * np.trace(gram) / (k * (k + 1))
    covariance = noise * (inverse - np.outer(inverse.sum(axis=0), inverse.sum(axis=0)) / total)
    factor = adaptive_posterior.covariance_factor[point][columns]
    np.testing.assert_allclose(factor @ factor.T, covariance, atol=1e-9)


def test_a_graph_that_falls_apart_is_refused_or_bridged(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the dropped edges cut the data in two, the error names the possible cause, or the halves are bridged."""
    X = np.random.default_rng(3).uniform(0, 1, (300, 2))
    left = X[:, 0] < 0.5

    def apart(_: Any, nearest: NDArray[np.int32], *__: Any) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        return np.asarray(left[nearest] == left[:, None]), np.ones(nearest.shape[1] + 1)

    adjacent = kneighbors(X, 12)[0]
    X = X[left[adjacent[:, 0]] == left]  # so that the nearest is always of one's own half
    left = X[:, 0] < 0.5
    monkeypatch.setattr(import_module("glle_engine.posterior.fit"), "kept_candidates", apart)
    with pytest.raises(DisconnectedGraphError) as caught:
        fit(X, n_neighbors=12, neighborhoods="adaptive", disconnected="error")
    assert "adaptive" in caught.value.remedy
    bridged = fit(X, n_neighbors=12, neighborhoods="adaptive")
    kept, bridges = kept_of(bridged), bridged.diagnostics.figures["bridges"]
    assert bridges
    for start, end in bridges:
        assert left[start] != left[end]
        assert kept[start, bridged.neighbors[start] == end].all()
    assert all(len(set(row)) == 12 for row in bridged.neighbors.tolist())
    assert math.isfinite(bridged.draw(0).eigenvalues[0])


def test_held_out_points_have_no_edge_to_another_turn(roll: manifolds.Manifold, adaptive_posterior: Posterior) -> None:
    """New points lose the candidates that they would lose as training points, by the thresholds of the fit."""
    nearest = kneighbors(roll.X, 20)[0]
    kept, thresholds = kept_candidates(roll.X, nearest, 2)
    np.testing.assert_array_equal(kept_of_new(roll.X, roll.X, nearest, thresholds, 2), kept)
    held = np.flatnonzero(jumps(roll, nearest).any(axis=1))[::4]  # few, so that gaps stay small
    training = np.setdiff1d(np.arange(len(roll.X)), held)
    posterior = fit(roll.X[training], n_neighbors=20, neighborhoods="adaptive")
    extension = posterior.extend(roll.X[training], roll.X[held])
    arc = roll.coordinates[:, 0]
    across = np.abs(arc[training][extension.neighbors] - arc[held, None]) > 20
    assert across.any()
    assert not extension.weights[across].any()
    np.testing.assert_array_equal(adaptive_posterior.transform(roll.X, roll.X[:7]), adaptive_posterior.embedding[:7])
