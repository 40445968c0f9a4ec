"""Find which entries the LU factors of a sparse symmetric pattern have: elimination tree, fronts and supernodes.

In the elimination tree, the parent of a column is the first row below its diagonal with an entry in L (Liu 1990). A
*front* is a range of columns with nearly the same rows below them, which are stored as one dense matrix (Ashcraft and
Grimes 1989). A front is cut into *supernodes*, ranges of a few columns, which the numeric kernels keep in registers.
`glle_engine.eigen.batched.structure` explains how both are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.linalg.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_SUPERNODE_COLUMNS = 8  # a supernode has at most this many columns, which the numeric kernels keep in registers
MAX_SUPERNODES_PER_FRONT = 8  # a wider dense block (front) is cut, which bounds the scratch memory of the kernels
_WIDEST_FRONT = MAX_SUPERNODES_PER_FRONT * MAX_SUPERNODE_COLUMNS
_MIN_FRONT_COLUMNS = 24  # a front with fewer columns is faster if it is split into fronts of one supernode each
# (width, share): two fronts are merged if the merged front has at most `width` columns and at most this share of its
# stored values is zero. Narrow fronts may have a larger share of zeros.
_RELAXED = ((4, 0.3), (8, 0.1), (64, 0.03))


@compiled
def symmetric(neighbors: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the graph that has an undirected edge from each point to each of its k nearest neighbors.

    Its edges are the off-diagonal entries of B + B^T, where B = I - W has the weights W on the kNN graph `neighbors`
    (n, k). The graph is returned as `start` and `adjacent`: the neighbors of vertex i are
    adjacent[start[i]:start[i + 1]]. Where two points are nearest neighbors of each other, the edge is listed twice.
    """
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
            fill[i] += 1
            adjacent[fill[other]] = i
            fill[other] += 1
    return start, adjacent


@compiled
def elimination_tree(start: NDArray[np.int64], adjacent: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the parent (n,) of each column in the elimination tree of a graph; -1 for roots.

    The neighbors of vertex i are adjacent[start[i]:start[i + 1]]. The algorithm is Liu's (1986), with path compression.
    """
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
def postorder(parent: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the columns (n,) of an elimination tree in postorder: each subtree is contiguous and ends with its root.

    `parent` (n,) is the parent of each column, -1 for roots.
    """
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
def column_counts(
    parent: NDArray[np.int32], post: NDArray[np.int32], start: NDArray[np.int64], adjacent: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Return the number (n,) of nonzero entries in each column of L, its diagonal included, in nearly linear time.

    `parent` is the elimination tree of the graph, and `post` a postorder of the tree. The neighbors of vertex i are
    adjacent[start[i]:start[i + 1]]. The columns in which a row of L has entries form a subtree. The method counts the
    leaves of these subtrees, and subtracts the overlap of their paths (Gilbert, Ng and Peyton 1994, as in Davis 2006,
    section 4.5).
    """
    n = len(parent)
    first = np.full(n, -1, np.int32)  # the postorder number of each column's first descendant; -1 if not known yet
    # The columns in which row i of L has entries form a subtree of the elimination tree. The leaves of the subtree are
    # found one after another: leaf[i] is the last leaf so far (-1 if none), and latest[i] is first[leaf[i]] (or -1).
    latest, leaf = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    ancestor = np.empty(n, np.int32)
    count = np.zeros(n, np.int32)
    for i in range(n):
        ancestor[i] = i
    for position in range(n):
        j = post[position]
        count[j] = first[j] == -1
        while j != -1 and first[j] == -1:
            first[j] = position
            j = parent[j]
    for position in range(n):
        j = post[position]
        if parent[j] != -1:
            count[parent[j]] -= 1
        for e in range(start[j], start[j + 1]):
            i = adjacent[e]
            if i <= j or first[j] <= latest[i]:
                continue
            latest[i] = first[j]
            count[j] += 1
            before = leaf[i]
            leaf[i] = j
            if before != -1:
                common = before
                while common != ancestor[common]:
                    common = ancestor[common]
                while before != common:
                    above = ancestor[before]
                    ancestor[before] = common
                    before = above
                count[common] -= 1
        if parent[j] != -1:
            ancestor[j] = parent[j]
    for j in range(n):
        if parent[j] != -1:
            count[parent[j]] += count[j]
    return count


@compiled
def supernodes(parent: NDArray[np.int32], count: NDArray[np.int32]) -> NDArray[np.int32]:
    """Divide the columns of L into fronts, and return the first column of each front, followed by n.

    A front is a range of at most 64 columns with nearly the same rows below them. A small front is merged with its
    parent, at the cost of a few stored zeros. A front that still has fewer than 24 columns is cut into fronts of at
    most 8 columns. `parent` has the parent of each column in the elimination tree (-1 for roots), and `count` the
    number of entries in each column of L.
    """
    n = len(parent)
    first = np.empty(n + 1, np.int64)
    nodes = 0
    for column in range(n):
        alike = column > 0 and parent[column - 1] == column and count[column - 1] == count[column] + 1
        if alike and column - first[nodes - 1] < _WIDEST_FRONT:
            continue
        first[nodes] = column
        nodes += 1
    # `kept` is a stack of fronts, each given by its first column. The next front is merged with the front on top of the
    # stack as long as it is the parent of that front and the merged front stores few zeros.
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
            # The front on top of the stack has the columns `left` to begin - 1, and this front, which lies directly to
            # its right, has the columns `begin` to end - 1. Merging would give each column of the left front the same
            # rows: the end - begin rows of this front's columns, and the `below` rows below this front. The left front
            # has entries in only `rows_left` of these rows; the others would be stored zeros.
            rows_left = count[begin - 1] - 1
            zeros = (begin - left) * ((end - begin) + below - rows_left) + kept_zeros[depth - 1] + mine
            stored = width * (width + 1) // 2 + width * below
            merge = zeros == 0 and width <= _WIDEST_FRONT
            for bound, share in _RELAXED:
                if width <= bound:
                    merge = merge or zeros <= share * stored
                    break
            if not merge:
                break
            depth -= 1
            begin, mine = left, zeros
        kept[depth], kept_zeros[depth] = begin, mine
        depth += 1
    kept[depth] = n
    result = np.empty(n + 1, np.int32)
    fronts = 0
    for node in range(depth):
        width = kept[node + 1] - kept[node]
        parts = (width + MAX_SUPERNODE_COLUMNS - 1) // MAX_SUPERNODE_COLUMNS if width < _MIN_FRONT_COLUMNS else 1
        for part in range(parts):
            result[fronts] = kept[node] + part * width // parts
            fronts += 1
    result[fronts] = n
    return result[: fronts + 1].copy()


@compiled
def rows_below(
    first: NDArray[np.int32], start: NDArray[np.int64], adjacent: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Return the rows of L below each front, and the parent of each front in the tree of fronts.

    A front is a range of columns of L with nearly the same rows below them.

    Parameters
    ----------
    first : (F + 1,) int32
        The first column of each front, followed by n.
    start, adjacent
        The graph: the neighbors of vertex i are adjacent[start[i]:start[i + 1]].

    Returns
    -------
    row_start : (F + 1,) int64
        The rows below front f are rows[row_start[f]:row_start[f + 1]], in no particular order.
    rows : int32
    parent : (F,) int32
        -1 for roots.

    """
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
    last_node = np.full(n, -1, np.int32)
    for node in range(nodes):
        end = first[node + 1]
        end_of_rows, first_below = row_start[node], n
        if end_of_rows + n > len(rows):
            longer = np.empty(2 * len(rows) + n, np.int32)
            for e in range(end_of_rows):
                longer[e] = rows[e]
            rows = longer
        for column in range(first[node], end):
            for e in range(start[column], start[column + 1]):
                row = adjacent[e]
                if row >= end and last_node[row] != node:
                    last_node[row] = node
                    rows[end_of_rows] = row
                    end_of_rows += 1
                    first_below = min(first_below, row)
        below = head[node]
        while below != -1:
            for e in range(row_start[below], row_start[below + 1]):
                row = rows[e]
                if row >= end and last_node[row] != node:
                    last_node[row] = node
                    rows[end_of_rows] = row
                    end_of_rows += 1
                    first_below = min(first_below, row)
            below = following[below]
        row_start[node + 1] = end_of_rows
        if first_below < n:
            above = owner[first_below]
            parent[node] = above
            following[node] = head[above]
            head[above] = node
    return row_start, rows[: row_start[nodes]], parent


@compiled
def split_fronts(
    first: NDArray[np.int32], row_start: NDArray[np.int64], rows: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Cut each front into supernodes of nearly equal width, of at most `MAX_SUPERNODE_COLUMNS` columns each.

    A front is a range of columns of L with nearly the same rows below them, and its supernodes are narrower ranges.

    Parameters
    ----------
    first : (F + 1,) int32
        The first column of each front, followed by n.
    row_start, rows
        The rows below front f are rows[row_start[f]:row_start[f + 1]].

    Returns
    -------
    front : (F + 1,) int32
        The number of the first supernode of each front, followed by S.
    begin : (S + 1,) int32
        The first column of each supernode, followed by n.
    start : (S + 1,) int64
        The rows below supernode s are below[start[s]:start[s + 1]]: first the later columns of its front, then the rows
        below the front.
    below : int32
    parent : (S,) int32
        The parent of each supernode in the tree of supernodes; -1 for roots.

    """
    fronts, n = len(first) - 1, first[-1]
    front = np.zeros(fronts + 1, np.int32)
    size = 0
    for f in range(fronts):
        width = first[f + 1] - first[f]
        count = (width + MAX_SUPERNODE_COLUMNS - 1) // MAX_SUPERNODE_COLUMNS
        front[f + 1] = front[f] + count
        size += count * (width + row_start[f + 1] - row_start[f])
    nodes = front[fronts]
    begin = np.empty(nodes + 1, np.int32)
    start = np.zeros(nodes + 1, np.int64)
    below = np.empty(size, np.int32)
    parent = np.full(nodes, -1, np.int32)
    owner = np.empty(n, np.int32)
    used = 0
    for f in range(fronts):
        width = first[f + 1] - first[f]
        count = front[f + 1] - front[f]
        for piece in range(count):
            node = front[f] + piece
            begin[node] = first[f] + piece * width // count
            end = first[f] + (piece + 1) * width // count
            for column in range(begin[node], end):
                owner[column] = node
            for column in range(end, first[f + 1]):
                below[used] = column
                used += 1
            for e in range(row_start[f], row_start[f + 1]):
                below[used] = rows[e]
                used += 1
            start[node + 1] = used
    begin[nodes] = n
    for node in range(nodes):
        if start[node + 1] > start[node]:
            parent[node] = owner[below[start[node]]]
    return front, begin, start, below[:used].copy(), parent


@compiled
def children(parent: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the first child of each node of a tree, and the next sibling of each node; -1 for none.

    `parent` has the parent of each node, or -1. The children of a node are in ascending order.
    """
    nodes = len(parent)
    child, sibling = np.full(nodes, -1, np.int32), np.full(nodes, -1, np.int32)
    for node in range(nodes - 1, -1, -1):
        above = parent[node]
        if above >= 0:
            sibling[node] = child[above]
            child[above] = node
    return child, sibling


@compiled
def positions_in_parents(
    first: NDArray[np.int32],
    row_start: NDArray[np.int64],
    rows: NDArray[np.int32],
    child: NDArray[np.int32],
    sibling: NDArray[np.int32],
) -> NDArray[np.int32]:
    """Return where each row below a front stands in the parent front, which lists its columns and then its rows below.

    A front is a range of columns of L with nearly the same rows below them. Front f has the columns first[f] to
    first[f + 1] - 1, and rows[row_start[f]:row_start[f + 1]], ascending, are the rows below it. `child` and `sibling`
    are the tree of fronts, from `children`. Entry e of the result belongs to rows[e].
    """
    nodes, n = len(child), first[-1]
    place = np.full(len(rows), -1, np.int32)
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
    return place
