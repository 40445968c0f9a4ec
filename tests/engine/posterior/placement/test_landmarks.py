"""Posteriors on landmarks: the choice, the law of the other points, and draws of all points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glle_engine import DrawKey, FitSpec, Posterior, fit, manifolds
from glle_engine.base import errors
from glle_engine.posterior.placement.landmarks import chosen_landmarks
from glle_engine.posterior.placement.out_of_sample import combine
from glle_engine.posterior.posterior import load
from glle_engine.reliability.calibration import calibrate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

N, M = 400, 151  # M is not a multiple of four, the points whose normals are drawn together


@pytest.fixture(scope="module")
def marked(sheet: NDArray[np.float64]) -> Posterior:
    """Return a posterior on some landmarks of the sheet."""
    return fit(sheet, landmarks=M)


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(2, 200), d=st.integers(1, 6), share=st.floats(0.01, 1), seed=st.integers(0, 99), equal=st.booleans()
)
def test_landmarks_are_distinct_points(n: int, d: int, share: float, seed: int, equal: bool) -> None:  # noqa: FBT001
    """As many as wanted, ascending, the same each time; also of data with few different points."""
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


def test_the_unit_of_the_data_chooses_no_other_landmarks(sheet: NDArray[np.float64]) -> None:
    """Powers of two and shifts of exact numbers."""
    X = np.round(sheet * 2**10)
    expected = chosen_landmarks(X, M)
    np.testing.assert_array_equal(chosen_landmarks(X * 2.0**-30, M), expected)
    np.testing.assert_array_equal(chosen_landmarks(X + 2.0**12, M), expected)


def test_pruned_lists_give_the_law_of_all_comparisons() -> None:
    """After two landmarks the third is drawn with a share of the squared distances; counted over many data sets."""
    X = np.array([[0.0], [1.0], [3.0]])
    counts = np.zeros(3)
    for extra in range(3, 600):  # the number of points is a key of the stream
        crowd = np.concatenate([X, np.zeros((extra, 1))])
        chosen = chosen_landmarks(crowd, 2)
        counts += np.isin([0, 1, 2], [row if row < 3 else 0 for row in chosen])
    first = counts[1] / (counts[1] + counts[2])  # from 0, where nearly all points lie, 1 : 9
    assert first == pytest.approx(0.1, abs=0.06)  # four standard deviations


def by_comparing_all(X: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return landmarks by k-means++ as it is written: each new one is compared with all points."""
    rng = np.random.default_rng(0)
    chosen = [int(rng.integers(len(X)))]
    for _ in range(count - 1):
        squares = ((X[:, None, :] - X[chosen]) ** 2).sum(axis=2).min(axis=1)
        chosen.append(int(rng.choice(len(X), p=squares / squares.sum())))
    return np.array(chosen)


def test_landmarks_cover_as_those_of_all_comparisons(sheet: NDArray[np.float64]) -> None:
    """The mean squared distance to the landmarks is that of another sample of the same law."""

    def cost(chosen: NDArray[Any]) -> float:
        return float(((sheet[:, None, :] - sheet[chosen]) ** 2).sum(axis=2).min(axis=1).mean())

    pruned, whole = cost(chosen_landmarks(sheet, 40)), cost(by_comparing_all(sheet, 40))
    uniform = cost(np.random.default_rng(0).permutation(N)[:40])
    assert 0.6 < pruned / whole < 1.6
    assert max(pruned, whole) < 1.2 * uniform


@pytest.mark.parametrize("landmarks", [N, N + 1, 10**9])
def test_as_many_landmarks_as_points_are_all_points(
    sheet: NDArray[np.float64], posterior: Posterior, landmarks: int
) -> None:
    """The specification, and every bit."""
    fitted = fit(sheet, landmarks=landmarks)
    assert fitted.spec == posterior.spec
    assert fitted.landmarks is None
    for name, array in posterior.arrays().items():
        assert fitted.arrays()[name].tobytes() == array.tobytes(), name


def test_no_landmarks_change_no_id() -> None:
    """Ids are digests of the dictionary, which has landmarks only if they are set."""
    assert "landmarks" not in FitSpec().to_dict()
    marked = FitSpec(landmarks=50)
    assert FitSpec.from_dict(marked.to_dict()) == marked
    assert FitSpec.from_dict({**FitSpec().to_dict(), "landmarks": None}) == FitSpec()


@pytest.mark.parametrize("value", [3, 10, 0, -1, 1.5, True, "all"])
def test_impossible_landmarks_are_refused(value: object) -> None:
    """With the value; 10 neighbors need 11 landmarks."""
    with pytest.raises(errors.InvalidParameterError, match="landmarks="):
        FitSpec(landmarks=value, n_neighbors=10)  # type: ignore[arg-type]


def test_refusals(sheet: NDArray[np.float64]) -> None:
    """The published equations have no law of new points; landmarks are one component."""
    with pytest.raises(errors.InvalidParameterError, match="constrained"):
        FitSpec(landmarks=50, variant="published")
    two = np.concatenate([sheet, sheet + 1000.0])
    with pytest.raises(errors.DisconnectedGraphError, match="100 landmarks") as refused:
        fit(two, landmarks=100, disconnected="error")
    assert refused.value.details["landmarks"] == 100
    assert fit(two, landmarks=100).embedding.shape == (2 * N, 2)


_KINDS = [
    {},
    {"method": "direct"},
    {"method": "direct", "mean": "derived"},
    {"noise": "tangent"},
    {"neighborhoods": "adaptive"},
    {"variance": "dirichlet", "n_components": 3},
]


@pytest.mark.parametrize("kind", _KINDS, ids=str)
def test_landmarks_have_the_posterior_of_their_data(sheet: NDArray[np.float64], kind: dict[str, str]) -> None:
    """Draws of the landmarks are those of a fit to the landmarks alone, bit for bit; weights of all points sum to 1."""
    marked = fit(sheet, landmarks=M, **kind)  # type: ignore[arg-type]
    rows = marked.landmarks
    assert rows is not None
    alone = fit(sheet[rows], **kind)  # type: ignore[arg-type]
    np.testing.assert_array_equal(marked.embedding[rows], alone.embedding)
    np.testing.assert_array_equal(marked.draw(3, seed=2).embedding[rows], alone.draw(3, seed=2).embedding)
    weights = marked.weights(3, seed=2)
    np.testing.assert_array_equal(weights[rows], alone.weights(3, seed=2))
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(marked.weights(3, source="prior").sum(axis=1), 1, atol=1e-12)
    assert np.isin(marked.neighbors, rows).all()
    np.testing.assert_array_equal(marked.transform(sheet, sheet), marked.embedding)


@settings(max_examples=20, deadline=None)
@given(
    index=st.integers(0, 2**64 - 9),
    seed=st.integers(0, 2**64 - 1),
    scale=st.floats(0, 4),
    count=st.integers(1, 9),
    source=st.sampled_from(["posterior", "prior"]),
)
def test_a_draw_is_a_pure_function_of_its_address(
    marked: Posterior, index: int, seed: int, scale: float, count: int, source: str
) -> None:
    """Alone, beside others and from stored parts; the places are the drawn weights on the drawn landmarks."""
    kind = {"seed": seed, "scale": scale, "source": source}
    draws = list(marked.draws(count, first=index, **kind))  # type: ignore[arg-type]
    last = index + count - 1
    alone = Posterior.from_parts(marked.head(), marked.arrays()).draw(last, **kind)  # type: ignore[arg-type]
    assert draws[-1].embedding.tobytes() == alone.embedding.tobytes()
    weights = marked.weights(last, **kind)  # type: ignore[arg-type]
    placed = combine(weights, marked.neighbors, alone.embedding)
    assert marked.placement is not None
    others = marked.placement.others
    np.testing.assert_allclose(placed[others], alone.embedding[others], rtol=1e-12, atol=1e-12)


def test_threads_and_alignment(marked: Posterior) -> None:
    """Threads change no bit, and unaligned draws are rotations of the aligned ones."""
    keys = [DrawKey(index) for index in range(9)]
    expected = [draw.embedding for draw in marked.draws_of(keys)]
    for one, other in zip(marked.draws_of(keys, threads=2), expected, strict=True):
        assert one.embedding.tobytes() == other.tobytes()
    turned = marked.draw(4, align="none").embedding
    norms = [np.linalg.norm(Y - Y[marked.landmarks].mean(axis=0), axis=1) for Y in (turned, expected[4])]
    np.testing.assert_allclose(norms[0], norms[1], atol=1e-9)


def test_normals_of_points_are_independent(marked: Posterior) -> None:
    """No two points share normals: the standardised weights of all points are uncorrelated between points."""
    draws = np.stack([marked.weights(index) for index in range(400)])
    place = draws[:, :, 0] - marked.mean[:, 0]
    deviation = np.sqrt((marked.covariance_factor[:, 0] ** 2).sum(axis=1))
    standard = place / deviation
    assert standard.std() == pytest.approx(1, abs=0.01)
    correlation = np.corrcoef(standard.T) - np.eye(N)
    assert np.abs(correlation).max() < 0.35  # seven standard deviations
    covariance = np.einsum("pij,pkj->pik", marked.covariance_factor, marked.covariance_factor)
    sampled = np.einsum("dpi,dpk->pik", draws - marked.mean, draws - marked.mean) / len(draws)
    scale = np.trace(covariance, axis1=1, axis2=2)
    assert (np.abs(sampled - covariance).max(axis=(1, 2)) / scale).max() < 0.35


@pytest.mark.parametrize("index", [0, 3])
def test_scale_zero_is_the_reference(marked: Posterior, index: int) -> None:
    """With the mean weights every point has its mean place."""
    np.testing.assert_allclose(marked.draw(index, scale=0).embedding, marked.embedding, atol=1e-6)


def test_a_duplicate_of_a_landmark_has_its_place() -> None:
    """In the mean and in every draw; the figures count such points."""
    X = manifolds.make("s_curve", 300, seed=4).X
    rows = fit(X, landmarks=90).landmarks
    assert rows is not None
    doubled = np.concatenate([X, X[rows[:5]], X[rows[:5]]])
    fitted = fit(doubled, landmarks=90)
    assert fitted.landmarks is not None
    place = {tuple(doubled[row]): row for row in fitted.landmarks}
    twins = [(row, place[tuple(doubled[row])]) for row in range(len(doubled)) if tuple(doubled[row]) in place]
    assert fitted.diagnostics.figures["points_on_landmarks"] == len(twins) - 90 > 0
    for Y in (fitted.embedding, fitted.draw(1).embedding, fitted.draw(1, scale=3.0).embedding):
        np.testing.assert_array_equal(Y[[a for a, _ in twins]], Y[[b for _, b in twins]])


def test_unit_of_the_data(sheet: NDArray[np.float64], marked: Posterior) -> None:
    """Data times a power of two have the same posterior, bit for bit, but for distances."""
    scaled = fit(sheet * 2.0**20, landmarks=M)
    for name, array in marked.arrays().items():
        assert scaled.arrays()[name].tobytes() == array.tobytes(), name
    ratio = np.array(scaled.diagnostics.figures["landmark_distance"])
    np.testing.assert_array_equal(ratio, 2.0**20 * np.array(marked.diagnostics.figures["landmark_distance"]))


def test_saved_and_loaded(marked: Posterior, tmp_path: Path) -> None:
    """Every array, and the same draws."""
    marked.save(tmp_path / "marked.npz")
    read = load(tmp_path / "marked.npz")
    assert read.spec == marked.spec
    assert read.arrays().keys() == marked.arrays().keys()
    np.testing.assert_array_equal(read.draw(8).embedding, marked.draw(8).embedding)


def test_analyses(sheet: NDArray[np.float64], marked: Posterior) -> None:
    """Summary, new points, generated data and calibration are about all points."""
    summary = marked.summary(8)
    assert summary.spread.shape == (N,)
    assert (summary.spread > 0).all()
    assert marked.reconstruct(sheet, marked.weights(0)).shape == sheet.shape
    new = marked.extend(sheet, sheet[:5] + 0.01)
    assert marked.landmarks is not None
    assert np.isin(new.neighbors, marked.landmarks).all()
    assert new.embed(marked.draw(0).embedding).shape == (5, 2)
    calibration = calibrate(marked, sheet, n_half_samples=4, n_draws=4)
    assert calibration.half_sample_spread.shape == calibration.draw_spread.shape == (N,)


@pytest.mark.parametrize("fault", ["landmarks", "placing"])
def test_progress_and_cancellation(sheet: NDArray[np.float64], fault: str) -> None:
    """The new stages are reported to their end, and an exception in them ends the fit."""
    seen: dict[str, tuple[int, int]] = {}

    def report(done: int, total: int, stage: str) -> None:
        seen[stage] = (done, total)

    fit(sheet, landmarks=M, on_progress=report)
    assert seen["landmarks"] == (M, M)
    assert seen["placing"] == (N - M, N - M)
    assert list(seen) == ["landmarks", "neighbors", "weights", "embedding", "posterior", "diagnostics", "placing"]

    def cancel(done: int, total: int, stage: str) -> None:
        if stage == fault:
            raise KeyboardInterrupt

    stop: Callable[[int, int, str], None] = cancel
    with pytest.raises(KeyboardInterrupt):
        fit(sheet, landmarks=M, on_progress=stop)
