"""Solve triangular systems with the factors of `factorization`, for several draws at once, two solves per pass.

A step of Lanczos (`glle_engine.eigen.batched.lanczos`) needs the products :math:`L^{-1} L^{-T} t` and
:math:`U^{-T} U^{-1} s`. In each product, the first solve, with :math:`L^T` or U, goes down the elimination tree, from
parents to children; the second solve, with L or :math:`U^T`, goes up. Both solves of a product read the same factor, so
that one walk through the tree does both: a supernode (a range of columns) is read when the walk enters it, and again
when the walk leaves it. If everything below it in the tree fits in a cache, the second read is from the cache. The two
solves need separate vectors, because the second solve changes rows that the first one still reads.

Vectors have one number for each point and draw, flat (n, lanes), with points in the order of elimination.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.eigen.batched.kernels import enter_lower, enter_upper, leave_lower, leave_upper
from glle_engine.linalg.compiled import compiled
from glle_engine.linalg.vectors import address, advance, fill, fma, load, offset, store

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.eigen.batched.structure import Addresses
    from glle_engine.linalg.vectors import Address, Lanes


@compiled
def _enter_lower(
    tag: tuple[int, ...], tree: Addresses, node: int, lower: Address, f: Address, z: Address, x: Address
) -> None:
    """Compute z = L^-T f in the rows of one supernode (a range of columns), when z in the rows below is known.

    The supernode has the number `node`. f is the right-hand side. The result is written to z, and copied to x for
    the second solve (`_leave_lower`), which changes x in place. The length of `tag` is the number of draws.
    """
    begin, start = tree.first[node], tree.row_start[node]
    width, below = tree.first[node + 1] - begin, tree.row_start[node + 1] - start
    position = tree.lower_start[node]
    panel = advance(tag, lower, position + width * (width - 1) // 2)
    enter_lower(tag, width, f, z, x, begin, offset(tree.rows, start), below, panel, advance(tag, lower, position))


@compiled
def _enter_upper(
    tag: tuple[int, ...], tree: Addresses, node: int, upper: Address, f: Address, w: Address, x: Address
) -> None:
    """Compute w = U^-1 f in the rows of one supernode (a range of columns), when w in the rows below is known.

    The supernode has the number `node`. f is the right-hand side. The result is written to w, and copied to x for
    the second solve (`_leave_upper`), which changes x in place. The length of `tag` is the number of draws.
    """
    begin, start = tree.first[node], tree.row_start[node]
    width, below = tree.first[node + 1] - begin, tree.row_start[node + 1] - start
    position = tree.upper_start[node]
    panel = advance(tag, upper, position + width * (width + 1) // 2)
    enter_upper(tag, width, f, w, x, begin, offset(tree.rows, start), below, panel, advance(tag, upper, position))


@compiled
def _leave_lower(tag: tuple[int, ...], tree: Addresses, node: int, lower: Address, x: Address) -> None:
    """Do one supernode's step of x = L^-1 x, in place, after the steps of its children in the elimination tree.

    Supernode number `node` is a range of columns. The step computes x in the rows of this range, and subtracts their
    contribution from x in the rows below. The length of `tag` is the number of draws.
    """
    begin, start = tree.first[node], tree.row_start[node]
    width, below = tree.first[node + 1] - begin, tree.row_start[node + 1] - start
    position = tree.lower_start[node]
    panel = advance(tag, lower, position + width * (width - 1) // 2)
    leave_lower(tag, width, x, begin, offset(tree.rows, start), below, panel, advance(tag, lower, position))


@compiled
def _leave_upper(tag: tuple[int, ...], tree: Addresses, node: int, upper: Address, x: Address) -> None:
    """Do one supernode's step of x = U^-T x, in place, after the steps of its children in the elimination tree.

    Supernode number `node` is a range of columns. The step computes x in the rows of this range, and subtracts their
    contribution from x in the rows below. The length of `tag` is the number of draws.
    """
    begin, start = tree.first[node], tree.row_start[node]
    width, below = tree.first[node + 1] - begin, tree.row_start[node + 1] - start
    position = tree.upper_start[node]
    panel = advance(tag, upper, position + width * (width + 1) // 2)
    leave_upper(tag, width, x, begin, offset(tree.rows, start), below, panel, advance(tag, upper, position))


@compiled
def lower_gram(tag: tuple[int, ...], tree: Addresses, lower: Address, t: Address, z: Address, x: Address) -> Lanes:
    """Write z = L^-T t and x = L^-1 z for a given t, and return z^T z = t^T x, for each draw of a batch.

    L^-1 L^-T is the inverse of the Gram matrix L^T L. The length of `tag` is the number of draws.
    """
    square = fill(tag, 0.0)
    for i in range(2 * tree.nodes):
        node = tree.visits[i]
        if node >= 0:
            _enter_lower(tag, tree, node, lower, t, z, x)
            for j in range(tree.first[node], tree.first[node + 1]):
                value = load(tag, z, j)
                square = fma(value, value, square)
        else:
            _leave_lower(tag, tree, ~node, lower, x)
    return square


@compiled
def upper_gram(
    tag: tuple[int, ...], tree: Addresses, upper: Address, s: Address, factor: Lanes, w: Address, x: Address
) -> Lanes:
    """Write w = U^-1 (factor * s) and x = U^-T w for a given s, and return the sum of w, for each draw of a batch.

    U is the upper factor at the address `upper`, eliminated in the order of `tree`; U^-T U^-1 is the inverse of its
    Gram matrix U U^T. `factor` is one number for each draw. The caller uses the sum of the entries of w to project the
    constant out of x. The length of `tag` is the number of draws.
    """
    total = fill(tag, 0.0)
    for i in range(2 * tree.nodes):
        node = tree.visits[i]
        if node >= 0:
            for j in range(tree.first[node], tree.first[node + 1]):
                store(w, j, load(tag, s, j) * factor)
            _enter_upper(tag, tree, node, upper, w, w, x)
            for j in range(tree.first[node], tree.first[node + 1]):
                total = total + load(tag, w, j)
        else:
            _leave_upper(tag, tree, ~node, upper, x)
    return total


@compiled
def solve_upper_transposed(tag: tuple[int, ...], tree: Addresses, upper: Address, x: Address) -> None:
    """Overwrite x with U^-T x, for each draw of a batch; the length of `tag` is the number of draws."""
    for node in range(tree.nodes):
        _leave_upper(tag, tree, node, upper, x)


@compiled
def solve_both_upper_transposed(tag: tuple[int, ...], tree: Addresses, upper: Address, x: Address, y: Address) -> None:
    """Overwrite x with U^-T x and y with U^-T y, for each draw of a batch, reading U only once.

    The length of `tag` is the number of draws.
    """
    for node in range(tree.nodes):
        _leave_upper(tag, tree, node, upper, x)
        _leave_upper(tag, tree, node, upper, y)


@compiled
def solve_units(
    tag: tuple[int, ...], tree: Addresses, upper: Address, pins: NDArray[np.int32], x: NDArray[np.float64]
) -> None:
    """Write U^-T e_i into x for each draw of a batch, where `pins` has the position i of each draw.

    Only the supernodes (ranges of columns) that contain a position i, and the ancestors of these supernodes in the
    elimination tree, are visited, because x is 0 elsewhere. The length of `tag` is the number of draws.
    """
    lanes = len(tag)
    x[:] = 0.0
    reached = np.zeros(tree.nodes, np.bool_)
    for lane in range(lanes):
        x[pins[lane] * lanes + lane] = 1.0
        node, above = 0, tree.nodes
        while above - node > 1:  # find the last supernode that begins at the pin or before it
            middle = (node + above) // 2
            if tree.first[middle] <= pins[lane]:
                node = middle
            else:
                above = middle
        while node >= 0 and not reached[node]:
            reached[node] = True
            node = tree.parent[node]
    for node in range(tree.nodes):
        if reached[node]:
            _leave_upper(tag, tree, node, upper, address(x))


@compiled
def solve_lower_transposed(tag: tuple[int, ...], tree: Addresses, lower: Address, z: Address) -> None:
    """Overwrite z with L^-T z, for each draw of a batch; the length of `tag` is the number of draws."""
    for i in range(2 * tree.nodes):
        node = tree.visits[i]
        if node >= 0:
            _enter_lower(tag, tree, node, lower, z, z, z)


@compiled
def solve_lower(tag: tuple[int, ...], tree: Addresses, lower: Address, x: Address) -> None:
    """Overwrite x with L^-1 x, for each draw of a batch; the length of `tag` is the number of draws."""
    for node in range(tree.nodes):
        _leave_lower(tag, tree, node, lower, x)


@compiled
def solve_upper(tag: tuple[int, ...], tree: Addresses, upper: Address, x: Address) -> None:
    """Overwrite x with U^-1 x, for each draw of a batch; the length of `tag` is the number of draws."""
    for i in range(2 * tree.nodes):
        node = tree.visits[i]
        if node >= 0:
            _enter_upper(tag, tree, node, upper, x, x, x)
