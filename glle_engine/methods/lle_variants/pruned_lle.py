r"""Pruned LLE: the kNN graph without its short circuits.

ORC-ManL (Saidi, Hickok and Blumberg 2025, *Recovering manifold structure using Ollivier-Ricci curvature*, Algorithm 1),
followed by LLE. The curvature of an edge (Ollivier 2009) is

.. math:: \kappa(i, j) = 1 - W_1(\mu_i, \mu_j)

with edges of length one. :math:`\mu_i` is uniform on the neighbors of i other than j, and :math:`W_1` is the least mean
number of edges by which one measure can be moved to the other. Inside a sheet, i and j share neighbors, and
:math:`\kappa` is near or above 0. Across a gap, every neighbor has to move back over the edge, that is, along three
edges, and :math:`\kappa = -2`. Both measures take the k - 1 nearest neighbors, so that :math:`W_1` is an assignment
problem.

Edges with :math:`\kappa(i, j) \le -1 + 4 (1 - \delta)` are doubtful. A doubtful edge is cut if the detour by edges
that are not doubtful is longer than

.. math:: \frac{(1 - \lambda)\, \pi^2}{2 \sqrt{24 \lambda}}\, \epsilon_{ij},

where :math:`\epsilon_{ij}` is the larger of the distances of i and j to their k-th neighbors. Inside a sheet every edge
has a short detour, and nothing is cut. An edge without any detour is kept, so that the graph stays connected.

The doubtful edges are decided in rounds. The edges that a round keeps are no longer doubtful, so that detours of the
next round can use them. If a round keeps no edge, the edges that are still doubtful are cut. Short circuits beside
each other therefore do not keep each other if all of them are doubtful: none can be part of a detour for another.

LLE uses the remaining neighbors of each point; a point that would have none keeps the nearest one. If nothing is cut,
the result is LLE.

The paper's delta of .8 and lambda of .01 suit about 20 neighbors and thousands of points; .9 and .03 find more short
circuits with 8 to 16 neighbors and hundreds of points. If two turns touch along many parallel edges, the ends of these
edges share neighbors. These edges are then not doubtful, and stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra

from glle_engine.base.progress import block_size, blocks
from glle_engine.base.texts import Note, Way
from glle_engine.graph.connectivity import closed_classes, directed_graph, edges
from glle_engine.methods.base import Embedding, Method, note_bridges
from glle_engine.methods.parameters import GraphSpec, number, of_neighborhoods
from glle_engine.methods.spectral.lle import LleSpec, lle_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress


@dataclass(frozen=True, kw_only=True)
class PrunedLleSpec(GraphSpec, LleSpec):
    """Parameters of pruned LLE."""

    curvature_delta: float = number(
        0.9,
        "delta: edges of curvature at most -1 + 4 (1 - delta) are doubtful. The lower delta is, the more edges are "
        "doubtful.",
        above=0.25,
        below=1,
    )
    detour_lambda: float = number(
        0.03,
        "lambda: a doubtful edge is kept if it has a detour of at most (1 - lambda) pi^2 / (2 sqrt(24 lambda)) "
        "neighborhoods, 10 of them at .01, 5.6 at .03. The higher lambda is, the more edges are cut.",
        above=0,
        maximum=0.5,
    )


def short_circuits(
    nearest: NDArray[np.int32],
    distances: NDArray[np.float64],
    spec: PrunedLleSpec,
    on_progress: OnProgress,
) -> tuple[NDArray[np.bool_], int]:
    """Find the short circuits of a kNN graph: edges of low Ollivier-Ricci curvature without a short detour.

    Returns the mask (n, k) of the short circuits, and the number of edges of low curvature, with or without a detour.
    If two points are neighbors of each other, the mask has the same value for both.

    Parameters
    ----------
    nearest : (n, k) int32
        The neighbors of each point, nearest first.
    distances : (n, k) float64
        The distances to them.

    """
    n, k = nearest.shape
    start = np.repeat(np.arange(n, dtype=np.int32), k)
    ends = np.sort(np.stack([start, nearest.ravel()], axis=1), axis=1)
    pairs, first, where = np.unique(ends, axis=0, return_index=True, return_inverse=True)
    where = where.reshape(n, k)
    doubtful = ollivier_ricci(nearest, pairs, on_progress) <= -1 + 4 * (1 - spec.curvature_delta) + 1e-12
    # A sparse matrix drops zeros, so the distance of equal points is replaced by the smallest normal number.
    length = np.maximum(distances.ravel()[first], np.finfo(float).tiny)
    ratio = (1 - spec.detour_lambda) * np.pi**2 / (2 * np.sqrt(24 * spec.detour_lambda))
    allowed = ratio * distances[pairs, -1].max(axis=1)
    cut = doubtful
    while cut.any():  # an edge that one round keeps may be part of detours in the next round
        saved = cut & ~_find_detours(pairs, length, cut, allowed, on_progress)
        cut = cut & ~saved
        if not saved.any():
            break
    return cut[where], int(doubtful.sum())


def _find_detours(
    pairs: NDArray[np.int32],
    length: NDArray[np.float64],
    cut: NDArray[np.bool_],
    allowed: NDArray[np.float64],
    on_progress: OnProgress,
) -> NDArray[np.bool_]:
    """Return the mask (m,) of the edges in `cut` whose shortest detour along edges outside `cut` is too long.

    The m edges are the `pairs` (m, 2), and `cut` (m,) is a mask of edges. `length` (m,) are the lengths of the edges,
    and `allowed` (m,) the largest lengths of a detour. An edge between points that no detour joins is not in the mask.
    """
    n = int(pairs.max()) + 1
    certain = pairs[~cut]
    graph = csr_array((length[~cut], (certain[:, 0], certain[:, 1])), shape=(n, n))
    graph = csr_array(graph + graph.T)
    component = connected_components(graph, directed=False)[1]
    candidates = np.flatnonzero(cut & (component[pairs[:, 0]] == component[pairs[:, 1]]))
    is_long = np.zeros(len(pairs), bool)
    for rows in blocks(len(candidates), block_size(n), "detours", on_progress):
        some = candidates[rows]
        sources, place = np.unique(pairs[some, 0], return_inverse=True)
        detours = dijkstra(graph, indices=sources, limit=float(allowed[some].max()))
        is_long[some] = detours[place, pairs[some, 1]] > allowed[some]
    return is_long


def ollivier_ricci(
    nearest: NDArray[np.int32], pairs: NDArray[np.int32], on_progress: OnProgress
) -> NDArray[np.float64]:
    """Return the Ollivier-Ricci curvature (m,) of edges, in [-2, 1].

    Parameters
    ----------
    nearest : (n, k) int32
        The neighbors of each point, nearest first; k of at least 2.
    pairs : (m, 2) int32
        Edges of the graph, in either direction.

    """
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 -- slow to import; the API does not need it

    n, k = nearest.shape
    step = directed_graph(nearest)
    one_edge = _keys(step + step.T)
    # The entries of the square of the graph count paths of two edges. The counts would overflow int8, the graph's type.
    walk = csr_array(step + step.T, dtype=np.int32)
    two_edges = _keys(walk @ walk)
    curvature = np.empty(len(pairs))
    for rows in blocks(len(pairs), block_size(2 * k**2), "curvature", on_progress):
        first = _others(nearest, pairs[rows, 0], pairs[rows, 1])
        second = _others(nearest, pairs[rows, 1], pairs[rows, 0])
        key = first[:, :, None].astype(np.int64) * n + second[:, None, :]
        apart = np.full(key.shape, 3, np.int8)
        apart[_contains(two_edges, key)] = 2
        apart[_contains(one_edge, key)] = 1
        apart[first[:, :, None] == second[:, None, :]] = 0
        for edge, table in enumerate(apart, start=rows.start):
            curvature[edge] = 1 - table[linear_sum_assignment(table)].mean()
    return curvature


def _keys(graph: csr_array) -> NDArray[np.int64]:
    """Return row * n + column of every stored entry of a sparse graph (n, n), in ascending order."""
    graph = csr_array(graph)
    rows = np.repeat(np.arange(graph.shape[0], dtype=np.int64), np.diff(graph.indptr))
    return np.sort(rows * graph.shape[0] + graph.indices)


def _contains(keys: NDArray[np.int64], queries: NDArray[np.int64]) -> NDArray[np.bool_]:
    place = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
    return np.asarray(keys[place] == queries)


def _others(nearest: NDArray[np.int32], points: NDArray[np.int32], excluded: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the k - 1 nearest neighbors (m, k - 1) of point `points[i]` other than `excluded[i]`, in row i."""
    rows = nearest[points]
    dropped = rows == excluded[:, None]
    dropped[~dropped.any(axis=1), -1] = True
    return np.asarray(rows[~dropped].reshape(len(rows), -1))


@Method(
    spec=PrunedLleSpec,
    title="Pruned LLE",
    about="LLE on the kNN graph without short circuits: edges of low Ollivier-Ricci curvature without a short detour.",
    source="Saidi, Hickok and Blumberg 2025, arXiv 2410.01149, Algorithm 1",
    doubles=of_neighborhoods(1),
    growth="n k^3, and n for each doubtful edge",
    reproducible=True,
)
def pruned_lle(X: NDArray[np.float64], spec: PrunedLleSpec, on_progress: OnProgress) -> Embedding:
    """Embed by LLE with the edges of the kNN graph that are not short circuits."""
    (nearest, distances, _), bridges = spec.graph(X, on_progress)
    cut, doubtful = short_circuits(nearest, distances, spec, on_progress)
    kept = ~cut
    isolated = np.flatnonzero(~kept.any(axis=1))
    kept[isolated, 0] = True
    embedding = lle_of(X, nearest, spec, on_progress, kept if cut.any() else None)
    few = int((kept.sum(axis=1) <= spec.n_components).sum())
    classes = len(closed_classes(edges(nearest, kept)))
    figures = {
        "doubtful_edges": doubtful,
        "edges_cut": int(cut.sum()),
        "points_with_few_neighbors": few,
        "closed_classes": classes,
    }
    return note_bridges(embedding.extended(figures, _notes(few, classes, spec.n_components)), bridges)


def _notes(few: int, classes: int, p: int) -> Iterator[Note]:
    """Yield a note if some points have too few neighbors left, and a note if the graph has several closed classes.

    `few` and `classes` are the numbers of such points and of closed classes, groups of points that no edge leaves.
    """
    if few:
        yield Note(
            "few-neighbors-left",
            f"{few} points have at most {p} neighbors left, too few to span {p} dimensions: they lie between "
            f"these, or on the nearest. Raise {Way('n_neighbors')}, or lower {Way('detour_lambda')}.",
        )
    if classes > 1:
        yield Note(
            "closed-classes",
            f"{classes} groups of points have no neighbors outside; each collapses to a point in the first "
            f"dimensions. Raise {Way('n_neighbors')}, or lower {Way('detour_lambda')}.",
        )
