"""Neighbors that the caller has searched."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist
from sklearn.neighbors import NearestNeighbors, kneighbors_graph, radius_neighbors_graph

from glle_engine import FitSpec, GlleError, fit, load, manifolds
from glle_engine.estimator import GLLE
from glle_engine.graph.given import stored_indices
from glle_engine.graph.neighbors import kneighbors
from glle_engine.reliability.calibration import calibrate


@pytest.fixture(scope="module")
def points() -> NDArray[np.float64]:
    """Return a sheet (200, 3)."""
    return manifolds.make("s_curve", 200, seed=0).X


def test_stored_indices_are_integers() -> None:
    """Neighbors that are stored as floats become integers; a fraction is named by its row and column."""
    assert stored_indices(np.array([[1.0, 2.0], [0.0, 2.0]])).tolist() == [[1, 2], [0, 2]]
    with pytest.raises(GlleError, match=r"neighbors\[1, 0\] is 0\.5"):
        stored_indices(np.array([[1.0, 2.0], [0.5, 2.0]]))


def test_the_nearest_neighbors_give_the_same_posterior(points: NDArray[np.float64]) -> None:
    """The nearest neighbors, given in any form and order, give the bits of a fit that searches for them."""
    expected = fit(points, n_neighbors=8)
    searched = NearestNeighbors(n_neighbors=8).fit(points)
    indices = searched.kneighbors(return_distance=False)
    forms: list[Any] = [
        indices[:, ::-1],
        searched.kneighbors()[::-1],
        NearestNeighbors(n_neighbors=9).fit(points).kneighbors(points),
        kneighbors_graph(points, 8, mode="distance"),
        kneighbors_graph(points, 9, include_self=True),
    ]
    for form in forms:
        posterior = fit(points, neighbors=form)
        assert posterior.spec == expected.spec == FitSpec(n_neighbors=8, landmarks="all")
        assert posterior.embedding.tobytes() == expected.embedding.tobytes()
        assert posterior.covariance_factor.tobytes() == expected.covariance_factor.tobytes()
        assert [note.code for note in posterior.diagnostics.notes] == ["given-neighbors"]
    assert GLLE().fit(points, neighbors=forms[0]).embedding_.tobytes() == expected.embedding.tobytes()


def test_other_neighbors_give_another_posterior(points: NDArray[np.float64]) -> None:
    """Neighbors by another metric are used as given, also to place new points."""
    others = np.argsort(cdist(points, points, "chebyshev"), axis=1, kind="stable")[:, :9]
    posterior = fit(points, neighbors=others)
    assert (posterior.neighbors != fit(points, n_neighbors=8).neighbors).any()
    for row, near in zip(posterior.neighbors, others, strict=True):
        assert set(row) <= set(near)
    np.testing.assert_array_equal(posterior.transform(points, points), posterior.embedding)
    with pytest.raises(GlleError, match="let the fit find the neighbors"):
        calibrate(posterior, points)
    same = fit(cdist(points, points), metric="precomputed", neighbors=others)
    np.testing.assert_allclose(same.embedding, posterior.embedding, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda near: near[:-1], "shape"),
        (lambda near: near.astype(float), "type float64"),
        (lambda near: (near, np.ones((200, 3))), "their distances"),
        (lambda near: np.where(near == 7, 200, near), "is 200, not a point from 0 to 199"),
        (lambda near: np.where(np.arange(200)[:, None] == 5, 5, near), "its own neighbor"),
        (lambda near: np.where(np.arange(200)[:, None] == 5, 6, near), "have a neighbor twice; the first is point 5"),
        (lambda near: near[:, :1], "at least two"),
        (lambda _: csr_array((100, 100)), "shape \\(100, 100\\)"),
    ],
)
def test_malformed_neighbors_are_refused(points: NDArray[np.float64], change: Any, words: str) -> None:
    """The error names the first wrong entry and a remedy."""
    with pytest.raises(GlleError, match=words) as caught:
        fit(points, neighbors=change(kneighbors(points, 6)[0]))
    assert caught.value.remedy


def test_points_without_neighbors_are_counted(points: NDArray[np.float64]) -> None:
    """The error names the first point whose row has only -1, and counts such points; a tiny radius raises an error."""
    near = kneighbors(points, 6)[0]
    near[[5, 9]] = -1
    with pytest.raises(GlleError, match="points have no neighbors; the first is point 5") as caught:
        fit(points, neighbors=near)
    assert caught.value.details == {"row": 5, "points_without_neighbors": 2}
    with pytest.raises(GlleError, match=r"more than 1 neighbor\(s\)"):
        fit(points, neighbors=radius_neighbors_graph(points, 0.01))


def test_points_may_have_different_numbers_of_neighbors(points: NDArray[np.float64], tmp_path: Path) -> None:
    """A radius graph, sparse or as rows that end with -1, gives the weights and covariances of each neighborhood."""
    graph = radius_neighbors_graph(points, 0.6)
    counts = np.diff(graph.indptr)
    rows = np.full((200, counts.max()), -1)
    rows[np.arange(counts.max()) < counts[:, None]] = graph.indices
    posterior, other = fit(points, neighbors=graph), fit(points, neighbors=rows)
    assert posterior.embedding.tobytes() == other.embedding.tobytes()
    assert counts.min() < counts.max() == posterior.spec.n_neighbors
    kept = posterior.distribution.kept
    assert kept is not None
    for i in (0, 77, int(counts.argmin()), int(counts.argmax())):
        near = posterior.neighbors[i, kept[i]]
        assert set(near) == set(graph.indices[graph.indptr[i] : graph.indptr[i + 1]])
        D = points[near] - points[i]
        G = D @ D.T
        inverse = np.linalg.inv(G + 1e-3 * np.trace(G) * np.eye(len(near)))
        u = inverse.sum(axis=1)
        np.testing.assert_allclose(posterior.mean[i, kept[i]], u / u.sum(), atol=1e-7)
        covariance = posterior.covariance_factor[i] @ posterior.covariance_factor[i].T
        inside, expected = covariance[np.ix_(kept[i], kept[i])], inverse - np.outer(u, u) / u.sum()
        np.testing.assert_allclose(inside / np.trace(inside), expected / np.trace(expected), atol=1e-6)
        assert not covariance[~kept[i]].any()
    by_distances = fit(cdist(points, points), neighbors=graph, metric="precomputed")
    np.testing.assert_allclose(by_distances.mean, posterior.mean, atol=1e-6)
    np.testing.assert_allclose(by_distances.covariance_factor, posterior.covariance_factor, atol=1e-6)
    drawn = posterior.weights(3)
    assert not drawn[~kept].any()
    np.testing.assert_allclose(drawn.sum(axis=1), 1, atol=1e-9)
    posterior.save(tmp_path / "posterior.npz")
    assert load(tmp_path / "posterior.npz").draw(3).embedding.tobytes() == posterior.draw(3).embedding.tobytes()
    options: tuple[dict[str, Any], ...] = ({"variant": "published"}, {"neighborhoods": "adaptive"})
    for option in options:
        with pytest.raises(GlleError, match="same number of neighbors, but"):
            fit(points, neighbors=graph, **option)


@pytest.mark.parametrize(
    "parameters", [{"n_neighbors": 9}, {"landmarks": 50}, {"noise": "auto"}, {"search": "approximate"}]
)
def test_parameters_that_contradict_neighbors_are_refused(
    points: NDArray[np.float64], parameters: dict[str, Any]
) -> None:
    """Parameters of a search raise an error if neighbors are given."""
    with pytest.raises(GlleError, match="cannot be combined with `neighbors`"):
        fit(points, neighbors=kneighbors(points, 6)[0], **parameters)


def test_a_graph_in_parts_is_refused_or_bridged() -> None:
    """The remedy tells the caller to give more neighbors, and does not mention n_neighbors."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.random((40, 2)), rng.random((40, 2)) + 5])
    near = kneighbors(X, 6)[0]
    with pytest.raises(GlleError, match=r"2 components.*Give more neighbors of each point"):
        fit(X, neighbors=near, disconnected="error")
    assert fit(X, neighbors=near).diagnostics.figures["n_bridges"] == 1
