"""Single-linkage clustering by mutual reachability distances, in time n^2 and memory n.

The minimum spanning tree grows from point 0, always by the nearest point outside the tree (Prim). Clusters are then
merged along the edges of the tree, the shortest first. Edges of equal length are merged in the order in which the tree
grew. scipy does the same, but needs all distances in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.linalg.compiled import compiled
from glle_engine.linalg.dense import readable

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A squared distance is multiplied by this, which exceeds its rounding error, to get an upper bound.
_ROUNDING_FACTOR = 1 + 2.0**-48


def single_linkage(points: NDArray[np.float64], core: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the linkage matrix (n - 1, 4) of points (n, d), in the format of `scipy.cluster.hierarchy.linkage`.

    A row has the numbers of the two clusters that are merged, their distance, and the number of points of both. The
    distance of two points is their Euclidean distance or one of their core distances `core` (n,), the largest.
    """
    edges = np.empty((len(points) - 1, 3))
    _spanning_tree(readable(points), readable(core), edges)
    merges = np.empty((len(edges), 4))
    _merge(edges[np.argsort(edges[:, 2], kind="stable")], merges)
    return merges


@compiled
def _spanning_tree(points: NDArray[np.float64], core: NDArray[np.float64], edges: NDArray[np.float64]) -> None:
    """Write the minimum spanning tree to `edges` (n - 1, 3), in the order in which it grows: two points and a length.

    `points` and `core` are as for `single_linkage`.
    """
    n, d = points.shape
    rest = np.arange(1, n)
    length, square = np.full(n, np.inf), np.full(n, np.inf)  # from the tree to each point, and its square with a margin
    last = 0
    for step in range(n - 1):
        shortest, place = np.inf, 0
        for slot in range(n - 1 - step):
            point = rest[slot]
            total = 0.0
            for f in range(d):
                apart = points[last, f] - points[point, f]
                total += apart * apart
            if total < square[slot]:
                reach = max(np.sqrt(total), core[last], core[point])
                if reach < length[slot]:
                    length[slot], square[slot] = reach, reach * reach * _ROUNDING_FACTOR
            if length[slot] < shortest:
                shortest, place = length[slot], slot
        edges[step, 0], edges[step, 1], edges[step, 2] = last, rest[place], shortest
        last = rest[place]
        for slot in range(place, n - 2 - step):  # the order decides between equal lengths
            rest[slot], length[slot], square[slot] = rest[slot + 1], length[slot + 1], square[slot + 1]


@compiled
def _merge(edges: NDArray[np.float64], merges: NDArray[np.float64]) -> None:
    """Write the linkage matrix to `merges` (n - 1, 4), from the edges (n - 1, 3) of a spanning tree in ascending order.

    Each edge merges the clusters of its two points.
    """
    count = len(edges)
    parent, size = np.arange(2 * count + 1), np.ones(2 * count + 1, np.int64)
    for row in range(count):
        left, right = _root(parent, int(edges[row, 0])), _root(parent, int(edges[row, 1]))
        node = count + 1 + row
        parent[left], parent[right] = node, node
        size[node] = size[left] + size[right]
        merges[row, 0], merges[row, 1] = min(left, right), max(left, right)
        merges[row, 2], merges[row, 3] = edges[row, 2], size[node]


@compiled
def _root(parent: NDArray[np.int64], node: int) -> int:
    """Return the root of a node in a forest (union-find); the nodes on the path to it get the root as their parent."""
    top = node
    while parent[top] != top:
        top = parent[top]
    while parent[node] != top:
        parent[node], node = top, parent[node]
    return top
