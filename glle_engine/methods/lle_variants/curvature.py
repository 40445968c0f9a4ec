r"""Ollivier-Ricci curvature of the edges of a kNN graph: how far two points' neighbours are from each other.

.. math:: \kappa(i, j) = 1 - W_1(\mu_i, \mu_j)

with unit edges, :math:`\mu_i` uniform on the neighbours of i other than j, and :math:`W_1` the least mean number of
edges that takes the one to the other (Ollivier 2009). Inside a sheet neighbours are shared and :math:`\kappa` is near
or above 0; across a gap every neighbour has to go back over the edge, three edges, and :math:`\kappa = -2`. Both
measures have k - 1 atoms here, the k - 1 nearest, so that :math:`W_1` is an assignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array

from glle_engine.base.progress import blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

_BLOCK_ENTRIES = 1 << 20


def ollivier_ricci(
    nearest: NDArray[np.int32], pairs: NDArray[np.int32], on_progress: OnProgress
) -> NDArray[np.float64]:
    """Return the curvature (m,) of edges, in [-2, 1].

    Parameters
    ----------
    nearest : (n, k) int32
        Nearest first; k of at least 2.
    pairs : (m, 2) int32
        Edges of the graph, from either end.

    """
    n, k = nearest.shape
    step = csr_array((np.ones(n * k, np.int8), nearest.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n))
    one = _keys(step + step.T)
    # Two edges: a sum of products, whose entries stay below 256 times 2 k only as integers.
    walk = csr_array(step + step.T, dtype=np.int32)
    two = _keys(walk @ walk)
    curvature = np.empty(len(pairs))
    for rows in blocks(len(pairs), max(1, _BLOCK_ENTRIES // k**2), "curvature", on_progress):
        first = _others(nearest, pairs[rows, 0], pairs[rows, 1])
        second = _others(nearest, pairs[rows, 1], pairs[rows, 0])
        key = first[:, :, None].astype(np.int64) * n + second[:, None, :]
        apart = np.full(key.shape, 3, np.int8)
        apart[_found(two, key)] = 2
        apart[_found(one, key)] = 1
        apart[first[:, :, None] == second[:, None, :]] = 0
        for place, table in enumerate(apart, start=rows.start):
            curvature[place] = 1 - table[linear_sum_assignment(table)].mean()
    return curvature


def _keys(graph: csr_array) -> NDArray[np.int64]:
    """Return row * n + column of every entry, ascending."""
    graph = csr_array(graph)
    rows = np.repeat(np.arange(graph.shape[0], dtype=np.int64), np.diff(graph.indptr))
    return np.sort(rows * graph.shape[0] + graph.indices)


def _found(keys: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.asarray(keys[place] == wanted)


def _others(nearest: NDArray[np.int32], own: NDArray[np.int32], left_out: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the k - 1 nearest of each point (m, k - 1) without one that may be among them."""
    rows = nearest[own]
    dropped = rows == left_out[:, None]
    dropped[~dropped.any(axis=1), -1] = True
    return np.asarray(rows[~dropped].reshape(len(rows), -1))
