"""Extensions of LLE that change the data before the search: the property that each was made for."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from docs.figures import oracles
from glle_engine import manifolds
from glle_engine.graph.neighbors import kneighbors
from glle_engine.methods.lle_variants.extensions import relative_points, smoothed, virtual_points
from glle_engine.metrics.ranks import trustworthiness
from tests.engine.methods.reference import embed


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
    embedding, plain = embed("relative-lle", ring, n_neighbors=4), embed("lle", ring, n_neighbors=4)
    assert embedding.eigenvalues is not None
    assert plain.eigenvalues is not None
    np.testing.assert_allclose(embedding.eigenvalues, plain.eigenvalues, rtol=0.5, atol=1e-6)
    X = manifolds.make("s_curve", 300, seed=1).X
    assert trustworthiness(X, embed("relative-lle", X, gamma=0.05).Y, 10) > 0.97


@pytest.mark.parametrize("gamma", [None, 0.05])
def test_relative_lle_is_its_formula(gamma: float | None) -> None:
    """The neighbors are nearest by the rows of the matrix of all distances, or of the kernel's distances."""
    X = manifolds.make("s_curve", 150, seed=0).X
    embedding = embed("relative-lle", X, n_neighbors=8, gamma=gamma)
    assert oracles.difference(embedding.Y, oracles.relative_lle(X, 8, gamma)) < 1e-8


def test_smoothed_lle_is_its_formula() -> None:
    """Each point moves onto the plane through its neighborhood, and LLE embeds the moved points."""
    X = manifolds.make("s_curve", 150, noise=0.02, seed=0).X
    moved = oracles.smoothed(X, 8)
    expected = oracles.lle(moved, oracles.nearest(cdist(moved, moved), 8))
    assert oracles.difference(embed("smoothed-lle", X, n_neighbors=8).Y, expected) < 1e-7


def test_smoothing_removes_noise_off_the_sheet() -> None:
    """Of a noisy plane most noise goes, a plane without noise stays, and LLE embeds the smoothed points."""
    rng = np.random.default_rng(0)
    plane = np.column_stack([rng.uniform(-1, 1, (400, 2)), np.zeros(400)])
    np.testing.assert_allclose(smoothed(plane, 10, 2), plane, atol=1e-12)
    noisy = plane + np.array([0, 0, 0.05]) * rng.standard_normal((400, 3))
    assert np.abs(smoothed(noisy, 16, 2)[:, 2]).mean() < 0.5 * np.abs(noisy[:, 2]).mean()
    points = smoothed(noisy, 16, 2)
    expected = embed("lle", points, n_neighbors=16)
    np.testing.assert_allclose(embed("smoothed-lle", noisy, n_neighbors=16).Y, expected.Y, atol=1e-6)


def test_virtual_points_unfold_a_sparse_roll() -> None:
    """Of eight Swiss rolls of 200 points, most keep more neighbors with virtual points, and the mean rises clearly."""
    rolls = [manifolds.make("swiss_roll", 200, seed=seed) for seed in range(8)]
    virtual, plain = (
        np.array([trustworthiness(roll.coordinates, embed(name, roll.X).Y, 10) for roll in rolls])
        for name in ("virtual-lle", "lle")
    )
    assert (virtual > plain).sum() >= 6
    assert virtual.mean() > plain.mean() + 0.05


def test_virtual_points_lie_between_neighbors() -> None:
    """A foot outside of the segment, or at the point itself, is no virtual point."""
    corner = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    np.testing.assert_allclose(virtual_points(corner, 2), [[0.5, 0.5]])  # the others see their segment from its end
    assert virtual_points(np.arange(5.0)[:, None] * [1.0, 2.0], 2).shape == (0, 2)  # on the line itself


def test_virtual_lle_is_its_formula() -> None:
    """LLE of the points with the nearest foot on the segments between neighbors; the points' rows are returned."""
    X = manifolds.make("s_curve", 120, seed=0).X
    embedding = embed("virtual-lle", X, n_neighbors=8)
    assert oracles.difference(embedding.Y, oracles.virtual_lle(X, 8)) < 1e-7
    assert embedding.figures["virtual_points"] == len(virtual_points(X, 8))


def test_lle_by_correlation_is_its_formula() -> None:
    """Neighbors correlate most, and the weights reconstruct rows that are centered and scaled to length 1."""
    X = np.random.default_rng(3).standard_normal((100, 5)) + 2
    embedding = embed("lle", X, n_neighbors=8, metric="correlation")
    assert oracles.difference(embedding.Y, oracles.correlation_lle(X, 8)) < 1e-7
