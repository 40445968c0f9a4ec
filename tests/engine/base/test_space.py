"""Standardization and metrics: distances and weights in the space of a fit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.datasets import load_wine
from sklearn.preprocessing import RobustScaler, StandardScaler

from glle_engine import FitSpec, GlleError, fit, load, manifolds
from glle_engine.base.errors import DataMismatchError, DegenerateDataError, OutOfRangeError
from glle_engine.base.space import Space
from glle_engine.base.spec import Metric
from glle_engine.base.validation import digest
from glle_engine.graph.neighbors import kneighbors
from glle_engine.reliability.calibration import calibrate
from tests.engine.conftest import bent_sheet
from tests.engine.eigen.dense_reference import angle


@pytest.fixture(scope="module")
def wine() -> NDArray[np.float64]:
    """Return measurements in different units (178, 13)."""
    return np.asarray(load_wine().data)


@pytest.mark.parametrize(("standardize", "scaler"), [("zscore", StandardScaler()), ("robust", RobustScaler())])
def test_standardization_is_that_of_scikit_learn(
    wine: NDArray[np.float64], standardize: str, scaler: StandardScaler | RobustScaler
) -> None:
    """To rounding, and powers of two of a column change no bit of the result."""
    X = np.column_stack([wine, np.full(len(wine), 7.25)])
    spec = FitSpec(standardize=standardize)  # type: ignore[arg-type] # a name of the parametrization
    space = Space.from_data(X, spec)
    places = space.points(X)
    np.testing.assert_allclose(places, scaler.fit_transform(X), atol=1e-12)
    np.testing.assert_allclose(space.restore(places), X, rtol=1e-14)
    assert space.center is not None
    assert space.scale is not None
    assert (space.center[-1], space.scale[-1]) == (7.25, 1.0)
    units = 2.0 ** np.arange(-400, 440, 60)[: X.shape[1]]
    np.testing.assert_array_equal(Space.from_data(X * units, spec).points(X * units), places)


def test_a_standardized_fit_is_the_fit_of_standardized_data(wine: NDArray[np.float64]) -> None:
    """Posterior, note, new points and calibration; center and scale are arrays of the posterior."""
    by_hand, new = StandardScaler().fit(wine), (wine[:20] + wine[40:60]) / 2
    scaled = by_hand.transform(wine)
    standardized, same = fit(wine, standardize="zscore", n_neighbors=12), fit(scaled, n_neighbors=12)
    np.testing.assert_allclose(standardized.embedding, same.embedding, atol=1e-9)
    np.testing.assert_allclose(standardized.arrays()["center"], wine.mean(axis=0))
    np.testing.assert_allclose(standardized.arrays()["scale"], wine.std(axis=0))
    assert "unequal-feature-scales" not in {note.code for note in standardized.diagnostics.notes}
    np.testing.assert_array_equal(standardized.transform(wine, wine), standardized.embedding)
    placed = same.transform(scaled, by_hand.transform(new))
    np.testing.assert_allclose(standardized.transform(wine, new), placed, atol=1e-8)
    scales = [calibrate(p, X, n_resamples=4, n_draws=4).scale for p, X in ((standardized, wine), (same, scaled))]
    assert scales[0] == pytest.approx(scales[1], rel=1e-6)
    with pytest.raises(GlleError, match="times the extent of the training data away"):
        standardized.transform(wine, np.full((1, 13), 1e300))


@pytest.mark.parametrize(("variant", "method"), [("constrained", "em"), ("published", "direct")])
def test_generated_data_have_the_units_of_the_data(wine: NDArray[np.float64], variant: Any, method: Any) -> None:
    """Those of the fit of standardized data, times the scale plus the center."""
    by_hand, spec = StandardScaler().fit_transform(wine), FitSpec(variant=variant, method=method, n_neighbors=12)
    posterior, same = fit(wine, spec, standardize="zscore"), fit(by_hand, spec)
    weights = same.weights(3)
    expected = same.reconstruct(by_hand, weights) * wine.std(axis=0) + wine.mean(axis=0)
    np.testing.assert_allclose(posterior.reconstruct(wine, weights), expected, rtol=1e-9)


@pytest.mark.parametrize("metric", ["cosine", "correlation"])
def test_squared_distances_of_directions(metric: Metric) -> None:
    """2 (1 - cos), or 2 (1 - r): neighbors are those of scipy's metric; lengths (and means) of rows change nothing."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 5)) * rng.random((60, 1)) * 100
    places = Space.from_data(X, FitSpec(metric=metric)).points(X)
    expected = cdist(X, X, metric)
    np.testing.assert_allclose(cdist(places, places, "sqeuclidean"), 2 * expected, atol=1e-12)
    np.fill_diagonal(expected, np.inf)
    np.testing.assert_array_equal(kneighbors(places, 4)[0], np.argsort(expected, axis=1)[:, :4])
    lengths = rng.random((60, 1)) + 0.5
    other = X * lengths + (rng.standard_normal((60, 1)) if metric == "correlation" else 0.0)
    a, b = (fit(data, metric=metric, n_neighbors=8, disconnected="bridge") for data in (X, other))
    np.testing.assert_allclose(a.embedding, b.embedding, atol=1e-8)
    np.testing.assert_array_equal(a.transform(X, X), a.embedding)
    with pytest.raises(GlleError, match="would not be in the units of your data"):
        a.reconstruct(X, a.weights(0))


@pytest.mark.parametrize(("levels", "factor"), [(2, 1), (4, 2)])
def test_hamming_counts_features_that_differ(levels: int, factor: int) -> None:
    """Exactly, so that ties are ties; values of no level differ from those of every point."""
    rng = np.random.default_rng(levels)
    X = rng.integers(0, levels, (80, 40)).astype(float) * 3 - 1
    space = Space.from_data(X, FitSpec(metric="hamming"))
    places = space.points(X)
    expected = np.rint(40 * cdist(X, X, "hamming"))
    distances = kneighbors(places, 5)[1]
    np.testing.assert_array_equal(distances, np.sqrt(np.rint(distances**2)))
    np.testing.assert_array_equal(((places[:, None] - places) ** 2).sum(axis=2), factor * expected)
    new = np.concatenate([X[:3], X[:3]])
    new[3:, [1, 5]] = 99
    away = ((space.points(new)[:, None] - places) ** 2).sum(axis=2)
    np.testing.assert_allclose(away, factor * np.rint(40 * cdist(new, X, "hamming")), atol=1e-12)
    posterior = fit(X, metric="hamming", disconnected="bridge")
    np.testing.assert_array_equal(posterior.transform(X, X), posterior.embedding)


def test_landmarks_of_standardized_data() -> None:
    """Landmarks and places are those of the standardized data."""
    X = manifolds.make("swiss_roll", 300, seed=0).X
    distorted, by_hand = X * [1, 1000, 1], StandardScaler().fit_transform(X)
    marked = fit(distorted, standardize="zscore", landmarks=150)
    np.testing.assert_allclose(marked.embedding, fit(by_hand, landmarks=150).embedding, atol=1e-7)
    np.testing.assert_array_equal(marked.transform(distorted, distorted), marked.embedding)


def with_entries(rows: Any, columns: Any, value: float) -> NDArray[np.float64]:
    """Return 50 points of four levels in four features, with other values somewhere; row 20 is constant."""
    X = np.random.default_rng(0).integers(0, 4, (50, 4)).astype(float)
    X[20] = 2
    X[rows, columns] = value
    return X


@pytest.mark.parametrize(
    ("X", "options", "words"),
    [
        (with_entries(slice(40), 2, 1.0), {"standardize": "robust"}, r"columns 2, .*standardize='zscore'"),
        (
            with_entries([4, 9], slice(4), 0.0),
            {"metric": "cosine"},
            r"Row 4 .* is 0 and has no direction; there are 2 such row\(s\) among 50",
        ),
        (with_entries([4, 9], slice(4), 0.0), {"metric": "correlation"}, "Row 4 .* is constant and has no correlation"),
        (with_entries(7, 2, 0.5), {"metric": "hamming"}, r"X\[7, 2\] is 0.5"),
        (
            with_entries(7, 2, 0.0),
            {"metric": "hamming", "standardize": "zscore"},
            "would change nothing with metric='hamming'",
        ),
        (np.arange(20_100.0).reshape(201, 100), {"metric": "hamming"}, "20,100 distinct values"),
    ],
)
def test_data_without_the_space_are_refused(X: NDArray[np.float64], options: dict[str, Any], words: str) -> None:
    """Features without an interquartile range, rows without a direction, measurements without levels are named."""
    with pytest.raises(GlleError, match=words):
        fit(X, **options)


FITS: dict[str, dict[str, Any]] = {
    "em": {},
    "direct": {"method": "direct"},
    "ml": {"variance": "ml"},
    "tangent": {"noise": "tangent"},
    "adaptive": {"neighborhoods": "adaptive", "n_neighbors": 12},
}
SHEET = bent_sheet(250)
IN_ANY_UNIT = FITS | {"landmarks": {"landmarks": 91}}
FITTED = {name: fit(SHEET, **options) for name, options in IN_ANY_UNIT.items()}


@settings(max_examples=15)
@given(exponent=st.integers(-900, 900), fit_name=st.sampled_from(sorted(IN_ANY_UNIT)))
def test_powers_of_two_change_no_bit(exponent: int, fit_name: str) -> None:
    """Distribution, reference and draws of X 2^j have the bits of those of X; new points land where they did."""
    X, before = np.ldexp(SHEET, exponent), FITTED[fit_name]
    after = fit(X, **IN_ANY_UNIT[fit_name])
    for name, array in before.arrays().items():
        assert after.arrays()[name].tobytes() == array.tobytes(), name
    assert after.draw(731, seed=1).embedding.tobytes() == before.draw(731, seed=1).embedding.tobytes()
    new = SHEET[:3] + 0.25
    placed, expected = after.extend(X, np.ldexp(new, exponent)), before.extend(SHEET, new)
    assert placed.weights.tobytes() == expected.weights.tobytes()
    np.testing.assert_array_equal(placed.distances, np.ldexp(expected.distances, exponent))
    if fit_name == "em":
        traces = [calibrate(p, data, n_resamples=4, n_draws=4).trace for p, data in ((before, SHEET), (after, X))]
        assert traces[0] == traces[1]


def test_the_ends_of_the_range_are_data_or_refused() -> None:
    """Coordinates up to the largest double are fitted and placed; distances that underflow beside it are no ties."""
    X, largest = np.random.default_rng(0).uniform(-1, 1, (200, 3)), np.finfo(float).max
    X[0], X[1] = 1.0, -1.0  # differences overflow
    fitted = fit(X * largest)
    assert angle(fitted.embedding, fit(X).embedding) < 1e-6
    np.testing.assert_allclose(fitted.transform(X * largest, X[:4] * largest), fitted.embedding[:4], atol=1e-12)
    with pytest.raises(OutOfRangeError, match="unit of the training data"):
        fit(X * 1e-3).transform(X * 1e-3, np.full((1, 3), 1e300))
    with pytest.raises(OutOfRangeError, match="fit this point and its neighbors alone"):
        fit(np.concatenate([SHEET * 1e-180, [[1.0, 1.0, 1.0]]]))
    with pytest.raises(DegenerateDataError):
        fit(np.full((30, 3), 1e-320))


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32 - 1), fit_name=st.sampled_from(sorted(FITS)))
def test_the_order_of_points_changes_names_only(seed: int, fit_name: str) -> None:
    """Each point keeps its distribution; eigenvalues and the plane of the embedding are the same."""
    order = np.random.default_rng(seed).permutation(len(SHEET))
    before, after = FITTED[fit_name], fit(SHEET[order], **FITS[fit_name])
    named = order[after.neighbors]
    ascending = np.argsort(named, axis=1)
    np.testing.assert_array_equal(np.take_along_axis(named, ascending, axis=1), before.neighbors[order])
    moved = np.take_along_axis(after.mean, ascending, axis=1)
    np.testing.assert_allclose(moved, before.mean[order], atol=1e-6)
    F, G = before.covariance_factor[order], np.take_along_axis(after.covariance_factor, ascending[:, :, None], axis=1)
    np.testing.assert_allclose(G @ G.transpose(0, 2, 1), F @ F.transpose(0, 2, 1), atol=1e-6)
    np.testing.assert_allclose(after.eigenvalues, before.eigenvalues, rtol=1e-6)
    assert angle(after.embedding, before.embedding[order]) < 1e-5


@settings(max_examples=20)
@given(
    shift=st.lists(st.floats(-1e4, 1e4), min_size=3, max_size=3),
    unit=st.floats(1e-140, 1e140) | st.sampled_from([1e150, 1e-150, 1e300, 1e-300]),
    fit_name=st.sampled_from(sorted(FITS)),
)
def test_translation_and_unit_change_the_distribution_by_rounding(
    shift: list[float], unit: float, fit_name: str
) -> None:
    """The distribution, the eigenvalues and the embedding of moved and rescaled data are the same to rounding."""
    before, after = FITTED[fit_name], fit((SHEET + shift) * unit, **FITS[fit_name])
    np.testing.assert_array_equal(after.neighbors, before.neighbors)
    np.testing.assert_allclose(after.mean, before.mean, atol=1e-5)
    F, G = before.covariance_factor, after.covariance_factor
    np.testing.assert_allclose(G @ G.transpose(0, 2, 1), F @ F.transpose(0, 2, 1), atol=1e-6)
    np.testing.assert_allclose(after.eigenvalues, before.eigenvalues, rtol=1e-4)
    assert angle(after.embedding, before.embedding) < 1e-4


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32 - 1), copies=st.integers(1, 4))
def test_duplicates_reconstruct_each_other(seed: int, copies: int) -> None:
    """Duplicates can be exchanged: equal weights on each of them, and equal weights of each on all other points."""
    rng = np.random.default_rng(seed)
    chosen = int(rng.integers(len(SHEET)))
    X = np.concatenate([SHEET, np.repeat(SHEET[chosen, None], copies, axis=0)])
    fitted = fit(X)
    alike = [chosen, *range(len(SHEET), len(X))]
    assert fitted.diagnostics.figures["points_with_duplicates"] == copies + 1
    for point in alike:
        is_copy = np.isin(fitted.neighbors[point], alike)
        assert is_copy.sum() == copies
        np.testing.assert_allclose(fitted.mean[point, is_copy], fitted.mean[chosen, -copies:], atol=1e-12)
        np.testing.assert_array_equal(fitted.neighbors[point, ~is_copy], fitted.neighbors[chosen, :-copies])
        np.testing.assert_allclose(fitted.mean[point, ~is_copy], fitted.mean[chosen, :-copies], atol=1e-12)
    assert np.ptp(fitted.embedding[alike], axis=0).max() < 0.1 * np.ptp(fitted.embedding, axis=0).min()


def test_other_training_data_are_refused(tmp_path: Path) -> None:
    """The digest of the training data is in the posterior and in its file."""
    fitted = FITTED["em"]
    assert fitted.data_sha256 == digest(SHEET)
    fitted.save(tmp_path / "fit.npz")
    calls: list[Any] = [
        lambda X: load(tmp_path / "fit.npz").transform(X, SHEET[:2]),
        lambda X: fitted.reconstruct(X, fitted.mean),
        lambda X: calibrate(fitted, X, n_resamples=4, n_draws=4),
    ]
    for call in calls:
        with pytest.raises(DataMismatchError, match="data of the fit") as caught:
            call(SHEET[::-1])
        assert caught.value.details["expected"] == fitted.data_sha256
        call(SHEET.tolist())


def test_digests_are_of_values() -> None:
    """Lists, single precision, other byte orders and signs of zero have one digest; shape and order count."""
    X = np.array([[0.0, 1.5], [2.0, -3.0], [4.0, 0.25]])
    same: list[Any] = [X.astype(">f8"), X.astype(np.float32).astype(float), X * -1 * -1]
    same.append(np.where(X == 0, -0.0, X))
    assert {digest(np.asarray(one, float)) for one in same} == {digest(X)}
    assert len({digest(X), digest(X[::-1]), digest(X.reshape(2, 3)), digest(X.reshape(1, 6))}) == 4
