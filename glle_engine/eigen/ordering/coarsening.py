"""Coarser graphs by heavy-edge matching (Karypis and Kumar 1998)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from glle_engine.linalg.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Graph(NamedTuple):
    """Undirected graph with weights.

    Attributes
    ----------
    start : (n + 1,) int64
    adjacent, edges : int32
        Neighbors row by row, and the weights of the edges to them.
    weights : (n,) int32
        Of the vertices.

    """

    start: NDArray[np.int64]
    adjacent: NDArray[np.int32]
    edges: NDArray[np.int32]
    weights: NDArray[np.int32]


@compiled
def random_word(counter: int) -> int:
    """Return 63 random bits of a counter (SplitMix64, Steele, Lea and Flood 2014)."""
    z = np.uint64(counter) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int(np.int64((z ^ (z >> np.uint64(31))) >> np.uint64(1)))


@compiled
def matching(graph: Graph, heaviest: int, seed: int) -> tuple[NDArray[np.int32], int]:
    """Return the coarse vertex of each vertex, and their number: pairs along the heaviest edges.

    Vertices of few neighbors choose first, in random order. A pair weighs at most `heaviest`.
    """
    n = len(graph.weights)
    average = 1 + int(graph.start[n]) // n
    shuffled = np.arange(n)
    for i in range(n - 1, 0, -1):
        j = random_word(seed + i) % (i + 1)
        shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
    begin = np.zeros(average + 2, np.int64)
    for i in range(n):
        begin[min(graph.start[i + 1] - graph.start[i], average) + 1] += 1
    begin = np.cumsum(begin)
    order = np.empty(n, np.int64)  # by degree, random among equals
    for at in range(n):
        i = int(shuffled[at])
        degree = min(int(graph.start[i + 1] - graph.start[i]), average)
        order[begin[degree]] = i
        begin[degree] += 1
    coarse = np.full(n, -1, np.int32)
    count = 0
    for at in range(n):
        i = order[at]
        if coarse[i] != -1:
            continue
        best, partner = 0, -1
        for e in range(graph.start[i], graph.start[i + 1]):
            j = graph.adjacent[e]
            if coarse[j] == -1 and graph.edges[e] > best and graph.weights[i] + graph.weights[j] <= heaviest:
                best, partner = int(graph.edges[e]), int(j)
        coarse[i] = count
        if partner != -1:
            coarse[partner] = count
        count += 1
    return coarse, count


@compiled
def contract(graph: Graph, coarse: NDArray[np.int32], count: int) -> Graph:
    """Return the graph of coarse vertices; weights add up, and edges within a vertex vanish."""
    n = len(graph.weights)
    one, other = np.full(count, -1, np.int32), np.full(count, -1, np.int32)
    for i in range(n):
        if one[coarse[i]] == -1:
            one[coarse[i]] = i
        else:
            other[coarse[i]] = i
    start = np.zeros(count + 1, np.int64)
    adjacent = np.empty(graph.start[n], np.int32)
    edges = np.empty(graph.start[n], np.int32)
    weights = np.zeros(count, np.int32)
    where = np.full(count, -1, np.int64)
    at = 0
    for c in range(count):
        first = at
        for member in (one[c], other[c]):
            if member == -1:
                continue
            weights[c] += graph.weights[member]
            for e in range(graph.start[member], graph.start[member + 1]):
                d = coarse[graph.adjacent[e]]
                if d == c:
                    continue
                if where[d] >= first:
                    edges[where[d]] += graph.edges[e]
                else:
                    where[d] = at
                    adjacent[at], edges[at] = d, graph.edges[e]
                    at += 1
        start[c + 1] = at
    return Graph(start, adjacent[:at].copy(), edges[:at].copy(), weights)
