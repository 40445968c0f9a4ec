"""The extensions of LLE that choose other neighbors: along the sheet, by density, by class, without short circuits."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse.csgraph import shortest_path
from scipy.spatial.distance import cdist

from glle_engine import manifolds
from glle_engine.base.errors import DisconnectedGraphError
from glle_engine.base.progress import silent
from glle_engine.graph.neighbors import kneighbors
from glle_engine.graph.radius import symmetric_graph
from glle_engine.manifolds import Manifold
from glle_engine.methods.lle_variants.pruned_lle import PrunedLleSpec, ollivier_ricci, short_circuits
from glle_engine.methods.lle_variants.rewired_lle import geodesic_neighbors, relative_neighbors, supervised_neighbors
from tests.engine.methods.reference import codes_of, embed, explained_variance, values_of

TURN = 20.0  # along the arc, of which once round is 49 at least: neighbors further apart are on two turns


@pytest.fixture(scope="module")
def roll() -> Manifold:
    """Return 600 points of a noisy roll whose 12 nearest neighbors jump between its turns."""
    return manifolds.make("swiss_roll", 600, noise=0.03, seed=1)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("isolle", {"n_graph": 20}),
        ("weighted-lle", {"strength": 0.0}),
        ("pruned-lle", {"curvature_delta": 0.999, "detour_lambda": 1e-9}),
        ("supervised-lle", {"class_distance": 0}),
    ],
)
def test_limits_are_lle(roll: Manifold, name: str, options: dict[str, Any]) -> None:
    """At parameters that change no neighbor, each variant gives the bits of LLE."""
    plain = embed("lle", roll.X, n_neighbors=12)
    labels = np.arange(600) % 3 if name == "supervised-lle" else None
    assert np.array_equal(plain.Y, embed(name, roll.X, labels, n_neighbors=12, **options).Y)


def test_isolle_unrolls_what_lle_does_not(roll: Manifold) -> None:
    """Neighbors along the sheet unroll a noisy roll, which LLE folds."""
    plain, along = embed("lle", roll.X, n_neighbors=12), embed("isolle", roll.X, n_neighbors=12)
    arc = roll.coordinates[:, 0]
    assert explained_variance(plain.Y, arc) < 0.5
    assert explained_variance(along.Y, arc) > 0.95
    assert along.figures["n_graph"] < 12
    assert 0 < along.figures["neighbors_replaced"] < 0.5


def test_geodesic_neighbors_are_those_of_all_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches in blocks find the neighbors by the matrix of all shortest paths, also for duplicates."""
    monkeypatch.setattr("glle_engine.base.progress.BLOCK_ENTRIES", 40 * 150)
    reports: list[int] = []
    X = manifolds.make("s_curve", 150, seed=2).X
    X[7] = X[8]
    nearest, distances = kneighbors(X, 6)
    paths = shortest_path(symmetric_graph(nearest, distances), directed=False)
    np.fill_diagonal(paths, np.inf)
    neighbors = geodesic_neighbors(nearest, distances, 40, lambda done, *_: reports.append(done))
    assert len(reports) > 4
    assert reports == sorted(reports)
    assert max(reports[:-1]) < reports[-1] == 150
    assert np.allclose(np.sort(paths, axis=1)[:, :40], np.take_along_axis(paths, neighbors, axis=1), rtol=1e-12)
    assert neighbors[7, 0] == 8


def test_isolle_bridges_a_graph_of_few_neighbors() -> None:
    """With n_graph=1, the parts of the graph are bridged, and the embedding is not degenerate."""
    X = np.concatenate([manifolds.make("s_curve", 60, seed=2).X, manifolds.make("s_curve", 60, seed=3).X + 50])
    embedding = embed("isolle", X, n_neighbors=8, n_graph=1)
    bridges = embedding.figures["bridges"]
    assert len(bridges) > 10
    assert sum((start < 60) != (end < 60) for start, end in bridges) >= 1
    assert embedding.figures["n_graph"] == 1
    assert np.isfinite(embedding.Y).all()
    assert values_of(embedding)[0] > 1e-12


def uneven_sheet(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return an S-curve (500, 3) whose density falls from its middle, and its true coordinates (500, 2)."""
    uniform = np.random.default_rng(seed).random((500, 2))
    t, height = 12 * np.pi * (uniform[:, 0] - 0.5) ** 3, 2 * uniform[:, 1]
    X = np.stack([np.sin(t), height, np.sign(t) * (np.cos(t) - 1)], axis=1)
    return X, np.stack([t, height], axis=1)


def test_relative_distances_even_out_the_density() -> None:
    """Weighted LLE has neighbors on both sides of more points than LLE, and recovers the arc better."""
    straight = []
    for seed in range(4):
        X, true = uneven_sheet(seed)
        nearest = [relative_neighbors(X, 8, strength, silent)[0] for strength in (0.0, 1.0)]
        sides = [np.sign(np.abs(true[near, 0]) - np.abs(true[:, :1])).mean(axis=1) for near in nearest]
        assert np.abs(sides[1]).mean() < np.abs(sides[0]).mean()
        embeddings = [embed(name, X, n_neighbors=8).Y for name in ("lle", "weighted-lle")]
        straight.append([explained_variance(Y, true[:, 0]) for Y in embeddings])
    before, after = np.array(straight).T
    assert (after > np.maximum(before, 0.98)).all()
    assert before.min() < 0.8


def test_relative_neighbors_are_those_of_all_distances() -> None:
    """Neighbors are the k smallest of d_ij / sqrt(M_i M_j)."""
    X, _ = uneven_sheet(0)
    nearest, scale = relative_neighbors(X, 8, 1.0, silent)
    distances = cdist(X, X)
    np.fill_diagonal(distances, np.inf)
    assert np.allclose(scale, np.sort(distances, axis=1)[:, :8].mean(axis=1))
    relative = distances / np.sqrt(scale[:, None] * scale)
    assert np.array_equal(np.argsort(relative, axis=1)[:, :8], nearest)


def test_curvature_of_known_graphs() -> None:
    """The curvature is 1 in a clique and -2 of the only edge between two cliques, which is not cut."""
    clique = np.array([[j for j in range(5) if j != i] for i in range(5)])
    nearest = np.concatenate([clique, clique + 5]).astype(np.int32)
    nearest[4, -1], nearest[5, -1] = 5, 4
    pairs = np.array([[0, 1], [4, 5]], np.int32)
    assert ollivier_ricci(nearest, pairs, silent).tolist() == [1.0, -2.0]
    assert not short_circuits(nearest, np.ones(nearest.shape), PrunedLleSpec(n_neighbors=4), silent)[0].any()


def test_pruning_cuts_every_planted_short_circuit(roll: Manifold) -> None:
    """Exactly the edges between turns of a noisy roll are cut, and the roll unrolls."""
    nearest, distances = kneighbors(roll.X, 12)
    arc = roll.coordinates[:, 0]
    planted = np.abs(arc[nearest] - arc[:, None]) > TURN
    cut, doubtful = short_circuits(nearest, distances, PrunedLleSpec(n_neighbors=12), silent)
    assert planted.sum() > 5
    assert cut[planted].all()
    assert not cut[~planted].any()
    assert doubtful > cut.sum()
    embedding = embed("pruned-lle", roll.X, n_neighbors=12)
    assert explained_variance(embed("lle", roll.X, n_neighbors=12).Y, arc) < 0.5
    assert explained_variance(embedding.Y, arc) > 0.95
    assert embedding.figures["edges_cut"] == cut.sum()


@pytest.mark.parametrize("name", ["severed_bowl", "swiss_roll"])
def test_pruning_leaves_a_clean_sheet_alone(name: str) -> None:
    """On data without short circuits nothing is cut, and the embedding is LLE's."""
    X = manifolds.make(name, 800, seed=0).X
    embedding = embed("pruned-lle", X, n_neighbors=10)
    assert embedding.figures["edges_cut"] == 0
    assert not embedding.notes
    assert np.array_equal(embed("lle", X, n_neighbors=10).Y, embedding.Y)


def test_what_pruning_leaves_too_thin_is_reported() -> None:
    """Points with too few neighbors left, and groups without neighbors outside, are counted and noted."""
    roll = manifolds.make("swiss_roll", 300, noise=0.03, seed=3).X
    embedding = embed("pruned-lle", roll, n_neighbors=8, detour_lambda=0.4, curvature_delta=0.7)
    assert codes_of(embedding) == ["few-neighbors-left"]
    assert embedding.figures["points_with_few_neighbors"] == 2
    embedding = embed("pruned-lle", np.repeat(manifolds.make("s_curve", 150, seed=0).X[20:70], 3, axis=0))
    assert codes_of(embedding) == ["closed-classes"]
    assert embedding.figures["closed_classes"] > 1


@pytest.fixture(scope="module")
def classes() -> tuple[np.ndarray, np.ndarray]:
    """Return three overlapping clouds (240, 5), and the class of each point."""
    rng = np.random.default_rng(3)
    labels = np.arange(240) % 3
    return 2 * np.eye(5)[labels] + 0.6 * rng.standard_normal((240, 5)), labels


def test_alpha_draws_the_classes_apart(classes: tuple[np.ndarray, np.ndarray]) -> None:
    """With a class distance, more neighbors are of a point's own class, in the data and in the embedding."""
    X, labels = classes
    plain, apart = (embed("supervised-lle", X, labels, class_distance=far, n_neighbors=12) for far in (0, 0.1))
    assert plain.figures["own_class"] < apart.figures["own_class"]
    hits = [float((labels[kneighbors(embedding.Y, 5)[0]] == labels[:, None]).mean()) for embedding in (plain, apart)]
    assert hits[0] < 0.85
    assert hits[1] > 0.95


def test_full_alpha_is_bridged_or_refused_or_collapses(classes: tuple[np.ndarray, np.ndarray]) -> None:
    """With class_distance=1, the classes are bridged, refused with a remedy, or collapse to points."""
    X, labels = classes
    joined = embed("supervised-lle", X, labels, class_distance=1)
    assert codes_of(joined)[0] == "bridged"
    assert all(labels[start] != labels[end] for start, end in joined.figures["bridges"])
    assert joined.figures["components"] == 1
    with pytest.raises(DisconnectedGraphError, match="Lower class_distance, raise n_neighbors, or collapse each"):
        embed("supervised-lle", X, labels, class_distance=1, disconnected="error")
    embedding = embed("supervised-lle", X, labels, class_distance=1, disconnected="collapse")
    assert codes_of(embedding) == ["components-collapsed"]
    assert (embedding.figures["components"], embedding.figures["own_class"]) == (3, 1.0)
    centers = np.array([embedding.Y[labels == c].mean(axis=0) for c in range(3)])
    assert np.abs(embedding.Y - centers[labels]).max() < 1e-6
    assert cdist(centers, centers)[np.triu_indices(3, 1)].min() > 1


def test_supervised_neighbors_are_those_of_the_formula(classes: tuple[np.ndarray, np.ndarray]) -> None:
    """Neighbors are the k smallest of Delta + alpha max(Delta) Lambda; ties are decided by the index."""
    X, labels = np.round(classes[0]), classes[1]
    nearest, diameter = supervised_neighbors(X, labels, 10, 0.1, silent)
    distances = cdist(X, X)
    assert diameter == pytest.approx(distances.max())
    distances += 0.1 * distances.max() * (labels[:, None] != labels)
    np.fill_diagonal(distances, np.inf)
    assert np.array_equal(np.argsort(distances, axis=1, kind="stable")[:, :10], nearest)
