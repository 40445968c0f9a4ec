"""Symbolic part of a multifrontal LU, shared by all factorisations on one kNN pattern.

The pattern of :math:`B + B^T`, B = I - W, in a fill-reducing order has an elimination tree (Liu 1990). Columns with
the same rows below them are one *supernode*: s columns, a dense s x s diagonal block, and r rows below it. Small ones
are merged with their parents if that stores few explicit zeros (relaxed amalgamation, Ashcraft and Grimes 1989). A
supernode's *front* holds its columns and rows. After the elimination of its s columns, the remaining r x r
*contribution block* is added to its parent's front (Duff and Reid 1983). A child whose rows are the whole front of its
parent is the parent's *heir*: the front is the child's block, overwritten in place.

A supernode in this sense can be wide. It is one front, whose contribution block is updated once, but its columns are
cut into *supernodes* of few columns, which fit registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from glle_engine.eigen.batched.symbolic.elimination import (
    children,
    column_counts,
    elimination_tree,
    pieces,
    places,
    postorder,
    rows_below,
    supernodes,
    symmetric,
)
from glle_engine.eigen.batched.symbolic.layout import entries, heirs, laid_out, peak_blocks, plan_blocks, walk

if TYPE_CHECKING:
    from numpy.typing import NDArray

GAPS = 1.5  # size of the area for contribution blocks, relative to its blocks; 1.2 to 1.45 in Gaussian data


class Structure(NamedTuple):
    """Structure of all factorisations on a pattern of n points with k neighbors, in S supernodes.

    Everything is in the order of elimination: *position* j of the matrix is point ``order[j]``.

    There are F fronts. The columns of a front are those of its supernodes, and its rows are those below the last one.

    Attributes
    ----------
    order, position : (n,) int32
        The order of elimination and its inverse.
    neighbors : (n, k) int32
        Positions of the neighbors of the point at each position.
    first : (S + 1,) int32
        The first column of each supernode.
    row_start : (S + 1,) int64
        The start of a supernode's rows in `rows`.
    rows : (R,) int32
        Positions of the rows below each supernode, ascending.
    parent : (S,) int32
        The parent of each supernode; -1 for none.
    front : (F + 1,) int32
        The first supernode of each front.
    place_start : (F + 1,) int64
        The start of a front's rows in `place`.
    place : int32
        The place of each of these rows in the front of the parent.
    child, sibling : (F,) int32
        The first child of each front and the next child of its parent; -1 for none.
    visits : (2 S,) int32
        Walk through the tree of every pair of solves: a supernode when it is entered from above, and ``~`` it
        when it is left with everything below it done.
    lower_start, upper_start : (S,) int64
        The start of a supernode's part of L and U, in values, in the order of entering.
    lower_size, upper_size : int
        The length of L and U.
    heir : (F,) int32
        The child whose contribution block is the front; -1 for none.
    block_start, block_stride : (F,) int64
        The start and the row stride of its contribution block in a scratch area that blocks share in turn.
    block_size : int
        The length of that area.
    entry_start : (3 S + 1,) int64
        The start of a supernode's matrix entries in the next two: those of its diagonal block, of L and of U^T.
    entry_source : (nk,) int32
        The weight, position * k + j.
    entry_target : (nk,) int32
        The place in that part, by rows.

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
    """Return columns and rows below of each front of `analyse`, and a `block_size`, without the rows of the fronts.

    The time and the memory are those of the pattern, whatever its fill.
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
    return width, below, int(GAPS * peak_blocks(width, below, above))


def analyse(neighbors: NDArray[np.int32], order: NDArray[np.int32]) -> Structure:
    """Return the structure of the factorisations of B on a pattern.

    Parameters
    ----------
    neighbors : (n, k) int32
    order : (n,) int32
        A fill-reducing order: position j is point ``order[j]``. The structure's order differs from it by a
        postorder of the elimination tree, which has the same fill.

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
    place = places(columns, place_start, bottom, child, sibling)
    width, below = np.diff(columns).astype(np.int64), np.diff(place_start)
    heir = heirs(width, below, child, sibling)
    block_start, block_stride, block_size = plan_blocks(width, below, child, sibling, heir)
    front, first, row_start, rows, parent = pieces(columns, place_start, bottom)
    width, below = np.diff(first).astype(np.int64), np.diff(row_start)
    visits = walk(parent, *children(parent))
    entered = visits[visits >= 0]
    lower_start, lower_size = laid_out(width * (width - 1) // 2 + width * below, entered)
    upper_start, upper_size = laid_out(width * (width + 1) // 2 + width * below, entered)
    entry_start, source, target = entries(moved, first, row_start, rows)
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
    """Return the neighbors (n, k) of a graph whose vertex j is order[j] of the given one."""
    position = np.empty(len(order), np.int32)
    position[order] = np.arange(len(order), dtype=np.int32)
    return position[neighbors[order]]
