"""Weighted graphs of neighbours: symmetric, and connected in their weights and not only in their edges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from glle_engine.base.errors import DisconnectedGraphError

if TYPE_CHECKING:
    from numpy.typing import NDArray

# An edge of less weight than this share of the greatest carries nothing that rounding would not carry, too.
NEGLIGIBLE = 1e-10


def symmetric_graph(nearest: NDArray[np.int32], distances: NDArray[np.float64]) -> csr_array:
    """Return the distances (n, n) of i and j where either is a neighbour of the other; a distance of 0 stays an edge.

    Parameters
    ----------
    nearest : (n, k) int32
    distances : (n, k) float64

    """
    n, k = nearest.shape
    tiny = np.finfo(np.float64).tiny  # for duplicates: sparse matrices forget a zero
    indptr = np.arange(0, n * k + 1, k)
    directed = csr_array((np.maximum(distances, tiny).ravel(), nearest.ravel(), indptr), shape=(n, n))
    return csr_array(directed.maximum(directed.T))


def heat_kernel(graph: csr_array, epsilon: float, option: str) -> csr_array:
    r"""Return :math:`\exp(-|x_i - x_j|^2 / \epsilon)` on the edges of a graph of distances (n, n).

    Parameters
    ----------
    graph : (n, n) sparse
        Connected, symmetric.
    epsilon : float
        In squared units of the data.
    option : str
        How the user calls epsilon, for the remedy.

    Raises
    ------
    DisconnectedGraphError
        When the weights, for a bandwidth so small, fall into parts; with the smallest that connects.

    """
    weights = graph.copy()
    weights.data = np.exp(-(graph.data**2) / epsilon)
    carries = graph.copy()
    carries.data = (weights.data > NEGLIGIBLE).astype(np.float64)
    carries.eliminate_zeros()
    count = connected_components(carries, directed=False)[0]
    if count > 1:
        longest = float(minimum_spanning_tree(graph).data.max())
        enough = 1.001 * longest**2 / -np.log(NEGLIGIBLE)
        raise DisconnectedGraphError(
            f"With {option}={epsilon:.3g} the weights between {count} parts of the data vanish.",
            remedy=f"The smallest {option} that connects them is {enough:.3g}; the square of the usual distance of "
            "neighbours is a better one.",
            details={option: epsilon, "components": int(count), "smallest": enough},
        )
    return csr_array(weights)
