"""Factorisation by several threads, with the bits of one.

From three intrinsic dimensions on, the updates of a few large contribution blocks are most of a factorisation: each
halving of the points leaves two separators, with together less than half the operations. Threads share the rows of each
such block; every entry is computed as by one thread. All else runs in one thread.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.eigen.batched.numeric.factorization import factorise, update

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.eigen.batched.symbolic.structure import Structure

HEAVY = 10**7  # floating-point operations of an update in each lane, above a millisecond: a task costs 0.05 ms
_ROWS = 16  # the rows of a part are a multiple: no tile has more for several lanes


def update_flops(structure: Structure) -> NDArray[np.int64]:
    """Return the floating-point operations (F,) of the update of each contribution block, in each lane."""
    width, below = np.diff(structure.first[structure.front]).astype(np.int64), np.diff(structure.place_start)
    return np.asarray(2 * width * below**2)


def heavy_fronts(structure: Structure) -> list[int]:
    """Return the fronts whose updates threads share, ascending."""
    is_wide = np.diff(structure.front) > 1
    return [int(front) for front in np.flatnonzero(is_wide & (update_flops(structure) >= HEAVY))]


def factorise_by(
    threads: int,
    tag: tuple[int, ...],
    structure: Structure,
    weights: NDArray[np.float64],
    pins: NDArray[np.int32],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    blocks: NDArray[np.float64],
    scratch: NDArray[np.float64],
) -> None:
    """Factor every lane's matrix: see `glle_engine.eigen.batched.numeric.factorization.factorise`."""
    heavy = heavy_fronts(structure) if threads > 1 else []
    matrix = (tag, structure, weights, pins, lower, upper, blocks, scratch)
    begin, resumes = 0, False
    if heavy:
        below = np.diff(structure.place_start)
        with ThreadPoolExecutor(threads - 1) as pool:  # the caller is one more
            rooms = [scratch, *(np.empty_like(scratch) for _ in range(threads - 1))]
            for front in heavy:
                factorise(*matrix, begin, front + 1, resumes, True)  # noqa: FBT003 -- numba's calls are positional
                size = -(-int(below[front]) // (threads * _ROWS)) * _ROWS
                parts = [(top, min(top + size, int(below[front]))) for top in range(0, int(below[front]), size)]
                tasks = [
                    pool.submit(update, tag, structure, front, *rows, lower, upper, blocks, room)
                    for rows, room in zip(parts[1:], rooms[1:], strict=False)
                ]
                update(tag, structure, front, *parts[0], lower, upper, blocks, scratch)
                for task in tasks:
                    task.result()
                begin, resumes = front, True
    factorise(*matrix, begin, len(structure.front) - 1, resumes, False)  # noqa: FBT003
