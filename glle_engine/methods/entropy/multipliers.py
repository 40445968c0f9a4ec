r"""The Lagrange multipliers of maximum entropy unfolding, by maximum likelihood.

With a multiplier :math:`\lambda_e` for each edge :math:`e = (i, j)`, :math:`b_e = e_i - e_j` and
:math:`P = \gamma I + \sum_e \lambda_e b_e b_e^T`, the objective is the convex

.. math:: F(\lambda) = -\log|P| + tr(S P), \qquad
          \partial F / \partial \lambda_e = s_e - r_e,

:math:`s_e = b_e^T S b_e` the observed squared distance per feature, :math:`r_e = b_e^T K b_e` the expected one,
:math:`K = P^{-1}` (Lawrence 2012, section 2.5.1, -2/d times this). The Hessian is :math:`(b_e^T K b_f)^2`. With
:math:`\lambda \ge 0` the steps are the projected Newton steps of Bertsekas (1982), by preconditioned conjugate
gradients, without the multipliers at 0 and those that the diagonal step takes to 0. At the optimum the expected squared
distance equals the observed one, or is smaller if the multiplier is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg.lapack import dpotrf
from scipy.sparse import csr_array

from glle_engine.methods.entropy.gaussian_field import edge_distances, inverse_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

_ARMIJO = 1e-4
_ROUNDING = 1e-13  # of F: relative rise of a step that is rounding
_HALVINGS = 40
_CG_STEPS = 200
_SMALL = 1e-3  # share of the largest multiplier below which one may vanish in a step
_SHRINK = 0.1
_DENSE = 0.1  # share of nonzero entries above which a dense product is faster


@dataclass(frozen=True, eq=False)
class Unfolding:
    """Likelihood as a function of the multipliers.

    Attributes
    ----------
    S : (n, n) float64
        Y Y^T / d of centered data.
    i, j : (m,) intp
        Edges.
    gamma : float
        In 1 / squared units of the data.
    positive : bool
        Whether multipliers are at least 0.

    """

    S: NDArray[np.float64]
    i: NDArray[np.intp]
    j: NDArray[np.intp]
    gamma: float
    positive: bool

    def squared_distances(self, K: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return k_ii + k_jj - 2 k_ij of the edges (m,)."""
        return edge_distances(K, self.i, self.j)

    def laplacian(self, multipliers: NDArray[np.float64]) -> csr_array:
        """Return the sum of lambda_e b_e b_e^T (n, n)."""
        i, j, n = self.i, self.j, len(self.S)
        ends = (np.concatenate([i, j, i, j]), np.concatenate([j, i, i, j]))
        return csr_array((np.concatenate([-multipliers] * 2 + [multipliers] * 2), ends), shape=(n, n))

    def objective(self, multipliers: NDArray[np.float64]) -> tuple[float, float, NDArray[np.float64]]:
        """Return F, log |P| and the upper Cholesky factor of P; F is infinite unless P is positive definite."""
        P = self.laplacian(multipliers).toarray()
        P[np.diag_indices(len(P))] += self.gamma
        factor, failed = dpotrf(P)
        if failed:
            return np.inf, np.nan, factor
        log_det = float(2 * np.log(np.diagonal(factor)).sum())
        return float(np.vdot(self.S, P)) - log_det, log_det, factor

    def gradient(self, K: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return observed minus expected squared distances (m,)."""
        return self.squared_distances(self.S) - self.squared_distances(K)


@dataclass(frozen=True, eq=False)
class Unfolded:
    """Multipliers of greatest likelihood.

    Attributes
    ----------
    multipliers : (m,) float64
    K : (n, n) float64
    log_det : float
        log |P|.
    trace : float
        tr(S P).
    violation : float
        Largest |observed - expected| squared distance that violates the optimality conditions, over the mean observed
        one.
    iterations : int
    converged : bool

    """

    multipliers: NDArray[np.float64]
    K: NDArray[np.float64]
    log_det: float
    trace: float
    violation: float
    iterations: int
    converged: bool


def unfold(problem: Unfolding, tolerance: float, max_iterations: int, on_progress: OnProgress) -> Unfolded:
    """Return the multipliers of greatest likelihood.

    The start is the optimum of a tree, whose expected distances are the observed ones.

    Parameters
    ----------
    problem : Unfolding
    tolerance : float
        Of `Unfolded.violation`.
    max_iterations : int
        Newton steps.
    on_progress
        Called with (steps, max_iterations, "likelihood").

    """
    observed = problem.squared_distances(problem.S)
    multipliers = (len(problem.S) - 1) / (len(observed) * observed)
    value, log_det, factor = problem.objective(multipliers)
    iteration, violation = 0, np.inf
    while True:
        on_progress(iteration, max_iterations, "likelihood")
        K = inverse_of(factor)
        slope = problem.gradient(K)
        if problem.positive:
            slope[(multipliers == 0) & (slope > 0)] = 0.0
        violation = float(np.abs(slope).max() / observed.mean())
        if violation <= tolerance or iteration == max_iterations:
            break
        step = _newton(problem, multipliers, K, slope, min(0.1, float(np.sqrt(violation))))
        descended = _descend(problem, multipliers, value, slope, step)
        if descended is None:
            break
        multipliers, (value, log_det, factor) = descended
        iteration += 1
    return Unfolded(multipliers, K, log_det, value + log_det, violation, iteration, violation <= tolerance)


def _newton(
    problem: Unfolding,
    multipliers: NDArray[np.float64],
    K: NDArray[np.float64],
    slope: NDArray[np.float64],
    tolerance: float,
) -> NDArray[np.float64]:
    """Return Newton's step of the free multipliers; those about to vanish go to 0."""
    curvature = problem.squared_distances(K) ** 2
    free = (multipliers != 0) | (slope != 0)
    step = np.zeros_like(slope)
    if problem.positive:
        vanishing = (multipliers > 0) & (multipliers * curvature <= slope)
        step[vanishing] = -multipliers[vanishing]
        free &= ~vanishing
    dense = len(slope) > _DENSE * K.size
    residual = -slope * free
    shaped = residual / curvature
    search, weight = shaped.copy(), float(residual @ shaped)
    enough = tolerance**2 * weight
    for _ in range(_CG_STEPS):
        L = problem.laplacian(search)
        image = problem.squared_distances(K @ ((L.toarray() if dense else L) @ K)) * free
        along = float(search @ image)
        if along <= 0:  # rounding, or no free multiplier
            break
        step += weight / along * search
        residual -= weight / along * image
        shaped = residual / curvature
        weight, before = float(residual @ shaped), weight
        if weight <= enough:
            break
        search = shaped + weight / before * search
    return step


def _descend(
    problem: Unfolding,
    multipliers: NDArray[np.float64],
    value: float,
    slope: NDArray[np.float64],
    step: NDArray[np.float64],
) -> tuple[NDArray[np.float64], tuple[float, float, NDArray[np.float64]]] | None:
    """Return the multipliers after the longest halved step that lowers F, and F there; None if no step does."""
    # Large ones shrink by at most a factor, because many at 0 at once would nearly cut the graph.
    floor = np.where(multipliers > _SMALL * multipliers.max(), _SHRINK * multipliers, 0.0)
    length = 1.0
    for _ in range(_HALVINGS):
        trial = multipliers + length * step
        if problem.positive:
            trial = np.maximum(trial, floor)
        objective = problem.objective(trial)
        if objective[0] <= value + _ARMIJO * float(slope @ (trial - multipliers)) + _ROUNDING * abs(value):
            return trial, objective
        length /= 2
    return None
