"""Landmarks: how they are chosen, how other points are placed, and draws of all points; new points."""

from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

from glle_engine import FitSpec, Posterior, fit, manifolds
from glle_engine.base import errors
from glle_engine.eigen import pattern
from glle_engine.eigen.minimum_degree import minimum_degree
from glle_engine.eigen.pattern import TooCostlyError, cheapest_order
from glle_engine.graph.connectivity import bridge
from glle_engine.graph.neighbors import kneighbors
from glle_engine.linalg.nearest.landmarks import chosen_landmarks
from glle_engine.posterior.placement import attach, combine
from glle_engine.reliability.calibration import calibrate
from glle_engine.weights.lle import lle_weights, tangent_frames
from tests.engine.eigen.dense_reference import normals_by_numpy

N, M = 400, 151  # M is not a multiple of four, the points whose normals are drawn together


@pytest.fixture(scope="module")
def landmark_posterior(sheet: NDArray[np.float64]) -> Posterior:
    """Return a posterior on landmarks of the sheet."""
    return fit(sheet, landmarks=M)


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(2, 200), d=st.integers(1, 6), share=st.floats(0.01, 1), seed=st.integers(0, 99), equal=st.booleans()
)
def test_landmarks_are_distinct_points(n: int, d: int, share: float, seed: int, equal: bool) -> None:  # noqa: FBT001
    """There are as many landmarks as asked for, ascending and reproducible, also of data with many copies."""
    X = np.random.default_rng(seed).random((n, d))
    if equal:
        X = np.round(X)
    m = max(1, int(share * n))
    chosen = chosen_landmarks(X, m)
    assert len(chosen) == m
    assert (np.diff(chosen) > 0).all()
    assert 0 <= chosen[0] <= chosen[-1] < n
    np.testing.assert_array_equal(chosen, chosen_landmarks(X, m))
    different = len(np.unique(X, axis=0))
    assert len(np.unique(X[chosen], axis=0)) == min(m, different)


def test_landmarks_have_the_distribution_of_kmeans() -> None:
    """The second and third landmarks are chosen with the probabilities of k-means++, over many data sets."""
    X = np.array([[0.0], [1.0], [3.0], [7.0]])
    counts = np.zeros(4)
    for extra in range(4, 900):  # the number of points is a key of the stream
        chosen = chosen_landmarks(np.concatenate([X, np.zeros((extra, 1))]), 3)
        counts += np.isin([0, 1, 2, 3], [row if row < 4 else 0 for row in chosen])
    squares = X[1:] ** 2  # from 0, where nearly all points lie
    second = squares[:, 0] / squares.sum()
    left = np.minimum(squares, (X[1:] - X[1:, 0]) ** 2)  # (third, second)
    third = left / left.sum(axis=0) @ second
    np.testing.assert_allclose(counts[1:] / counts[0], second + third, atol=0.06)  # four standard deviations


@pytest.mark.parametrize("landmarks", [N, 10**9])
def test_as_many_landmarks_as_points_are_all_points(
    sheet: NDArray[np.float64], posterior: Posterior, landmarks: int
) -> None:
    """A fit with n or more landmarks has the specification and all bits of a fit without."""
    fitted = fit(sheet, landmarks=landmarks)
    assert fitted.spec == posterior.spec
    for name, array in posterior.arrays().items():
        assert fitted.arrays()[name].tobytes() == array.tobytes(), name


def test_landmarks_in_parts_are_refused_or_bridged(sheet: NDArray[np.float64]) -> None:
    """If the landmarks' graph is disconnected, the error speaks of landmarks, or bridges connect it."""
    two = np.concatenate([sheet, sheet + 1000.0])
    with pytest.raises(errors.DisconnectedGraphError, match="100 landmarks") as refused:
        fit(two, landmarks=100, disconnected="error")
    assert refused.value.details["landmarks"] == 100
    assert fit(two, landmarks=100).embedding.shape == (2 * N, 2)


@pytest.mark.parametrize(("share", "tried"), [(1, "all"), (0.99, 150), (0.01, 90)])
@pytest.mark.parametrize("options", [{}, {"noise": "auto"}, {"neighborhoods": "adaptive"}], ids=str)
def test_automatic_landmarks_by_the_work_of_a_draw(
    sheet: NDArray[np.float64], monkeypatch: pytest.MonkeyPatch, share: float, tried: Any, options: Any
) -> None:
    """The first number of landmarks that is cheap enough, or else the last, is taken, and a note says so."""
    k = FitSpec().of_points(N).n_neighbors
    expected = fit(sheet, **{"n_neighbors": k, "landmarks": tried, **options})
    work = fit(sheet, landmarks="all").diagnostics.figures["elimination"]["flops"]
    monkeypatch.setattr("glle_engine.base.spec.AUTO_LANDMARKS", (150, 90))
    monkeypatch.setattr("glle_engine.posterior.fit.MAX_EXACT_FLOPS", share * work)
    posterior = fit(sheet, **options)
    assert posterior.spec == expected.spec
    for name, array in expected.arrays().items():
        assert posterior.arrays()[name].tobytes() == array.tobytes(), name
    notes = [note.message for note in posterior.notes if note.code == "landmarks"]
    assert [f"{tried} landmarks" in note and "landmarks='all'" in note for note in notes] == [True] * (tried != "all")
    if not options:
        near, _ = kneighbors(sheet, k)
        for whole in (fit(sheet, neighbors=near), fit(csr_array(sheet))):
            assert whole.landmarks is None


@pytest.mark.parametrize("shape", [(400, 2), (900, 5)])
def test_a_graph_is_cheaper_by_its_better_order(shape: tuple[int, int]) -> None:
    """A limit of operations is compared with the cheaper elimination order, and does not change the order."""
    near, _ = kneighbors(np.random.default_rng(0).random(shape), 12)
    neighbors = np.sort(near, axis=1)
    order, minimum = cheapest_order(neighbors, 10**9)
    limited, cost = cheapest_order(neighbors, 10**9, 1.2 * minimum.flops)
    assert (cost, limited.tobytes()) == (minimum, order.tobytes())
    with pytest.raises(TooCostlyError):
        cheapest_order(neighbors, 10**9, 0.9 * minimum.flops)


def test_bridges_are_not_searched_for_a_graph_that_costs_too_much(
    sheet: NDArray[np.float64], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a disconnected graph costs too much, bridges are searched for the landmarks only."""
    two = np.concatenate([sheet, sheet + 1000.0])
    searched = Mock(side_effect=bridge)
    monkeypatch.setattr("glle_engine.posterior.fit.bridge", searched)
    monkeypatch.setattr("glle_engine.base.spec.AUTO_LANDMARKS", (150, 90))
    monkeypatch.setattr("glle_engine.posterior.fit.MAX_EXACT_FLOPS", 1.0)
    assert fit(two).spec.landmarks == 90
    assert [len(call.args[0]) for call in searched.call_args_list] == [90]


def test_a_fit_orders_its_graph_once(sheet: NDArray[np.float64], monkeypatch: pytest.MonkeyPatch) -> None:
    """The elimination order that decides on landmarks is used for the draws, too."""
    counted = Mock(side_effect=minimum_degree)
    monkeypatch.setattr(pattern, "minimum_degree", counted)
    monkeypatch.setattr("glle_engine.base.spec.AUTO_LANDMARKS", (150, 90))
    assert fit(sheet).landmarks is None
    assert counted.call_count == 1


_KINDS = [
    {},
    {"method": "direct"},
    {"method": "direct", "mean": "derived"},
    {"noise": "tangent"},
    {"neighborhoods": "adaptive"},
    {"variance": "dirichlet", "n_components": 3},
]


@pytest.mark.parametrize("kind", _KINDS, ids=str)
def test_landmarks_have_the_posterior_of_their_data(sheet: NDArray[np.float64], kind: Any) -> None:
    """Landmarks have the draws of a fit to the landmarks alone, and the weights of all points sum to one."""
    marked = fit(sheet, landmarks=M, **kind)
    rows = marked.landmarks
    assert rows is not None
    alone = fit(sheet[rows], **kind)
    np.testing.assert_array_equal(marked.embedding[rows], alone.embedding)
    np.testing.assert_array_equal(marked.draw(3, seed=2).embedding[rows], alone.draw(3, seed=2).embedding)
    np.testing.assert_array_equal(marked.weights(3, seed=2)[rows], alone.weights(3, seed=2))
    for weights in (marked.weights(3, seed=2), marked.weights(3, source="prior")):
        np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-12)
    assert np.isin(marked.neighbors, rows).all()
    np.testing.assert_array_equal(marked.transform(sheet, sheet), marked.embedding)
    if kind.get("mean") != "derived":  # which is another mean than that of the reference
        np.testing.assert_allclose(marked.draw(3, scale=0).embedding, marked.embedding, atol=1e-6)


@pytest.mark.parametrize("source", ["posterior", "prior"])
def test_a_draw_is_a_pure_function_of_its_address(landmark_posterior: Posterior, source: Any) -> None:
    """A draw has the same bits alone and with others; positions are drawn weights times drawn landmarks."""
    kind: Any = {"seed": 2**64 - 1, "scale": 1.7, "source": source}
    *_, drawn = landmark_posterior.draws(6, first=2**64 - 9, **kind)
    alone = Posterior.from_parts(landmark_posterior.head(), landmark_posterior.arrays()).draw(drawn.index, **kind)
    assert drawn.embedding.tobytes() == alone.embedding.tobytes()
    placed = combine(landmark_posterior.weights(drawn.index, **kind), landmark_posterior.neighbors, alone.embedding)
    assert landmark_posterior.placement is not None
    others = landmark_posterior.placement.others
    np.testing.assert_allclose(placed[others], alone.embedding[others], rtol=1e-12, atol=1e-12)


def test_normals_of_points_are_independent(landmark_posterior: Posterior) -> None:
    """The drawn weights of different points are uncorrelated, and have the covariance of the posterior."""
    draws = np.stack([landmark_posterior.weights(index) for index in range(400)])
    place = draws[:, :, 0] - landmark_posterior.mean[:, 0]
    deviation = np.sqrt((landmark_posterior.covariance_factor[:, 0] ** 2).sum(axis=1))
    standard = place / deviation
    assert standard.std() == pytest.approx(1, abs=0.01)
    correlation = np.corrcoef(standard.T) - np.eye(N)
    assert np.abs(correlation).max() < 0.35  # seven standard deviations
    covariance = np.einsum("pij,pkj->pik", landmark_posterior.covariance_factor, landmark_posterior.covariance_factor)
    sampled = np.einsum("dpi,dpk->pik", draws - landmark_posterior.mean, draws - landmark_posterior.mean) / len(draws)
    scale = np.trace(covariance, axis1=1, axis2=2)
    assert (np.abs(sampled - covariance).max(axis=(1, 2)) / scale).max() < 0.35


def test_a_duplicate_of_a_landmark_has_its_place() -> None:
    """A copy of a landmark has the landmark's position in every draw, and a figure counts the copies."""
    X = manifolds.make("s_curve", 300, seed=4).X
    doubled = np.concatenate([X, X, X])
    fitted = fit(doubled, landmarks=90)
    assert fitted.landmarks is not None
    twins = np.flatnonzero(np.isin(np.arange(900) % 300, fitted.landmarks % 300))
    places = {row % 300: row for row in fitted.landmarks}
    assert len(twins) == 270
    assert fitted.diagnostics.figures["points_on_landmarks"] == 180
    for Y in (fitted.embedding, fitted.draw(1).embedding, fitted.draw(1, scale=3.0).embedding):
        np.testing.assert_array_equal(Y[twins], Y[[places[row % 300] for row in twins]])


def test_analyses(sheet: NDArray[np.float64], landmark_posterior: Posterior) -> None:
    """With landmarks, summary, generated data and calibration cover all points."""
    assert (landmark_posterior.summary(8).spread > 0).sum() == N
    assert landmark_posterior.reconstruct(sheet, landmark_posterior.weights(0)).shape == sheet.shape
    new = landmark_posterior.extend(sheet, sheet[:5] + 0.01)
    assert landmark_posterior.landmarks is not None
    assert np.isin(new.neighbors, landmark_posterior.landmarks).all()
    assert new.embed(landmark_posterior.draw(0).embedding).shape == (5, 2)
    assert calibrate(landmark_posterior, sheet, n_resamples=4, n_draws=4).draw_spread.shape == (N,)


@pytest.mark.parametrize("options", [{}, {"noise": "tangent"}])
def test_training_points_get_exactly_their_own_embedding(
    sheet: NDArray[np.float64], wide: NDArray[np.float64], options: Any
) -> None:
    """Training points as new points get exactly their own positions, also in draws (scikit-learn 29792)."""
    for X in (sheet, wide):
        posterior = fit(X, **options)
        np.testing.assert_array_equal(posterior.transform(X, X), posterior.embedding)
        drawn = posterior.draw(3).embedding
        np.testing.assert_array_equal(posterior.extend(X, X[::-1]).embed(drawn), drawn[::-1])


@settings(max_examples=20)
@given(rows=st.lists(st.integers(0, 399), min_size=1, max_size=30), seed=st.integers(0, 99))
def test_the_batch_does_not_matter(
    sheet: NDArray[np.float64], posterior: Posterior, rows: list[int], seed: int
) -> None:
    """A new point gets the same bits alone and with others (umap 566, 386 and 1224)."""
    new = sheet[rows] + 0.1 * np.random.default_rng(seed).standard_normal((len(rows), 3))
    together = posterior.transform(sheet, new)
    alone = np.concatenate([posterior.transform(sheet, point[None]) for point in new])
    assert together.tobytes() == alone.tobytes()


def test_exact_duplicates_get_the_mean_of_their_embeddings() -> None:
    """A new point that equals several training points gets the mean of their positions."""
    X = manifolds.make("s_curve", 300, seed=4).X
    X[200], X[250] = X[10], X[10]
    fitted = fit(X)
    same = [10, 200, 250]
    placed = fitted.transform(X, X)
    np.testing.assert_allclose(placed[same], np.tile(fitted.embedding[same].mean(axis=0), (3, 1)), atol=1e-14)
    others = np.setdiff1d(np.arange(300), same)
    np.testing.assert_array_equal(placed[others], fitted.embedding[others])


def test_a_left_out_point_has_the_weights_of_tangent_noise(sheet: NDArray[np.float64]) -> None:
    """A new point gets the weights that a fit with tangent noise would give a training point there."""
    neighbors = kneighbors(sheet, 10)[0][:1]
    frames = tangent_frames(sheet, 10, 2)[:1]
    expected = lle_weights(sheet, neighbors, points=sheet[:1], frames=frames)
    extension = attach(sheet[1:], sheet[:1], FitSpec(n_neighbors=10, noise="tangent")).extension()
    np.testing.assert_array_equal(extension.neighbors + 1, neighbors)
    np.testing.assert_allclose(extension.weights, expected, atol=1e-12)
    assert np.abs(attach(sheet[1:], sheet[:1], FitSpec(n_neighbors=10)).extension().weights - expected).max() > 1e-3


def test_new_points_land_where_a_joint_fit_puts_them() -> None:
    """New points get nearly the positions that a fit of all points gives them."""
    X = manifolds.make("s_curve", 1000, seed=0).X
    everything, part = fit(X), fit(X[:900])
    placed = part.transform(X[:900], X[900:])
    both = np.concatenate([part.embedding, placed])
    design = np.concatenate([both, np.ones((1000, 1))], axis=1)
    linear = np.linalg.lstsq(design[:900], everything.embedding[:900], rcond=None)[0]
    off = (design[900:] @ linear - everything.embedding[900:]).std(axis=0)
    trained = (design[:900] @ linear - everything.embedding[:900]).std(axis=0)
    assert (off < 2 * trained + 0.02).all()


def test_spread_of_new_points(sheet: NDArray[np.float64], posterior: Posterior) -> None:
    """Training points as new points have the mean and covariance of the summary, and new points spread, too."""
    draws = list(posterior.draws(8))
    mean, covariance = posterior.extend(sheet, sheet[:5]).spread(draws, posterior.embedding)
    summary = posterior.summary(8)
    np.testing.assert_array_equal(mean, summary.consensus[:5])
    np.testing.assert_array_equal(covariance, summary.covariance[:5])
    extension = posterior.extend(sheet, sheet[:5] + 0.2)
    assert (np.trace(extension.spread(draws, posterior.embedding)[1], axis1=1, axis2=2) > 0).all()
    assert (extension.distances > 0).all()


def test_impossible_new_points(sheet: NDArray[np.float64], posterior: Posterior) -> None:
    """Other training data, other features and NaN are refused with a remedy."""
    with pytest.raises(errors.InvalidShapeError, match="fitted to"):
        posterior.transform(sheet[:-1], sheet)
    with pytest.raises(errors.InvalidShapeError, match=r"3 columns\.$"):
        posterior.transform(sheet, sheet[:, :2])
    with pytest.raises(errors.NotFiniteError, match=r"\[1, 2\]"):
        posterior.transform(sheet, [[0.0, 0.0, 0.0], [0.0, 0.0, np.nan]])
    rows = csr_array(sheet)
    of_rows = fit(rows)
    assert of_rows.transform(rows, rows[:3]).tobytes() == of_rows.embedding[:3].tobytes()
    for known, new in ((rows[:-1], rows), (rows, rows[:, :2])):
        with pytest.raises(errors.InvalidShapeError, match="fitted to 400 points"):
            of_rows.transform(known, new)


def test_data_from_weights(sheet: NDArray[np.float64], posterior: Posterior) -> None:
    """Data generated from weights are x_i = X_i w_i, near the data for the mean, plus X_i F_i z for a draw."""
    off = posterior.reconstruct(sheet, posterior.mean) - sheet
    radius = np.linalg.norm(sheet[posterior.neighbors] - sheet[:, None], axis=2).mean()
    assert np.linalg.norm(off, axis=1).mean() < 0.05 * radius
    factor = sheet[posterior.neighbors].transpose(0, 2, 1) @ posterior.covariance_factor
    for j in (0, 731):
        z = normals_by_numpy(5, j, posterior.neighbors.size).reshape(posterior.neighbors.shape)
        drawn = posterior.reconstruct(sheet, posterior.weights(j, seed=5, scale=0.25))
        expected = sheet + off + 0.5 * (factor @ z[:, :, None])[:, :, 0]
        np.testing.assert_allclose(drawn, expected, atol=1e-12 * np.abs(sheet).max())
    published = fit(sheet, variant="published")
    np.testing.assert_allclose(published.reconstruct(sheet, published.weights(0)), sheet, atol=1e-5)
