"""Triangular solves for every lane at once, two per pass.

Lanczos needs :math:`K_0 t = L^{-1} L^{-T} t` and :math:`N_0 s = U^{-T} U^{-1} s`. Each is one solve down the tree and
one solve up. Both solves read the same factor, so that one walk through the tree does both: a supernode is read when it
is entered and again when it is left. If everything below it fits in a cache, the second read is from the cache. The way
down and the way up need separate vectors, because the way up changes rows that the rest of the way down still reads.

Vectors are flat (n, lanes), in the order of elimination.
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
    """Take the step of z = L^-T f at one supernode, and copy the values of z that become final to x."""
    begin, start = tree.first[node], tree.row_start[node]
    width, below = tree.first[node + 1] - begin, tree.row_start[node + 1] - start
    position = tree.lower_start[node]
    panel = advance(tag, lower, position + width * (width - 1) // 2)
    enter_lower(tag, width, f, z, x, begin, offset(tree.rows, start), below, panel, advance(tag, lower, position))


@compiled
def _enter_upper(
    tag: tuple[int, ...], tree: Addresses, node: int, upper: Address, f: Address, w: Address, x: Address
) -> None:
    """Take the step of w = U^-1 f at one supernode, and copy the values of w that become final to x."""
    begin, start = tree.first[node], tree.row_start[node]
    width, below = tree.first[node + 1] - begin, tree.row_start[node + 1] - start
    position = tree.upper_start[node]
    panel = advance(tag, upper, position + width * (width + 1) // 2)
    enter_upper(tag, width, f, w, x, begin, offset(tree.rows, start), below, panel, advance(tag, upper, position))


@compiled
def _leave_lower(tag: tuple[int, ...], tree: Addresses, node: int, lower: Address, x: Address) -> None:
    """Take the step at one supernode that, over all supernodes, overwrites x with L^-1 x."""
    begin, start = tree.first[node], tree.row_start[node]
    width, below = tree.first[node + 1] - begin, tree.row_start[node + 1] - start
    position = tree.lower_start[node]
    panel = advance(tag, lower, position + width * (width - 1) // 2)
    leave_lower(tag, width, x, begin, offset(tree.rows, start), below, panel, advance(tag, lower, position))


@compiled
def _leave_upper(tag: tuple[int, ...], tree: Addresses, node: int, upper: Address, x: Address) -> None:
    """Take the step at one supernode that, over all supernodes, overwrites x with U^-T x."""
    begin, start = tree.first[node], tree.row_start[node]
    width, below = tree.first[node + 1] - begin, tree.row_start[node + 1] - start
    position = tree.upper_start[node]
    panel = advance(tag, upper, position + width * (width + 1) // 2)
    leave_upper(tag, width, x, begin, offset(tree.rows, start), below, panel, advance(tag, upper, position))


@compiled
def lower_gram(tag: tuple[int, ...], tree: Addresses, lower: Address, t: Address, z: Address, x: Address) -> Lanes:
    """Write L^-T t into z and L^-1 z into x, and return z^T z, for every lane."""
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
    """Write U^-1 (factor * s) into w and U^-T w into x, and return the sum of the entries of w, for every lane."""
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
    """Overwrite x with U^-T x."""
    for node in range(tree.nodes):
        _leave_upper(tag, tree, node, upper, x)


@compiled
def solve_both_upper_transposed(tag: tuple[int, ...], tree: Addresses, upper: Address, x: Address, y: Address) -> None:
    """Overwrite x with U^-T x and y with U^-T y, in one pass over U."""
    for node in range(tree.nodes):
        _leave_upper(tag, tree, node, upper, x)
        _leave_upper(tag, tree, node, upper, y)


@compiled
def solve_units(
    tag: tuple[int, ...], tree: Addresses, upper: Address, pins: NDArray[np.int32], x: NDArray[np.float64]
) -> None:
    """Write U^-T e_pin into x for every lane's pin, visiting only the supernodes of the pins and their ancestors."""
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
    """Overwrite z with L^-T z."""
    for i in range(2 * tree.nodes):
        node = tree.visits[i]
        if node >= 0:
            _enter_lower(tag, tree, node, lower, z, z, z)


@compiled
def solve_lower(tag: tuple[int, ...], tree: Addresses, lower: Address, x: Address) -> None:
    """Overwrite x with L^-1 x."""
    for node in range(tree.nodes):
        _leave_lower(tag, tree, node, lower, x)


@compiled
def solve_upper(tag: tuple[int, ...], tree: Addresses, upper: Address, x: Address) -> None:
    """Overwrite x with U^-1 x."""
    for i in range(2 * tree.nodes):
        node = tree.visits[i]
        if node >= 0:
            _enter_upper(tag, tree, node, upper, x, x, x)
