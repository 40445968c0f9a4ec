"""Quality scores against scikit-learn and against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import cKDTree, procrustes
from sklearn.manifold import trustworthiness as reference

from glle_engine import errors, manifolds
from glle_engine.quality import continuity, disparity, local_trustworthiness, trustworthiness


@pytest.mark.parametrize("d", [3, 40])
@pytest.mark.parametrize("k", [1, 5, 12])
def test_trustworthiness_is_scikit_learns(d: int, k: int) -> None:
    """Both routes, tree and blocks, agree with scikit-learn, for good embeddings and for noise."""
    rng = np.random.default_rng(d)
    X = rng.standard_normal((300, d))
    for Y in (X[:, :2], rng.standard_normal((300, 2))):
        assert trustworthiness(X, Y, k) == pytest.approx(reference(X, Y, n_neighbors=k), abs=1e-12)
        assert continuity(X, Y, k) == pytest.approx(reference(Y, X, n_neighbors=k), abs=1e-12)


def test_a_subset_of_points_averages_over_them() -> None:
    """The mean over two halves is the score of the whole."""
    rng = np.random.default_rng(1)
    X, Y = rng.standard_normal((200, 4)), rng.standard_normal((200, 2))
    halves = [trustworthiness(X, Y, 7, points=np.arange(start, 200, 2)) for start in (0, 1)]
    assert np.mean(halves) == pytest.approx(trustworthiness(X, Y, 7), abs=1e-12)


@pytest.mark.parametrize("d", [3, 40])
def test_local_trust_averages_to_trust_and_finds_the_misplaced(d: int) -> None:
    """The mean over points is the score; a point that was moved far away has the lowest."""
    X = np.random.default_rng(3).standard_normal((200, d))
    Y = X[:, :2].copy()
    Y[17] = -3 * X[np.linalg.norm(X - X[17], axis=1).argmax(), :2]
    local = local_trustworthiness(X, X.copy(), 8)
    assert local.min() == 1
    local = local_trustworthiness(X, Y, 8)
    assert local.mean() == pytest.approx(reference(X, Y, n_neighbors=8), abs=1e-12)
    assert local.shape == (200,)
    if d == 3:
        assert local[17] < np.median(local)


def test_disparity_is_scipys() -> None:
    """The definition is scipy's, and symmetric; turning and rescaling change nothing."""
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((50, 3)), rng.standard_normal((50, 3))
    assert disparity(a, b) == pytest.approx(procrustes(a, b)[2], abs=1e-12)
    assert disparity(b, a) == pytest.approx(disparity(a, b), abs=1e-12)
    turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    assert disparity(a, 3 * a @ turn + 5) == pytest.approx(0, abs=1e-12)


def test_impossible_questions() -> None:
    """Too many neighbours and embeddings of other length are refused with the remedy."""
    X = np.random.default_rng(0).random((20, 3))
    with pytest.raises(errors.InvalidParameterError, match="at most 9"):
        trustworthiness(X, X, 10)
    with pytest.raises(errors.InvalidShapeError, match="one row"):
        trustworthiness(X, X[:10], 3)


@pytest.mark.parametrize("name", manifolds.NAMES)
def test_sheets_are_what_they_say(name: str) -> None:
    """Sheets have their size, repeat by seed, and neighbours in the coordinates are neighbours in space."""
    sheet = manifolds.make(name, 500, seed=4)
    assert sheet.X.shape == (500, 3)
    assert sheet.coordinates.shape == (500, 2)
    np.testing.assert_array_equal(sheet.X, manifolds.make(name, 500, seed=4).X)
    assert not np.array_equal(sheet.X, manifolds.make(name, 500, seed=5).X)
    noisy = manifolds.make(name, 500, noise=0.01, seed=4)
    np.testing.assert_array_equal(noisy.coordinates, sheet.coordinates)
    radius = np.sqrt(((sheet.X - sheet.X.mean(axis=0)) ** 2).sum(axis=1).mean())
    assert (noisy.X - sheet.X).std() == pytest.approx(0.01 * radius, rel=0.1)
    unit = sheet.coordinates / sheet.coordinates.std(axis=0)
    assert trustworthiness(sheet.X, unit, 5) > 0.98


def test_sheets_refuse_nonsense() -> None:
    """An unknown name and a negative noise are refused with the choices."""
    with pytest.raises(errors.InvalidParameterError, match="swiss_roll_hole"):
        manifolds.make("torus", 10)
    with pytest.raises(errors.InvalidParameterError, match="noise"):
        manifolds.make("s_curve", 10, noise=-1)
    hole = manifolds.make("swiss_roll_hole", 2000, seed=0)
    angle = np.hypot(hole.X[:, 0], hole.X[:, 2])  # of the spiral r = t
    middle = (np.abs(angle / (1.5 * np.pi) - 2) < 1 / 3 - 1e-9) & (np.abs(hole.coordinates[:, 1] - 10.5) < 3.5 - 1e-9)
    assert not middle.any()


@pytest.mark.parametrize("name", ["s_curve", "swiss_roll", "swiss_roll_hole"])
def test_coordinates_of_a_developable_sheet_are_lengths(name: str) -> None:
    """Between near points of the sheet its coordinates have the distance that space has."""
    sheet = manifolds.make(name, 20_000, seed=1)
    distance, index = cKDTree(sheet.coordinates).query(sheet.coordinates, 2)
    in_space = np.linalg.norm(sheet.X[index[:, 1]] - sheet.X, axis=1)
    near = distance[:, 1] > 0
    np.testing.assert_allclose(in_space[near] / distance[near, 1], 1, atol=0.02)
