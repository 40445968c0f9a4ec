"""Acceptance test of draws, lane by lane: the deviation of the eigenpairs, and y, whose size at the pin counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.eigen.batched.numeric.solves import solve_lower_transposed, solve_units
from glle_engine.eigen.batched.symbolic.addresses import addresses
from glle_engine.linalg.compiled import compiled
from glle_engine.linalg.vectors import address, fma, fnma, load, store

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.eigen.batched.symbolic.structure import Structure


@compiled
def deviations(
    tag: tuple[int, ...],
    structure: Structure,
    weights: NDArray[np.float64],
    values: NDArray[np.float64],
    vectors: NDArray[np.float64],
    result: NDArray[np.float64],
) -> None:
    r"""Put :math:`|\,\|B v\|^2 / \lambda - 1|`, the largest over a lane's eigenpairs, into `result` (lanes,)."""
    lanes, (n, k) = len(tag), structure.neighbors.shape
    wanted = len(vectors)
    neighbors, entries = address(structure.neighbors), address(weights)
    square = np.zeros((wanted, lanes))
    squares = address(square)
    x = address(vectors)
    for row in range(n):
        for i in range(wanted):
            value = load(tag, x, i * n + row)
            for j in range(k):
                neighbor = load(tag, x, i * n + neighbors[row * k + j])
                value = fnma(load(tag, entries, row * k + j), neighbor, value)
            store(squares, i, fma(value, value, load(tag, squares, i)))
    result[:] = 0.0
    for i in range(wanted):
        for lane in range(lanes):
            result[lane] = np.maximum(result[lane], np.abs(square[i, lane] / values[i, lane] - 1.0))


@compiled
def null_left(
    tag: tuple[int, ...],
    structure: Structure,
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    pins: NDArray[np.int32],
    work: NDArray[np.float64],
) -> None:
    """Put a multiple of every lane's y into work[0], in the order of elimination."""
    tree = addresses(structure)
    solve_units(tag, tree, address(upper), pins, work[0])
    solve_lower_transposed(tag, tree, address(lower), address(work[0]))
