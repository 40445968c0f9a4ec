"""Residual variance: the share of the variance of distances that an embedding leaves unexplained.

The score is :math:`1 - R^2(D_G, D_Y)`, R the correlation, over pairs of points, between lengths of shortest paths
along the neighbor graph of the data and Euclidean distances in the embedding (Tenenbaum, de Silva, Langford 2000,
Science 290, figure 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from glle_engine.base.errors import DegenerateDataError
from glle_engine.base.progress import OnProgress, blocks, silent
from glle_engine.base.validation import require_same_length
from glle_engine.graph.connectivity import connected_neighbors
from glle_engine.linalg.distances import power_of_two

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

EXACT_POINTS = 2000  # all pairs up to this n: some three seconds
LANDMARKS = 400  # for larger n: pairs of one of these with any point
_SEED = 0
_BLOCK_ENTRIES = 1 << 21


def residual_variance(
    X: NDArray[np.float64], Y: NDArray[np.float64], n_neighbors: int = 10, on_progress: OnProgress = silent
) -> float:
    """Return the residual variance, in [0, 1]; 0 is best.

    Over all pairs up to 2,000 points; for more, over the pairs with one of 400 landmarks, a fixed sample.

    Parameters
    ----------
    X : (n, d) float64
        The data.
    Y : (n, p) float64
        The embedding.
    n_neighbors : int
        k < n of the graph, whose edges are undirected.
    on_progress
        Called with (landmarks done, all, "geodesics").

    Raises
    ------
    InvalidShapeError
        If X and Y differ in length.
    DisconnectedGraphError
        With the smallest k that connects.
    DegenerateDataError
        If all distances are equal, in the graph or in the embedding.

    """
    n = len(X)
    require_same_length(X, Y)
    nearest, lengths = connected_neighbors(X, n_neighbors, on_progress)
    graph = csr_array((lengths.ravel(), nearest.ravel(), np.arange(0, n * n_neighbors + 1, n_neighbors)), shape=(n, n))
    landmarks = np.arange(n)
    if n > EXACT_POINTS:
        landmarks = np.sort(np.random.default_rng(_SEED).choice(n, LANDMARKS, replace=False))

    def along(part: slice) -> NDArray[np.float64]:
        return np.asarray(dijkstra(graph, directed=False, indices=landmarks[part]))

    return unexplained_variance(along, landmarks, Y, on_progress)


def unexplained_variance(
    distances: Callable[[slice], NDArray[np.float64]],
    points: NDArray[np.intp],
    Y: NDArray[np.float64],
    on_progress: OnProgress = silent,
) -> float:
    """Return :math:`1 - r^2`, r the correlation of distances in the data with those in an embedding, in [0, 1].

    Over the pairs of one of some points with any other point. The only definition of residual variance: of the score
    (with lengths of shortest paths) and of Isomap (with its own). No unit changes it.

    Parameters
    ----------
    distances : callable
        A slice of the points to their distances (b, n), in the data, to all points.
    points : (m,) int
    Y : (n, p) float64
        The embedding.
    on_progress
        Called with (points done, m, "geodesics").

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
