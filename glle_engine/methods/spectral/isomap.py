r"""Isomap: classical scaling of the lengths of shortest paths through neighbors.

Let D be the lengths of the shortest paths, :math:`D^{(2)}` their squares, :math:`J = I - 1 1^T / n`, and V and
:math:`\Lambda` the leading eigenpairs of :math:`B = -\frac12 J D^{(2)} J`. Then :math:`Y = V_p \Lambda_p^{1/2}`
(Tenenbaum, de Silva and Langford 2000). With m landmarks, only the rows of D for the landmarks are computed. The
landmarks are embedded by classical scaling, and point i is placed at
:math:`-\frac12 \Lambda^{-1/2} V^T (\delta_i - \bar\delta)`, where :math:`\delta_i` are the squared lengths of the
paths from point i to the landmarks, and :math:`\bar\delta` is the mean of :math:`\delta_i` over the landmarks (de
Silva and Tenenbaum 2004). With all points as landmarks, the result is Isomap.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse.csgraph import dijkstra

from glle_engine.base.errors import DegenerateDataError, InvalidParameterError
from glle_engine.base.progress import block_size, blocks, silent
from glle_engine.base.texts import Way
from glle_engine.eigen.eigenproblem import sign_convention
from glle_engine.eigen.leading import leading_eigenpairs
from glle_engine.graph.radius import symmetric_graph
from glle_engine.linalg.distances import power_of_two
from glle_engine.methods.base import Embedding, Method, note_bridges
from glle_engine.methods.maps import NeighborMap
from glle_engine.methods.parameters import NeighborSpec, RadiusSpec, integer
from glle_engine.metrics.ranks import unexplained_variance

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_array

    from glle_engine.base.progress import OnProgress
    from glle_engine.graph.radius import NeighborGraph
    from glle_engine.graph.relations import Data

_VANISHING = 1e-10


@dataclass(frozen=True, kw_only=True)
class IsomapSpec(RadiusSpec, NeighborSpec):
    """Parameters of Isomap."""

    landmarks: int | None = integer(
        None,
        "Number of landmarks, points far from each other: only paths from these to all points are computed. Null: all "
        "points are landmarks.",
        minimum=2,
        counts=True,
    )

    def require_possible(self, n: int, d: int) -> None:
        """Raise a `GlleError` for too few points, or for too few or too many landmarks."""
        super().require_possible(n, d)
        m, p = self.landmarks, self.n_components
        if m is not None and not p < m <= n:
            raise InvalidParameterError(
                f"{Way('landmarks', m)} is not between {p + 1} and {n}.",
                remedy=f"Give landmarks from {p + 1} to {n}, such as a few hundred for thousands of points; or leave "
                "landmarks out, so that all points are landmarks.",
                details={"landmarks": m, "least": p + 1, "most": n},
            )


def farthest_points(graph: csr_array, m: int, on_progress: OnProgress) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Choose m landmarks: first point 0, then always the point with the longest shortest path to its nearest landmark.

    Parameters
    ----------
    graph : (n, n) sparse
        Distances of neighbors; symmetric, connected.
    m : int
        Number of landmarks.

    Returns
    -------
    points : (m,) int
        The landmarks, in the order in which they were chosen.
    distances : (m, n) float64
        The lengths of the shortest paths from the landmarks to all points.

    """
    points = np.zeros(m, np.intp)
    distances = np.empty((m, graph.shape[0]))
    nearest = np.full(graph.shape[0], np.inf)
    for i in range(m):
        points[i] = 0 if i == 0 else np.argmax(nearest)
        distances[i] = dijkstra(graph, directed=False, indices=points[i])
        np.minimum(nearest, distances[i], out=nearest)
        nearest[points[: i + 1]] = -np.inf
        on_progress(i + 1, m, "shortest paths")
    return points, distances


def all_distances(graph: csr_array, on_progress: OnProgress) -> NDArray[np.float64]:
    """Return the lengths (n, n) of the shortest paths along the graph between all pairs of points."""
    n = graph.shape[0]
    distances = np.empty((n, n))
    for rows in blocks(n, block_size(n), "shortest paths", on_progress):
        distances[rows] = dijkstra(graph, directed=False, indices=np.arange(n)[rows])
    return distances


def _paths(
    neighbors: NeighborGraph, landmarks: int | None, on_progress: OnProgress
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return the landmarks (m,) and the lengths (m, n) of the shortest paths from the landmarks to all points.

    The argument `landmarks` is the number m; None makes all points landmarks.
    """
    graph = symmetric_graph(*neighbors)
    if landmarks:
        return farthest_points(graph, landmarks, on_progress)
    return np.arange(graph.shape[0]), all_distances(graph, on_progress)


class PathMap(NeighborMap):
    """Map that places a new point by the lengths of its shortest paths to the landmarks.

    The formula is that of de Silva and Tenenbaum 2004.
    """

    @cached_property
    def _lengths(self) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        return _paths(self.spec.graph(self.points, silent)[0], self.spec.landmarks, silent)

    def _among(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        landmarks, lengths = self._lengths
        nearest, distances, kept = self.spec.graph_to(self.points, points)
        if kept is not None:
            distances = np.where(kept, distances, np.inf)
        paths = np.full((len(points), len(landmarks)), np.inf)
        for neighbor, distance in zip(nearest.T, distances.T, strict=True):
            np.minimum(paths, distance[:, None] + lengths[:, neighbor].T, out=paths)
        centered = paths**2 - (lengths[:, landmarks] ** 2).mean(axis=0)
        return np.asarray(centered @ (self.embedding.Y[landmarks] / (-2 * self.embedding.eigenvalues)))


@Method(
    spec=IsomapSpec,
    title="Isomap",
    about="Classical scaling of the lengths of shortest paths through neighbors, from all points or from landmarks.",
    source="Tenenbaum, de Silva and Langford 2000, Science 290; de Silva and Tenenbaum 2004 (landmarks)",
    by_distances=True,
    sparse=True,
    neighbor_map=PathMap,
    doubles=lambda spec, n: 4 * n * n if not spec.landmarks else spec.landmarks * n,
    growth="n^2 log n; n log n a landmark",
)
def isomap(X: Data, spec: IsomapSpec, on_progress: OnProgress) -> Embedding:
    """Embed by classical scaling of the shortest paths between all points, or from landmarks to all points."""
    p = spec.n_components
    graph, bridges = spec.graph(X, on_progress)
    points, distances = _paths(graph, spec.landmarks, on_progress)
    unit = power_of_two(float(distances.max()))  # keeps fourth powers of distances in range
    distances /= unit
    among = distances[:, points] ** 2
    mean = among.mean(axis=0)
    B = (among - mean - among.mean(axis=1)[:, None] + mean.mean()) / -2
    B = (B + B.T) / 2  # the two directions of a path are summed in different orders
    values, vectors = leading_eigenpairs(B, p, on_progress)
    if values[-1] <= _VANISHING * values[0]:
        raise DegenerateDataError(
            f"The distances along the neighbor graph determine fewer than {p} dimensions: eigenvalue {p} is "
            f"{unit**2 * values[-1]:.1e}, which is negative, or 0 up to rounding.",
            remedy="Give fewer components or fewer neighbors.",
            details={"eigenvalues": (unit**2 * values).tolist()},
        )
    lost = float((B * B).sum() - (values**2).sum())
    root = np.sqrt(values)
    Y = ((distances**2).T - mean) @ vectors / (-2 * root) if spec.landmarks else vectors * root
    try:
        unexplained: float | None = unexplained_variance(lambda block: distances[block], points, Y)
    except DegenerateDataError:  # all distances are equal
        unexplained = None
    figures = {
        "residual_variance": unexplained,
        "reconstruction_error": unit**2 * float(np.sqrt(max(lost, 0.0))) / len(points),  # ||B - V Lambda V^T||_F / n
        "landmarks": len(points),
        "longest_path": unit * float(distances.max()),
    }
    return note_bridges(Embedding(unit * sign_convention(Y), unit**2 * values, figures), bridges)
