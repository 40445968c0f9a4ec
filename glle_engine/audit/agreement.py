r"""Agreement of the pictures of two separate halves of the data.

Halves :math:`A` and :math:`B` without common points are two independent samples of the population. Each is embedded,
and all points are placed in both embeddings. The part of the picture that both show is

.. math:: R^2 = 1 - \text{disparity}(Y_A, Y_B),

the Procrustes disparity. It is that of samples of half the size, and so on the careful side for the whole. With
one coordinate more, the squared canonical correlations of both embeddings say how many coordinates two samples share: a
ball shows three, noise none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.linalg import dense
from glle_engine.linalg.procrustes import disparity

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHARED = 0.5  # squared canonical correlation of a coordinate that two samples share


def common_share(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return R^2 (m,) of each pair of consecutive embeddings (2 m, n, p), those of two separate halves."""
    return np.array([1 - disparity(a, b) for a, b in zip(places[::2], places[1::2], strict=True)])


def shared_coordinates(places: NDArray[np.float64]) -> int:
    """Return the number of coordinates that the pairs of consecutive embeddings (2 m, n, p) share.

    Coordinate j is shared if the median of its squared canonical correlation over pairs is at least .5.
    """
    pairs = zip(places[::2], places[1::2], strict=True)
    return int((np.median([canonical_correlations(a, b) ** 2 for a, b in pairs], axis=0) >= SHARED).sum())


def canonical_correlations(A: NDArray[np.float64], B: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the canonical correlations (p,) of two embeddings (n, p), the largest first (Hotelling 1936)."""
    first, second = (dense.svd(Y - Y.mean(axis=0))[0] for Y in (A, B))
    return np.asarray(dense.svd(dense.cross(first, second))[1])
