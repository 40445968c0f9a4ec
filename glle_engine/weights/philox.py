r"""Streams of standard normals for draws, counter-based and without state.

Word q of the stream of (seed, index) is word q of Philox 4x64-10 (Salmon, Moraes, Dror, Shaw 2011) with the key
(seed, index), in numpy's numbering. Its upper 53 bits are a uniform :math:`u_q \in [0, 1)`; each pair becomes two
normals (Box and Muller 1958), with :math:`r = \sqrt{-2 \log(1 - u_{2m})}`:

.. math:: z_{2m} = r \cos(2 \pi u_{2m+1}), \quad z_{2m+1} = r \sin(2 \pi u_{2m+1}).

With numba `glle_engine.weights.philox_lanes` computes it, with the same bits on every processor and for every solver;
without numba numpy does, to rounding.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.linalg import dense

if TYPE_CHECKING:
    from numpy.typing import NDArray


def standard_normal(seed: int, index: int, shape: tuple[int, ...], first: int = 0) -> NDArray[np.float64]:
    """Return standard normals 4 first, ... of the stream of (seed, index), in [0, 2^64), in C order."""
    count = math.prod(shape)
    if dense.has_compiler():
        return _compiled(seed, index, count, first).reshape(shape)
    generator = np.random.Philox(key=np.array([seed, index], np.uint64), counter=first)
    words = generator.random_raw(count + count % 2)
    uniform = (words >> np.uint64(11)) * 2.0**-53
    radius = np.sqrt(-2.0 * np.log(1.0 - uniform[0::2]))
    angle = 2.0 * np.pi * uniform[1::2]
    normals = np.empty(len(words))
    normals[0::2] = radius * np.cos(angle)
    normals[1::2] = radius * np.sin(angle)
    return normals[:count].reshape(shape)


def _compiled(seed: int, index: int, count: int, first: int) -> NDArray[np.float64]:
    """Return a part of one lane of the compiled stream; the other lanes repeat it."""
    from glle_engine.linalg import LANES  # noqa: PLC0415 -- numba takes a while to load
    from glle_engine.weights.philox_lanes import stream  # noqa: PLC0415

    target = np.empty((count + -count % 4) * LANES)
    stream((0,) * LANES, np.full(LANES, seed, np.uint64), np.full(LANES, index, np.uint64), first, target)
    return target[::LANES][:count].copy()
