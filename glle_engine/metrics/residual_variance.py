"""Residual variance: the share of the variance of distances that an embedding leaves unexplained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.errors import DegenerateDataError
from glle_engine.base.progress import OnProgress, blocks, silent
from glle_engine.linalg.distances import power_of_two

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_BLOCK_ENTRIES = 1 << 21


def unexplained_variance(
    distances: Callable[[slice], NDArray[np.float64]],
    points: NDArray[np.intp],
    Y: NDArray[np.float64],
    on_progress: OnProgress = silent,
) -> float:
    r"""Return :math:`1 - r^2`, r the correlation of distances in the data with those in an embedding.

    Over the pairs of one of some points with any other point; the pair of a point with itself does not count. The only
    definition of residual variance: of the score, where distances are lengths of shortest paths, of Isomap, where they
    are its own, and of `auto-k-lle`, where they are Euclidean. No unit changes it.

    Parameters
    ----------
    distances : callable
        A slice of the points to their distances (b, n), in the data, to all points.
    points : (m,) int
    Y : (n, p) float64
        The embedding.
    on_progress
        Called with (points done, m, "geodesics").

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    DegenerateDataError
        If all distances are equal, in the data or in the embedding.

    """
    n = len(Y)
    unit = 0.0
    places = Y / power_of_two(float(np.ptp(Y, axis=0).max()))
    moments = np.zeros(6)
    for part in blocks(len(points), max(1, _BLOCK_ENTRIES // n), "geodesics", on_progress):
        along = distances(part)
        unit = unit or power_of_two(float(along.max()))
        own = places[points[part]]
        straight = np.sqrt(sum((own[:, j, None] - places[:, j]) ** 2 for j in range(places.shape[1])))
        others = np.arange(n) != points[part, None]
        a, b = along[others] / unit, straight[others]
        moments += [a.size, a.sum(), b.sum(), (a * a).sum(), (b * b).sum(), (a * b).sum()]
    mean = moments / moments[0]
    spread = np.array([mean[3] - mean[1] ** 2, mean[4] - mean[2] ** 2])
    if (spread <= 1e-14 * mean[3:5]).any():
        raise DegenerateDataError(
            "All distances are equal, in the data or in the embedding: nothing varies.",
            remedy="Give more points, and an embedding whose points differ.",
        )
    return float(np.clip(1 - (mean[5] - mean[1] * mean[2]) ** 2 / spread.prod(), 0.0, 1.0))
