r"""Lanczos for several draws at once, for an operator that is reordered so that a step reads each factor once.

We want the bottom eigenpairs of :math:`M = B^T B`, B = I - W. If the rows of W sum to one, B is singular: the constant
is its right null vector, and y its left null vector. :math:`B' = B + e_i e_i^T` is nonsingular, where the position i of
the added 1 is the *pin*. Then :math:`B^+ = P B'^{-1} Q`, where P projects out the constant, and Q projects out y
(`glle_engine.eigen.eigenproblem`). For other weights, B is nonsingular, B' is B, and nothing is projected out. With
B' = L U,

.. math:: M^+ = B^+ B^{+T} = P U^{-1} L^{-1} Q L^{-T} U^{-T} P.

The eigenvalues of :math:`M^+` other than 0 are the eigenvalues of :math:`N K` with :math:`N = U^{-T} P U^{-1}` and
:math:`K = L^{-1} Q L^{-T}`. This operator is self-adjoint in the inner product
:math:`\langle t, t' \rangle = t^T K t'`, in which Lanczos runs. Each step then reads L once and U once
(`glle_engine.eigen.batched.solves`), whereas a step on :math:`M^+` would read both twice. The basis is kept as t, as
s = K t, and as :math:`U^{-1} s`.

Both projections change a vector by rank one. Let :math:`u_0 = U^{-T} e_i`. Then :math:`L^{-T} u_0 = y / y_i`, so that Q
acts like a first basis vector, to which all others are made orthogonal:
:math:`t - u_0 (g^T t) / \|L^{-T} u_0\|^2` with :math:`g = L^{-1} L^{-T} u_0`. Since B' 1 = e_i,
:math:`|y_i| = 1 / \|L^{-T} u_0\|` for y of unit norm. P subtracts :math:`h (h^T s) / n` with :math:`h = U^{-T} 1`,
where :math:`h^T s = 1^T U^{-1} s`.

If t is an eigenvector of :math:`N K` with eigenvalue :math:`\theta`, and s = K t, then :math:`x = P U^{-1} s` is an
eigenvector of M with eigenvalue :math:`1 / \theta`, and :math:`\|x\|^2 = \theta \langle t, t \rangle`. Conversely, t is
:math:`U^{-T} x` up to a factor. Given an approximation :math:`x_0` of x, Lanczos therefore starts at
:math:`U^{-T} x_0`.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from glle_engine.eigen.batched.factorization import SCRATCH
from glle_engine.eigen.batched.solves import (
    lower_gram,
    solve_both_upper_transposed,
    solve_units,
    solve_upper_transposed,
    upper_gram,
)
from glle_engine.eigen.batched.structure import addresses, packed_addresses
from glle_engine.eigen.eigenpairs import MAX_LANCZOS_STEPS
from glle_engine.linalg import LANES
from glle_engine.linalg.compiled import compiled
from glle_engine.linalg.dense_kernels import diagonalize
from glle_engine.linalg.vectors import address, advance, divide, fill, fma, fnma, load, root, store

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.eigen.batched.structure import Structure
    from glle_engine.linalg.vectors import Address, Lanes

_DOT_ROWS = 64  # products with several vectors take this many rows at a time, which then stay in the L1 cache
_EPSILON = float(np.finfo(np.float64).eps)
_CACHE_LINE_DOUBLES = 8  # doubles of a cache line; a vector that crosses lines takes twice the time
_PAGE_DOUBLES = 2**21 // 8  # doubles of a large page, such as numpy requests for large arrays


class Workspace(NamedTuple):
    """Work arrays and results for one batch of draws; only one thread at a time may use them.

    Attributes
    ----------
    tag : tuple of int
        The length is the number of draws that are computed at once, one in each lane of the SIMD vectors.
    words : (20,) int64
        The symbolic factorization, as memory addresses from `glle_engine.eigen.batched.structure.packed_addresses`.
    normals, weights
        Scratch memory and result of `glle_engine.weights.gaussian.sample`, which draws the weights W.
    scratch, lower, upper, blocks
        Scratch memory and the factors L and U of `glle_engine.eigen.batched.factorization.factorize`.
    work : (3, n * lanes)
        Scratch memory.
    vectors : (wanted, n * lanes)
        Eigenvectors of M, of unit norm.
    values : (wanted + 1, lanes)
        Eigenvalues of M, ascending; the last one, which was not asked for, is only estimated.
    strength : (lanes,)
        :math:`|y_i|` of the left null vector y of I - W, where i is the position at which 1 was added to the diagonal;
        1 for a draw whose diagonal was left as it is.
    deviation : (lanes,)
        How inaccurate the eigenpairs of each draw are, from `glle_engine.eigen.batched.solver.deviations`.
    basis, images, points : (m, n * lanes)
        Scratch memory for at most m - 2 steps of Lanczos.
    steps : (lanes,) int64
        The number of Lanczos steps of each draw; -1 for a draw that never converges (`verdict`).

    """

    tag: tuple[int, ...]
    words: NDArray[np.int64]
    normals: NDArray[np.float64]
    scratch: NDArray[np.float64]
    weights: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    blocks: NDArray[np.float64]
    work: NDArray[np.float64]
    vectors: NDArray[np.float64]
    values: NDArray[np.float64]
    strength: NDArray[np.float64]
    deviation: NDArray[np.float64]
    basis: NDArray[np.float64]
    images: NDArray[np.float64]
    points: NDArray[np.float64]
    steps: NDArray[np.int64]

    @staticmethod
    def for_structure(structure: Structure, wanted: int) -> Workspace:
        """Allocate the arrays for `LANES` draws of `wanted` eigenpairs each on the kNN graph of `structure`."""
        n, k = structure.neighbors.shape
        shapes = {
            "normals": (4 * k * LANES,),
            "scratch": (SCRATCH * LANES,),
            "weights": (n * k * LANES,),
            "lower": (structure.lower_size * LANES,),
            "upper": (structure.upper_size * LANES,),
            "blocks": (structure.block_size * LANES,),
            "work": (3, n * LANES),
            "vectors": (wanted, n * LANES),
            "values": (wanted + 1, LANES),
            "strength": (LANES,),
            "deviation": (LANES,),
            # Lanczos ends after about ten steps, and the pages that it does not touch take no memory.
            "basis": (MAX_LANCZOS_STEPS + 2, n * LANES),
            "images": (MAX_LANCZOS_STEPS + 2, n * LANES),
            "points": (MAX_LANCZOS_STEPS + 2, n * LANES),
        }
        # All arrays are parts of one allocation, because only a large allocation gets large memory pages.
        sizes = [math.prod(shape) + -math.prod(shape) % _CACHE_LINE_DOUBLES for shape in shapes.values()]
        room = empty_aligned(sum(sizes), alignment=_PAGE_DOUBLES if sum(sizes) > _PAGE_DOUBLES else _CACHE_LINE_DOUBLES)
        ends = list(itertools.accumulate(sizes))
        parts = {
            name: room[end - size : end - size + math.prod(shape)].reshape(shape)
            for (name, shape), size, end in zip(shapes.items(), sizes, ends, strict=True)
        }
        return Workspace((0,) * LANES, packed_addresses(structure), **parts, steps=np.empty(LANES, np.int64))


def empty_aligned(*shape: int, alignment: int = _CACHE_LINE_DOUBLES) -> NDArray[np.float64]:
    """Return an uninitialized array of this shape, whose address is a multiple of `alignment` doubles."""
    size = math.prod(shape)
    room = np.empty(size + alignment)
    first = -(room.ctypes.data // 8) % alignment
    return room[first : first + size].reshape(shape)


@compiled
def lanczos(
    room: Workspace,
    pins: NDArray[np.int32],
    constrained: bool,  # noqa: FBT001 -- numba's calls are positional
    start: NDArray[np.float64],
    tolerance: float,
) -> None:
    r"""Compute the bottom eigenpairs of M = (I - W)^T (I - W) for each draw of a batch, and write them to `room`.

    A draw is done when each of its wanted Ritz values :math:`\theta` has a residual of at most `tolerance` times the
    smaller of two numbers, :math:`\theta` and the distance from :math:`\theta` to the first unwanted Ritz value. From
    then on, the Lanczos vectors of the draw are zero, so that no draw depends on another. `vectors`, `values`, `steps`
    and `strength` of the workspace are overwritten.

    Parameters
    ----------
    room : Workspace
        Holds the factors L and U of each draw.
    pins : (lanes,) int32
        For each draw, the position at which 1 was added to the diagonal of B = I - W.
    constrained : bool
        True if the rows of W sum to one, so that B 1 = 0 and y^T B = 0 for one vector y; False if B is nonsingular and
        nothing was added to its diagonal.
    start : (n,) float64
        The vector :math:`x_0` from which Lanczos starts, in the order of elimination. It should have a part along every
        wanted eigenvector.
    tolerance : float

    """
    tag, basis, images, points, work = room.tag, room.basis, room.images, room.points, room.work
    steps, strength, wanted = room.steps, room.strength, len(room.vectors)
    lanes, n = len(tag), len(start)
    tree = addresses(room.words)
    low, up = address(room.lower), address(room.upper)
    max_steps = len(basis) - 2
    z, x, h = address(work[0]), address(work[1]), address(work[2])
    ones = fill(tag, 1.0)
    weight = np.zeros((max_steps + 2, lanes))  # factors that give the basis vectors unit norm
    # h^T s for each basis vector t, where s = K t and h = U^-T 1 (K and U are defined in the module docstring). This is
    # the sum of the entries of U^-1 s, from which the projection P subtracts its mean.
    sums = np.zeros((max_steps + 2, lanes))
    overlap = np.zeros((max_steps + 2, lanes))
    factor = np.zeros((max_steps + 2, lanes))
    square, means = np.empty(lanes), np.empty(lanes)
    for i in range(n):
        store(address(basis[1]), i, fill(tag, start[i]))
    if constrained:
        for i in range(n):
            store(h, i, ones)
        solve_both_upper_transposed(tag, tree, up, h, address(basis[1]))
        solve_units(tag, tree, up, pins, basis[0])
        store(address(square), 0, lower_gram(tag, tree, low, address(basis[0]), z, address(images[0])))
        for lane in range(lanes):
            strength[lane] = 1.0 / np.sqrt(square[lane])
            weight[0, lane] = strength[lane]
        store(address(sums), 0, _dot(tag, h, address(images[0]), n) * load(tag, address(weight), 0))
    else:
        strength[:] = 1.0
        solve_upper_transposed(tag, tree, up, address(basis[1]))
    if constrained:
        store(address(overlap), 0, _dot(tag, address(images[0]), address(basis[1]), n) * load(tag, address(weight), 0))
        store(address(factor), 0, load(tag, address(overlap), 0) * load(tag, address(weight), 0))
        _subtract(tag, address(basis), 0, 1, n, address(factor), address(basis[1]), address(basis[1]))
    store(address(square), 0, lower_gram(tag, tree, low, address(basis[1]), z, address(images[1])))
    diagonal, off = np.zeros((lanes, max_steps)), np.zeros((lanes, max_steps))
    steps[:] = 0
    for lane in range(lanes):
        weight[1, lane] = 1.0 / np.sqrt(square[lane])
        if not np.isfinite(weight[1, lane]):
            steps[lane] = -1
            weight[1, lane] = 0.0
    first = 0 if constrained else 1
    for step in range(1, max_steps + 1):
        scale = load(tag, address(weight), step)
        total = upper_gram(tag, tree, up, address(images[step]), scale, address(points[step]), x)
        store(address(sums), step, total)
        mean = total * fill(tag, 1.0 / n)
        _dots(tag, address(images), first, step + 1, n, x, address(weight), address(overlap))
        last = advance(tag, address(basis), (step + 1) * n)
        # `x` is U^-T U^-1 s, where s is images[step]. The operator needs U^-T P U^-1 s, where P subtracts the mean of a
        # vector. This is x - h (h^T s) / n with h = U^-T 1. So the products s_i^T x with the images s_i of all basis
        # vectors, which are in `overlap`, decrease by (h^T s_i) (h^T s) / n.
        if constrained:
            for i in range(step + 1):
                store(address(overlap), i, fnma(load(tag, address(sums), i), mean, load(tag, address(overlap), i)))
            store(address(means), 0, mean)
            _subtract(tag, h, 0, 1, n, address(means), x, x)
        for i in range(first, step + 1):
            store(address(factor), i, load(tag, address(overlap), i) * load(tag, address(weight), i))
        _subtract(tag, address(basis), first, step + 1, n, address(factor), x, last)
        store(address(square), 0, lower_gram(tag, tree, low, last, z, address(images[step + 1])))
        running = False
        for lane in range(lanes):
            if steps[lane] != 0:
                weight[step + 1, lane] = 0.0
                continue
            diagonal[lane, step - 1] = overlap[step, lane]
            off[lane, step - 1] = np.sqrt(square[lane])
            weight[step + 1, lane] = 1.0 / off[lane, step - 1]
            converged = verdict(diagonal[lane, :step], off[lane, :step], wanted, tolerance)
            if converged < 0:
                steps[lane] = -1
            elif converged > 0 or step == max_steps:
                steps[lane] = step
            if steps[lane] != 0:
                weight[step + 1, lane] = 0.0
            else:
                running = True
        if not running:
            break
    ritz(room, n, constrained, diagonal, off)


@compiled
def _dot(tag: tuple[int, ...], a: Address, b: Address, n: int) -> Lanes:
    """Return the inner product a^T b of two vectors of n entries for each draw; the length of `tag` counts draws."""
    even, odd = fill(tag, 0.0), fill(tag, 0.0)
    for i in range(0, n - 1, 2):
        even = fma(load(tag, a, i), load(tag, b, i), even)
        odd = fma(load(tag, a, i + 1), load(tag, b, i + 1), odd)
    if n % 2:
        even = fma(load(tag, a, n - 1), load(tag, b, n - 1), even)
    return even + odd


@compiled
def _dots(
    tag: tuple[int, ...],
    images: Address,
    first: int,
    count: int,
    n: int,
    x: Address,
    weight: Address,
    overlap: Address,
) -> None:
    """Write weight[i] images[i]^T x into overlap[i], for i from `first` to `count` - 1, for each draw of a batch.

    The vectors images[i] and x have n entries for each draw. The length of `tag` is the number of draws.
    """
    for i in range(first, count):
        store(overlap, i, fill(tag, 0.0))
    for begin in range(0, n, _DOT_ROWS):
        size = min(_DOT_ROWS, n - begin)
        x_block = advance(tag, x, begin)
        for i in range(first, count):
            row = advance(tag, images, i * n + begin)
            store(overlap, i, load(tag, overlap, i) + _dot(tag, row, x_block, size))
    for i in range(first, count):
        store(overlap, i, load(tag, overlap, i) * load(tag, weight, i))


@compiled
def _subtract(
    tag: tuple[int, ...], basis: Address, first: int, count: int, n: int, factor: Address, x: Address, result: Address
) -> None:
    """Write x - sum_i basis[i] factor[i] into `result` for each draw, where i runs from `first` to `count` - 1.

    The vectors x, `result` and basis[i] have n entries for each draw. The length of `tag` is the number of draws.
    """
    for row in range(n):
        value = load(tag, x, row)
        for i in range(first, count):
            value = fnma(load(tag, basis, i * n + row), load(tag, factor, i), value)
        store(result, row, value)


@compiled
def verdict(diagonal: NDArray[np.float64], off: NDArray[np.float64], wanted: int, tolerance: float) -> int:
    """Return 1 if the `wanted` largest Ritz values of a draw have converged, 0 if not yet, and -1 if they never will.

    `diagonal` and `off` (m,) are the diagonal and off-diagonal of Lanczos' tridiagonal matrix after m steps; off[m - 1]
    is the norm of the next Lanczos vector. The values never converge if a number is not finite, if the Krylov space is
    exhausted after fewer than `wanted` steps, or if the matrix cannot be diagonalized.
    """
    m = len(diagonal)
    if not (np.isfinite(diagonal[m - 1]) and np.isfinite(off[m - 1])):
        return -1
    largest = 0.0
    for i in range(m):
        largest = max(largest, abs(diagonal[i]))
    exhausted = off[m - 1] <= _EPSILON * largest
    if m < wanted:
        return -1 if exhausted else 0
    if m == wanted and not exhausted:
        return 0
    values, rows = diagonal.copy(), np.zeros((1, m))
    rows[0, m - 1] = 1.0
    if not diagonalize(values, off.copy(), rows):
        return -1
    if exhausted:
        return 1
    top = _largest(values, wanted + 1)
    following = values[top[wanted]]
    for i in range(wanted):
        theta = values[top[i]]
        if not off[m - 1] * abs(rows[0, top[i]]) <= tolerance * min(theta, theta - following):
            return 0
    return 1


@compiled
def _largest(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return the indices of the `count` largest values, the largest first."""
    indices = np.empty(count, np.int64)
    for i in range(count):
        best = -1
        for j in range(len(values)):
            taken = False
            for before in range(i):
                taken = taken or indices[before] == j
            if not taken and (best < 0 or values[j] > values[best]):
                best = j
        indices[i] = best
    return indices


@compiled
def ritz(
    room: Workspace,
    n: int,
    constrained: bool,  # noqa: FBT001
    diagonal: NDArray[np.float64],
    off: NDArray[np.float64],
) -> None:
    """Write the eigenvalues and eigenvectors of M to `room.values` and `room.vectors`, for each draw of a batch.

    They are computed from the Lanczos basis of each draw in `room`, and from the tridiagonal matrix of each draw:
    `diagonal` and off-diagonal `off` (lanes, steps). M is B^T B for the (n, n) matrix B = I - W. If `constrained`, the
    rows of W sum to one, and the eigenvectors are centered.
    """
    tag, steps, values, vectors, points = room.tag, room.steps, room.values, room.vectors, address(room.points)
    lanes, wanted = len(tag), len(vectors)
    max_step = 1
    for lane in range(lanes):
        max_step = max(max_step, steps[lane])
    combination = np.zeros((wanted, max_step + 1, lanes))
    values[:] = np.nan
    for lane in range(lanes):
        m = steps[lane]
        if m <= 0:
            continue
        theta, rows = diagonal[lane, :m].copy(), np.zeros((m, m))
        for i in range(m):
            rows[i, i] = 1.0
        diagonalize(theta, off[lane, :m].copy(), rows)
        top = _largest(theta, min(wanted + 1, m))
        for i in range(len(top)):
            values[i, lane] = 1.0 / theta[top[i]]
        for i in range(min(wanted, m)):
            for j in range(m):
                combination[i, j + 1, lane] = rows[j, top[i]]
    for row in range(n):
        for i in range(wanted):
            store(address(vectors), i * n + row, fill(tag, 0.0))
        for j in range(1, max_step + 1):
            point = load(tag, points, j * n + row)
            for i in range(wanted):
                coefficient = load(tag, address(combination), i * (max_step + 1) + j)
                store(address(vectors), i * n + row, fma(point, coefficient, load(tag, address(vectors), i * n + row)))
    norm = np.empty(lanes)
    for i in range(wanted):
        x = address(vectors[i])
        mean = fill(tag, 0.0)
        if constrained:
            for row in range(n):
                mean = mean + load(tag, x, row)
            mean = mean * fill(tag, 1.0 / n)
        square = fill(tag, 0.0)
        for row in range(n):
            value = load(tag, x, row) - mean
            store(x, row, value)
            square = fma(value, value, square)
        store(address(norm), 0, divide(fill(tag, 1.0), root(square)))
        scale = load(tag, address(norm), 0)
        for row in range(n):
            store(x, row, load(tag, x, row) * scale)
