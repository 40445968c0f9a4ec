"""The extensions of LLE that choose other neighbors: along the sheet, by density, by class, without short circuits."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse.csgraph import shortest_path
from scipy.spatial.distance import cdist

from glle_engine import manifolds
from glle_engine.base.errors import DisconnectedGraphError, InvalidParameterError, TooFewPointsError
from glle_engine.base.progress import silent
from glle_engine.graph.connectivity import components, edges, first_connecting
from glle_engine.graph.neighbors import kneighbors
from glle_engine.manifolds import Manifold
from glle_engine.methods import Embedding, method
from glle_engine.methods.lle_variants.isolle import geodesic_neighbors
from glle_engine.methods.lle_variants.pruned_lle import PrunedLleSpec, ollivier_ricci, short_circuits
from glle_engine.methods.lle_variants.supervised_lle import supervised_neighbors
from glle_engine.methods.lle_variants.weighted_lle import relative_neighbors
from glle_engine.methods.spectral.laplacian import symmetric_graph

TURN = 20.0  # along the arc, of which once round is 49 at least: neighbors further apart are on two turns


def embed(name: str, X: np.ndarray, labels: np.ndarray | None = None, **options: Any) -> Embedding:
    """Embed by a method's name."""
    one = method(name)
    return one.embed(X, one.spec(**options), labels=labels)


def explained(Y: np.ndarray, coordinate: np.ndarray) -> float:
    """Return which share of a true coordinate's variance a linear function of the embedding explains."""
    design = np.column_stack([np.ones(len(Y)), Y])
    rest = coordinate - design @ np.linalg.lstsq(design, coordinate, rcond=None)[0]
    return float(1 - rest.var() / coordinate.var())


@pytest.fixture(scope="module")
def roll() -> Manifold:
    """Return 600 points of a noisy roll whose 12 nearest neighbors jump between its turns."""
    return manifolds.make("swiss_roll", 600, noise=0.03, seed=1)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("isolle", {"n_graph": 12}),
        ("isolle", {"n_graph": 20}),
        ("weighted-lle", {"strength": 0.0}),
        ("pruned-lle", {"delta": 0.999, "tolerance": 1e-9}),
    ],
)
def test_limits_are_lle(roll: Manifold, name: str, options: dict[str, Any]) -> None:
    """A dense graph of paths, no weight, no class and no cut leave LLE's neighbors, and its bits."""
    plain = embed("lle", roll.X, n_neighbors=12)
    assert np.array_equal(plain.Y, embed(name, roll.X, n_neighbors=12, **options).Y)


def test_no_alpha_is_lle(roll: Manifold) -> None:
    """Supervised LLE with alpha 0 does not look at the labels."""
    labels = np.random.default_rng(0).integers(0, 3, len(roll.X))
    plain = embed("lle", roll.X, n_neighbors=12)
    assert np.array_equal(plain.Y, embed("supervised-lle", roll.X, labels, n_neighbors=12, alpha=0).Y)


def test_isolle_unrolls_what_lle_does_not(roll: Manifold) -> None:
    """Neighbors along the sheet stay on their turn; the straight ones fold the roll."""
    plain, along = embed("lle", roll.X, n_neighbors=12), embed("isolle", roll.X, n_neighbors=12)
    arc = roll.coordinates[:, 0]
    assert explained(plain.Y, arc) < 0.5
    assert explained(along.Y, arc) > 0.95
    assert along.figures["n_graph"] < 12
    assert 0 < along.figures["neighbors_replaced"] < 0.5


def test_geodesic_neighbors_are_those_of_all_paths() -> None:
    """Local searches find what the matrix of all shortest paths has, duplicates included."""
    X = manifolds.make("s_curve", 150, seed=2).X
    X[7] = X[8]
    nearest, distances = kneighbors(X, 6)
    paths = shortest_path(symmetric_graph(nearest, distances), directed=False)
    np.fill_diagonal(paths, np.inf)
    found = geodesic_neighbors(nearest, distances, 40, silent)
    assert np.allclose(np.sort(paths, axis=1)[:, :40], np.take_along_axis(paths, found, axis=1), rtol=1e-12)
    assert {8} <= set(found[7, :1])


def test_isolle_refuses_a_graph_of_pieces(roll: Manifold) -> None:
    """A graph along which some points cannot be reached is refused with the k that connects, and one too large."""
    with pytest.raises(DisconnectedGraphError, match="smallest n_neighbors that connects it is"):
        embed("isolle", roll.X, n_graph=1)
    with pytest.raises(TooFewPointsError, match="n_graph of at most 599"):
        embed("isolle", roll.X, n_graph=600)


def test_first_connecting_is_the_first() -> None:
    """One neighbor fewer falls apart; no fewer than asked for."""
    nearest, _ = kneighbors(manifolds.make("s_curve", 200, seed=1).X, 15)
    k = first_connecting(nearest, 1)
    assert components(nearest[:, :k]).max() == 0 < components(nearest[:, : k - 1]).max()
    assert first_connecting(nearest, 9) == 9


def uneven_sheet(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return an S-curve whose density falls from its middle, and its true coordinates."""
    at = np.random.default_rng(seed).random((500, 2))
    t, height = 12 * np.pi * (at[:, 0] - 0.5) ** 3, 2 * at[:, 1]
    X = np.stack([np.sin(t), height, np.sign(t) * (np.cos(t) - 1)], axis=1)
    return X, np.stack([t, height], axis=1)


def test_relative_distances_even_out_the_density() -> None:
    """Neighbors by relative distance lie to both sides of more points, and the sheet's arc comes out straighter."""
    straight = []
    for seed in range(4):
        X, true = uneven_sheet(seed)
        lopsided = []
        for strength in (0.0, 1.0):
            nearest, _ = relative_neighbors(X, 8, strength, silent)
            side = np.sign(np.abs(true[nearest, 0]) - np.abs(true[:, :1])).mean(axis=1)
            lopsided.append(float(np.abs(side).mean()))
        assert lopsided[1] < lopsided[0]
        plain, even = embed("lle", X, n_neighbors=8), embed("weighted-lle", X, n_neighbors=8)
        straight.append([explained(plain.Y, true[:, 0]), explained(even.Y, true[:, 0])])
    before, after = np.array(straight).T
    assert (after > np.maximum(before, 0.98)).all()
    assert before.min() < 0.8


def test_relative_neighbors_are_those_of_all_distances() -> None:
    """The k smallest of d_ij / sqrt(M_i M_j)."""
    X, _ = uneven_sheet(0)
    nearest, scale = relative_neighbors(X, 8, 1.0, silent)
    distances = cdist(X, X)
    np.fill_diagonal(distances, np.inf)
    assert np.allclose(scale, np.sort(distances, axis=1)[:, :8].mean(axis=1))
    relative = distances / np.sqrt(scale[:, None] * scale)
    assert np.array_equal(np.argsort(relative, axis=1)[:, :8], nearest)


def test_curvature_of_known_graphs() -> None:
    """In a clique an edge has curvature 1; between two cliques joined by it alone, -2."""
    clique = np.array([[j for j in range(5) if j != i] for i in range(5)])
    nearest = np.concatenate([clique, clique + 5]).astype(np.int32)
    nearest[4, -1], nearest[5, -1] = 5, 4
    pairs = np.array([[0, 1], [4, 5]], np.int32)
    assert ollivier_ricci(nearest, pairs, silent).tolist() == [1.0, -2.0]


def test_pruning_cuts_every_planted_short_circuit(roll: Manifold) -> None:
    """All edges between turns of a noisy roll are cut, no other, and the roll unrolls."""
    nearest, distances = kneighbors(roll.X, 12)
    arc = roll.coordinates[:, 0]
    planted = np.abs(arc[nearest] - arc[:, None]) > TURN
    cut, doubtful = short_circuits(nearest, distances, PrunedLleSpec(n_neighbors=12), silent)
    assert planted.sum() > 5
    assert cut[planted].all()
    assert not cut[~planted].any()
    assert doubtful > cut.sum()
    found = embed("pruned-lle", roll.X, n_neighbors=12)
    assert explained(embed("lle", roll.X, n_neighbors=12).Y, arc) < 0.5
    assert explained(found.Y, arc) > 0.95
    assert found.figures["edges_cut"] == cut.sum()


@pytest.mark.parametrize("name", ["s_curve", "severed_bowl", "swiss_roll"])
def test_pruning_leaves_a_clean_sheet_alone(name: str) -> None:
    """Where no edge is a short circuit none is cut, and the result is LLE's."""
    X = manifolds.make(name, 800, seed=0).X
    found = embed("pruned-lle", X, n_neighbors=10)
    assert found.figures["edges_cut"] == 0
    assert not found.notes
    assert np.array_equal(embed("lle", X, n_neighbors=10).Y, found.Y)


def test_the_only_way_between_two_parts_is_not_cut() -> None:
    """A single edge between two cliques has no way round: it stays, and the graph is whole."""
    rng = np.random.default_rng(0)
    left, right = rng.random((30, 2)), rng.random((30, 2)) + np.array([4.0, 0.0])
    X = np.concatenate([left, right, [[1.5, 0.5], [2.5, 0.5], [3.5, 0.5]]])
    nearest, distances = kneighbors(X, 6)
    assert components(nearest).max() == 0
    cut, _ = short_circuits(nearest, distances, PrunedLleSpec(n_neighbors=6), silent)
    kept = ~cut
    kept[~kept.any(axis=1), 0] = True
    assert components(edges(nearest, kept)).max() == 0


def test_what_pruning_leaves_too_thin_is_reported() -> None:
    """Points with no more neighbors than dimensions, and groups without neighbors outside, are counted and noted."""
    roll = manifolds.make("swiss_roll", 300, noise=0.03, seed=3).X
    found = embed("pruned-lle", roll, n_neighbors=8, tolerance=0.4, delta=0.7)
    assert [note.code for note in found.notes] == ["few-neighbors-left"]
    assert found.figures["points_with_few_neighbors"] == 2
    X = manifolds.make("s_curve", 150, seed=0).X
    X[:14] = X[0]
    found = embed("pruned-lle", np.repeat(X[20:70], 3, axis=0))
    assert [note.code for note in found.notes] == ["closed-classes"]
    assert found.figures["closed_classes"] > 1


def test_dropped_neighbors_are_no_edges() -> None:
    """The first neighbor that is kept stands in for those dropped, wherever it stands in its row."""
    nearest = np.array([[1, 2], [0, 2], [0, 1]], np.int32)
    kept = np.array([[False, True], [True, True], [True, False]])
    assert edges(nearest, kept).tolist() == [[2, 2], [0, 2], [0, 0]]


@pytest.fixture(scope="module")
def classes() -> tuple[np.ndarray, np.ndarray]:
    """Return three overlapping clouds in five dimensions, and the class of each point."""
    rng = np.random.default_rng(3)
    labels = np.arange(240) % 3
    return 2 * np.eye(5)[labels] + 0.6 * rng.standard_normal((240, 5)), labels


def test_alpha_draws_the_classes_apart(classes: tuple[np.ndarray, np.ndarray]) -> None:
    """More of the nearest, in the data and in the embedding, are of the own class."""
    X, labels = classes
    plain, apart = (embed("supervised-lle", X, labels, alpha=alpha, n_neighbors=12) for alpha in (0, 0.1))
    assert plain.figures["own_class"] < apart.figures["own_class"]
    hits = [float((labels[kneighbors(found.Y, 5)[0]] == labels[:, None]).mean()) for found in (plain, apart)]
    assert hits[0] < 0.85
    assert hits[1] > 0.95


def test_full_alpha_is_refused_or_collapses(classes: tuple[np.ndarray, np.ndarray]) -> None:
    """1-SLLE leaves the classes unconnected: refused with the remedy, or each class is one point, and said to be."""
    X, labels = classes
    with pytest.raises(DisconnectedGraphError, match="Lower alpha, raise n_neighbors, or let every component fall"):
        embed("supervised-lle", X, labels, alpha=1)
    found = embed("supervised-lle", X, labels, alpha=1, disconnected="collapse")
    assert [note.code for note in found.notes] == ["components-collapsed"]
    assert (found.figures["components"], found.figures["own_class"]) == (3, 1.0)
    centres = np.array([found.Y[labels == c].mean(axis=0) for c in range(3)])
    assert np.abs(found.Y - centres[labels]).max() < 1e-6
    assert cdist(centres, centres)[np.triu_indices(3, 1)].min() > 1


def test_supervised_neighbors_are_those_of_the_formula(classes: tuple[np.ndarray, np.ndarray]) -> None:
    """The k smallest of Delta + alpha max(Delta) Lambda."""
    X, labels = classes
    nearest, diameter = supervised_neighbors(X, labels, 10, 0.1, silent)
    distances = cdist(X, X)
    assert diameter == pytest.approx(distances.max())
    distances += 0.1 * distances.max() * (labels[:, None] != labels)
    np.fill_diagonal(distances, np.inf)
    assert np.array_equal(np.argsort(distances, axis=1)[:, :10], nearest)


def test_supervised_needs_labels(roll: Manifold) -> None:
    """Without the classes there is nothing to go by."""
    with pytest.raises(InvalidParameterError, match="Give labels"):
        embed("supervised-lle", roll.X)
