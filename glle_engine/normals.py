r"""The stream of standard normals behind a draw: counter-based, so that every draw has its own without any state.

Word q of the stream of (seed, index) is word q of Philox 4x64-10 (Salmon, Moraes, Dror, Shaw 2011) with the key
(seed, index), as numpy numbers them. Its upper 53 bits are a uniform :math:`u_q \in [0, 1)`; each pair becomes two
normals (Box and Muller 1958), with :math:`r = \sqrt{-2 \log(1 - u_{2m})}`:

.. math:: z_{2m} = r \cos(2 \pi u_{2m+1}), \quad z_{2m+1} = r \sin(2 \pi u_{2m+1}).

It is computed here and in `glle_engine.lanes.normals`, so that a draw is of the same weights (to rounding) whichever of
the two made it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def standard_normal(seed: int, index: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the first standard normals of the stream of (seed, index), in C order.

    Parameters
    ----------
    seed, index : int
        In [0, 2^64).
    shape : tuple of int

    """
    count = math.prod(shape)
    words = np.random.Philox(key=np.array([seed, index], np.uint64)).random_raw(count + count % 2)
    uniform = (words >> np.uint64(11)) * 2.0**-53
    radius = np.sqrt(-2.0 * np.log(1.0 - uniform[0::2]))
    angle = 2.0 * np.pi * uniform[1::2]
    normals = np.empty(len(words))
    normals[0::2] = radius * np.cos(angle)
    normals[1::2] = radius * np.sin(angle)
    return normals[:count].reshape(shape)
