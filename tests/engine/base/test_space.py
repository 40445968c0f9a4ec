"""Standardization and metrics: distances and weights in the space of a fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.datasets import load_wine
from sklearn.preprocessing import RobustScaler, StandardScaler

from glle_engine import FitSpec, GlleError, fit, manifolds
from glle_engine.base.space import Space
from glle_engine.graph.neighbors import kneighbors
from glle_engine.posterior.selection import advise
from glle_engine.reliability.calibration import calibrate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine import Posterior
    from glle_engine.base.spec import Metric


@pytest.fixture(scope="module")
def wine() -> NDArray[np.float64]:
    """Return measurements in different units (178, 13)."""
    return np.asarray(load_wine().data)


@pytest.fixture(scope="module")
def standardized(wine: NDArray[np.float64]) -> Posterior:
    """Return a posterior of standardized measurements."""
    return fit(wine, standardize="zscore", n_neighbors=12)


def test_defaults_change_no_specification() -> None:
    """Ids are digests of these dictionaries, so that defaults added later are left out; others are not."""
    assert set(FitSpec().to_dict()) == {
        *("method", "variant", "n_neighbors", "n_components", "reg", "variance", "mean", "covariance", "max_iter"),
        *("tol", "disconnected", "noise", "neighborhoods", "search"),
    }
    spec = FitSpec(standardize="zscore", metric="cosine")
    assert (spec.to_dict()["standardize"], spec.to_dict()["metric"]) == ("zscore", "cosine")
    assert FitSpec.from_dict(spec.to_dict()) == spec


@pytest.mark.parametrize(("standardize", "scaler"), [("zscore", StandardScaler()), ("robust", RobustScaler())])
def test_standardization_is_that_of_scikit_learn(
    wine: NDArray[np.float64], standardize: str, scaler: StandardScaler | RobustScaler
) -> None:
    """To rounding, and powers of two of a column change no bit of the result."""
    X = np.column_stack([wine, np.full(len(wine), 7.25)])
    spec = FitSpec(standardize=standardize)  # type: ignore[arg-type] # a name of the parametrization
    space = Space.of(X, spec)
    places = space.points(X)
    np.testing.assert_allclose(places, scaler.fit_transform(X), atol=1e-12)
    np.testing.assert_allclose(space.restore(places), X, rtol=1e-14)
    assert space.center is not None
    assert space.scale is not None
    assert (space.center[-1], space.scale[-1]) == (7.25, 1.0)
    units = 2.0 ** np.arange(-400, 440, 60)[: X.shape[1]]
    np.testing.assert_array_equal(Space.of(X * units, spec).points(X * units), places)


def test_a_standardized_fit_is_the_fit_of_standardized_data(wine: NDArray[np.float64], standardized: Posterior) -> None:
    """Posterior, note, new points and calibration; center and scale are arrays of the posterior."""
    by_hand = (wine - wine.mean(axis=0)) / wine.std(axis=0)
    same = fit(by_hand, n_neighbors=12)
    np.testing.assert_allclose(standardized.embedding, same.embedding, atol=1e-9)
    np.testing.assert_allclose(standardized.arrays()["center"], wine.mean(axis=0))
    np.testing.assert_allclose(standardized.arrays()["scale"], wine.std(axis=0))
    assert "unequal-feature-scales" not in {note.code for note in standardized.diagnostics.notes}
    np.testing.assert_array_equal(standardized.transform(wine, wine), standardized.embedding)
    new = (wine[:20] + wine[40:60]) / 2
    placed = (new - wine.mean(axis=0)) / wine.std(axis=0)
    np.testing.assert_allclose(standardized.transform(wine, new), same.transform(by_hand, placed), atol=1e-8)
    scales = [calibrate(p, X, n_half_samples=4, n_draws=4).scale for p, X in ((standardized, wine), (same, by_hand))]
    assert scales[0] == pytest.approx(scales[1], rel=1e-6)


@pytest.mark.parametrize(("variant", "method"), [("constrained", "em"), ("published", "em"), ("published", "direct")])
def test_generated_data_have_the_units_of_the_data(wine: NDArray[np.float64], variant: str, method: str) -> None:
    """Those of the fit of standardized data, times the scale plus the center."""
    parameters = {"variant": variant, "method": method, "n_neighbors": 12}
    by_hand = (wine - wine.mean(axis=0)) / wine.std(axis=0)
    posterior, same = (fit(X, **parameters, standardize=how) for X, how in ((wine, "zscore"), (by_hand, "none")))  # type: ignore[arg-type] # names
    weights = same.weights(3)
    expected = same.reconstruct(by_hand, weights) * wine.std(axis=0) + wine.mean(axis=0)
    np.testing.assert_allclose(posterior.reconstruct(wine, weights), expected, rtol=1e-9)


def test_a_feature_without_interquartile_range_is_refused() -> None:
    """Nothing is divided by zero: the columns are named."""
    X = np.random.default_rng(0).random((50, 4))
    X[:40, 2] = 1.0
    with pytest.raises(GlleError, match=r"columns 2, .*standardize='zscore'"):
        fit(X, standardize="robust")
    assert fit(X, standardize="zscore", disconnected="bridge").n_points == 50


@pytest.mark.parametrize("metric", ["cosine", "correlation"])
def test_squared_distances_of_directions(metric: Metric) -> None:
    """2 (1 - cos), or 2 (1 - r): neighbors are those of scipy's metric; lengths (and means) of rows change nothing."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 5)) * rng.random((60, 1)) * 100
    places = Space.of(X, FitSpec(metric=metric)).points(X)
    expected = cdist(X, X, metric)
    np.testing.assert_allclose(cdist(places, places, "sqeuclidean"), 2 * expected, atol=1e-12)
    np.fill_diagonal(expected, np.inf)
    np.testing.assert_array_equal(kneighbors(places, 4)[0], np.argsort(expected, axis=1)[:, :4])
    lengths = rng.random((60, 1)) + 0.5
    other = X * lengths + (rng.standard_normal((60, 1)) if metric == "correlation" else 0.0)
    a, b = (fit(data, metric=metric, n_neighbors=8, disconnected="bridge") for data in (X, other))
    np.testing.assert_allclose(a.embedding, b.embedding, atol=1e-8)
    np.testing.assert_array_equal(a.transform(X, X), a.embedding)
    with pytest.raises(GlleError, match="generate no data in the units given"):
        a.reconstruct(X, a.weights(0))


def test_rows_without_a_direction_are_refused() -> None:
    """With their number and the first."""
    X = np.random.default_rng(0).random((30, 3))
    X[[4, 9]] = 0.0
    with pytest.raises(GlleError, match="Row 4 is 0 and has no direction; 2 of 30"):
        fit(X, metric="cosine")
    with pytest.raises(GlleError, match="Row 4 is constant and has no correlation"):
        fit(X, metric="correlation")


@pytest.mark.parametrize(("levels", "factor"), [(2, 1), (4, 2)])
def test_hamming_counts_features_that_differ(levels: int, factor: int) -> None:
    """Exactly, so that ties are ties; values of no level differ from those of every point."""
    rng = np.random.default_rng(levels)
    X = rng.integers(0, levels, (80, 40)).astype(float) * 3 - 1
    space = Space.of(X, FitSpec(metric="hamming"))
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


def test_hamming_needs_levels() -> None:
    """Measurements are refused with the entry, and so are columns with a level for each point."""
    X = np.random.default_rng(0).integers(0, 3, (30, 4)).astype(float)
    X[7, 2] = 0.5
    with pytest.raises(GlleError, match=r"X\[7, 2\] is 0.5"):
        fit(X, metric="hamming")
    with pytest.raises(GlleError, match="has no meaning with metric='hamming'"):
        FitSpec(metric="hamming", standardize="zscore")
    with pytest.raises(GlleError, match="20,100 levels"):
        Space.of(np.arange(20_100.0).reshape(201, 100), FitSpec(metric="hamming"))


def test_far_new_points_overflow_with_a_remedy(wine: NDArray[np.float64], standardized: Posterior) -> None:
    """As they do without standardization."""
    with pytest.raises(GlleError, match="far from the training data"):
        standardized.transform(wine, np.full((1, 13), 1e300))


def test_advice_and_landmarks_on_standardized_data() -> None:
    """Both are those of the standardized data."""
    X = manifolds.make("swiss_roll", 300, seed=0).X
    distorted = X * [1, 1000, 1]
    by_hand = (X - X.mean(axis=0)) / X.std(axis=0)
    a = advise(distorted, n_neighbors=(8, 12), standardize="zscore")
    b = advise(by_hand, n_neighbors=(8, 12))
    assert a.intrinsic_dimension == pytest.approx(b.intrinsic_dimension)
    marked = fit(distorted, standardize="zscore", landmarks=150)
    same = fit(by_hand, landmarks=150)
    np.testing.assert_allclose(marked.embedding, same.embedding, atol=1e-7)
    np.testing.assert_array_equal(marked.transform(distorted, distorted), marked.embedding)
