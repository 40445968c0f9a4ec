r"""Sparse LU factors of the matrices of several draws at once, by a multifrontal method without pivoting.

The matrices :math:`B' = I - W + e_i e_i^T = L U`, with L unit lower triangular, have one sparsity pattern
(`glle_engine.eigen.batched.structure`). A *front* is the dense matrix in which a range of columns is eliminated. For
each front, in postorder: assemble it from the matrix and the children's contribution blocks, factor its diagonal block
:math:`D = L_D U_D`, form :math:`L = A_{21} U_D^{-1}` and :math:`U^T = (L_D^{-1} A_{12})^T`, and leave the contribution
block :math:`C = \sum C_\mathrm{child} - L U` for the parent front. The columns of a front are divided into *supernodes*
of at most 8 columns, which are eliminated one after another.

Without pivoting, nothing bounds the growth of the factors. The acceptance test of `glle_engine.eigen.batched.solver`
detects its effect.

The entries of a supernode with s columns and r rows below them are stored in the order in which they are read. `lower`
has the columns of :math:`L_D` below its diagonal, and then L (r x s, by rows). `upper` has the columns of :math:`U_D`,
each with the reciprocal of its pivot at the end, and then U^T (r x s, by rows).

A front with several supernodes has *indices*, which number its columns and then the rows below them. Supernode s has
the columns from begin[s] to end[s] - 1, and row i of its rows of L and U^T is front index end[s] + i. Before a
supernode is eliminated, the products L U of all earlier supernodes of the front are subtracted from it. After the last
one, the products of all supernodes are subtracted from the contribution block (`glle_engine.eigen.batched.kernels`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.eigen.batched.elimination import MAX_SUPERNODE_COLUMNS, MAX_SUPERNODES_PER_FRONT
from glle_engine.eigen.batched.kernels import ROOM, factor_triangles, multiply, multiply_add, solve_panels, subtract
from glle_engine.eigen.batched.structure import addresses
from glle_engine.linalg.compiled import compiled
from glle_engine.linalg.vectors import address, advance, fill, load, store

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.eigen.batched.structure import Addresses
    from glle_engine.linalg.vectors import Address

_CORNER = MAX_SUPERNODE_COLUMNS * MAX_SUPERNODE_COLUMNS  # entries reserved for the diagonal block of a supernode
_CORNERS = MAX_SUPERNODES_PER_FRONT * _CORNER
SCRATCH = _CORNERS + ROOM  # vectors that `factorize` needs for the diagonal blocks of a front and for `subtract`


@compiled
def factorize(
    tag: tuple[int, ...],
    words: NDArray[np.int64],
    weights: NDArray[np.float64],
    pins: NDArray[np.int32],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    blocks: NDArray[np.float64],
    scratch: NDArray[np.float64],
) -> None:
    """Factor the matrix B' = I - W + e_i e_i^T of each draw of a batch, and overwrite `lower` and `upper`.

    Parameters
    ----------
    tag : tuple of int
        Its length is the number of draws (lanes) whose matrices are factored at once.
    words : (20,) int64
        The symbolic factorization, as memory addresses from `glle_engine.eigen.batched.structure.packed_addresses`.
    weights : flat (n, k, lanes)
        The weights W, with points in the order of elimination.
    pins : (lanes,) int32
        The position i of the 1 that is added to the diagonal, for each draw; -1 for none.
    lower, upper : flat (lower_size, lanes) and (upper_size, lanes)
        Overwritten with the factors L and U.
    blocks : flat (block_size, lanes)
        Scratch memory for what the elimination of some columns leaves for later columns (contribution blocks).
    scratch : flat (SCRATCH, lanes)
        Scratch memory for diagonal blocks and for copies of rows of L and U.

    """
    tree = addresses(words)
    values, low_values, up_values = address(weights), address(lower), address(upper)
    contributions = address(blocks)
    diagonal, room = address(scratch), advance(tag, address(scratch), _CORNERS)
    panels = np.empty((4, MAX_SUPERNODES_PER_FRONT), np.int64)
    for front in range(tree.fronts):
        count = describe_front(tree, front, panels)
        width = panels[1, count - 1]
        below = tree.place_start[front + 1] - tree.place_start[front]
        for s in range(count):
            corner = advance(tag, diagonal, s * MAX_SUPERNODE_COLUMNS * MAX_SUPERNODE_COLUMNS)
            _scatter(
                tag, tree, tree.front[front] + s, width + below, panels, s, values, pins, corner, low_values, up_values
            )
        block, stride = advance(tag, contributions, tree.block_start[front]), tree.block_stride[front]
        has_heir = tree.heir[front] >= 0
        extend_panels(tag, tree, front, panels, count, diagonal, low_values, up_values, contributions)
        eliminate(tag, tree, front, width + below, panels, count, diagonal, low_values, up_values, room)
        if count > 1:
            subtract(
                tag,
                block,
                stride,
                int(has_heir),
                panels,
                count,
                low_values,
                2,
                width,
                width + below,
                up_values,
                3,
                width,
                width + below,
                room,
            )
        elif has_heir:
            multiply_add(
                tag,
                width,
                block,
                stride,
                advance(tag, low_values, panels[2, 0]),
                advance(tag, up_values, panels[3, 0]),
                below,
            )
        else:
            multiply(
                tag,
                width,
                block,
                stride,
                advance(tag, low_values, panels[2, 0]),
                advance(tag, up_values, panels[3, 0]),
                below,
            )
        _extend_block(tag, tree, front, width, contributions)


@compiled
def _scatter(
    tag: tuple[int, ...],
    tree: Addresses,
    node: int,
    size: int,
    panels: NDArray[np.int64],
    s: int,
    values: Address,
    pins: NDArray[np.int32],
    diagonal: Address,
    lower: Address,
    upper: Address,
) -> None:
    """Copy the entries of B' = I - W + e_i e_i^T that belong to one supernode to the blocks where it is factored.

    A front is the dense matrix in which a range of columns is eliminated, and its supernodes are narrower ranges. This
    front has `size` rows and columns. The supernode to copy is number `s` of the front, and number `node` of all
    supernodes in `tree`. Its blocks are the diagonal block, at the address `diagonal`, and its rows of L and U^T, in
    `lower` and `upper`, where they begin as `panels` says (from `describe_front`). Entries of the blocks that B' does
    not have become 0. `values` has the weights W, and `pins` the position i of each draw (-1 for none). The length of
    `tag` is the number of draws.
    """
    lanes = len(tag)
    zero, one = fill(tag, 0.0), fill(tag, 1.0)
    begin = tree.first[node]
    width = panels[1, s] - panels[0, s]
    low, up = panels[2, s], panels[3, s]
    for i in range(width * width):
        store(diagonal, i, zero)
    for i in range(width):
        store(diagonal, i * (width + 1), one)
    for i in range((size - panels[1, s]) * width):
        store(lower, low + i, zero)
        store(upper, up + i, zero)
    for lane in range(lanes):
        pin = pins[lane] - begin
        if 0 <= pin < width:
            diagonal[pin * (width + 1) * lanes + lane] += 1.0
    for e in range(tree.entry_start[3 * node], tree.entry_start[3 * node + 1]):
        store(diagonal, tree.entry_target[e], zero - load(tag, values, tree.entry_source[e]))
    for e in range(tree.entry_start[3 * node + 1], tree.entry_start[3 * node + 2]):
        store(lower, low + tree.entry_target[e], zero - load(tag, values, tree.entry_source[e]))
    for e in range(tree.entry_start[3 * node + 2], tree.entry_start[3 * node + 3]):
        store(upper, up + tree.entry_target[e], zero - load(tag, values, tree.entry_source[e]))


@compiled
def _extend_block(tag: tuple[int, ...], tree: Addresses, front: int, width: int, blocks: Address) -> None:
    """Add the contribution blocks of the child fronts to the contribution block of a front with `width` columns.

    A front is the dense matrix in which a range of columns is eliminated. Its contribution block, in `blocks`, is what
    the elimination leaves for the parent front. The block of one child, the heir, is left out: the front's block is a
    part of the heir's block, and contains the heir's values already. The length of `tag` is the number of draws.
    """
    mine, apart = tree.block_start[front], tree.block_stride[front]
    child = tree.child[front]
    while child != -1:
        if child == tree.heir[front]:
            child = tree.sibling[child]
            continue
        start = tree.place_start[child]
        size = tree.place_start[child + 1] - start
        block, stride = tree.block_start[child], tree.block_stride[child]
        inside = 0
        while inside < size and tree.place[start + inside] < width:
            inside += 1
        for i in range(inside, size):
            row = mine + (tree.place[start + i] - width) * apart - width
            for j in range(inside, size):
                index = row + tree.place[start + j]
                store(blocks, index, load(tag, blocks, index) + load(tag, blocks, block + i * stride + j))
        child = tree.sibling[child]


@compiled
def describe_front(tree: Addresses, front: int, panels: NDArray[np.int64]) -> int:
    """Write where the supernodes of a front lie to `panels` (4, supernodes), and return the number of supernodes.

    A front is the dense matrix in which a range of columns is eliminated, and its supernodes are narrower ranges. The
    four rows of `panels` are, for each supernode: its first column, the column after its last one, the index in the
    stored factor L at which its rows of L begin, and the index in the stored factor U at which its rows of U^T begin.
    Columns are counted from the first column of the front.
    """
    first, last = tree.front[front], tree.front[front + 1]
    origin = tree.first[first]
    for s in range(last - first):
        node = first + s
        width = tree.first[node + 1] - tree.first[node]
        panels[0, s] = tree.first[node] - origin
        panels[1, s] = tree.first[node + 1] - origin
        panels[2, s] = tree.lower_start[node] + width * (width - 1) // 2
        panels[3, s] = tree.upper_start[node] + width * (width + 1) // 2
    return int(last - first)


@compiled
def extend_panels(
    tag: tuple[int, ...],
    tree: Addresses,
    front: int,
    panels: NDArray[np.int64],
    count: int,
    diagonal: Address,
    lower: Address,
    upper: Address,
    blocks: Address,
) -> None:
    """Add the contribution blocks of the child fronts to a front with `count` supernodes (ranges of columns).

    A front is the dense matrix in which a range of columns is eliminated. The contribution block of a child, in
    `blocks`, is what the elimination of the child left for its parent. Only the part of the block that lies in the rows
    or columns that this front eliminates is added here: to the diagonal blocks of the supernodes, in `diagonal`, and to
    the front's rows of L (`lower`) and U^T (`upper`). `_extend_block` adds the rest after the elimination. `panels` is
    from `describe_front`. The length of `tag` is the number of draws.
    """
    child = tree.child[front]
    while child != -1:
        start = tree.place_start[child]
        size = tree.place_start[child + 1] - start
        block, stride = tree.block_start[child], tree.block_stride[child]
        s = 0
        for i in range(size):
            row = tree.place[start + i]
            while s < count and panels[1, s] <= row:
                s += 1
            source = block + i * stride
            j = 0
            for t in range(s):  # the supernodes above this row, whose entries belong to L
                begin, end = panels[0, t], panels[1, t]
                base = panels[2, t] + (row - end) * (end - begin) - begin
                while tree.place[start + j] < end:
                    index = base + tree.place[start + j]
                    store(lower, index, load(tag, lower, index) + load(tag, blocks, source + j))
                    j += 1
            if s == count:  # the row is below this front, and the rest of it belongs to the contribution block
                continue
            begin, end = panels[0, s], panels[1, s]
            width = end - begin
            base = s * _CORNER + (row - begin) * width - begin
            while j < size and tree.place[start + j] < end:
                index = base + tree.place[start + j]
                store(diagonal, index, load(tag, diagonal, index) + load(tag, blocks, source + j))
                j += 1
            base = panels[3, s] - end * width + row - begin
            while j < size:
                index = base + tree.place[start + j] * width
                store(upper, index, load(tag, upper, index) + load(tag, blocks, source + j))
                j += 1
        child = tree.sibling[child]


@compiled
def eliminate(
    tag: tuple[int, ...],
    tree: Addresses,
    front: int,
    size: int,
    panels: NDArray[np.int64],
    count: int,
    diagonal: Address,
    lower: Address,
    upper: Address,
    room: Address,
) -> None:
    """Compute the part of L and U that one front contributes, in place, one supernode after another.

    A front is the dense matrix in which a range of columns is eliminated, and its supernodes are narrower ranges. Front
    number `front` of `tree` has `size` rows and columns, and `count` supernodes, which lie where `panels` says (from
    `describe_front`). Before the call, `diagonal` has the diagonal blocks of the supernodes, and `lower` and `upper`
    have the entries of the matrix below and right of these blocks, with the children's contributions added. The call
    overwrites `lower` and `upper` with L and U. `room` is scratch memory for `subtract`. The length of `tag` is the
    number of draws.
    """
    for s in range(count):
        node = tree.front[front] + s
        begin, end = panels[0, s], panels[1, s]
        width = end - begin
        low, up = advance(tag, lower, panels[2, s]), advance(tag, upper, panels[3, s])
        corner = advance(tag, diagonal, s * _CORNER)
        if s > 0:
            subtract(tag, corner, width, 1, panels, s, lower, 2, begin, end, upper, 3, begin, end, room)
            subtract(tag, low, width, 1, panels, s, lower, 2, end, size, upper, 3, begin, end, room)
            subtract(tag, up, width, 1, panels, s, upper, 3, end, size, lower, 2, begin, end, room)
        triangle_low = advance(tag, lower, tree.lower_start[node])
        triangle_up = advance(tag, upper, tree.upper_start[node])
        factor_triangles(tag, width, corner, triangle_low, triangle_up)
        solve_panels(tag, width, low, up, size - end, triangle_low, triangle_up)
