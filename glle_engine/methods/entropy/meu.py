r"""Maximum entropy unfolding: the density of greatest entropy with the observed squared distances of neighbors.

This density is a Gaussian field over the points, :math:`P = K^{-1} = L + \gamma I`, where L is the Laplacian of the kNN
graph with a Lagrange multiplier for each edge. It is fitted by maximum likelihood, which makes the expected squared
distances of neighbors equal to the observed ones (Lawrence 2012, sections 2 and 2.5.1). The embedding is the principal
coordinates of K.

With multipliers of any sign, all pairs as neighbors and d >= n - 1, L can be any symmetric matrix with :math:`L 1 = 0`.
The centered K then becomes :math:`Y Y^T / d`, and the embedding is the embedding by PCA, divided by :math:`\sqrt d`.
With fewer features this likelihood is unbounded. Positive multipliers bound it, and the embedding then differs from
PCA.

The multipliers maximize the likelihood. There is a multiplier :math:`\lambda_e` for each edge :math:`e = (i, j)`. With
:math:`P = \gamma I + \sum_e \lambda_e b_e b_e^T`, where the vector :math:`b_e` (n,) is 1 at i, -1 at j and 0 elsewhere,
the objective is the convex function

.. math:: F(\lambda) = -\log|P| + tr(S P), \qquad
          \partial F / \partial \lambda_e = s_e - r_e,

with the observed squared distance per feature :math:`s_e = b_e^T S b_e`, and the expected squared distance
:math:`r_e = b_e^T K b_e`, :math:`K = P^{-1}`. Up to a constant, the log likelihood (Lawrence 2012, section 2.5.1) is
-d/2 times F. The Hessian is :math:`(b_e^T K b_f)^2`.

For :math:`\lambda \ge 0`, the steps are the projected Newton steps of Bertsekas (1982). Each step solves a Newton
system by preconditioned conjugate gradients. The system leaves out multipliers that are 0 and would not grow, which
stay 0, and multipliers that a step by the diagonal of the Hessian alone would take to 0 or below, which are set to 0.
At the optimum the expected squared distance of an edge equals the observed one; if the multiplier is 0, it may be
smaller.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg.lapack import dpotrf
from scipy.sparse import csr_array

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.texts import Note, Way
from glle_engine.linalg.dense import log
from glle_engine.linalg.distances import power_of_two
from glle_engine.methods.base import Embedding, Method, note_bridges
from glle_engine.methods.entropy.gaussian_field import (
    backtrack,
    edge_distances,
    inverse_of,
    log_likelihood,
    principal_coordinates,
    require_apart,
    second_moment,
    undirected_edges,
)
from glle_engine.methods.parameters import NeighborSpec, RadiusSpec, choice, integer, number, of_pairs, require_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

_CG_STEPS = 200
# A step has to lower the objective by some amount. It is also accepted if it misses this amount, or even raises the
# objective, by at most this share of the objective: rounding errors are as large.
_NEGLIGIBLE_GAIN = 1e-13
_SMALL_MULTIPLIER_SHARE = 1e-3  # multipliers below this share of the largest one may become 0 in one step
_SHRINK = 0.1  # a step leaves at least this share of each larger multiplier
_MAX_SPARSE_SHARE = 0.1  # with more edges than this share of n^2, products with a dense Laplacian are faster
MAX_MEU_POINTS = 2000


@dataclass(frozen=True, eq=False)
class Unfolding:
    """The likelihood of maximum entropy unfolding, as a function of the Lagrange multipliers of the edges.

    Attributes
    ----------
    S : (n, n) float64
        Y Y^T / d of the centered data Y (n, d).
    i, j : (m,) intp
        The two points of each of m edges.
    gamma : float
        The precision that holds the points at their mean, in 1 / squared units of the data.
    positive : bool
        Whether multipliers must be at least 0.

    """

    S: NDArray[np.float64]
    i: NDArray[np.intp]
    j: NDArray[np.intp]
    gamma: float
    positive: bool

    def squared_distances(self, K: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the squared distances k_ii + k_jj - 2 k_ij (m,) of the edges in the Gram matrix K (n, n)."""
        return edge_distances(K, self.i, self.j)

    def laplacian(self, multipliers: NDArray[np.float64]) -> csr_array:
        """Return the sparse graph Laplacian (n, n) whose edge weights are the multipliers (m,)."""
        i, j, n = self.i, self.j, len(self.S)
        ends = (np.concatenate([i, j, i, j]), np.concatenate([j, i, i, j]))
        return csr_array((np.concatenate([-multipliers] * 2 + [multipliers] * 2), ends), shape=(n, n))

    def objective(self, multipliers: NDArray[np.float64]) -> tuple[float, float, NDArray[np.float64]]:
        """Return the objective F, log |P|, and the upper Cholesky factor of P, for the multipliers (m,) of the edges.

        P (n, n) is the precision matrix of the points, the graph Laplacian with the multipliers as edge weights, plus
        gamma I. The objective F = tr(S P) - log |P|, with the second moment S of the data, is minus the log likelihood
        times 2 / d, up to a constant. F is infinite unless P is positive definite.
        """
        P = self.laplacian(multipliers).toarray()
        P[np.diag_indices(len(P))] += self.gamma
        factor, failed = dpotrf(P)
        if failed:
            return np.inf, np.nan, factor
        log_det = float(2 * np.log(np.diagonal(factor)).sum())
        return float(np.vdot(self.S, P)) - log_det, log_det, factor

    def gradient(self, K: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the gradient (m,) of `objective` with respect to the multipliers of the edges.

        For each edge, it is the squared distance observed in the data minus the squared distance that the model
        expects. K (n, n) is the covariance of the points in the model, the inverse of the precision matrix.
        """
        return self.squared_distances(self.S) - self.squared_distances(K)


@dataclass(frozen=True, eq=False)
class Unfolded:
    """The Gaussian field of greatest likelihood, with the Lagrange multipliers of the edges that determine it.

    Attributes
    ----------
    multipliers : (m,) float64
        For each edge, the Lagrange multiplier of the condition that the expected squared distance equals the observed
        one.
    K : (n, n) float64
        Covariance of the points, the inverse of the precision matrix P.
    log_det : float
        log |P|.
    trace : float
        tr(S P), with the second moment S of the data (`Unfolding.S`).
    violation : float
        Largest difference between observed and expected squared distances that violates the optimality conditions,
        relative to the mean observed squared distance.
    iterations : int
        Newton steps.
    converged : bool
        Whether the violation fell below the tolerance.

    """

    multipliers: NDArray[np.float64]
    K: NDArray[np.float64]
    log_det: float
    trace: float
    violation: float
    iterations: int
    converged: bool


def unfold(problem: Unfolding, tol: float, max_iter: int, on_progress: OnProgress) -> Unfolded:
    """Fit the Lagrange multipliers of the edges by maximum likelihood, with projected Newton steps.

    The steps start from the multipliers that would be optimal if the graph were a tree: with them, the expected squared
    distance of each edge of a tree equals the observed one.

    Parameters
    ----------
    problem : Unfolding
    tol : float
        Largest accepted `Unfolded.violation`.
    max_iter : int
        Largest number of Newton steps.
    on_progress
        Called with (steps, max_iter, "likelihood").

    """
    observed = problem.squared_distances(problem.S)
    multipliers = (len(problem.S) - 1) / (len(observed) * observed)
    value, log_det, factor = problem.objective(multipliers)
    iteration, violation = 0, np.inf
    while True:
        on_progress(iteration, max_iter, "likelihood")
        K = inverse_of(factor)
        slope = problem.gradient(K)
        if problem.positive:
            slope[(multipliers == 0) & (slope > 0)] = 0.0
        violation = float(np.abs(slope).max() / observed.mean())
        if violation <= tol or iteration == max_iter:
            break
        step = _newton(problem, multipliers, K, slope, min(0.1, float(np.sqrt(violation))))
        # A step leaves at least a tenth of a large multiplier: if many became 0 at once, the graph would nearly fall
        # apart.
        shrunk = np.where(multipliers > _SMALL_MULTIPLIER_SHARE * multipliers.max(), _SHRINK * multipliers, 0.0)
        lower = shrunk if problem.positive else -np.inf
        descended = backtrack(problem.objective, multipliers, value, slope, step, _NEGLIGIBLE_GAIN, lower)
        if descended is None:
            break
        multipliers, (value, log_det, factor) = descended
        iteration += 1
    return Unfolded(multipliers, K, log_det, value + log_det, violation, iteration, violation <= tol)


def _newton(
    problem: Unfolding,
    multipliers: NDArray[np.float64],
    K: NDArray[np.float64],
    slope: NDArray[np.float64],
    tol: float,
) -> NDArray[np.float64]:
    """Return the projected Newton step (m,) for the multipliers (m,) of the edges, by conjugate gradients.

    K (n, n) is the covariance of the points and `slope` (m,) the gradient at these multipliers. The iteration, which
    the diagonal of the Hessian preconditions, stops when the squared norm of the residual has fallen by a factor of
    `tol`^2.

    If the multipliers must not be negative, some are left out of the Newton system. A multiplier that would become 0 or
    negative in a step by the diagonal of the Hessian alone is moved exactly to 0. A multiplier that is 0 and has a
    slope of 0 stays 0.
    """
    curvature = problem.squared_distances(K) ** 2
    free = (multipliers != 0) | (slope != 0)
    step = np.zeros_like(slope)
    if problem.positive:
        vanishing = (multipliers > 0) & (multipliers * curvature <= slope)
        step[vanishing] = -multipliers[vanishing]
        free &= ~vanishing
    dense = len(slope) > _MAX_SPARSE_SHARE * K.size
    residual = -slope * free
    shaped = residual / curvature
    search, weight = shaped.copy(), float(residual @ shaped)
    enough = tol**2 * weight
    for _ in range(_CG_STEPS):
        L = problem.laplacian(search)
        image = problem.squared_distances(K @ ((L.toarray() if dense else L) @ K)) * free
        along = float(search @ image)
        if along <= 0:  # caused by rounding errors, or by the lack of a free multiplier
            break
        step += weight / along * search
        residual -= weight / along * image
        shaped = residual / curvature
        weight, before = float(residual @ shaped), weight
        if weight <= enough:
            break
        search = shaped + weight / before * search
    return step


@dataclass(frozen=True, kw_only=True)
class MeuSpec(RadiusSpec, NeighborSpec):
    """Parameters of maximum entropy unfolding."""

    n_neighbors: int | str = integer(  # type: ignore[assignment] # the base does not accept "all"
        10,
        "k, the number of neighbors of a point; all: every pair of points is an edge.",
        minimum=2,
        words=("all",),
        counts=True,
    )
    mean_precision: float = number(
        1e-5,
        "gamma, the precision that holds the points at their mean, times the mean variance of a feature; the centered "
        "embedding hardly depends on it. On the paper's motion capture data the default makes gamma 1e-4.",
        above=0,
    )
    multipliers: str = choice(
        "positive", "Whether neighbors may only attract (positive), or repel, too (any).", "positive", "any"
    )
    tol: float = number(
        1e-4, "Largest error of an expected squared distance, relative to the mean observed one.", above=0, below=1
    )
    max_iter: int = integer(100, "Largest number of Newton steps.", minimum=1)

    def require_possible(self, n: int, d: int) -> None:
        """Raise a `GlleError` for too few points, for more than 2,000, or if the likelihood is unbounded."""
        if self.n_neighbors == "all":
            replace(self, n_neighbors=max(2, n - 1)).require_possible(n, d)
            return
        super().require_possible(n, d)
        require_size(n, MAX_MEU_POINTS, "Maximum entropy unfolding", "alle")
        if self.multipliers == "any" and self.n_neighbors == n - 1 and d < n - 1:
            raise InvalidParameterError(
                f"With {Way('multipliers', 'any')} and all pairs as neighbors, the likelihood of {n} points "
                "is unbounded.",
                remedy=f"Use {Way('multipliers', 'positive')}, fewer neighbors, or at least {n - 1} features; or "
                "pca, to which such a fit tends.",
            )


@Method(
    spec=MeuSpec,
    title="Maximum entropy unfolding",
    about="The density of greatest entropy in which neighbors are as far apart, in expectation, as in the data: a "
    "Gaussian field over the points of precision L + gamma I. The embedding is the principal coordinates of its "
    "covariance.",
    source="Lawrence 2012, JMLR 13, sections 2 and 2.5.1 (arXiv 1010.4830)",
    doubles=of_pairs(4),
    growth="n^3",
    joins_equal=True,
)
def meu(X: NDArray[np.float64], spec: MeuSpec, on_progress: OnProgress) -> Embedding:
    """Embed by the leading principal coordinates of the covariance of the points, fitted by maximum likelihood."""
    n, d = X.shape
    graph, bridges = spec.graph(X, on_progress)
    i, j = undirected_edges(graph.nearest, graph.kept)
    unit = power_of_two(float(np.ptp(X, axis=0).max()))  # so that the results below do not depend on the unit
    S = second_moment(X / unit)
    gamma = spec.mean_precision * n / float(S.trace())
    problem = Unfolding(S, i, j, gamma, positive=spec.multipliers == "positive")
    require_apart(i, j, problem.squared_distances(S))
    field = unfold(problem, spec.tol, spec.max_iter, on_progress)
    on_progress(0, 1, "embedding")
    Y, values = principal_coordinates(field.K, spec.n_components)
    figures = {
        "log_likelihood": log_likelihood(field.log_det, field.trace, n, d) - n * d * log(unit),
        "iterations": field.iterations,
        "converged": field.converged,
        "violation": field.violation,
        "gamma": gamma / unit**2,
        "edges": len(i),
        "edges_without_multiplier": int((field.multipliers == 0).sum()),
    }
    remedy = (
        f"Raise {Way('max_iter')}."
        if problem.positive
        else f"Use {Way('multipliers', 'positive')}: with any sign the likelihood may have no bound."
    )
    note = Note(
        "not-converged",
        f"After {field.iterations} Newton steps, expected squared distances still differ from the observed ones by "
        f"{field.violation:.2g} of their mean. {remedy}",
    )
    notes = () if field.converged else (note,)
    return note_bridges(Embedding(unit * Y, unit**2 * values, figures, notes), bridges)
