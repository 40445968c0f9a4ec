"""Extensions of LLE outside the registry: the property that each was made for."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from glle_engine import manifolds
from glle_engine.graph.neighbors import kneighbors
from glle_engine.methods import METHODS
from glle_engine.methods.lle_variants.extensions import relative_lle, relative_points, smoothed, smoothed_lle
from glle_engine.methods.spectral.lle import LleSpec
from glle_engine.metrics.ranks import trustworthiness


@pytest.mark.parametrize("gamma", [None, 0.01])
def test_a_point_off_the_data_becomes_the_neighbor_of_fewer(gamma: float | None) -> None:
    """Relative distances set outliers further apart from the data, in units of the usual distance of neighbors."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.uniform(-1, 1, (300, 2)), [[1.6, 0.0], [0.0, -1.7]]])

    def apart(points: np.ndarray) -> float:
        nearest = np.sort(cdist(points, points) + np.diag(np.full(len(points), np.inf)), axis=1)[:, 0]
        return float(nearest[-2:].mean() / np.median(nearest[:-2]))

    assert apart(relative_points(X, gamma)) > apart(X)
    chosen = [int((kneighbors(points, 8)[0] >= 300).sum()) for points in (relative_points(X, gamma), X)]
    assert chosen[0] <= chosen[1]


def test_relative_lle_is_lle_where_both_orders_of_neighbors_agree() -> None:
    """On an S-curve its map keeps the neighbors; one coordinate of an evenly spaced circle has equal neighbors."""
    angles = 2 * np.pi * np.arange(60) / 60
    ring = np.column_stack([np.cos(angles), np.sin(angles)]) * (1 + 1e-3 * np.random.default_rng(0).random((60, 1)))
    method = METHODS["lle"]
    embedding, plain = relative_lle(ring, LleSpec(n_neighbors=4)), method.embed(ring, method.spec(n_neighbors=4))
    assert embedding.eigenvalues is not None
    assert plain.eigenvalues is not None
    np.testing.assert_allclose(embedding.eigenvalues, plain.eigenvalues, rtol=0.5, atol=1e-6)
    X = manifolds.make("s_curve", 300, seed=1).X
    assert trustworthiness(X, relative_lle(X, LleSpec(), gamma=0.05).Y, 10) > 0.97


def test_smoothing_removes_noise_off_the_sheet() -> None:
    """Of a noisy plane most noise goes, a plane without noise stays, and LLE embeds the smoothed points."""
    rng = np.random.default_rng(0)
    plane = np.column_stack([rng.uniform(-1, 1, (400, 2)), np.zeros(400)])
    np.testing.assert_allclose(smoothed(plane, 10, 2), plane, atol=1e-12)
    noisy = plane + np.array([0, 0, 0.05]) * rng.standard_normal((400, 3))
    assert np.abs(smoothed(noisy, 16, 2)[:, 2]).mean() < 0.5 * np.abs(noisy[:, 2]).mean()
    embedding = smoothed_lle(noisy, LleSpec(n_neighbors=16))
    points = smoothed(noisy, 16, 2)
    expected = METHODS["lle"].embed(points, METHODS["lle"].spec(n_neighbors=16))
    np.testing.assert_allclose(embedding.Y, expected.Y, atol=1e-6)
