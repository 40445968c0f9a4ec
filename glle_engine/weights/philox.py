r"""Streams of standard normals for draws, counter-based and without state.

Word q of the stream of (seed, index) is word q of Philox 4x64-10 (Salmon, Moraes, Dror, Shaw 2011) with the key
(seed, index), in numpy's numbering. Its upper 53 bits are a uniform :math:`u_q \in [0, 1)`; each pair becomes two
normals (Box and Muller 1958), with :math:`r = \sqrt{-2 \log(1 - u_{2m})}`:

.. math:: z_{2m} = r \cos(2 \pi u_{2m+1}), \quad z_{2m+1} = r \sin(2 \pi u_{2m+1}).

`glle_engine.weights.philox_lanes` computes it, with the same bits on every processor and for every solver.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.linalg import LANES
from glle_engine.weights.philox_lanes import stream

if TYPE_CHECKING:
    from numpy.typing import NDArray


def standard_normal(seed: int, index: int, shape: tuple[int, ...], first: int = 0) -> NDArray[np.float64]:
    """Return standard normals 4 first, ... of the stream of (seed, index), in [0, 2^64), in C order."""
    count = math.prod(shape)
    lanes = np.empty((count + -count % 4) * LANES)  # all of them repeat the stream
    stream((0,) * LANES, np.full(LANES, seed, np.uint64), np.full(LANES, index, np.uint64), first, lanes)
    return lanes[::LANES][:count].reshape(shape).copy()
