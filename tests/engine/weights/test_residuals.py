"""The number of directions of LLE's residuals, and the spread that rests on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from glle_engine import fit
from glle_engine.graph.neighbors import kneighbors
from glle_engine.weights.lle import lle_weights
from glle_engine.weights.residuals import residual_dimension, residuals

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine import Posterior


@pytest.fixture(scope="module")
def digits() -> NDArray[np.float64]:
    """Return 500 digits whose pixels are moved by a little, so that no distances are tied."""
    X = np.asarray(load_digits().data[:500], np.float64)
    return np.asarray(X + 1e-3 * np.random.default_rng(0).uniform(size=X.shape) * (np.ptp(X, axis=0) > 0))


@pytest.fixture(scope="module", params=["em", "direct"])
def of_digits(request: pytest.FixtureRequest, digits: NDArray[np.float64]) -> Posterior:
    """Return the posterior of the digits by either method."""
    return fit(digits, method=request.param)


def measured(X: NDArray[np.float64], n_neighbors: int = 10) -> float:
    """Return the participation ratio of the residuals of data."""
    neighbors, _ = kneighbors(X, n_neighbors)
    return residual_dimension(X, neighbors, lle_weights(X, neighbors))


def isometry(rng: np.random.Generator, d: int, features: int) -> NDArray[np.float64]:
    """Return a matrix (d, features) with orthonormal rows."""
    return np.asarray(np.linalg.qr(rng.standard_normal((features, d)))[0].T)


def encoded(X: NDArray[np.float64], encoding: str) -> NDArray[np.float64]:
    """Return the same geometry, up to a scale, in other features."""
    n = len(X)
    if encoding == "zero columns":
        return np.concatenate([X, np.zeros((n, 1000))], axis=1)
    if encoding == "constant columns":
        return np.concatenate([np.full((n, 17), 1e9), X], axis=1)
    if encoding == "pixels repeated 3 x 3":
        return X.reshape(n, 8, 8).repeat(3, axis=1).repeat(3, axis=2).reshape(n, -1)
    return X @ isometry(np.random.default_rng(1), X.shape[1], 100)


def median_spread(posterior: Posterior) -> float:
    """Return the median over points of the spread of 12 draws."""
    return float(np.median(posterior.summary(12).spread))


def require_same_law(before: Posterior, after: Posterior) -> None:
    """Compare neighbors, means and covariances to rounding."""
    np.testing.assert_array_equal(after.neighbors, before.neighbors)
    np.testing.assert_allclose(after.mean, before.mean, atol=1e-9)
    np.testing.assert_allclose(after.covariance_factor, before.covariance_factor, atol=1e-9)


def test_ratio_is_that_of_the_eigenvalues(wide: NDArray[np.float64]) -> None:
    """(sum lambda)^2 / sum lambda^2, whether there are more points or more features."""
    for X in (wide, np.random.default_rng(0).standard_normal((60, 700))):
        neighbors, _ = kneighbors(X, 10)
        weights = lle_weights(X, neighbors)
        rest = X - np.einsum("nk,nkd->nd", weights, X[neighbors])
        np.testing.assert_allclose(-residuals(X, neighbors, weights), rest, atol=1e-12)
        values = np.linalg.svd(rest, compute_uv=False) ** 2
        assert residual_dimension(X, neighbors, weights) == pytest.approx(values.sum() ** 2 / (values**2).sum())


def test_ratio_counts_independent_noise() -> None:
    """With independent noise of one variance in d features it is d, within the sampling error of the moments."""
    X = np.random.default_rng(0).standard_normal((4000, 6))
    assert measured(X, 4) == pytest.approx(6, abs=0.05)


def test_residuals_of_rounding_have_no_directions(sheet: NDArray[np.float64]) -> None:
    """A ridge near rounding reconstructs exactly; the rounding of an isometry is not taken for noise."""
    turned = sheet @ isometry(np.random.default_rng(2), 3, 40)
    for X in (sheet, turned):
        figures = fit(X, reg=1e-15).diagnostics.figures
        assert (figures["residual_dimension"], figures["variance"]) == (0.0, "dirichlet")
    assert np.isfinite(fit(turned, reg=1e-15, variance="ml").covariance_factor).all()


@pytest.mark.parametrize("encoding", ["zero columns", "constant columns", "pixels repeated 3 x 3", "isometry"])
def test_encoding_of_digits_changes_no_spread(digits: NDArray[np.float64], of_digits: Posterior, encoding: str) -> None:
    """The law is the same to rounding, and so is the spread of draws."""
    before, after = of_digits, fit(encoded(digits, encoding), method=of_digits.spec.method)
    assert before.diagnostics.figures["variance"] == "ml"
    require_same_law(before, after)
    assert median_spread(after) == pytest.approx(median_spread(before), rel=1e-5)


@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**32 - 1),
    features=st.integers(3, 40),
    padding=st.integers(0, 30),
    copies=st.integers(1, 5),
    unit=st.floats(1e-6, 1e6),
)
def test_isometries_repetitions_and_zeros_change_no_law(
    sheet: NDArray[np.float64], seed: int, features: int, padding: int, copies: int, unit: float
) -> None:
    """A sheet of three features has one law, whatever features it is written in."""
    turned = sheet @ isometry(np.random.default_rng(seed), 3, features)
    written = unit * np.concatenate([np.repeat(turned, copies, axis=1), np.zeros((len(sheet), padding))], axis=1)
    before, after = fit(sheet), fit(written)
    assert after.diagnostics.figures["variance"] == before.diagnostics.figures["variance"] == "dirichlet"
    require_same_law(before, after)
    assert after.diagnostics.figures["residual_dimension"] == pytest.approx(
        before.diagnostics.figures["residual_dimension"], rel=1e-9
    )


def test_constant_features_change_no_bit(sheet: NDArray[np.float64], wide: NDArray[np.float64]) -> None:
    """Constant columns of any size leave every array and every draw as they are."""
    for X in (sheet, wide):
        held = np.insert(X, [0, 2, 2], [7.0, -1e200, 0.0], axis=1)
        before, after = fit(X), fit(held)
        for name, array in before.arrays().items():
            assert after.arrays()[name].tobytes() == array.tobytes(), name
        assert after.diagnostics.figures["constant_features"] == [0, 3, 4]
        assert after.diagnostics.figures["n_features"] == X.shape[1] + 3
        new = X[:5] + 0.01
        placed = after.transform(held, np.insert(new, [0, 2, 2], [7.0, -1e200, 0.0], axis=1))
        np.testing.assert_allclose(placed, before.transform(X, new), atol=1e-12)
