r"""Short circuits of Isomap's graph, found by the residual variance of the embedding and of half-samples.

An edge between two turns of a sheet shortens the paths among many points, so that no plane has their lengths. On Swiss
rolls and S-curves of 500 points the residual variance (`glle_engine.metrics.residual_variance`) against the graph of
all points is at most .014 without such edges and at least .042 with them (docs/reference/methods.md).

Half-samples have fewer points and longer edges. They can be shorted although the whole is not, and move far because of
it. Residual variance is also that of missing dimensions, so that nothing follows from it where the data have more of
them than the embedding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from glle_engine.base.errors import GlleError
from glle_engine.base.progress import silent
from glle_engine.graph.connectivity import connected_neighbors
from glle_engine.graph.neighbors import kneighbors
from glle_engine.metrics.residual_variance import unexplained_variance
from glle_engine.posterior.selection import intrinsic_dimension

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SHORTED = 0.04  # residual variance
PROBES = 200  # points from which paths are followed
SPARE_DIMENSIONS = 0.8  # estimate of the dimension beyond p, on sheets with noise
_TIMES = "half-samples of Isomap move about 3 times as far as embeddings of new data"
UNKNOWN = (
    f"If the graph has edges between turns of a sheet (short circuits), {_TIMES}. Check the movement with a smaller "
    "n_neighbors."
)


def warning(
    points: NDArray[np.float64], k: int, reference: NDArray[np.float64], halves: NDArray[np.float64]
) -> str | None:
    """Return the warning on short circuits; None if there is no sign of them, in the whole or in half-samples.

    Parameters
    ----------
    points : (n, d) float64
        In the space of the embedding.
    k : int
        Neighbors of the graph.
    reference : (n, p) float64
        The embedding of all points.
    halves : (m, n, p) float64
        Half-samples; the median of their residual variances counts.

    """
    dimension = intrinsic_dimension(kneighbors(points, min(10, len(points) - 1))[1])
    if dimension >= reference.shape[1] + SPARE_DIMENSIONS:
        return UNKNOWN
    try:
        whole, *parts = residuals(points, k, [reference, *halves])
    except GlleError:  # no connected graph, or no variation
        return UNKNOWN
    part = float(np.median(parts))
    if max(whole, part) < SHORTED:
        return None
    return (
        f"The residual variance is {whole:.2g} for the embedding and {part:.2g} for half-samples; above {SHORTED:g} "
        "the graph has edges between turns of a sheet (short circuits), or the sheet is not flat. With short circuits "
        f"{_TIMES}. Check the movement with "
        + ("a smaller n_neighbors." if whole >= SHORTED else "more points: the graph of all points has none.")
    )


def residuals(points: NDArray[np.float64], k: int, embeddings: Sequence[NDArray[np.float64]]) -> list[float]:
    """Return the residual variance of embeddings (n, p), over pairs with one of `PROBES` points.

    Raises
    ------
    DisconnectedGraphError, DegenerateDataError

    """
    n = len(points)
    nearest, lengths = connected_neighbors(points, k, silent)
    graph = csr_array((lengths.ravel(), nearest.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n))
    probes = np.random.default_rng(0).permutation(n)[:PROBES]
    along = dijkstra(graph, directed=False, indices=probes)
    return [unexplained_variance(lambda part: along[part], probes, Y) for Y in embeddings]
