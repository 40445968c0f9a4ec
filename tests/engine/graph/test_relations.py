"""Posteriors of distances, without coordinates."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits

from glle_engine import GlleError, Posterior, fit, manifolds
from glle_engine.graph.relations import Distances
from glle_engine.methods import method as method_of
from glle_engine.metrics.ranks import continuity, trustworthiness
from glle_engine.reliability.calibration import calibrate


@pytest.fixture(scope="module")
def points() -> NDArray[np.float64]:
    """Return an S-curve (120, 3)."""
    return manifolds.make("s_curve", 120, seed=1).X


@pytest.fixture(scope="module")
def posteriors(points: NDArray[np.float64]) -> tuple[Posterior, Posterior]:
    """Return two posteriors, fitted to points and to the distances of these points."""
    return fit(points), fit(cdist(points, points), metric="precomputed")


def test_distances_determine_the_posterior(
    points: NDArray[np.float64], posteriors: tuple[Posterior, Posterior]
) -> None:
    """A fit to distances has the arrays, figures, calibration and ranks of the fit to the points, up to rounding."""
    a, b = posteriors
    D = cdist(points, points)
    np.testing.assert_array_equal(a.neighbors, b.neighbors)
    np.testing.assert_allclose(b.mean, a.mean, atol=1e-9)
    np.testing.assert_allclose(b.covariance_factor, a.covariance_factor, atol=1e-9)
    np.testing.assert_allclose(b.embedding, a.embedding, atol=1e-7)
    np.testing.assert_allclose(b.draw(3, seed=1).embedding, a.draw(3, seed=1).embedding, atol=1e-7)
    figures = b.diagnostics.figures
    assert figures["residual_dimension"] == pytest.approx(a.diagnostics.figures["residual_dimension"], rel=1e-6)
    assert figures["non_euclidean_neighborhoods"] == 0
    assert [note.code for note in b.diagnostics.notes] == [note.code for note in a.diagnostics.notes]
    first, second = (calibrate(one, X, n_resamples=4, n_draws=4) for one, X in ((a, points), (b, D)))
    assert second.scale == pytest.approx(first.scale, rel=1e-4)
    np.testing.assert_allclose(second.half_sample_spread, first.half_sample_spread, rtol=1e-4)
    for score in (trustworthiness, continuity):
        assert score(Distances.among(D), a.embedding) == pytest.approx(score(points, a.embedding), abs=1e-9)


def test_new_points_by_their_distances(points: NDArray[np.float64], posteriors: tuple[Posterior, Posterior]) -> None:
    """New points are given by their distances to training points; training points get their rows of the embedding."""
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
    far = cdist([points[0] + 1e9, points[1]], points)  # rounding decides which points are the nearest
    with pytest.raises(GlleError, match="new point in row 0 \\(counted from 0\\) lies"):
        b.transform(D, far)
    with pytest.raises(GlleError, match="would not be in the units of your data"):
        b.reconstruct(D, b.weights(0))


def test_distances_of_no_points_are_noted() -> None:
    """City-block distances, which no Euclidean points have, are fitted with a note on the non-Euclidean share."""
    X = load_digits().data[:300]
    posterior = fit(cdist(X, X, "cityblock"), metric="precomputed", disconnected="bridge")
    figures = posterior.diagnostics.figures
    assert figures["non_euclidean_neighborhoods"] > 100
    assert 0.001 < figures["non_euclidean_share"] < 0.5
    (message,) = [n.message for n in posterior.diagnostics.notes if n.code == "non-euclidean-distances"]
    assert "try the roots" in message


def test_the_nearest_gram_matrix_has_no_negative_eigenvalues() -> None:
    """Negative eigenvalues of the Gram matrices become 0; eigenvectors and positive eigenvalues stay."""
    D = np.random.default_rng(0).random((30, 30)) + 0.1
    D += D.T
    np.fill_diagonal(D, 0.0)
    among = Distances.among(D)
    nearest = among.nearest(6, lambda *_: None)[0]
    gram = among.gram(slice(0, 30), nearest)
    squares = np.take_along_axis(D, nearest.astype(int), axis=1) ** 2
    raw = (squares[:, :, None] + squares[:, None, :] - D[nearest[:, :, None], nearest[:, None, :]] ** 2) / 2
    values, vectors = np.linalg.eigh(raw)
    assert values.min() < -0.01
    np.testing.assert_allclose(
        gram, (vectors * np.maximum(values, 0)[:, None]) @ vectors.transpose(0, 2, 1), atol=1e-12
    )


@pytest.mark.parametrize(("factor", "words"), [(-1, "is negative"), (0, "are equal")])
def test_other_matrices_are_refused(points: NDArray[np.float64], factor: int, words: str) -> None:
    """Negative distances, and distances that are all 0, raise an error."""
    with pytest.raises(GlleError, match=words):
        fit(factor * cdist(points, points), metric="precomputed")


@pytest.mark.parametrize("method", ["lle", "isomap", "t-sne", "mds", "glle"])
def test_dissimilarities_below_zero_by_rounding_are_zero(points: NDArray[np.float64], method: str) -> None:
    """One minus a cosine may be -1e-16 between parallel points, and counts as 0."""
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    D = np.maximum(1 - unit @ unit.T, 0)
    below = np.where(D == 0, -1e-16, D)
    below[0, 1] = below[1, 0] = -3e-16
    D[0, 1] = D[1, 0] = 0
    assert (below < 0).sum() > 2
    chosen = method_of(method)
    spec = chosen.spec.from_dict({"dissimilarity" if method == "mds" else "metric": "precomputed"})
    unclipped, clipped = (chosen.embed(each, spec).Y for each in (below, D))
    np.testing.assert_array_equal(unclipped, clipped)


def test_new_distances_below_zero_by_rounding_are_zero(
    points: NDArray[np.float64], posteriors: tuple[Posterior, Posterior]
) -> None:
    """Distances of -1e-16 from new points to training points count as 0."""
    D = cdist(points, points)
    new = np.where(D[:9] == 0, -1e-16, D[:9])
    np.testing.assert_array_equal(posteriors[1].transform(D, new), posteriors[1].embedding[:9])


def test_parts_of_the_graph_are_bridged_by_distances() -> None:
    """A fit to distances has the bridges of the fit to the points."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.random((40, 2)), rng.random((40, 2)) + 5])
    a = fit(X, n_neighbors=6, disconnected="bridge")
    b = fit(cdist(X, X), n_neighbors=6, disconnected="bridge", metric="precomputed")
    assert a.diagnostics.figures["bridges"] == b.diagnostics.figures["bridges"]
