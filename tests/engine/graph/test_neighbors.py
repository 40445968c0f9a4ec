"""Neighbors are exact, whatever the route."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

from glle_engine.base.errors import InvalidParameterError, TooFewPointsError
from glle_engine.graph.neighbors import intrinsic_dimension, kneighbors, kneighbors_to
from glle_engine.graph.relations import Data, Distances
from glle_engine.graph.sparse import SparsePoints
from glle_engine.linalg import distances as linalg_distances
from glle_engine.linalg.distances import distances as distances_between
from glle_engine.linalg.distances import nearest_rows
from glle_engine.linalg.nearest import leaves
from tests.engine.linalg.sorted_distances import nearest_by_sorting


@pytest.mark.parametrize("d", [1, 3, 4, 22])
def test_distances_are_summed_in_the_documented_order(d: int) -> None:
    """Distances have the bits of numpy's single operations in this order, which round alike on every processor."""
    rng = np.random.default_rng(d)
    points, data = rng.standard_normal((40, d)), rng.standard_normal((60, d))
    sums = [np.zeros((40, 60)) for _ in range(4)]
    for f in range(d):
        apart = points[:, f, None] - data[:, f]
        sums[f % 4] += apart * apart
    distances = distances_between(points, data, np.broadcast_to(np.arange(60), (40, 60)))
    assert distances.tobytes() == np.sqrt((sums[0] + sums[1]) + (sums[2] + sums[3])).tobytes()


def take(route: str, patch: pytest.MonkeyPatch) -> None:
    """Make searches use one of two algorithms, "leaves" or "few", whatever the number of points."""
    patch.setattr(linalg_distances, "MAX_POINTS_WITHOUT_TREE", -(10**6) if route == "leaves" else 10**6)


@pytest.mark.parametrize("route", ["leaves", "few"])
def test_each_point_is_reported_once(route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress rises to n without repetition, and the blocks do not change the result."""
    X = np.random.default_rng(0).standard_normal((1200, 20))
    expected, done = kneighbors(X, 10), [0]
    take(route, monkeypatch)
    monkeypatch.setattr(leaves, "_PRODUCTS_PER_REPORT", 1e6)
    neighbors = kneighbors(X, 10, lambda count, *_: done.append(count))
    np.testing.assert_array_equal(neighbors, expected)
    assert done[-1] == 1200
    assert done == sorted(set(done))
    assert len(done) > 2 or route == "few"


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(9, 150),
    d=st.sampled_from([1, 2, 5, 15, 16, 33]),
    k=st.integers(1, 8),
    levels=st.integers(2, 6),
    route=st.sampled_from(["leaves", "few"]),
    count=st.sampled_from([6, 70]),
    kind=st.sampled_from(["lattice", "cloud", "far cloud", "tiny clusters"]),
)
def test_neighbors_are_the_smallest_pairs(
    seed: int, n: int, d: int, k: int, levels: int, route: str, count: int, kind: str
) -> None:
    """Neighbors are the k smallest (distance, index): with ties, far from the origin, and for tiny distances."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, levels, (n, d)).astype(float)
    if kind != "lattice":
        X = rng.standard_normal((n, d)) + (1e7 if kind == "far cloud" else 0)
    if kind == "tiny clusters":
        X[::2] = 1e3 + 1e-9 * X[::2]
    new = np.concatenate([X[:4], rng.integers(0, 2 * levels, (count, d)) / 2])
    with pytest.MonkeyPatch.context() as patch:
        take(route, patch)
        neighbors, expected = kneighbors(X, k), nearest_by_sorting(X, X, np.arange(n), k)
        placed, expected_new = kneighbors_to(X, new, k), nearest_by_sorting(X, new, np.full(len(new), -1), k)
    for result, truth in ((neighbors, expected), (placed, expected_new)):
        np.testing.assert_array_equal(result[0], truth[0])
        np.testing.assert_array_equal(result[1], truth[1])


def test_impossible_numbers_of_neighbors_are_refused() -> None:
    """A k below 1 or above the possible maximum raises an error before compiled code runs."""
    X = np.random.default_rng(0).standard_normal((20, 3))
    searches = partial(kneighbors_to, X, X + 1), partial(nearest_rows, X, X, np.arange(20)), partial(kneighbors, X)
    errors = InvalidParameterError, InvalidParameterError, TooFewPointsError
    for search, maximum, error in zip(searches, (20, 19, 19), errors, strict=True):
        for k in (-1, 0, maximum + 1):
            with pytest.raises(error, match=f"from 1 to {maximum}"):
                search(k)
        assert all(len(set(row)) == maximum for row in search(maximum)[0].tolist())


def _space(X: NDArray[np.float64], kind: str) -> Data:
    if kind == "distances":
        return Distances.among(distances_between(X, X, np.tile(np.arange(len(X)), (len(X), 1))))
    return SparsePoints.from_rows(csr_array(X), "euclidean") if kind == "sparse" else X


@pytest.mark.parametrize("kind", ["leaves", "few", "sparse", "distances"])
def test_ties_are_decided_by_the_index_alone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of the features, which changes the rounding of equal distances, does not change the neighbors."""
    if kind in {"leaves", "few"}:
        take(kind, monkeypatch)
    rng = np.random.default_rng(0)
    whole = rng.integers(0, 16, (300, 7))
    expected = kneighbors(whole.astype(np.float64), 12)[0]
    for columns in (np.arange(7), *(rng.permutation(7) for _ in range(3))):
        table = _space((whole / 15)[:, columns], kind)
        np.testing.assert_array_equal(kneighbors(table, 12)[0], expected)


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_intrinsic_dimension_of_flat_data(dimension: int) -> None:
    """The estimate for flat data in ten features is within 12 % of the true dimension."""
    rng = np.random.default_rng(dimension)
    X = rng.random((3000, dimension)) @ rng.standard_normal((dimension, 10))
    assert intrinsic_dimension(kneighbors(X, 12)[1]) == pytest.approx(dimension, rel=0.12)
