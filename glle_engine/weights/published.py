r"""Published posteriors: the equations of GLLE as published, with diagnostics of their effects.

*em* (Algorithm 1): :math:`x_i = X_i w_i + \mu`, :math:`w_i \sim N(0, \Omega_i)`, with the raw neighbors X_i (d x k) and
the mean mu of the data. E-step (Eq. 21-22): mean :math:`\Omega X^T (X \Omega X^T)^+ (x - \mu)`, covariance
:math:`\Omega - \Omega X^T (X \Omega X^T)^+ X \Omega`. M-step: the global scatters S1 (Eq. 24) and S2 (Eq. 25), then the
spherical covariance :math:`\Omega_i = \sigma_i I` with
:math:`\sigma_i = (\mathrm{tr}((X_i X_i^T)^+ S_1) + \mathrm{tr} S_2) / (d + k)` (Eq. 29). Eq. 22 has the conditional
covariance in place of E[w w^T]: the outer product of the mean is missing. S1 is therefore not a scatter matrix, and
sigma_i can become negative. A draw then uses \|sigma_i\|, and the diagnostics count the negative sigma_i.

With a full covariance the M-step maximizes Eq. 23 over :math:`\Omega_i` for each point. Up to constants and a factor
n / 2, Eq. 23 is

.. math:: -\log|\Omega| - \mathrm{tr}(\Omega^{-1} S_2) - \log|X \Omega X^T| - \mathrm{tr}((X \Omega X^T)^{-1} S_1).

*full* takes the zero of Eq. 26, which is not the gradient of Eq. 23 (`published_m_step`). *full-descent* runs the
paper's gradient descent towards this zero (`descend`). *full-corrected* takes the maximizer of Eq. 23
(`corrected_m_step`). This maximum exists only if S1 is positive semidefinite. *full-corrected* therefore computes S1
and S2 from the second moment :math:`E[w w^T] = C + m m^T` in place of the covariance C of Eq. 22.

*direct* (Algorithm 2): precision :math:`X_i^T X_i + Y_i^T Y_i` (Eq. 35). If d + p < k, the precision is singular. The
pseudo-inverse then replaces the inverse, and the diagnostics report it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.errors import OutOfRangeError
from glle_engine.base.progress import OnProgress, block_size, blocks, silent
from glle_engine.base.texts import Way
from glle_engine.linalg import dense
from glle_engine.weights.gaussian import WeightDistribution
from glle_engine.weights.lle import lle_weights

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from glle_engine.base.spec import FitSpec

_DESCENT_STEPS = 1000  # a gradient descent stops after this many steps; a note then says what is left of the gradient
MIN_GRADIENT_SHARE = 1e-10  # a descent stops when the gradient has fallen to this share of the first gradient


def published_distribution(
    X: NDArray[np.float64],
    neighbors: NDArray[np.int32],
    embedding: NDArray[np.float64],
    spec: FitSpec,
    on_progress: OnProgress = silent,
) -> tuple[WeightDistribution, dict[str, Any]]:
    """Return the published posterior of the weights, and numbers for the diagnostics of the fit.

    `spec` chooses method="em", with a spherical (Eq. 29) or a full covariance, or method="direct". X (n, d) is in the
    unit of the data, because shifts and scales change the posterior. `embedding` (n, p) is the LLE embedding with
    (1/n) Y^T Y = I, which method="direct" uses. `on_progress` is called with (points or iterations done, all,
    "posterior").
    """
    if spec.method == "direct":
        return _direct(X, neighbors, embedding, spec, on_progress)
    if spec.covariance != "spherical":
        return full_distribution(X, neighbors, spec, on_progress)
    return _em_spherical(X, neighbors, spec, on_progress)


def _em_spherical(
    X: NDArray[np.float64], neighbors: NDArray[np.int32], spec: FitSpec, on_progress: OnProgress
) -> tuple[WeightDistribution, dict[str, Any]]:
    """Return the posterior of the weights by the GLLE paper's EM algorithm (Eq. 21-29), and numbers for diagnostics.

    The prior covariance of the weights of point i is spherical, Omega_i = sigma_i I. The mean of the weights is then
    X_i^+ (x_i - mu), whatever sigma_i is, where X_i (d, k) are the neighbors of x_i, and mu is the mean of the data.
    """
    n, k = neighbors.shape
    d = X.shape[1]
    centered = X - X.mean(axis=0)
    mean, null, rank = np.empty((n, k)), np.empty((n, k, k)), np.empty(n)
    scatter = dense.cross(centered, centered)
    rows_of = list(blocks(n, block_size(k * max(k, d)), "posterior"))
    for rows in rows_of:
        raw = X[neighbors[rows]].transpose(0, 2, 1)  # X_i, (m, d, k)
        inverse = dense.pinv(raw)
        mean[rows] = dense.matmul(inverse, centered[rows, :, None])[:, :, 0]
        null[rows] = np.eye(k) - dense.matmul(inverse, raw)
        rank[rows] = np.rint(k - np.trace(null[rows], axis1=1, axis2=2))
        # Eq. 24 is the mean over the points of (x - mu) (x - mu)^T - 2 X E[w] (x - mu)^T + X E[w w^T] X^T. `scatter`
        # begins with the sum of the first terms, and the second ones are subtracted here. The third ones are 0, because
        # the paper has the covariance sigma (I - X^+ X) in place of E[w w^T], and X (I - X^+ X) = 0.
        scatter -= 2 * dense.cross(dense.matmul(raw, mean[rows, :, None])[:, :, 0], centered[rows])
        on_progress(rows.stop, n, "posterior")
    null[rank == k] = 0.0  # full column rank: the covariance is exactly 0, without rounding errors
    scatter /= n
    explained = np.empty(n)
    for rows in rows_of:
        inverse = dense.pinv(X[neighbors[rows]].transpose(0, 2, 1))
        explained[rows] = (dense.matmul(inverse, scatter) * inverse).sum(axis=(1, 2))  # tr((X X^T)^+ S1)
    sigma = np.ones(n)
    free = k - rank
    iterations, converged = 0, False
    while iterations < spec.max_iter and not converged:
        before, sigma = sigma, (explained + np.mean(sigma * free)) / (d + k)
        iterations += 1
        converged = spec.tol > 0 and bool(np.all(np.abs(sigma - before) <= spec.tol * np.abs(sigma)))
        on_progress(iterations, spec.max_iter, "posterior")
    spread = np.sqrt(np.abs(sigma))
    facts = {
        "iterations": iterations,
        "converged": converged,
        "negative_variances": int((sigma < 0).sum()),
        "median_sigma": float(np.median(sigma)),
        "full_rank_neighborhoods": int((rank == k).sum()),
        "exact_reconstructions": int((rank == d).sum()) if d < k else 0,
    }
    return WeightDistribution(mean, spread[:, None, None] * null, 0.0, spread, constrained=False, sigma=sigma), facts


def direct_covariance(
    X: NDArray[np.float64], neighbors: NDArray[np.int32], embedding: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.intp]]:
    """Return the covariances Gamma_i = (X_i^T X_i + Y_i^T Y_i)^+ of GLLE Eq. 35, their symmetric roots, and ranks.

    X_i (d, k) and Y_i (p, k) are the `neighbors` (n, k) of point i in the data X (n, d) and in the `embedding` (n, p),
    whose scale relative to X matters. The covariances and their roots are (n, k, k). The ranks (n,) are the ranks of
    the precisions X_i^T X_i + Y_i^T Y_i: a precision of rank below k is singular, and its pseudo-inverse replaces its
    inverse.
    """
    n, k = neighbors.shape
    covariance, root, rank = np.empty((n, k, k)), np.empty((n, k, k)), np.empty(n, np.intp)
    joint = np.concatenate([X, embedding], axis=1)
    for rows in blocks(n, block_size(k * max(k, joint.shape[1])), "posterior"):
        raw = joint[neighbors[rows]]
        values, vectors = dense.eigh(dense.gram(raw))
        floor = max(k, joint.shape[1]) * np.finfo(float).eps * values[:, -1:]
        is_positive = values > floor
        inverse = np.where(is_positive, 1 / np.where(is_positive, values, 1.0), 0.0)
        rank[rows] = is_positive.sum(axis=1)
        covariance[rows] = dense.matmul(vectors * inverse[:, None, :], vectors.transpose(0, 2, 1))
        root[rows] = dense.matmul(vectors * np.sqrt(inverse)[:, None, :], vectors.transpose(0, 2, 1))
    return covariance, root, rank


def _direct(
    X: NDArray[np.float64],
    neighbors: NDArray[np.int32],
    embedding: NDArray[np.float64],
    spec: FitSpec,
    on_progress: OnProgress,
) -> tuple[WeightDistribution, dict[str, Any]]:
    n, k = neighbors.shape
    covariance, root, rank = direct_covariance(X, neighbors, embedding)
    if spec.mean == "lle":
        mean = lle_weights(X, neighbors, spec.reg)
    else:  # the mean of GLLE Eq. 35, Gamma_i (X_i^T x_i + Y_i^T y_i); row i of `joint` is x_i and y_i side by side
        joint = np.concatenate([X, embedding], axis=1)
        target = dense.matmul(joint[neighbors], joint[:, :, None])
        mean = dense.matmul(covariance, target)[:, :, 0]
    on_progress(n, n, "posterior")
    facts: dict[str, Any] = {"singular_precisions": int((rank < k).sum())}
    return WeightDistribution(mean, root, 0.0, None, constrained=False, sigma=None), facts


def full_distribution(
    X: NDArray[np.float64], neighbors: NDArray[np.int32], spec: FitSpec, on_progress: OnProgress
) -> tuple[WeightDistribution, dict[str, Any]]:
    """Return the posterior of the weights by the GLLE paper's EM algorithm (Eq. 21-26), and numbers for diagnostics.

    The prior covariance of the weights of each point is a full matrix. `spec.covariance` says how the M-step computes
    it: "full", "full-descent" or "full-corrected". The M-step of "full-descent" runs a gradient descent for each block
    of points. The numbers then include, for each iteration, how many steps the longest of these descents took, and the
    largest ratio of the gradient at the end of a descent to the gradient at its start (`descend`). For d <= k the
    numbers include the mean over the points of Eq. 23, the objective of the M-step, and the distribution has the
    gradient of Eq. 23. If Eq. 23 has no value at some point, the mean is None, and there is no gradient. `on_progress`
    is called with (iterations done, max_iter, "posterior").
    """
    n, k = neighbors.shape
    d = X.shape[1]
    corrected = spec.covariance == "full-corrected"
    steps: list[int] = []
    left: list[float] = []

    def report() -> None:
        on_progress(iterations, spec.max_iter, "posterior")

    def m_step(raw: NDArray[np.float64]) -> NDArray[np.float64]:
        if spec.covariance != "full-descent":
            return (corrected_m_step if corrected else published_m_step)(raw, scatter, second)
        omega_block, count, share = descend(raw, scatter, second, _DESCENT_STEPS, on_step=report)
        steps[-1], left[-1] = max(steps[-1], count), max(left[-1], share)
        return omega_block

    omega = np.broadcast_to(np.eye(k), (n, k, k)).copy()
    rows_of = list(blocks(n, block_size(k * max(k, d)), "posterior"))
    iterations, converged = 0, False
    while True:
        mean, covariance, scatter, second = e_step(X, neighbors, omega, corrected=corrected)
        if converged or iterations == spec.max_iter:
            break
        before, omega = omega, np.empty_like(omega)
        steps.append(0)
        left.append(0.0)
        for rows in rows_of:
            omega[rows] = m_step(X[neighbors[rows]].transpose(0, 2, 1))
            report()
        iterations += 1
        with np.errstate(over="ignore"):
            change, size = (np.linalg.norm(matrices, axis=(1, 2)) for matrices in (omega - before, omega))
        if not np.isfinite(size).all():
            raise OutOfRangeError(
                f"The published em with {Way('covariance', spec.covariance)} diverges on these data: after "
                f"{iterations} iterations a covariance is beyond the range of float64.",
                remedy=f"Use {Way('covariance', 'full-corrected')} or {Way('covariance', 'spherical')}, or fewer "
                "iterations.",
                details={"iterations": iterations},
            )
        converged = spec.tol > 0 and bool(np.all(change <= spec.tol * size))
        report()
    rank = np.concatenate([_row_space(X[neighbors[rows]].transpose(0, 2, 1))[2].sum(axis=1) for rows in rows_of])
    covariance[rank == k] = 0.0  # full column rank: the covariance is exactly 0, without rounding errors
    facts: dict[str, Any] = {
        "iterations": iterations,
        "converged": converged,
        "full_rank_neighborhoods": int((rank == k).sum()),
        "exact_reconstructions": int((rank == d).sum()) if d < k else 0,
    }
    if spec.covariance == "full-descent":
        facts |= {"descent_steps": steps, "descent_gradients": left}
    factor, negative = _absolute_root(covariance)
    prior, negative_prior = _absolute_root(omega)
    if not corrected:  # corrected covariances are positive semidefinite, up to rounding
        facts["negative_variances"] = int(np.maximum(negative, negative_prior).astype(bool).sum())
    distribution = WeightDistribution(mean, factor, 0.0, prior, constrained=False, sigma=None)
    if d > k:  # X Omega X^T is singular, and Eq. 23 has no value
        return distribution, facts
    distribution = replace(distribution, scatter=scatter, second_moment=second)

    def of_points(function: Callable[..., NDArray[np.float64]]) -> NDArray[np.float64]:
        blocks_of = (function(X[neighbors[rows]].transpose(0, 2, 1), omega[rows], scatter, second) for rows in rows_of)
        return np.concatenate(list(blocks_of))

    objective = float(of_points(m_step_objective).mean())
    if not math.isfinite(objective):
        return distribution, facts | {"m_step_objective": None}
    return replace(distribution, gradient=of_points(m_step_gradient)), facts | {"m_step_objective": objective}


def e_step(
    X: NDArray[np.float64], neighbors: NDArray[np.int32], omega: NDArray[np.float64], *, corrected: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return mean (n, k) and covariance (n, k, k) of the weights, and the scatters S1 (d, d) and S2 (k, k).

    Mean and covariance are GLLE Eq. 21-22 for the data X (n, d), the `neighbors` (n, k) and the prior covariances
    `omega` (n, k, k). S1 and S2 (Eq. 24-25) are the mean second moments, over all points, of the residuals of the
    reconstruction and of the weights w. The paper computes them with the covariance C of the weights in place of
    E[w w^T]. With `corrected`, they are computed with E[w w^T] = C + m m^T, where m is the mean.
    """
    (n, k), d = neighbors.shape, X.shape[1]
    condition, scatters = (_condition, _scatters) if corrected else (_published_condition, _published_scatters)
    centered = X - X.mean(axis=0)
    mean, covariance = np.empty((n, k)), np.empty((n, k, k))
    scatter, second = np.zeros((d, d)) if corrected else dense.cross(centered, centered), np.zeros((k, k))
    for rows in blocks(n, block_size(k * max(k, d)), "posterior"):
        raw = X[neighbors[rows]].transpose(0, 2, 1)
        mean[rows], covariance[rows] = condition(raw, omega[rows], centered[rows])
        parts = scatters(raw, mean[rows], covariance[rows], centered[rows])
        scatter += parts[0]
        second += parts[1]
    return mean, covariance, (scatter + scatter.T) / (2 * n), second / n


def m_step_objective(
    raw: NDArray[np.float64], omega: NDArray[np.float64], scatter: NDArray[np.float64], second: NDArray[np.float64]
) -> NDArray[np.float64]:
    r"""Return GLLE Eq. 23, the objective of the M-step, for each point (m,), without constants and the factor n / 2.

    The value is :math:`-\log|\Omega| - \mathrm{tr}(\Omega^{-1} S_2) - \log|X \Omega X^T| - \mathrm{tr}((X \Omega
    X^T)^{-1} S_1)` for the neighbors X in `raw` (m, d, k), the prior covariances :math:`\Omega` in `omega` (m, k, k),
    :math:`S_1` = `scatter` (d, d) and :math:`S_2` = `second` (k, k). The value is NaN where :math:`\Omega` or
    :math:`X \Omega X^T` is not positive definite; for d > k, all values are NaN.
    """
    value = np.zeros(len(omega))
    for matrix, inner in ((omega, second), (_congruence(raw, omega), scatter)):
        values, vectors = dense.eigh(matrix)
        along = np.diagonal(_congruence(vectors.transpose(0, 2, 1), inner), axis1=1, axis2=2)
        is_definite = values[:, 0] > values.shape[1] * np.finfo(float).eps * values[:, -1]
        values = np.where(is_definite[:, None], values, 1.0)
        value -= np.where(is_definite, (dense.logs(values) + along / values).sum(axis=1), np.nan)
    return value


def m_step_gradient(
    raw: NDArray[np.float64], omega: NDArray[np.float64], scatter: NDArray[np.float64], second: NDArray[np.float64]
) -> NDArray[np.float64]:
    r"""Return the gradient (m, k, k) of `m_step_objective` by the covariance of each point, to compare with Eq. 26.

    The gradient is :math:`\Omega^{-1} S_2 \Omega^{-1} - \Omega^{-1} + X^T (P S_1 P - P) X` with
    :math:`P = (X \Omega X^T)^{-1}`, for the neighbors X in `raw` (m, d, k), the prior covariances :math:`\Omega` in
    `omega` (m, k, k), :math:`S_1` = `scatter` (d, d) and :math:`S_2` = `second` (k, k).
    """
    inverse, precision = dense.pinv(omega), dense.pinv(_congruence(raw, omega))
    inner = _congruence(precision, scatter) - precision
    return np.asarray(_congruence(inverse, second) - inverse + _congruence(raw.transpose(0, 2, 1), inner))


def published_gradient(
    raw: NDArray[np.float64], omega: NDArray[np.float64], scatter: NDArray[np.float64], second: NDArray[np.float64]
) -> NDArray[np.float64]:
    r"""Return GLLE Eq. 26 (m, k, k) without the factor n / 2: :math:`X^T (X \Omega X^T - S_1) X + \Omega - S_2`.

    X are the neighbors of each point in `raw` (m, d, k), :math:`\Omega` the prior covariances in `omega` (m, k, k),
    :math:`S_1` is `scatter` (d, d) and :math:`S_2` is `second` (k, k). If X is orthogonal, so that
    :math:`(X \Omega X^T)^{-1} = X \Omega^{-1} X^T`, Eq. 26 is the gradient of minus Eq. 23 by :math:`\Omega^{-1}`. For
    other X, Eq. 26 is not a gradient of Eq. 23 (see `m_step_gradient`).
    """
    inner = _congruence(raw, omega) - scatter
    return np.asarray(_congruence(raw.transpose(0, 2, 1), inner) + omega - second)


def descend(
    raw: NDArray[np.float64],
    scatter: NDArray[np.float64],
    second: NDArray[np.float64],
    max_iter: int,
    tol: float = MIN_GRADIENT_SHARE,
    *,
    on_step: Callable[[], None] = lambda: None,
) -> tuple[NDArray[np.float64], int, float]:
    r"""Run the gradient descent of the GLLE paper along Eq. 26, which starts at the identity matrix for each point.

    Returns the covariances (m, k, k) at the end, the number of steps, and the largest entry of the last gradient
    divided by the largest entry of the first.

    The step size is :math:`1 / (1 + l^2)`, where l is the greatest eigenvalue of :math:`X^T X`. The distance from the
    zero of Eq. 26 (`published_m_step`) therefore never grows, but it shrinks slowly if the eigenvalues differ much. The
    descent stops when the gradient is below `tol` times the gradient at the start. `on_step` is called before each
    step; an exception that it raises cancels the descent. `raw` (m, d, k) has the neighbors X of each point, `scatter`
    (d, d) is :math:`S_1` of Eq. 24, and `second` (k, k) is :math:`S_2` of Eq. 25.
    """
    values = dense.eigh(dense.gram(raw.transpose(0, 2, 1)))[0]
    omega = np.broadcast_to(np.eye(raw.shape[2]), (len(raw), raw.shape[2], raw.shape[2])).copy()
    length = 1 / (1 + values[:, -1:, None] ** 2)
    first = 0.0
    for iteration in range(max_iter + 1):
        gradient = published_gradient(raw, omega, scatter, second)
        size = float(np.abs(gradient).max())
        first = first or size
        if size <= tol * first or iteration == max_iter:
            break
        on_step()
        omega -= length * gradient
    return omega, iteration, size / first if first else 0.0


def published_m_step(
    raw: NDArray[np.float64], scatter: NDArray[np.float64], second: NDArray[np.float64]
) -> NDArray[np.float64]:
    r"""Return the covariances (m, k, k) at which Eq. 26 is zero, in closed form: the limit of the paper's descent.

    Eq. 26 reads :math:`\Omega - S_2 + X^T (X \Omega X^T - S_1) X` and vanishes where :math:`\Omega + A \Omega A = B`,
    with :math:`A = X^T X` and :math:`B = X^T S_1 X + S_2`. In the eigenbasis of A, with the eigenvalues :math:`l_a`,
    the solution is :math:`\Omega_{ab} = B_{ab} / (1 + l_a l_b)`. `raw` (m, d, k) has the neighbors X of each point,
    `scatter` (d, d) is :math:`S_1` of Eq. 24, and `second` (k, k) is :math:`S_2` of Eq. 25; both may be indefinite.
    """
    values, basis = dense.eigh(dense.gram(raw.transpose(0, 2, 1)))
    target = _congruence(raw.transpose(0, 2, 1), scatter) + second
    inner = _congruence(basis.transpose(0, 2, 1), target) / (1 + values[:, :, None] * values[:, None, :])
    return _congruence(basis, inner)


def corrected_m_step(
    raw: NDArray[np.float64], scatter: NDArray[np.float64], second: NDArray[np.float64]
) -> NDArray[np.float64]:
    r"""Return the prior covariances (m, k, k) that maximize GLLE Eq. 23, the objective of the M-step, for m points.

    Let :math:`X = U D V^T` be the singular value decomposition of the neighbors X of a point, of rank r. Both
    :math:`V^T \Omega V` and :math:`M = V^T S_2 V` are split into blocks: index 1 stands for the row space of X (r
    dimensions), index 2 for its null space (k - r dimensions). Then
    :math:`X \Omega X^T = U D \Omega_{11} D U^T`, and Eq. 23 splits into two maximizations:

    - :math:`\Omega_{11}` maximizes
      :math:`-2 \log|\Omega_{11}| - \mathrm{tr}(\Omega_{11}^{-1} (T + M_{11}))` with
      :math:`T = D^{-1} U^T S_1 U D^{-1}`, so :math:`\Omega_{11} = (T + M_{11}) / 2`;
    - in :math:`\Omega`, the regression of block 2 on block 1 and the rest that it leaves are the same as in M: the
      regression is :math:`B = M_{21} M_{11}^{-1}`, and the covariance of the rest is :math:`M_{22} - B M_{12}`.

    If X has less than full row rank, as for d > k, :math:`X \Omega X^T` is singular. Its inverse and its determinant
    are then taken on the column space of X, and the same formula holds. If X has full column rank, block 2 is empty. If
    :math:`S_2` is singular, Eq. 23 is unbounded. The pseudo-inverse of :math:`M_{11}` then gives the limit of the
    maximizers for :math:`S_2 + e I` as e -> 0.

    Parameters
    ----------
    raw : (m, d, k) float64
        X_i, whose columns are the neighbors of point i.
    scatter : (d, d) float64
        :math:`S_1` of Eq. 24, symmetric and positive semidefinite.
    second : (k, k) float64
        :math:`S_2` of Eq. 25, symmetric and positive semidefinite.

    Returns
    -------
    (m, k, k) float64
        Positive semidefinite.

    """
    back, right, row_space = _row_space(raw)
    first, regression, rest = _regress(_congruence(right, second), row_space)
    first += _congruence(back.transpose(0, 2, 1), scatter)
    spread = np.eye(raw.shape[2]) * row_space[:, None, :] + regression
    inner = _congruence(spread, first / 2) + rest
    omega = _congruence(right.transpose(0, 2, 1), inner)
    return np.asarray((omega + omega.transpose(0, 2, 1)) / 2)


def _congruence(left: NDArray[np.float64], middle: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return A B A^T for each matrix A in `left`; `middle` is one matrix B for all A, or one for each A."""
    return dense.matmul(dense.matmul(left, middle), left.transpose(0, 2, 1))


def _row_space(raw: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Decompose X = U D V^T for each X in `raw` (m, d, k): return U D^+ (m, d, k), V^T (m, k, k), and a mask (m, k).

    D are the singular values. The mask is 1 for the rows of V^T that lie in the row space of X, and 0 for the others.
    """
    m, d, k = raw.shape
    padded = np.zeros((m, max(d, k), k))  # rows of zeros complete the basis of right singular vectors for d < k
    padded[:, :d] = raw
    left, singular, right = dense.svd(padded)
    is_positive = singular > max(d, k) * np.finfo(float).eps * singular[:, :1]
    back = left[:, :d] * np.where(is_positive, 1 / np.where(is_positive, singular, 1.0), 0.0)[:, None, :]
    return back, right, is_positive.astype(float)


def _regress(
    rotated: NDArray[np.float64], row_space: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Regress block 2 of covariances C on block 1: return C_11, C_21 C_11^+ and C_22 - C_21 C_11^+ C_12.

    `rotated` (m, k, k) are the covariances C in the basis of right singular vectors of each point's neighbors X. Block
    1 are the indices where `row_space` (m, k) is 1, the row space of X. Block 2 are the others, the null space of X.
    Each result is (m, k, k), and 0 outside its own block.
    """
    null_space = 1 - row_space
    first = rotated * (row_space[:, :, None] * row_space[:, None, :])
    regression = dense.matmul(rotated * null_space[:, :, None], dense.pinv(first))
    rest = rotated * (null_space[:, :, None] * null_space[:, None, :])
    return first, regression, rest - _congruence(regression, first)


def _scatters(
    raw: NDArray[np.float64],
    mean: NDArray[np.float64],
    covariance: NDArray[np.float64],
    centered: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what a block of m points adds to n S1 (d, d) and n S2 (k, k), the scatters of residuals and of weights.

    For each point x, the terms are the second moments of its residual x - mu - X w and of its weights w. `raw` (m, d,
    k) has the neighbors X, `centered` (m, d) has x - mu, where mu is the mean of the data, and the weights have the
    `mean` (m, k) and the `covariance` (m, k, k). The covariance does not contribute to S1, because X times the
    covariance is 0: it is the covariance given X w = x - mu.
    """
    residual = centered - dense.matmul(raw, mean[:, :, None])[:, :, 0]
    return dense.cross(residual, residual), covariance.sum(axis=0) + dense.cross(mean, mean)


def _published_scatters(
    raw: NDArray[np.float64],
    mean: NDArray[np.float64],
    covariance: NDArray[np.float64],
    centered: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what a block of m points adds to the paper's n S1 (d, d) and n S2 (k, k), Eq. 24-25, as it prints them.

    The paper has the covariance C of the weights w (Eq. 22) where their second moment E[w w^T] would be correct. A
    point x adds -2 X E[w] (x - mu)^T + X C X^T to n S1, and it adds C to n S2. The second term X C X^T is 0, because C
    is the covariance given X w = x - mu. `raw` (m, d, k) has the neighbors X, `centered` (m, d) has x - mu, where mu is
    the mean of the data, `mean` (m, k) is E[w], and `covariance` (m, k, k) is C. `e_step` adds the remaining term of
    Eq. 24, the scatter of the data, and makes S1 symmetric.
    """
    rebuilt = dense.matmul(raw, mean[:, :, None])[:, :, 0]
    return -2 * dense.cross(rebuilt, centered), covariance.sum(axis=0)


def _condition(
    raw: NDArray[np.float64], omega: NDArray[np.float64], centered: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean (m, k) and covariance (m, k, k) of weights w with the prior N(0, Omega), given X w = x - mu.

    This is GLLE Eq. 21-22 for positive semidefinite Omega, in `omega` (m, k, k). `raw` (m, d, k) has the neighbors X of
    each point x, and `centered` (m, d) has x - mu, where mu is the mean of the data. The covariance is computed in the
    null space of X alone, so that X times the covariance is 0 but for the rounding of a basis of this space.
    """
    back, right, row_space = _row_space(raw)
    _, regression, rest = _regress(_congruence(right, omega), row_space)
    projected = dense.matmul(back.transpose(0, 2, 1), centered[:, :, None])
    mean = dense.matmul(right.transpose(0, 2, 1), projected + dense.matmul(regression, projected))
    covariance = _congruence(right.transpose(0, 2, 1), rest)
    return mean[:, :, 0], (covariance + covariance.transpose(0, 2, 1)) / 2


def _published_condition(
    raw: NDArray[np.float64], omega: NDArray[np.float64], centered: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean (m, k) and covariance (m, k, k) of weights w, given X w = x - mu, by GLLE Eq. 21-22 as printed.

    `omega` (m, k, k) are the prior covariances, which the paper's M-step may make indefinite; `raw` (m, d, k) has the
    neighbors X of each point x, and `centered` (m, d) has x - mu, where mu is the mean of the data. The pseudo-inverse
    is computed in the column space of X, which has at most min(d, k) dimensions, instead of in d dimensions.
    """
    basis, singular, right = dense.svd(raw)
    reduced = singular[:, :, None] * right  # D V^T, where X = U D V^T
    cross = dense.matmul(omega, reduced.transpose(0, 2, 1))
    gain = dense.matmul(cross, dense.pinv(dense.matmul(reduced, cross)))
    mean = dense.matmul(gain, dense.matmul(basis.transpose(0, 2, 1), centered[:, :, None]))
    covariance = omega - dense.matmul(gain, cross.transpose(0, 2, 1))
    return mean[:, :, 0], (covariance + covariance.transpose(0, 2, 1)) / 2


def _absolute_root(matrix: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    r"""Return the symmetric root of \|M\| for each matrix M, and the number of eigenvalues of M that are negative.

    \|M\| has the eigenvectors of M, and the absolute values of its eigenvalues. Eigenvalues within rounding errors of 0
    count as 0.
    """
    values, vectors = dense.eigh(matrix)
    floor = matrix.shape[-1] * np.finfo(float).eps * np.abs(values).max(axis=1, keepdims=True)
    kept = np.where(np.abs(values) > floor, np.abs(values), 0.0)
    root = dense.matmul(vectors * np.sqrt(kept)[:, None, :], vectors.transpose(0, 2, 1))
    return root, (values < -floor).sum(axis=1)
