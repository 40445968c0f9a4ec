"""Fill-reducing elimination orders by nested dissection (George 1973).

A graph is cut by a vertex separator: a few vertices without which the graph falls into two parts. The separator is
eliminated after both parts, and the parts are cut in the same way. Minimum degree orders the vertices within the
smallest parts and within each separator. A multilevel scheme finds the separators: graphs are made coarser by
heavy-edge matching (Karypis and Kumar 1998), and separators are refined as by Fiduccia and Mattheyses (1982). The code
is compiled integer arithmetic, so that the order is the same on every machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from glle_engine.eigen.minimum_degree import minimum_degree
from glle_engine.linalg.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEPARATOR_LABEL = 2  # label of the vertices of the separator; the two sides have the labels 0 and 1
_MAX_COARSEST_VERTICES = 100  # the graph is coarsened until it has at most this many vertices
_SEPARATOR_TRIALS = 8  # this many separators are tried on the coarsest graph
_MAX_REFINEMENT_PASSES = 20  # a refinement of a separator ends after this many passes
# A pass ends after this many moves that did not make the separator cheaper: `_PATIENCE` for each vertex of the
# separator, and at most `_MAX_PATIENCE`.
_PATIENCE, _MAX_PATIENCE = 5, 500
_MAX_SIDE_PERCENT = 60  # one side may have at most this percentage of the total weight
# Parts of at most this many vertices are not cut further, because minimum degree orders them just as well.
_MAX_LEAF_VERTICES = 120
# Large graphs are cut only down to parts of a thousandth of their vertices. Cutting on would take half of the time of
# the dissection, and save 1 % of the operations of a factorization.
_LEAF_SHARE = 1000
# If a part has at least `_LARGE` vertices and the weight of its separator is at least 1 / `_SHARE` of their number,
# separators differ much from run to run. Then `_FURTHER` more separators are computed, and the cheapest is used.
_LARGE, _SHARE, _FURTHER = 500, 30, 2


class Graph(NamedTuple):
    """Undirected graph of n vertices with weights of vertices and edges, as adjacency lists one after another.

    Attributes
    ----------
    start : (n + 1,) int64
        The neighbors of vertex i are adjacent[start[i]:start[i + 1]].
    adjacent, edges : int32
        Neighbors, and the weights of the edges to them.
    weights : (n,) int32
        Weights of the vertices.

    """

    start: NDArray[np.int64]
    adjacent: NDArray[np.int32]
    edges: NDArray[np.int32]
    weights: NDArray[np.int32]


@compiled
def random_word(counter: int) -> int:
    """Return a pseudo-random integer in [0, 2^63), a function of `counter` (SplitMix64, Steele, Lea and Flood 2014)."""
    z = np.uint64(counter) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int(np.int64((z ^ (z >> np.uint64(31))) >> np.uint64(1)))


@compiled
def matching(graph: Graph, heaviest: int, seed: int) -> tuple[NDArray[np.int32], int]:
    """Pair vertices along heavy edges, so that each pair can become one vertex of a coarser graph.

    Returns, for each vertex (n,), the number of its vertex in the coarser graph, and the number of vertices of the
    coarser graph. Vertices with few neighbors choose their partner first; among vertices with equally many neighbors
    the order is random, from `seed`. A pair weighs at most `heaviest`. A vertex without a free partner stays alone.
    """
    n = len(graph.weights)
    average = 1 + int(graph.start[n]) // n
    shuffled = np.empty(n, np.int64)
    for i in range(n):
        shuffled[i] = i
    for i in range(n - 1, 0, -1):
        j = random_word(seed + i) % (i + 1)
        shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
    begin = np.zeros(average + 2, np.int64)
    for i in range(n):
        begin[min(graph.start[i + 1] - graph.start[i], average) + 1] += 1
    for degree in range(average + 1):
        begin[degree + 1] += begin[degree]
    order = np.empty(n, np.int64)  # vertices by degree, in random order among equal degrees
    for position in range(n):
        i = int(shuffled[position])
        degree = min(int(graph.start[i + 1] - graph.start[i]), average)
        order[begin[degree]] = i
        begin[degree] += 1
    coarse = np.full(n, -1, np.int32)
    count = 0
    for position in range(n):
        i = order[position]
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
    """Return the coarser graph of `count` vertices, each of which replaces one or two vertices of `graph`.

    Vertex i of `graph` becomes a part of vertex coarse[i] (`matching`). The weights of two merged vertices add up, as
    do the weights of parallel edges. An edge between merged vertices vanishes.
    """
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
    used = 0
    for c in range(count):
        first = used
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
                    where[d] = used
                    adjacent[used], edges[used] = d, graph.edges[e]
                    used += 1
        start[c + 1] = used
    return Graph(start, adjacent[:used].copy(), edges[:used].copy(), weights)


@compiled
def separator(graph: Graph, seed: int) -> tuple[NDArray[np.int8], int]:
    """Find a small set of vertices without which the graph falls into two parts; return labels (n,) and the cost.

    Vertices of the two parts, which no edge joins, have the labels 0 and 1, and vertices of the set have
    `SEPARATOR_LABEL`. `_cost` defines the cost of the set. Other seeds may give other sets.
    """
    levels = [graph]
    maps = [np.empty(0, np.int32)]
    total = 0
    for i in range(len(graph.weights)):
        total += graph.weights[i]
    heaviest = max(2, 3 * total // (2 * _MAX_COARSEST_VERTICES))
    while len(levels[-1].weights) > _MAX_COARSEST_VERTICES:
        finer = levels[-1]
        seed += 1 << 32
        coarse, count = matching(finer, heaviest, seed)
        if 10 * count > 9 * len(finer.weights):
            break
        levels.append(contract(finer, coarse, count))
        maps.append(coarse)
    label, cost = _first_separator(levels[-1], seed)
    for level in range(len(levels) - 1, 0, -1):
        finer, coarse = levels[level - 1], maps[level]
        projected = np.empty(len(finer.weights), np.int8)
        for i in range(len(projected)):
            projected[i] = label[coarse[i]]
        label = projected
        cost = refine(finer, label)
    return label, cost


@compiled
def _first_separator(graph: Graph, seed: int) -> tuple[NDArray[np.int8], int]:
    """Find the cheapest of several separators of a small graph; return labels (n,) and the cost, as `separator` does.

    For each separator, a region is grown from a random vertex until it has half of the weight of all vertices. The
    boundary of the region is the separator, which is then refined.
    """
    n = len(graph.weights)
    best = np.ones(n, np.int8)
    lightest = -1
    queue = np.empty(n, np.int32)
    total = 0
    for i in range(n):
        total += graph.weights[i]
    for trial in range(_SEPARATOR_TRIALS):
        label = np.ones(n, np.int8)
        reached = np.zeros(n, np.bool_)
        begin, end = 0, 0
        grown = 0
        following = random_word(seed + trial) % n
        while 2 * grown < total:
            if begin == end:  # all of this connected component was reached: go on in another one
                while reached[following]:
                    following = (following + 1) % n
                reached[following] = True
                queue[end] = following
                end += 1
            i = queue[begin]
            begin += 1
            label[i] = 0
            grown += graph.weights[i]
            for e in range(graph.start[i], graph.start[i + 1]):
                j = graph.adjacent[e]
                if not reached[j]:
                    reached[j] = True
                    queue[end] = j
                    end += 1
        for i in range(n):
            if label[i] == 1:
                for e in range(graph.start[i], graph.start[i + 1]):
                    if label[graph.adjacent[e]] == 0:
                        label[i] = SEPARATOR_LABEL
                        break
        weight = refine(graph, label)
        if lightest == -1 or weight < lightest:
            lightest = weight
            best = label
    return best, lightest


@compiled
def refine(graph: Graph, label: NDArray[np.int8]) -> int:
    """Make a separator cheaper by changing the labels `label` (n,) in place, and return its new cost (`_cost`).

    The labels 0 and 1 are the two sides, and `SEPARATOR_LABEL` is the separator between them. A pass moves vertices of
    the separator to one side. When a vertex moves there, its neighbors on the other side become part of the separator.
    All moves of a pass go to the same side, so that the separator advances. A pass also makes moves that increase the
    cost; at its end, all moves after the cheapest state are undone.
    """
    n = len(graph.weights)
    side = np.zeros(3, np.int64)
    for i in range(n):
        side[label[i]] += graph.weights[i]
    limit = (side[0] + side[1] + side[2]) * _MAX_SIDE_PERCENT // 100
    drawn = np.zeros(n, np.int64)  # for each vertex, the weight of the neighbors that its move adds to the separator
    heap, place = np.empty(n, np.int32), np.full(n, -1, np.int32)
    locked = np.zeros(n, np.bool_)
    moved = np.empty(n, np.int32)
    pulled, ends = np.empty(n + graph.start[n], np.int32), np.zeros(n + 1, np.int64)
    cost = _cost(side, limit)
    target = 0 if side[0] < side[1] else 1
    fruitless = 0
    for _ in range(_MAX_REFINEMENT_PASSES):
        away = 1 - target
        used = 0
        for i in range(n):
            if label[i] == SEPARATOR_LABEL:
                used = _enter(graph, label, away, drawn, heap, place, used, i)
        patience = min(_PATIENCE * used + 10, _MAX_PATIENCE)
        moves, best, before = 0, 0, cost
        while moves - best < patience and used > 0 and side[target] + graph.weights[heap[0]] <= limit:
            i = heap[0]
            place[i] = -1
            used -= 1
            if used > 0:
                heap[0] = heap[used]
                _sift(heap, place, used, heap[0], 0, graph.weights, drawn)
            label[i] = target
            locked[i] = True
            side[SEPARATOR_LABEL] -= graph.weights[i]
            side[target] += graph.weights[i]
            begin = ends[moves]
            end = begin
            for e in range(graph.start[i], graph.start[i + 1]):
                j = graph.adjacent[e]
                if label[j] == away:
                    label[j] = SEPARATOR_LABEL
                    side[away] -= graph.weights[j]
                    side[SEPARATOR_LABEL] += graph.weights[j]
                    pulled[end] = j
                    end += 1
            for p in range(begin, end):
                j = pulled[p]
                for e in range(graph.start[j], graph.start[j + 1]):
                    h = graph.adjacent[e]
                    if place[h] != -1:
                        drawn[h] -= graph.weights[j]
                        _sift(heap, place, used, h, place[h], graph.weights, drawn)
            for p in range(begin, end):
                if not locked[pulled[p]]:
                    used = _enter(graph, label, away, drawn, heap, place, used, pulled[p])
            moved[moves] = i
            moves += 1
            ends[moves] = end
            now = _cost(side, limit)
            if now < cost:
                cost, best = now, moves
        for move in range(moves - 1, -1, -1):
            i = moved[move]
            locked[i] = False
            if move >= best:
                for p in range(ends[move], ends[move + 1]):
                    label[pulled[p]] = away
                    side[SEPARATOR_LABEL] -= graph.weights[pulled[p]]
                    side[away] += graph.weights[pulled[p]]
                label[i] = SEPARATOR_LABEL
                side[target] -= graph.weights[i]
                side[SEPARATOR_LABEL] += graph.weights[i]
        for entry in range(used):
            place[heap[entry]] = -1
        fruitless = 0 if cost < before else fruitless + 1
        if fruitless == 2:
            break
        target = away
    return cost


@compiled
def _cost(side: NDArray[np.int64], limit: int) -> int:
    """Return the cost of a separator: 1024 times its weight, plus a penalty if a side is heavier than `limit`.

    `side` (3,) has the weights of the two sides and of the separator. A third term, below 1024, grows with the heavier
    side, and so decides only between separators of equal weight.
    """
    heavier = max(side[0], side[1])
    total = side[0] + side[1] + side[2]
    return int(1024 * side[SEPARATOR_LABEL] + (1 << 20) * max(0, heavier - limit) + 1023 * heavier // total)


@compiled
def _enter(
    graph: Graph,
    label: NDArray[np.int8],
    away: int,
    drawn: NDArray[np.int64],
    heap: NDArray[np.int32],
    place: NDArray[np.int32],
    used: int,
    i: int,
) -> int:
    """Add vertex i to the heap of the vertices that may leave the separator, and return the new size of the heap.

    If i moved to one side, its neighbors on the other side, which has the label `away` in `label` (n,), would have to
    become part of the separator. The total weight of these neighbors is written to drawn[i]. `heap` has `used` vertices
    before the call. First in the heap is the vertex whose move makes the separator lightest (`_precedes`), and place[i]
    is the position of vertex i in the heap. Both arrays are changed in place.
    """
    drawn[i] = 0
    for e in range(graph.start[i], graph.start[i + 1]):
        if label[graph.adjacent[e]] == away:
            drawn[i] += graph.weights[graph.adjacent[e]]
    _sift(heap, place, used + 1, i, used, graph.weights, drawn)
    return used + 1


@compiled
def _precedes(weights: NDArray[np.int32], drawn: NDArray[np.int64], i: int, j: int) -> bool:
    """Return whether moving vertex i makes the separator lighter than moving vertex j would; in a tie, whether i < j.

    A move of vertex i takes weights[i] out of the separator, and adds drawn[i], the weight of the neighbors that have
    to become part of the separator in place of i.
    """
    a, b = weights[i] - drawn[i], weights[j] - drawn[j]
    return bool(a > b or (a == b and i < j))


@compiled
def _sift(
    heap: NDArray[np.int32],
    place: NDArray[np.int32],
    used: int,
    i: int,
    position: int,
    weights: NDArray[np.int32],
    drawn: NDArray[np.int64],
) -> None:
    """Put vertex i where it belongs in the binary heap of the vertices that may leave the separator.

    First in the heap is the vertex whose move out of the separator makes the separator lightest (`_precedes`). The move
    of vertex i would take weights[i] out of the separator and add drawn[i], the weight of its neighbors. The search
    begins at `position`, which is free or has vertex i. The heap is the first `used` entries of `heap`, and place[i] is
    the position of vertex i in it; both arrays are changed in place.
    """
    while position > 0:
        above = (position - 1) // 2
        if not _precedes(weights, drawn, i, heap[above]):
            break
        heap[position] = heap[above]
        place[heap[position]] = position
        position = above
    while 2 * position + 1 < used:
        below = 2 * position + 1
        if below + 1 < used and _precedes(weights, drawn, heap[below + 1], heap[below]):
            below += 1
        if not _precedes(weights, drawn, heap[below], i):
            break
        heap[position] = heap[below]
        place[heap[position]] = position
        position = below
    heap[position] = i
    place[i] = position


def nested_dissection(start: NDArray[np.int64], adjacent: NDArray[np.int32], seed: int) -> NDArray[np.int32]:
    """Return an elimination order (n,) of the vertices of an undirected graph by nested dissection.

    The neighbors of vertex i are adjacent[start[i]:start[i + 1]], without repetitions and without i. Different values
    of `seed` give different orders, some of which make a factorization cheaper.
    """
    leaf = max(_MAX_LEAF_VERTICES, (len(start) - 1) // _LEAF_SHARE)
    return minimum_degree(start, adjacent, dissect(start, adjacent, leaf, seed))


@compiled
def dissect(start: NDArray[np.int64], adjacent: NDArray[np.int32], leaf: int, seed: int) -> NDArray[np.int32]:
    """Cut a graph by separators (small sets of vertices), and return the group number (n,) of each vertex.

    Groups are to be eliminated in ascending order. A group is a separator, or a part that is not cut any further
    because it has at most `leaf` vertices or because no separator was found. The neighbors of vertex i are
    adjacent[start[i]:start[i + 1]].
    """
    n = len(start) - 1
    group = np.zeros(n, np.int32)
    members, local = np.empty(n, np.int32), np.full(n, -1, np.int32)
    for i in range(n):
        members[i] = i
    # The parts that are still to be cut. A part is a range of `members`, first to last - 1. A cut divides this range
    # into three: one side, the other side, and last the separator between them. A separator is a group, and so is a
    # part that is not cut any further. A group's number is the end of its range, so that a separator has a larger
    # number than all groups in the two sides.
    stack = np.empty((n + 1, 2), np.int64)
    stack[0, 0], stack[0, 1] = 0, n
    depth = 1
    stream = int(seed) << 20
    while depth > 0:
        depth -= 1
        first, last = stack[depth, 0], stack[depth, 1]
        count = last - first
        if count <= leaf:
            for position in range(first, last):
                group[members[position]] = last
            continue
        vertices = members[first:last].copy()
        graph = _subgraph(start, adjacent, vertices, local)
        label, cost = separator(graph, stream << 40)
        stream += 1
        for _ in range(_FURTHER if count >= _LARGE and cost * _SHARE >= count << 10 else 0):
            other, its_cost = separator(graph, stream << 40)
            stream += 1
            if its_cost < cost:
                label, cost = other, its_cost
        sizes, place = np.zeros(3, np.int64), np.empty(3, np.int64)
        for i in range(count):
            sizes[label[i]] += 1
        if sizes[0] == 0 or sizes[1] == 0:  # no separator was found that leaves vertices on both sides
            for position in range(first, last):
                group[members[position]] = last
            continue
        place[0], place[1], place[2] = first, first + sizes[0], first + sizes[0] + sizes[1]
        for i in range(count):
            members[place[label[i]]] = vertices[i]
            place[label[i]] += 1
            if label[i] == SEPARATOR_LABEL:
                group[vertices[i]] = last
        stack[depth, 0], stack[depth, 1] = first, first + sizes[0]
        stack[depth + 1, 0], stack[depth + 1, 1] = first + sizes[0], first + sizes[0] + sizes[1]
        depth += 2
    return group


@compiled
def _subgraph(
    start: NDArray[np.int64], adjacent: NDArray[np.int32], vertices: NDArray[np.int32], local: NDArray[np.int32]
) -> Graph:
    """Return the subgraph of the vertices `vertices` and of the edges between them, with all weights 1.

    Vertex j of the subgraph is vertex vertices[j] of the graph, whose vertex i has the neighbors
    adjacent[start[i]:start[i + 1]]. `local` (n,) is scratch memory, filled with -1 before and after the call.
    """
    count = len(vertices)
    size = 0
    for i in range(count):
        local[vertices[i]] = i
        size += start[vertices[i] + 1] - start[vertices[i]]
    begin = np.zeros(count + 1, np.int64)
    inner = np.empty(size, np.int32)
    used = 0
    for i in range(count):
        for e in range(start[vertices[i]], start[vertices[i] + 1]):
            j = local[adjacent[e]]
            if j != -1:
                inner[used] = j
                used += 1
        begin[i + 1] = used
    for i in range(count):
        local[vertices[i]] = -1
    return Graph(begin, inner[:used].copy(), np.ones(used, np.int32), np.ones(count, np.int32))
