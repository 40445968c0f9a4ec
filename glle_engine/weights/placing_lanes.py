"""Places of points by drawn weights on other points, in the draws of all lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glle_engine.linalg.compiled import compiled
from glle_engine.linalg.vectors import address, advance, fill, fma, load, offset, store
from glle_engine.weights.philox_lanes import normals

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GROUP = 4  # points: their 4 k normals are k counters of the stream


@compiled
def place(
    tag: tuple[int, ...],
    first: int,
    mean: NDArray[np.float64],
    factor: NDArray[np.float64],
    neighbors: NDArray[np.int64],
    values: NDArray[np.float64],
    seeds: NDArray[np.uint64],
    indices: NDArray[np.uint64],
    spread: NDArray[np.float64],
    scratch: NDArray[np.float64],
    places: NDArray[np.float64],
) -> None:
    r"""Put :math:`\sum_j w_{ij} y_j`, :math:`w_i = m_i + \sqrt{a} F_i z_i`, into the places of every lane.

    Parameters
    ----------
    tag
        As many numbers as there are lanes.
    first : int
        Counter of the stream at which the normals begin.
    mean : (b, k) float64
    factor : (b, k, k) float64
    neighbors : (b, k) int64
        Rows of `values`.
    values : flat (m, p, lanes)
    seeds, indices : (lanes,) uint64
    spread : (lanes,) float64
        :math:`\sqrt{a}`.
    scratch : flat (5 k, lanes)
    places : flat (b, p, lanes)
        Overwritten.

    """
    n, k = mean.shape
    lanes = len(tag)
    p = len(places) // (n * lanes)
    z, target, known = address(scratch), address(places), address(values)
    weights = advance(tag, z, GROUP * k)
    scale = load(tag, address(spread), 0)
    means, factors = address(mean), address(factor)
    keys, counters = address(seeds), address(indices)
    for start in range(0, n, GROUP):
        normals(tag, keys, counters, first + start // GROUP * k, k, z)
        for i in range(GROUP * k):
            store(z, i, load(tag, z, i) * scale)
        for point in range(start, min(start + GROUP, n)):
            own = advance(tag, z, (point - start) * k)
            centre, rows = offset(means, point * k), offset(factors, point * k * k)
            for a in range(k):
                value = fill(tag, centre[a])
                for b in range(k):
                    value = fma(fill(tag, rows[a * k + b]), load(tag, own, b), value)
                store(weights, a, value)
            for c in range(p):
                total = load(tag, weights, 0) * load(tag, known, neighbors[point, 0] * p + c)
                for a in range(1, k):
                    total = total + load(tag, weights, a) * load(tag, known, neighbors[point, a] * p + c)
                store(target, point * p + c, total)
