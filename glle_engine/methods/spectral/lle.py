r"""LLE and modified LLE: each point keeps the weights by which its neighbors reconstruct it.

Weights :math:`w_i = A_i^{-1} 1 / (1^T A_i^{-1} 1)` with :math:`A_i = G_i + reg\,tr(G_i) I`, then the p bottom
eigenvectors of :math:`(I - W)^T (I - W)` other than the constant, :math:`Y^T Y = n I` (Roweis and Saul 2000). That
matrix is never formed (`glle_engine.eigen.eigenproblem`).

Modified LLE: several weight vectors for each point, so that noise and the ridge do not bend the embedding.

With more neighbors than dimensions the reconstruction weights are not unique. With s_i nearly optimal, linearly
independent vectors :math:`w_i^{(1)}, ..., w_i^{(s_i)}` for each point, Y minimizes
:math:`\sum_i \sum_l |y_i - \sum_j w_{ij}^{(l)} y_j|^2` under :math:`Y^T Y = n I` (Zhang and Wang 2006). By
scikit-learn, with its result checked. M is dense up to 3,000 points; above, ARPACK inverts it, and the dense solver is
the fallback.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.errors import ConvergenceError
from glle_engine.base.results import Note
from glle_engine.base.spec import FitSpec
from glle_engine.eigen.eigenpairs import relative_gap
from glle_engine.eigen.eigenproblem import Eigenproblem, require_pairs, scale_embedding
from glle_engine.graph.connectivity import closed_classes, connected_neighbors, edges
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.maps import NeighborMap
from glle_engine.methods.parameters import NeighborSpec, number
from glle_engine.posterior.placement import attach
from glle_engine.weights.lle import lle_weights

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.graph.relations import Data
    from glle_engine.methods.costs import Cost

_DENSE_MOST = 3_000
_FALLBACK_MOST = 5_000
_ACCEPTED = 1e-6


@dataclass(frozen=True, kw_only=True)
class LleSpec(NeighborSpec):
    """Parameters of LLE."""

    reg: float = number(1e-3, "Ridge of the weights, relative to the trace of the local Gram matrix.", above=0)

    def require_possible(self, n: int, d: int) -> None:
        """Refuse too few points, and too many components."""
        super().require_possible(n, d)
        require_pairs(n, self.n_components)


def lle_of(
    X: Data,
    nearest: NDArray[np.int32],
    spec: LleSpec,
    on_progress: OnProgress,
    kept: NDArray[np.bool_] | None = None,
) -> Embedding:
    """Embed by given neighbors.

    Parameters
    ----------
    X : (n, d) float64
    nearest : (n, k) int32
        In any order, of a connected graph.
    kept : (n, k) bool, optional
        Mask of the neighbors to use, at least one of each point. Default: all.

    """
    ascending = np.argsort(nearest, axis=1)  # the result must not depend on distances that rounding may reorder
    neighbors = np.take_along_axis(nearest, ascending, axis=1)
    mask = None if kept is None else np.take_along_axis(kept, ascending, axis=1)
    return embedding_of(neighbors, lle_weights(X, neighbors, spec.reg, on_progress, mask), spec, on_progress, mask)


def embedding_of(
    neighbors: NDArray[np.int32],
    weights: NDArray[np.float64],
    spec: NeighborSpec,
    on_progress: OnProgress,
    kept: NDArray[np.bool_] | None = None,
) -> Embedding:
    """Embed by weights (n, k), rows of sum one, on neighbors (n, k), ascending in each row."""
    on_progress(0, 1, "embedding")
    graph = neighbors if kept is None else edges(neighbors, kept)
    _, pairs = Eigenproblem.prepare(neighbors, weights, closed_classes(graph), spec.n_components + 1)
    on_progress(1, 1, "embedding")
    p = spec.n_components
    figures = {"relative_gap": relative_gap(pairs.values, p)}
    return Embedding(scale_embedding(pairs.vectors[:, :p]), pairs.values[:p], figures)


class WeightMap(NeighborMap):
    """Placement by the weights of the nearest points of the data (Saul and Roweis 2003, section 6.1)."""

    def _among(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        spec = FitSpec(n_neighbors=self.spec.n_neighbors, reg=self.spec.reg)
        return attach(self.points, points, spec).extension().embed(np.asarray(self.embedding.Y))


@Method(
    spec=LleSpec,
    title="Locally linear embedding",
    about="Each point keeps the weights, summing to one, by which its k neighbors best reconstruct it.",
    source="Roweis and Saul 2000, Science 290; GLLE Eq. 9, 37-43",
    by_distances=True,
    sparse=True,
    neighbor_map=WeightMap,
    growth="n^1.2 for few features; n^2 to n^3 among many, by how many dimensions the data have",
    reproducible=True,
)
def lle(X: Data, spec: LleSpec, on_progress: OnProgress) -> Embedding:
    """Embed by the k nearest neighbors."""
    nearest, _ = connected_neighbors(X, spec.n_neighbors, on_progress)
    return lle_of(X, nearest, spec, on_progress)


class ModifiedLleSpec(NeighborSpec):
    """Parameters of modified LLE."""

    def require_possible(self, n: int, d: int) -> None:
        """Refuse too few points, and fewer neighbors or features than components."""
        super().require_possible(n, d)
        self.require_rank(n, d)
        self.require_neighbors("Modified LLE", self.n_components, f"at least {self.n_components}")

    def cost(self, row: str, n: int, d: int) -> Cost:
        """Return the expected cost."""
        return super().cost(row if n <= _DENSE_MOST else f"{row}, sparse", n, d)


@Method(
    spec=ModifiedLleSpec,
    title="Modified LLE",
    about="Each point keeps several independent sets of weights by which its neighbors reconstruct it, not one.",
    source="Zhang and Wang 2006, NIPS 19; scikit-learn",
    growth="n^3 up to 3,000 points; n and a large constant above",
    libraries=("sklearn",),
    extra="sklearn",
)
def modified_lle(X: NDArray[np.float64], spec: ModifiedLleSpec, on_progress: OnProgress) -> Embedding:
    """Embed by scikit-learn, with the first solver that gives orthonormal vectors orthogonal to the constant."""
    connected_neighbors(X, spec.n_neighbors, on_progress)
    n = len(X)
    solvers = ["dense"] if n <= _DENSE_MOST else ["arpack", *(["dense"] if n <= _FALLBACK_MOST else [])]
    on_progress(0, 1, "embedding")
    rejected: list[str] = []
    for solver in solvers:
        try:
            vectors, error = _solve(X, spec, solver)
        except (ValueError, np.linalg.LinAlgError) as failure:  # scikit-learn's errors of ARPACK
            rejected.append(f"{solver}: {str(failure).split('. ')[0]}")
            continue
        if reason := _refusal(vectors):
            rejected.append(f"{solver}: {reason}")
            continue
        figures = {"solver": solver, "reconstruction_error": float(max(error, 0.0)), "rejected": rejected}
        return Embedding(scale_embedding(vectors), None, figures, (*_notes(rejected),))
    raise ConvergenceError(
        f"No solver found the embedding: {'; '.join(rejected)}.",
        remedy="Raise n_neighbors and remove duplicates; data that are flat already are for PCA.",
        details={"tried": rejected},
    )


def _solve(X: NDArray[np.float64], spec: ModifiedLleSpec, solver: str) -> tuple[NDArray[np.float64], float]:
    from sklearn.manifold import locally_linear_embedding  # noqa: PLC0415 -- an extra, a second to import

    centered = X - X.mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):  # of duplicates; the result is checked
        vectors, error = locally_linear_embedding(
            centered / np.abs(centered).max(),
            n_neighbors=spec.n_neighbors,
            n_components=spec.n_components,
            method="modified",
            eigen_solver=solver,
            tol=0.0,
            max_iter=300,
            random_state=0,
        )
    return vectors, float(error)


def _refusal(vectors: NDArray[np.float64]) -> str | None:
    """Return the reason to reject these vectors, or None."""
    if not np.isfinite(vectors).all():
        return "not finite"
    n, p = vectors.shape
    if np.abs(vectors.T @ vectors - np.eye(p)).max() > _ACCEPTED:
        return "not orthonormal"
    constant = float(np.linalg.norm(vectors.sum(axis=0)) / np.sqrt(n))
    return f"the constant is in them ({constant:.1e})" if constant > _ACCEPTED else None


def _notes(rejected: list[str]) -> Iterator[Note]:
    if rejected:
        yield Note(
            "solver-fallback",
            f"ARPACK did not find the embedding ({rejected[0]}); the dense solver did, in time that grows as n^3. "
            "More neighbors make the problem easier.",
        )
