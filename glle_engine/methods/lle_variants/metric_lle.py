r"""LLE with the distances of the data: a small Gram matrix in a basis of functions that LLE's weights give.

LLE's embedding has :math:`Y^T Y = n I`, whatever the proportions of the data are. Here :math:`K = U S U^T` with an
orthonormal basis U (n, q) of few columns, and a positive semidefinite S (q, q) is chosen by the distances :math:`d_e`
of neighbors. With :math:`a_e = u_i - u_j` on the edge e = (i, j), its squared length in K is :math:`a_e^T S a_e`. The
embedding is the principal coordinates of K.

*Distance-preserving LLE*: U are the q bottom eigenvectors of LLE, and S minimizes
:math:`\sum_e (a_e^T S a_e - d_e^2)^2`. This is the second step of conformal eigenmaps (Sha and Saul 2005), which
preserves angles, with distances in place of angles.

*Landmark MVU*: U spans the functions that are determined by their values at m landmarks. All other points minimize
LLE's error :math:`\sum_i |x_i - \sum_j w_{ij} x_j|^2` given the landmarks. S maximizes the variance :math:`tr(K)`
under :math:`a_e^T S a_e \le d_e^2` (Weinberger, Packer and Saul 2005).

Distance-preserving LLE does not have to unfold the data: the folded data themselves keep all distances. The better the
basis can represent the coordinates of the data, the more the map is folded like them. The median Procrustes disparity
to the true coordinates, where 0 is best, is .0003 for five Swiss rolls of 1,000 points (landmark MVU .0051, Isomap
.0008, LLE .40), but .27 for S-curves of 500 points with noise of .05 (landmark MVU .0045, Isomap .0055, LLE .47).

Both are convex programs in the q (q + 1) / 2 entries s of S: minimize :math:`s^T H s / 2 - g^T s` subject to
:math:`C s \le b` and :math:`S \succeq 0`. Newton's method minimizes
:math:`(s^T H s / 2 - g^T s) / \mu - \log|S| - \sum \log(b - C s)` for decreasing :math:`\mu`. At its minimum the
objective is above the optimum by at most :math:`\mu` times the number of barriers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.sparse import csc_array, eye_array
from scipy.sparse.linalg import splu

from glle_engine.base.texts import Note, Way
from glle_engine.eigen.eigenproblem import require_pairs, sign_convention
from glle_engine.graph.connectivity import closed_classes, directed_graph
from glle_engine.graph.radius import symmetric_graph
from glle_engine.methods.base import Embedding, Method, note_bridges
from glle_engine.methods.entropy.gaussian_field import backtrack, require_apart, undirected_edges
from glle_engine.methods.parameters import GraphSpec, integer, number
from glle_engine.methods.spectral.isomap import farthest_points
from glle_engine.methods.spectral.lle import LleSpec, lle_of
from glle_engine.weights.lle import lle_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.graph.radius import NeighborGraph

_MAX_SQUARED_DECREMENT = 1e-6  # mu is lowered once the squared Newton decrement is below this
_MU_FACTOR = 0.1  # mu is multiplied by this factor when it is lowered


@dataclass(frozen=True, kw_only=True)
class MetricSpec(GraphSpec, LleSpec):
    """Parameters that distance-preserving LLE and landmark MVU share; both fit a map to the distances of neighbors."""

    tol: float = number(1e-6, "Largest duality gap, relative to the size of the objective.", above=0, below=1)
    max_iter: int = integer(1000, "Largest number of Newton steps.", minimum=1)


@dataclass(frozen=True, kw_only=True)
class DistanceLleSpec(MetricSpec):
    """Parameters of distance-preserving LLE."""

    n_basis: int = integer(
        10,
        "q, the number of LLE's eigenvectors that are combined; n_components of them if n_basis is smaller.",
        minimum=1,
        maximum=40,
    )

    def size(self, n: int) -> int:
        """Return q, the number of LLE's eigenvectors that are combined for n points: at most n - 1."""
        return min(max(self.n_basis, self.n_components), n - 1)

    def require_possible(self, n: int, d: int) -> None:
        """Raise a `GlleError` for too few points, or for too many components."""
        super().require_possible(n, d)
        require_pairs(n, self.size(n))


@dataclass(frozen=True, kw_only=True)
class LandmarkMvuSpec(MetricSpec):
    """Parameters of landmark MVU."""

    landmarks: int = integer(
        20,
        "m, the number of points, far from each other, that determine all others; n_components + 1 of them if "
        "landmarks is smaller.",
        minimum=2,
        counts=True,
    )

    def size(self, n: int) -> int:
        """Return m, the number of landmarks among n points: at most n."""
        return min(max(self.landmarks, self.n_components + 1), n)


class Program(NamedTuple):
    """A convex program: minimize s^T H s / 2 - g^T s subject to C s <= b and S positive semidefinite.

    s (r,) is the upper triangle of the symmetric matrix S (q, q), row by row, so that r = q (q + 1) / 2. H is (r, r),
    g (r,), and C (m, r) and b (m,) have a row for each of m constraints.
    """

    H: NDArray[np.float64]
    g: NDArray[np.float64]
    C: NDArray[np.float64]
    b: NDArray[np.float64]

    def value(self, s: NDArray[np.float64], mu: float) -> tuple[float]:
        """Return the objective of the barrier method at s, as a tuple of one entry for `backtrack`.

        It is the objective of the program divided by `mu`, plus the barrier, and infinite unless s is strictly within
        all constraints.
        """
        left = self.b - self.C @ s
        try:
            factor = np.linalg.cholesky(symmetric(s))
        except np.linalg.LinAlgError:
            return (np.inf,)
        if (left <= 0).any():
            return (np.inf,)
        barrier = 2 * np.log(np.diagonal(factor)).sum() + np.log(left).sum()
        return (float((s @ self.H @ s / 2 - self.g @ s) / mu - barrier),)

    def newton(self, s: NDArray[np.float64], mu: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the Newton step (r,) for s (r,), and the gradient (r,) of `value` at s, with the same `mu`."""
        inverse = np.linalg.inv(symmetric(s))
        r, c = np.triu_indices(len(inverse))
        count = np.where(r == c, 1.0, 2.0)  # an entry off the diagonal is in S twice
        rows = self.C / (self.b - self.C @ s)[:, None]
        gradient = (self.H @ s - self.g) / mu - inverse[r, c] * count + rows.sum(axis=0)
        curvature = inverse[np.ix_(r, r)] * inverse[np.ix_(c, c)] + inverse[np.ix_(r, c)] * inverse[np.ix_(c, r)]
        hessian = self.H / mu + curvature * np.outer(count, count) / 2 + rows.T @ rows
        scale = 1 / np.sqrt(np.diagonal(hessian))
        step = -scale * np.linalg.solve(hessian * np.outer(scale, scale), scale * gradient)
        return step, gradient


class Solution(NamedTuple):
    """The solution of a `Program`.

    Attributes
    ----------
    S : (q, q) float64
        The symmetric matrix that solves the program, positive semidefinite.
    gap : float
        Bound on how far the objective of the program is above its minimum, relative to its linear term g^T s, where s
        is the upper triangle of S.
    iterations : int
        Newton steps.
    converged : bool
        Whether the gap fell below the tolerance.

    """

    S: NDArray[np.float64]
    gap: float
    iterations: int
    converged: bool


def symmetric(s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the symmetric matrix (q, q) with the upper triangle s, row by row."""
    q = int(np.sqrt(2 * len(s)))
    r, c = np.triu_indices(q)
    S = np.empty((q, q))
    S[r, c] = S[c, r] = s
    return S


def squared_lengths(A: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the matrix (m, q (q + 1) / 2) that maps the upper triangle of S to a^T S a, for the rows a of A (m, q)."""
    r, c = np.triu_indices(A.shape[1])
    return np.asarray(A[:, r] * A[:, c] * np.where(r == c, 1, 2))


def solve(program: Program, s: NDArray[np.float64], tol: float, max_iter: int, on_progress: OnProgress) -> Solution:
    """Solve a convex program by the barrier method, and return its `Solution`.

    Parameters
    ----------
    program : Program
    s : (q (q + 1) / 2,) float64
        The start: the upper triangle of a matrix S, row by row. S must satisfy all constraints of the program strictly.
        The linear term of the program's objective, g^T s, must be positive: the first barrier parameter is a share of
        it.
    tol : float
        Largest accepted `Solution.gap`.
    max_iter : int
        Largest number of Newton steps.
    on_progress
        Called with (Newton steps, max_iter, "semidefinite program").

    """
    barriers, steps = len(symmetric(s)) + len(program.b), 0
    mu = float(program.g @ s) / barriers
    while True:
        while steps < max_iter:
            on_progress(steps, max_iter, "semidefinite program")
            step, gradient = program.newton(s, mu)
            if -float(gradient @ step) < _MAX_SQUARED_DECREMENT:
                break
            descended = backtrack(partial(program.value, mu=mu), s, *program.value(s, mu), gradient, step)
            if descended is None:
                break
            s, steps = descended[0], steps + 1
        gap = mu * barriers / float(program.g @ s)
        if gap <= tol or steps >= max_iter:
            return Solution(symmetric(s), gap, steps, gap <= tol)
        mu *= _MU_FACTOR


def _embed(
    X: NDArray[np.float64],
    graph: NeighborGraph,
    U: NDArray[np.float64],
    spec: MetricSpec,
    on_progress: OnProgress,
    *,
    unfolded: bool,
) -> Embedding:
    """Embed by a Gram matrix U S U^T, where U (n, q) is an orthonormal basis and S is fitted to neighbors' distances.

    With `unfolded`, S maximizes the variance of the embedding while no edge of the graph becomes longer than in the
    data. Without it, S minimizes the squared errors of the squared distances of neighbors.
    """
    i, j = undirected_edges(graph.nearest)
    squared = np.asarray(((X[i] - X[j]) ** 2).sum(axis=1))
    unit, m, q = float(squared.mean()), len(i), U.shape[1]
    lengths = squared_lengths(U[i] - U[j])
    identity = np.eye(q)[np.triu_indices(q)]
    if unfolded:
        require_apart(i, j, squared)
        rows = lengths * (unit / squared)[:, None]
        program = Program(np.zeros((len(identity), len(identity))), identity, rows, np.ones(m))
        start = 0.5 / float((rows @ identity).max())
    else:
        goal = squared / unit
        H, g = lengths.T @ lengths / m, lengths.T @ goal / m
        program = Program(H, g, np.empty((0, len(identity))), np.empty(0))
        start = float(g @ identity) / float(identity @ H @ identity)
    solution = solve(program, start * identity, spec.tol, spec.max_iter, on_progress)
    on_progress(0, 1, "embedding")
    values, vectors = np.linalg.eigh(unit * solution.S)
    values, vectors = values[::-1], vectors[:, ::-1]
    Y = sign_convention(U @ vectors * np.sqrt(values))[:, : spec.n_components]
    errors = unit * lengths @ solution.S[np.triu_indices(q)] - squared
    figures = {
        "trace": float(values.sum()),
        "kept": float(values[: spec.n_components].sum() / values.sum()),
        "mean_squared_distance_error": float(np.abs(errors).mean()) / unit,
        "duality_gap": solution.gap,
        "iterations": solution.iterations,
        "converged": solution.converged,
        "edges": m,
    }
    note = Note(
        "not-converged",
        f"The map may not be final: after {solution.iterations} steps its objective may be off by "
        f"{solution.gap:.2g} of its size (the duality gap). Raise {Way('max_iter')} or tol.",
    )
    return Embedding(Y, values[: spec.n_components], figures, () if solution.converged else (note,))


@Method(
    spec=DistanceLleSpec,
    title="Distance-preserving LLE",
    about="The linear combination of LLE's bottom eigenvectors that keeps the distances of neighbors best.",
    source="after Sha and Saul 2005, ICML (conformal eigenmaps), with distances in place of angles",
    growth="n k q^4 and q^6 a step, of q eigenvectors; and as LLE",
)
def distance_lle(X: NDArray[np.float64], spec: DistanceLleSpec, on_progress: OnProgress) -> Embedding:
    """Embed by the linear combinations of LLE's bottom eigenvectors that keep squared distances of neighbors best."""
    graph, bridges = spec.graph(X, on_progress)
    basis = lle_of(X, graph.nearest, replace(spec, n_components=spec.size(len(X))), on_progress)
    U = np.asarray(basis.Y) / np.sqrt(len(X))
    return note_bridges(_embed(X, graph, U, spec, on_progress, unfolded=False), bridges)


def landmark_basis(
    X: NDArray[np.float64], graph: NeighborGraph, m: int, reg: float, on_progress: OnProgress
) -> NDArray[np.float64]:
    """Return an orthonormal basis (n, q) of functions on the points that their values at the landmarks determine.

    The values of such a function at the landmarks are arbitrary, and its values at all other points minimize LLE's
    error. The landmarks are `m` points of X (n, d) far from each other, and one point of each closed class (a set of
    points that no edge leaves) that contains none of these. The functions are centered, so that q is the number of
    landmarks less one.
    """
    n = len(X)
    neighbors = np.sort(graph.nearest, axis=1)
    landmarks, _ = farthest_points(symmetric_graph(*graph), m, on_progress)
    missed = [members[0] for members in closed_classes(neighbors) if not np.isin(members, landmarks).any()]
    landmarks = np.concatenate([landmarks, np.array(missed, np.intp)])
    others = np.setdiff1d(np.arange(n), landmarks)
    weights = lle_weights(X, neighbors, reg, on_progress)
    residual = csc_array(eye_array(n) - directed_graph(neighbors, weights))
    among, toward = residual[:, others], residual[:, landmarks]
    Q = np.zeros((n, len(landmarks)))
    Q[landmarks] = np.eye(len(landmarks))
    if len(others):
        Q[others] = -splu(csc_array(among.T @ among)).solve((among.T @ toward).toarray())
    return np.linalg.svd(Q - Q.mean(axis=0), full_matrices=False)[0][:, :-1]


@Method(
    spec=LandmarkMvuSpec,
    title="Landmark MVU",
    about="Maximum variance unfolding of landmarks from which LLE's weights reconstruct all other points.",
    source="after Weinberger, Packer and Saul 2005, AISTATS",
    doubles=lambda spec, n: n * spec.n_neighbors * spec.size(n) * (spec.size(n) - 1) // 4,
    growth="n k m^4 a step, of m landmarks",
    joins_equal=True,
)
def landmark_mvu(X: NDArray[np.float64], spec: LandmarkMvuSpec, on_progress: OnProgress) -> Embedding:
    """Embed with the greatest variance at which no edge of the graph is longer than in the data.

    The positions of all points follow from the positions of a few landmarks, by LLE's weights.
    """
    graph, bridges = spec.graph(X, on_progress)
    U = landmark_basis(X, graph, spec.size(len(X)), spec.reg, on_progress)
    return note_bridges(_embed(X, graph, U, spec, on_progress, unfolded=True), bridges)
