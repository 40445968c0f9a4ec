r"""Fidelity of a map to the data: neighbors that it keeps, and distances that it orders as the data do.

Neighbors of the data are the nearest points by the first ten principal components. Beyond ten dimensions all points are
nearly equally far from each other, and noise decides who is near whom.

Distances in the map are compared with two kinds of distances in the data: straight (Euclidean) distances, and distances
along the data, the lengths of shortest paths over the graph of ten neighbors. On a curved sheet the two differ, and a
map that unrolls the sheet keeps only the second kind. The measure is the rank correlation, over the distances from a
hundred random points to these and a thousand more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from glle_engine.base.progress import silent
from glle_engine.base.randomness import generator
from glle_engine.graph.connectivity import bridge
from glle_engine.graph.neighbors import kneighbors
from glle_engine.linalg.distances import unit_of
from glle_engine.linalg.rank_correlation import rank_correlation
from glle_engine.methods.linear.pca import principal_axes
from glle_engine.metrics.neighbor_count import kept_neighbors

if TYPE_CHECKING:
    from numpy.typing import NDArray

COMPONENTS = 10
PATH_NEIGHBORS = 10  # neighbors in the graph of shortest paths
MAX_STARTS, MAX_ENDS = 100, 1000  # distances are compared from 100 random points to these and to 1,000 more


@dataclass(frozen=True, eq=False)
class Fidelity:
    """Measures how faithful maps of some points are; neighbors and distances of the points are computed only once.

    Attributes
    ----------
    points : (n, d) float64
        Points whose Euclidean distances are the distances of the data, divided by a power of two.
    starts, ends : (s,), (e,) int
        Rows of random points; the distances of all pairs of a start and an end are compared.

    """

    points: NDArray[np.float64]
    starts: NDArray[np.intp]
    ends: NDArray[np.intp]

    @classmethod
    def from_points(cls, points: NDArray[np.float64], seed: int = 0) -> Self:
        """Prepare to compare maps with points (n, d); `seed` decides which pairs of points are compared."""
        n = len(points)
        order = generator(seed, n).permutation(n)
        return cls(points / unit_of(points), order[:MAX_STARTS], order[: MAX_STARTS + MAX_ENDS])

    @cached_property
    def components(self) -> NDArray[np.float64]:
        """The first ten principal components (n, 10) of the points, or the points if they have no more columns."""
        if self.points.shape[1] <= COMPONENTS:
            return self.points
        count = min(COMPONENTS, len(self.points) - 1)
        return np.ascontiguousarray(principal_axes(self.points, count, silent).scores)

    @cached_property
    def straight(self) -> NDArray[np.float64]:
        """The Euclidean distances in the data of all pairs of `starts` and `ends` (s * e,)."""
        return _distances(self.points, self.starts, self.ends)

    @cached_property
    def along(self) -> NDArray[np.float64]:
        """The lengths of shortest paths over the neighbor graph, for all pairs of `starts` and `ends` (s * e,)."""
        n, k = len(self.points), min(PATH_NEIGHBORS, len(self.points) - 2)
        nearest, _, _ = bridge(self.points, kneighbors(self.points, k)[0])
        rows = np.repeat(np.arange(n), k)
        lengths = np.sqrt(((self.points[rows] - self.points[nearest.ravel()]) ** 2).sum(axis=1))
        graph = csr_array((np.maximum(lengths, np.finfo(float).tiny), (rows, nearest.ravel())), shape=(n, n))
        return np.asarray(dijkstra(graph, directed=False, indices=self.starts)[:, self.ends]).ravel()

    def kept(self, Y: NDArray[np.float64], k: int) -> float:
        """Return the share of the data's k nearest neighbors that are also among the k nearest in a map (n, p).

        The share is corrected for chance: 0 for random positions, 1 for a map that keeps all neighbors.
        """
        return kept_neighbors(self._near(k), Y)

    def layout(self, Y: NDArray[np.float64]) -> tuple[float, float]:
        """Return the rank correlations of a map's distances with Euclidean and with geodesic distances in the data."""
        in_map = _distances(Y, self.starts, self.ends)
        return rank_correlation(in_map, self.straight), rank_correlation(in_map, self.along)

    def _near(self, k: int) -> NDArray[np.int32]:
        cached: dict[int, NDArray[np.int32]] = self.__dict__.setdefault("_neighbors", {})
        if k not in cached:
            cached[k] = kneighbors(self.components, k)[0]
        return cached[k]


def _distances(points: NDArray[np.float64], starts: NDArray[np.intp], ends: NDArray[np.intp]) -> NDArray[np.float64]:
    a, b = points[starts], points[ends]
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
    return np.asarray(np.sqrt(np.maximum(squares, 0.0))).ravel()
