r"""ISOLLE: locally linear embedding of the neighbors along the sheet.

Distances are lengths of shortest paths, :math:`d_G(i, j)`, in the graph of the g nearest. The neighbors of a point are
the k nearest by them, and the rest is LLE (Varini, Degenhard and Nattkemper 2006; survey arXiv 2011.10925, "fusion with
Isomap"). A graph with g >= k contains the edge to each of the k nearest, and no path is shorter, so the result is LLE.
With g < k paths follow the sheet where the straight line would leave it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse.csgraph import dijkstra

from glle_engine.base.errors import TooFewPointsError
from glle_engine.graph.connectivity import components, connected_neighbors, first_connecting, require_connected
from glle_engine.graph.neighbors import kneighbors
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.lle_variants.rewired import BLOCK_ENTRIES, smallest_of_rows
from glle_engine.methods.parameters import integer
from glle_engine.methods.spectral.laplacian import symmetric_graph
from glle_engine.methods.spectral.lle import LleSpec, lle_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress


@dataclass(frozen=True, kw_only=True)
class IsolleSpec(LleSpec):
    """Parameters of ISOLLE."""

    n_graph: int | str = integer(
        "auto",
        "g, the neighbors of a point in the graph along which distances are measured. auto takes as few as connect it,"
        " at least p + 2 and at most k; with k or more the result is LLE's.",
        least=1,
        words=("auto",),
    )

    def require_possible(self, n: int, d: int) -> None:
        """Refuse too few points for the neighbors or for the graph."""
        super().require_possible(n, d)
        if isinstance(self.n_graph, int) and self.n_graph >= n:
            raise TooFewPointsError(
                f"n_graph={self.n_graph} needs more than {n} points.",
                remedy=f"Give n_graph of at most {n - 1}, or more points.",
                details={"n_points": n, "n_graph": self.n_graph},
            )


def geodesic_neighbors(
    nearest: NDArray[np.int32], distances: NDArray[np.float64], k: int, on_progress: OnProgress
) -> NDArray[np.int32]:
    """Return the k nearest of each point by shortest paths (n, k), nearest first.

    Parameters
    ----------
    nearest : (n, g) int32
        A graph of one component, whose edges lead both ways.
    distances : (n, g) float64
        The lengths of its edges.
    k : int
        k < n.

    """
    n = len(nearest)
    graph = symmetric_graph(nearest, distances)
    reach = 2.0 * distances[:, -1]  # limit of the paths, doubled until k points are within it
    reach[reach == 0] = max(float(reach.mean()), np.finfo(float).tiny)
    along = np.empty((n, k), np.int32)
    pending = np.argsort(reach, kind="stable")
    size = max(1, BLOCK_ENTRIES // n)
    while len(pending):
        late = []
        for start in range(0, len(pending), size):
            points = pending[start : start + size]
            lengths = dijkstra(graph, indices=points, limit=float(reach[points].max()))
            lengths[np.arange(len(points)), points] = np.inf
            enough = np.isfinite(lengths).sum(axis=1) >= k
            along[points[enough]] = smallest_of_rows(lengths[enough], k)
            late.append(points[~enough])
            on_progress(min(n - 1, n - len(pending) + start), n, "paths")
        pending = np.concatenate(late)
        reach[pending] *= 2
    on_progress(n, n, "paths")
    return along


@Method(
    spec=IsolleSpec,
    title="ISOLLE",
    about="LLE whose neighbors are the k nearest by shortest paths in a sparser graph, not by straight lines.",
    source="Varini, Degenhard and Nattkemper 2006, Neurocomputing 69; survey arXiv 2011.10925",
    growth="n^2, with a small constant: n numbers are looked through for each point",
    reproducible=True,
)
def isolle(X: NDArray[np.float64], spec: IsolleSpec, on_progress: OnProgress) -> Embedding:
    """Embed by the neighbors along the graph."""
    k, p = spec.n_neighbors, spec.n_components
    if isinstance(spec.n_graph, int):
        g = spec.n_graph
        nearest, distances = kneighbors(X, g, on_progress)
        if g < k and components(nearest).max() > 0:
            require_connected(X, nearest)
    else:
        nearest, distances = connected_neighbors(X, k, on_progress)
        g = first_connecting(nearest, min(k, p + 2))
    if g >= k:
        require_connected(X, nearest[:, :k])
        along = nearest[:, :k]
    else:
        along = geodesic_neighbors(nearest[:, :g], distances[:, :g], k, on_progress)
    embedding = lle_of(X, along, spec, on_progress)
    figures = {**embedding.figures, "n_graph": g, "neighbors_replaced": _replaced_share(kneighbors(X, k)[0], along)}
    return Embedding(embedding.Y, embedding.eigenvalues, figures)


def _replaced_share(straight: NDArray[np.int32], along: NDArray[np.int32]) -> float:
    """Return the share of the nearest by straight lines that are not among the nearest along the graph."""
    n = len(straight)
    rows = np.arange(n)[:, None]
    return float(1 - np.isin(straight + n * rows, along + n * rows).mean())
