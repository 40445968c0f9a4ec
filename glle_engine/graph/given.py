"""Checks of neighbors that the caller gives in place of a search: indices, indices and distances, or a sparse graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from scipy.sparse import issparse

from glle_engine.base.arrays import require_unmasked
from glle_engine.base.errors import InvalidParameterError, InvalidShapeError
from glle_engine.base.validation import rows_of_sparse
from glle_engine.graph.neighbors import kneighbors
from glle_engine.graph.radius import NeighborGraph, distances_to
from glle_engine.linalg.distances import ranks_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from glle_engine.graph.relations import Data

ABSENT = -1  # stands for no neighbor in an array of indices
GivenNeighbors: TypeAlias = "ArrayLike | tuple[ArrayLike, ArrayLike] | Any"  # or a sparse array, which has no stubs


def checked_neighbors(neighbors: GivenNeighbors, n: int) -> NDArray[np.int32]:
    """Check the neighbors that a caller gives for n points, and return their indices (n, k).

    k is the largest number of neighbors of a point. The rows of points with fewer neighbors end with -1.

    Parameters
    ----------
    neighbors
        Indices (n, m), where -1 stands for no neighbor; a pair of indices and distances, of which only the indices are
        used; or a sparse graph (n, n), whose stored entries are the neighbors, as from scikit-learn's
        `kneighbors_graph` or `radius_neighbors_graph`. If every point is among its own neighbors, as from
        scikit-learn's `kneighbors`, the points themselves are left out.
    n : int
        Number of points.

    Raises
    ------
    InvalidShapeError
        For another shape, or if every point has fewer than two neighbors.
    InvalidParameterError
        If an index is not in [0, n), a point has the same neighbor twice or no neighbor, or some but not all points are
        among their own neighbors.

    """
    indices = _of_graph(neighbors, n) if issparse(neighbors) else _of_arrays(neighbors, n)
    outside = (indices < ABSENT) | (indices >= n)
    if outside.any():
        row, column = (int(i) for i in np.argwhere(outside)[0])
        raise InvalidParameterError(
            f"neighbors[{row}, {column}] is {indices[row, column]}, not a point from 0 to {n - 1}.",
            remedy="Give rows of the data, counted from 0.",
            details={"row": row, "column": column},
        )
    is_self = indices == np.arange(n)[:, None]
    if is_self.any():
        times = is_self.sum(axis=1)
        if not (times == 1).all():
            row = int(np.argmax(times))
            raise InvalidParameterError(
                f"Some points are among their own neighbors, but not each of them exactly once: point {row} (counted "
                f"from 0) {times[row]} times, others {times.min()} times.",
                remedy="Leave every point out of its own neighbors, or give every point exactly once among them.",
                details={"row": row},
            )
        indices = np.where(is_self, ABSENT, indices)
    indices = np.take_along_axis(indices, np.argsort(indices == ABSENT, axis=1, kind="stable"), axis=1)
    counts = (indices != ABSENT).sum(axis=1)
    indices = indices[:, : counts.max()]
    ordered = np.sort(indices, axis=1)
    repeated = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != ABSENT)).any(axis=1)
    if repeated.any():
        row = int(np.argmax(repeated))
        raise InvalidParameterError(
            f"{repeated.sum():,} points have a neighbor twice; the first is point {row}, counted from 0.",
            remedy="Give each point distinct neighbors.",
            details={"row": row},
        )
    if indices.shape[1] < 2:
        raise InvalidShapeError(
            f"No point has more than {indices.shape[1]} neighbor(s) beside itself.",
            remedy="Give at least two neighbors for each point.",
        )
    if not counts.all():
        row = int(counts.argmin())
        raise InvalidParameterError(
            f"{int((counts == 0).sum()):,} points have no neighbors; the first is point {row}, counted from 0.",
            remedy="Give at least one neighbor for each point, for example by a larger radius.",
            details={"row": row, "points_without_neighbors": int((counts == 0).sum())},
        )
    return indices.astype(np.int32)


def stored_indices(values: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """Convert row numbers of neighbors (n, m), which were stored as floating-point numbers, to integers.

    Raises
    ------
    InvalidParameterError
        If a number is not an integer; the message names the first one.

    """
    indices = np.asarray(values).astype(np.int64)
    broken = indices != values
    if broken.any():
        row, column = (int(i) for i in np.argwhere(broken)[0])
        raise InvalidParameterError(
            f"neighbors[{row}, {column}] is {values[row, column]:g}, not the number of a point.",
            remedy="Give rows of the data, counted from 0; not distances.",
            details={"row": row, "column": column},
        )
    return indices


def nearest_first(data: Data, indices: NDArray[np.int32]) -> NeighborGraph:
    """Sort the neighbors `indices` (n, k) that a caller gave, nearest first, and return them with their distances.

    `data` are the points in the space of the fit, in which distances are measured; among equal distances, the smaller
    index comes first. If a point has fewer than k neighbors, so that its row ends with -1, its nearest other points
    take the places of -1, and the mask `kept` of the result is False for them. `kept` is None if no row has -1.
    """
    kept = None
    if (indices == ABSENT).any():
        others = kneighbors(data, indices.shape[1])[0]
        is_given = np.array([np.isin(*pair) for pair in zip(others, indices, strict=True)])
        unwanted = np.concatenate([indices == ABSENT, is_given], axis=1)
        chosen = np.argsort(unwanted, axis=1, kind="stable")[:, : indices.shape[1]]
        kept = chosen < (indices != ABSENT).sum(axis=1, keepdims=True)
        indices = np.take_along_axis(np.concatenate([indices, others], axis=1), chosen, axis=1)
    apart = distances_to(data, indices)
    order = np.lexsort((indices, ranks_of(apart)), axis=1)
    kept = None if kept is None else np.take_along_axis(kept, order, axis=1)
    return NeighborGraph(np.take_along_axis(indices, order, axis=1), np.take_along_axis(apart, order, axis=1), kept)


def _of_graph(graph: Any, n: int) -> NDArray[np.int64]:
    """Return the columns of the stored entries of each row of a sparse graph (n, n); shorter rows end with -1."""
    if graph.shape != (n, n):
        raise InvalidShapeError(
            f"The graph of neighbors has shape {graph.shape}; the data have {n} points.",
            remedy=f"Give a graph of shape ({n}, {n}).",
        )
    rows = rows_of_sparse(graph)
    counts = np.diff(rows.indptr)
    indices = np.full((n, max(1, int(counts.max()))), ABSENT, np.int64)
    indices[np.arange(indices.shape[1]) < counts[:, None]] = rows.indices
    return indices


def _of_arrays(neighbors: GivenNeighbors, n: int) -> NDArray[np.int64]:
    """Return the indices (n, k) from `neighbors`: `indices`, `(indices, distances)` or `(distances, indices)`.

    Raises `InvalidShapeError` if the indices are not integers for n points, or the distances have another shape.
    """
    pair = neighbors if isinstance(neighbors, tuple) and neighbors else (neighbors,)
    for array in pair:
        require_unmasked(array, "the neighbors")
    arrays = [np.asarray(array) for array in pair]
    if len(arrays) == 2 and arrays[0].dtype.kind == "f" and arrays[1].dtype.kind in "iu":
        arrays.reverse()  # scikit-learn's `kneighbors` returns distances first
    indices = arrays[0]
    if indices.ndim != 2 or len(indices) != n or indices.dtype.kind not in "iu" or len(arrays) > 2:
        raise InvalidShapeError(
            f"The neighbors have shape {indices.shape} and type {indices.dtype}; the data have {n} points.",
            remedy=f"Give integers ({n}, k), a pair (indices, distances), or a sparse graph ({n}, {n}).",
        )
    if len(arrays) == 2 and arrays[1].shape != indices.shape:
        raise InvalidShapeError(
            f"The neighbors have shape {indices.shape}, and their distances have shape {arrays[1].shape}.",
            remedy="Give one distance for each neighbor, or the neighbors alone.",
        )
    return indices.astype(np.int64)
