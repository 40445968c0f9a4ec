"""Plan an LU factorization: which entries the factors have and where they are stored, for all weights on a kNN graph.

The pattern of :math:`B + B^T`, B = I - W, in a fill-reducing order has an elimination tree (Liu 1990). Columns with the
same rows below them are eliminated together in one dense matrix, their *front*: it has s columns to eliminate, and r
rows below their s x s diagonal block. Small fronts are merged with their parents if this stores few explicit zeros
(relaxed amalgamation, Ashcraft and Grimes 1989). After the s columns have been eliminated, the remaining r x r
*contribution block* is added to the front of the parent (Duff and Reid 1983). A child whose contribution block is as
large as the whole front of its parent is the parent's *heir*: the parent's front overwrites this block in place.

The columns of a front are cut into *supernodes*, ranges of so few columns that they fit in registers. (In the
literature, a supernode is the whole range of columns of a front.) Supernodes are eliminated one after another, but the
contribution block of the front is computed only once, for all of them.

This file also plans the memory layout: the walk over the tree, the parts of L and U, the contribution blocks, and the
matrix entries. Kernels pass the addresses of these arrays, without reference counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import types

from glle_engine.eigen.batched.elimination import (
    children,
    column_counts,
    elimination_tree,
    positions_in_parents,
    postorder,
    rows_below,
    split_fronts,
    supernodes,
    symmetric,
)
from glle_engine.linalg.compiled import compiled, instruction

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Gaps between the contribution blocks make their memory larger than their total size: 1.2 to 1.45 times for Gaussian
# data, so that predictions use this factor.
BLOCK_MEMORY_FACTOR = 1.5


class Addresses(NamedTuple):
    """Memory addresses of the arrays of a `Structure`, for kernels; each address is named like its array.

    `nodes` and `fronts` are the numbers of supernodes and of fronts.
    """

    nodes: int
    first: Any
    row_start: Any
    rows: Any
    parent: Any
    fronts: int
    front: Any
    place_start: Any
    place: Any
    child: Any
    sibling: Any
    visits: Any
    lower_start: Any
    upper_start: Any
    heir: Any
    block_start: Any
    block_stride: Any
    entry_start: Any
    entry_source: Any
    entry_target: Any


def packed_addresses(structure: Structure) -> NDArray[np.int64]:
    """Return the memory addresses of the structure's arrays as an array of integers, for kernels.

    In a kernel, `addresses` turns the integers into `Addresses`. The addresses are valid as long as the structure
    exists. Kernels get addresses because each would take seconds longer to compile with the arrays as arguments.
    """
    counts = {"nodes": len(structure.first) - 1, "fronts": len(structure.front) - 1}
    fields = Addresses._fields
    return np.array([counts[f] if f in counts else getattr(structure, f).ctypes.data for f in fields], np.int64)


@instruction
def addresses(typing: Any, packed: Any) -> Any:
    """In a kernel, turn the array of integers from `packed_addresses` into an `Addresses`, and return it."""
    kinds = [
        types.intp
        if field in {"nodes", "fronts"}
        else types.CPointer(types.int64 if field.endswith(("_start", "_stride")) else types.int32)
        for field in Addresses._fields
    ]
    result = types.NamedTuple(kinds, Addresses)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        numbers = [builder.load(builder.gep(data, [ir.Constant(ir.IntType(64), i)])) for i in range(len(kinds))]
        values = [
            builder.inttoptr(number, context.get_value_type(numba_type)) if numba_type != types.intp else number
            for number, numba_type in zip(numbers, kinds, strict=True)
        ]
        return context.make_tuple(builder, result, values)

    return result(packed), code


def part_starts(sizes: NDArray[np.int64], entered: NDArray[np.int32]) -> tuple[NDArray[np.int64], int]:
    """Return the index at which each supernode's entries of a factor (L or U) begin, and the total size of the factor.

    A supernode s, a range of columns, has sizes[s] entries. The supernodes are stored one after another, in the order
    in which `entered` lists them.
    """
    start = np.empty(len(sizes), np.int64)
    ends = np.cumsum(sizes[entered])
    start[entered] = ends - sizes[entered]
    return start, int(ends[-1])


@compiled
def walk(parent: NDArray[np.int32], child: NDArray[np.int32], sibling: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return a depth-first walk (2 S,) of the tree of S supernodes.

    The walk contains s where supernode s is entered, before its children, and ``~s`` where s is left, after its
    children. `parent`, `child` and `sibling` have the parent, first child and next sibling of each supernode, or -1.
    """
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
    """Return the heir of each front: a child whose contribution block the front overwrites in place; -1 for none.

    A front is the dense matrix in which a range of columns is eliminated. Front f has width[f] columns, and below[f]
    rows below them. Its contribution block, with below[f] rows and columns, is what the elimination leaves for the
    parent front. Child c can be the heir of front f if its block is as large as the whole front, which means
    below[c] = width[f] + below[f]. `child` and `sibling` have the first child and the next sibling of each front; -1
    for none.
    """
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
    """Assign scratch memory to the contribution block of each front, so that blocks reuse memory one after another.

    A contribution block is what the elimination of a front's columns leaves for the parent front. Returns the start
    index and the row stride of each block, and the size of the memory.

    A front with an heir, the child heir[front], overwrites the heir's block, so that the front's own block lies inside
    it. The block of a front without an heir (-1) begins at the lowest address at which it overlaps no block that is in
    use; the blocks of the front's children are still in use then.

    Front f has width[f] columns, and below[f] rows below them. `child` and `sibling` have the first child and the next
    sibling of each front; -1 for none.
    """
    nodes = len(below)
    block_start, stride = np.zeros(nodes, np.int64), below.copy()
    begin, end = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)  # the memory that is reserved for each block
    live = np.empty(nodes + 1, np.int64)  # the fronts whose blocks are in use, ascending by address
    count, highest = 0, 0
    for node in range(nodes):
        heir_of_node = heir[node]
        if heir_of_node >= 0:
            begin[node], end[node], stride[node] = begin[heir_of_node], end[heir_of_node], stride[heir_of_node]
            block_start[node] = block_start[heir_of_node] + width[node] * (stride[heir_of_node] + 1)
        else:
            size = below[node] * below[node]
            free, slot = 0, 0
            while slot < count and begin[live[slot]] - free < size:
                free = end[live[slot]]
                slot += 1
            block_start[node], begin[node], end[node] = free, free, free + size
            highest = max(highest, free + size)
            if size > 0:
                for i in range(count, slot, -1):
                    live[i] = live[i - 1]
                live[slot] = node
                count += 1
        # The blocks of the children are no longer needed once they have been added to this front's block.
        kept = 0
        for i in range(count):
            one = live[i]
            dead = False
            candidate = child[node]
            while candidate != -1:
                dead = dead or candidate == one
                candidate = sibling[candidate]
            if one == heir_of_node:
                one, dead = node, False
            if not dead:
                live[kept] = one
                kept += 1
        count = kept
    return block_start, stride, highest


@compiled
def peak_blocks(width: NDArray[np.int64], below: NDArray[np.int64], parent: NDArray[np.int32]) -> int:
    """Return the largest total size of the contribution blocks that are in use at the same time.

    A contribution block is what the elimination of a front's columns leaves for the parent front. Front f has width[f]
    columns, below[f] rows below them, and the parent parent[f] (-1 for none). `plan_blocks` assigns more memory,
    because there are gaps between the blocks; this lower bound is computed faster.
    """
    nodes = len(width)
    room = below * below
    heir = np.full(nodes, -1, np.int64)
    freed = np.zeros(nodes, np.int64)  # total size of the blocks of each front's children
    total, peak = 0, 0
    for node in range(nodes):
        heir_of_node = heir[node]
        if heir_of_node >= 0:
            room[node] = room[heir_of_node]
        total += room[node]
        peak = max(peak, total - room[heir_of_node] if heir_of_node >= 0 else total)
        total -= freed[node]
        above = parent[node]
        if above >= 0:
            freed[above] += room[node]
            if heir[above] == -1 and below[above] > 0 and below[node] == width[above] + below[above]:
                heir[above] = node
    return peak


@compiled
def entry_positions(
    neighbors: NDArray[np.int32], first: NDArray[np.int32], row_start: NDArray[np.int64], rows: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Return where the factorization puts each weight: `entry_start`, `entry_source` and `entry_target` of `Structure`.

    `neighbors`, `first`, `row_start` and `rows` are the arrays of a `Structure` with these names.
    """
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
    """Return the number of the part of the factors in which entry (i, j) of the matrix lies.

    Supernode s, a range of columns, has three parts: 3 s is its diagonal block, 3 s + 1 its rows of L below, and
    3 s + 2 its rows of U^T below. owner[i] is the supernode of column i.
    """
    if owner[i] == owner[j]:
        return 3 * int(owner[i])
    return 3 * int(owner[j]) + 1 if i > j else 3 * int(owner[i]) + 2


class Structure(NamedTuple):
    """Plan of all LU factorizations for one neighbor graph of n points with k neighbors: the symbolic factorization.

    Columns and rows are in the order of elimination: *position* j of the matrix is point ``order[j]``. The columns are
    divided into F ranges, each of which is eliminated in a dense matrix, its *front*. Each range is divided into
    *supernodes* of at most 8 columns, S in all. The columns of a supernode have the same rows below them. The rows
    below a front are the rows below its last supernode.

    Attributes
    ----------
    order, position : (n,) int32
        The order of elimination and its inverse.
    neighbors : (n, k) int32
        Positions of the neighbors of the point at each position.
    first : (S + 1,) int32
        The first column of each supernode, followed by n.
    row_start : (S + 1,) int64
        The rows below supernode s are rows[row_start[s]:row_start[s + 1]].
    rows : (R,) int32
        Positions of the rows below each supernode, ascending.
    parent : (S,) int32
        The parent of each supernode in the tree of supernodes; -1 for none.
    front : (F + 1,) int32
        The number of the first supernode of each front, followed by S.
    place_start : (F + 1,) int64
        The rows below front f have the entries place_start[f] to place_start[f + 1] - 1 of `place`.
    place : int32
        The index of each of these rows in the parent front, which lists its columns first, and then the rows below it.
    child, sibling : (F,) int32
        The first child of each front, and the next child of the front's parent; -1 for none.
    visits : (2 S,) int32
        The walk through the tree that every pair of solves takes. It contains s where supernode s is entered from
        above, and ``~s`` where s is left, after everything below it is done.
    lower_start, upper_start : (S,) int64
        The index at which the entries of each supernode start in the stored factors L and U. Supernodes are stored in
        the order in which `visits` enters them.
    lower_size, upper_size : int
        The number of stored entries of L and of U.
    heir : (F,) int32
        The child front whose contribution block this front overwrites in place; -1 for none. A contribution block is
        what the elimination of a front's columns leaves for the parent front.
    block_start, block_stride : (F,) int64
        The start and the row stride of each front's contribution block in a scratch area that blocks use in turn.
    block_size : int
        The length of this scratch area.
    entry_start : (3 S + 1,) int64
        Where the matrix entries of supernode s begin in `entry_source` and `entry_target`: entry_start[3 s] for its
        diagonal block, entry_start[3 s + 1] for L, and entry_start[3 s + 2] for U^T.
    entry_source : (nk,) int32
        Which weight becomes this entry: neighbor j of the point at position i has the number i * k + j.
    entry_target : (nk,) int32
        The index of this entry in the supernode's diagonal block, L or U^T, which are stored row by row.

    """

    order: NDArray[np.int32]
    position: NDArray[np.int32]
    neighbors: NDArray[np.int32]
    first: NDArray[np.int32]
    row_start: NDArray[np.int64]
    rows: NDArray[np.int32]
    parent: NDArray[np.int32]
    front: NDArray[np.int32]
    place_start: NDArray[np.int64]
    place: NDArray[np.int32]
    child: NDArray[np.int32]
    sibling: NDArray[np.int32]
    visits: NDArray[np.int32]
    lower_start: NDArray[np.int64]
    upper_start: NDArray[np.int64]
    lower_size: int
    upper_size: int
    heir: NDArray[np.int32]
    block_start: NDArray[np.int64]
    block_stride: NDArray[np.int64]
    block_size: int
    entry_start: NDArray[np.int64]
    entry_source: NDArray[np.int32]
    entry_target: NDArray[np.int32]


def front_sizes(
    neighbors: NDArray[np.int32], order: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Count the columns (F,) of each front and the rows (F,) below them, and estimate the memory for scratch blocks.

    A front is the dense matrix in which a range of columns is eliminated. The counts predict the costs of a draw;
    `analyze` computes the same fronts with their rows. Here, rows are only counted, so that time and memory depend only
    on the kNN graph (n, k) and the elimination `order`, however dense the factors are. The estimate is the `block_size`
    of `Structure`.
    """
    n = len(order)
    post = postorder(elimination_tree(*symmetric(_permute(neighbors, order))))
    start, adjacent = symmetric(_permute(neighbors, order[post]))
    parent = elimination_tree(start, adjacent)
    count = column_counts(parent, np.arange(n, dtype=np.int32), start, adjacent)
    first = supernodes(parent, count)
    last = first[1:] - 1
    width, below = np.diff(first).astype(np.int64), count[last].astype(np.int64) - 1
    owner = np.repeat(np.arange(len(width), dtype=np.int32), width)
    above = np.where(parent[last] < 0, np.int32(-1), owner[parent[last]])
    return width, below, int(BLOCK_MEMORY_FACTOR * peak_blocks(width, below, above))


def analyze(neighbors: NDArray[np.int32], order: NDArray[np.int32]) -> Structure:
    """Return the symbolic factorization for a kNN graph and an elimination order.

    Parameters
    ----------
    neighbors : (n, k) int32
    order : (n,) int32
        A fill-reducing order of elimination: position j is point ``order[j]``. The order of the result differs, but has
        the same fill: it is a postorder of the elimination tree.

    """
    n = len(order)
    start, adjacent = symmetric(_permute(neighbors, order))
    post = postorder(elimination_tree(start, adjacent))
    order = order[post]
    position = np.empty(n, np.int32)
    position[order] = np.arange(n, dtype=np.int32)
    moved = _permute(neighbors, order)
    start, adjacent = symmetric(moved)
    tree = elimination_tree(start, adjacent)
    columns = supernodes(tree, column_counts(tree, np.arange(n, dtype=np.int32), start, adjacent))
    place_start, bottom, above = rows_below(columns, start, adjacent)
    owner = np.repeat(np.arange(len(above)), np.diff(place_start))
    bottom = (np.sort(owner * n + bottom) - owner * n).astype(np.int32)
    child, sibling = children(above)
    place = positions_in_parents(columns, place_start, bottom, child, sibling)
    width, below = np.diff(columns).astype(np.int64), np.diff(place_start)
    heir = heirs(width, below, child, sibling)
    block_start, block_stride, block_size = plan_blocks(width, below, child, sibling, heir)
    front, first, row_start, rows, parent = split_fronts(columns, place_start, bottom)
    width, below = np.diff(first).astype(np.int64), np.diff(row_start)
    visits = walk(parent, *children(parent))
    entered = visits[visits >= 0]
    lower_start, lower_size = part_starts(width * (width - 1) // 2 + width * below, entered)
    upper_start, upper_size = part_starts(width * (width + 1) // 2 + width * below, entered)
    entry_start, source, target = entry_positions(moved, first, row_start, rows)
    return Structure(
        order,
        position,
        moved,
        first,
        row_start,
        rows,
        parent,
        front,
        place_start,
        place,
        child,
        sibling,
        visits,
        lower_start,
        upper_start,
        lower_size,
        upper_size,
        heir,
        block_start,
        block_stride,
        int(block_size),
        entry_start,
        source,
        target,
    )


def _permute(neighbors: NDArray[np.int32], order: NDArray[np.int32]) -> NDArray[np.int32]:
    """Renumber the points of a kNN graph (n, k), so that new point j is point order[j]; return the new neighbors."""
    position = np.empty(len(order), np.int32)
    position[order] = np.arange(len(order), dtype=np.int32)
    return position[neighbors[order]]
