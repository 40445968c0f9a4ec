r"""Pruned LLE: the kNN graph without its short circuits.

ORC-ManL (Saidi, Hickok and Blumberg 2025, *Recovering manifold structure using Ollivier-Ricci curvature*, Algorithm 1),
before LLE. Edges of curvature

.. math:: \kappa(i, j) \le -1 + 4 (1 - \delta)

are doubtful (`glle_engine.methods.lle_variants.curvature`). A doubtful edge is cut where the way round it, by edges that are not
doubtful, is longer than

.. math:: \frac{(1 - \lambda)\, \pi^2}{2 \sqrt{24 \lambda}}\, \epsilon_{ij},

:math:`\epsilon_{ij}` the larger distance of either end to its k-th neighbour: inside a sheet there is a short way round
every edge, whatever its curvature, and nothing is cut. An edge with no way round at all is not cut, either: it is no
short circuit but the only way, and so the graph stays whole. Edges that are saved are ways round for others, until no
more are saved; that short circuits do not save each other takes that all are doubtful. The rest is LLE, each point with
the neighbours it has left; a point that would have none keeps the nearest. Where nothing is cut the result is LLE's.

The paper's delta of .8 and lambda of .01 are for some 20 neighbours and thousands of points; .9 and .03 find more short
circuits with 8 to 16 neighbours and hundreds of points. Where two turns touch along many edges that lie side by side,
these share their neighbours, are not doubtful, and stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra

from glle_engine.base.diagnostics import Note
from glle_engine.base.progress import blocks
from glle_engine.graph.connectivity import closed_classes, connected_neighbors, edges
from glle_engine.methods.base import Cost, Embedding, Method
from glle_engine.methods.lle_variants.curvature import ollivier_ricci
from glle_engine.methods.parameters import number
from glle_engine.methods.spectral import lle
from glle_engine.methods.spectral.lle import LleSpec, lle_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

_BLOCK_ENTRIES = 1 << 21


@dataclass(frozen=True, kw_only=True)
class PrunedLleSpec(LleSpec):
    """The parameters of pruned LLE."""

    delta: float = number(
        0.9,
        "Which edges are doubtful: those of curvature at most -1 + 4 (1 - delta). The lower, the more.",
        above=0.25,
        below=1,
    )
    tolerance: float = number(
        0.03,
        "lambda: how short a way round saves a doubtful edge, (1 - lambda) pi^2 / (2 sqrt(24 lambda)) neighbourhoods, "
        "10 of them at .01, 5.6 at .03. The higher, the more edges are cut.",
        above=0,
        most=0.5,
    )


def short_circuits(
    nearest: NDArray[np.int32],
    distances: NDArray[np.float64],
    spec: PrunedLleSpec,
    on_progress: OnProgress,
) -> tuple[NDArray[np.bool_], int]:
    """Return which edges (n, k) are short circuits, the same seen from either end, and how many edges were doubtful.

    Parameters
    ----------
    nearest : (n, k) int32
        Nearest first.
    distances : (n, k) float64

    """
    n, k = nearest.shape
    start = np.repeat(np.arange(n, dtype=np.int32), k)
    ends = np.sort(np.stack([start, nearest.ravel()], axis=1), axis=1)
    pairs, first, where = np.unique(ends, axis=0, return_index=True, return_inverse=True)
    where = where.reshape(n, k)
    doubtful = ollivier_ricci(nearest, pairs, on_progress) <= -1 + 4 * (1 - spec.delta) + 1e-12
    # Duplicates are apart by the smallest normal number: an edge of length 0 would be none.
    length = np.maximum(distances.ravel()[first], np.finfo(float).tiny)
    least = (1 - spec.tolerance) * np.pi**2 / (2 * np.sqrt(24 * spec.tolerance))
    allowed = least * distances[pairs, -1].max(axis=1)
    cut = doubtful
    while cut.any():  # what is saved may be a way round for others
        saved = cut & ~_detoured(pairs, length, cut, allowed, on_progress)
        cut = cut & ~saved
        if not saved.any():
            break
    return cut[where], int(doubtful.sum())


def _detoured(
    pairs: NDArray[np.int32],
    length: NDArray[np.float64],
    cut: NDArray[np.bool_],
    allowed: NDArray[np.float64],
    on_progress: OnProgress,
) -> NDArray[np.bool_]:
    """Return which of the edges (m, 2) that are cut have a way round by the others, longer than allowed."""
    n = int(pairs.max()) + 1
    sure = pairs[~cut]
    graph = csr_array((length[~cut], (sure[:, 0], sure[:, 1])), shape=(n, n))
    graph = csr_array(graph + graph.T)
    part = connected_components(graph, directed=False)[1]
    candidates = np.flatnonzero(cut & (part[pairs[:, 0]] == part[pairs[:, 1]]))
    found = np.zeros(len(pairs), bool)
    for rows in blocks(len(candidates), max(1, _BLOCK_ENTRIES // n), "ways round", on_progress):
        own = candidates[rows]
        sources, place = np.unique(pairs[own, 0], return_inverse=True)
        around = dijkstra(graph, indices=sources, limit=float(allowed[own].max()))
        found[own] = around[place, pairs[own, 1]] > allowed[own]
    return found


def run(
    X: NDArray[np.float64], spec: PrunedLleSpec, on_progress: OnProgress, labels: NDArray[np.int64] | None = None
) -> Embedding:
    """Embed by the neighbours that are no short circuits."""
    nearest, distances = connected_neighbors(X, spec.n_neighbors, on_progress)
    cut, doubtful = short_circuits(nearest, distances, spec, on_progress)
    kept = ~cut
    alone = np.flatnonzero(~kept.any(axis=1))
    kept[alone, 0] = True
    found = lle_of(X, nearest, spec, on_progress, kept if cut.any() else None)
    few = int((kept.sum(axis=1) <= spec.n_components).sum())
    classes = len(closed_classes(edges(nearest, kept)))
    figures = {
        **found.figures,
        "doubtful_edges": doubtful,
        "edges_cut": int(cut.sum()),
        "points_with_few_neighbors": few,
        "closed_classes": classes,
    }
    return Embedding(found.Y, found.eigenvalues, figures, _notes(few, classes, spec.n_components))


def _notes(few: int, classes: int, p: int) -> tuple[Note, ...]:
    """Say what the cuts left of the neighbourhoods."""
    notes = []
    if few:
        told = (
            f"{few} points have at most {p} neighbours left, too few to span {p} dimensions: they lie between these, "
            "or on the nearest. Raise n_neighbors, or lower tolerance."
        )
        notes.append(Note("few-neighbors-left", told))
    if classes > 1:
        told = (
            f"{classes} groups of points have no neighbours outside; each lies on a point in the first dimensions. "
            "Raise n_neighbors, or lower tolerance."
        )
        notes.append(Note("closed-classes", told))
    return tuple(notes)


def cost(n: int, d: int, spec: PrunedLleSpec) -> Cost:
    """Return the cost of LLE, and of an assignment an edge."""
    k = spec.n_neighbors
    whole = lle.cost(n, d, spec)
    return Cost(
        seconds=whole.seconds + n * k * (8e-6 + 1.5e-7 * k * k),
        bytes=whole.bytes + 8.0 * (2 * n * k * k + 6 * max(_BLOCK_ENTRIES, n)),
    )


METHOD = Method(
    name="pruned-lle",
    title="Pruned LLE",
    family="extension of LLE",
    about="LLE on the kNN graph without short circuits: edges of low Ollivier-Ricci curvature with no short way round.",
    source="Saidi, Hickok and Blumberg 2025, arXiv 2410.01149, Algorithm 1",
    spec=PrunedLleSpec,
    run=run,
    refuse=lle.refuse,
    cost=cost,
    growth="n k^3, and n for each doubtful edge",
    reproducible=True,
)
