"""Neighbors are exact, whatever the route."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from glle_engine.graph.bridging import bridge
from glle_engine.graph.neighbors import kneighbors, kneighbors_to
from glle_engine.linalg import distances as linalg_distances
from glle_engine.linalg.distances import distances as distances_between
from glle_engine.linalg.nearest import leaves

if TYPE_CHECKING:
    from numpy.typing import NDArray


def reference(X: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Return the sorted distances to the k nearest others."""
    distance = cdist(X, X)
    np.fill_diagonal(distance, np.inf)
    return np.sort(distance, axis=1)[:, :k]


@settings(max_examples=40)
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
    """With more duplicates than neighbors a point is still never its own neighbor."""
    X = np.repeat(np.random.default_rng(0).standard_normal((5, d)), 8, axis=0)
    indices, distances = kneighbors(X, 6)
    assert distances.max() < 1e-12
    assert not (indices == np.arange(40)[:, None]).any()
    assert (indices // 8 == (np.arange(40) // 8)[:, None]).all()


def test_clusters_below_the_rounding_of_products() -> None:
    """Neighbors closer together than the rounding error of the product formula are still the right ones."""
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.standard_normal((30, 20)) * 1e-9 + 1e3, rng.standard_normal((30, 20)) - 1e3])
    indices, distances = kneighbors(X, 5)
    expected = ordered(X, X, np.arange(60), 5)
    np.testing.assert_array_equal(indices, expected[0])
    np.testing.assert_array_equal(distances, expected[1])


def summed_in_order(points: NDArray[np.float64], data: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return all distances (m, n) by numpy, summed in the documented order of operations."""
    sums = [np.zeros((len(points), len(data))) for _ in range(4)]
    for f in range(points.shape[1]):
        apart = points[:, f, None] - data[:, f]
        sums[f % 4] += apart * apart
    return np.asarray(np.sqrt((sums[0] + sums[1]) + (sums[2] + sums[3])))


@pytest.mark.parametrize("d", [1, 3, 4, 22])
def test_distances_are_summed_in_the_documented_order(d: int) -> None:
    """Every bit is that of numpy's single operations, which round alike on every processor."""
    rng = np.random.default_rng(d)
    points, data = rng.standard_normal((40, d)), rng.standard_normal((60, d))
    found = distances_between(points, data, np.broadcast_to(np.arange(60), (40, 60)))
    assert found.tobytes() == summed_in_order(points, data).tobytes()


def ordered(
    data: NDArray[np.float64], points: NDArray[np.float64], own: NDArray[np.intp], k: int
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return the k smallest (distance, index) of all rows of data, by sorting them."""
    candidates = np.broadcast_to(np.arange(len(data)), (len(points), len(data)))
    distance = np.where(candidates == own[:, None], np.inf, summed_in_order(points, data))
    order = np.lexsort((candidates, distance), axis=1)[:, :k]
    return order, np.take_along_axis(distance, order, axis=1)


def take(route: str, patch: pytest.MonkeyPatch) -> None:
    """Search by leaves, or as for few points, whatever the number of points."""
    patch.setattr(linalg_distances, "FEW_POINTS", -(10**6) if route == "leaves" else 10**6)


@pytest.mark.parametrize("d", [3, 20])
def test_every_route_gives_the_same_bits(d: int) -> None:
    """Leaves and products agree on neighbors and distances, and report each point once, in ascending numbers."""
    X = np.random.default_rng(0).standard_normal((1200, d))
    results, reports = [], []
    for route in ("leaves", "few"):
        with pytest.MonkeyPatch.context() as patch:
            take(route, patch)
            patch.setattr(leaves, "_CHUNK", 1e6)
            reports.append([0])
            results.append(kneighbors(X, 10, lambda done, *_: reports[-1].append(done)))
            results.append(kneighbors_to(X, X + 0.5, 10))
    for result, expected in zip((*results[2], *results[3]), (*results[0], *results[1]), strict=True):
        np.testing.assert_array_equal(result, expected)
    for done in reports:
        assert done[-1] == 1200
        assert done == sorted(set(done))
    assert len(reports[0]) > 2


LATTICES = {
    "seed": st.integers(0, 10**6),
    "n": st.integers(9, 150),
    "d": st.sampled_from([1, 2, 5, 15, 16, 33]),
    "k": st.integers(1, 8),
    "levels": st.integers(2, 6),
}


@settings(max_examples=60)
@given(**LATTICES, route=st.sampled_from(["leaves", "few"]), count=st.sampled_from([6, 70]))
def test_ties_fall_by_index(seed: int, n: int, d: int, k: int, levels: int, route: str, count: int) -> None:
    """On integer grids, with ties and copies at the k-th, the result is the k smallest (distance, index)."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, levels, (n, d)).astype(float)
    new = np.concatenate([X[:4], rng.integers(0, 2 * levels, (count, d)) / 2])
    with pytest.MonkeyPatch.context() as patch:
        take(route, patch)
        found, expected = kneighbors(X, k), ordered(X, X, np.arange(n), k)
        placed, expected_new = kneighbors_to(X, new, k), ordered(X, new, np.full(len(new), -1), k)
    for result, truth in ((found, expected), (placed, expected_new)):
        np.testing.assert_array_equal(result[0], truth[0])
        np.testing.assert_array_equal(result[1], truth[1])
    assert (placed[1][:4, 0] == 0).all()


@settings(max_examples=40)
@given(**LATTICES, exponent=st.integers(-460, 460), shift=st.integers(-(2**40), 2**40))
def test_shift_unit_and_order(seed: int, n: int, d: int, k: int, levels: int, exponent: int, shift: int) -> None:
    """An exact shift, a unit of a power of 2 and zero columns change nothing; a permutation keeps the distances."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, levels, (n, d)).astype(float)
    X[0], X[1] = 0.0, 1.0  # some extent
    indices, distances = kneighbors(X, k)
    unit = 2.0**exponent
    for other, factor in ((X + shift, 1.0), (X * unit, unit), (np.pad(X, ((0, 0), (0, 4))), 1.0)):
        found = kneighbors(other, k)
        np.testing.assert_array_equal(found[0], indices)
        np.testing.assert_allclose(found[1], distances * factor, rtol=1e-15)
    order = rng.permutation(n)
    np.testing.assert_array_equal(kneighbors(X[order], k)[1], distances[order])


@pytest.mark.parametrize("d", [3, 20])
def test_each_point_is_placed_by_itself(d: int) -> None:
    """A new point's neighbors do not depend on the other points of the call."""
    rng = np.random.default_rng(0)
    data, points = rng.standard_normal((300, d)), rng.standard_normal((40, d))
    together = kneighbors_to(data, points, 7)
    for i in range(40):
        indices, distances = kneighbors_to(data, points[i : i + 1], 7)
        np.testing.assert_array_equal(indices[0], together[0][i])
        np.testing.assert_array_equal(distances[0], together[1][i])
    everyone = kneighbors_to(data, points, 300)[0]
    np.testing.assert_array_equal(np.sort(everyone, axis=1), np.broadcast_to(np.arange(300), (40, 300)))


@pytest.mark.parametrize("d", [3, 30])
def test_the_closest_pair_of_ties_is_the_first(d: int) -> None:
    """A bridge between two grids leads from the smallest index to the smallest index of the shortest edges."""
    grid = np.zeros((16, d))
    grid[:, :2] = np.argwhere(np.ones((4, 4)))
    X = np.concatenate([grid, grid + np.eye(d)[0] * 10])
    pairs = [bridge(X, kneighbors(X, 4)[0])[2] for X in (X, X + 1024)]
    assert pairs[0] == pairs[1] == [(12, 16)]
