r"""Graphical lasso on a given sparsity pattern, by columns, with its duality gap.

The objective, over positive definite P with zeros outside the pattern, is

.. math:: \log|P| - tr(S P) - \rho \sum_{ij} |p_{ij}|,

including the diagonal. Its dual is :math:`\max \log|W| + n` over W with :math:`w_{ii} = s_{ii} + \rho`,
:math:`|w_{ij} - s_{ij}| \le \rho` in the pattern and any entries outside it; :math:`W = P^{-1}` at the optimum. The
columns of W are updated one at a time: with the others fixed, :math:`w_{12} = W_{11} \beta`, where :math:`\beta`
minimizes :math:`\beta^T W_{11} \beta / 2 - s_{12}^T \beta + \rho |\beta|_1` over the column's pattern (Friedman,
Hastie and Tibshirani 2008; the pattern as in Hastie, Tibshirani and Friedman 2009, algorithm 17.1). The small lassos
are solved exactly by feature-sign search (Lee, Battle, Raina and Ng 2007), from the solution of the last round. The
difference between primal and dual bounds the error of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg.lapack import dposv, dpotrf

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

_EXACT = 1e-9  # of a column's lasso, relative to the largest entry of S in it
_GAP_EVERY = 5  # rounds


@dataclass(frozen=True, eq=False)
class Regularized:
    """Regularized precision.

    Attributes
    ----------
    P : (n, n) float64
        Zero outside the pattern, and at the entries that the penalty removes.
    K : (n, n) float64
        W, dual feasible: the inverse of P up to the gap.
    log_det : float
        log |K|.
    gap : float
        Bound on the distance of log |P| - tr(S P) - rho |P|_1 from its maximum; infinite unless P is positive definite.
    iterations : int
        Rounds over the columns.
    converged : bool

    """

    P: NDArray[np.float64]
    K: NDArray[np.float64]
    log_det: float
    gap: float
    iterations: int
    converged: bool


def regularize(
    S: NDArray[np.float64],
    neighbors: list[NDArray[np.intp]],
    rho: float,
    tolerance: float,
    max_iterations: int,
    on_progress: OnProgress,
) -> Regularized:
    """Return the precision of greatest penalized likelihood.

    Parameters
    ----------
    S : (n, n) float64
    neighbors : list of (k_i,) intp
        The off-diagonal pattern by columns, symmetric.
    rho : float
        Above 0, in the units of S.
    tolerance : float
        Of the gap, for each point.
    max_iterations : int
        Rounds.
    on_progress
        Called with (rounds, max_iterations, "likelihood").

    """
    n = len(S)
    W = S.copy()
    W[np.diag_indices(n)] += rho
    betas = [np.zeros(len(pattern)) for pattern in neighbors]
    P, log_det, gap = W, np.nan, np.inf
    iteration = 0
    while gap > tolerance * n and iteration < max_iterations:
        on_progress(iteration, max_iterations, "likelihood")
        for i, pattern in enumerate(neighbors):
            beta = betas[i] = lasso(W[pattern[:, None], pattern], S[pattern, i], rho, betas[i])
            active = beta != 0
            column = W[:, pattern[active]] @ beta[active]
            column[i] = W[i, i]
            W[:, i] = W[i] = column
        iteration += 1
        if iteration % _GAP_EVERY == 0 or iteration == max_iterations:
            P = _precision(W, neighbors, betas)
            log_det, gap = _gap(S, P, W, rho)
    on_progress(max_iterations, max_iterations, "likelihood")
    return Regularized(P, W, log_det, gap, iteration, gap <= tolerance * n)


def lasso(
    A: NDArray[np.float64], s: NDArray[np.float64], rho: float, start: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the minimum of b^T A b / 2 - s^T b + rho |b|_1 for a positive definite A (k, k).

    The minimum on the active set with its signs is a linear solve. The first entry to change its sign on the way there
    becomes zero. If none does, the zero that violates its condition the most becomes active. The objective decreases in
    each step, so no set of signs repeats.
    """
    beta = start.copy()
    enough = rho + _EXACT * (rho + float(np.abs(s).max(initial=0.0)))
    while True:
        active = np.flatnonzero(beta)
        residual = s
        if len(active):
            before = beta[active]
            signs = np.sign(before)
            _, solution, _ = dposv(A[active[:, None], active], s[active] - rho * signs)
            crossing = solution * signs <= 0
            if crossing.any():
                reach = np.where(crossing, before / np.where(crossing, before - solution, 1.0), 2.0)
                first = int(reach.argmin())
                moved = before + reach[first] * (solution - before)
                moved[first] = 0.0
                beta[active] = moved
                continue
            beta[active] = solution
            residual = s - A[:, active] @ solution
        excess = np.where(beta == 0, np.abs(residual), 0.0)
        worst = int(excess.argmax()) if len(excess) else 0
        if not len(excess) or excess[worst] <= enough:
            return beta
        beta[worst] = np.sign(residual[worst]) * (excess[worst] - rho) / A[worst, worst]


def _precision(
    W: NDArray[np.float64], neighbors: list[NDArray[np.intp]], betas: list[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return P of the columns' coefficients: p_ii = 1 / (w_ii - w_12^T beta), p_12 = -p_ii beta; symmetrised."""
    P = np.zeros_like(W)
    for i, (pattern, beta) in enumerate(zip(neighbors, betas, strict=True)):
        P[i, i] = 1 / (W[i, i] - W[i, pattern] @ beta)
        P[pattern, i] = -P[i, i] * beta
    # A zero on either side stays zero.
    return np.asarray(np.where((P != 0) & (P.T != 0), (P + P.T) / 2, 0.0))


def _gap(S: NDArray[np.float64], P: NDArray[np.float64], W: NDArray[np.float64], rho: float) -> tuple[float, float]:
    """Return log |W| and the duality gap."""
    upper, failed = dpotrf(W)
    if failed:  # by rounding
        return np.nan, np.inf
    log_det = float(2 * np.log(np.diagonal(upper)).sum())
    factor, failed = dpotrf(P)
    if failed:
        return log_det, np.inf
    primal = 2 * np.log(np.diagonal(factor)).sum() - np.vdot(S, P) - rho * np.abs(P).sum()
    return log_det, float(-log_det - len(S) - primal)
