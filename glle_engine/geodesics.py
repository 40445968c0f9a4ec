r"""How much of the geodesic distances an embedding leaves unexplained.

The residual variance :math:`1 - R^2(D_G, D_Y)`, R the correlation, over pairs of points, of the shortest ways along the
neighbour graph of the data with the Euclidean distances in the embedding (Tenenbaum, de Silva, Langford 2000, Science
290, figure 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from glle_engine.errors import DegenerateDataError, InvalidShapeError
from glle_engine.methods.neighborhood import connected_neighbors
from glle_engine.progress import OnProgress, blocks, silent

if TYPE_CHECKING:
    from numpy.typing import NDArray

EXACT_POINTS = 2000  # all pairs up to here: some three seconds
LANDMARKS = 400  # of more points: pairs of one of these with any point
_SEED = 0
_BLOCK_ENTRIES = 1 << 21


def residual_variance(
    X: NDArray[np.float64], Y: NDArray[np.float64], n_neighbors: int = 10, on_progress: OnProgress = silent
) -> float:
    """Return the residual variance, in [0, 1]; 0 is best.

    Over all pairs up to 2,000 points, over the pairs with one of 400 landmarks, a fixed sample, for more.

    Parameters
    ----------
    X : (n, d) float64
        The data.
    Y : (n, p) float64
        The embedding.
    n_neighbors : int
        k < n of the graph, each of whose edges leads both ways.
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
    if len(Y) != n:
        raise InvalidShapeError(
            f"The data have {n} points, the embedding {len(Y)}.", remedy="Give one row of each for every point."
        )
    nearest, lengths = connected_neighbors(X, n_neighbors, on_progress)
    graph = csr_array((lengths.ravel(), nearest.ravel(), np.arange(0, n * n_neighbors + 1, n_neighbors)), shape=(n, n))
    landmarks = np.arange(n)
    if n > EXACT_POINTS:
        landmarks = np.sort(np.random.default_rng(_SEED).choice(n, LANDMARKS, replace=False))
    # Units in which both are of order one: sums of squares then stay within range.
    units = [float(np.ptp(points, axis=0).max()) or 1.0 for points in (X, Y)]
    moments = np.zeros(6)
    for part in blocks(len(landmarks), max(1, _BLOCK_ENTRIES // n), "geodesics", on_progress):
        along = dijkstra(graph, directed=False, indices=landmarks[part]) / units[0]
        straight = np.linalg.norm((Y[landmarks[part], None, :] - Y) / units[1], axis=2)
        others = np.arange(n) != landmarks[part, None]
        a, b = along[others], straight[others]
        moments += [a.size, a.sum(), b.sum(), a @ a, b @ b, a @ b]
    mean = moments / moments[0]
    spread = np.array([mean[3] - mean[1] ** 2, mean[4] - mean[2] ** 2])
    if (spread <= 1e-14 * mean[3:5]).any():
        raise DegenerateDataError(
            "All distances are equal, in the data or in the embedding: nothing varies.",
            remedy="Give more points, and an embedding whose points differ.",
        )
    return float(np.clip(1 - (mean[5] - mean[1] * mean[2]) ** 2 / spread.prod(), 0.0, 1.0))
