"""The equations as published, and their effects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from glle_engine import FitSpec, fit, manifolds
from glle_engine.base.errors import InvalidParameterError
from glle_engine.weights.lle import lle_weights
from glle_engine.weights.published import direct_covariance, published_law
from tests.engine.eigen.dense_reference import angle

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine import Posterior


def notes(posterior: Posterior) -> set[str]:
    """Return the codes of the notes of a fit."""
    return {note.code for note in posterior.diagnostics.notes}


def test_sigma_of_the_oracle(oracle: dict[str, Any]) -> None:
    """sigma_i of Eq. 29 after each listed iteration, to 1e-8."""
    X, neighbors = oracle["X"], oracle["neighbors"].astype(np.int32)
    for iterations, expected in zip(oracle["em_iterations"], oracle["em_sigma"], strict=True):
        spec = FitSpec(variant="published", max_iter=int(iterations), tol=1e-300)
        law, _ = published_law(X, neighbors, oracle["lle_embedding"], spec)
        assert law.sigma is not None
        np.testing.assert_allclose(law.sigma, expected, rtol=1e-8)


def test_direct_covariance_of_the_oracle(oracle: dict[str, Any]) -> None:
    """Gamma_i of Eq. 35 with the oracle's unit-norm embedding."""
    if "direct_cov" not in oracle:
        pytest.skip("this oracle has no direct covariance")
    neighbors = oracle["neighbors"].astype(np.int32)
    covariance, root, _ = direct_covariance(oracle["X"], neighbors, oracle["lle_embedding"])
    np.testing.assert_allclose(covariance, oracle["direct_cov"], atol=1e-11 * np.abs(covariance).max())
    np.testing.assert_allclose(root @ root, covariance, atol=1e-11 * np.abs(covariance).max())


def test_em_by_the_equations_point_by_point() -> None:
    """Two iterations of Eq. 21-29, written out with loops and full pseudo-inverses, give the same sigma and law."""
    X = manifolds.make("s_curve", 120, seed=2).X
    fitted = fit(X, variant="published", n_neighbors=6, max_iter=2, tol=1e-300)
    n, d, k = len(X), 3, 6
    mu, sigma = X.mean(axis=0), np.ones(120)
    for _ in range(2):
        S1, S2 = np.zeros((d, d)), np.zeros((k, k))
        for i in range(n):
            raw, omega = X[fitted.neighbors[i]].T, sigma[i] * np.eye(k)
            gain = omega @ raw.T @ np.linalg.pinv(raw @ omega @ raw.T)
            mean, second = gain @ (X[i] - mu), omega - gain @ raw @ omega
            S1 += np.outer(X[i] - mu, X[i] - mu) - 2 * np.outer(raw @ mean, X[i] - mu) + raw @ second @ raw.T
            S2 += second
        sigma = np.array(
            [(np.trace(np.linalg.pinv(X[j].T @ X[j]) @ S1 / n) + np.trace(S2) / n) / (d + k) for j in fitted.neighbors]
        )
    assert fitted.sigma is not None
    np.testing.assert_allclose(fitted.sigma, sigma, rtol=1e-8)


def test_variances_turn_negative_and_are_counted(sheet: NDArray[np.float64]) -> None:
    """From the second iteration sigma_i is negative; the diagnostics count them and draws use |sigma_i|."""
    first = fit(sheet, variant="published", max_iter=1)
    later = fit(sheet, variant="published")
    assert later.sigma is not None
    assert first.sigma is not None
    assert (later.sigma < 0).all()
    assert later.diagnostics.figures["negative_variances"] == 400
    assert "negative-variances" in notes(later)
    F = later.covariance_factor[7]
    assert np.trace(F @ F.T) == pytest.approx(7 * abs(later.sigma[7]), rel=1e-9)


def test_few_features_give_linear_projections(sheet: NDArray[np.float64]) -> None:
    """With d < k the drawn embedding is linear in the raw coordinates: R^2 of 1."""
    fitted = fit(sheet, variant="published")
    axis = fitted.draw(0, align="none").embedding[:, :1]
    design = np.concatenate([np.ones((400, 1)), sheet], axis=1)
    rest = axis - design @ np.linalg.lstsq(design, axis, rcond=None)[0]
    assert 1 - (rest**2).sum() / ((axis - axis.mean()) ** 2).sum() > 0.999
    assert "linear-projection" in notes(fitted)


def test_many_features_give_one_embedding(wide: NDArray[np.float64]) -> None:
    """With d >= k and full column rank the posterior covariance is 0 and every draw the same."""
    fitted = fit(wide, variant="published")
    assert not fitted.covariance_factor.any()
    assert "zero-covariance" in notes(fitted)
    np.testing.assert_array_equal(fitted.draw(0).embedding, fitted.draw(1).embedding)


def test_a_singular_precision_is_pseudo_inverted_and_said() -> None:
    """With d + p < k the direct precision is singular: its pseudo-inverse stands in, around LLE's weights (Eq. 36)."""
    sheet = manifolds.make("swiss_roll", 400, seed=3).X
    fitted = fit(sheet, variant="published", method="direct")
    assert fitted.diagnostics.figures["singular_precisions"] == 400
    assert "singular-precision" in notes(fitted)
    np.testing.assert_array_equal(fitted.mean, lle_weights(sheet, fitted.neighbors, 1e-3))
    joint = np.concatenate([sheet, fitted.embedding], axis=1)[fitted.neighbors[3]]
    assert np.linalg.matrix_rank(joint @ joint.T) == 5
    F = fitted.covariance_factor[3]
    np.testing.assert_allclose(F @ F.T, np.linalg.pinv(joint @ joint.T, rcond=1e-12), atol=1e-8)


def test_derived_mean_of_direct(wide: NDArray[np.float64]) -> None:
    """mean="derived" is Gamma_i (X_i^T x_i + Y_i^T y_i) (Eq. 35)."""
    fitted = fit(wide, variant="published", method="direct", mean="derived")
    joint = np.concatenate([wide, fitted.embedding], axis=1)
    raw = joint[fitted.neighbors[8]]
    np.testing.assert_allclose(fitted.mean[8], np.linalg.solve(raw @ raw.T, raw @ joint[8]), rtol=1e-6)


def test_direct_is_the_gaussian_of_both_reconstruction_errors(wide: NDArray[np.float64]) -> None:
    """|x - X w|^2 + |y - Y w|^2 is (w - m)^T Gamma^-1 (w - m) and a constant, for every w (Eq. 32-35)."""
    fitted = fit(wide, variant="published", method="direct", mean="derived")
    joint, row = np.concatenate([wide, fitted.embedding], axis=1), fitted.neighbors[8]

    def error(w: NDArray[np.float64]) -> float:
        return float(((joint[8] - joint[row].T @ w) ** 2).sum())

    mean, root = fitted.mean[8], fitted.covariance_factor[8]
    for w in np.random.default_rng(0).standard_normal((5, 10)):
        whitened = np.linalg.solve(root, w - mean)
        assert error(w) - error(mean) == pytest.approx(whitened @ whitened, rel=1e-6)


def test_many_features_leave_nothing_to_invert(wide: NDArray[np.float64]) -> None:
    """With d > k the matrices X_i X_i^T of Eq. 21 and 29 have rank k < d; the pseudo-inverse leaves sigma_i finite."""
    fitted = fit(wide, variant="published")
    raw = wide[fitted.neighbors]
    assert (np.linalg.matrix_rank(raw.transpose(0, 2, 1) @ raw) == 10).all()
    assert fitted.sigma is not None
    assert np.abs(fitted.sigma).max() < 100


def test_not_invariant_to_translation(wide: NDArray[np.float64]) -> None:
    """Shifting the data changes the published posterior, and the notes say so."""
    before = fit(wide, variant="published")
    after = fit(wide + 1.0, variant="published")
    assert np.abs(before.mean - after.mean).max() > 0.01
    assert "published-not-invariant" in notes(before)


@pytest.mark.parametrize("method", ["em", "direct"])
def test_rows_of_draws_do_not_sum_to_one(sheet: NDArray[np.float64], method: Any) -> None:
    """The constraint of Eq. 7 is lost: row sums of draws are far from 1, and the figures have the mean's."""
    fitted = fit(sheet, variant="published", method=method)
    sums = fitted.weights(0).sum(axis=1)
    assert np.abs(sums - 1).max() > 0.5
    assert fitted.diagnostics.figures["row_sums_of_mean"][0] <= fitted.diagnostics.figures["row_sums_of_mean"][1]
    assert fit(sheet, method=method).weights(0).sum(axis=1) == pytest.approx(1, abs=1e-12)


def test_prior_of_em_and_none_of_direct(sheet: NDArray[np.float64]) -> None:
    """Em has the prior of Eq. 30, N(0, |sigma_i| I); direct has none and says what to do."""
    fitted = fit(sheet[:40], variant="published")
    assert fitted.sigma is not None
    drawn = np.stack([fitted.weights(i, source="prior")[0] for i in range(2000)])
    assert drawn.var() == pytest.approx(abs(fitted.sigma[0]), rel=0.1)
    with pytest.raises(InvalidParameterError, match="source='posterior'"):
        fit(sheet[:40], variant="published", method="direct").weights(0, source="prior")


@pytest.mark.parametrize(
    "options", [{}, {"method": "direct"}, {"covariance": "full"}, {"covariance": "full-corrected"}]
)
def test_every_published_posterior_draws(wide: NDArray[np.float64], options: dict[str, Any]) -> None:
    """Each published posterior gives orthonormal embeddings whose eigenvalues are those of its M."""
    fitted = fit(wide, variant="published", **options)
    drawn = fitted.draw(1, align="none")
    Y = drawn.embedding
    np.testing.assert_allclose(Y.T @ Y / len(Y), np.eye(2), atol=1e-9)
    image = fitted.eigenproblem.pattern.apply(fitted.weights(1), Y / np.sqrt(len(Y)))
    np.testing.assert_allclose((image**2).sum(axis=0), drawn.eigenvalues, rtol=1e-5)
    B = np.eye(len(Y))
    B[np.arange(len(Y))[:, None], fitted.neighbors] -= fitted.weights(1)
    right = np.linalg.svd(B)[2][::-1]
    assert angle(Y, right[1:3].T) < 1e-6
