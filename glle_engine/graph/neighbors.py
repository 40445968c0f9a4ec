"""The k nearest neighbors of every point, exactly or approximately, and the diagnostics of the search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.diagnostics import Note
from glle_engine.base.progress import OnProgress, silent
from glle_engine.graph.hnsw import approximate_kneighbors, measured_recall, required_faiss
from glle_engine.graph.relations import Distances
from glle_engine.graph.search_cost import all_pairs_seconds, approximate_seconds
from glle_engine.graph.sparse import SparsePoints
from glle_engine.linalg.distances import nearest_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.spec import Search
    from glle_engine.graph.relations import Data

LOW_RECALL = 0.99
MINUTE = 60.0  # seconds of an exact search that leaves out no pair
FEW_FEATURES = 15  # in which few pairs are compared
# Measured: docs/explanation/neighbors.md.
EXPECTED_RECALL = ".99 or more of the neighbors, .93 of those of noise in 64 dimensions"


def kneighbors(
    X: Data, n_neighbors: int, on_progress: OnProgress = silent, search: Search = "exact"
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the k points nearest to each point in Euclidean distance, the point itself left out.

    The result of the exact search is the k smallest pairs (distance, index), for distances computed in one order of
    operations (`glle_engine.linalg.distances`), so that neighbors and distances are the same bits on every processor.
    The approximate search of coordinates is that of `glle_engine.graph.hnsw`.

    Parameters
    ----------
    X : (n, d) float64, Distances or SparsePoints
    n_neighbors : int
        k < n.
    on_progress
        Called with (points done, n, "neighbors").
    search : {"exact", "approximate"}

    Returns
    -------
    indices : (n, k) int32
        Nearest first; of equal distances the smaller index first.
    distances : (n, k) float64

    """
    if isinstance(X, Distances):
        return X.nearest(n_neighbors, on_progress)
    if isinstance(X, SparsePoints):
        return X.nearest(X, np.arange(len(X)), n_neighbors, on_progress)
    if search == "approximate":
        return approximate_kneighbors(X, n_neighbors, on_progress)
    return nearest_rows(X, X, np.arange(len(X)), n_neighbors, on_progress)


def kneighbors_of(
    X: NDArray[np.float64], points: NDArray[np.intp], n_neighbors: int, on_progress: OnProgress = silent
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the k nearest of all points to some of them (m,), as `kneighbors` does: two arrays (m, k)."""
    return nearest_rows(X, X[points], np.asarray(points), n_neighbors, on_progress)


def kneighbors_to(
    data: Data, points: Data, n_neighbors: int, on_progress: OnProgress = silent
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the k <= n rows of data (n, d) nearest to each of some other points (m, d), each point independently.

    The results (m, k) are those of `kneighbors`, but for identical rows of data, whose distance is exactly 0.
    `on_progress` is called with (points done, m, "neighbors").
    """
    if isinstance(data, Distances) or isinstance(points, Distances):
        assert isinstance(points, Distances)
        return points.nearest(n_neighbors, on_progress)
    if isinstance(data, SparsePoints) or isinstance(points, SparsePoints):
        assert isinstance(data, SparsePoints)
        assert isinstance(points, SparsePoints)
        return data.nearest(points, np.full(len(points), -1), n_neighbors, on_progress)
    return nearest_rows(data, points, np.full(len(points), -1), n_neighbors, on_progress)


def search_figures(
    search: Search, X: Data, distances: NDArray[np.float64], on_progress: OnProgress = silent
) -> dict[str, Any]:
    """Return the recall and the library of an approximate search; nothing for an exact one."""
    if search == "exact" or isinstance(X, Distances | SparsePoints):
        return {}
    recall, points = measured_recall(X, distances, on_progress)
    library = f"faiss {required_faiss().__version__}"
    return {"neighbor_recall": recall, "neighbor_recall_points": points, "neighbor_search": library}


def search_notes(figures: dict[str, Any]) -> list[Note]:
    """Return the notes on an approximate search, or on a large exact one."""
    n, d, recall = figures["n_points"], figures["n_features"], figures.get("neighbor_recall")
    if recall is None:
        most, walks = all_pairs_seconds(n, d), approximate_seconds(n, d)
        if d <= FEW_FEATURES or most <= MINUTE or walks >= most:
            return []
        return [
            Note(
                "large-exact-search",
                f"The exact search may compare all pairs of {n:,} points in {d:,} features, which takes up to "
                f"{most:,.0f} s on one core, and much less if the data have few dimensions. search='approximate' (pip "
                f"install 'glle[ann]') takes some {walks:,.0f} s, finds {EXPECTED_RECALL}, and measures the share.",
            )
        ]
    measured = f"recall {_share(recall)} (measured on {figures['neighbor_recall_points']} points)"
    if recall >= LOW_RECALL:
        return [Note("approximate-neighbors", f"Neighbors are approximate: {measured}.")]
    return [
        Note(
            "low-neighbor-recall",
            f"Neighbors are approximate, and too many were missed: {measured}. The graph and its embedding may "
            "differ from that of the nearest neighbors: use search='exact', or fewer dimensions (the data by their "
            "principal components), which are easier to search.",
        )
    ]


def _share(recall: float) -> str:
    """Format a share with three digits, rounded down, so that only 1 is 1.0."""
    return "1.0" if recall == 1 else f"{int(recall * 1000) / 1000:.3f}".lstrip("0")
