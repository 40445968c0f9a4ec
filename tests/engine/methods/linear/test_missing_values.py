"""Probabilistic PCA with missing values: the closed form without them, the equations point by point, filled-in data."""

import numpy as np
import pytest

from glle_engine.base.errors import DegenerateDataError, InvalidParameterError
from glle_engine.base.progress import silent
from glle_engine.methods.linear.missing_values import complete
from glle_engine.methods.linear.pca import fit_ppca, principal_axes


def with_holes(n: int, d: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Return data (n, d) with two components and little noise, and a copy with a share of missing values."""
    rng = np.random.default_rng(1)
    X = 4 + rng.standard_normal((n, 2)) @ rng.standard_normal((2, d)) * 3 + 0.2 * rng.standard_normal((n, d))
    return X, np.where(rng.random((n, d)) < share, np.nan, X)


def test_without_missing_values_it_is_the_closed_form() -> None:
    """Covariance, noise and mean are those of the closed form, and the data stay as they are."""
    X, _ = with_holes(120, 6, 0.0)
    found, expected = complete(X, 2), fit_ppca(X, principal_axes(X, 2, silent))
    assert found.converged
    assert found.data.tobytes() == X.tobytes()
    assert found.noise_variance == pytest.approx(expected.noise_variance, rel=1e-5)
    covariance = expected.loadings @ expected.loadings.T
    np.testing.assert_allclose(found.loadings @ found.loadings.T, covariance, atol=1e-5 * np.abs(covariance).max())
    np.testing.assert_allclose(found.mean, X.mean(axis=0), atol=1e-6)


def test_it_is_a_fixed_point_of_the_equations() -> None:
    """One more step, written out row by row and feature by feature, changes nothing."""
    _, holes = with_holes(60, 5, 0.25)
    found = complete(holes, 2)
    W, mean, noise = found.loadings, found.mean, found.noise_variance
    z, second = np.empty((60, 2)), np.empty((60, 2, 2))
    for i, row in enumerate(holes):
        has = ~np.isnan(row)
        inverse = np.linalg.inv(W[has].T @ W[has] + noise * np.eye(2))
        z[i] = inverse @ W[has].T @ (row[has] - mean[has])
        second[i] = noise * inverse
    np.testing.assert_allclose(found.embedding, z, atol=1e-6)
    errors = []
    for j in range(5):
        rows = np.flatnonzero(~np.isnan(holes[:, j]))
        moments = sum(np.block([[second[i] + np.outer(z[i], z[i]), z[i][:, None]], [z[i], 1.0]]) for i in rows)
        cross = sum(holes[i, j] * np.append(z[i], 1.0) for i in rows)
        solution = np.linalg.solve(moments, cross)
        np.testing.assert_allclose(solution, np.append(W[j], mean[j]), atol=1e-5)
        errors += [(holes[i, j] - W[j] @ z[i] - mean[j]) ** 2 + W[j] @ second[i] @ W[j] for i in rows]
    assert noise == pytest.approx(np.mean(errors), rel=1e-5)


def test_data_without_noise_converge() -> None:
    """Missing values of data without noise are found exactly, and the steps converge."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 5))
    found = complete(np.where(rng.random(X.shape) < 0.1, np.nan, X), 2)
    assert found.converged
    np.testing.assert_allclose(found.data, X, atol=1e-4)


def test_missing_values_are_found_again() -> None:
    """The errors of filled-in values are below a tenth of the errors of column means; given values stay."""
    X, holes = with_holes(200, 8, 0.2)
    found, missing = complete(holes, 2), np.isnan(holes)
    assert found.data[~missing].tobytes() == X[~missing].tobytes()
    errors = found.data[missing] - X[missing]
    means = (np.nanmean(holes, axis=0) - X)[missing]
    assert np.sqrt((errors**2).mean()) < 0.1 * np.sqrt((means**2).mean())


def test_what_cannot_be_completed_is_refused() -> None:
    """A row or column without values, equal values, and too many components raise an error."""
    _, holes = with_holes(30, 4, 0.1)
    for place, words in (((3, slice(None)), "row 3"), ((slice(None), 2), "column 2")):
        empty = holes.copy()
        empty[place] = np.nan
        with pytest.raises(DegenerateDataError, match=f"All values of {words}"):
            complete(empty)
    with pytest.raises(DegenerateDataError, match="values are equal"):
        complete(np.ones((5, 4)))
    with pytest.raises(InvalidParameterError, match="at most 3"):
        complete(holes, 4)
