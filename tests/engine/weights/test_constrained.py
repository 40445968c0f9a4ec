"""Constrained posteriors: their distribution, and invariants of every draw."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from glle_engine import Posterior, fit, manifolds
from glle_engine.weights.lle import lle_weights, tangent_frames
from tests.engine.conftest import bent_sheet
from tests.engine.eigen.dense_reference import angle


def ridge_matrices(X: NDArray[np.float64], fitted: Posterior) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return A_i and lambda_i of every point; for method="direct", A_i includes the embedding in the units of the data.

    The embedding adds c Dy^T Dy with c = mean tr G / mean tr Dy^T Dy.
    """
    apart = X[fitted.neighbors] - X[:, None]
    gram = apart @ apart.transpose(0, 2, 1)
    trace = np.trace(gram, axis1=1, axis2=2)
    if fitted.spec.noise == "tangent":  # noise ten times larger off the sheet
        along = apart @ tangent_frames(X, 10, 2).transpose(0, 2, 1)
        gram = 0.9 * along @ along.transpose(0, 2, 1) + 0.1 * gram
    if fitted.spec.method == "direct":
        drawn = fitted.embedding[fitted.neighbors] - fitted.embedding[:, None]
        inner = drawn @ drawn.transpose(0, 2, 1)
        gram = gram + trace.mean() / np.trace(inner, axis1=1, axis2=2).mean() * inner
    ridge = fitted.spec.reg * trace
    return gram + ridge[:, None, None] * np.eye(gram.shape[1]), ridge


def participation_ratio(X: NDArray[np.float64], fitted: Posterior) -> float:
    """Return (sum lambda)^2 / sum lambda^2 of the second moments of x_i - X_i w_i at LLE's weights."""
    rest = X - np.einsum("nk,nkd->nd", lle_weights(X, fitted.neighbors), X[fitted.neighbors])
    values = np.linalg.eigvalsh(rest.T @ rest)
    return float(values.sum() ** 2 / (values**2).sum())


def covariance_on_the_plane(A: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return A^-1 - A^-1 1 1^T A^-1 / (1^T A^-1 1)."""
    inverse = np.linalg.inv(A)
    ones = inverse.sum(axis=2)
    return np.asarray(inverse - ones[:, :, None] * ones[:, None, :] / ones.sum(axis=1)[:, None, None])


@pytest.mark.parametrize(
    "options",
    [
        {"variance": "dirichlet"},
        {"variance": "ml"},
        {"method": "direct", "variance": "dirichlet"},
        {"method": "direct", "variance": "ml"},
        {"method": "direct", "variance": "dirichlet", "mean": "derived"},
        {"noise": "tangent"},
        {"noise": "tangent", "method": "direct"},
    ],
)
@pytest.mark.parametrize("data", ["sheet", "wide"])
def test_the_distribution_is_the_gaussian_on_the_plane(options: Any, data: str, request: pytest.FixtureRequest) -> None:
    """Mean and covariance of the weights equal the formulas of the module, for both methods, variances and noises.

    With variance="ml", the divisor is the number of directions of the residuals, plus p for method="direct".
    """
    X = request.getfixturevalue(data)
    fitted = fit(X, **options)
    A, ridge = ridge_matrices(X, fitted)
    noise = ridge / 110
    if options.get("variance") == "ml":
        directions = participation_ratio(X, fitted) + (2 if fitted.spec.method == "direct" else 0)
        noise = (1 / np.linalg.inv(A).sum(axis=(1, 2)) - ridge / 10) / directions
    expected = noise[:, None, None] * covariance_on_the_plane(A)
    F = fitted.covariance_factor
    np.testing.assert_allclose(F @ F.transpose(0, 2, 1), expected, atol=1e-8 * np.abs(expected).max())
    np.testing.assert_allclose(F.sum(axis=1), 0, atol=1e-11)
    sums = np.linalg.inv(A).sum(axis=2)
    if fitted.spec.noise == "isotropic":
        derived = sums / sums.sum(axis=1, keepdims=True)
        mean = derived if fitted.spec.mean == "derived" else lle_weights(X, fitted.neighbors)
        np.testing.assert_allclose(fitted.mean, mean, atol=1e-9)


def test_auto_variance_follows_the_residuals(sheet: NDArray[np.float64], wide: NDArray[np.float64]) -> None:
    """variance="auto" is dirichlet if the residuals lie in fewer than k - 1 directions, and ml otherwise."""
    for X, k, expected in ((sheet, 10, "dirichlet"), (sheet, 5, "dirichlet"), (sheet, 3, "ml"), (wide, 10, "ml")):
        fitted = fit(X, n_neighbors=k, disconnected="bridge")
        figures = fitted.diagnostics.figures
        assert figures["variance"] == expected
        assert figures["residual_dimension"] == pytest.approx(participation_ratio(X, fitted), rel=1e-9)
        assert (figures["residual_dimension"] >= k - 1) == (expected == "ml")
    assert fit(wide, noise="tangent").diagnostics.figures["variance"] == "dirichlet"


def test_ml_maximizes_the_marginal_likelihood(wide: NDArray[np.float64]) -> None:
    """The noise variance in closed form equals the maximum of the evidence, found on a grid."""
    fitted = fit(wide, variance="ml")
    i, k, d, reg = 11, 10, 25, 1e-3
    D = (wide[fitted.neighbors[i]] - wide[i]).T
    ridge = reg * (D**2).sum()
    plane = np.eye(k) - 1 / k
    shape = D @ plane @ D.T / ridge + np.eye(d)  # covariance of D (w - 1/k) + e, over s^2
    residual = D.mean(axis=1)
    form = residual @ np.linalg.solve(shape, residual)
    grid = np.exp(np.linspace(np.log(form / d) - 3, np.log(form / d) + 3, 20_001))
    evidence = -0.5 * (d * np.log(grid) + form / grid)
    best = grid[np.argmax(evidence)]
    A, _ = ridge_matrices(wide, fitted)
    closed = (1 / np.linalg.inv(A[i]).sum() - ridge / k) / d
    assert closed == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize(("method", "source"), [("em", "posterior"), ("direct", "posterior"), ("em", "prior")])
def test_empirical_moments_are_the_analytic_ones(method: Any, source: Any) -> None:
    """4,000 draws of weights have the mean and covariance of the distribution, within sampling error."""
    fitted = fit(bent_sheet(40), method=method)
    drawn = np.stack([fitted.weights(i, source=source, scale=2.0)[:5] for i in range(4000)])
    if source == "posterior":
        mean = fitted.mean[:5]
        covariance = 2 * fitted.covariance_factor[:5] @ fitted.covariance_factor[:5].transpose(0, 2, 1)
    else:
        mean = np.full((5, 10), 0.1)
        covariance = np.broadcast_to(2 * (np.eye(10) - 0.1) / 110, (5, 10, 10))
    deviation = np.sqrt(covariance.diagonal(axis1=1, axis2=2))
    assert np.abs((drawn.mean(axis=0) - mean) / deviation).max() < 5 / np.sqrt(4000)
    centered = drawn - drawn.mean(axis=0)
    empirical = np.einsum("sni,snj->nij", centered, centered) / 4000
    scale = deviation[:, :, None] * deviation[:, None, :]
    assert np.abs((empirical - covariance) / scale).max() < 0.15


@settings(max_examples=30)
@given(
    index=st.integers(0, 2**64 - 1),
    seed=st.integers(0, 2**64 - 1),
    scale=st.floats(0, 100),
    source=st.sampled_from(["posterior", "prior"]),
)
def test_rows_sum_to_one(posterior: Posterior, index: int, seed: int, scale: float, source: Any) -> None:
    """The weights of every draw sum to one: (I - W) 1 = 0."""
    weights = posterior.weights(index, seed=seed, scale=scale, source=source)
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-12)


@pytest.mark.parametrize("method", ["em", "direct"])
def test_the_tangent_mean_rebuilds_the_tangent_coordinates(
    sheet: NDArray[np.float64], wide: NDArray[np.float64], method: Any
) -> None:
    """Mean weights for tangent noise reconstruct tangent coordinates; frames are orthonormal, also in many features."""
    fitted, frames = fit(sheet, noise="tangent", method=method), tangent_frames(sheet, 10, 2)
    np.testing.assert_allclose(frames @ frames.transpose(0, 2, 1), np.broadcast_to(np.eye(2), (400, 2, 2)), atol=1e-12)
    apart = sheet[fitted.neighbors] - sheet[:, None]
    missed = np.einsum("nk,nkp->np", fitted.mean, apart @ frames.transpose(0, 2, 1))
    assert np.abs(missed).max() < 1e-3 * np.linalg.norm(apart, axis=2).mean()
    assert angle(fitted.draw(0, scale=0).embedding, fitted.embedding) < 1e-6
    few, many = tangent_frames(wide, 10, 2), tangent_frames(np.pad(wide, ((0, 0), (0, 10))), 10, 2)[:, :, :25]
    np.testing.assert_allclose(many.transpose(0, 2, 1) @ many, few.transpose(0, 2, 1) @ few, atol=1e-8)


def test_scale_to_zero_is_lle(posterior: Posterior) -> None:
    """Draws approach the reference embedding as the scale approaches 0, and equal it at 0."""
    off = [posterior.draw(2, scale=scale).diagnostics["disparity"] for scale in (1.0, 1e-2, 1e-4, 0.0)]
    assert off == sorted(off, reverse=True)
    np.testing.assert_allclose(posterior.draw(2, scale=0).embedding, posterior.embedding, atol=1e-7)


def test_a_point_buried_in_duplicates_keeps_its_prior() -> None:
    """A point whose neighbors are all duplicates has its prior as its posterior, and a note says so."""
    X = manifolds.make("s_curve", 200, seed=0).X
    X = np.concatenate([X, np.repeat(X[:1], 7, axis=0)])
    fitted = fit(X, n_neighbors=6)
    F = fitted.covariance_factor[0]
    np.testing.assert_allclose(fitted.mean[0], 1 / 6)
    np.testing.assert_allclose(F @ F.T, (np.eye(6) - 1 / 6) / 42, atol=1e-12)
    assert fitted.diagnostics.figures["points_buried_in_duplicates"] == 8
    assert "duplicates" in {note.code for note in fitted.diagnostics.notes}
