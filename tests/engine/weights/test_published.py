"""The equations as published, and their effects."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from glle_engine import FitSpec, Posterior, fit, manifolds
from glle_engine.base.errors import InvalidParameterError, OutOfRangeError
from glle_engine.weights.lle import lle_weights
from glle_engine.weights.published import (
    _condition,
    _published_condition,
    corrected_m_step,
    descend,
    direct_covariance,
    e_step,
    m_step_gradient,
    m_step_objective,
    published_distribution,
    published_gradient,
    published_m_step,
)
from tests.engine.eigen.dense_reference import angle, bottom


def notes(posterior: Posterior) -> set[str]:
    """Return the codes of the notes of a fit."""
    return {note.code for note in posterior.diagnostics.notes}


def test_sigma_of_the_oracle(oracle: dict[str, Any]) -> None:
    """sigma_i of Eq. 29 agrees with the authors' program to 1e-8, after each listed iteration."""
    X, neighbors = oracle["X"], oracle["neighbors"].astype(np.int32)
    for iterations, expected in zip(oracle["em_iterations"], oracle["em_sigma"], strict=True):
        spec = FitSpec(variant="published", max_iter=int(iterations), tol=1e-300)
        distribution, _ = published_distribution(X, neighbors, oracle["lle_embedding"], spec)
        assert distribution.sigma is not None
        np.testing.assert_allclose(distribution.sigma, expected, rtol=1e-8)


def test_direct_covariance_of_the_oracle(oracle: dict[str, Any]) -> None:
    """Gamma_i of Eq. 35 agrees with the authors' program, with its embedding of norm one."""
    if "direct_cov" not in oracle:
        pytest.skip("this oracle has no direct covariance")
    neighbors = oracle["neighbors"].astype(np.int32)
    covariance, root, _ = direct_covariance(oracle["X"], neighbors, oracle["lle_embedding"])
    np.testing.assert_allclose(covariance, oracle["direct_cov"], atol=1e-11 * np.abs(covariance).max())
    np.testing.assert_allclose(root @ root, covariance, atol=1e-11 * np.abs(covariance).max())


def test_em_by_the_equations_point_by_point() -> None:
    """Two iterations of Eq. 21-29, written out with loops and full pseudo-inverses, give sigma of the fit."""
    X = manifolds.make("s_curve", 120, seed=2).X
    fitted = fit(X, variant="published", n_neighbors=6, max_iter=2, tol=1e-300)
    sigma = np.ones(120)
    for _ in range(2):
        S1, S2, _, _ = scatters(X, fitted.neighbors, sigma[:, None, None] * np.eye(6), proper=False)
        traces = [np.trace(np.linalg.pinv(X[row].T @ X[row]) @ S1) for row in fitted.neighbors]
        sigma = (np.array(traces) + np.trace(S2)) / (3 + 6)
    assert fitted.sigma is not None
    np.testing.assert_allclose(fitted.sigma, sigma, rtol=1e-8)


def random_step(d: int, k: int) -> tuple[NDArray[np.float64], ...]:
    """Return X_i of three points, covariances, S1 and S2, all random; the last three are positive definite."""
    rng = np.random.default_rng(d * k)
    spread = [rng.standard_normal((size, 2 * size)) / size for size in (k, k, k, d, k)]
    omega, (S1, S2) = np.stack([part @ part.T for part in spread[:3]]), [part @ part.T for part in spread[3:]]
    return rng.standard_normal((3, d, k)), omega, S1, S2


def numeric_gradient(objective: Any, point: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the symmetric gradient (m, k, k) by central differences of each entry and its mirror image."""
    result, size = np.empty_like(point), 1e-6
    for a, b in np.ndindex(point.shape[1:]):
        change = np.zeros(point.shape[1:])
        change[a, b] += size / 2
        change[b, a] += size / 2
        result[:, a, b] = (objective(point + change) - objective(point - change)) / (2 * size)
    return result


@pytest.mark.parametrize(("d", "k"), [(2, 5), (4, 4)])
def test_the_gradient_of_eq_23_is_that_of_finite_differences(d: int, k: int) -> None:
    """The gradient over each point's covariance agrees, and vanishes at the corrected M-step."""
    raw, omega, S1, S2 = random_step(d, k)
    expected = numeric_gradient(lambda point: m_step_objective(raw, point, S1, S2), omega)
    np.testing.assert_allclose(m_step_gradient(raw, omega, S1, S2), expected, rtol=1e-5, atol=1e-4)
    best = corrected_m_step(raw, S1, S2)
    assert np.abs(m_step_gradient(raw, best, S1, S2)).max() < 1e-6 * np.abs(expected).max()


def test_eq_26_is_the_gradient_of_eq_23_for_orthogonal_neighbors_alone() -> None:
    """Eq. 26 as printed is the gradient of minus Eq. 23 over the precisions only if X is orthogonal."""
    raw, omega, S1, S2 = random_step(4, 4)
    T = np.stack([np.kron(X.T, X.T) for X in raw])
    inner = (raw @ omega @ raw.transpose(0, 2, 1) - S1).transpose(0, 2, 1).reshape(3, 16, 1)
    printed = (T @ inner).reshape(3, 4, 4).transpose(0, 2, 1) + omega - S2
    np.testing.assert_allclose(published_gradient(raw, omega, S1, S2), printed, atol=1e-12)
    precision = np.asarray(np.linalg.inv(omega), np.float64)

    def difference(X: NDArray[np.float64]) -> float:
        numeric = numeric_gradient(lambda point: -m_step_objective(X, np.linalg.inv(point), S1, S2), precision)
        gradient = published_gradient(X, omega, S1, S2)
        return float(np.abs(numeric + gradient).max() / np.abs(gradient).max())

    assert difference(np.linalg.qr(raw)[0]) < 1e-5
    assert difference(raw) > 0.1


def test_descent_along_eq_26_arrives_at_its_zero() -> None:
    """The paper's descent ends at the zero in closed form, and each step comes nearer to it."""
    raw, _, S1, S2 = random_step(2, 5)
    best = published_m_step(raw, S1, S2)
    omega, steps, left = descend(raw, S1, S2, 100_000, 1e-12)
    assert left <= 1e-12
    np.testing.assert_allclose(omega, best, atol=1e-9 * np.abs(best).max())
    away = [np.abs(descend(raw, S1, S2, count, 0.0)[0] - best).max() for count in (0, 1, 10, 100)]
    assert all(np.diff(away) <= 0)
    assert 0 < steps < 100_000


@pytest.mark.parametrize("corrected", [False, True])
def test_scatters_are_those_of_the_equations(*, corrected: bool) -> None:
    """S1 (Eq. 24), S2 (Eq. 25), mean and covariance (Eq. 21-22) equal loops over the points."""
    X = manifolds.make("s_curve", 60, seed=2).X
    neighbors = fit(X, n_neighbors=6).neighbors
    omega = np.broadcast_to(0.3 * np.eye(6), (60, 6, 6))
    mean, covariance, S1, S2 = e_step(X, neighbors, omega, corrected=corrected)
    expected = scatters(X, neighbors, omega, proper=corrected)
    for scatter, other in zip((S1, S2), expected[:2], strict=True):
        np.testing.assert_allclose(scatter, other, atol=1e-9)
    i = 7
    raw = X[neighbors[i]].T
    gain = omega[i] @ raw.T @ np.linalg.pinv(raw @ omega[i] @ raw.T)
    np.testing.assert_allclose(mean[i], gain @ (X[i] - X.mean(axis=0)), atol=1e-9)
    np.testing.assert_allclose(covariance[i], omega[i] - gain @ raw @ omega[i], atol=1e-9)


def test_variances_turn_negative_and_are_counted(sheet: NDArray[np.float64]) -> None:
    """From the second iteration on sigma_i is negative; the diagnostics count this, and draws use |sigma_i|."""
    later = fit(sheet, variant="published")
    assert later.sigma is not None
    assert (later.sigma < 0).all()
    assert later.diagnostics.figures["negative_variances"] == 400
    assert "negative-variances" in notes(later)
    F = later.covariance_factor[7]
    assert np.trace(F @ F.T) == pytest.approx(7 * abs(later.sigma[7]), rel=1e-9)


def test_few_features_give_linear_projections(sheet: NDArray[np.float64]) -> None:
    """With d < k, the embedding of a draw is a linear function of the raw coordinates, and a note says so."""
    fitted = fit(sheet, variant="published")
    axis = fitted.draw(0, align="none").embedding[:, :1]
    design = np.concatenate([np.ones((400, 1)), sheet], axis=1)
    rest = axis - design @ np.linalg.lstsq(design, axis, rcond=None)[0]
    assert 1 - (rest**2).sum() / ((axis - axis.mean()) ** 2).sum() > 0.999
    assert "linear-projection" in notes(fitted)


def test_many_features_give_one_embedding(wide: NDArray[np.float64]) -> None:
    """With d >= k, the covariance is 0 and all draws are equal, but translated data have others; notes say so.

    X_i X_i^T of Eq. 21 and 29 have rank k < d; the pseudo-inverse leaves sigma_i finite.
    """
    fitted, moved = fit(wide, variant="published"), fit(wide + 1.0, variant="published")
    assert not fitted.covariance_factor.any()
    np.testing.assert_array_equal(fitted.draw(0).embedding, fitted.draw(1).embedding)
    assert np.abs(fitted.mean - moved.mean).max() > 0.01
    assert {"zero-covariance", "published-not-invariant"} <= notes(fitted)
    assert fitted.sigma is not None
    assert np.abs(fitted.sigma).max() < 100


def test_a_singular_precision_is_pseudo_inverted_and_said() -> None:
    """With d + p < k, the pseudo-inverse replaces the inverse of the precision, and a note says so."""
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
    "options",
    [
        {},
        {"method": "direct"},
        {"covariance": "full"},
        {"covariance": "full-descent", "max_iter": 2},
        {"covariance": "full-corrected"},
    ],
)
def test_every_published_posterior_draws(wide: NDArray[np.float64], options: dict[str, Any]) -> None:
    """Each published posterior gives orthonormal embeddings whose eigenvalues are those of its M."""
    fitted = fit(wide, variant="published", **options)
    drawn = fitted.draw(1, align="none")
    np.testing.assert_allclose(drawn.embedding.T @ drawn.embedding / len(wide), np.eye(2), atol=1e-9)
    values, vectors = bottom(fitted.neighbors, fitted.weights(1), 2, constrained=False)
    np.testing.assert_allclose(drawn.eigenvalues, values, rtol=1e-5)
    assert angle(drawn.embedding, vectors) < 1e-6


SHAPES = [(2, 4), (3, 3), (5, 3), (1, 3), (4, 6)]  # d < k, d = k, d > k


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


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.sampled_from(SHAPES), st.sampled_from([0, 1]))
def test_the_corrected_m_step_never_lowers_the_objective(seed: int, shape: tuple[int, int], lost: int) -> None:
    """No covariance has a higher value of Eq. 23, near or far, whatever d, k and the rank of X; others have less."""
    d, k = shape
    X, S1, S2 = problem(seed, d, k, max(1, min(d, k) - lost))
    best = corrected_m_step(X[None], S1, S2)[0]
    rng = np.random.default_rng([seed, 1])
    roots = [np.linalg.cholesky(best) @ (np.eye(k) + size * rng.standard_normal((k, k))) for size in (1e-3, 0.1, 1.0)]
    for omega in (*(root @ root.T for root in roots), np.eye(k), 1.1 * best, 0.9 * best):
        assert eq_23(omega, X, S1, S2) <= eq_23(best, X, S1, S2) + 1e-9


def test_the_corrected_m_step_beats_the_zero_of_the_printed_gradient() -> None:
    """Eq. 26 is not the gradient of Eq. 23: d = 2, k = 4, singular values 2 and 1/2, S1 = S2 = I."""
    X = np.eye(2, 4) * [[2.0], [0.5]]
    printed, best = (step(X[None], np.eye(2), np.eye(4))[0] for step in (published_m_step, corrected_m_step))
    np.testing.assert_allclose(printed, np.diag([5 / 17, 20 / 17, 1, 1]), atol=1e-12)
    np.testing.assert_allclose(best, np.diag([0.625, 2.5, 1, 1]), atol=1e-12)
    assert eq_23(printed, X, np.eye(2), np.eye(4)) == pytest.approx(-4.189, abs=1e-3)
    assert eq_23(best, X, np.eye(2), np.eye(4)) == pytest.approx(-3.446, abs=1e-3)


@settings(max_examples=40)
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
    """Eq. 21-22 are the mean and covariance of w given x = X w + mu, where w ~ N(0, Omega) (Eq. 10-20).

    The test computes them from the precision of w, with a noise of the reconstruction that is nearly 0.
    """
    X, _, omega = problem(3, *shape, min(shape))
    centered = np.random.default_rng(4).standard_normal(shape[0])
    noise = 1e-7
    posterior = np.linalg.inv(np.linalg.inv(omega) + X.T @ X / noise)
    mean, covariance = condition(X[None], omega[None], centered[None])
    np.testing.assert_allclose(mean[0], posterior @ X.T @ centered / noise, atol=1e-5)
    np.testing.assert_allclose(covariance[0], posterior, atol=1e-5)


def scatters(
    X: NDArray[np.float64], neighbors: NDArray[np.int32], omega: NDArray[np.float64], *, proper: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return S1, S2 (Eq. 24-25), and the means and covariances of Eq. 21-22, by loops and full pseudo-inverses."""
    n, k = neighbors.shape
    mu, means, covariances = X.mean(axis=0), np.empty((n, k)), np.empty((n, k, k))
    S1, S2 = np.zeros((X.shape[1],) * 2), np.zeros((k, k))
    for i in range(n):
        raw, centered = X[neighbors[i]].T, X[i] - mu
        gain = omega[i] @ raw.T @ np.linalg.pinv(raw @ omega[i] @ raw.T)
        means[i], covariances[i] = gain @ centered, omega[i] - gain @ raw @ omega[i]
        second = covariances[i] + (np.outer(means[i], means[i]) if proper else 0)
        S1 += np.outer(centered, centered) - 2 * np.outer(raw @ means[i], centered) + raw @ second @ raw.T
        S2 += second
    return (S1 + S1.T) / (2 * n), S2 / n, means, covariances


def test_a_descent_reports_and_can_be_canceled_between_its_steps() -> None:
    """A fit of one block of points reports more often than once for each iteration."""
    reports: list[int] = []

    def on_progress(done: int, _total: int, stage: str) -> None:
        reports.append(done)
        if stage == "posterior" and reports.count(0) > 20:
            raise InterruptedError

    X = manifolds.make("s_curve", 40, seed=2).X
    with pytest.raises(InterruptedError):
        fit(X, variant="published", covariance="full-descent", n_neighbors=6, max_iter=1, on_progress=on_progress)


def test_em_by_descent_arrives_where_the_closed_form_is() -> None:
    """Two rounds of the paper's descent, written out for each point, give the fit; its limit is covariance="full"."""
    X = 0.5 * manifolds.make("s_curve", 30, seed=2).X
    options: dict[str, Any] = {"variant": "published", "n_neighbors": 5, "max_iter": 2, "tol": 0}
    fitted, closed = (fit(X, covariance=covariance, **options) for covariance in ("full-descent", "full"))
    figures = fitted.diagnostics.figures
    assert len(figures["descent_steps"]) == len(figures["descent_gradients"]) == 2
    assert 1 < max(figures["descent_steps"]) < 1000
    assert max(figures["descent_gradients"]) <= 1e-10
    omega = np.broadcast_to(np.eye(5), (30, 5, 5))
    for _ in range(2):
        S1, S2, _, _ = scatters(X, fitted.neighbors, omega, proper=False)
        rounds = []
        for row in fitted.neighbors:
            raw, one = X[row].T, np.eye(5)
            length = 1 / (1 + np.linalg.norm(raw.T @ raw, 2) ** 2)
            for _ in range(1000):
                one = one - length * (raw.T @ (raw @ one @ raw.T - S1) @ raw + one - S2)
            rounds.append(one)
        omega = np.stack(rounds)
    _, _, means, covariances = scatters(X, fitted.neighbors, omega, proper=False)
    size = float(np.abs(omega).max())
    for posterior in (fitted, closed):  # the prior has the absolute values of the covariances
        require_distribution(posterior, absolute(omega), means, absolute(covariances), 1e-6 * size)
    far = fit(40 * X, covariance="full-descent", **options)
    assert "not-converged" in notes(far)
    assert max(far.diagnostics.figures["descent_steps"]) == 1000


def require_distribution(
    fitted: Posterior,
    prior: NDArray[np.float64],
    means: NDArray[np.float64],
    covariances: NDArray[np.float64],
    tolerance: float,
) -> None:
    """Compare the prior, the means and the covariances of a fit."""
    F, P = fitted.covariance_factor, fitted.distribution.prior_factor
    assert P is not None
    np.testing.assert_allclose(P @ P, prior, atol=tolerance)
    np.testing.assert_allclose(fitted.mean, means, atol=1e-7 * np.abs(means).max())
    np.testing.assert_allclose(F @ F, covariances, atol=tolerance)


def absolute(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return |M| of symmetric matrices."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.abs(values)[:, None, :]) @ vectors.transpose(0, 2, 1))


@pytest.mark.parametrize("width", [3, 8])
def test_the_corrected_em_by_the_equations_point_by_point(width: int) -> None:
    """Three rounds with E[w w^T] = C + m m^T, written out with loops, give the fit; d < k and d > k."""
    X = np.random.default_rng(4).standard_normal((40, width)) + 0.5
    options: Any = {"covariance": "full-corrected", "n_neighbors": 6, "tol": 0, "disconnected": "bridge"}
    fitted = fit(X, variant="published", max_iter=3, **options)
    omega = np.broadcast_to(np.eye(6), (40, 6, 6))
    for _ in range(3):
        S1, S2, _, _ = scatters(X, fitted.neighbors, omega, proper=True)
        omega = np.stack([corrected_m_step(X[row].T[None], S1, S2)[0] for row in fitted.neighbors])
    _, _, means, covariances = scatters(X, fitted.neighbors, omega, proper=True)
    require_distribution(fitted, omega, means, covariances, 1e-9 * np.abs(omega).max())
    figures = fitted.diagnostics.figures
    assert (figures["exact_reconstructions"], figures["full_rank_neighborhoods"]) == ((40, 0) if width < 6 else (0, 40))
    assert "negative_variances" not in figures


def test_only_indefinite_covariances_are_counted() -> None:
    """With full column rank, the covariance of the weights is exactly 0, and some of the priors are indefinite."""
    X = np.random.default_rng(4).standard_normal((40, 20)) + 0.5
    options: Any = {"covariance": "full", "n_neighbors": 3, "tol": 0, "disconnected": "bridge"}
    fitted = fit(X, variant="published", max_iter=1, **options)
    S1, S2, _, _ = scatters(X, fitted.neighbors, np.broadcast_to(np.eye(3), (40, 3, 3)), proper=False)
    smallest = np.linalg.eigvalsh([published_m_step(X[row].T[None], S1, S2)[0] for row in fitted.neighbors])[:, 0]
    assert 0 < (smallest < -1e-9).sum() == fitted.diagnostics.figures["negative_variances"] < 40
    assert "zero-covariance" in notes(fitted)
    assert not fitted.covariance_factor.any()


def test_iterations_end_when_the_change_is_within_the_tolerance() -> None:
    """The relative change of each covariance is within `tol` after the last round, and not after the round before."""
    X = 0.1 * manifolds.make("s_curve", 40, seed=2).X
    options: Any = {"variant": "published", "covariance": "full-corrected", "n_neighbors": 6}
    last = fit(X, tol=0.01, **options).diagnostics.figures["iterations"]
    roots = [fit(X, tol=0, max_iter=last - i, **options).distribution.prior_factor for i in (2, 1, 0)]
    older, old, new = (root @ root for root in roots if root is not None)
    changes = [
        np.linalg.norm(b - a, axis=(1, 2)) / np.linalg.norm(b, axis=(1, 2)) for a, b in ((older, old), (old, new))
    ]
    assert changes[1].max() <= 0.01 < changes[0].max()


def test_a_fit_has_the_values_of_eq_23_to_25() -> None:
    """Of its last E-step, by loops; Eq. 23 by determinants, without a value where S1 is no scatter, or for d > k."""
    X = manifolds.make("s_curve", 40, seed=2).X
    options: Any = {"variant": "published", "n_neighbors": 6, "max_iter": 2, "tol": 0}
    fitted = fit(X, covariance="full-corrected", **options)
    root = fitted.distribution.prior_factor
    assert root is not None
    omega = root @ root
    S1, S2, _, _ = scatters(X, fitted.neighbors, omega, proper=True)
    np.testing.assert_allclose(fitted.arrays()["scatter"], S1, atol=1e-9)
    np.testing.assert_allclose(fitted.arrays()["second_moment"], S2, atol=1e-9)
    values, slopes = [], []
    for row, prior in zip(fitted.neighbors, omega, strict=True):
        P, inverse = np.linalg.inv(X[row].T @ prior @ X[row]), np.linalg.inv(prior)
        slopes.append(inverse @ S2 @ inverse - inverse + X[row] @ (P @ S1 @ P - P) @ X[row].T)
        rebuilt = X[row].T @ prior @ X[row]
        terms = ((prior, S2), (rebuilt, S1))
        values.append(-sum(np.log(np.linalg.det(one)) + np.trace(np.linalg.inv(one) @ inner) for one, inner in terms))
    assert fitted.diagnostics.figures["m_step_objective"] == pytest.approx(np.mean(values), rel=1e-6)
    np.testing.assert_allclose(fitted.arrays()["gradient"], slopes, rtol=1e-6, atol=1e-6 * np.abs(slopes).max())
    printed = fit(X, covariance="full", **options)
    assert "gradient" not in printed.arrays()
    assert printed.diagnostics.figures["m_step_objective"] is None
    assert printed.arrays()["scatter"].shape == (3, 3)
    wide = fit(
        np.random.default_rng(4).standard_normal((40, 8)), covariance="full-corrected", disconnected="bridge", **options
    )
    assert "scatter" not in wide.arrays()
    assert "m_step_objective" not in wide.diagnostics.figures


def test_the_corrected_em_never_lowers_the_likelihood_of_the_data(sheet: NDArray[np.float64]) -> None:
    """With d < k its rounds are EM for w_i ~ N(0, S2) of which X_i w_i = x_i - mu is observed, exactly by all draws."""
    X = sheet[:80]
    centered, likelihoods = X - X.mean(axis=0), []
    options: Any = {"covariance": "full-corrected", "n_neighbors": 8, "tol": 0, "disconnected": "bridge"}
    for rounds in range(1, 9):
        fitted = fit(X, variant="published", max_iter=rounds, **options)
        F, mean = fitted.covariance_factor, fitted.mean
        second = (F @ F.transpose(0, 2, 1)).mean(axis=0) + mean.T @ mean / len(X)
        raw = X[fitted.neighbors].transpose(0, 2, 1)
        marginal = raw @ second @ raw.transpose(0, 2, 1)
        distance = (centered[:, None, :] @ np.linalg.solve(marginal, centered[:, :, None])).sum()
        likelihoods.append(-0.5 * (np.linalg.slogdet(marginal)[1].sum() + distance))
    assert (np.diff(likelihoods) > 0).all()
    assert likelihoods[-1] > likelihoods[0] + 1
    np.testing.assert_allclose(np.einsum("ndk,nk->nd", raw, fitted.weights(3)), centered, atol=1e-6)
    assert "linear-projection" in notes(fitted)
    assert "negative-variances" not in notes(fitted)


@pytest.mark.parametrize("options", [{}, {"covariance": "full"}, {"covariance": "full-corrected"}])
def test_no_tolerance_asks_for_every_round(wide: NDArray[np.float64], options: dict[str, Any]) -> None:
    """tol=0 runs max_iter rounds, also where the second changes nothing, as with full column rank."""
    fitted = fit(wide, variant="published", max_iter=4, tol=0, **options)
    assert fitted.diagnostics.figures["iterations"] == 4
    assert "not-converged" not in notes(fitted)
    if "corrected" in options.get("covariance", ""):
        assert not fitted.covariance_factor.any()
        assert fit(wide, variant="published", **options).diagnostics.figures["iterations"] == 2


def test_an_iteration_that_diverges_is_refused() -> None:
    """On collinear points the published zero grows without end; the corrected maximizer does not."""
    X = np.random.default_rng(0).standard_normal((40, 1)) @ [[1.0, 2.0, 3.0]]
    options: dict[str, Any] = {"variant": "published", "method": "em", "n_neighbors": 6, "max_iter": 500}
    with pytest.raises(OutOfRangeError, match=r"diverges.*full-corrected"):
        fit(X, covariance="full", **options)
    assert np.isfinite(fit(X, covariance="full-corrected", **options).embedding).all()
