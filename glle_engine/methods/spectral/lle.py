r"""LLE: each point keeps the weights by which its neighbors reconstruct it.

The weights are :math:`w_i = A_i^{-1} 1 / (1^T A_i^{-1} 1)` with :math:`A_i = G_i + reg\,tr(G_i) I`. The embedding is
the p bottom eigenvectors of :math:`(I - W)^T (I - W)` other than the constant, with :math:`Y^T Y = n I` (Roweis and
Saul 2000). This matrix is never formed (`glle_engine.eigen.eigenproblem`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from glle_engine.base.parameters import choice, integer
from glle_engine.base.progress import silent
from glle_engine.base.spec import FitSpec
from glle_engine.eigen.eigenpairs import relative_gap
from glle_engine.eigen.eigenproblem import Eigenproblem, require_pairs, scale_embedding
from glle_engine.graph.connectivity import closed_classes, edges
from glle_engine.graph.radius import BRIDGE_INSTEAD
from glle_engine.methods.base import Embedding, Method, note_bridges
from glle_engine.methods.maps import NeighborMap
from glle_engine.methods.parameters import NeighborSpec, RadiusSpec, number
from glle_engine.metrics.neighbor_count import NeighborCount, best_neighbor_count, candidates_of
from glle_engine.posterior.placement import attach
from glle_engine.weights.lle import Ridge, lle_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.base.texts import Note
    from glle_engine.graph.relations import Data


@dataclass(frozen=True, kw_only=True)
class LleSpec(NeighborSpec):
    """Parameters of LLE."""

    reg: float = number(1e-3, "Ridge of the weights, relative to the trace of the local Gram matrix.", above=0)

    def require_possible(self, n: int, d: int) -> None:
        """Raise a `GlleError` for too few points, or for more components than the eigensolver can find."""
        super().require_possible(n, d)
        require_pairs(n, self.n_components)


@dataclass(frozen=True, kw_only=True)
class LleGraphSpec(RadiusSpec, LleSpec):
    """Parameters of LLE on nearest neighbors, or on neighbors within a radius."""

    n_neighbors: int = integer(  # "auto" is replaced by a number that suits the data
        10,
        "k, the number of neighbors of a point; auto tries seven values from 8 to 40 (times the root of n / 1,500 for "
        "more points), and takes the one whose embedding keeps the most neighbors of the data.",
        minimum=2,
        words=("auto",),
        counts=True,
    )
    ridge: Ridge = choice(
        "relative",
        "Whether reg is relative to the trace of the local Gram matrix, or absolute as in programs of other authors.",
        *get_args(Ridge),
    )

    def require_possible(self, n: int, d: int) -> None:
        """Raise a `GlleError` for too few points, or for more components than the eigensolver can find.

        If n_neighbors is "auto", the points need to be enough for two neighbors only.
        """
        if self.has_auto_neighbors:
            replace(self, n_neighbors=2).require_possible(n, d)
        else:
            super().require_possible(n, d)

    @property
    def has_auto_neighbors(self) -> bool:
        """Whether n_neighbors is "auto", so that the number of neighbors is chosen from the data."""
        return isinstance(self.n_neighbors, str)


def lle_of(
    X: Data,
    nearest: NDArray[np.int32],
    spec: LleSpec,
    on_progress: OnProgress,
    kept: NDArray[np.bool_] | None = None,
    ridge: Ridge = "relative",
) -> Embedding:
    """Embed X by LLE with the neighbors `nearest`, which may be found by any distance.

    Parameters
    ----------
    X : (n, d) float64
    nearest : (n, k) int32
        The neighbors of each point, in any order; the graph must be connected.
    kept : (n, k) bool, optional
        Mask of the neighbors to use, at least one for each point. Default: all.
    ridge : {"relative", "absolute"}
        Whether `spec.reg` is multiplied by the trace of each local Gram matrix.

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
    """Return LLE's embedding by the weights W: the bottom eigenvectors of (I - W)^T (I - W), scaled to Y^T Y = n I.

    Row i of `weights` (n, k) has the weights of point i on its `neighbors` (n, k), which ascend; each row sums to one.
    `kept` (n, k) is False for entries of `neighbors` that are not used and have weight 0; None means that all are used.
    """
    on_progress(0, 1, "embedding")
    classes = closed_classes(edges(neighbors, kept))
    _, pairs = Eigenproblem.prepare(neighbors, weights, classes, spec.n_components + 1)
    on_progress(1, 1, "embedding")
    p = spec.n_components
    figures = {"relative_gap": relative_gap(pairs.values, p)}
    return Embedding(scale_embedding(pairs.vectors[:, :p]), pairs.values[:p], figures)


def lle_neighbor_count(
    X: Data, spec: LleGraphSpec, candidates: list[int], on_progress: OnProgress, *, instead: str = BRIDGE_INSTEAD
) -> NeighborCount:
    """Find the number of neighbors, among `candidates`, whose LLE embedding keeps the most neighbors of the data.

    The search is `glle_engine.metrics.neighbor_count.best_neighbor_count`. If `spec.disconnected` is "error" and no
    candidate connects the graph, a `DisconnectedGraphError` with the remedy `instead` is raised.
    """

    def embed(points: Data, nearest: NDArray[np.int32]) -> NDArray[np.float64]:
        return lle_of(points, nearest, spec, silent, ridge=spec.ridge).Y

    bridged = spec.disconnected == "bridge"
    return best_neighbor_count(X, candidates, embed, on_progress, bridged=bridged, instead=instead)


class WeightMap(NeighborMap):
    """Map that places a new point by the LLE weights of its neighbors in the data.

    This is the method of Saul and Roweis 2003, section 6.1.
    """

    def _among(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        k = self.embedding.figures["n_neighbors"] if self.spec.has_auto_neighbors else self.spec.n_neighbors
        if self.spec.radius is not None or self.spec.ridge == "absolute":
            nearest, _, kept = replace(self.spec, n_neighbors=k).graph_to(self.points, points)
            weights = lle_weights(self.points, nearest, self.spec.reg, kept=kept, points=points, ridge=self.spec.ridge)
            return np.asarray(np.einsum("mk,mkp->mp", weights, self.embedding.Y[nearest]))
        spec = FitSpec(n_neighbors=k, reg=self.spec.reg)
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
    """Embed by LLE with the k nearest neighbors, or with all neighbors within the radius."""
    figures: dict[str, Any] = {}
    notes: tuple[Note, ...] = ()
    if spec.has_auto_neighbors:
        neighbor_count = lle_neighbor_count(X, spec, candidates_of(len(X)), on_progress)
        figures, notes = neighbor_count.figures, (*neighbor_count.notes(),)
        spec = replace(spec, n_neighbors=figures["n_neighbors"])
    graph, bridges = spec.graph(X, on_progress)
    embedding = lle_of(X, graph.nearest, spec, on_progress, graph.kept, spec.ridge)
    return note_bridges(embedding.extended(figures, notes), bridges)
