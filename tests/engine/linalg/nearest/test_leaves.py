"""The search in a k-d tree finds exactly the nearest rows, and skips most leaves."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from glle_engine.linalg.distances import distances as distances_between
from glle_engine.linalg.distances import nearest_in_sample, nearest_rows
from glle_engine.linalg.nearest.leaves import Leaves, PrincipalAxes, leaf_boxes, leaf_order, node_boxes
from tests.engine.linalg.sorted_distances import nearest_by_sorting


def search_leaves(
    data: NDArray[np.float64], points: NDArray[np.float64], own_rows: NDArray[np.intp], k: int
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the result of the search in the order of the points, and require each point to come once."""
    indices, distances = np.full((len(points), k), -1, np.int32), np.empty((len(points), k))
    for rows, nearest, apart in Leaves(data).nearest(points, own_rows, k):
        assert (indices[rows] == -1).all()
        indices[rows], distances[rows] = nearest, apart
    assert (indices >= 0).all()
    return indices, distances


def assert_exact(data: NDArray[np.float64], points: NDArray[np.float64], own_rows: NDArray[np.intp], k: int) -> None:
    """Require the same neighbors and distances, bit by bit, as from sorting all distances."""
    result, expected = search_leaves(data, points, own_rows, k), nearest_by_sorting(data, points, own_rows, k)
    np.testing.assert_array_equal(result[0], expected[0])
    np.testing.assert_array_equal(result[1], expected[1])


def clusters(rng: np.random.Generator, n: int, d: int) -> NDArray[np.float64]:
    """Return clusters of about 40 points with very different sizes, down to 1e-12 of the distance between them."""
    center = rng.standard_normal((n // 40 + 1, d))
    size = 10.0 ** rng.integers(-12, 0, len(center))
    group = rng.integers(0, len(center), n)
    return np.asarray(center[group] + size[group, None] * rng.standard_normal((n, d)))


def equidistant(rng: np.random.Generator, n: int, d: int) -> NDArray[np.float64]:
    """Return permutations of one vector of integers: many distances are equal, but inexact in float32."""
    entries = rng.integers(-50_000, 50_000, min(d, 3))
    rows = np.zeros((n, d))
    for row in rows:
        row[rng.permutation(d)[: len(entries)]] = entries
    return rows


KINDS: dict[str, Callable[[np.random.Generator, int, int], NDArray[np.float64]]] = {
    "random": lambda rng, n, d: rng.standard_normal((n, d)),
    "grid": lambda rng, n, d: rng.integers(0, 3, (n, d)).astype(float),
    "equidistant": equidistant,
    "copies": lambda rng, n, d: rng.standard_normal((7, d))[rng.integers(0, 7, n)],
    "one": lambda rng, n, d: np.full((n, d), rng.standard_normal()),
    "clusters": clusters,
    "offset": lambda rng, n, d: 1e8 + 1e-4 * rng.standard_normal((n, d)),
    "offset grid": lambda rng, n, d: 2.0**40 + rng.integers(0, 4, (n, d)) / 4,
    "tiny": lambda rng, n, d: 1e-138 * rng.standard_normal((n, d)),
    "huge": lambda rng, n, d: 1e138 * rng.standard_normal((n, d)),
    "mixed": lambda rng, n, d: rng.standard_normal((n, d)) * 10.0 ** rng.integers(-70, 70, (n, 1)),
    "outlier": lambda rng, n, d: np.where(np.arange(n)[:, None] == 5, 1e60, rng.integers(0, 3, (n, d)) * 1.0),
    "curve": lambda rng, n, d: np.sin(rng.random((n, 1)) * np.arange(1, d + 1)),
}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=4)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(20, 700),
    d=st.sampled_from([1, 2, 3, 4, 16, 17, 40]),
    k=st.sampled_from([*range(1, 19), 199]),
)
def test_the_result_is_the_smallest_pairs(kind: str, seed: int, n: int, d: int, k: int) -> None:
    """Neighbors, ties and distances equal those from sorting all distances, for rows of the data and new points."""
    rng = np.random.default_rng(seed)
    data, k = KINDS[kind](rng, n, d), min(k, n - 1)  # up to all others, more than a leaf has
    assert_exact(data, data, np.arange(n), k)
    some = rng.permutation(n)[: n // 3 + 1]
    assert_exact(data, data[some], some, k)
    new = np.concatenate([data[:3], KINDS[kind](rng, 30, d), data[:2] * 1.5])
    assert_exact(data, new, np.full(len(new), -1), k)


@pytest.mark.parametrize("d", [3, 30])
def test_points_far_outside_the_data(d: int) -> None:
    """Points so far outside the data that products overflow in float32 get their neighbors."""
    rng = np.random.default_rng(0)
    data, points = rng.standard_normal((500, d)), rng.standard_normal((60, d))
    points[:30] *= np.repeat([1e10, 1e40, 1e140], 10)[:, None]
    assert_exact(data, points, np.full(60, -1), 9)


def test_structure_and_copies_leave_out_most_pairs() -> None:
    """Data of few intrinsic dimensions, and copies of few points, need less than a third of all pairs."""
    rng = np.random.default_rng(0)
    n = 6000
    surface = np.sin(rng.random((n, 2)) @ rng.standard_normal((2, 50)) + rng.random(50))
    copies = rng.standard_normal((3, 20))[rng.integers(0, 3, n)]
    normal = rng.standard_normal((n, 50))
    shares = []
    for data in (surface, copies, normal):
        leaves = Leaves(data)
        _, queries = leaves._queries(data, np.arange(n))
        _, _, work = leaves._search(queries, 0, len(queries.starts) - 1, 10)
        shares.append(work[0] / n**2)
    assert shares[0] < 0.3
    assert shares[1] < 0.3
    assert 0.9 < shares[2] <= 1.0


@pytest.mark.parametrize("shape", [(1000,), (32, 31), (10, 10, 10), (6, 6, 6, 5)])
def test_lattices_of_distinct_points(shape: tuple[int, ...]) -> None:
    """Neighbors are exact on lattices, where the k-th neighbor is as far as points of other leaves."""
    data = np.argwhere(np.ones(shape)).astype(np.float64)
    rng = np.random.default_rng(0)
    turned = np.zeros((len(data), 20))
    turned[:, rng.permutation(20)[: len(shape)]] = data[rng.permutation(len(data))]
    own_rows = np.arange(len(data))
    for rows in (data, turned):
        indices, distances = nearest_by_sorting(rows, rows, own_rows, 130)
        for k in (1, 4, 8, 26, 130):
            result = search_leaves(rows, rows, own_rows, k)
            np.testing.assert_array_equal(result[0], indices[:, :k])
            np.testing.assert_array_equal(result[1], distances[:, :k])


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 300), d=st.integers(1, 40), kind=st.sampled_from(sorted(KINDS)))
def test_boxes_bound_distances_from_below(seed: int, n: int, d: int, kind: str) -> None:
    """The distance of two boxes is at most that of any two points in them, and parent boxes contain their children."""
    data = KINDS[kind](np.random.default_rng(seed), n, d)
    size = 16
    places, tolerance = PrincipalAxes.from_data(data).places(data)
    order = leaf_order(places, size)
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    boxes = leaf_boxes(places[order], tolerance[order], size)
    gap = np.maximum(boxes[:, None, 0] - boxes[:, 1], boxes[:, 0] - boxes[:, None, 1]).clip(0.0)
    leaf = np.arange(n) // size
    everyone = np.broadcast_to(order, (n, n))
    apart = distances_between(data[order], data, everyone)
    assert (np.linalg.norm(gap, axis=2)[leaf[:, None], leaf] <= apart * (1 + 1e-9)).all()
    nodes = node_boxes(boxes)
    assert (nodes[0, 0] == boxes[:, 0].min(axis=0)).all()
    assert (nodes[0, 1] == boxes[:, 1].max(axis=0)).all()


@pytest.mark.parametrize("width", [1, 8, 30])
def test_neighbors_in_a_sample_are_those_of_a_search_in_the_sample(width: int) -> None:
    """Whether the common search has found enough of them or not; with ties in the order of the rows."""
    rng = np.random.default_rng(width)
    data = np.round(rng.standard_normal((300, 3)), 1)
    rows, chosen = np.arange(0, 300, 2), np.sort(rng.permutation(300)[:150])
    candidates = nearest_rows(data, data[rows], rows, width)[0]
    own = np.full(300, -1)
    own[chosen] = np.arange(150)
    expected = nearest_rows(data[chosen], data[rows], own[rows], 6)[0]
    np.testing.assert_array_equal(nearest_in_sample(data, rows, candidates, chosen, 6), expected)
