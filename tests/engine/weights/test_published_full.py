"""The published em with a full covariance: the zero of Eq. 26 as published, and the maximiser of Eq. 23."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glle_engine import fit, manifolds
from glle_engine.weights.published_full import _condition, _published_condition, corrected_m_step, published_m_step

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine import Posterior

SHAPES = [(2, 4), (3, 3), (5, 3), (1, 3), (4, 6)]  # d < k, d = k, d > k


def notes(posterior: Posterior) -> set[str]:
    """Return the codes of the notes of a fit."""
    return {note.code for note in posterior.diagnostics.notes}


def problem(
    seed: int, d: int, k: int, rank: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return X (d, k) of a rank, and scatters S1 and S2; singular values and eigenvalues are in [1/2, 2]."""
    rng = np.random.default_rng(seed)

    def orthogonal(size: int) -> NDArray[np.float64]:
        return np.asarray(np.linalg.qr(rng.standard_normal((size, size)))[0])

    def scatter(size: int) -> NDArray[np.float64]:
        basis = orthogonal(size)
        return np.asarray(basis * rng.uniform(0.5, 2, size) @ basis.T)

    singular = np.zeros((d, k))
    singular[np.arange(rank), np.arange(rank)] = rng.uniform(0.5, 2, rank)
    return orthogonal(d) @ singular @ orthogonal(k), scatter(d), scatter(k)


def eq_23(
    omega: NDArray[np.float64], X: NDArray[np.float64], S1: NDArray[np.float64], S2: NDArray[np.float64]
) -> float:
    """Return Eq. 23 of one point up to constants, with inverse and determinant of X Omega X^T on X's column space."""
    rank = np.linalg.matrix_rank(X)
    values, vectors = np.linalg.eigh(X @ omega @ X.T)
    values, vectors = values[-rank:], vectors[:, -rank:]
    sign, logarithm = np.linalg.slogdet(omega)
    assert sign > 0
    inner = ((vectors / values) @ vectors.T * S1).sum()
    return float(-0.5 * (logarithm + np.trace(np.linalg.solve(omega, S2)) + np.log(values).sum() + inner))


@given(st.integers(0, 2**32), st.sampled_from(SHAPES), st.sampled_from([0, 1]))
def test_the_corrected_m_step_never_lowers_the_objective(seed: int, shape: tuple[int, int], lost: int) -> None:
    """No covariance has a higher value of Eq. 23, whatever d, k and the rank of X."""
    d, k = shape
    X, S1, S2 = problem(seed, d, k, max(1, min(d, k) - lost))
    best = corrected_m_step(X[None], S1, S2)[0]
    rng = np.random.default_rng([seed, 1])
    for size in (1e-3, 0.1, 1.0):
        root = np.linalg.cholesky(best) @ (np.eye(k) + size * rng.standard_normal((k, k)))
        assert eq_23(root @ root.T, X, S1, S2) <= eq_23(best, X, S1, S2) + 1e-9
    assert eq_23(np.eye(k), X, S1, S2) <= eq_23(best, X, S1, S2) + 1e-9


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("lost", [0, 1])
def test_the_corrected_m_step_is_stationary(shape: tuple[int, int], lost: int) -> None:
    """Central differences of Eq. 23 in every symmetric direction vanish at the maximiser, and not beside it."""
    d, k = shape
    X, S1, S2 = problem(7, d, k, max(1, min(d, k) - lost))
    best = corrected_m_step(X[None], S1, S2)[0]

    def gradient(omega: NDArray[np.float64]) -> NDArray[np.float64]:
        found, step = np.empty((k, k)), 1e-5
        for a, b in np.ndindex(k, k):
            E = np.zeros((k, k))
            E[a, b] = E[b, a] = step
            found[a, b] = (eq_23(omega + E, X, S1, S2) - eq_23(omega - E, X, S1, S2)) / (2 * step)
        return found

    assert np.abs(gradient(best)).max() < 1e-6
    assert np.abs(gradient(1.1 * best)).max() > 1e-2


def test_the_corrected_m_step_beats_the_zero_of_the_printed_gradient() -> None:
    """Eq. 26 is not the gradient of Eq. 23: d = 2, k = 4, singular values 2 and 1/2, S1 = S2 = I."""
    X = np.eye(2, 4) * [[2.0], [0.5]]
    printed, best = (step(X[None], np.eye(2), np.eye(4))[0] for step in (published_m_step, corrected_m_step))
    np.testing.assert_allclose(printed, np.diag([5 / 17, 20 / 17, 1, 1]), atol=1e-12)
    np.testing.assert_allclose(best, np.diag([0.625, 2.5, 1, 1]), atol=1e-12)
    assert eq_23(printed, X, np.eye(2), np.eye(4)) == pytest.approx(-4.189, abs=1e-3)
    assert eq_23(best, X, np.eye(2), np.eye(4)) == pytest.approx(-3.446, abs=1e-3)


@given(st.integers(0, 2**32), st.sampled_from(SHAPES))
def test_the_published_m_step_is_a_zero_of_the_published_gradient(seed: int, shape: tuple[int, int]) -> None:
    """Omega - S2 + X^T (X Omega X^T - S1) X = 0 (Eq. 26), evaluated as it stands, also where S1 is negative."""
    X, S1, S2 = problem(seed, *shape, min(shape))
    for scatter in (S1, -S1):
        omega = published_m_step(X[None], scatter, S2)[0]
        gradient = omega - S2 + X.T @ (X @ omega @ X.T - scatter) @ X
        assert np.abs(gradient).max() < 1e-10


@pytest.mark.parametrize("condition", [_condition, _published_condition])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_e_step_conditions_the_joint_gaussian(condition: Any, shape: tuple[int, int]) -> None:
    """Eq. 21-22 are w given x of the joint Gaussian of x = X w + mu and w ~ N(0, Omega) (Eq. 10-20).

    The test conditions by the precision of w, with a noise of the reconstruction that goes to 0.
    """
    X, _, omega = problem(3, *shape, min(shape))
    centred = np.random.default_rng(4).standard_normal(shape[0])
    noise = 1e-7
    posterior = np.linalg.inv(np.linalg.inv(omega) + X.T @ X / noise)
    mean, covariance = condition(X[None], omega[None], centred[None])
    np.testing.assert_allclose(mean[0], posterior @ X.T @ centred / noise, atol=1e-5)
    np.testing.assert_allclose(covariance[0], posterior, atol=1e-5)


def scatters(
    X: NDArray[np.float64], neighbors: NDArray[np.int32], omega: NDArray[np.float64], *, proper: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return S1, S2 (Eq. 24-25), and the means and covariances of Eq. 21-22, by loops and full pseudo-inverses."""
    n, k = neighbors.shape
    mu, means, covariances = X.mean(axis=0), np.empty((n, k)), np.empty((n, k, k))
    S1, S2 = np.zeros((X.shape[1],) * 2), np.zeros((k, k))
    for i in range(n):
        raw, centred = X[neighbors[i]].T, X[i] - mu
        gain = omega[i] @ raw.T @ np.linalg.pinv(raw @ omega[i] @ raw.T)
        means[i], covariances[i] = gain @ centred, omega[i] - gain @ raw @ omega[i]
        second = covariances[i] + (np.outer(means[i], means[i]) if proper else 0)
        S1 += np.outer(centred, centred) - 2 * np.outer(raw @ means[i], centred) + raw @ second @ raw.T
        S2 += second
    return (S1 + S1.T) / (2 * n), S2 / n, means, covariances


def test_full_covariance_is_a_zero_of_the_gradient() -> None:
    """At convergence Eq. 26 vanishes for every point, S1 and S2 taken at the posterior of these covariances.

    The covariances are those of the fit: their absolute values are its prior, their posterior its law.
    """
    X = manifolds.make("s_curve", 30, seed=2).X
    X = X / np.abs(X).max()
    fitted = fit(X, variant="published", covariance="full", n_neighbors=6, max_iter=500, tol=1e-13)
    assert fitted.diagnostics.figures["converged"]
    assert fitted.sigma is None
    omega = np.broadcast_to(np.eye(6), (30, 6, 6))
    for _ in range(fitted.diagnostics.figures["iterations"]):
        S1, S2, _, _ = scatters(X, fitted.neighbors, omega, proper=False)
        omega = np.stack([solved(X[row].T, S1, S2) for row in fitted.neighbors])
    S1, S2, means, covariances = scatters(X, fitted.neighbors, omega, proper=False)
    size = np.abs(omega).max()
    for i, row in enumerate(fitted.neighbors):
        raw = X[row].T
        gradient = omega[i] - S2 + raw.T @ (raw @ omega[i] @ raw.T - S1) @ raw
        assert np.abs(gradient).max() < 1e-9 * size
    assert fitted.law.prior_factor is not None
    np.testing.assert_allclose(fitted.law.prior_factor @ fitted.law.prior_factor, absolute(omega), atol=1e-7 * size)
    np.testing.assert_allclose(fitted.mean, means, atol=1e-7 * np.abs(means).max())
    F = fitted.covariance_factor
    np.testing.assert_allclose(F @ F, absolute(covariances), atol=1e-7 * size)


def solved(X: NDArray[np.float64], S1: NDArray[np.float64], S2: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the zero of Eq. 26 as the solution of k^2 linear equations."""
    k = X.shape[1]
    A = X.T @ X
    return np.asarray(np.linalg.solve(np.eye(k * k) + np.kron(A, A), (X.T @ S1 @ X + S2).ravel()).reshape(k, k))


def absolute(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return |M| of symmetric matrices."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.abs(values)[:, None, :]) @ vectors.transpose(0, 2, 1))


@pytest.mark.parametrize("width", [3, 8])
def test_the_corrected_em_by_the_equations_point_by_point(width: int) -> None:
    """Three rounds with E[w w^T] = C + m m^T, written out with loops, give the law of the fit; d < k and d > k."""
    X = np.random.default_rng(4).standard_normal((40, width)) + 0.5
    fitted = fit(
        X, variant="published", covariance="full-corrected", n_neighbors=6, max_iter=3, tol=0, disconnected="bridge"
    )
    assert fitted.diagnostics.figures["iterations"] == 3
    omega = np.broadcast_to(np.eye(6), (40, 6, 6))
    for _ in range(3):
        S1, S2, _, _ = scatters(X, fitted.neighbors, omega, proper=True)
        omega = np.stack([corrected_m_step(X[row].T[None], S1, S2)[0] for row in fitted.neighbors])
    _, _, means, covariances = scatters(X, fitted.neighbors, omega, proper=True)
    assert fitted.law.prior_factor is not None
    size = np.abs(omega).max()
    np.testing.assert_allclose(fitted.law.prior_factor @ fitted.law.prior_factor, omega, atol=1e-9 * size)
    np.testing.assert_allclose(fitted.mean, means, atol=1e-9 * np.abs(means).max())
    F = fitted.covariance_factor
    np.testing.assert_allclose(F @ F, covariances, atol=1e-9 * size)


def test_the_corrected_em_never_lowers_the_likelihood_of_the_data(sheet: NDArray[np.float64]) -> None:
    """With d < k its rounds are EM for w_i ~ N(0, S2) of which X_i w_i = x_i - mu is observed."""
    X = sheet[:80]
    centred, found = X - X.mean(axis=0), []
    for rounds in range(1, 9):
        fitted = fit(
            X,
            variant="published",
            covariance="full-corrected",
            n_neighbors=8,
            max_iter=rounds,
            tol=0,
            disconnected="bridge",
        )
        F, mean = fitted.covariance_factor, fitted.mean
        second = (F @ F.transpose(0, 2, 1)).mean(axis=0) + mean.T @ mean / len(X)
        raw = X[fitted.neighbors].transpose(0, 2, 1)
        marginal = raw @ second @ raw.transpose(0, 2, 1)
        distance = (centred[:, None, :] @ np.linalg.solve(marginal, centred[:, :, None])).sum()
        found.append(-0.5 * (np.linalg.slogdet(marginal)[1].sum() + distance))
    assert (np.diff(found) > 0).all()
    assert found[-1] > found[0] + 1


def test_the_corrected_em_on_a_sheet(sheet: NDArray[np.float64]) -> None:
    """No variance is negative; draws still reconstruct centred points exactly, and the notes say so."""
    X = sheet[:120]
    fitted = fit(X, variant="published", covariance="full-corrected", max_iter=10)
    assert "negative-variances" not in notes(fitted)
    assert "linear-projection" in notes(fitted)
    rebuilt = np.einsum("nk,nkd->nd", fitted.weights(3), X[fitted.neighbors])
    np.testing.assert_allclose(rebuilt, X - X.mean(axis=0), atol=1e-6)


def test_the_corrected_em_with_many_features(wide: NDArray[np.float64]) -> None:
    """With full column rank the posterior is a point, and the second round repeats the first."""
    fitted = fit(wide, variant="published", covariance="full-corrected")
    assert not fitted.covariance_factor.any()
    assert fitted.diagnostics.figures["iterations"] == 2
    assert "zero-covariance" in notes(fitted)


@pytest.mark.parametrize("options", [{}, {"covariance": "full"}, {"covariance": "full-corrected"}])
def test_no_tolerance_asks_for_every_round(wide: NDArray[np.float64], options: dict[str, Any]) -> None:
    """tol=0 runs max_iter rounds, also where the second changes nothing, and no note complains of it."""
    fitted = fit(wide, variant="published", max_iter=4, tol=0, **options)
    assert fitted.diagnostics.figures["iterations"] == 4
    assert "not-converged" not in notes(fitted)
