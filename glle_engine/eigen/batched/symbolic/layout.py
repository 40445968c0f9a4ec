"""Memory layout: the walk over the tree, the parts of L and U, contribution blocks, and the matrix entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.linalg.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray


def laid_out(sizes: NDArray[np.int64], entered: NDArray[np.int32]) -> tuple[NDArray[np.int64], int]:
    """Return the start of each part if the parts follow each other in the order of entering, and their total size."""
    start = np.empty(len(sizes), np.int64)
    ends = np.cumsum(sizes[entered])
    start[entered] = ends - sizes[entered]
    return start, int(ends[-1])


@compiled
def walk(parent: NDArray[np.int32], child: NDArray[np.int32], sibling: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the depth-first walk, in which each supernode is entered and left."""
    nodes = len(parent)
    visits = np.empty(2 * nodes, np.int32)
    following = child.copy()
    stack = np.empty(nodes + 1, np.int32)
    count = 0
    for root in range(nodes):
        if parent[root] >= 0:
            continue
        stack[0] = root
        depth = 1
        visits[count] = root
        count += 1
        while depth > 0:
            node = stack[depth - 1]
            below = following[node]
            if below == -1:
                visits[count] = ~node
                depth -= 1
            else:
                following[node] = sibling[below]
                visits[count] = below
                stack[depth] = below
                depth += 1
            count += 1
    return visits


@compiled
def heirs(
    width: NDArray[np.int64], below: NDArray[np.int64], child: NDArray[np.int32], sibling: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Return the child whose rows are the whole front, which has as many; -1 if there is none."""
    heir = np.full(len(width), -1, np.int32)
    for node in range(len(width)):
        candidate = child[node]
        while candidate != -1:
            if heir[node] == -1 and below[node] > 0 and below[candidate] == width[node] + below[node]:
                heir[node] = candidate
            candidate = sibling[candidate]
    return heir


@compiled
def plan_blocks(
    width: NDArray[np.int64],
    below: NDArray[np.int64],
    child: NDArray[np.int32],
    sibling: NDArray[np.int32],
    heir: NDArray[np.int32],
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Place each contribution block in the heir's, or at the lowest address that is free while its sources live."""
    nodes = len(below)
    at, stride = np.zeros(nodes, np.int64), below.copy()
    begin, end = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)  # of the room that a block lies in
    live = np.empty(nodes + 1, np.int64)  # ascending by address
    count, highest = 0, 0
    for node in range(nodes):
        own = heir[node]
        if own >= 0:
            begin[node], end[node], stride[node] = begin[own], end[own], stride[own]
            at[node] = at[own] + width[node] * (stride[own] + 1)
        else:
            size = below[node] * below[node]
            free, slot = 0, 0
            while slot < count and begin[live[slot]] - free < size:
                free = end[live[slot]]
                slot += 1
            at[node], begin[node], end[node] = free, free, free + size
            highest = max(highest, free + size)
            if size > 0:
                for i in range(count, slot, -1):
                    live[i] = live[i - 1]
                live[slot] = node
                count += 1
        # The children's blocks are added to this one, then they are dead.
        kept = 0
        for i in range(count):
            one = live[i]
            dead = False
            candidate = child[node]
            while candidate != -1:
                dead = dead or candidate == one
                candidate = sibling[candidate]
            if one == own:
                one, dead = node, False
            if not dead:
                live[kept] = one
                kept += 1
        count = kept
    return at, stride, highest


@compiled
def peak_blocks(width: NDArray[np.int64], below: NDArray[np.int64], parent: NDArray[np.int32]) -> int:
    """Return the peak size of the blocks of `plan_blocks` without the gaps between them, in one pass."""
    nodes = len(width)
    room = below * below
    heir = np.full(nodes, -1, np.int64)
    freed = np.zeros(nodes, np.int64)  # rooms of the children
    held, peak = 0, 0
    for node in range(nodes):
        own = heir[node]
        if own >= 0:
            room[node] = room[own]
        held += room[node]
        peak = max(peak, held - room[own] if own >= 0 else held)
        held -= freed[node]
        above = parent[node]
        if above >= 0:
            freed[above] += room[node]
            if heir[above] == -1 and below[above] > 0 and below[node] == width[above] + below[above]:
                heir[above] = node
    return peak


@compiled
def entries(
    neighbors: NDArray[np.int32], first: NDArray[np.int32], row_start: NDArray[np.int64], rows: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Return the source weight and the target in the front of each matrix entry."""
    n, k = neighbors.shape
    nodes = len(first) - 1
    owner = np.empty(n, np.int32)
    for node in range(nodes):
        for column in range(first[node], first[node + 1]):
            owner[column] = node
    start = np.zeros(3 * nodes + 1, np.int64)
    for i in range(n):
        for j in range(k):
            start[_part(owner, i, neighbors[i, j]) + 1] += 1
    for part in range(3 * nodes):
        start[part + 1] += start[part]
    fill = start[:-1].copy()
    source, target = np.empty(n * k, np.int32), np.empty(n * k, np.int32)
    for i in range(n):
        for j in range(k):
            part = _part(owner, i, neighbors[i, j])
            source[fill[part]] = i * k + j
            fill[part] += 1
    where = np.empty(n, np.int32)
    for node in range(nodes):
        begin, width = first[node], first[node + 1] - first[node]
        for e in range(row_start[node], row_start[node + 1]):
            where[rows[e]] = e - row_start[node]
        for e in range(start[3 * node], start[3 * node + 3]):
            i = source[e] // k
            j = neighbors[i, source[e] % k]
            if e < start[3 * node + 1]:
                target[e] = (i - begin) * width + j - begin
            elif e < start[3 * node + 2]:
                target[e] = where[i] * width + j - begin
            else:
                target[e] = where[j] * width + i - begin
    return start, source, target


@compiled
def _part(owner: NDArray[np.int32], i: int, j: int) -> int:
    """Return the part of the front of entry (i, j): 3 node + (diagonal block, L, U^T)."""
    if owner[i] == owner[j]:
        return 3 * int(owner[i])
    return 3 * int(owner[j]) + 1 if i > j else 3 * int(owner[i]) + 2
