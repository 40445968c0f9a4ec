r"""What all factorisations on one kNN pattern share: the symbolic part of a multifrontal LU.

The pattern of :math:`B + B^T`, B = I - W, in a fill-reducing order has an elimination tree (Liu 1990). Columns with the
same rows below them are one *supernode*: s columns, a dense s x s diagonal block, and r rows below it. Small ones are
merged with their parents where that stores few explicit zeros (relaxed amalgamation, Ashcraft and Grimes 1989). A
supernode's *front* holds its columns and rows; what is left of it after its s columns are eliminated, its r x r
*contribution block*, is added to its parent's front (Duff and Reid 1983).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from glle_engine.lanes.compiled import compiled
from glle_engine.lanes.kernels import WIDEST

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Merge with the parent while at most this share of the stored values is zeros, up to this width.
_RELAXED = ((4, 0.3), (8, 0.1))


class Structure(NamedTuple):
    """The shared structure of all factorisations on a pattern of n points with k neighbours, in S supernodes.

    Everything is in the order of elimination: *position* j of the matrix is point ``order[j]``.

    Attributes
    ----------
    order, position : (n,) int32
        The order of elimination and its inverse.
    neighbors : (n, k) int32
        Positions of the neighbours of the point at each position.
    first : (S + 1,) int32
        The first column of each supernode.
    row_start : (S + 1,) int64
        Where a supernode's rows begin in `rows`.
    rows : (R,) int32
        Positions of the rows below each supernode, ascending.
    place : (R,) int32
        Where each of these rows is in the front of the parent.
    parent, child, sibling : (S,) int32
        The parent, the first child of each supernode and the next child of its parent; -1 where there is none.
    visits : (2 S,) int32
        The way through the tree that every pair of solves takes: a supernode, when it is entered from above, and
        ``~`` it, when it is left with all below it done.
    lower_start, upper_start : (S,) int64
        Where a supernode's part of L and U begins, in values, in the order of entering.
    lower_size, upper_size : int
        The length of L and U.
    block_start : (S,) int64
        Where its contribution block lies in a scratch area that blocks share in turn.
    block_size : int
        The length of that area.
    entry_start : (3 S + 1,) int64
        Where a supernode's matrix entries begin in the next two: those of its diagonal block, of L and of U^T.
    entry_source : (nk,) int32
        Which weight, position * k + j.
    entry_target : (nk,) int32
        Where in that part, by rows.

    """

    order: NDArray[np.int32]
    position: NDArray[np.int32]
    neighbors: NDArray[np.int32]
    first: NDArray[np.int32]
    row_start: NDArray[np.int64]
    rows: NDArray[np.int32]
    place: NDArray[np.int32]
    parent: NDArray[np.int32]
    child: NDArray[np.int32]
    sibling: NDArray[np.int32]
    visits: NDArray[np.int32]
    lower_start: NDArray[np.int64]
    upper_start: NDArray[np.int64]
    lower_size: int
    upper_size: int
    block_start: NDArray[np.int64]
    block_size: int
    entry_start: NDArray[np.int64]
    entry_source: NDArray[np.int32]
    entry_target: NDArray[np.int32]


def analyse(neighbors: NDArray[np.int32], order: NDArray[np.int32]) -> Structure:
    """Return the structure of the factorisations of B on a pattern.

    Parameters
    ----------
    neighbors : (n, k) int32
    order : (n,) int32
        A fill-reducing order: position j is point ``order[j]``. The structure's own order differs from it by a
        postorder of the elimination tree, which fills alike.

    """
    n = len(order)
    start, adjacent = _symmetric(_permuted(neighbors, order))
    post = _postorder(_elimination_tree(start, adjacent))
    order = order[post]
    position = np.empty(n, np.int32)
    position[order] = np.arange(n, dtype=np.int32)
    permuted = _permuted(neighbors, order)
    start, adjacent = _symmetric(permuted)
    tree = _elimination_tree(start, adjacent)
    first = _supernodes(tree, _column_counts(tree, start, adjacent))
    row_start, rows, parent = _rows_below(first, start, adjacent)
    owner = np.repeat(np.arange(len(parent)), np.diff(row_start))
    rows = (np.sort(owner * n + rows) - owner * n).astype(np.int32)
    place, child, sibling = _places(first, row_start, rows, parent)
    width, below = np.diff(first).astype(np.int64), np.diff(row_start)
    visits = _visits(parent, child, sibling)
    entered = visits[visits >= 0]
    lower_start, lower_size = _laid_out(width * (width - 1) // 2 + width * below, entered)
    upper_start, upper_size = _laid_out(width * (width + 1) // 2 + width * below, entered)
    block_start, block_size = _plan_blocks(below, child, sibling)
    entry_start, source, target = _entries(permuted, first, row_start, rows)
    return Structure(
        order,
        position,
        permuted,
        first,
        row_start,
        rows,
        place,
        parent,
        child,
        sibling,
        visits,
        lower_start,
        upper_start,
        lower_size,
        upper_size,
        block_start,
        int(block_size),
        entry_start,
        source,
        target,
    )


def _permuted(neighbors: NDArray[np.int32], order: NDArray[np.int32]) -> NDArray[np.int32]:
    position = np.empty(len(order), np.int32)
    position[order] = np.arange(len(order), dtype=np.int32)
    return position[neighbors[order]]


def _laid_out(sizes: NDArray[np.int64], entered: NDArray[np.int32]) -> tuple[NDArray[np.int64], int]:
    """Return where each part begins when they lie one after the other in the order of entering."""
    start = np.empty(len(sizes), np.int64)
    ends = np.cumsum(sizes[entered])
    start[entered] = ends - sizes[entered]
    return start, int(ends[-1])


@compiled
def _symmetric(neighbors: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the adjacency of B + B^T, row by row; mutual neighbours are in it twice."""
    n, k = neighbors.shape
    start = np.zeros(n + 1, np.int64)
    for i in range(n):
        start[i + 1] += k
        for j in range(k):
            start[neighbors[i, j] + 1] += 1
    for i in range(n):
        start[i + 1] += start[i]
    fill = start[:-1].copy()
    adjacent = np.empty(start[n], np.int32)
    for i in range(n):
        for j in range(k):
            other = neighbors[i, j]
            adjacent[fill[i]] = other
            adjacent[fill[other]] = i
            fill[i] += 1
            fill[other] += 1
    return start, adjacent


@compiled
def _elimination_tree(start: NDArray[np.int64], adjacent: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return each column's parent, -1 for roots (Liu 1986, with path compression)."""
    n = len(start) - 1
    parent = np.full(n, -1, np.int32)
    ancestor = np.full(n, -1, np.int32)
    for i in range(n):
        for e in range(start[i], start[i + 1]):
            j = adjacent[e]
            while j < i and j != -1:
                above = ancestor[j]
                ancestor[j] = i
                if above == -1:
                    parent[j] = i
                    break
                if above == i:
                    break
                j = above
    return parent


@compiled
def _postorder(parent: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the columns so that every subtree is contiguous and ends with its root."""
    n = len(parent)
    head = np.full(n + 1, -1, np.int32)
    following = np.full(n, -1, np.int32)
    for i in range(n - 1, -1, -1):
        above = parent[i] if parent[i] >= 0 else n
        following[i] = head[above]
        head[above] = i
    order = np.empty(n, np.int32)
    stack = np.empty(n + 1, np.int32)
    stack[0] = n
    depth, done = 1, 0
    while depth > 0:
        node = stack[depth - 1]
        below = head[node]
        if below == -1:
            depth -= 1
            if node < n:
                order[done] = node
                done += 1
        else:
            head[node] = following[below]
            stack[depth] = below
            depth += 1
    return order


@compiled
def _column_counts(
    parent: NDArray[np.int32], start: NDArray[np.int64], adjacent: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Return how many rows each column of L has, its diagonal included."""
    n = len(parent)
    count = np.ones(n, np.int32)
    seen = np.full(n, -1, np.int32)
    for i in range(n):
        seen[i] = i
        for e in range(start[i], start[i + 1]):
            j = adjacent[e]
            while j < i and seen[j] != i:
                seen[j] = i
                count[j] += 1
                j = parent[j]
    return count


@compiled
def _supernodes(parent: NDArray[np.int32], count: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the first column of each supernode, and n: fundamental ones first, then merged and cut."""
    n = len(parent)
    first = np.empty(n + 1, np.int64)
    nodes = 0
    for column in range(n):
        alike = column > 0 and parent[column - 1] == column and count[column - 1] == count[column] + 1
        if alike and column - first[nodes - 1] < WIDEST:
            continue
        first[nodes] = column
        nodes += 1
    # A stack of supernodes, merged from the left as long as the last one's parent is the newcomer.
    kept, kept_zeros = np.empty(n + 1, np.int64), np.zeros(n + 1, np.int64)
    depth = 0
    for node in range(nodes):
        begin = first[node]
        end = first[node + 1] if node + 1 < nodes else n
        mine = 0
        below = count[end - 1] - 1
        while depth > 0 and parent[begin - 1] >= begin and parent[begin - 1] < end:
            left = kept[depth - 1]
            width = end - left
            # Columns of the left one get the rows of the merged one: its own are a subset of them.
            rows_left = count[begin - 1] - 1
            more = (begin - left) * ((end - begin) + below - rows_left) + kept_zeros[depth - 1] + mine
            stored = width * (width + 1) // 2 + width * below
            merge = more == 0 and width <= WIDEST
            for bound, share in _RELAXED:
                if width <= bound:
                    merge = merge or more <= share * stored
                    break
            if not merge:
                break
            depth -= 1
            begin, mine = left, more
        kept[depth], kept_zeros[depth] = begin, mine
        depth += 1
    result = np.empty(depth + 1, np.int32)
    for node in range(depth):
        result[node] = kept[node]
    result[depth] = n
    return result


@compiled
def _rows_below(
    first: NDArray[np.int32], start: NDArray[np.int64], adjacent: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Return the rows below each supernode, in no order, and each supernode's parent."""
    nodes, n = len(first) - 1, len(start) - 1
    owner = np.empty(n, np.int32)
    for node in range(nodes):
        for column in range(first[node], first[node + 1]):
            owner[column] = node
    row_start = np.zeros(nodes + 1, np.int64)
    rows = np.empty(16 * n, np.int32)
    parent = np.full(nodes, -1, np.int32)
    head = np.full(nodes, -1, np.int32)
    following = np.full(nodes, -1, np.int32)
    seen = np.full(n, -1, np.int32)
    for node in range(nodes):
        end = first[node + 1]
        at, least = row_start[node], n
        if at + n > len(rows):
            longer = np.empty(2 * len(rows) + n, np.int32)
            for e in range(at):
                longer[e] = rows[e]
            rows = longer
        for column in range(first[node], end):
            for e in range(start[column], start[column + 1]):
                row = adjacent[e]
                if row >= end and seen[row] != node:
                    seen[row] = node
                    rows[at] = row
                    at += 1
                    least = min(least, row)
        below = head[node]
        while below != -1:
            for e in range(row_start[below], row_start[below + 1]):
                row = rows[e]
                if row >= end and seen[row] != node:
                    seen[row] = node
                    rows[at] = row
                    at += 1
                    least = min(least, row)
            below = following[below]
        row_start[node + 1] = at
        if least < n:
            above = owner[least]
            parent[node] = above
            following[node] = head[above]
            head[above] = node
    return row_start, rows[: row_start[nodes]], parent


@compiled
def _places(
    first: NDArray[np.int32], row_start: NDArray[np.int64], rows: NDArray[np.int32], parent: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """Return each row's place in the parent's front, and the children as lists."""
    nodes, n = len(parent), first[-1]
    place = np.full(len(rows), -1, np.int32)
    child, sibling = np.full(nodes, -1, np.int32), np.full(nodes, -1, np.int32)
    for node in range(nodes - 1, -1, -1):
        above = parent[node]
        if above >= 0:
            sibling[node] = child[above]
            child[above] = node
    where = np.empty(n, np.int32)
    for node in range(nodes):
        if child[node] == -1:
            continue
        begin, end = first[node], first[node + 1]
        for column in range(begin, end):
            where[column] = column - begin
        for e in range(row_start[node], row_start[node + 1]):
            where[rows[e]] = end - begin + e - row_start[node]
        below = child[node]
        while below != -1:
            for e in range(row_start[below], row_start[below + 1]):
                place[e] = where[rows[e]]
            below = sibling[below]
    return place, child, sibling


@compiled
def _visits(parent: NDArray[np.int32], child: NDArray[np.int32], sibling: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the depth-first walk, each supernode entered and left."""
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
def _plan_blocks(
    below: NDArray[np.int64], child: NDArray[np.int32], sibling: NDArray[np.int32]
) -> tuple[NDArray[np.int64], int]:
    """Lay out the contribution blocks: each at the lowest address that is free while it and its sources live."""
    nodes = len(below)
    at = np.zeros(nodes, np.int64)
    live = np.empty(nodes, np.int64)  # ascending by address
    count, highest = 0, 0
    for node in range(nodes):
        size = below[node] * below[node]
        free, slot = 0, 0
        while slot < count and at[live[slot]] - free < size:
            free = at[live[slot]] + below[live[slot]] ** 2
            slot += 1
        at[node] = free
        highest = max(highest, free + size)
        # The children's blocks are added to this one, then they are dead.
        kept = 0
        passed = False
        fresh = np.empty(count, np.int64)
        for i in range(count):
            fresh[i] = live[i]
        for i in range(len(fresh) + 1):
            if i == slot and size > 0 and not passed:
                live[kept] = node
                kept += 1
                passed = True
            if i < len(fresh):
                dead = False
                below_ = child[node]
                while below_ != -1:
                    dead = dead or below_ == fresh[i]
                    below_ = sibling[below_]
                if not dead:
                    live[kept] = fresh[i]
                    kept += 1
        count = kept
    return at, highest


@compiled
def _entries(
    neighbors: NDArray[np.int32], first: NDArray[np.int32], row_start: NDArray[np.int64], rows: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Return which weight goes where in which front."""
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
    """Return which part of which front entry (i, j) is in: 3 node + (diagonal block, L, U^T)."""
    if owner[i] == owner[j]:
        return 3 * int(owner[i])
    return 3 * int(owner[j]) + 1 if i > j else 3 * int(owner[i]) + 2
