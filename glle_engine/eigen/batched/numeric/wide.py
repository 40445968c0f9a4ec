"""Elimination of fronts with several supernodes.

A front's *indices* number its columns and then the rows below them. Supernode s has the columns from begin[s] to
end[s], and row i of its panels of L and U^T is front index end[s] + i. Before a supernode is eliminated, the products
of all earlier ones are subtracted from it; after the last one, those of all from the contribution block
(`glle_engine.eigen.batched.numeric.tiles`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glle_engine.eigen.batched.numeric.kernels import factor_triangles, solve_panels
from glle_engine.eigen.batched.numeric.tiles import subtract
from glle_engine.eigen.batched.symbolic.elimination import WIDEST
from glle_engine.linalg.compiled import compiled
from glle_engine.linalg.vectors import advance, load, store

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from glle_engine.eigen.batched.symbolic.addresses import Addresses
    from glle_engine.linalg.vectors import Address

_CORNER = WIDEST * WIDEST


@compiled
def describe(tree: Addresses, front: int, panels: NDArray[np.int64]) -> int:
    """Put begin, end and the places of L and U^T of a front's supernodes into `panels`; return their number."""
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
    """Add the children's contribution blocks to the columns and rows that the front eliminates."""
    columns = panels[1, count - 1]
    child = tree.child[front]
    while child != -1:
        start = tree.place_start[child]
        size = tree.place_start[child + 1] - start
        block, stride = tree.block_start[child], tree.block_stride[child]
        s = 0
        for i in range(size):
            row = tree.place[start + i]
            if row >= columns:
                break
            while panels[1, s] <= row:
                s += 1
            begin, end = panels[0, s], panels[1, s]
            width = end - begin
            # To the left of the supernode's columns is L of earlier supernodes.
            t = 0
            j = 0
            while j < size and tree.place[start + j] < begin:
                column = tree.place[start + j]
                while panels[1, t] <= column:
                    t += 1
                at = panels[2, t] + (row - panels[1, t]) * (panels[1, t] - panels[0, t]) + column - panels[0, t]
                store(lower, at, load(tag, lower, at) + load(tag, blocks, block + i * stride + j))
                j += 1
            while j < size and tree.place[start + j] < end:
                at = s * _CORNER + (row - begin) * width + tree.place[start + j] - begin
                store(diagonal, at, load(tag, diagonal, at) + load(tag, blocks, block + i * stride + j))
                j += 1
            base = panels[3, s] - end * width + row - begin
            while j < size:
                at = base + tree.place[start + j] * width
                store(upper, at, load(tag, upper, at) + load(tag, blocks, block + i * stride + j))
                j += 1
        inside = 0
        while inside < size and tree.place[start + inside] < columns:
            inside += 1
        for i in range(inside, size):
            row = tree.place[start + i]
            t = 0
            for j in range(inside):
                column = tree.place[start + j]
                while panels[1, t] <= column:
                    t += 1
                at = panels[2, t] + (row - panels[1, t]) * (panels[1, t] - panels[0, t]) + column - panels[0, t]
                store(lower, at, load(tag, lower, at) + load(tag, blocks, block + i * stride + j))
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
    """Factor the columns of a front with `size` indices; `room` is that of `subtract`."""
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
