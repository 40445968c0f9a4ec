r"""Published em with a full covariance per point, as published and with the true maximiser of its objective.

The M-step of GLLE maximises, for each point, Eq. 23 over :math:`\Omega_i`. Up to constants and a factor n / 2 it is

.. math:: -\log|\Omega| - \mathrm{tr}(\Omega^{-1} S_2) - \log|X \Omega X^T| - \mathrm{tr}((X \Omega X^T)^{-1} S_1)

with the scatters S1 (Eq. 24) and S2 (Eq. 25).

*full* takes the zero of Eq. 26, which is not the gradient of Eq. 23 (`published_m_step`).

*full-corrected* takes the maximiser (`corrected_m_step`). The maximum exists only if S1 is positive semidefinite, so
that S1 and S2 use the second moment :math:`E[w w^T] = C + m m^T` in place of the covariance C of Eq. 22.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.progress import OnProgress, blocks
from glle_engine.linalg import dense
from glle_engine.weights.gaussian import WeightLaw

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.spec import FitSpec

_BLOCK_ENTRIES = 1 << 20


def full_law(
    X: NDArray[np.float64], neighbors: NDArray[np.int32], spec: FitSpec, on_progress: OnProgress
) -> tuple[WeightLaw, dict[str, Any]]:
    """Return the posterior of the published em with a full Omega_i (GLLE Eq. 21-26), and figures for the diagnostics.

    `spec.covariance` is "full" or "full-corrected". `on_progress` is called with (iterations done, max_iter,
    "posterior").
    """
    n, k = neighbors.shape
    d = X.shape[1]
    corrected = spec.covariance == "full-corrected"
    condition = _condition if corrected else _published_condition
    scatters = _scatters if corrected else _published_scatters
    m_step = corrected_m_step if corrected else published_m_step
    centred = X - X.mean(axis=0)
    omega = np.broadcast_to(np.eye(k), (n, k, k)).copy()
    mean, covariance = np.empty((n, k)), np.empty((n, k, k))
    rows_of = list(blocks(n, max(1, _BLOCK_ENTRIES // (k * max(k, d))), "posterior"))
    iterations, converged = 0, False
    while True:
        scatter, second = np.zeros((d, d)) if corrected else dense.cross(centred, centred), np.zeros((k, k))
        for rows in rows_of:
            raw = X[neighbors[rows]].transpose(0, 2, 1)
            mean[rows], covariance[rows] = condition(raw, omega[rows], centred[rows])
            parts = scatters(raw, mean[rows], covariance[rows], centred[rows])
            scatter += parts[0]
            second += parts[1]
        if converged or iterations == spec.max_iter:
            break
        scatter, second = (scatter + scatter.T) / (2 * n), second / n
        before, omega = omega, np.empty_like(omega)
        for rows in rows_of:
            omega[rows] = m_step(X[neighbors[rows]].transpose(0, 2, 1), scatter, second)
        iterations += 1
        change = np.linalg.norm(omega - before, axis=(1, 2))
        converged = spec.tol > 0 and bool(np.all(change <= spec.tol * np.linalg.norm(omega, axis=(1, 2))))
        on_progress(iterations, spec.max_iter, "posterior")
    facts: dict[str, Any] = {"iterations": iterations, "converged": converged}
    if corrected:
        rank = np.concatenate([_row_space(X[neighbors[rows]].transpose(0, 2, 1))[2].sum(axis=1) for rows in rows_of])
        covariance[rank == k] = 0.0  # full column rank: the covariance is 0, not rounding
        facts["full_rank_neighborhoods"] = int((rank == k).sum())
        facts["exact_reconstructions"] = int((rank == d).sum()) if d < k else 0
    factor, negative = _absolute_root(covariance)
    prior, negative_prior = _absolute_root(omega)
    if not corrected:  # the corrected ones are positive semidefinite, up to rounding
        facts["negative_variances"] = int(np.maximum(negative, negative_prior).astype(bool).sum())
    return WeightLaw(mean, factor, 0.0, prior, constrained=False, sigma=None), facts


def published_m_step(
    raw: NDArray[np.float64], scatter: NDArray[np.float64], second: NDArray[np.float64]
) -> NDArray[np.float64]:
    r"""Return the zero (m, k, k) of Eq. 26 in closed form, in place of the paper's gradient descent.

    Eq. 26 reads :math:`\Omega - S_2 + X^T (X \Omega X^T - S_1) X` and vanishes where :math:`\Omega + A \Omega A = B`,
    with :math:`A = X^T X` and :math:`B = X^T S_1 X + S_2`. In the eigenbasis of A this is :math:`\Omega_{ab} = B_{ab}
    / (1 + l_a l_b)`. The arguments are those of `corrected_m_step`; S1 and S2 may be indefinite.
    """
    values, basis = dense.eigh(dense.gram(raw.transpose(0, 2, 1)))
    target = _congruence(raw.transpose(0, 2, 1), scatter) + second
    inner = _congruence(basis.transpose(0, 2, 1), target) / (1 + values[:, :, None] * values[:, None, :])
    return _congruence(basis, inner)


def corrected_m_step(
    raw: NDArray[np.float64], scatter: NDArray[np.float64], second: NDArray[np.float64]
) -> NDArray[np.float64]:
    r"""Return the maximiser of Eq. 23 over the covariance of each point.

    Let :math:`X = U S V^T` of rank r, and let 1 and 2 be the blocks of :math:`V^T \Omega V` on the row space of X
    (r wide) and on its null space (k - r wide). Then :math:`X \Omega X^T = U S \Omega_{11} S U^T`, and Eq. 23 splits:

    - :math:`\Omega_{11}` maximises
      :math:`-2 \log|\Omega_{11}| - \mathrm{tr}(\Omega_{11}^{-1} (T_1 + S_{11}))` with
      :math:`T_1 = S^{-1} U^T S_1 U S^{-1}`, so :math:`\Omega_{11} = (T_1 + S_{11}) / 2`;
    - block 2 given block 1 has the regression :math:`B = S_{21} S_{11}^{-1}` and the covariance
      :math:`S_{22.1} = S_{22} - B S_{12}` of S2.

    If X has less than full row rank, as for d > k, :math:`X \Omega X^T` is singular. Its inverse and determinant are
    then those on the column space of X, and the same formula holds. Block 2 is empty if X has full column rank. A
    singular S2 leaves Eq. 23 unbounded; the pseudo-inverse of S_11 then gives the limit of the maximisers of S2 + e I
    for e -> 0.

    Parameters
    ----------
    raw : (m, d, k) float64
        X_i, whose columns are the neighbors of point i.
    scatter : (d, d) float64
        S1, symmetric and positive semidefinite.
    second : (k, k) float64
        S2, symmetric and positive semidefinite.

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
    """Return A B A^T for each A; B is one matrix, or one for each."""
    return dense.matmul(dense.matmul(left, middle), left.transpose(0, 2, 1))


def _row_space(raw: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return U S^+ (m, d, k), V^T (m, k, k) and 1 for each row of V^T in the row space, 0 elsewhere (m, k)."""
    m, d, k = raw.shape
    if d < k:  # rows of zeros complete the basis of right singular vectors
        raw = np.concatenate([raw, np.zeros((m, k - d, k))], axis=1)
    left, singular, right = dense.svd(raw)
    held = singular > max(d, k) * np.finfo(float).eps * singular[:, :1]
    back = left[:, :d] * np.where(held, 1 / np.where(held, singular, 1.0), 0.0)[:, None, :]
    return back, right, held.astype(float)


def _regress(
    rotated: NDArray[np.float64], row_space: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return C_11, C_21 C_11^+ and C_22.1 of covariances C, each (m, k, k) and zero outside its block."""
    null_space = 1 - row_space
    first = rotated * (row_space[:, :, None] * row_space[:, None, :])
    regression = dense.matmul(rotated * null_space[:, :, None], dense.pinv(first))
    rest = rotated * (null_space[:, :, None] * null_space[:, None, :])
    return first, regression, rest - _congruence(regression, first)


def _scatters(
    raw: NDArray[np.float64],
    mean: NDArray[np.float64],
    covariance: NDArray[np.float64],
    centred: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return n S1 and n S2 of some points, with E[w w^T] = C + m m^T.

    S1 has no term X C X^T, because a covariance that is conditional on X w = x - mu annihilates X.
    """
    residual = centred - dense.matmul(raw, mean[:, :, None])[:, :, 0]
    return dense.cross(residual, residual), covariance.sum(axis=0) + dense.cross(mean, mean)


def _published_scatters(
    raw: NDArray[np.float64],
    mean: NDArray[np.float64],
    covariance: NDArray[np.float64],
    centred: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return n S1 less its first term, and n S2, of some points, with C of Eq. 22 in place of E[w w^T]."""
    m, d, k = raw.shape
    rebuilt = dense.matmul(raw, np.concatenate([mean[:, :, None], covariance], axis=2))
    scatter = -2 * dense.cross(rebuilt[:, :, 0], centred)
    columns = (part.transpose(0, 2, 1).reshape(m * k, d) for part in (rebuilt[:, :, 1:], raw))
    return scatter + dense.cross(*columns), covariance.sum(axis=0)


def _condition(
    raw: NDArray[np.float64], omega: NDArray[np.float64], centred: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean (m, k) and covariance (m, k, k) of Eq. 21-22 for covariances that are positive semidefinite.

    In the blocks of `corrected_m_step` the covariance is that of block 2 given block 1, which annihilates X exactly.
    """
    back, right, row_space = _row_space(raw)
    _, regression, rest = _regress(_congruence(right, omega), row_space)
    projected = dense.matmul(back.transpose(0, 2, 1), centred[:, :, None])
    mean = dense.matmul(right.transpose(0, 2, 1), projected + dense.matmul(regression, projected))
    covariance = _congruence(right.transpose(0, 2, 1), rest)
    return mean[:, :, 0], (covariance + covariance.transpose(0, 2, 1)) / 2


def _published_condition(
    raw: NDArray[np.float64], omega: NDArray[np.float64], centred: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute Eq. 21-22 with the pseudo-inverse in the column space of X_i, min(d, k) wide, instead of in d."""
    basis, singular, right = dense.svd(raw)
    reduced = singular[:, :, None] * right  # X_i = U (S V^T)
    cross = dense.matmul(omega, reduced.transpose(0, 2, 1))
    gain = dense.matmul(cross, dense.pinv(dense.matmul(reduced, cross)))
    mean = dense.matmul(gain, dense.matmul(basis.transpose(0, 2, 1), centred[:, :, None]))
    covariance = omega - dense.matmul(gain, cross.transpose(0, 2, 1))
    return mean[:, :, 0], (covariance + covariance.transpose(0, 2, 1)) / 2


def _absolute_root(matrix: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    r"""Return the symmetric root of \|M\| and the number of eigenvalues that are negative beyond rounding."""
    values, vectors = dense.eigh(matrix)
    floor = matrix.shape[-1] * np.finfo(float).eps * np.abs(values).max(axis=1, keepdims=True)
    kept = np.where(np.abs(values) > floor, np.abs(values), 0.0)
    root = dense.matmul(vectors * np.sqrt(kept)[:, None, :], vectors.transpose(0, 2, 1))
    return root, (values < -floor).sum(axis=1)
