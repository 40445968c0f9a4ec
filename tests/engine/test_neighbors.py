"""Neighbours are exact, whatever the route."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from glle_engine import neighbors as room
from glle_engine.neighbors import kneighbors

if TYPE_CHECKING:
    from numpy.typing import NDArray


def reference(X: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Return the sorted distances to the k nearest others."""
    distance = cdist(X, X)
    np.fill_diagonal(distance, np.inf)
    return np.sort(distance, axis=1)[:, :k]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(12, 80),
    d=st.sampled_from([1, 3, 15, 16, 40]),
    k=st.integers(1, 11),
    offset=st.sampled_from([0.0, 1e3, 1e7]),
)
def test_distances_are_those_of_the_nearest(seed: int, n: int, d: int, k: int, offset: float) -> None:
    """Both routes return the k smallest distances, also far from the origin."""
    X = np.random.default_rng(seed).standard_normal((n, d)) + offset
    indices, distances = kneighbors(X, k)
    expected = reference(X, k)
    tolerance = 1e-12 * (1 + abs(offset))
    np.testing.assert_allclose(distances, expected, rtol=1e-10, atol=tolerance)
    found = np.linalg.norm(X[indices] - X[:, None], axis=2)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=tolerance)
    assert not (indices == np.arange(n)[:, None]).any()
    assert all(len(set(row)) == k for row in indices)


@pytest.mark.parametrize("d", [3, 30])
def test_duplicates_crowd_out_nothing_but_themselves(d: int) -> None:
    """With more duplicates than neighbours a point is still never its own neighbour."""
    X = np.repeat(np.random.default_rng(0).standard_normal((5, d)), 8, axis=0)
    indices, distances = kneighbors(X, 6)
    assert distances.max() < 1e-12
    assert not (indices == np.arange(40)[:, None]).any()
    assert (indices // 8 == (np.arange(40) // 8)[:, None]).all()


def test_a_row_that_cannot_be_proved_is_searched_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours closer together than the rounding error of the product formula are still the right ones."""
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.standard_normal((30, 20)) * 1e-9 + 1e3, rng.standard_normal((30, 20)) - 1e3])
    searched: list[int] = []
    directly = room._of_one

    def counted(X: NDArray[np.float64], i: int, k: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        searched.append(i)
        return directly(X, i, k)

    monkeypatch.setattr(room, "_of_one", counted)
    _, distances = kneighbors(X, 5)
    assert set(range(30)) <= set(searched)
    np.testing.assert_allclose(distances, reference(X, 5), rtol=1e-10)
