r"""LU of several matrices of one structure at once, one per lane: right-looking, multifrontal, without pivoting.

:math:`B' = I - W + e_i e_i^T = L U` with L unit lower triangular. Supernode by supernode in postorder:
assemble the front from the matrix and the children's contribution blocks, factor the diagonal block
:math:`D = L_D U_D`, form :math:`L = A_{21} U_D^{-1}` and :math:`U^T = (L_D^{-1} A_{12})^T`, and leave
:math:`C = \sum C_\mathrm{child} - L U`.

Without pivoting nothing bounds growth; the test of `glle_engine.eigen.batched.acceptance` detects its effect.

The parts of a supernode with s columns and r rows below are stored for streaming: in `lower` the columns of
:math:`L_D` below its diagonal and then L (r x s, by rows); in `upper` the columns of :math:`U_D`, each with the
reciprocal of its pivot at the end, and then U^T (r x s, by rows).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glle_engine.eigen.batched.numeric.kernels import factor_triangles, multiply, multiply_add, solve_panels
from glle_engine.eigen.batched.symbolic.addresses import addresses
from glle_engine.linalg.compiled import compiled
from glle_engine.linalg.vectors import address, fill, load, shifted, store

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from glle_engine.eigen.batched.symbolic.addresses import Addresses
    from glle_engine.eigen.batched.symbolic.structure import Structure
    from glle_engine.linalg.vectors import Address


@compiled
def factorise(
    tag: tuple[int, ...],
    structure: Structure,
    weights: NDArray[np.float64],
    pins: NDArray[np.int32],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    blocks: NDArray[np.float64],
    scratch: NDArray[np.float64],
) -> None:
    """Factor every lane's matrix.

    Parameters
    ----------
    tag
        As many numbers as there are lanes.
    structure : Structure
    weights : flat (n, k, lanes)
        In the order of elimination.
    pins : (lanes,) int32
        The position of the 1 that is added to each lane's diagonal; -1 for none.
    lower, upper : flat (lower_size, lanes) and (upper_size, lanes)
        Overwritten with the factors.
    blocks : flat (block_size, lanes)
        Scratch for contribution blocks.
    scratch : flat (64, lanes)
        For a diagonal block.

    """
    lanes = len(tag)
    tree = addresses(structure)
    values, low_values, up_values = address(weights), address(lower), address(upper)
    contributions = address(blocks)
    zero, one = fill(tag, 0.0), fill(tag, 1.0)
    diagonal = address(scratch)
    for node in range(tree.nodes):
        begin = tree.first[node]
        width = tree.first[node + 1] - begin
        below = tree.row_start[node + 1] - tree.row_start[node]
        corner = width * width
        low = tree.lower_start[node] + width * (width - 1) // 2
        up = tree.upper_start[node] + width * (width + 1) // 2
        for i in range(corner):
            store(diagonal, i, zero)
        for i in range(width):
            store(diagonal, i * (width + 1), one)
        for i in range(below * width):
            store(low_values, low + i, zero)
            store(up_values, up + i, zero)
        for lane in range(lanes):
            pin = pins[lane] - begin
            if 0 <= pin < width:
                diagonal[pin * (width + 1) * lanes + lane] += 1.0
        for e in range(tree.entry_start[3 * node], tree.entry_start[3 * node + 1]):
            store(diagonal, tree.entry_target[e], zero - load(tag, values, tree.entry_source[e]))
        for e in range(tree.entry_start[3 * node + 1], tree.entry_start[3 * node + 2]):
            store(low_values, low + tree.entry_target[e], zero - load(tag, values, tree.entry_source[e]))
        for e in range(tree.entry_start[3 * node + 2], tree.entry_start[3 * node + 3]):
            store(up_values, up + tree.entry_target[e], zero - load(tag, values, tree.entry_source[e]))
        _extend_panels(tag, tree, node, width, diagonal, low_values, low, up_values, up, contributions)
        triangle_low = shifted(tag, low_values, tree.lower_start[node])
        triangle_up = shifted(tag, up_values, tree.upper_start[node])
        panel_low, panel_up = shifted(tag, low_values, low), shifted(tag, up_values, up)
        factor_triangles(width, tag, diagonal, triangle_low, triangle_up)
        solve_panels(width, tag, panel_low, panel_up, below, triangle_low, triangle_up)
        block, stride = shifted(tag, contributions, tree.block_start[node]), tree.block_stride[node]
        if tree.heir[node] >= 0:
            multiply_add(width, tag, block, stride, panel_low, panel_up, below)
        else:
            multiply(width, tag, block, stride, panel_low, panel_up, below)
        _extend_block(tag, tree, node, width, contributions)


@compiled
def _extend_panels(
    tag: tuple[int, ...],
    tree: Addresses,
    node: int,
    width: int,
    diagonal: Address,
    lower: Address,
    low: int,
    upper: Address,
    up: int,
    blocks: Address,
) -> None:
    """Add the children's contribution blocks to the columns and rows of this elimination."""
    child = tree.child[node]
    while child != -1:
        start = tree.row_start[child]
        size = tree.row_start[child + 1] - start
        block, stride = tree.block_start[child], tree.block_stride[child]
        inside = 0
        while inside < size and tree.place[start + inside] < width:
            inside += 1
        for i in range(inside):
            row = tree.place[start + i]
            for j in range(inside):
                at = row * width + tree.place[start + j]
                store(diagonal, at, load(tag, diagonal, at) + load(tag, blocks, block + i * stride + j))
            for j in range(inside, size):
                at = up + (tree.place[start + j] - width) * width + row
                store(upper, at, load(tag, upper, at) + load(tag, blocks, block + i * stride + j))
        for i in range(inside, size):
            row = low + (tree.place[start + i] - width) * width
            for j in range(inside):
                at = row + tree.place[start + j]
                store(lower, at, load(tag, lower, at) + load(tag, blocks, block + i * stride + j))
        child = tree.sibling[child]


@compiled
def _extend_block(tag: tuple[int, ...], tree: Addresses, node: int, width: int, blocks: Address) -> None:
    """Add the rest of the children's contribution blocks to this one, the heir's excepted."""
    mine, apart = tree.block_start[node], tree.block_stride[node]
    child = tree.child[node]
    while child != -1:
        if child == tree.heir[node]:
            child = tree.sibling[child]
            continue
        start = tree.row_start[child]
        size = tree.row_start[child + 1] - start
        block, stride = tree.block_start[child], tree.block_stride[child]
        inside = 0
        while inside < size and tree.place[start + inside] < width:
            inside += 1
        for i in range(inside, size):
            row = mine + (tree.place[start + i] - width) * apart - width
            for j in range(inside, size):
                at = row + tree.place[start + j]
                store(blocks, at, load(tag, blocks, at) + load(tag, blocks, block + i * stride + j))
        child = tree.sibling[child]
