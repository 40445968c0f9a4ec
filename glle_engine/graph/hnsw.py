"""Approximate nearest neighbors by a navigable graph: search="approximate" (extra `ann`).

A hierarchical navigable small world (Malkov and Yashunin 2018) keeps for each point some M links to points near it, on
levels that thin out upwards. A search walks along links to ever nearer points and keeps the `EF_SEARCH` nearest so
far. It reads a small part of the data: n searches cost some n log n, exact ones n^2. Misses are silent, so that
`measured_recall` searches a sample exactly and reports the share found. One failure is visible: a walk that ends far
from its point has not met the point itself either. Such points are searched exactly.

faiss keeps the points in float32. They are centered and scaled by a power of two first, so that the search does not
change with a shift or a unit. It gives candidates only; their distances are computed again in float64. Exact
duplicates enter the graph once, because many copies of a point link only to each other, and walks end among them; they
and the points beside them are searched exactly, too.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.errors import MissingLibraryError
from glle_engine.base.progress import OnProgress, silent
from glle_engine.linalg.distances import distances as distances_between
from glle_engine.linalg.distances import nearest_rows, unit_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

LINKS = 24  # M
EF_CONSTRUCTION = 200
EF_SEARCH = 96
SAMPLE = 500
_SLACK = 4
_ROUNDING = 2.0**-21  # eight times the rounding of float32 in a difference of coordinates below 1
_BLOCK = 2048


def required_faiss() -> Any:
    """Return faiss, or raise `MissingLibraryError`."""
    try:
        import faiss  # noqa: PLC0415 # an extra, and a third of a second
    except ImportError as error:
        raise MissingLibraryError(
            "search='approximate' needs faiss, which is not installed.",
            remedy="Install it with pip install 'glle[ann]' (for the service: on the workers), or use search='exact'.",
            details={"library": "faiss", "extra": "ann"},
        ) from error
    return faiss


def approximate_kneighbors(
    X: NDArray[np.float64], n_neighbors: int, on_progress: OnProgress = silent
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return k points near each point in Euclidean distance, nearly all of them the nearest, itself left out.

    The same data give the same result on a machine, with any number of threads: one thread makes the links, all walk
    them. Other vector instructions round differently, so that single neighbors may differ on another machine. The
    search is exact for small data, for points whose walk misses neighbors or the point itself, and for points closer
    together than float32 can resolve.

    Parameters
    ----------
    X : (n, d) float64
    n_neighbors : int
        k < n.
    on_progress
        Called with (done, n, "neighbors"): the first half is the links, the second the searches.

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
    graph = faiss.IndexHNSWFlat(d, LINKS)
    graph.hnsw.efConstruction = EF_CONSTRUCTION
    with _one_thread(faiss):
        for stop in _stops(len(first)):
            graph.add(places[graph.ntotal : stop])
            on_progress(n * stop // (2 * len(first)), n, "neighbors")
    indices, distances = np.empty((n, k), np.int32), np.empty((n, k))
    parameters = faiss.SearchParametersHNSW(efSearch=reach)
    is_lost = np.ones(n, bool)
    start = 0
    for stop in _stops(len(first)):
        own = np.arange(start, stop)
        square, candidates = graph.search(places[own], taken, params=parameters)
        home = (
            (candidates >= 0).all(axis=1)
            & (candidates == own[:, None]).any(axis=1)
            & (square[:, -1] > d * _ROUNDING**2)
            & is_single[candidates].all(axis=1)
        )
        points = first[own[home]]
        near, apart = _nearest_first(X, points, first[candidates[home]])
        indices[points], distances[points], is_lost[points] = near[:, 1 : k + 1], apart[:, 1 : k + 1], False
        start = stop
        on_progress(n * (len(first) + stop) // (2 * len(first)), n, "neighbors")
    points = np.flatnonzero(is_lost)
    if len(points):
        indices[points], distances[points] = nearest_rows(
            X, X[points], points, k, lambda *_: on_progress(n, n, "neighbors")
        )
    return indices, distances


def measured_recall(
    X: NDArray[np.float64], distances: NDArray[np.float64], on_progress: OnProgress = silent
) -> tuple[float, int]:
    """Return the share of true neighbors among those of a search, and the number of points of the sample.

    A neighbor is true if it is no farther than the k-th of an exact search, so that ties cost nothing. The sample
    depends on n alone.

    Parameters
    ----------
    X : (n, d) float64
    distances : (n, k) float64
        To the neighbors of the search.
    on_progress
        Called with (points done, points in the sample, "recall").

    """
    n, k = distances.shape
    points = np.sort(np.random.default_rng(n).permutation(n)[:SAMPLE])
    _, true = nearest_rows(X, X[points], points, k, lambda done, total, _: on_progress(done, total, "recall"))
    return float((distances[points] <= true[:, -1:] * (1 + 1e-12)).mean()), len(points)


def _in_float32(X: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the points about their mean, their largest coordinate between 1/2 and 1, in float32."""
    centred = X - X.mean(axis=0)
    _, exponent = np.frexp(np.abs(centred).max())
    return np.asarray(np.ldexp(centred, -exponent), np.float32)


def _nearest_first(
    X: NDArray[np.float64], own: NDArray[np.intp], candidates: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Sort the candidates (b, taken) of each point by (distance, index), the point itself in front."""
    apart = distances_between(X[own], X, candidates)
    apart[candidates == own[:, None]] = -1.0  # before others whose squared distance underflows
    order = np.lexsort((candidates, apart), axis=1)
    return np.take_along_axis(candidates, order, axis=1), np.maximum(np.take_along_axis(apart, order, axis=1), 0.0)


def _stops(n: int) -> Iterator[int]:
    """Yield the ends of blocks of points."""
    yield from range(_BLOCK, n, _BLOCK)
    yield n


@contextmanager
def _one_thread(faiss: Any) -> Iterator[None]:
    """Limit faiss to one thread, because links depend on the order of insertion."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
