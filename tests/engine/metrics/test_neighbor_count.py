"""The automatic number of neighbors is the one whose embedding keeps the most neighbors."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

from glle_engine import manifolds
from glle_engine.base.errors import ConvergenceError, DisconnectedGraphError
from glle_engine.base.progress import silent
from glle_engine.graph.neighbors import kneighbors
from glle_engine.metrics.neighbor_count import MAX_SAMPLE_POINTS, best_neighbor_count, candidates_of, kept_neighbors
from tests.engine.methods.reference import codes_of, embed


def nearest_of(X: np.ndarray, k: int) -> list[set[int]]:
    """Return the set of the k nearest points of each point, from all distances."""
    apart = cdist(X, X)
    np.fill_diagonal(apart, np.inf)
    return [set(row[:k].tolist()) for row in np.argsort(apart, axis=1, kind="stable")]


def test_kept_neighbors_are_counted() -> None:
    """The share of common neighbors is corrected for chance: 1 for a rotation, near 0 for random positions."""
    rng = np.random.default_rng(0)
    X, noise = rng.standard_normal((200, 3)), rng.standard_normal((200, 2))
    nearest = kneighbors(X, 10)[0]
    assert kept_neighbors(nearest, X @ np.linalg.qr(rng.standard_normal((3, 3)))[0]) == 1
    assert abs(kept_neighbors(nearest, noise)) < 0.05
    share = np.mean([len(a & b) / 10 for a, b in zip(nearest_of(X, 10), nearest_of(X[:, :2], 10), strict=True)])
    assert kept_neighbors(nearest, X[:, :2]) == pytest.approx((share - 10 / 199) / (1 - 10 / 199))


@pytest.mark.parametrize(("name", "n"), [("swiss_roll", 300), ("severed_bowl", 120)])
def test_the_chosen_number_keeps_the_most(name: str, n: int) -> None:
    """The chosen number is the best of all candidates, counted one by one; a note names it and the second best."""
    X = manifolds.make(name, n, noise=0.02, seed=1).X
    embedding = embed("lle", X, n_neighbors="auto")
    of_data = nearest_of(X, 10)
    shares = {
        row["n_neighbors"]: np.mean(
            [
                len(a & b)
                for a, b in zip(of_data, nearest_of(embed("lle", X, n_neighbors=row["n_neighbors"]).Y, 10), strict=True)
            ]
        )
        for row in embedding.figures["curve"]
    }
    best, runner_up = sorted(shares, key=lambda k: (-shares[k], k))[:2]
    assert (embedding.figures["n_neighbors"], embedding.figures["runner_up"]) == (best, runner_up)
    assert sorted([*shares, *embedding.figures["left_out"]]) == candidates_of(n)
    message = next(note.message for note in embedding.notes if note.code == "neighbors-chosen")
    assert f"n_neighbors={best}" in message
    assert f"n_neighbors={runner_up}" in message


def test_the_result_is_lle_with_this_number() -> None:
    """The embedding has the bits of LLE with the chosen number, also if a sample was tried."""
    X = manifolds.make("s_curve", MAX_SAMPLE_POINTS + 900, noise=0.02, seed=0).X
    embedding = embed("lle", X, n_neighbors="auto")
    k = embedding.figures["n_neighbors"]
    assert k in candidates_of(len(X))
    plain = embed("lle", X, n_neighbors=k)
    assert np.array_equal(plain.Y, embedding.Y)
    new = X[:5] + 0.01
    assert np.array_equal(plain.transform(new), embedding.transform(new))
    assert f"of a sample of {MAX_SAMPLE_POINTS:,} points" in str(embedding.notes)
    few = X[:200]
    counts = [
        embed("lle", points, n_neighbors="auto", **options).figures["n_neighbors"]
        for points, options in ((few, {}), (cdist(few, few), {"metric": "precomputed"}), (csr_array(few), {}))
    ]
    assert len(set(counts)) == 1


def test_candidates_grow_with_the_points() -> None:
    """Candidates grow with the root of the number of points, and are at most half of it."""
    assert candidates_of(300) == candidates_of(MAX_SAMPLE_POINTS) == [8, 10, 14, 18, 24, 31, 40]
    assert candidates_of(4 * MAX_SAMPLE_POINTS) == [16, 20, 28, 36, 48, 62, 80]
    assert candidates_of(20) == [8, 10]
    assert candidates_of(5) == [2]
    assert embed("lle", np.random.default_rng(0).random((6, 3)), n_neighbors="auto").figures["n_neighbors"] == 3


def test_graphs_that_fall_apart() -> None:
    """Candidates with a disconnected graph are left out; if all have one, the graph is bridged or refused."""
    X = manifolds.make("s_curve", 40, seed=2).X
    apart = np.concatenate([X, X + np.array([30.0, 0, 0])])
    with pytest.raises(DisconnectedGraphError, match="smallest n_neighbors that connects it is 38") as caught:
        embed("lle", apart[:-2], n_neighbors="auto", disconnected="error")
    assert "disconnected='bridge'" in caught.value.remedy
    joined = embed("lle", apart[:-2], n_neighbors="auto")
    assert "neighbors-chosen" in codes_of(joined)
    assert not joined.figures["left_out"]
    with pytest.raises(DisconnectedGraphError, match="38") as caught:
        embed("auto-k-lle", apart[:-2], disconnected="error")
    assert "Raise k_most" in caught.value.remedy
    assert codes_of(embed("auto-k-lle", apart[:-2]))[0] == "bridged"
    near = np.concatenate([X[:12], X + np.array([30.0, 0, 0])])
    left = embed("lle", near, n_neighbors="auto").figures
    assert left["left_out"] == [8, 10]
    assert left["n_neighbors"] in {14, 18, 24}


def test_candidates_are_ranked_by_what_they_keep() -> None:
    """Candidates are ranked by their score; of equal scores, the smaller k comes first."""
    X = np.random.default_rng(0).random((60, 2))

    def projected(points: Any, nearest: np.ndarray) -> np.ndarray:
        return np.asarray(points if nearest.shape[1] == 10 else points[:, :1])

    choice = best_neighbor_count(X, [8, 10, 14], projected, silent)
    assert choice.ranked == [10, 8, 14]
    assert choice.kept[10] == 1


@pytest.mark.parametrize("failing", [{8}, {8, 10, 14}])
def test_candidates_whose_embedding_fails_are_left_out(failing: set[int]) -> None:
    """A candidate whose embedding fails has no score; if all fail, the error is raised."""
    X = np.random.default_rng(0).random((60, 2))

    def projected(points: Any, nearest: np.ndarray) -> np.ndarray:
        if nearest.shape[1] in failing:
            raise ConvergenceError("No eigenvectors.", remedy="Take other neighbors.")
        return np.asarray(points)

    if len(failing) == 3:
        with pytest.raises(ConvergenceError, match="No eigenvectors"):
            best_neighbor_count(X, [8, 10, 14], projected, silent)
    else:
        assert best_neighbor_count(X, [8, 10, 14], projected, silent).ranked == [10, 14]
