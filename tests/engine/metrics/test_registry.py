"""Scores of embeddings by name, their errors, and the test manifolds."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import floyd_warshall
from scipy.spatial import cKDTree, procrustes
from sklearn.datasets import make_blobs
from sklearn.linear_model import LinearRegression
from sklearn.manifold import trustworthiness as reference
from sklearn.metrics import r2_score
from sklearn.neighbors import KNeighborsClassifier, kneighbors_graph

from glle_engine import manifolds
from glle_engine.base.errors import (
    DegenerateDataError,
    DisconnectedGraphError,
    GlleError,
    InvalidParameterError,
    InvalidShapeError,
    NotFiniteError,
)
from glle_engine.graph.neighbors import kneighbors
from glle_engine.metrics import ranks
from glle_engine.metrics.ranks import (
    affine_r_squared,
    continuity,
    disparity,
    local_trustworthiness,
    residual_variance,
    trustworthiness,
)
from glle_engine.metrics.registry import SCORES, neighborhood_hit, score
from tests.engine.methods.reference import embed

N = 60
SHEET = manifolds.make("swiss_roll", N, seed=1)
LABELS = np.arange(N) % 3


def test_every_score_of_one_embedding() -> None:
    """Scores come in the order of the names, are finite and reproducible, and progress is reported."""
    stages: list[str] = []
    names = list(reversed(SCORES))
    inputs: Any = {"labels": LABELS, "truth": SHEET.coordinates}
    values = score(SHEET.X, SHEET.coordinates, names, **inputs, on_progress=lambda *scores: stages.append(scores[2]))
    assert list(values) == names
    assert all(type(value) is float and np.isfinite(value) for value in values.values())
    assert set(stages) >= {"scores", "gplvm", "geodesics"}
    assert values["procrustes"] == pytest.approx(0, abs=1e-12)
    assert values["trustworthiness"] == ranks.trustworthiness(SHEET.X, SHEET.coordinates)
    assert values["continuity"] == ranks.continuity(SHEET.X, SHEET.coordinates)
    assert values == score(SHEET.X, SHEET.coordinates, names, **inputs)
    line = SHEET.coordinates[:, :1]  # is padded with zeros
    assert score(SHEET.X, line * [0.6, 0.8], ["procrustes"], truth=line)["procrustes"] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("one", SCORES.values(), ids=SCORES)
def test_the_better_embedding_scores_better(one: Any) -> None:
    """True coordinates score better than the same coordinates in random order, for every score."""
    sheet = manifolds.make("s_curve", N, seed=1)
    labels = (sheet.coordinates[:, 0] > 0).astype(int)
    shuffled = np.random.default_rng(0).permutation(sheet.coordinates)
    good, bad = (
        score(sheet.X, Y, [one.name], score_neighbors=6, labels=labels, truth=sheet.coordinates)[one.name]
        for Y in (sheet.coordinates, shuffled)
    )
    assert good > bad if one.better == "higher" else good < bad
    assert one.better in {"higher", "lower"}
    assert one.needs in {"nothing", "labels", "truth"}
    assert all((one.title, one.about.endswith("."), one.growth))


def test_neighborhood_hit_is_what_a_classifier_votes() -> None:
    """The neighborhood hit equals the votes of a k-nearest-neighbor classifier, also for words as labels."""
    Y, labels = make_blobs(90, centers=3, cluster_std=4.0, random_state=2)
    votes = KNeighborsClassifier(6).fit(Y, labels)
    nearest = votes.kneighbors(return_distance=False)  # the point itself left out
    expected = np.mean(labels[nearest] == labels[:, None])
    assert 0.3 < neighborhood_hit(Y, labels, 6) < 1
    assert neighborhood_hit(Y, labels, 6) == pytest.approx(expected)
    words = np.array(["red", "green", "blue"])[labels]
    assert score(Y, Y, ["neighborhood_hit"], score_neighbors=6, labels=words)["neighborhood_hit"] == pytest.approx(
        expected
    )


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    k=st.sampled_from([8, 29]),
    unit=st.integers(-460, 490),
    other=st.integers(-460, 490),
)
def test_residual_variance_has_one_definition_in_every_unit(seed: int, k: int, unit: int, other: int) -> None:
    """The residual variance agrees with scipy's shortest paths and with Isomap's own, in any unit."""
    rng = np.random.default_rng(seed)
    X, Y = rng.uniform(size=(30, 2)), rng.standard_normal((30, 2))
    graph = kneighbors_graph(X, k, mode="distance").toarray()
    along = floyd_warshall(np.maximum(graph, graph.T))
    if np.isinf(along).any():
        return
    pairs = np.triu_indices(30, 1)
    straight = np.linalg.norm(Y[:, None] - Y, axis=2)
    whole = residual_variance(X, Y, k)
    assert whole == pytest.approx(1 - np.corrcoef(along[pairs], straight[pairs])[0, 1] ** 2, abs=1e-12)
    isomap = embed("isomap", X, n_neighbors=k)
    assert isomap.figures["residual_variance"] == pytest.approx(residual_variance(X, isomap.Y, k), abs=1e-12)
    assert residual_variance(X * 2.0**unit, Y * 2.0**other, k) == whole


def test_residual_variance_from_landmarks_is_near_that_of_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """For many points, a fixed sample gives nearly the residual variance of all pairs."""
    sheet = manifolds.make("swiss_roll", 600, seed=0)
    X = np.concatenate([sheet.X, sheet.X[:5]])
    Y = np.concatenate([sheet.coordinates, sheet.coordinates[:5]])
    exact = residual_variance(X, Y, 8)
    monkeypatch.setattr("glle_engine.metrics.ranks.MAX_POINTS_OF_ALL_PAIRS", 500)
    monkeypatch.setattr("glle_engine.metrics.ranks.LANDMARKS", 150)
    sampled = residual_variance(X, Y, 8)
    assert sampled == residual_variance(X, Y, 8)
    assert sampled != exact
    assert sampled == pytest.approx(exact, abs=0.05)


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 4))
def test_affine_r2_is_that_of_a_linear_regression(seed: int, p: int, q: int) -> None:
    """The score equals scikit-learn's R^2, and affine maps of the embedding do not change it."""
    rng = np.random.default_rng(seed)
    Y = rng.standard_normal((30, p))
    truth = Y @ rng.standard_normal((p, q)) + rng.standard_normal((30, q)) + 5
    predicted = LinearRegression().fit(Y, truth).predict(Y)
    r_squared = affine_r_squared(Y, truth)
    assert r_squared == pytest.approx(r2_score(truth, predicted, multioutput="variance_weighted"), abs=1e-12)
    turned = Y @ (np.linalg.qr(rng.standard_normal((p, p)))[0] * 10.0 ** rng.integers(-3, 4, p)) - 3
    for other in (turned, np.concatenate([Y, Y, np.ones((30, 1))], axis=1)):
        assert affine_r_squared(other, truth) == pytest.approx(r_squared, abs=1e-9)
    assert affine_r_squared(truth @ rng.standard_normal((q, q)), truth) == pytest.approx(1, abs=1e-9)


APART = np.concatenate([SHEET.X, SHEET.X + 1e4])
BIG = np.arange(4002.0).reshape(2001, 2)


@pytest.mark.parametrize(
    ("X", "Y", "names", "options", "error"),
    [
        (SHEET.X, SHEET.coordinates, ["nope"], {}, InvalidParameterError),
        (SHEET.X, SHEET.coordinates, ["continuity", "continuity"], {}, InvalidParameterError),
        (SHEET.X, SHEET.coordinates, ["neighborhood_hit"], {}, InvalidParameterError),
        (SHEET.X, SHEET.coordinates, ["procrustes"], {}, InvalidParameterError),
        (SHEET.X, SHEET.coordinates, ["trustworthiness"], {"score_neighbors": N // 2}, InvalidParameterError),
        (SHEET.X, SHEET.coordinates, ["residual_variance"], {"score_neighbors": N}, InvalidParameterError),
        (SHEET.X, SHEET.coordinates, ["neighborhood_hit"], {"labels": LABELS[:-1]}, InvalidShapeError),
        (SHEET.X, SHEET.coordinates, ["neighborhood_hit"], {"labels": LABELS * 0.5}, InvalidShapeError),
        (SHEET.X, SHEET.coordinates, ["procrustes"], {"truth": SHEET.coordinates[:-1]}, InvalidShapeError),
        (SHEET.X, SHEET.coordinates, ["procrustes"], {"truth": np.full((N, 2), np.nan)}, NotFiniteError),
        (SHEET.X, SHEET.coordinates, ["procrustes"], {"truth": np.ones((N, 2))}, DegenerateDataError),
        (SHEET.X, SHEET.coordinates[1:], ["continuity"], {}, InvalidShapeError),
        (SHEET.X, np.ones((N, 2)), ["continuity"], {}, DegenerateDataError),
        (BIG, BIG, ["gplvm"], {}, InvalidParameterError),
        (np.eye(3), np.eye(3), ["residual_variance"], {"score_neighbors": 2}, DegenerateDataError),
    ],
)
def test_refuses_with_a_remedy(X: Any, Y: Any, names: list[str], options: Any, error: type[GlleError]) -> None:
    """Unknown names, missing or mismatched inputs, and degenerate data are refused with a remedy."""
    with pytest.raises(error) as caught:
        score(X, Y, names, **options)
    assert caught.value.remedy


def test_a_score_on_a_disconnected_graph_names_its_own_option() -> None:
    """The error of a disconnected graph names score_neighbors, or to omit the score, as remedies."""
    with pytest.raises(DisconnectedGraphError, match="score_neighbors=8") as caught:
        score(APART, APART, ["residual_variance"], score_neighbors=8)
    assert "smallest score_neighbors that connects it is" in str(caught.value.remedy)
    assert "omit residual_variance" in str(caught.value.remedy)
    assert "n_neighbors" not in str(caught.value).replace("score_neighbors", "")


@pytest.mark.parametrize(("d", "few", "k"), [(3, 0, 12), (3, 300, 1), (40, 300, 5)])
def test_trustworthiness_is_scikit_learns(d: int, few: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both computations, by a tree and by blocks of distances, agree with scikit-learn."""
    monkeypatch.setattr(ranks, "_MAX_POINTS_WITHOUT_TREE", few)
    rng = np.random.default_rng(d)
    X = rng.standard_normal((300, d))
    for Y in (X[:, :2], rng.standard_normal((300, 2))):
        assert trustworthiness(X, Y, k) == pytest.approx(reference(X, Y, n_neighbors=k), abs=1e-12)
        assert continuity(X, Y, k) == pytest.approx(reference(Y, X, n_neighbors=k), abs=1e-12)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    route=st.sampled_from([(3, 0), (3, 40), (16, 40), (40, 40)]),
    k=st.integers(1, 9),
    shift=st.integers(-(2**30), 2**30),
    exponent=st.sampled_from([-520, 0, 490]),
)
def test_ranks_are_their_definition(seed: int, route: tuple[int, int], k: int, shift: int, exponent: int) -> None:
    """On integer grids with many ties, ranks equal those counted from exact squared distances, in any unit."""
    (d, few), unit = route, 2.0**exponent
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (40, d)).astype(np.float64)
    Y = rng.standard_normal((40, 2))
    squares = ((X[:, None] - X) ** 2).sum(axis=2)
    nearest = kneighbors(Y, k)[0]
    rank = 1 + (squares[:, None, :] < np.take_along_axis(squares, nearest, axis=1)[:, :, None]).sum(axis=2)
    rank -= (np.take_along_axis(squares, nearest, axis=1) > 0).astype(int)  # the point itself is not another
    excess = np.maximum(rank - k, 0).sum(axis=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "_MAX_POINTS_WITHOUT_TREE", few)
        local = local_trustworthiness((X + shift) * unit, Y * unit, k)
    np.testing.assert_array_equal(local, 1 - 2 * excess / (k * (80 - 3 * k - 1)))


def test_local_trust_averages_to_trust_and_finds_the_misplaced() -> None:
    """The mean of the local scores is the score, and a misplaced point has a low one."""
    X = np.random.default_rng(3).standard_normal((200, 3))
    Y = X[:, :2].copy()
    Y[17] = -3 * X[np.linalg.norm(X - X[17], axis=1).argmax(), :2]
    assert local_trustworthiness(X, X.copy(), 8).min() == 1
    local = local_trustworthiness(X, Y, 8)
    assert local.mean() == pytest.approx(reference(X, Y, n_neighbors=8), abs=1e-12)
    halves = [trustworthiness(X, Y, 8, points=np.arange(start, 200, 2)) for start in (0, 1)]
    assert np.mean(halves) == pytest.approx(local.mean(), abs=1e-12)
    assert local[17] < np.median(local)
    with pytest.raises(InvalidParameterError, match="at most 99"):
        trustworthiness(X, Y, 100)


def test_disparity_is_scipys() -> None:
    """The disparity equals scipy's; rotation and scale do not change it."""
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((50, 3)), rng.standard_normal((50, 3))
    assert disparity(a, b) == pytest.approx(procrustes(a, b)[2], abs=1e-12)
    assert disparity(b, a) == pytest.approx(disparity(a, b), abs=1e-12)
    turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    assert disparity(a, 3 * a @ turn + 5) == pytest.approx(0, abs=1e-12)
    assert disparity(a, np.ones((50, 3))) == disparity(np.ones((50, 3)), np.ones((50, 3))) == 1


@pytest.mark.parametrize("name", manifolds.NAMES)
def test_sheets_are_what_they_say(name: str) -> None:
    """Test manifolds have their size, repeat by seed, and keep neighbors."""
    sheet, noisy = manifolds.make(name, 500, seed=4), manifolds.make(name, 500, noise=0.01, seed=4)
    assert (sheet.X.shape, sheet.coordinates.shape) == ((500, 3), (500, 2))
    np.testing.assert_array_equal(sheet.X, manifolds.make(name, 500, seed=4).X)
    assert not np.array_equal(sheet.X, manifolds.make(name, 500, seed=5).X)
    np.testing.assert_array_equal(noisy.coordinates, sheet.coordinates)
    radius = np.sqrt(((sheet.X - sheet.X.mean(axis=0)) ** 2).sum(axis=1).mean())
    assert (noisy.X - sheet.X).std() == pytest.approx(0.01 * radius, rel=0.1)
    assert trustworthiness(sheet.X, sheet.coordinates / sheet.coordinates.std(axis=0), 5) > 0.98
    for wrong, noise, words in (("torus", 0, "swiss_roll_hole"), (name, -1, "noise")):
        with pytest.raises(InvalidParameterError, match=words):
            manifolds.make(wrong, 10, noise=noise)


@pytest.mark.parametrize("name", ["s_curve", "swiss_roll", "swiss_roll_hole"])
def test_coordinates_of_a_developable_sheet_are_lengths(name: str) -> None:
    """Distances of near points on a developable sheet equal those in space, and a hole has no points."""
    sheet = manifolds.make(name, 20_000, seed=1)
    distance, index = cKDTree(sheet.coordinates).query(sheet.coordinates, 2)
    in_space = np.linalg.norm(sheet.X[index[:, 1]] - sheet.X, axis=1)
    near = distance[:, 1] > 0
    np.testing.assert_allclose(in_space[near] / distance[near, 1], 1, atol=0.02)
    if name == "swiss_roll_hole":
        turns = np.hypot(sheet.X[:, 0], sheet.X[:, 2]) / (1.5 * np.pi)  # of the spiral r = t
        assert not ((np.abs(turns - 2) < 1 / 3 - 1e-9) & (np.abs(sheet.coordinates[:, 1] - 10.5) < 3.5 - 1e-9)).any()
