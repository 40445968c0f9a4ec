"""Elimination of fronts with several supernodes, by tiles of the front in registers.

A front's *indices* number its columns and then the rows below them. Supernode s has the columns from begin[s] to
end[s], and row i of its panels of L and U^T is front index end[s] + i. Before a supernode is eliminated, the products
of all earlier ones are subtracted from it; after the last one, those of all from the contribution block. Each entry
subtracts its products in the order of the columns, so that tiles do not change a bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glle_engine.eigen.batched.numeric.kernels import factor_triangles, solve_panels
from glle_engine.eigen.batched.symbolic.elimination import WIDEST
from glle_engine.linalg.compiled import compiled
from glle_engine.linalg.vectors import fill, fnma, load, shifted, store

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from glle_engine.eigen.batched.symbolic.addresses import Addresses
    from glle_engine.linalg.vectors import Address

_CORNER = WIDEST * WIDEST
_STRIP = 48  # columns of the front whose rows of U^T stay in the second cache


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
) -> None:
    """Factor the columns of a front with `size` indices."""
    for s in range(count):
        node = tree.front[front] + s
        begin, end = panels[0, s], panels[1, s]
        width = end - begin
        low, up = shifted(tag, lower, panels[2, s]), shifted(tag, upper, panels[3, s])
        corner = shifted(tag, diagonal, s * _CORNER)
        if s > 0:
            subtract(tag, corner, width, 1, panels, s, lower, 2, begin, end, upper, 3, begin, end)
            subtract(tag, low, width, 1, panels, s, lower, 2, end, size, upper, 3, begin, end)
            subtract(tag, up, width, 1, panels, s, upper, 3, end, size, lower, 2, begin, end)
        triangle_low = shifted(tag, lower, tree.lower_start[node])
        triangle_up = shifted(tag, upper, tree.upper_start[node])
        factor_triangles(width, tag, corner, triangle_low, triangle_up)
        solve_panels(width, tag, low, up, size - end, triangle_low, triangle_up)


@compiled
def subtract(
    tag: tuple[int, ...],
    target: Address,
    stride: int,
    known: int,
    panels: NDArray[np.int64],
    count: int,
    left: Address,
    left_at: int,
    top: int,
    bottom: int,
    right: Address,
    right_at: int,
    first: int,
    last: int,
) -> None:
    """Subtract the products of rows `top` to `bottom` of one factor with rows `first` to `last` of the other.

    The factors are the panels of the first `count` supernodes, at the places in row `left_at` and `right_at` of
    `panels`. `known` is 0 for a target of zeros, whatever is there.
    """
    strip = first
    while strip < last:
        until = min(strip + _STRIP, last)
        i = top
        while i + 4 <= bottom:
            j = strip
            while j + 3 <= until:
                _four_by_three(
                    tag,
                    target,
                    (i - top) * stride + j - first,
                    stride,
                    known,
                    panels,
                    count,
                    left,
                    left_at,
                    i,
                    right,
                    right_at,
                    j,
                )
                j += 3
            while j < until:
                _four_by_one(
                    tag,
                    target,
                    (i - top) * stride + j - first,
                    stride,
                    known,
                    panels,
                    count,
                    left,
                    left_at,
                    i,
                    right,
                    right_at,
                    j,
                )
                j += 1
            i += 4
        while i < bottom:
            j = strip
            while j + 4 <= until:
                _one_by_four(
                    tag,
                    target,
                    (i - top) * stride + j - first,
                    known,
                    panels,
                    count,
                    left,
                    left_at,
                    i,
                    right,
                    right_at,
                    j,
                )
                j += 4
            while j < until:
                _one_by_one(
                    tag,
                    target,
                    (i - top) * stride + j - first,
                    known,
                    panels,
                    count,
                    left,
                    left_at,
                    i,
                    right,
                    right_at,
                    j,
                )
                j += 1
            i += 1
        strip = until


@compiled
def _four_by_three(
    tag: tuple[int, ...],
    target: Address,
    at: int,
    stride: int,
    known: int,
    panels: NDArray[np.int64],
    count: int,
    left: Address,
    left_at: int,
    i: int,
    right: Address,
    right_at: int,
    j: int,
) -> None:
    zero = fill(tag, 0.0)
    c00, c01, c02 = zero, zero, zero
    c10, c11, c12 = zero, zero, zero
    c20, c21, c22 = zero, zero, zero
    c30, c31, c32 = zero, zero, zero
    row0 = shifted(tag, target, at)
    row1 = shifted(tag, target, at + stride)
    row2 = shifted(tag, target, at + 2 * stride)
    row3 = shifted(tag, target, at + 3 * stride)
    if known:
        c00, c01, c02 = load(tag, row0, 0), load(tag, row0, 1), load(tag, row0, 2)
        c10, c11, c12 = load(tag, row1, 0), load(tag, row1, 1), load(tag, row1, 2)
        c20, c21, c22 = load(tag, row2, 0), load(tag, row2, 1), load(tag, row2, 2)
        c30, c31, c32 = load(tag, row3, 0), load(tag, row3, 1), load(tag, row3, 2)
    for s in range(count):
        end = panels[1, s]
        width = end - panels[0, s]
        x = shifted(tag, left, panels[left_at, s] + (i - end) * width)
        y = shifted(tag, right, panels[right_at, s] + (j - end) * width)
        for t in range(width):
            y0, y1, y2 = load(tag, y, t), load(tag, y, t + width), load(tag, y, t + 2 * width)
            a = load(tag, x, t)
            c00, c01, c02 = fnma(a, y0, c00), fnma(a, y1, c01), fnma(a, y2, c02)
            a = load(tag, x, t + width)
            c10, c11, c12 = fnma(a, y0, c10), fnma(a, y1, c11), fnma(a, y2, c12)
            a = load(tag, x, t + 2 * width)
            c20, c21, c22 = fnma(a, y0, c20), fnma(a, y1, c21), fnma(a, y2, c22)
            a = load(tag, x, t + 3 * width)
            c30, c31, c32 = fnma(a, y0, c30), fnma(a, y1, c31), fnma(a, y2, c32)
    store(row0, 0, c00)
    store(row0, 1, c01)
    store(row0, 2, c02)
    store(row1, 0, c10)
    store(row1, 1, c11)
    store(row1, 2, c12)
    store(row2, 0, c20)
    store(row2, 1, c21)
    store(row2, 2, c22)
    store(row3, 0, c30)
    store(row3, 1, c31)
    store(row3, 2, c32)


@compiled
def _four_by_one(
    tag: tuple[int, ...],
    target: Address,
    at: int,
    stride: int,
    known: int,
    panels: NDArray[np.int64],
    count: int,
    left: Address,
    left_at: int,
    i: int,
    right: Address,
    right_at: int,
    j: int,
) -> None:
    zero = fill(tag, 0.0)
    c0, c1, c2, c3 = zero, zero, zero, zero
    if known:
        c0, c1 = load(tag, target, at), load(tag, target, at + stride)
        c2, c3 = load(tag, target, at + 2 * stride), load(tag, target, at + 3 * stride)
    for s in range(count):
        end = panels[1, s]
        width = end - panels[0, s]
        x = shifted(tag, left, panels[left_at, s] + (i - end) * width)
        y = shifted(tag, right, panels[right_at, s] + (j - end) * width)
        for t in range(width):
            value = load(tag, y, t)
            c0 = fnma(load(tag, x, t), value, c0)
            c1 = fnma(load(tag, x, t + width), value, c1)
            c2 = fnma(load(tag, x, t + 2 * width), value, c2)
            c3 = fnma(load(tag, x, t + 3 * width), value, c3)
    store(target, at, c0)
    store(target, at + stride, c1)
    store(target, at + 2 * stride, c2)
    store(target, at + 3 * stride, c3)


@compiled
def _one_by_four(
    tag: tuple[int, ...],
    target: Address,
    at: int,
    known: int,
    panels: NDArray[np.int64],
    count: int,
    left: Address,
    left_at: int,
    i: int,
    right: Address,
    right_at: int,
    j: int,
) -> None:
    zero = fill(tag, 0.0)
    c0, c1, c2, c3 = zero, zero, zero, zero
    if known:
        c0, c1 = load(tag, target, at), load(tag, target, at + 1)
        c2, c3 = load(tag, target, at + 2), load(tag, target, at + 3)
    for s in range(count):
        end = panels[1, s]
        width = end - panels[0, s]
        x = shifted(tag, left, panels[left_at, s] + (i - end) * width)
        y = shifted(tag, right, panels[right_at, s] + (j - end) * width)
        for t in range(width):
            value = load(tag, x, t)
            c0 = fnma(value, load(tag, y, t), c0)
            c1 = fnma(value, load(tag, y, t + width), c1)
            c2 = fnma(value, load(tag, y, t + 2 * width), c2)
            c3 = fnma(value, load(tag, y, t + 3 * width), c3)
    store(target, at, c0)
    store(target, at + 1, c1)
    store(target, at + 2, c2)
    store(target, at + 3, c3)


@compiled
def _one_by_one(
    tag: tuple[int, ...],
    target: Address,
    at: int,
    known: int,
    panels: NDArray[np.int64],
    count: int,
    left: Address,
    left_at: int,
    i: int,
    right: Address,
    right_at: int,
    j: int,
) -> None:
    c = fill(tag, 0.0)
    if known:
        c = load(tag, target, at)
    for s in range(count):
        end = panels[1, s]
        width = end - panels[0, s]
        x = shifted(tag, left, panels[left_at, s] + (i - end) * width)
        y = shifted(tag, right, panels[right_at, s] + (j - end) * width)
        for t in range(width):
            c = fnma(load(tag, x, t), load(tag, y, t), c)
    store(target, at, c)
