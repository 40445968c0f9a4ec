"""The k nearest neighbors of every point, exactly or approximately, and the diagnostics of the search.

The approximate search, search="approximate" (extra `ann`), uses a hierarchical navigable small world (Malkov and
Yashunin 2018). Such a graph links each point to about M points near it, on levels with ever fewer points. A search
walks along links to nearer and nearer points and keeps the `EF_SEARCH` nearest so far. It reads a small part of the
data: n searches cost about n log n, where exact ones cost n^2. A search does not know which neighbors it missed, so
`measured_recall` searches a sample exactly and reports the share that was found. One failure is visible: a walk that
ends far from its point has not met the point itself either. Such points are searched exactly.

faiss keeps the points in float32. They are first centered and scaled by a power of two, so that the search does not
change with a shift or a unit. It only gives candidates, whose distances are computed again in float64. Exact duplicates
enter the graph once, because many copies of a point would link only to each other, and walks would end among them.
Duplicates, and points whose walk finds a duplicate, are searched exactly, too.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.errors import MissingLibraryError, TooFewPointsError
from glle_engine.base.progress import OnProgress, blocks, silent
from glle_engine.base.texts import Note, Way
from glle_engine.graph.relations import Distances
from glle_engine.graph.sparse import SparsePoints
from glle_engine.linalg import dense
from glle_engine.linalg.distances import distances as distances_between
from glle_engine.linalg.distances import nearest_rows, ranks_of, unit_of
from glle_engine.linalg.threads import faiss_has_threads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from glle_engine.base.spec import Search
    from glle_engine.graph.relations import Data

LINKS_PER_POINT = 24  # M, the number of links of a point in the hierarchical navigable small world of faiss
EF_CONSTRUCTION = 200  # the nearest points that a walk keeps while links are made; more find better links, but slower
EF_SEARCH = 96  # the nearest points that a walk keeps in a search; more find more neighbors, but slower
RECALL_POINTS = 500  # the recall of the approximate search is estimated by an exact search for this many points
_SLACK = 4  # faiss, which computes in float32, is asked for this many more neighbors than are returned
_FLOAT32_ROUNDING = 2.0**-21  # eight times the rounding error of float32 in a difference of coordinates below 1
_BLOCK_POINTS = 2048  # progress is reported after this many points
# Seconds on one core of an AMD EPYC of 2024 with AVX-512, by least squares over 38 searches of 2 to 784 features. The
# numbers named FEATURE are added for each feature.
PAIR, PAIR_FEATURE = 3e-10, 1.5e-11  # for each pair of points of the exact search
_WALK, _WALK_FEATURE = 8e-5, 4e-7  # for each point of the approximate search by faiss
LOW_RECALL = 0.99  # below this share of true neighbors, a note warns
SUGGESTION_SECONDS = 60.0  # a note suggests the approximate search if the exact search of all pairs takes longer
MAX_TREE_FEATURES = 15  # with at most this many features, a tree compares only few pairs of points
# Measured in docs/explanation/neighbors.md.
EXPECTED_RECALL = ".99 or more of the neighbors, .93 for noise in 64 dimensions"


def kneighbors(
    X: Data, n_neighbors: int, on_progress: OnProgress = silent, search: Search = "exact"
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the k points nearest to each point in Euclidean distance, without the point itself.

    The exact search returns the k smallest pairs (distance, index). The distances are computed in one order of
    operations (`glle_engine.linalg.distances`), so that neighbors and distances have the same bits on every processor.
    Distances that agree to 34 bits count as equal. The index therefore decides a tie, not the rounding of the
    distances, which depends on the order of the features. The approximate search, for coordinates only, is
    `approximate_kneighbors`.

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
        Nearest first; among equal distances the smaller index first.
    distances : (n, k) float64
        Ascending, up to rounding.

    Raises
    ------
    TooFewPointsError
        Unless 1 <= k < n.

    """
    if not 1 <= n_neighbors < len(X):  # else compiled code would write beyond its arrays
        raise TooFewPointsError(
            f"{len(X)} points do not have {n_neighbors} neighbors each.",
            remedy=f"Use {Way('n_neighbors')} from 1 to {len(X) - 1}." if len(X) > 1 else "Give more points.",
            details={"n_points": len(X), "n_neighbors": n_neighbors},
        )
    if isinstance(X, Distances):
        return X.nearest(n_neighbors, on_progress)
    if isinstance(X, SparsePoints):
        return X.nearest(X, np.arange(len(X)), n_neighbors, on_progress)
    if search == "approximate":
        return approximate_kneighbors(X, n_neighbors, on_progress)
    return nearest_rows(X, X, np.arange(len(X)), n_neighbors, on_progress)


def kneighbors_to(data: Data, points: Data, n_neighbors: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the k <= n rows of `data` (n, d) that are nearest to each of some other `points` (m, d).

    The result is indices and distances, both (m, k), nearest first; of distances that agree to 34 bits, the smaller
    index comes first. The neighbors of a point do not depend on the other points of the call. A row of data that equals
    a point is a neighbor of this point, at distance 0.
    """
    if isinstance(points, Distances):
        return points.nearest(n_neighbors, silent)
    if isinstance(points, SparsePoints):
        assert isinstance(data, SparsePoints)
        return data.nearest(points, np.full(len(points), -1), n_neighbors)
    assert isinstance(data, np.ndarray)
    return nearest_rows(data, points, np.full(len(points), -1), n_neighbors)


def nearest_outside(
    X: NDArray[np.float64] | SparsePoints, points: NDArray[np.intp], groups: NDArray[np.intp]
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return, for each of the rows `points` (m,) of X (n, d), the nearest row that belongs to another group.

    The results are the indices (m,) and the distances (m,) of the nearest rows. `groups` (n,) has the group number of
    each row, and at least two different ones. Of rows whose distances agree to 34 bits, the first is taken.
    """
    if isinstance(X, SparsePoints):
        nearest, distances = X.nearest(X[points], groups[points], 1, groups=groups)
    else:
        nearest, distances = nearest_rows(X, X[points], groups[points], 1, groups=groups)
    return nearest[:, 0], distances[:, 0]


def intrinsic_dimension(distances: NDArray[np.float64]) -> float:
    r"""Estimate the intrinsic dimension of the data from the sorted distances T_1 <= ... <= T_k of neighbors, (n, k).

    :math:`1 / \hat m = \frac{1}{n (k - 1)} \sum_i \sum_{j<k} \log(T_k / T_j)` (Levina and Bickel 2004, Eq. 8, with the
    inverses averaged over points). Neighbors at distance 0 are left out. Returns 0 if no point has two
    different distances.
    """
    last = distances[:, -1:]
    inside = distances[:, :-1]
    counted = inside > 0
    total = dense.logs(np.where(counted, last / np.where(counted, inside, 1.0), 1.0)).sum()
    return float(counted.sum() / total) if total > 0 else 0.0


def search_figures(
    search: Search, X: Data, distances: NDArray[np.float64], on_progress: OnProgress = silent
) -> dict[str, Any]:
    """Measure the recall of an approximate search, and return a dictionary for the diagnostics of a fit.

    The dictionary has the recall, the number of points for which it was measured, and the library; it is empty after an
    exact search. `distances` (n, k) are the distances from the points of X to the neighbors that the search found.
    """
    if search == "exact" or isinstance(X, Distances | SparsePoints):
        return {}
    recall, points = measured_recall(X, distances, on_progress)
    library = f"faiss {required_faiss().__version__}"
    return {"neighbor_recall": recall, "neighbor_recall_points": points, "neighbor_search": library}


def search_notes(figures: dict[str, Any]) -> list[Note]:
    """Return a list with one note on the search for neighbors, or an empty list after a fast exact search.

    The note is on the recall of an approximate search, or on a slow exact search that could be approximate. `figures`
    are the numbers in the diagnostics of a fit.
    """
    n, d, recall = figures["n_points"], figures["n_features"], figures.get("neighbor_recall")
    if recall is None:
        exact, approximate = all_pairs_seconds(n, d), approximate_seconds(n, d)
        if d <= MAX_TREE_FEATURES or exact <= SUGGESTION_SECONDS or approximate >= exact:
            return []
        return [
            Note(
                "large-exact-search",
                f"The exact search may compare all pairs of {n:,} points in {d:,} features, which takes up to "
                f"{exact:,.0f} s on one core, and much less if the data have few dimensions. "
                f"{Way('search', 'approximate')} (pip install 'glle[ann]') takes some {approximate:,.0f} s, "
                f"finds {EXPECTED_RECALL}, and reports the share that it found.",
            )
        ]
    measured = f"recall {_share(recall)} (measured on {figures['neighbor_recall_points']} points)"
    if recall >= LOW_RECALL:
        return [Note("approximate-neighbors", f"Neighbors are approximate: {measured}.")]
    return [
        Note(
            "low-neighbor-recall",
            f"Neighbors are approximate, and too many were missed: {measured}. With the exact neighbors, the graph "
            f"and its embedding may differ. Use {Way('search', 'exact')}, or reduce the data to fewer principal "
            "components, in which fewer neighbors are missed.",
        )
    ]


def _share(recall: float) -> str:
    """Format a share with three decimals, rounded down, such as .998, so that only a share of exactly 1 becomes 1.0."""
    return "1.0" if recall == 1 else f"{int(recall * 1000) / 1000:.3f}".lstrip("0")


def required_faiss() -> Any:
    """Return faiss, or raise `MissingLibraryError`."""
    try:
        import faiss  # noqa: PLC0415 # optional, and its import takes a third of a second
    except ImportError as error:
        raise MissingLibraryError(
            f"{Way('search', 'approximate')} needs faiss, which is not installed.",
            remedy="Install it with pip install 'glle[ann]' (for the service: on the workers), or use "
            f"{Way('search', 'exact')}.",
            details={"library": "faiss", "extra": "ann"},
        ) from error
    return faiss


def approximate_kneighbors(
    X: NDArray[np.float64], n_neighbors: int, on_progress: OnProgress = silent
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return k neighbors of each point, nearly all of which are the nearest, by a graph search of faiss.

    faiss links each point to points near it, and a search walks along these links. On one machine, the same data give
    the same result with any number of threads, because a single thread makes the links. On another machine a few
    neighbors may differ, because other vector instructions round differently. The search is exact for small data, for
    points whose walk finds too few neighbors or misses the point itself, for duplicates and points beside duplicates,
    and for points closer together than float32 can resolve.

    Parameters
    ----------
    X : (n, d) float64
    n_neighbors : int
        k < n.
    on_progress
        Called with (points done, n, "neighbors"). Linking the points is the first half of the work, and searching the
        second.

    Returns
    -------
    indices : (n, k) int32
        Nearest first.
    distances : (n, k) float64

    Raises
    ------
    MissingLibraryError
        Without faiss.

    """
    faiss, (n, d), k = required_faiss(), X.shape, n_neighbors
    unit = unit_of(X)
    if unit != 1.0:
        indices, distances = approximate_kneighbors(X / unit, k, on_progress)
        return indices, distances * unit
    _, first, copies = np.unique(X, axis=0, return_index=True, return_counts=True)
    first, is_single = np.sort(first), (copies == 1)[np.argsort(first)]
    taken = k + 1 + _SLACK
    reach = max(EF_SEARCH, 2 * taken)
    if len(first) <= reach:
        return nearest_rows(X, X, np.arange(n), k, on_progress)
    places = _in_float32(X[first])
    graph = faiss.IndexHNSWFlat(d, LINKS_PER_POINT)
    graph.hnsw.efConstruction = EF_CONSTRUCTION
    with _one_thread(faiss):
        for block in blocks(len(first), _BLOCK_POINTS, "neighbors"):
            graph.add(places[block])
            on_progress(n * block.stop // (2 * len(first)), n, "neighbors")
    indices, distances = np.empty((n, k), np.int32), np.empty((n, k))
    parameters = faiss.SearchParametersHNSW(efSearch=reach)
    is_lost = np.ones(n, bool)
    for block in blocks(len(first), _BLOCK_POINTS, "neighbors"):
        rows = np.arange(block.start, block.stop)
        with nullcontext() if faiss_has_threads() else _one_thread(faiss):
            square, candidates = graph.search(places[rows], taken, params=parameters)
        home = (
            (candidates >= 0).all(axis=1)
            & (candidates == rows[:, None]).any(axis=1)
            & (square[:, -1] > d * _FLOAT32_ROUNDING**2)
            & is_single[candidates].all(axis=1)
        )
        points = first[rows[home]]
        near, apart = _nearest_first(X, points, first[candidates[home]])
        indices[points], distances[points], is_lost[points] = near[:, 1 : k + 1], apart[:, 1 : k + 1], False
        on_progress(n * (len(first) + block.stop) // (2 * len(first)), n, "neighbors")
    points = np.flatnonzero(is_lost)
    if len(points):
        indices[points], distances[points] = nearest_rows(
            X, X[points], points, k, lambda *_: on_progress(n, n, "neighbors")
        )
    return indices, distances


def measured_recall(
    X: NDArray[np.float64], distances: NDArray[np.float64], on_progress: OnProgress = silent
) -> tuple[float, int]:
    """Measure the recall of an approximate search on a sample of at most 500 points, which are also searched exactly.

    Returns the share of true neighbors among the sample's neighbors, and the number of points in the sample. A neighbor
    is true if it is no farther than the k-th neighbor of the exact search, so that ties do not lower the recall. The
    sample depends on n only.

    Parameters
    ----------
    X : (n, d) float64
    distances : (n, k) float64
        The distances from each point to its neighbors by the approximate search.
    on_progress
        Called with (points done, points in the sample, "recall").

    """
    n, k = distances.shape
    points = np.sort(np.random.default_rng(n).permutation(n)[:RECALL_POINTS])
    _, true = nearest_rows(X, X[points], points, k, lambda done, total, _: on_progress(done, total, "recall"))
    return float((distances[points] <= true[:, -1:] * (1 + 1e-12)).mean()), len(points)


def _in_float32(X: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the points in float32, centered, and scaled so that their largest coordinate lies between 1/2 and 1."""
    centered = X - X.mean(axis=0)
    _, exponent = np.frexp(np.abs(centered).max())
    return np.asarray(np.ldexp(centered, -exponent), np.float32)


def _nearest_first(
    X: NDArray[np.float64], rows: NDArray[np.intp], candidates: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Sort the `candidates` (b, c) of the points `rows` (b,), nearest first, and the point itself before all others.

    Of distances that agree to 34 bits, the smaller index comes first. Points and candidates are row numbers of X.
    Returns the sorted candidates and their distances, both (b, c).
    """
    apart = distances_between(X[rows], X, candidates)
    apart[candidates == rows[:, None]] = -1.0  # sorts a point before its duplicates, which are at distance 0
    order = np.lexsort((candidates, ranks_of(apart)), axis=1)
    return np.take_along_axis(candidates, order, axis=1), np.maximum(np.take_along_axis(apart, order, axis=1), 0.0)


@contextmanager
def _one_thread(faiss: Any) -> Iterator[None]:
    """Limit faiss to one thread in the with-block, because its links depend on the order in which points are added."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def approximate_seconds(n: int, d: int) -> float:
    """Return the predicted seconds of the approximate search of n points in d features on one core."""
    return n * (_WALK + _WALK_FEATURE * d)


def all_pairs_seconds(n: int, d: int) -> float:
    """Return the predicted seconds, on one core, of a search that compares all pairs of n points with d features."""
    return n * n * (PAIR + PAIR_FEATURE * d)
