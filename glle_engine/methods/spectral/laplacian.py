r"""Laplacian eigenmaps: coordinates that vary least along the edges of the neighbor graph.

:math:`\min_Y \sum_{ij} W_{ij} |y_i - y_j|^2`, with :math:`W_{ij} = \exp(-|x_i - x_j|^2 / \epsilon)` (heat) or 1
(simple) if either is a neighbor of the other, :math:`L = D - W`, :math:`D = diag(W 1)`. Normalized,
:math:`L y = \lambda D y` and :math:`Y^T D Y = tr(D) I` (Belkin and Niyogi 2003, section 2); not
normalized, :math:`L y = \lambda y` and :math:`Y^T Y = n I`. The constant eigenvector is left out.

Other methods use the weighted graph and the bottom eigenpairs of this file. The Laplacian is sparse, symmetric and
positive semidefinite. A small Laplacian A is made dense, and its eigenvalue 0, of the null vector u, is replaced by the
norm of A: :math:`A + \|A\|\,u u^T`. A larger one is shifted slightly and factored once, and Lanczos on its inverse
starts orthogonal to u.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array, diags_array, identity
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh, splu

from glle_engine.base.errors import ConvergenceError, DisconnectedGraphError, InvalidParameterError
from glle_engine.base.texts import Note, Way
from glle_engine.eigen.eigenpairs import relative_gap, start_vector
from glle_engine.eigen.eigenproblem import sign_convention
from glle_engine.eigen.leading import eigenpairs_between
from glle_engine.graph.radius import symmetric_graph
from glle_engine.graph.relations import coordinates, symmetric
from glle_engine.graph.sparse import SparsePoints
from glle_engine.methods.base import Embedding, Method, note_bridges
from glle_engine.methods.parameters import NeighborSpec, RadiusSpec, boolean, choice, number, require_points

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.graph.relations import Data

DENSE_MOST = 300
MIN_WEIGHT_SHARE = 1e-10  # smaller edge weights, relative to the largest, are lost in rounding
# Relative to the norm of the matrix. The shift makes a singular matrix factorable, and is small enough that the bottom
# eigenvectors converge in about ten Lanczos steps.
_RELATIVE_SHIFT = 1e-9
_ACCEPTED_RESIDUAL = 1e-10
_REMEDY = f"Raise {Way('n_neighbors')} or the bandwidth: almost separate parts have eigenvalues that crowd at zero."


def heat_kernel(graph: csr_array, epsilon: float, *, is_given: bool) -> tuple[csr_array, tuple[Note, ...]]:
    r"""Return :math:`\exp(-|x_i - x_j|^2 / \epsilon)` on the edges of a graph of distances (n, n), and notes.

    Parts of the data that are far from each other have weights of almost 0 between them. If epsilon is a default, not
    the user's choice, all weights are then raised to at least 1e-10, with a note: this connects the parts, where a
    larger epsilon would blur all points.

    Parameters
    ----------
    graph : (n, n) sparse
        The distance of the two points of each edge; connected, symmetric.
    epsilon : float
        In squared units of the data.
    is_given : bool
        Whether the user chose epsilon.

    Raises
    ------
    InvalidParameterError
        If weights between parts of the graph are almost 0 with the user's epsilon. The remedy is the smallest epsilon
        that connects the parts.

    """
    weights = graph.copy()
    weights.data = np.exp(-(graph.data**2) / epsilon)
    count = int(connected_components(weights > MIN_WEIGHT_SHARE, directed=False)[0])
    if count == 1:
        return csr_array(weights), ()
    longest = float(minimum_spanning_tree(graph).data.max())
    enough = 1.001 * longest**2 / -np.log(MIN_WEIGHT_SHARE)
    shown = Way("epsilon", float(f"{epsilon:.3g}"))
    if is_given:
        raise InvalidParameterError(
            f"With {shown} the weights between {count} parts of the data are almost 0.",
            remedy=f"The smallest {Way('epsilon')} that connects them is {enough:.3g}. {Way('epsilon', 'auto')} takes "
            "the square of the usual distance of neighbors.",
            details={"epsilon": epsilon, "components": count, "smallest": enough},
        )
    weights.data = np.maximum(weights.data, MIN_WEIGHT_SHARE)
    message = (
        f"The data have {count} parts that are far from each other: with {shown}, the usual squared distance of "
        f"neighbors, the weights between them vanish and are set to {MIN_WEIGHT_SHARE:g}. Coordinates tell the parts "
        f"apart, but not how far apart they are. Give {Way('epsilon')} of at least {enough:.3g} to relate them, or "
        "embed each part alone."
    )
    return csr_array(weights), (Note("far-parts", message),)


def bottom_pairs(
    A: csr_array, null: NDArray[np.float64], count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], str]:
    """Return the smallest eigenvalues of A after the eigenvalue 0, their eigenvectors, and the name of the solver.

    The m = `count` eigenvalues (m,) ascend, and the eigenvectors (n, m) are orthonormal. The solver is "dense" (LAPACK)
    for few points, and "shift-invert" (a Lanczos method on the inverse) for more.

    Parameters
    ----------
    A : (n, n) sparse, symmetric, positive semidefinite
    null : (n,) float64
        The only null vector of A, of any length.
    count : int
        m, at most n - 2.

    Raises
    ------
    ConvergenceError
        If the Lanczos method fails, or leaves too large a residual.

    """
    u = null / np.linalg.norm(null)
    norm = float(abs(A).sum(axis=0).max())
    if len(u) <= max(DENSE_MOST, 3 * count):  # Lanczos is no faster for a third of all eigenpairs
        values, vectors = eigenpairs_between(A.toarray() + norm * np.outer(u, u), 0, count - 1)
        return values, vectors, "dense"
    try:
        values, vectors = _shift_inverted(A, u, norm, count)
    except (ArpackError, RuntimeError) as error:
        raise ConvergenceError(f"The eigensolver found no embedding: {error}.", remedy=_REMEDY) from error
    residual = float(np.linalg.norm(A @ vectors - vectors * values, axis=0).max()) / norm
    if not residual < _ACCEPTED_RESIDUAL:
        raise ConvergenceError(
            f"The eigensolver left a residual of {residual:.1e}, relative to the norm of the matrix.",
            remedy=_REMEDY,
            details={"residual": residual},
        )
    return values, vectors, "shift-invert"


def _shift_inverted(
    A: csr_array, u: NDArray[np.float64], norm: float, count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    n = len(u)
    shift = _RELATIVE_SHIFT * norm
    lu = splu(
        (A + shift * identity(n, format="csr")).tocsc(),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,  # a positive definite matrix needs no pivoting, which would undo the sparse ordering
        options={"SymmetricMode": True},
    )

    def inverse(vector: NDArray[np.float64]) -> NDArray[np.float64]:
        solved = lu.solve(vector - u * (u @ vector))
        return np.asarray(solved - u * (u @ solved))

    start = start_vector(n)
    operator = LinearOperator((n, n), matvec=inverse, dtype=np.float64)
    _, vectors = eigsh(operator, count, which="LA", v0=start - u * (u @ start), tol=0.0)
    values = np.einsum("nm,nm->m", vectors, A @ vectors)
    ascending = np.argsort(values)
    return values[ascending], vectors[:, ascending]


_GRAPH = ("n_neighbors", "radius", "disconnected", "standardize", "metric")


@dataclass(frozen=True, kw_only=True)
class LaplacianEigenmapsSpec(RadiusSpec, NeighborSpec):
    """Parameters of Laplacian eigenmaps."""

    weights: str = choice(
        "heat",
        "Weight of an edge: exp(-|x - y|^2 / epsilon) (heat), or 1 (simple); precomputed takes the symmetric n x n "
        "matrix of all weights, dense or sparse, as the data.",
        "heat",
        "simple",
        "precomputed",
    )
    epsilon: float | str = number(
        "auto",
        "Bandwidth of the heat kernel, in squared units of the data; auto: the median squared length of the edges.",
        above=0,
        words=("auto",),
    )
    normalized: bool = boolean(default=True, doc="Solve L y = lambda D y, rather than L y = lambda y.")

    def check_together(self) -> None:
        """Raise `InvalidParameterError` for options that `weights` makes meaningless.

        These are epsilon without a heat kernel, and options of the neighbor graph with precomputed weights.
        """
        super().check_together()
        unused = {"heat": (), "simple": ("epsilon",)}.get(self.weights, ("epsilon", *_GRAPH))
        self.refuse_unused("weights", *unused)

    def require_possible(self, n: int, d: int) -> None:
        """Raise `TooFewPointsError` if n points are too few for the components or the neighbors."""
        if self.weights == "precomputed":
            require_points(n, self.n_components + 3, f"n_components={self.n_components}")
        else:
            super().require_possible(n, d)


def given_weights(X: Data) -> csr_array:
    """Check that X (n, n) is a matrix of weights (weights="precomputed"), and return it as CSR without its diagonal.

    The diagonal has no effect, because it weights the difference of a point from itself.

    Raises
    ------
    InvalidParameterError
        If a weight is negative, or differs from the weight of the same two points in the other triangle; the message
        names such a weight.
    DisconnectedGraphError
        If the weights do not connect all points.

    """
    W = csr_array(symmetric(X.rows if isinstance(X, SparsePoints) else coordinates(X), "weight"))
    W.setdiag(0.0)
    W.eliminate_zeros()
    if W.nnz and W.data.min() < 0:
        row, column = (int(index[W.data.argmin()]) for index in W.tocoo().coords)
        raise InvalidParameterError(
            f"The weight X[{row}, {column}] = {W[row, column]:g} is negative.",
            remedy="Give weights of at least 0, such as exp(-d^2).",
        )
    count = int(connected_components(MIN_WEIGHT_SHARE * float(W.max()) < W, directed=False)[0])
    if count > 1:
        raise DisconnectedGraphError(
            f"The graph of the weights falls into {count} components.",
            remedy="Give positive weights between the components, or embed each as a separate data set.",
            details={"components": count},
        )
    return W


@Method(
    spec=LaplacianEigenmapsSpec,
    title="Laplacian eigenmaps",
    about="The smoothest functions on the graph of neighbors: bottom eigenvectors of its Laplacian L y = lambda D y.",
    source="Belkin and Niyogi 2003, Neural Computation 15",
    by_distances=True,
    sparse=True,
    growth="n^1.3 for few features; up to n^3 for many",
)
def laplacian_eigenmaps(X: Data, spec: LaplacianEigenmapsSpec, on_progress: OnProgress) -> Embedding:
    """Embed by the bottom eigenvectors of the Laplacian of the neighbor graph."""
    figures: dict[str, object] = {}
    notes: tuple[Note, ...] = ()
    bridges: list[tuple[int, int]] = []
    if spec.weights != "precomputed":
        neighbors, bridges = spec.graph(X, on_progress)
        graph = symmetric_graph(*neighbors)
    on_progress(0, 1, "embedding")
    if spec.weights == "precomputed":
        W = given_weights(X)
    elif spec.weights == "heat":
        squares = graph.data**2  # 0 between equal points
        epsilon = float(np.median(squares[squares > 0])) if isinstance(spec.epsilon, str) else spec.epsilon
        W, notes = heat_kernel(graph, epsilon, is_given=spec.epsilon != "auto")
        figures["epsilon"] = epsilon
    else:
        W = graph.copy()
        W.data = np.ones_like(W.data)
    degree = np.asarray(W.sum(axis=1)).ravel()
    scale = 1 / np.sqrt(degree) if spec.normalized else np.ones(len(X))
    half = diags_array(scale)
    A = csr_array(half @ (diags_array(degree) - W) @ half)
    p = spec.n_components
    values, vectors, solver = bottom_pairs(csr_array((A + A.T) / 2), 1 / scale, p + 1)
    size = float(np.sqrt(degree.sum() if spec.normalized else len(X)))
    figures |= {"solver": solver, "relative_gap": relative_gap(values, p)}
    Y = sign_convention(size * scale[:, None] * vectors[:, :p])
    return note_bridges(Embedding(Y, values[:p], figures, notes), bridges)
