r"""Weights of the draws of all lanes, :math:`w_i = m_i + \sqrt{a} F_i z_i`, and places by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glle_engine.linalg.compiled import compiled
from glle_engine.linalg.vectors import address, advance, fill, fma, load, offset, store
from glle_engine.weights.philox import normals

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GROUP = 4  # points: their 4 k normals are k counters of the stream


@compiled
def sample(
    tag: tuple[int, ...],
    position: NDArray[np.int32],
    counter: int,
    mean: NDArray[np.float64],
    factor: NDArray[np.float64],
    seeds: NDArray[np.uint64],
    indices: NDArray[np.uint64],
    spread: NDArray[np.float64],
    scratch: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> None:
    r"""Draw the weights of every lane.

    Parameters
    ----------
    tag
        As many numbers as there are lanes.
    position : (n,) int32
        Row of the result for each point, such as its position in the order of elimination.
    counter : int
        Counter of the streams at which the normals begin.
    mean : (n, k) float64
    factor : (n, k, k) float64
    seeds, indices : (lanes,) uint64
    spread : (lanes,) float64
        :math:`\sqrt{a}`.
    scratch : flat (4 k, lanes)
    weights : flat (n, k, lanes)
        Overwritten.

    """
    n, k = mean.shape
    z, target = address(scratch), address(weights)
    scale = load(tag, address(spread), 0)
    means, factors = address(mean), address(factor)
    keys, counters = address(seeds), address(indices)
    for first in range(0, n, GROUP):
        normals(tag, keys, counters, counter + first // GROUP * k, k, z)
        for i in range(GROUP * k):
            store(z, i, load(tag, z, i) * scale)
        for point in range(first, min(first + GROUP, n)):
            at, own = position[point] * k, advance(tag, z, (point - first) * k)
            centre, rows = offset(means, point * k), offset(factors, point * k * k)
            fours = k - k % 4
            for a in range(0, fours, 4):  # four sums at once, since one waits for itself
                v0, v1 = fill(tag, centre[a]), fill(tag, centre[a + 1])
                v2, v3 = fill(tag, centre[a + 2]), fill(tag, centre[a + 3])
                for b in range(k):
                    normal = load(tag, own, b)
                    v0 = fma(fill(tag, rows[a * k + b]), normal, v0)
                    v1 = fma(fill(tag, rows[(a + 1) * k + b]), normal, v1)
                    v2 = fma(fill(tag, rows[(a + 2) * k + b]), normal, v2)
                    v3 = fma(fill(tag, rows[(a + 3) * k + b]), normal, v3)
                store(target, at + a, v0)
                store(target, at + a + 1, v1)
                store(target, at + a + 2, v2)
                store(target, at + a + 3, v3)
            for a in range(fours, k):
                value = fill(tag, centre[a])
                for b in range(k):
                    value = fma(fill(tag, rows[a * k + b]), load(tag, own, b), value)
                store(target, at + a, value)


@compiled
def place(
    tag: tuple[int, ...],
    neighbors: NDArray[np.int64],
    weights: NDArray[np.float64],
    values: NDArray[np.float64],
    places: NDArray[np.float64],
) -> None:
    r"""Put :math:`\sum_j w_{ij} y_j` of every lane into places, flat (b, p, lanes).

    `neighbors` (b, k) are rows of the values y, flat (m, p, lanes), and `weights` is flat (b, k, lanes).
    """
    n, k = neighbors.shape
    p = len(places) // (n * len(tag))
    w, known, target = address(weights), address(values), address(places)
    for point in range(n):
        for c in range(p):
            total = load(tag, w, point * k) * load(tag, known, neighbors[point, 0] * p + c)
            for a in range(1, k):
                total = total + load(tag, w, point * k + a) * load(tag, known, neighbors[point, a] * p + c)
            store(target, point * p + c, total)


@compiled
def unpack(
    tag: tuple[int, ...], position: NDArray[np.int32], vectors: NDArray[np.float64], result: NDArray[np.float64]
) -> None:
    """Copy vectors (p, n, lanes), flat in the last two, to the order of the points: (lanes, n, p)."""
    lanes, n, wanted = result.shape
    for point in range(n):
        at = position[point] * lanes
        for lane in range(lanes):
            for i in range(wanted):
                result[lane, point, i] = vectors[i, at + lane]
