"""Single linkage by mutual reachability, in time n^2 and memory n.

The spanning tree grows from point 0 by the nearest point outside it (Prim), and its edges are then merged from the
shortest on. Equal lengths keep the order in which the tree grew, as in scipy, which needs all distances at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.linalg.compiled import compiled
from glle_engine.linalg.dense import readable

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MARGIN = 1 + 2.0**-48  # exceeds the rounding error of a squared distance


def single_linkage(points: NDArray[np.float64], core: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the merges (n - 1, 4) as scipy does: two nodes, their distance, and the number of points of both.

    The distance of two of the points (n, d) is at least the core distance (n,) of each of them.
    """
    edges = np.empty((len(points) - 1, 3))
    _spanning_tree(readable(points), readable(core), edges)
    merges = np.empty((len(edges), 4))
    _merge(edges[np.argsort(edges[:, 2], kind="stable")], merges)
    return merges


@compiled
def _spanning_tree(points: NDArray[np.float64], core: NDArray[np.float64], edges: NDArray[np.float64]) -> None:
    """Write the edges (n - 1, 3) of the shortest spanning tree, in the order in which it grows."""
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
                    length[slot], square[slot] = reach, reach * reach * _MARGIN
            if length[slot] < shortest:
                shortest, place = length[slot], slot
        edges[step, 0], edges[step, 1], edges[step, 2] = last, rest[place], shortest
        last = rest[place]
        for slot in range(place, n - 2 - step):  # the order decides between equal lengths
            rest[slot], length[slot], square[slot] = rest[slot + 1], length[slot + 1], square[slot + 1]


@compiled
def _merge(edges: NDArray[np.float64], merges: NDArray[np.float64]) -> None:
    """Write the merges (n - 1, 4) of sorted edges (n - 1, 3): each joins the nodes of the ends of its edge."""
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
    """Return the node at the top above a node, and make the way there shorter."""
    top = node
    while parent[top] != top:
        top = parent[top]
    while parent[node] != top:
        parent[node], node = top, parent[node]
    return top
