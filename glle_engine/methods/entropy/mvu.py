r"""Maximum variance unfolding: neighbors keep their distances, and all other pairs move as far apart as possible.

Maximize tr(K) over positive semidefinite, centered K with :math:`k_{ii} - 2 k_{ij} + k_{jj} = |x_i - x_j|^2` on the
edges of the kNN graph (Weinberger, Sha and Saul 2004; Weinberger and Saul 2006). This is a semidefinite program, whose
dual is solved by the barrier method. The embedding is the principal coordinates of K.

Primal: maximize tr(K) over :math:`K \succeq 0`, :math:`K 1 = 0`, with :math:`b_e^T K b_e = d_e^2` on the edges,
:math:`b_e = e_i - e_j`. The dual has one multiplier for each edge, that is, m numbers in place of the n^2 / 2 of K:

.. math:: \min_w \; \sum_e d_e^2 w_e \quad \text{subject to} \quad
          P(w) = \sum_e w_e b_e b_e^T - (I - 2 \cdot 1 1^T / n) \succeq 0

(Sun, Boyd, Xiao and Diaconis 2006). Newton's method minimizes :math:`\sum_e d_e^2 w_e / \mu - \log|P(w)|` for
decreasing :math:`\mu`. This is the likelihood of maximum entropy unfolding with :math:`-1` in place of :math:`\gamma`.
Where the gradient is zero, :math:`K = \mu P^{-1}` has the required distances, and the difference of dual and primal
bounds the error of its trace.

The set of feasible K may have no interior, for example if five points of three features are neighbors of each other.
The dual then has no minimum. Therefore :math:`\varepsilon \sum_e (d_e^2 w_e)^2 / 2` is added to the dual, which
subtracts :math:`\sum_e \delta_e^2 / (2 \varepsilon)` from the trace, where :math:`\delta_e` is the relative error of a
squared distance. At the optimum :math:`\delta_e = \varepsilon d_e^2 w_e`. The mean size of these errors is the slack
that the caller chooses.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dpotrf

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.texts import Note, Way
from glle_engine.eigen.leading import eigenpairs_between
from glle_engine.methods.base import Embedding, Method, note_bridges
from glle_engine.methods.entropy.gaussian_field import (
    backtrack,
    edge_distances,
    inverse_of,
    principal_coordinates,
    require_apart,
    undirected_edges,
)
from glle_engine.methods.parameters import GraphSpec, NeighborSpec, integer, number, require_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

# A step has to lower the objective by some amount. It is also accepted if it misses this amount, or even raises the
# objective, by at most this share of the objective: rounding errors are as large.
_NEGLIGIBLE_GAIN = 1e-12
# The barrier method lowers its parameter mu as soon as Newton's method has nearly converged for the current mu: as soon
# as the squared Newton decrement is below this. The user accepts relative errors in the squared distances of neighbors
# (`slack` is their mean size). Stopping here adds at most about 3e-5 to such an error, the root of this value.
_CENTERED = 1e-9
_MU_FACTOR = 0.2  # mu is multiplied by this factor in each round
_HESSIAN_JITTER = 1e-13  # added to the unit diagonal of the scaled Hessian, so that rounding cannot make it indefinite
MAX_MVU_POINTS = 400
# Largest number of points times neighbors. The graph then has about 2,500 edges, and the dense Hessian has a row and a
# column for each edge.
MAX_LINKS = 4000


@dataclass(frozen=True, eq=False)
class Program:
    """The dual of the semidefinite program of maximum variance unfolding, with one multiplier w_e for each edge e.

    Attributes
    ----------
    n : int
        Number of points.
    i, j : (m,) intp
        The two points of each of the m edges of a connected graph.
    squared : (m,) float64
        The squared distances d_e^2 of the edges in the data, scaled to mean 1.

    """

    n: int
    i: NDArray[np.intp]
    j: NDArray[np.intp]
    squared: NDArray[np.float64]

    def matrix(self, w: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the matrix P(w) (n, n) that must be positive semidefinite, for the multipliers w (m,) of the edges.

        P(w) = sum_e w_e b_e b_e^T - (I - 2 1 1^T / n). For the edge e from i to j, b_e (n,) is 1 at i, -1 at j and 0
        elsewhere.
        """
        n, i, j = self.n, self.i, self.j
        P = np.full((n, n), 2.0 / n)
        P[i, j] -= w
        P[j, i] -= w
        P[np.diag_indices(n)] += np.bincount(i, w, n) + np.bincount(j, w, n) - 1
        return P

    def squared_distances(self, K: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the squared distances k_ii + k_jj - 2 k_ij (m,) of the edges in the Gram matrix K (n, n)."""
        return edge_distances(K, self.i, self.j)

    def value(self, w: NDArray[np.float64], mu: float, eps: float) -> tuple[float, NDArray[np.float64]]:
        """Return the objective of the barrier method at the multipliers w (m,), and the upper Cholesky factor of P(w).

        w has a multiplier for each edge, and P(w) (n, n) is the result of `matrix`. The objective is the objective of
        the dual divided by `mu`, plus the barrier -log |P(w)|; it is infinite unless P(w) is positive definite. `eps`
        weighs a penalty of large multipliers in the dual.
        """
        factor, failed = dpotrf(self.matrix(w))
        if failed:
            return np.inf, factor
        shares = self.squared * w
        linear = float(shares.sum() + eps / 2 * (shares @ shares)) / mu
        return linear - 2 * float(np.log(np.diagonal(factor)).sum()), factor

    def newton(
        self, w: NDArray[np.float64], factor: NDArray[np.float64], mu: float, eps: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return the Newton step (m,) for the multipliers w (m,), the gradient (m,), and the inverse of P(w) (n, n).

        The step and the gradient are those of the barrier method's objective at w: the objective of the dual divided by
        the barrier parameter `mu`, plus the barrier -log |P(w)|. P(w) (n, n) is the matrix that must stay positive
        definite, and `factor` (n, n) is its upper Cholesky factor. `eps` weighs a penalty of large multipliers.
        """
        inverse = inverse_of(factor)
        rows = inverse[self.i] - inverse[self.j]
        # Entry (e, f) is b_e^T P^-1 b_f, where b_e is 1 and -1 at the two ends of edge e. The Hessian of the barrier
        # has the squares of these entries.
        hessian = rows[:, self.i] - rows[:, self.j]
        gradient = self.squared * (1 + eps * self.squared * w) / mu - np.diagonal(hessian)
        hessian *= hessian
        diagonal = np.diag_indices(len(w))
        hessian[diagonal] += eps / mu * self.squared**2
        scale = 1 / np.sqrt(np.diagonal(hessian))
        hessian *= scale
        hessian *= scale[:, None]
        hessian[diagonal] += _HESSIAN_JITTER
        step = -scale * cho_solve(cho_factor(hessian, overwrite_a=True, check_finite=False), scale * gradient)
        return step, gradient, inverse

    def start(self) -> NDArray[np.float64]:
        """Return multipliers w (m,) of the edges with which the barrier method can start.

        With them, the matrix P(w) that `matrix` returns is positive definite.
        """
        w = 1 / self.squared
        laplacian = self.matrix(w) + np.eye(self.n) - 2.0 / self.n
        return np.asarray(2 * w / float(eigenpairs_between(laplacian, 1, 1)[0][0]))


@dataclass(frozen=True, eq=False)
class Unrolled:
    """The solution of the semidefinite program: the Gram matrix of greatest trace.

    Attributes
    ----------
    K : (n, n) float64
        Positive semidefinite, centered.
    gap : float
        Duality gap relative to the trace.
    iterations : int
        Newton steps.
    converged : bool
        Whether the gap fell below the tolerance.

    """

    K: NDArray[np.float64]
    gap: float
    iterations: int
    converged: bool


def unroll(program: Program, slack: float, tol: float, max_iter: int, on_progress: OnProgress) -> Unrolled:
    """Return the Gram matrix of greatest trace, by the barrier method on the dual of the semidefinite program.

    Parameters
    ----------
    program : Program
    slack : float
        Mean relative error that is accepted for the squared distances of neighbors.
    tol : float
        Largest accepted duality gap, relative to the trace.
    max_iter : int
        Largest number of Newton steps.
    on_progress
        Called with (Newton steps, max_iter, "semidefinite program").

    """
    w = program.start()
    mu = float(program.squared @ w) / program.n
    steps = 0
    while True:
        shares = program.squared * w
        eps = slack * len(w) / float(np.abs(shares).sum())
        value, factor = program.value(w, mu, eps)
        while True:
            on_progress(steps, max_iter, "semidefinite program")
            step, gradient, inverse = program.newton(w, factor, mu, eps)
            if -float(gradient @ step) < _CENTERED or steps >= max_iter:
                break
            descended = backtrack(partial(program.value, mu=mu, eps=eps), w, value, gradient, step, _NEGLIGIBLE_GAIN)
            if descended is None:
                break
            w, (value, factor) = descended
            steps += 1
        means = mu * inverse.mean(axis=0)
        K = mu * inverse - means - means[:, None] + means.mean()
        trace, shares = float(K.trace()), program.squared * w
        errors = program.squared_distances(K) / program.squared - 1
        dual, primal = shares.sum() + eps / 2 * (shares @ shares), trace - errors @ errors / (2 * eps)
        gap = float(dual - primal) / trace
        converged = gap <= tol
        # Stop if mu is far below tol: a smaller mu would be lost in rounding.
        if converged or steps >= max_iter or mu * program.n < tol * trace / 100:
            return Unrolled(K, gap, steps, converged)
        mu *= _MU_FACTOR


@dataclass(frozen=True, kw_only=True)
class MvuSpec(GraphSpec, NeighborSpec):
    """Parameters of maximum variance unfolding."""

    n_neighbors: int = integer(6, "k, the number of neighbors that keep their distances.", minimum=2, counts=True)
    slack: float = number(
        1e-3, "Mean relative error that squared distances of neighbors may have in the embedding.", above=0, below=1
    )
    tol: float = number(1e-3, "Largest duality gap, relative to the trace of K.", above=0, below=1)
    max_iter: int = integer(1000, "Largest number of Newton steps.", minimum=1)

    def require_possible(self, n: int, d: int) -> None:
        """Raise a `GlleError` for too few points, or for more points or edges than the method can solve for."""
        super().require_possible(n, d)
        require_size(n, MAX_MVU_POINTS, "Maximum variance unfolding", "meu, or isomap")
        if n * self.n_neighbors > MAX_LINKS:
            raise InvalidParameterError(
                f"{n} points with {self.n_neighbors} neighbors each are {n * self.n_neighbors:,} links; the method "
                f"can solve for {MAX_LINKS:,} at most.",
                remedy=f"Give {Way('n_neighbors')} of at most {MAX_LINKS // n}."
                if MAX_LINKS // n > 1
                else "Give fewer points.",
                details={"n_points": n, "n_neighbors": self.n_neighbors},
            )


@Method(
    spec=MvuSpec,
    title="Maximum variance unfolding",
    about="The points move as far apart as the distances between neighbors allow: the centered Gram matrix of greatest "
    "trace that keeps them, a semidefinite program; its principal coordinates.",
    source="Weinberger, Sha and Saul 2004; Weinberger and Saul 2006; dual: Sun, Boyd, Xiao and Diaconis 2006",
    growth="n^3 k^3",
    joins_equal=True,
)
def mvu(X: NDArray[np.float64], spec: MvuSpec, on_progress: OnProgress) -> Embedding:
    """Embed by the leading principal coordinates of the Gram matrix of greatest trace."""
    graph, bridges = spec.graph(X, on_progress)
    i, j = undirected_edges(graph.nearest)
    squared = np.asarray(((X[i] - X[j]) ** 2).sum(axis=1))
    require_apart(i, j, squared)
    unit = float(squared.mean())
    program = Program(len(X), i, j, squared / unit)
    on_progress(0, 1, "semidefinite program")
    unfolding = unroll(program, spec.slack, spec.tol, spec.max_iter, on_progress)
    on_progress(0, 1, "embedding")
    Y, values = principal_coordinates(unfolding.K * unit, spec.n_components)
    errors = program.squared_distances(unfolding.K) / program.squared - 1
    figures = {
        "trace": float(unfolding.K.trace()) * unit,
        "kept": float(values.sum()) / (float(unfolding.K.trace()) * unit),
        "mean_squared_distance_error": float(np.abs(errors).mean()),
        "duality_gap": unfolding.gap,
        "iterations": unfolding.iterations,
        "converged": unfolding.converged,
        "edges": len(i),
    }
    note = Note(
        "not-converged",
        f"The map may not be final: after {unfolding.iterations} steps its variance may be less than the maximum by a "
        f"share of {unfolding.gap:.2g} (the duality gap). Raise {Way('max_iter')} or slack, or take fewer neighbors.",
    )
    return note_bridges(Embedding(Y, values, figures, () if unfolding.converged else (note,)), bridges)
