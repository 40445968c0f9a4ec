"""Quality scores against scikit-learn and against their definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import cKDTree, procrustes
from sklearn.manifold import trustworthiness as reference

from glle_engine import manifolds
from glle_engine.base import errors
from glle_engine.graph.neighbors import kneighbors
from glle_engine.metrics import ranks
from glle_engine.metrics.ranks import continuity, disparity, local_trustworthiness, trustworthiness

if TYPE_CHECKING:
    from numpy.typing import NDArray


@pytest.mark.parametrize(("d", "few"), [(3, 0), (3, 300), (40, 300)])
@pytest.mark.parametrize("k", [1, 5, 12])
def test_trustworthiness_is_scikit_learns(d: int, few: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both routes, tree and blocks, agree with scikit-learn, for good embeddings and for noise."""
    monkeypatch.setattr(ranks, "_FEW_POINTS", few)
    rng = np.random.default_rng(d)
    X = rng.standard_normal((300, d))
    for Y in (X[:, :2], rng.standard_normal((300, 2))):
        assert trustworthiness(X, Y, k) == pytest.approx(reference(X, Y, n_neighbors=k), abs=1e-12)
        assert continuity(X, Y, k) == pytest.approx(reference(Y, X, n_neighbors=k), abs=1e-12)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    d=st.sampled_from([2, 15, 16, 30]),
    k=st.integers(1, 12),
    exponent=st.integers(-400, 400),
    shift=st.integers(-(2**30), 2**30),
)
def test_ranks_do_not_depend_on_origin_unit_or_order(seed: int, d: int, k: int, exponent: int, shift: int) -> None:
    """An exact shift, a unit of a power of 2 and a permutation of features change no rank, ties included."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "_FEW_POINTS", seed % 2 * 60)  # either route
        _require_invariant_ranks(seed, d, k, exponent, shift)


def _require_invariant_ranks(seed: int, d: int, k: int, exponent: int, shift: int) -> None:
    rng = np.random.default_rng(seed)
    X: NDArray[np.float64] = np.round(rng.standard_normal((60, d)) * 4) / 4
    Y: NDArray[np.float64] = np.round(X[:, :2] + rng.standard_normal((60, 2)), 3)
    expected = local_trustworthiness(X, Y, k)
    unit = 2.0**exponent
    others = (X + shift, X * unit, X[:, ::-1], np.repeat(X, 4, axis=1))  # sums of a repetition are exact on this grid
    for other in others:
        np.testing.assert_array_equal(local_trustworthiness(other, Y, k), expected)
    np.testing.assert_array_equal(local_trustworthiness(X, Y * unit, k), expected)
    order = rng.permutation(60)
    apart = X + rng.standard_normal(X.shape) * 2.0**-30  # without ties an order of points changes no neighbor
    np.testing.assert_array_equal(
        local_trustworthiness(apart[order], Y[order] + 1e-6 * apart[order, :2], k),
        local_trustworthiness(apart, Y + 1e-6 * apart[:, :2], k)[order],
    )


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    route=st.sampled_from([(3, 0), (3, 40), (16, 40), (40, 40)]),
    k=st.integers(1, 9),
)
def test_ranks_are_their_definition(seed: int, route: tuple[int, int], k: int) -> None:
    """On an integer grid the ranks are those counted from all exact squared distances."""
    d, few = route
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (40, d)).astype(np.float64)
    Y = rng.standard_normal((40, 2))
    squares = ((X[:, None] - X) ** 2).sum(axis=2)
    nearest = kneighbors(Y, k)[0]
    rank = 1 + (squares[:, None, :] < np.take_along_axis(squares, nearest, axis=1)[:, :, None]).sum(axis=2)
    rank -= (np.take_along_axis(squares, nearest, axis=1) > 0).astype(int)  # the point itself is not another
    excess = np.maximum(rank - k, 0).sum(axis=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "_FEW_POINTS", few)
        local = local_trustworthiness(X, Y, k)
    np.testing.assert_array_equal(local, 1 - 2 * excess / (k * (80 - 3 * k - 1)))


def test_a_sheet_far_from_the_origin_is_as_trustworthy() -> None:
    """Among many features, too, a large offset costs no rank but by the digits that the data lose."""
    places = np.random.default_rng(0).uniform(-1, 1, (400, 2))
    X = np.sin(places @ np.random.default_rng(1).standard_normal((2, 20)))
    assert trustworthiness(X + 1e8, places, 10) == pytest.approx(trustworthiness(X, places, 10), abs=1e-4)


def test_a_subset_of_points_averages_over_them() -> None:
    """The mean over two halves of the points is the score of all."""
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
    """Too many neighbors and embeddings of other length are refused with the remedy."""
    X = np.random.default_rng(0).random((20, 3))
    with pytest.raises(errors.InvalidParameterError, match="at most 9"):
        trustworthiness(X, X, 10)
    with pytest.raises(errors.InvalidShapeError, match="one row"):
        trustworthiness(X, X[:10], 3)


@pytest.mark.parametrize("name", manifolds.NAMES)
def test_sheets_are_what_they_say(name: str) -> None:
    """Sheets have their size, repeat by seed, and neighbors in the coordinates are neighbors in space."""
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
