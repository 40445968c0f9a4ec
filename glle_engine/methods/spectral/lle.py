r"""LLE: each point keeps the weights by which its neighbors reconstruct it.

The weights are :math:`w_i = A_i^{-1} 1 / (1^T A_i^{-1} 1)` with :math:`A_i = G_i + reg\,tr(G_i) I`. The embedding is
the p bottom eigenvectors of :math:`(I - W)^T (I - W)` other than the constant, with :math:`Y^T Y = n I` (Roweis and
Saul 2000). This matrix is never formed (`glle_engine.eigen.eigenproblem`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import numpy as np

from glle_engine.base.parameters import choice
from glle_engine.base.spec import FitSpec
from glle_engine.eigen.eigenpairs import relative_gap
from glle_engine.eigen.eigenproblem import Eigenproblem, require_pairs, scale_embedding
from glle_engine.graph.connectivity import closed_classes, edges
from glle_engine.methods.base import Embedding, Method, note_bridges
from glle_engine.methods.maps import NeighborMap
from glle_engine.methods.parameters import NeighborSpec, RadiusSpec, number
from glle_engine.posterior.placement import attach
from glle_engine.weights.lle import Ridge, lle_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.graph.relations import Data


@dataclass(frozen=True, kw_only=True)
class LleSpec(NeighborSpec):
    """Parameters of LLE."""

    reg: float = number(1e-3, "Ridge of the weights, relative to the trace of the local Gram matrix.", above=0)

    def require_possible(self, n: int, d: int) -> None:
        """Refuse too few points, and too many components."""
        super().require_possible(n, d)
        require_pairs(n, self.n_components)


@dataclass(frozen=True, kw_only=True)
class LleGraphSpec(RadiusSpec, LleSpec):
    """Parameters of LLE on nearest neighbors, or on neighbors within a radius."""

    ridge: Ridge = choice(
        "relative",
        "Whether reg is relative to the trace, or absolute as in programs of other authors.",
        *get_args(Ridge),
    )


def lle_of(
    X: Data,
    nearest: NDArray[np.int32],
    spec: LleSpec,
    on_progress: OnProgress,
    kept: NDArray[np.bool_] | None = None,
    ridge: Ridge = "relative",
) -> Embedding:
    """Embed by given neighbors.

    Parameters
    ----------
    X : (n, d) float64
    nearest : (n, k) int32
        In any order; the graph must be connected.
    kept : (n, k) bool, optional
        Mask of the neighbors to use, at least one for each point. Default: all.
    ridge : {"relative", "absolute"}
        As for `lle_weights`.

    """
    ascending = np.argsort(nearest, axis=1)  # the result must not depend on distances that rounding may reorder
    neighbors = np.take_along_axis(nearest, ascending, axis=1)
    mask = None if kept is None else np.take_along_axis(kept, ascending, axis=1)
    weights = lle_weights(X, neighbors, spec.reg, on_progress, mask, ridge=ridge)
    return embedding_of(neighbors, weights, spec, on_progress, mask)


def embedding_of(
    neighbors: NDArray[np.int32],
    weights: NDArray[np.float64],
    spec: NeighborSpec,
    on_progress: OnProgress,
    kept: NDArray[np.bool_] | None = None,
) -> Embedding:
    """Embed by weights (n, k), whose rows sum to one, on neighbors (n, k), which ascend in each row."""
    on_progress(0, 1, "embedding")
    classes = closed_classes(edges(neighbors, kept))
    _, pairs = Eigenproblem.prepare(neighbors, weights, classes, spec.n_components + 1)
    on_progress(1, 1, "embedding")
    p = spec.n_components
    figures = {"relative_gap": relative_gap(pairs.values, p)}
    return Embedding(scale_embedding(pairs.vectors[:, :p]), pairs.values[:p], figures)


class WeightMap(NeighborMap):
    """Places a new point by its weights on the nearest points of the data (Saul and Roweis 2003, section 6.1)."""

    def _among(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.spec.radius is not None or self.spec.ridge == "absolute":
            nearest, _, kept = self.spec.graph_to(self.points, points)
            weights = lle_weights(self.points, nearest, self.spec.reg, kept=kept, points=points, ridge=self.spec.ridge)
            return np.asarray(np.einsum("mk,mkp->mp", weights, self.embedding.Y[nearest]))
        spec = FitSpec(n_neighbors=self.spec.n_neighbors, reg=self.spec.reg)
        return attach(self.points, points, spec).extension().embed(np.asarray(self.embedding.Y))


@Method(
    spec=LleGraphSpec,
    title="Locally linear embedding",
    about="Each point keeps the weights, summing to one, by which its k neighbors best reconstruct it.",
    source="Roweis and Saul 2000, Science 290; GLLE Eq. 9, 37-43",
    by_distances=True,
    sparse=True,
    neighbor_map=WeightMap,
    growth="n^1.2 for few features; up to n^3 for many",
    reproducible=True,
)
def lle(X: Data, spec: LleGraphSpec, on_progress: OnProgress) -> Embedding:
    """Embed by the k nearest neighbors, or by the neighbors within the radius."""
    graph, bridges = spec.graph(X, on_progress)
    return note_bridges(lle_of(X, graph.nearest, spec, on_progress, graph.kept, spec.ridge), bridges)
