"""Neighbors within a radius: the graph, its refusals, and the methods that take it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.spatial.distance import cdist

from glle_engine import manifolds
from glle_engine.base.errors import DisconnectedGraphError, InvalidParameterError
from glle_engine.base.progress import silent
from glle_engine.graph.radius import bridged_graph, neighbors_within, smallest_connecting_radius, symmetric_graph
from glle_engine.graph.relations import Distances
from glle_engine.methods import METHODS
from tests.engine.methods.reference import weight_matrix

X = manifolds.make("s_curve", 150, seed=1).X
APART = cdist(X, X)
LONGEST = float(minimum_spanning_tree(APART).data.max())
METHODS_WITH_RADIUS = sorted(name for name, method in METHODS.items() if "radius" in method.spec.parameters())


@pytest.mark.parametrize("data", [X, Distances.among(APART)], ids=["coordinates", "distances"])
def test_neighbors_within_a_radius_are_those_of_all_pairs(data: Any) -> None:
    """All pairs at a distance of at most the radius are edges, and no others."""
    graph = neighbors_within(data, 1.1 * LONGEST, silent)
    expected = (APART <= 1.1 * LONGEST) & ~np.eye(len(X), dtype=bool)
    np.testing.assert_array_equal(symmetric_graph(*graph).toarray() > 0, expected)
    assert graph.kept is not None
    np.testing.assert_array_equal(graph.kept.sum(axis=1), expected.sum(axis=1))
    assert graph.kept.any(axis=0).all()


def test_the_smallest_radius_is_the_longest_edge_of_the_spanning_tree() -> None:
    """The radius that is found equals the longest edge of the tree by scipy."""
    assert smallest_connecting_radius(X, silent) == pytest.approx(LONGEST, rel=1e-12)


def test_methods_with_a_radius_are_those_of_the_documents() -> None:
    """The methods with a parameter `radius` are the five that the documentation lists."""
    assert METHODS_WITH_RADIUS == ["diffusion-maps", "isomap", "laplacian-eigenmaps", "lle", "meu"]


@pytest.mark.parametrize("name", METHODS_WITH_RADIUS)
def test_a_radius_without_a_connected_graph_is_refused_with_one_that_works(name: str) -> None:
    """The error counts points without a neighbor, and names the smallest radius that connects, with which it works."""
    method = METHODS[name]
    with pytest.raises(DisconnectedGraphError, match="no neighbor within radius") as caught:
        method.embed(X, method.spec(radius=0.5 * float(APART[APART > 0].min()), disconnected="error"))
    enough = caught.value.details["smallest_radius"]
    assert caught.value.details["points_without_neighbors"] == len(X)
    assert "disconnected='bridge'" in caught.value.remedy
    assert enough == pytest.approx(LONGEST, rel=1e-6)
    assert method.embed(X, method.spec(radius=enough)).Y.shape == (len(X), 2)
    with pytest.raises(DisconnectedGraphError):
        method.embed(X, method.spec(radius=enough * (1 - 1e-6), disconnected="error"))


@pytest.mark.parametrize("name", METHODS_WITH_RADIUS)
def test_a_radius_beyond_all_distances_has_all_pairs(name: str) -> None:
    """A radius above all distances gives the embedding with all other points as neighbors."""
    method, few = METHODS[name], X[:40]
    one = method.spec(radius=10.0)
    options = {"n_neighbors": "all"} if name in {"diffusion-maps", "meu"} else {"n_neighbors": 39}
    within, among = method.embed(few, one), method.embed(few, method.spec(**options))
    np.testing.assert_allclose(np.abs(within.Y), np.abs(among.Y), rtol=1e-4, atol=1e-6)
    with pytest.raises(InvalidParameterError, match="would change nothing with radius"):
        method.spec(n_neighbors=5, radius=1.0)
    assert "radius" not in method.spec().to_dict()


def test_lle_within_a_radius_reconstructs_from_these_points_alone() -> None:
    """The embedding is the bottom eigenvectors for weights on exactly the points within the radius."""
    method = METHODS["lle"]
    radius = 1.2 * LONGEST
    embedding = method.embed(X, method.spec(radius=radius))
    W = weight_matrix(X, [np.flatnonzero(row) for row in (radius >= APART) & (APART > 0)])
    assert embedding.eigenvalues is not None
    M = (np.eye(len(X)) - W).T @ (np.eye(len(X)) - W)
    np.testing.assert_allclose(embedding.eigenvalues, np.linalg.eigvalsh(M)[1:3], rtol=1e-5)
    np.testing.assert_allclose(M @ embedding.Y, embedding.Y * embedding.eigenvalues, atol=1e-8)
    by_distances = method.embed(APART, method.spec(radius=radius, metric="precomputed"))
    np.testing.assert_allclose(np.abs(by_distances.Y), np.abs(embedding.Y), atol=1e-6)


@pytest.mark.parametrize("name", ["lle", "isomap"])
def test_new_points_have_the_neighbors_within_the_radius(name: str) -> None:
    """A new point near a training point is placed near it; one beyond the radius is refused with its distance."""
    method = METHODS[name]
    embedding = method.embed(X, method.spec(radius=1.2 * LONGEST))
    places = embedding.transform(X[:5] + 1e-6)
    np.testing.assert_allclose(places, embedding.Y[:5], atol=2e-2 * np.abs(embedding.Y).max())
    with pytest.raises(InvalidParameterError, match="beyond radius"):
        embedding.transform(X[:1] + 3.0)


@pytest.mark.parametrize("setting", [{"n_neighbors": 6}, {"radius": 2.5}], ids=["neighbors", "radius"])
@pytest.mark.parametrize("name", METHODS_WITH_RADIUS)
def test_parts_are_joined_by_the_shortest_edges(name: str, setting: dict[str, Any]) -> None:
    """Bridges are the shortest edges between parts, with a note and a figure; a connected graph has none."""
    rng = np.random.default_rng(0)
    part = np.repeat([0, 1, 2], [40, 40, 20])
    points = rng.normal(size=(100, 3)) + np.array([0.0, 30.0, -30.0])[part][:, None]
    method = METHODS[name]
    with pytest.raises(DisconnectedGraphError):
        method.embed(points, method.spec(disconnected="error", **setting))
    embedding = method.embed(points, method.spec(**setting))
    assert [note.code for note in embedding.notes].count("bridged") == 1
    between = [(i, j) for i, j in embedding.figures["bridges"] if part[i] != part[j]]
    assert sorted(sorted(part[list(pair)].tolist()) for pair in between) == [[0, 1], [0, 2]]
    apart = cdist(points, points)
    for i, j in between:
        assert apart[i, j] == pytest.approx(apart[np.ix_(part == part[i], part != part[i])].min(), rel=1e-12)
    assert np.isfinite(embedding.Y).all()
    whole = method.embed(X, method.spec(n_neighbors=10))
    np.testing.assert_array_equal(whole.Y, method.embed(X, method.spec(disconnected="error", n_neighbors=10)).Y)
    assert "bridges" not in whole.figures


@pytest.mark.parametrize("name", ["meu", "mvu"])
def test_bridges_are_rows_of_the_data(name: str) -> None:
    """The ends of a bridge are row numbers of the data, even if equal points are embedded only once."""
    points = np.repeat(np.random.default_rng(0).normal(size=(30, 3)), 2, axis=0)
    points[30:] += 50
    ((start, end),) = METHODS[name].embed(points, METHODS[name].spec(n_neighbors=8)).figures["bridges"]
    length = np.linalg.norm(points[start] - points[end])
    assert length == pytest.approx(cdist(points[:30], points[30:]).min(), rel=1e-12)


@pytest.mark.parametrize("data", [X, Distances.among(APART)], ids=["coordinates", "distances"])
def test_a_bridged_radius_joins_lonely_points_to_their_nearest(data: Any) -> None:
    """With a radius below all distances, each point is joined to its nearest point by an edge of their distance."""
    graph, bridges = bridged_graph(data, 2, 0.5 * float(APART[APART > 0].min()), silent)
    edges = symmetric_graph(*graph)
    assert connected_components(edges, directed=False)[0] == 1
    assert len({frozenset(pair) for pair in bridges}) == len(bridges) == edges.nnz // 2
    joined = edges.toarray()
    np.testing.assert_allclose(joined[joined > 0], APART[joined > 0], rtol=1e-12)
    nearest = (APART + np.diag(np.full(len(X), np.inf))).argmin(axis=1)
    assert (joined[np.arange(len(X)), nearest] > 0).all()
