r"""Variants of LLE that choose the neighbors by other distances than the Euclidean one.

Weighted LLE: the neighbors are chosen by distances relative to the density around both points.

.. math:: \delta_{ij} = \frac{|x_i - x_j|}{\left(M(i)\, M(j)\right)^{s / 2}}

where M(i) is the mean distance of :math:`x_i` to its k nearest neighbors. At s = 1 this is the length of an edge in
conformal Isomap (de Silva and Tenenbaum 2003). The distance only chooses the neighbors; the weights are LLE's. At s = 0
the result is LLE.

The weighted LLE of Pan, Ge and Al Mamun 2009 (survey arXiv 2011.10925, "weighted LLE for deformed distributed data")
has the same purpose but chooses neighbors by the cam weighted distance of Zhou and Chen 2006. That distance also
depends on the direction of :math:`x_j - x_i`, and is not symmetric.

Supervised LLE: distances between points of different classes are enlarged.

.. math:: \Delta' = \Delta + \alpha \max(\Delta)\, \Lambda

with the Euclidean distances :math:`\Delta`, and :math:`\Lambda_{ij} = 1` if the classes of i and j differ, 0 otherwise
(de Ridder, Kouropteva, Okun, Pietikainen and Duin 2003). :math:`\Delta'` chooses the neighbors; weights and embedding
are LLE's. At :math:`\alpha = 0` the result is LLE. At :math:`\alpha = 1` (1-SLLE) all neighbors of a point are in its
own class, and the graph falls into the c classes. The c - 1 bottom eigenvectors other than the constant are then
constant on each class, so that every class collapses to one point in c - 1 dimensions, as the paper states.

ISOLLE: LLE with the neighbors along the sheet.

Distances are lengths of shortest paths, :math:`d_G(i, j)`, in the graph of the g nearest neighbors. The neighbors of a
point are the k points with the shortest paths, and the rest is LLE (Varini, Degenhard and Nattkemper 2006; survey arXiv
2011.10925, "fusion with Isomap"). If g >= k, the graph contains the edges to the k nearest neighbors, and no path is
shorter than these, so that the result is LLE. If g < k, paths follow the sheet where the straight line would leave it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import numpy as np
from scipy.sparse.csgraph import dijkstra

from glle_engine.base.errors import DisconnectedGraphError, TooFewPointsError
from glle_engine.base.progress import block_size, blocks
from glle_engine.base.spec import Disconnected
from glle_engine.base.texts import Note, Way
from glle_engine.graph.connectivity import bridge, components, first_connecting
from glle_engine.graph.neighbors import kneighbors
from glle_engine.graph.radius import BRIDGE_INSTEAD, symmetric_graph
from glle_engine.linalg.distances import smallest_of_rows
from glle_engine.methods.base import Embedding, Method, note_bridges
from glle_engine.methods.parameters import GraphSpec, choice, integer, number
from glle_engine.methods.spectral.lle import LleSpec, lle_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress


def joined(
    X: NDArray[np.float64], nearest: NDArray[np.int32], spec: GraphSpec, cause: str, remedy: str
) -> tuple[NDArray[np.int32], list[tuple[int, int]]]:
    """Join the parts of a neighbor graph by the shortest edges between them, if `spec.disconnected` is "bridge".

    Returns the graph (n, k) and the list of the added edges. If the graph is connected, or if `spec.disconnected` is
    "collapse", the graph is returned as it is, with an empty list.

    Parameters
    ----------
    X : (n, d) float64
    nearest : (n, k) int32
        The neighbors of each point, nearest first, by whatever distance.
    spec : GraphSpec
    cause : str
        The beginning of the error message, which names the option that made the graph: "With class_distance=1".
    remedy : str
        The beginning of the error's remedy.

    Raises
    ------
    DisconnectedGraphError
        For a graph of several components, if `spec.disconnected` is "error".

    """
    sizes = np.sort(np.bincount(components(nearest)))[::-1]
    if len(sizes) > 1 and spec.disconnected == "bridge":
        nearest, _, bridges = bridge(X, nearest)
        return nearest, bridges
    if len(sizes) > 1 and spec.disconnected == "error":
        raise DisconnectedGraphError(
            f"{cause} the graph falls into {len(sizes)} components, the largest of {sizes[0]} points.",
            remedy=f"{remedy} {BRIDGE_INSTEAD}",
            details={"components": len(sizes), "sizes": [int(size) for size in sizes[:100]]},
        )
    return nearest, []


def nearest_by(
    X: NDArray[np.float64],
    k: int,
    adjust: Callable[[slice, NDArray[np.float64]], None],
    stage: str,
    on_progress: OnProgress,
) -> NDArray[np.int32]:
    """Return the k nearest other points of each point (n, k) by adjusted distances, nearest first.

    Parameters
    ----------
    X : (n, d) float64
    k : int
        Number of neighbors.
    adjust : callable
        Takes (rows, distances), a slice of the points and their Euclidean distances (b, n) to all points, and adjusts
        the distances in place.
    stage : str
        Name of the stage for `on_progress`.
    on_progress : callable

    """
    from scipy.spatial.distance import cdist  # noqa: PLC0415 -- slow to import; the API does not need it

    n = len(X)
    nearest = np.empty((n, k), np.int32)
    for rows in blocks(n, block_size(n), stage, on_progress):
        distances = cdist(X[rows], X)
        adjust(rows, distances)
        distances[np.arange(len(distances)), np.arange(n)[rows]] = np.inf
        nearest[rows] = smallest_of_rows(distances, k)
    return nearest


@dataclass(frozen=True, kw_only=True)
class WeightedLleSpec(GraphSpec, LleSpec):
    """Parameters of weighted LLE."""

    strength: float = number(
        1.0,
        "s, how much the distances are adjusted to the density: 0 leaves them as they are, 1 divides the distance of "
        "two points by the geometric mean of their mean distances to neighbors.",
        minimum=0,
        maximum=1,
    )


def relative_neighbors(
    X: NDArray[np.float64], k: int, strength: float, on_progress: OnProgress
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the neighbors (n, k) of each point for weighted LLE, nearest first, and the scale M (n,) of each point.

    Neighbors are nearest by the distance |x_i - x_j| / (M_i M_j)^(s / 2), where s is `strength` and M_i the mean
    Euclidean distance of point i to its k nearest points.
    """
    scale = kneighbors(X, k, on_progress)[1].mean(axis=1)
    positive = scale[scale > 0]
    # The scale of a point that equals k others is 0. It is replaced by the smallest positive scale, so that no distance
    # becomes infinite.
    factor = np.maximum(scale, positive.min() if len(positive) else 1.0) ** (-strength / 2)

    def adjust(_: slice, distances: NDArray[np.float64]) -> None:
        distances *= factor  # the factor of the point whose neighbors are sought would not change their order

    return nearest_by(X, k, adjust, "weighted neighbors", on_progress), scale


@Method(
    spec=WeightedLleSpec,
    title="Weighted LLE",
    about="LLE whose neighbors are nearest by |x_i - x_j| / sqrt(M(i) M(j)), M the mean distance to the k nearest.",
    source="edge lengths of conformal Isomap: de Silva and Tenenbaum 2003, NIPS 15",
    growth="n^2 d",
)
def weighted_lle(X: NDArray[np.float64], spec: WeightedLleSpec, on_progress: OnProgress) -> Embedding:
    """Embed by LLE with the neighbors that are nearest relative to the density around both points."""
    nearest, scale = relative_neighbors(X, spec.n_neighbors, spec.strength, on_progress)
    remedy = "Raise n_neighbors, or lower strength; 0 is plain LLE."
    nearest, bridges = joined(X, nearest, spec, f"With n_neighbors={spec.n_neighbors}", remedy)
    embedding = lle_of(X, nearest, spec, on_progress)
    low, high = np.quantile(scale, [0.05, 0.95])
    return note_bridges(embedding.extended({"scale_05": float(low), "scale_95": float(high)}), bridges)


@dataclass(frozen=True, kw_only=True)
class SupervisedLleSpec(GraphSpec, LleSpec):
    """Parameters of supervised LLE."""

    class_distance: float = number(
        0.01,
        "alpha, the distance that is added between points of different classes, in units of the diameter of the data: "
        "0 is LLE, 1 gives each point neighbors of its own class only.",
        minimum=0,
        maximum=1,
    )
    disconnected: str = choice(
        "bridge",
        "If the graph falls into components, such as the classes: join them by their shortest edges (bridge), with a "
        "note; raise an error; or collapse each component onto a point.",
        *get_args(Disconnected),
        "collapse",
    )


def supervised_neighbors(
    X: NDArray[np.float64], labels: NDArray[np.int64], k: int, alpha: float, on_progress: OnProgress
) -> tuple[NDArray[np.int32], float]:
    """Return the neighbors (n, k) of each point for supervised LLE, nearest first, and the diameter of the data.

    Neighbors are nearest by the Euclidean distance, plus `alpha` times the diameter if the two `labels` (n,) differ.
    The diameter is the largest Euclidean distance between two points of X.
    """
    from scipy.spatial.distance import cdist  # noqa: PLC0415 -- slow to import; the API does not need it

    diameter = 0.0
    for rows in blocks(len(X), block_size(len(X)), "diameter", on_progress):
        diameter = max(diameter, float(cdist(X[rows], X).max()))

    def adjust(rows: slice, distances: NDArray[np.float64]) -> None:
        distances += alpha * diameter * (labels[rows, None] != labels)

    return nearest_by(X, k, adjust, "supervised neighbors", on_progress), diameter


@Method(
    spec=SupervisedLleSpec,
    title="Supervised LLE",
    about="LLE whose neighbors are nearest by Delta + alpha max(Delta) where the classes differ, Delta elsewhere.",
    source="de Ridder, Kouropteva, Okun, Pietikainen and Duin 2003, ICANN; survey arXiv 2011.10925",
    growth="n^2 d",
    reproducible=True,
    labels=True,
)
def supervised_lle(
    X: NDArray[np.float64], spec: SupervisedLleSpec, on_progress: OnProgress, labels: NDArray[np.int64]
) -> Embedding:
    """Embed by LLE with the neighbors that are nearest by distances enlarged between points of different classes."""
    nearest, diameter = supervised_neighbors(X, labels, spec.n_neighbors, spec.class_distance, on_progress)
    remedy = f"Lower class_distance, raise n_neighbors, or collapse each component: {Way('disconnected', 'collapse')}."
    nearest, bridges = joined(X, nearest, spec, f"With class_distance={spec.class_distance:g}", remedy)
    count = int(components(nearest).max()) + 1
    embedding = lle_of(X, nearest, spec, on_progress)
    figures = {
        "components": count,
        "own_class": float((labels[nearest] == labels[:, None]).mean()),
        "diameter": diameter,
    }
    return note_bridges(embedding.extended(figures, _collapse_notes(count, spec.n_components)), bridges)


def _collapse_notes(count: int, p: int) -> Iterator[Note]:
    """Yield a note if the graph has `count` > 1 components, which collapse to points in the first count - 1 dimensions.

    `p` is the dimension of the embedding.
    """
    if count > 1:
        yield Note(
            "components-collapsed",
            f"The graph falls into {count} components. Each collapses to a point in the first {min(p, count - 1)} of "
            f"{p} dimensions, where distances inside it mean nothing. A smaller {Way('class_distance')} keeps the "
            "shape of the classes.",
        )


@dataclass(frozen=True, kw_only=True)
class IsolleSpec(GraphSpec, LleSpec):
    """Parameters of ISOLLE."""

    n_graph: int | str = integer(
        "auto",
        "g, the number of neighbors of a point in the graph along which distances are measured. auto takes the "
        "smallest number that connects the graph, at least p + 2 and at most k; with k or more the result is LLE's.",
        minimum=1,
        words=("auto",),
        counts=True,
    )

    def require_possible(self, n: int, d: int) -> None:
        """Raise a `GlleError` if n points are too few for `n_neighbors` or for `n_graph`."""
        super().require_possible(n, d)
        if isinstance(self.n_graph, int) and self.n_graph >= n:
            raise TooFewPointsError(
                f"{Way('n_graph', self.n_graph)} needs more than {n} points.",
                remedy=f"Give {Way('n_graph')} of at most {n - 1}, or more points.",
                details={"n_points": n, "n_graph": self.n_graph},
            )


def geodesic_neighbors(
    nearest: NDArray[np.int32], distances: NDArray[np.float64], k: int, on_progress: OnProgress
) -> NDArray[np.int32]:
    """Return the k points with the shortest paths to each point (n, k), nearest first.

    Parameters
    ----------
    nearest : (n, g) int32
        The neighbors of each point in a connected graph; paths may follow an edge in both directions.
    distances : (n, g) float64
        The lengths of the edges.
    k : int
        Number of points to find for each point, below n.

    """
    n = len(nearest)
    graph = symmetric_graph(nearest, distances)
    reach = 2.0 * distances[:, -1]  # largest length of a path, doubled until k points are reached
    reach[reach == 0] = max(float(reach.mean()), np.finfo(float).tiny)
    along = np.empty((n, k), np.int32)
    pending = np.argsort(reach, kind="stable")
    size, done = block_size(n), 0
    while len(pending):
        late = []
        for start in range(0, len(pending), size):
            points = pending[start : start + size]
            lengths = dijkstra(graph, indices=points, limit=float(reach[points].max()))
            lengths[np.arange(len(points)), points] = np.inf
            enough = np.isfinite(lengths).sum(axis=1) >= k
            along[points[enough]] = smallest_of_rows(lengths[enough], k)
            late.append(points[~enough])
            done += int(enough.sum())
            on_progress(done, n, "paths")
        pending = np.concatenate(late)
        reach[pending] *= 2
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
    """Embed by LLE with the neighbors that are nearest by shortest paths along the graph."""
    k, p = spec.n_neighbors, spec.n_components
    if isinstance(spec.n_graph, int):
        g = spec.n_graph
        (nearest, distances, _), bridges = spec.graph(X, on_progress, min(g, k))
    else:
        (nearest, distances, _), bridges = spec.graph(X, on_progress, k)
        g = k if bridges else first_connecting(nearest, min(k, p + 2))
    if g >= k:
        along = nearest
    else:
        along = geodesic_neighbors(nearest[:, :g], distances[:, :g], k, on_progress)
        # If a bridge is long, k other points may be nearer along the graph than its end. The end then replaces the last
        # of these neighbors, so that the bridge still joins two parts.
        for start, end in bridges:
            if end not in along[start]:
                along[start, -1] = end
    embedding = lle_of(X, along, spec, on_progress)
    pairs = len(X) * np.arange(len(X))[:, None]  # added to neighbor j of point i: a number i n + j of the pair
    kept = np.isin(kneighbors(X, k)[0] + pairs, along + pairs)
    figures = {"n_graph": g, "neighbors_replaced": float(1 - kept.mean())}
    return note_bridges(embedding.extended(figures), bridges)
