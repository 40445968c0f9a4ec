"""Components, closed classes, the k that connects, and bridges."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from glle_engine import fit, manifolds
from glle_engine.base.errors import DisconnectedGraphError
from glle_engine.base.progress import silent
from glle_engine.graph import connectivity
from glle_engine.graph.connectivity import (
    bridge,
    closed_classes,
    components,
    edges,
    require_connected,
    smallest_connecting_k,
)
from glle_engine.graph.neighbors import kneighbors
from glle_engine.graph.radius import neighbors_within
from glle_engine.graph.relations import Data, Distances


def clusters(seed: int, count: int, d: int, k: int) -> NDArray[np.float64]:
    """Return clusters of different sizes and widths, some of which overlap; a third of the seeds give many ties.

    Another third gives heavy tails, so that the shortest edge out of a cluster may end at a point that leads back.
    """
    rng = np.random.default_rng(seed)
    parts = [
        rng.standard_normal((int(rng.integers(k + 1, 30)), d)) * rng.exponential()
        + rng.standard_normal(d) * 10 * rng.exponential()
        for _ in range(count)
    ]
    X = np.concatenate(parts)
    if seed % 3 == 1:
        X *= np.exp(0.5 * rng.standard_normal((len(X), 1)))
    return np.round(X) if seed % 3 == 0 else X


def leads_to(graph: NDArray[np.int32], members: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return the points from which a set of points is reached, by following single edges."""
    reached = np.zeros(len(graph), bool)
    reached[members] = True
    while (further := reached | reached[graph].any(axis=1)).sum() > reached.sum():
        reached = further
    return reached


@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 12),
    d=st.sampled_from([*range(1, 20), 60]),
    k=st.integers(2, 6),
    drop=st.booleans(),
)
def test_one_bridge_less_than_closed_classes(seed: int, count: int, d: int, k: int, drop: bool) -> None:  # noqa: FBT001
    """Bridging c closed classes takes c - 1 bridges and leaves one class, whatever the graph, also for distances."""
    X = clusters(seed, count, d, k)
    if len(X) < k + 2:
        X = np.concatenate([X, X + 0.5])
    nearest = kneighbors(X, k)[0]
    kept = None
    if drop:
        kept = np.random.default_rng(seed).random(nearest.shape) < 0.6
        kept[~kept.any(axis=1), 0] = True
    before = closed_classes(edges(nearest, kept))
    for data in (X, Distances.among(cdist(X, X))):
        joined, still_kept, bridges = bridge(data, nearest, kept)
        graph = edges(joined, still_kept)
        assert len(bridges) == len(before) - 1
        assert len(closed_classes(graph)) == 1
        assert not components(graph).any()
        assert all(end in graph[start] for start, end in bridges)
        changed = np.flatnonzero((graph != edges(nearest, kept)).any(axis=1))
        assert set(changed.tolist()) <= {start for start, _ in bridges}
        assert all(len(set(row)) == k for row in joined.tolist())


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(2, 8))
def test_possible_bridges_are_the_shortest_to_points_that_lead_to_another_class(seed: int, count: int) -> None:
    """The edges found by the search equal the shortest ones among all pairs of points."""
    X = clusters(seed, count, 3, 4)
    nearest = kneighbors(X, 4)[0]
    classes = closed_classes(nearest)
    if len(classes) == 1:
        return
    leads = np.stack([leads_to(nearest, members) for members in classes])
    reached = connectivity._reachable_classes(nearest, classes)
    assert leads[reached, np.arange(len(X))[:, None]].all()
    np.testing.assert_array_equal(reached[:, 0] == reached[:, 1], leads.sum(axis=0) == 1)
    edges = connectivity._shortest_edges(X, classes, reached)
    distances = cdist(X, X)
    for number, edge in enumerate(edges):
        ends = np.flatnonzero(np.delete(leads, number, axis=0).any(axis=0))
        assert edge.end in ends
        assert edge.start in classes[number]
        shortest = distances[np.ix_(classes[number], ends)].min()
        assert distances[edge.start, edge.end] == pytest.approx(shortest, rel=1e-9, abs=1e-12)
        assert edge == connectivity._closest_pair(X, classes[number], ends)


@pytest.mark.parametrize("make", [np.asarray, lambda X: Distances.among(cdist(X, X))])
def test_the_order_of_the_features_moves_no_bridge(make: Callable[[NDArray[np.float64]], Data]) -> None:
    """If several edges are equally short up to rounding, the one with the smallest indices becomes the bridge."""
    t = np.arange(16)
    X = (
        np.concatenate([np.stack([t, 15 - t, 0 * t], axis=1) + number * np.array([7, 7, 9]) for number in range(3)])
        / 15
    )
    bridges = []
    for columns in ([0, 1, 2], [2, 0, 1], [1, 2, 0], [2, 1, 0]):
        data = make(X[:, columns])
        bridges.append(bridge(data, kneighbors(data, 6)[0])[2])
    assert bridges == [[(0, 16), (32, 16)]] * 4


def test_two_clusters_are_refused_with_the_k_that_connects() -> None:
    """The error has the components, their sizes and the smallest k, with which a fit works; with one less it fails."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((60, 3)), rng.standard_normal((25, 3)) + 30])
    with pytest.raises(DisconnectedGraphError) as caught:
        fit(X, n_neighbors=8, disconnected="error")
    details = caught.value.details
    assert details["components"] == 2
    assert details["sizes"] == [60, 25]
    k = details["smallest_connecting_k"]
    assert str(k) in caught.value.remedy
    with pytest.raises(DisconnectedGraphError):
        fit(X, n_neighbors=k - 1, disconnected="error")
    assert fit(X, n_neighbors=k, disconnected="error").spec.n_neighbors == k
    assert "Duplicated points" not in caught.value.remedy


@pytest.mark.parametrize(("count", "shown"), [(5, "3, 3, 3, 3, 3"), (6, "3, 3, 3, 3, 3, ...")])
def test_small_components_may_be_duplicates(count: int, shown: str) -> None:
    """The error shows five sizes, and suspects duplicates if a component has at most k + 1 points."""
    X = np.repeat(100.0 * np.arange(count), 3)[:, None] ** 1.1
    with pytest.raises(DisconnectedGraphError, match=rf"into {count} components, of {shown} points") as caught:
        require_connected(X, kneighbors(X, 2)[0])
    assert caught.value.remedy.startswith("The smallest n_neighbors that connects it is 3. Or take the method glle")
    assert caught.value.remedy.endswith("Duplicated points may be the cause.")


def test_smallest_k_against_every_k() -> None:
    """The search finds the k that trying every k in turn finds."""
    rng = np.random.default_rng(4)
    X = np.concatenate([rng.standard_normal((n, 2)) + 12 * i for i, n in enumerate((9, 14, 30))])
    tried = next(k for k in range(3, len(X)) if components(kneighbors(X, k)[0]).max() == 0)
    assert smallest_connecting_k(X, 3) == tried


def test_closed_classes_of_a_known_graph() -> None:
    """A group of points that no edge leaves is a closed class, also if edges lead into it."""
    neighbors = np.array([[1, 2], [0, 2], [0, 1], [0, 4], [3, 1], [6, 7], [5, 7], [5, 6]], np.int32)
    assert [members.tolist() for members in closed_classes(neighbors)] == [[0, 1, 2], [5, 6, 7]]


def test_rows_with_repeated_neighbors_have_components() -> None:
    """A graph of a radius, in which kept neighbors take the places of dropped ones, has its classes found."""
    graph = neighbors_within(manifolds.make("s_curve", 150, seed=1).X, 0.9, silent)
    repeated = edges(graph.nearest, graph.kept)
    assert [len(members) for members in closed_classes(repeated)] == [150]
    assert not components(repeated).any()


def test_bridging_leaves_a_whole_graph_alone() -> None:
    """A fit to a connected graph has the same bits with and without bridging."""
    sheet = manifolds.make("s_curve", 120, seed=1).X
    plain, bridged = fit(sheet, disconnected="error"), fit(sheet)
    assert plain.embedding.tobytes() == bridged.embedding.tobytes()
    assert bridged.diagnostics.figures["bridges"] == []
