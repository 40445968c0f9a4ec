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

from glle_engine.base.errors import InvalidShapeError
from glle_engine.base.progress import OnProgress, silent
from glle_engine.graph.connectivity import connected_neighbors
from glle_engine.metrics.residual_variance import unexplained_variance

if TYPE_CHECKING:
    from numpy.typing import NDArray

EXACT_POINTS = 2000  # all pairs up to here: some three seconds
LANDMARKS = 400  # of more points: pairs of one of these with any point
_SEED = 0


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

    def along(part: slice) -> NDArray[np.float64]:
        return np.asarray(dijkstra(graph, directed=False, indices=landmarks[part]))

    return unexplained_variance(along, landmarks, Y, on_progress)
