r"""DRILL: dimensionality reduction through regularization of the inverse covariance in the log likelihood.

The Gaussian field over the points whose precision P maximizes

.. math:: \log|P| - tr(S P) - l_1 \sum_{ij} |p_{ij}|, \qquad S = Y Y^T / d,

with :math:`p_{ij} = 0` if neither point is a neighbor of the other. If all points are candidates, the penalty learns
the graph (Lawrence 2012, section 3). Unlike in maximum entropy unfolding, P is no Laplacian: its rows need not sum to
:math:`\gamma`, and its entries may have any sign. The embedding is the principal coordinates of :math:`K = P^{-1}`.
Every entry is penalized, including the diagonal, so that a maximum exists for any :math:`l_1 > 0`. As :math:`l_1` goes
to 0, this maximum approaches the maximum of the likelihood without a penalty, if there is one.

This is a graphical lasso on a given sparsity pattern. It is solved column by column, and the duality gap is reported.
With :math:`\rho = l_1` the dual is :math:`\max \log|W| + n` over W with :math:`w_{ii} = s_{ii} + \rho`,
:math:`|w_{ij} - s_{ij}| \le \rho` in the pattern, and any entries outside it. At the optimum :math:`W = P^{-1}`. The
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

from glle_engine.base.texts import Note, Way
from glle_engine.base.validation import require_enough_points
from glle_engine.graph.radius import symmetric_graph
from glle_engine.methods.base import Embedding, Method, note_bridges
from glle_engine.methods.entropy.gaussian_field import (
    log_likelihood,
    principal_coordinates,
    second_moment,
)
from glle_engine.methods.parameters import GraphSpec, NeighborSpec, integer, number, require_points, require_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

# In the lasso of a column, a coefficient may violate its optimality condition by this, relative to the penalty plus the
# largest entry of S in the column.
_LASSO_TOLERANCE = 1e-9
_ROUNDS_PER_GAP = 5  # the duality gap, which costs two Cholesky factors, is computed in every fifth round only
MAX_DRILL_POINTS = 1000
# Default of the L1 penalty, as a share of the mean variance of a feature. In the paper, a penalty of 0.01 is best for
# data of variance 0.1 and 20 neighbors, which is the same share.
RELATIVE_L1 = 0.1


@dataclass(frozen=True, eq=False)
class Regularized:
    """The precision matrix of greatest penalized likelihood, its inverse, and the accuracy of both.

    Attributes
    ----------
    P : (n, n) float64
        The precision matrix. It is 0 for pairs that are not neighbors, and at the entries that the penalty removes.
    K : (n, n) float64
        The matrix W of the dual problem, which is the inverse of P up to the error that `gap` bounds.
    log_det : float
        log |K|.
    gap : float
        Bound on how far the penalized likelihood log |P| - tr(S P) - rho |P|_1 is below its maximum, where S is the
        second moment of the data and rho the penalty; infinite unless P is positive definite.
    iterations : int
        Rounds over the columns.
    converged : bool
        Whether the gap fell below the tolerance.

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
    tol: float,
    max_iter: int,
    on_progress: OnProgress,
) -> Regularized:
    """Solve the graphical lasso: return the precision matrix of greatest penalized likelihood, and its inverse.

    Parameters
    ----------
    S : (n, n) float64
        The second moment of the data (`second_moment`).
    neighbors : list of (k_i,) intp
        For each column of the precision, the rows off the diagonal that may differ from 0. If j is in list i, i is in
        list j.
    rho : float
        The L1 penalty, above 0, in the units of S.
    tol : float
        Largest accepted duality gap per point.
    max_iter : int
        Largest number of rounds over the columns.
    on_progress
        Called with (rounds, max_iter, "likelihood").

    """
    n = len(S)
    W = S.copy()
    W[np.diag_indices(n)] += rho
    betas = [np.zeros(len(pattern)) for pattern in neighbors]
    P, log_det, gap = W, np.nan, np.inf
    iteration = 0
    while gap > tol * n and iteration < max_iter:
        on_progress(iteration, max_iter, "likelihood")
        for i, pattern in enumerate(neighbors):
            beta = betas[i] = lasso(W[pattern[:, None], pattern], S[pattern, i], rho, betas[i])
            active = beta != 0
            column = W[:, pattern[active]] @ beta[active]
            column[i] = W[i, i]
            W[:, i] = W[i] = column
        iteration += 1
        if iteration % _ROUNDS_PER_GAP == 0 or iteration == max_iter:
            P = _precision(W, neighbors, betas)
            log_det, gap = _gap(S, P, W, rho)
    on_progress(max_iter, max_iter, "likelihood")
    return Regularized(P, W, log_det, gap, iteration, gap <= tol * n)


def lasso(
    A: NDArray[np.float64], s: NDArray[np.float64], rho: float, start: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the b that minimizes b^T A b / 2 - s^T b + rho |b|_1, for a positive definite A (k, k).

    For a given active set of entries and their signs, the minimum is the solution of a linear system. If entries change
    their sign on the way to it, the first one to do so becomes zero. If none does, the zero entry that violates its
    optimality condition most becomes active. The objective decreases in each step, so that no set of signs repeats.
    """
    beta = start.copy()
    enough = rho + _LASSO_TOLERANCE * (rho + float(np.abs(s).max(initial=0.0)))
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
    """Return the precision matrix P (n, n), the inverse of the covariance W (n, n) that the graphical lasso estimates.

    P is computed from the lasso coefficients `betas` of the columns of W, without an inversion. With the coefficients
    beta of column i, and the entries w of this column at the `neighbors` of point i, column i of P has the entry
    p_ii = 1 / (w_ii - w^T beta) on the diagonal, and the entries -p_ii beta at the neighbors. P is then made symmetric.
    It equals the inverse of W only after the lasso has converged.
    """
    P = np.zeros_like(W)
    for i, (pattern, beta) in enumerate(zip(neighbors, betas, strict=True)):
        P[i, i] = 1 / (W[i, i] - W[i, pattern] @ beta)
        P[pattern, i] = -P[i, i] * beta
    # If an entry is zero on one side of the diagonal, it is made zero on both sides.
    return np.asarray(np.where((P != 0) & (P.T != 0), (P + P.T) / 2, 0.0))


def _gap(S: NDArray[np.float64], P: NDArray[np.float64], W: NDArray[np.float64], rho: float) -> tuple[float, float]:
    """Return log |W| and the duality gap of the graphical lasso with penalty rho.

    S is the second moment of the data, P the precision matrix, and W the matrix of the dual problem, which estimates
    the inverse of P. The gap is infinite if W or P is not positive definite, and log |W| is NaN if W is not positive
    definite.
    """
    upper, failed = dpotrf(W)
    if failed:  # rounding errors made the matrix indefinite
        return np.nan, np.inf
    log_det = float(2 * np.log(np.diagonal(upper)).sum())
    factor, failed = dpotrf(P)
    if failed:
        return log_det, np.inf
    primal = 2 * np.log(np.diagonal(factor)).sum() - np.vdot(S, P) - rho * np.abs(P).sum()
    return log_det, float(-log_det - len(S) - primal)


@dataclass(frozen=True, kw_only=True)
class DrillSpec(GraphSpec):
    """Parameters of DRILL."""

    n_neighbors: int | str = integer(
        20, "k, the number of neighbors that may be linked to a point; all: every pair of points may be linked.",
        minimum=2, words=("all",), counts=True,
    )  # fmt: skip
    l1: float | str = number(
        "auto",
        "L1 penalty of every entry of the precision, in squared units of the data; auto is a tenth of the mean "
        "variance of a feature.",
        above=0,
        words=("auto",),
    )
    tol: float = number(
        1e-4,
        "Largest duality gap per point and feature; half of the gap bounds the error of the log likelihood.",
        above=0,
    )
    max_iter: int = integer(300, "Largest number of rounds over the columns.", minimum=1)

    def require_possible(self, n: int, d: int) -> None:
        """Raise a `GlleError` for too few points, or for more than 1,000, which would take too long."""
        if isinstance(self.n_neighbors, str):
            require_points(n, self.n_components + 2, f"n_components={self.n_components}")
        else:
            require_enough_points(n, NeighborSpec(n_components=self.n_components, n_neighbors=self.n_neighbors))
        require_size(n, MAX_DRILL_POINTS, "DRILL", "meu, or alle")


@Method(
    spec=DrillSpec,
    title="DRILL",
    about="A Gaussian field over the points, whose precision maximizes the likelihood less an L1 penalty, with entries "
    "on the edges of the kNN graph or for all pairs. The embedding is the principal coordinates of its covariance.",
    source="Lawrence 2012, JMLR 13, section 3 (arXiv 1010.4830); Friedman, Hastie and Tibshirani 2008",
    growth="n with k neighbors, up to 1,000 points; n^3 with all pairs",
)
def drill(X: NDArray[np.float64], spec: DrillSpec, on_progress: OnProgress) -> Embedding:
    """Embed by the leading principal coordinates of the covariance of the points that the graphical lasso estimates."""
    n, d = X.shape
    S = second_moment(X)
    unit = float(S.trace()) / n
    l1 = RELATIVE_L1 * unit if isinstance(spec.l1, str) else spec.l1
    bridges: list[tuple[int, int]] = []
    if isinstance(spec.n_neighbors, str):
        index = np.arange(n)
        candidates = [index[index != i] for i in range(n)]
    else:
        graph, bridges = spec.graph(X, on_progress)
        linked = symmetric_graph(*graph)
        linked.sort_indices()
        candidates = np.split(linked.indices.astype(np.intp), linked.indptr[1:-1])
    field = regularize(S / unit, candidates, l1 / unit, spec.tol, spec.max_iter, on_progress)
    on_progress(0, 1, "embedding")
    Y, values = principal_coordinates(field.K * unit, spec.n_components)
    log_det = -field.log_det - n * float(np.log(unit))
    figures = {
        "log_likelihood": log_likelihood(log_det, float(np.vdot(S / unit, field.P)), n, d),
        "l1": l1,
        "iterations": field.iterations,
        "converged": field.converged,
        "duality_gap": field.gap if np.isfinite(field.gap) else None,
        "edges": int(np.count_nonzero(np.triu(field.P, 1))),
        "candidate_edges": sum(map(len, candidates)) // 2,
    }
    note = Note(
        "not-converged",
        f"After {field.iterations} rounds the duality gap is still above {spec.tol:g} per point. Raise "
        f"{Way('max_iter')}, or l1, because small penalties converge slowly.",
    )
    return note_bridges(Embedding(Y, values, figures, () if field.converged else (note,)), bridges)
