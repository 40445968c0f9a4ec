"""Nested dissection (George 1973): separators last, minimum degree within and between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.eigen.ordering.coarsening import Graph
from glle_engine.eigen.ordering.minimum_degree import minimum_degree
from glle_engine.eigen.ordering.separators import SEPARATOR, separator
from glle_engine.linalg.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LEAF = 120  # vertices that minimum degree orders as well
# Of many vertices, parts of a thousandth: smaller ones take half of the time and save 1 % of the operations.
_LEAF_SHARE = 1000
# A large part whose separator is a large share of it gets more runs: there a separator differs much from run to run.
_LARGE, _SHARE, _FURTHER = 500, 30, 2


def nested_dissection(start: NDArray[np.int64], adjacent: NDArray[np.int32], seed: int) -> NDArray[np.int32]:
    """Return the order (n,) of a symmetric graph without repetitions and without the diagonal."""
    leaf = max(_LEAF, (len(start) - 1) // _LEAF_SHARE)
    return minimum_degree(start, adjacent, dissect(start, adjacent, leaf, seed))


@compiled
def dissect(start: NDArray[np.int64], adjacent: NDArray[np.int32], leaf: int, seed: int) -> NDArray[np.int32]:
    """Return the group of each vertex: parts of at most `leaf` vertices and separators, in the order of elimination."""
    n = len(start) - 1
    group = np.zeros(n, np.int32)
    members = np.arange(n).astype(np.int32)
    local = np.full(n, -1, np.int32)
    # Parts still to be cut: the range of their members, which is also where their groups will be.
    stack = np.empty((n + 1, 2), np.int64)
    stack[0, 0], stack[0, 1] = 0, n
    depth = 1
    stream = int(seed) << 20
    while depth > 0:
        depth -= 1
        first, last = stack[depth]
        count = last - first
        if count <= leaf:
            for at in range(first, last):
                group[members[at]] = last
            continue
        part = members[first:last].copy()
        graph = _subgraph(start, adjacent, part, local)
        label, cost = separator(graph, stream << 40)
        stream += 1
        for _ in range(_FURTHER if count >= _LARGE and cost * _SHARE >= count << 10 else 0):
            other, its_cost = separator(graph, stream << 40)
            stream += 1
            if its_cost < cost:
                label, cost = other, its_cost
        sizes = np.zeros(3, np.int64)
        for i in range(count):
            sizes[label[i]] += 1
        if sizes[0] == 0 or sizes[1] == 0:  # no separator
            for at in range(first, last):
                group[members[at]] = last
            continue
        place = np.array([first, first + sizes[0], first + sizes[0] + sizes[1]])
        for i in range(count):
            members[place[label[i]]] = part[i]
            place[label[i]] += 1
            if label[i] == SEPARATOR:
                group[part[i]] = last
        stack[depth, 0], stack[depth, 1] = first, first + sizes[0]
        stack[depth + 1, 0], stack[depth + 1, 1] = first + sizes[0], first + sizes[0] + sizes[1]
        depth += 2
    return group


@compiled
def _subgraph(
    start: NDArray[np.int64], adjacent: NDArray[np.int32], part: NDArray[np.int32], local: NDArray[np.int32]
) -> Graph:
    """Return the graph of some vertices; `local` is -1 everywhere, before and after."""
    count = len(part)
    size = 0
    for i in range(count):
        local[part[i]] = i
        size += start[part[i] + 1] - start[part[i]]
    begin = np.zeros(count + 1, np.int64)
    inner = np.empty(size, np.int32)
    at = 0
    for i in range(count):
        for e in range(start[part[i]], start[part[i] + 1]):
            j = local[adjacent[e]]
            if j != -1:
                inner[at] = j
                at += 1
        begin[i + 1] = at
    for i in range(count):
        local[part[i]] = -1
    return Graph(begin, inner[:at].copy(), np.ones(at, np.int32), np.ones(count, np.int32))
