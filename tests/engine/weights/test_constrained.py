"""Constrained posteriors: their distribution, and invariants of every draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glle_engine import fit, manifolds
from glle_engine.weights.lle import lle_weights, neighborhoods
from glle_engine.weights.tangent import tangent_frames
from tests.engine.conftest import bent_sheet
from tests.engine.eigen.dense_reference import angle

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine import Posterior


def ridge_matrices(X: NDArray[np.float64], fitted: Posterior) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return A_i and lambda_i of every point."""
    blocks = list(neighborhoods(X, fitted.neighbors))
    gram = np.concatenate([block.gram for block in blocks])
    ridge = fitted.spec.reg * np.trace(gram, axis1=1, axis2=2)
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


@pytest.mark.parametrize("variance", ["dirichlet", "ml"])
def test_em_law_is_the_gaussian_on_the_plane(sheet: NDArray[np.float64], variance: Any) -> None:
    """Mean LLE, covariance s_i^2 (A^-1 - A^-1 1 1^T A^-1 / 1^T A^-1 1), s_i^2 by its closed form."""
    fitted = fit(sheet, variance=variance)
    A, ridge = ridge_matrices(sheet, fitted)
    k, directions = 10, participation_ratio(sheet, fitted)
    if variance == "dirichlet":
        noise = ridge / (k * (k + 1))
    else:
        noise = (1 / np.linalg.inv(A).sum(axis=(1, 2)) - ridge / k) / directions
    expected = noise[:, None, None] * covariance_on_the_plane(A)
    F = fitted.covariance_factor
    np.testing.assert_allclose(F @ F.transpose(0, 2, 1), expected, atol=1e-9 * np.abs(expected).max())
    np.testing.assert_allclose(fitted.mean, lle_weights(sheet, fitted.neighbors), atol=1e-12)
    np.testing.assert_allclose(F.sum(axis=1), 0, atol=1e-12)


@pytest.mark.parametrize("mean", ["lle", "derived"])
def test_direct_law_adds_the_embedding_in_the_units_of_the_data(sheet: NDArray[np.float64], mean: Any) -> None:
    """The precision is A_i + c Dy^T Dy with c = mean tr G / mean tr Dy^T Dy; the mean LLE's or the precision's own."""
    fitted = fit(sheet, method="direct", mean=mean)
    A, ridge = ridge_matrices(sheet, fitted)
    apart = fitted.embedding[fitted.neighbors] - fitted.embedding[:, None]
    inner = apart @ apart.transpose(0, 2, 1)
    unit = (ridge / fitted.spec.reg).mean() / np.trace(inner, axis1=1, axis2=2).mean()
    B = A + unit * inner
    expected = (ridge / 110)[:, None, None] * covariance_on_the_plane(B)
    F = fitted.covariance_factor
    np.testing.assert_allclose(F @ F.transpose(0, 2, 1), expected, atol=1e-9 * np.abs(expected).max())
    own = np.linalg.inv(B).sum(axis=2)
    wanted = lle_weights(sheet, fitted.neighbors) if mean == "lle" else own / own.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(fitted.mean, wanted, atol=1e-9)


def test_direct_ml_counts_the_embedding_among_the_directions(wide: NDArray[np.float64]) -> None:
    """With ml the direct variance divides by the participation ratio of the residuals, plus p."""
    fitted = fit(wide, method="direct", variance="ml")
    A, ridge = ridge_matrices(wide, fitted)
    apart = fitted.embedding[fitted.neighbors] - fitted.embedding[:, None]
    inner = apart @ apart.transpose(0, 2, 1)
    B = A + (ridge / 1e-3).mean() / np.trace(inner, axis1=1, axis2=2).mean() * inner
    noise = (1 / np.linalg.inv(B).sum(axis=(1, 2)) - ridge / 10) / (participation_ratio(wide, fitted) + 2)
    expected = noise[:, None, None] * covariance_on_the_plane(B)
    F = fitted.covariance_factor
    np.testing.assert_allclose(F @ F.transpose(0, 2, 1), expected, atol=1e-8 * np.abs(expected).max())


def test_auto_variance_follows_the_residuals(sheet: NDArray[np.float64], wide: NDArray[np.float64]) -> None:
    """Dirichlet if the residuals lie in fewer than k - 1 directions, ml otherwise."""
    for X, k, expected in ((sheet, 10, "dirichlet"), (sheet, 5, "dirichlet"), (sheet, 3, "ml"), (wide, 10, "ml")):
        fitted = fit(X, n_neighbors=k, disconnected="bridge")
        figures = fitted.diagnostics.figures
        assert figures["variance"] == expected
        assert figures["residual_dimension"] == pytest.approx(participation_ratio(X, fitted), rel=1e-9)
        assert (figures["residual_dimension"] >= k - 1) == (expected == "ml")
    assert fit(wide, noise="tangent").diagnostics.figures["variance"] == "dirichlet"


def test_ml_maximises_the_marginal_likelihood(wide: NDArray[np.float64]) -> None:
    """The closed form is the maximum of the evidence over s^2, found by brute force on a grid."""
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


@pytest.mark.parametrize("method", ["em", "direct"])
@pytest.mark.parametrize("source", ["posterior", "prior"])
def test_empirical_moments_are_the_analytic_ones(method: Any, source: Any) -> None:
    """Mean and covariance of 4,000 weight draws are those of the law, within sampling error."""
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
    centred = drawn - drawn.mean(axis=0)
    empirical = np.einsum("sni,snj->nij", centred, centred) / 4000
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
    """(I - W) 1 = 0 for every draw."""
    weights = posterior.weights(index, seed=seed, scale=scale, source=source)
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-12)


@settings(max_examples=15)
@given(
    factor=st.floats(1e-6, 1e6),
    shift=st.floats(-100, 100),
    angle_=st.floats(0, 6),
    method=st.sampled_from(["em", "direct"]),
    variance=st.sampled_from(["dirichlet", "ml"]),
    noise=st.sampled_from(["isotropic", "tangent"]),
)
def test_translation_rotation_and_rescaling_change_nothing(
    sheet: NDArray[np.float64], factor: float, shift: float, angle_: float, method: Any, variance: Any, noise: Any
) -> None:
    """The same seed gives the same draw of moved, turned and rescaled data."""
    turn = np.array([[np.cos(angle_), -np.sin(angle_), 0], [np.sin(angle_), np.cos(angle_), 0], [0, 0, 1]])
    before = fit(sheet, method=method, variance=variance, noise=noise)
    after = fit(factor * (sheet @ turn + shift), method=method, variance=variance, noise=noise)
    np.testing.assert_array_equal(before.neighbors, after.neighbors)
    np.testing.assert_allclose(after.weights(4), before.weights(4), atol=1e-7)
    assert angle(after.draw(4).embedding, before.draw(4).embedding) < 1e-5


@pytest.mark.parametrize("method", ["em", "direct"])
def test_tangent_noise_law(sheet: NDArray[np.float64], method: Any) -> None:
    """The mean rebuilds the tangent coordinates; the covariance is that of noise ten times larger off the sheet."""
    fitted = fit(sheet, noise="tangent", method=method)
    frames = tangent_frames(sheet, 10, 2)
    np.testing.assert_allclose(frames @ frames.transpose(0, 2, 1), np.broadcast_to(np.eye(2), (400, 2, 2)), atol=1e-12)
    apart = sheet[fitted.neighbors] - sheet[:, None]
    along = apart @ frames.transpose(0, 2, 1)
    missed = np.einsum("nk,nkp->np", fitted.mean, along)
    assert np.abs(missed).max() < 1e-3 * np.linalg.norm(apart, axis=2).mean()
    gram = apart @ apart.transpose(0, 2, 1)
    tangent = along @ along.transpose(0, 2, 1)
    ridge = 1e-3 * np.trace(gram, axis1=1, axis2=2)
    A = tangent + (gram - tangent) / 10 + ridge[:, None, None] * np.eye(10)
    if method == "direct":
        drawn = fitted.embedding[fitted.neighbors] - fitted.embedding[:, None]
        inner = drawn @ drawn.transpose(0, 2, 1)
        A += (ridge / 1e-3).mean() / np.trace(inner, axis1=1, axis2=2).mean() * inner
    expected = (ridge / 110)[:, None, None] * covariance_on_the_plane(A)
    F = fitted.covariance_factor
    np.testing.assert_allclose(F @ F.transpose(0, 2, 1), expected, atol=1e-8 * np.abs(expected).max())
    assert angle(fitted.draw(0, scale=0).embedding, fitted.embedding) < 1e-6
    assert fitted.weights(3).sum(axis=1) == pytest.approx(1, abs=1e-12)


def test_frames_in_many_features(wide: NDArray[np.float64]) -> None:
    """With more features than pooled points the frames are the same principal directions, by another route."""
    few, many = tangent_frames(wide, 10, 2), tangent_frames(np.concatenate([wide, np.zeros((300, 10))], axis=1), 10, 2)
    projector = few.transpose(0, 2, 1) @ few
    np.testing.assert_allclose((many.transpose(0, 2, 1) @ many)[:, :25, :25], projector, atol=1e-8)


def test_scale_to_zero_is_lle(posterior: Posterior) -> None:
    """Draws approach the reference as the scale does 0, and are it at 0."""
    off = [posterior.draw(2, scale=scale).diagnostics["disparity"] for scale in (1.0, 1e-2, 1e-4, 0.0)]
    assert off == sorted(off, reverse=True)
    np.testing.assert_allclose(posterior.draw(2, scale=0).embedding, posterior.embedding, atol=1e-7)


def test_permutation_changes_nothing_in_distribution(sheet: NDArray[np.float64]) -> None:
    """The law of each point's weights follows the point."""
    order = np.random.default_rng(0).permutation(len(sheet))
    before, after = fit(sheet), fit(sheet[order])
    position = np.argsort(order)  # where each old point went
    i = 123
    old = before.neighbors[i]
    new = after.neighbors[position[i]]
    match = [int(np.flatnonzero(new == position[j])[0]) for j in old]
    np.testing.assert_allclose(after.mean[position[i]][match], before.mean[i], atol=1e-10)
    F, G = before.covariance_factor[i], after.covariance_factor[position[i]]
    np.testing.assert_allclose((G @ G.T)[np.ix_(match, match)], F @ F.T, atol=1e-10)
    np.testing.assert_allclose(after.eigenvalues, before.eigenvalues, rtol=1e-7)


def test_a_point_buried_in_duplicates_keeps_its_prior() -> None:
    """With nothing but duplicates around, the posterior is the prior on the plane, and the diagnostics say so."""
    X = manifolds.make("s_curve", 200, seed=0).X
    X = np.concatenate([X, np.repeat(X[:1], 7, axis=0)])
    fitted = fit(X, n_neighbors=6)
    F = fitted.covariance_factor[0]
    np.testing.assert_allclose(fitted.mean[0], 1 / 6)
    np.testing.assert_allclose(F @ F.T, (np.eye(6) - 1 / 6) / 42, atol=1e-12)
    assert fitted.diagnostics.figures["points_buried_in_duplicates"] == 8
    assert "duplicates" in {note.code for note in fitted.diagnostics.notes}
