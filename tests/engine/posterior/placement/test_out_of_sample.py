"""New points and generated data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glle_engine import fit, manifolds
from glle_engine.base import errors
from glle_engine.graph.neighbors import kneighbors
from glle_engine.posterior.placement.out_of_sample import attach
from glle_engine.weights.tangent import frame_weights, tangent_frames
from tests.engine.eigen.dense_reference import normals_by_numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine import Posterior


def test_training_points_get_exactly_their_own_embedding(sheet: NDArray[np.float64], posterior: Posterior) -> None:
    """All of them, to the last bit."""
    np.testing.assert_array_equal(posterior.transform(sheet, sheet), posterior.embedding)


def test_training_points_in_many_features(wide: NDArray[np.float64]) -> None:
    """The same holds for the search by products."""
    fitted = fit(wide)
    np.testing.assert_array_equal(fitted.transform(wide, wide[50:60]), fitted.embedding[50:60])


@settings(max_examples=20)
@given(rows=st.lists(st.integers(0, 399), min_size=1, max_size=30), seed=st.integers(0, 99))
def test_the_batch_does_not_matter(
    sheet: NDArray[np.float64], posterior: Posterior, rows: list[int], seed: int
) -> None:
    """A point's answer is the same bits alone and beside any others."""
    new = sheet[rows] + 0.1 * np.random.default_rng(seed).standard_normal((len(rows), 3))
    together = posterior.transform(sheet, new)
    alone = np.concatenate([posterior.transform(sheet, point[None]) for point in new])
    assert together.tobytes() == alone.tobytes()


def test_exact_duplicates_get_the_mean_of_their_embeddings() -> None:
    """Duplicates have equal coordinates, so that both get the mean of their places."""
    X = manifolds.make("s_curve", 300, seed=4).X
    X[200], X[250] = X[10], X[10]
    fitted = fit(X)
    same = [10, 200, 250]
    placed = fitted.transform(X, X)
    np.testing.assert_allclose(placed[same], np.tile(fitted.embedding[same].mean(axis=0), (3, 1)), atol=1e-14)
    others = np.setdiff1d(np.arange(300), same)
    np.testing.assert_array_equal(placed[others], fitted.embedding[others])


def test_a_left_out_point_has_the_weights_of_tangent_noise(sheet: NDArray[np.float64]) -> None:
    """A new point gets the weights that a fit with it would give it, whatever the noise."""
    neighbors = kneighbors(sheet, 10)[0][:1]
    frames = tangent_frames(sheet, 10, 2)[:1]
    expected = frame_weights(sheet, neighbors, frames, 1e-3, points=sheet[:1])
    extension = attach(sheet[1:], sheet[:1], 10, 1e-3, noise="tangent").extension()
    np.testing.assert_array_equal(extension.neighbors + 1, neighbors)
    np.testing.assert_allclose(extension.weights, expected, atol=1e-12)
    assert np.abs(attach(sheet[1:], sheet[:1], 10, 1e-3).extension().weights - expected).max() > 1e-3


def test_new_points_land_where_a_joint_fit_puts_them() -> None:
    """Held-out points come close to where LLE of all points has them."""
    X = manifolds.make("s_curve", 1000, seed=0).X
    everything, part = fit(X), fit(X[:900])
    placed = part.transform(X[:900], X[900:])
    both = np.concatenate([part.embedding, placed])
    design = np.concatenate([both, np.ones((1000, 1))], axis=1)
    linear = np.linalg.lstsq(design[:900], everything.embedding[:900], rcond=None)[0]
    off = (design[900:] @ linear - everything.embedding[900:]).std(axis=0)
    trained = (design[:900] @ linear - everything.embedding[:900]).std(axis=0)
    assert (off < 2 * trained + 0.02).all()


def test_spread_of_new_points(sheet: NDArray[np.float64], posterior: Posterior) -> None:
    """For training points the spread under draws is that of the draws; new points have one, too."""
    draws = list(posterior.draws(8))
    mean, covariance = posterior.extend(sheet, sheet[:5]).spread(draws, posterior.embedding)
    summary = posterior.summary(8)
    np.testing.assert_array_equal(mean, summary.consensus[:5])
    np.testing.assert_array_equal(covariance, summary.covariance[:5])
    extension = posterior.extend(sheet, sheet[:5] + 0.2)
    assert (np.trace(extension.spread(draws, posterior.embedding)[1], axis1=1, axis2=2) > 0).all()
    assert (extension.distances > 0).all()


def test_impossible_new_points(sheet: NDArray[np.float64], posterior: Posterior) -> None:
    """Wrong training data, other features and NaN are refused with the remedy."""
    with pytest.raises(errors.InvalidShapeError, match="fitted to"):
        posterior.transform(sheet[:-1], sheet)
    with pytest.raises(errors.InvalidShapeError, match="3 columns"):
        posterior.transform(sheet, sheet[:, :2])
    with pytest.raises(errors.NotFiniteError, match=r"\[1, 2\]"):
        posterior.transform(sheet, [[0.0, 0.0, 0.0], [0.0, 0.0, np.nan]])


def test_data_from_weights(sheet: NDArray[np.float64], posterior: Posterior) -> None:
    """x_i = X_i w_i: the mean's reconstruction is close to the data, a draw's is off it by X_i F_i z."""
    off = posterior.reconstruct(sheet, posterior.mean) - sheet
    radius = np.linalg.norm(sheet[posterior.neighbors] - sheet[:, None], axis=2).mean()
    assert np.linalg.norm(off, axis=1).mean() < 0.05 * radius
    factor = sheet[posterior.neighbors].transpose(0, 2, 1) @ posterior.covariance_factor
    for j in (0, 731):
        z = normals_by_numpy(5, j, posterior.neighbors.size).reshape(posterior.neighbors.shape)
        drawn = posterior.reconstruct(sheet, posterior.weights(j, seed=5, scale=0.25))
        expected = sheet + off + 0.5 * (factor @ z[:, :, None])[:, :, 0]
        np.testing.assert_allclose(drawn, expected, atol=1e-12 * np.abs(sheet).max())
    published = fit(sheet, variant="published")
    np.testing.assert_allclose(published.reconstruct(sheet, published.weights(0)), sheet, atol=1e-5)
