"""Posteriors of distances, without coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits

from glle_engine import FitSpec, GlleError, fit, manifolds
from glle_engine.estimator import GLLE
from glle_engine.graph.neighbors import kneighbors
from glle_engine.graph.relations import Distances
from glle_engine.metrics.ranks import continuity, trustworthiness
from glle_engine.posterior.cost.estimate import estimate
from glle_engine.posterior.selection import advise
from glle_engine.reliability.calibration import calibrate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine import Posterior


@pytest.fixture(scope="module")
def points() -> NDArray[np.float64]:
    """Return a sheet (120, 3) whose embedding is trusted."""
    return manifolds.make("s_curve", 120, seed=1).X


@pytest.fixture(scope="module")
def posteriors(points: NDArray[np.float64]) -> tuple[Posterior, Posterior]:
    """Return the posteriors of points and of their distances."""
    return fit(points), fit(cdist(points, points), metric="precomputed")


def test_distances_determine_the_posterior(posteriors: tuple[Posterior, Posterior]) -> None:
    """Mean, covariance, embedding and figures are those of the points, to rounding."""
    a, b = posteriors
    np.testing.assert_array_equal(a.neighbors, b.neighbors)
    np.testing.assert_allclose(b.mean, a.mean, atol=1e-9)
    np.testing.assert_allclose(b.covariance_factor, a.covariance_factor, atol=1e-9)
    np.testing.assert_allclose(b.embedding, a.embedding, atol=1e-7)
    np.testing.assert_allclose(b.draw(3, seed=1).embedding, a.draw(3, seed=1).embedding, atol=1e-7)
    dimensions = [fitted.diagnostics.figures["residual_dimension"] for fitted in posteriors]
    assert dimensions[1] == pytest.approx(dimensions[0], rel=1e-6)
    assert b.diagnostics.figures["non_euclidean_neighborhoods"] == 0
    assert [note.code for note in b.diagnostics.notes] == [note.code for note in a.diagnostics.notes]


def test_new_points_by_their_distances(points: NDArray[np.float64], posteriors: tuple[Posterior, Posterior]) -> None:
    """Their rows are distances to the training points; training points keep their places."""
    a, b = posteriors
    D = cdist(points, points)
    np.testing.assert_array_equal(b.transform(D, D), b.embedding)
    new = points[:40] + 0.01
    placed = b.extend(D, cdist(new, points))
    np.testing.assert_allclose(placed.embed(b.embedding), a.transform(points, new), atol=1e-6)
    np.testing.assert_allclose(placed.distances, a.extend(points, new).distances)
    with pytest.raises(GlleError, match="the distances to the training points"):
        b.transform(D, new)
    with pytest.raises(GlleError, match="is negative"):
        b.transform(D, -cdist(new, points))
    with pytest.raises(GlleError, match="generate no data"):
        b.reconstruct(D, b.weights(0))


def test_calibration_advice_estimate_and_ranks(
    points: NDArray[np.float64], posteriors: tuple[Posterior, Posterior]
) -> None:
    """Half-samples, curves, costs and trustworthiness need distances only."""
    a, b = posteriors
    D = cdist(points, points)
    first, second = calibrate(a, points, n_half_samples=4, n_draws=4), calibrate(b, D, n_half_samples=4, n_draws=4)
    assert second.scale == pytest.approx(first.scale, rel=1e-4)
    np.testing.assert_allclose(second.half_sample_spread, first.half_sample_spread, rtol=1e-4)
    advice, other = advise(points, n_neighbors=(8, 10)), advise(D, n_neighbors=(8, 10), metric="precomputed")
    assert other.n_neighbors == advice.n_neighbors
    for row, same in zip(other.neighbors_curve, advice.neighbors_curve, strict=True):
        assert row.trustworthiness == pytest.approx(same.trustworthiness, abs=1e-9)
        assert row.continuity == pytest.approx(same.continuity, abs=1e-9)
        assert row.reconstruction_error == pytest.approx(same.reconstruction_error, rel=1e-6)
    assert estimate(D, metric="precomputed").fit.seconds > 0
    among = Distances.among(D)
    for score in (trustworthiness, continuity):
        assert score(among, a.embedding) == pytest.approx(score(points, a.embedding), abs=1e-9)


def test_ties_are_broken_by_index() -> None:
    """As among points: neighbors of a grid."""
    X = np.stack(np.meshgrid(np.arange(9.0), np.arange(9.0)), axis=-1).reshape(-1, 2)
    D = np.sqrt((X[:, None, 0] - X[None, :, 0]) ** 2 + (X[:, None, 1] - X[None, :, 1]) ** 2)
    for a, b in zip(kneighbors(Distances.among(D), 6), kneighbors(X, 6), strict=True):
        np.testing.assert_array_equal(a, b)


def test_distances_of_no_points_are_noted() -> None:
    """City-block distances of the digits: the nearest Gram matrices replace the others, and the note has the share."""
    X = load_digits().data[:300]
    posterior = fit(cdist(X, X, "cityblock"), metric="precomputed", disconnected="bridge")
    figures = posterior.diagnostics.figures
    assert figures["non_euclidean_neighborhoods"] > 100
    assert 0.001 < figures["non_euclidean_share"] < 0.5
    (message,) = [n.message for n in posterior.diagnostics.notes if n.code == "non-euclidean-distances"]
    assert "try the roots" in message
    roots = fit(np.sqrt(cdist(X, X, "cityblock")), metric="precomputed", disconnected="bridge")  # of points: L1 embeds
    assert roots.diagnostics.figures["non_euclidean_neighborhoods"] == 0


def test_the_nearest_gram_matrix_has_no_negative_eigenvalues() -> None:
    """It keeps the eigenvectors and the positive eigenvalues."""
    D = np.random.default_rng(0).random((30, 30)) + 0.1
    D += D.T
    np.fill_diagonal(D, 0.0)
    among = Distances.among(D)
    nearest = among.nearest(6, lambda *_: None)[0]
    gram = among.gram(slice(0, 30), nearest)
    own = np.take_along_axis(D, nearest.astype(int), axis=1) ** 2
    raw = (own[:, :, None] + own[:, None, :] - D[nearest[:, :, None], nearest[:, None, :]] ** 2) / 2
    values, vectors = np.linalg.eigh(raw)
    assert values.min() < -0.01
    np.testing.assert_allclose(
        gram, (vectors * np.maximum(values, 0)[:, None]) @ vectors.transpose(0, 2, 1), atol=1e-12
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda D: D[:, :-1], "is square, not 30 x 29"),
        (lambda D: np.where(np.arange(900).reshape(30, 30) == 31, 1.0, D), "is on the diagonal and not 0"),
        (lambda D: np.where(np.arange(900).reshape(30, 30) == 5, 9.0, D), "differs from its mirror image"),
        (lambda D: -D, "is negative"),
        (lambda D: 0 * D, "are equal"),
    ],
)
def test_other_matrices_are_refused(change: Any, words: str) -> None:
    """With the first wrong entry."""
    X = np.random.default_rng(0).random((30, 3))
    with pytest.raises(GlleError, match=words):
        fit(change(cdist(X, X)), metric="precomputed")


@pytest.mark.parametrize(
    "parameters",
    [
        {"variant": "published"},
        {"noise": "tangent"},
        {"neighborhoods": "adaptive"},
        {"landmarks": 20},
        {"standardize": "zscore"},
        {"search": "approximate"},
    ],
)
def test_options_that_need_coordinates_are_refused(parameters: dict[str, Any]) -> None:
    """Before any computation, with the needed value."""
    with pytest.raises(GlleError, match="metric='precomputed'") as caught:
        FitSpec(metric="precomputed", **parameters)
    assert caught.value.remedy


def test_parts_of_the_graph_are_bridged_by_distances() -> None:
    """The shortest edges between the parts are those of the points."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.random((40, 2)), rng.random((40, 2)) + 5])
    a = fit(X, n_neighbors=6, disconnected="bridge")
    b = fit(cdist(X, X), n_neighbors=6, disconnected="bridge", metric="precomputed")
    assert a.diagnostics.figures["bridges"] == b.diagnostics.figures["bridges"]
    with pytest.raises(GlleError, match="falls into 2 components"):
        fit(cdist(X, X), n_neighbors=6, metric="precomputed", disconnected="error")


def test_the_estimator_takes_distances(points: NDArray[np.float64]) -> None:
    """It is then pairwise for scikit-learn."""
    D = cdist(points, points)
    model = GLLE(metric="precomputed").fit(D)
    assert model.__sklearn_tags__().input_tags.pairwise
    np.testing.assert_array_equal(model.transform(D[:5]), model.embedding_[:5])
