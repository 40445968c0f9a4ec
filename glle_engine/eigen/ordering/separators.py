"""Vertex separators by a multilevel scheme (Karypis and Kumar 1998), refined as by Fiduccia and Mattheyses (1982)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.eigen.ordering.coarsening import contract, matching, random_word
from glle_engine.linalg.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.eigen.ordering.coarsening import Graph

SEPARATOR = 2  # the label of its vertices; those of the sides are 0 and 1
_COARSEST = 100  # vertices
_TRIALS = 8  # separators of the coarsest graph
_PASSES = 20
_PATIENCE, _MAX_PATIENCE = 5, 500  # moves without gain, for each vertex of the separator, and at most
_HEAVIER = 60  # percent of all weight, at most, for one side


@compiled
def separator(graph: Graph, seed: int) -> tuple[NDArray[np.int8], int]:
    """Return the label of each vertex, a side or the separator, and the cost; no edge joins the sides."""
    levels = [graph]
    maps = [np.empty(0, np.int32)]
    total = 0
    for i in range(len(graph.weights)):
        total += graph.weights[i]
    heaviest = max(2, 3 * total // (2 * _COARSEST))
    while len(levels[-1].weights) > _COARSEST:
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
    """Return the lightest of several separators, each around a region grown from a random vertex."""
    n = len(graph.weights)
    best = np.full(n, SEPARATOR, np.int8)
    lightest = -1
    queue = np.empty(n, np.int32)
    total = 0
    for i in range(n):
        total += graph.weights[i]
    for trial in range(_TRIALS):
        label = np.ones(n, np.int8)
        reached = np.zeros(n, np.bool_)
        begin, end = 0, 0
        grown = 0
        following = random_word(seed + trial) % n
        while 2 * grown < total:
            if begin == end:  # another component
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
                        label[i] = SEPARATOR
                        break
        weight = refine(graph, label)
        if lightest == -1 or weight < lightest:
            lightest = weight
            best[:] = label
    return best, lightest


@compiled
def refine(graph: Graph, label: NDArray[np.int8]) -> int:
    """Make a separator lighter in place, by moves of its vertices to one side in turn; return its cost.

    A move draws the vertex's neighbors on the other side into the separator. Of a pass of moves, also of bad ones, the
    best prefix is kept. All moves of a pass go to the same side, so that the separator advances.
    """
    n = len(graph.weights)
    side = np.zeros(3, np.int64)
    for i in range(n):
        side[label[i]] += graph.weights[i]
    limit = (side[0] + side[1] + side[2]) * _HEAVIER // 100
    drawn = np.zeros(n, np.int64)  # weight that a move would draw in
    heap, place = np.empty(n, np.int32), np.full(n, -1, np.int32)
    locked = np.zeros(n, np.bool_)
    moved = np.empty(n, np.int32)
    pulled, ends = np.empty(n + graph.start[n], np.int32), np.zeros(n + 1, np.int64)
    cost = _cost(side, limit)
    to = 0 if side[0] < side[1] else 1
    fruitless = 0
    for _ in range(_PASSES):
        away = 1 - to
        used = 0
        for i in range(n):
            if label[i] == SEPARATOR:
                used = _enter(graph, label, away, drawn, heap, place, used, i)
        patience = min(_PATIENCE * used + 10, _MAX_PATIENCE)
        moves, best, before = 0, 0, cost
        while moves - best < patience and used > 0 and side[to] + graph.weights[heap[0]] <= limit:
            i = heap[0]
            place[i] = -1
            used -= 1
            if used > 0:
                heap[0] = heap[used]
                _sift(heap, place, used, heap[0], 0, graph.weights, drawn)
            label[i] = to
            locked[i] = True
            side[SEPARATOR] -= graph.weights[i]
            side[to] += graph.weights[i]
            begin = ends[moves]
            end = begin
            for e in range(graph.start[i], graph.start[i + 1]):
                j = graph.adjacent[e]
                if label[j] == away:
                    label[j] = SEPARATOR
                    side[away] -= graph.weights[j]
                    side[SEPARATOR] += graph.weights[j]
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
                    side[SEPARATOR] -= graph.weights[pulled[p]]
                    side[away] += graph.weights[pulled[p]]
                label[i] = SEPARATOR
                side[to] -= graph.weights[i]
                side[SEPARATOR] += graph.weights[i]
        for at in range(used):
            place[heap[at]] = -1
        fruitless = 0 if cost < before else fruitless + 1
        if fruitless == 2:
            break
        to = away
    return cost


@compiled
def _cost(side: NDArray[np.int64], limit: int) -> int:
    """Return the weight of the separator, much more for a side that is too heavy; ties go to balance."""
    heavier = max(side[0], side[1])
    total = side[0] + side[1] + side[2]
    return int(1024 * side[SEPARATOR] + (1 << 20) * max(0, heavier - limit) + 1023 * heavier // total)


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
    """Put a vertex of the separator into the heap, and return its new size."""
    drawn[i] = 0
    for e in range(graph.start[i], graph.start[i + 1]):
        if label[graph.adjacent[e]] == away:
            drawn[i] += graph.weights[graph.adjacent[e]]
    _sift(heap, place, used + 1, i, used, graph.weights, drawn)
    return used + 1


@compiled
def _precedes(weights: NDArray[np.int32], drawn: NDArray[np.int64], i: int, j: int) -> bool:
    """Return whether a move of i gains more than one of j; ties go to the smaller number."""
    a, b = weights[i] - drawn[i], weights[j] - drawn[j]
    return bool(a > b or (a == b and i < j))


@compiled
def _sift(
    heap: NDArray[np.int32],
    place: NDArray[np.int32],
    used: int,
    i: int,
    at: int,
    weights: NDArray[np.int32],
    drawn: NDArray[np.int64],
) -> None:
    """Put i where it belongs in a heap of the best moves, given a free position."""
    while at > 0:
        above = (at - 1) // 2
        if not _precedes(weights, drawn, i, heap[above]):
            break
        heap[at] = heap[above]
        place[heap[at]] = at
        at = above
    while 2 * at + 1 < used:
        below = 2 * at + 1
        if below + 1 < used and _precedes(weights, drawn, heap[below + 1], heap[below]):
            below += 1
        if not _precedes(weights, drawn, heap[below], i):
            break
        heap[at] = heap[below]
        place[heap[at]] = at
        at = below
    heap[at] = i
    place[i] = at
