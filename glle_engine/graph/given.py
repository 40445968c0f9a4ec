"""Neighbors that the caller has searched: indices, indices and distances, or a sparse graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from scipy.sparse import issparse

from glle_engine.base.errors import InvalidParameterError, InvalidShapeError
from glle_engine.base.validation import require_unmasked, rows_of_sparse
from glle_engine.graph.relations import Distances
from glle_engine.graph.sparse import SparsePoints
from glle_engine.linalg.distances import distances as distances_between
from glle_engine.linalg.distances import ranks_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from glle_engine.graph.relations import Data

GivenNeighbors: TypeAlias = "ArrayLike | tuple[ArrayLike, ArrayLike] | Any"  # or a sparse array, which has no stubs


def checked_neighbors(neighbors: GivenNeighbors, n: int) -> NDArray[np.int32]:
    """Return the indices (n, k) of given neighbors of n points.

    Parameters
    ----------
    neighbors
        Indices (n, m); a pair of indices and distances, of which the indices count; or a sparse graph (n, n) with m
        stored entries a row, as of scikit-learn's `kneighbors_graph`. A point among all rows of its own neighbors, as
        scikit-learn's `kneighbors` returns it, is left out: k is then m - 1.
    n : int

    Raises
    ------
    InvalidShapeError
        For another shape, or rows of different lengths.
    InvalidParameterError
        For indices outside of [0, n), repeated, or of the point itself in some rows only.

    """
    indices = _of_graph(neighbors, n) if issparse(neighbors) else _of_arrays(neighbors, n)
    outside = (indices < 0) | (indices >= n)
    if outside.any():
        row, column = (int(i) for i in np.argwhere(outside)[0])
        raise InvalidParameterError(
            f"neighbors[{row}, {column}] is {indices[row, column]}, not a point from 0 to {n - 1}.",
            remedy="Give rows of the data, counted from 0.",
            details={"row": row, "column": column},
        )
    own = indices == np.arange(n)[:, None]
    if own.any():
        if not (own.sum(axis=1) == 1).all():
            row = int(np.argmax(own.sum(axis=1)))
            raise InvalidParameterError(
                f"Point {row} is its own neighbor, and others are not theirs.",
                remedy="Leave each point out of its neighbors, or give it once in every row.",
                details={"row": row},
            )
        indices = indices[~own].reshape(n, -1)
    ordered = np.sort(indices, axis=1)
    repeated = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    if repeated.any():
        row = int(np.argmax(repeated))
        raise InvalidParameterError(
            f"Point {row} has a neighbor twice.", remedy="Give distinct neighbors.", details={"row": row}
        )
    if indices.shape[1] < 2:
        raise InvalidShapeError(
            f"Each point has {indices.shape[1]} neighbors beside itself.", remedy="Give at least two for each point."
        )
    return indices.astype(np.int32)


def stored_indices(values: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """Return indices (n, m) that were stored as floating-point numbers.

    Raises
    ------
    InvalidParameterError
        With the first one that is not a whole number.

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


def nearest_first(data: Data, indices: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return given neighbors (n, k) by (distance, index), and their distances in the space of the fit."""
    if isinstance(data, Distances):
        apart = np.take_along_axis(data.known, indices.astype(np.intp), axis=1)
    elif isinstance(data, SparsePoints):
        apart = data.distances(data, indices)
    else:
        apart = distances_between(data, data, indices)
    order = np.lexsort((indices, ranks_of(apart)), axis=1)
    return np.take_along_axis(indices, order, axis=1), np.take_along_axis(apart, order, axis=1)


def _of_graph(graph: Any, n: int) -> NDArray[np.int64]:
    """Return the columns of the stored entries of a sparse graph, one row a point."""
    if graph.shape != (n, n):
        raise InvalidShapeError(
            f"The graph of neighbors has shape {graph.shape}; the data have {n} points.",
            remedy=f"Give a graph of shape ({n}, {n}).",
        )
    rows = rows_of_sparse(graph)
    counts = np.diff(rows.indptr)
    if counts.min() != counts.max():
        raise InvalidShapeError(
            f"Points have from {counts.min()} to {counts.max()} neighbors in the graph; all need the same number.",
            remedy="Give a graph of k nearest neighbors, not of a radius, and not symmetrised.",
            details={"least": int(counts.min()), "most": int(counts.max())},
        )
    return np.asarray(rows.indices.reshape(n, -1), np.int64)


def _of_arrays(neighbors: GivenNeighbors, n: int) -> NDArray[np.int64]:
    """Return indices alone, or those of a pair with distances."""
    pair = neighbors if isinstance(neighbors, tuple) and neighbors else (neighbors,)
    for part in pair:
        require_unmasked(part, "the neighbors")
    parts = [np.asarray(part) for part in pair]
    if len(parts) == 2 and parts[0].dtype.kind == "f" and parts[1].dtype.kind in "iu":
        parts.reverse()  # scikit-learn's `kneighbors` returns distances first
    indices = parts[0]
    if indices.ndim != 2 or len(indices) != n or indices.dtype.kind not in "iu" or len(parts) > 2:
        raise InvalidShapeError(
            f"The neighbors have shape {indices.shape} and type {indices.dtype}; the data have {n} points.",
            remedy=f"Give integers ({n}, k), a pair of them and their distances, or a sparse graph ({n}, {n}).",
        )
    if len(parts) == 2 and parts[1].shape != indices.shape:
        raise InvalidShapeError(
            f"The neighbors have shape {indices.shape}, their distances {parts[1].shape}.",
            remedy="Give one distance for each neighbor, or the neighbors alone.",
        )
    return indices.astype(np.int64)
