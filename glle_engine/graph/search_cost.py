"""Predicted time of the exact neighbor search, from counted work and measured rates."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from glle_engine.linalg.distances import unit_of
from glle_engine.linalg.nearest.leaves import Leaves

if TYPE_CHECKING:
    from numpy.typing import NDArray

SAMPLE = 20_000  # rows at most whose search is counted
# Seconds on one core of an AMD EPYC of 2024 with AVX-512, by least squares over 38 searches of 2 to 784 features.
PAIR, PAIR_FEATURE = 3e-10, 1.5e-11  # of a pair in a tile
_DISTANCE, _DISTANCE_FEATURE = 5.5e-8, 4e-10
_ENTRY, _LEVEL = 2.2e-8, 1.1e-7  # filling the leaves: a number of a row, a level of the tree for a row
_START = 1e-3
_WALK, _WALK_FEATURE = 8e-5, 4e-7  # faiss: a point of the approximate search
_GROUPS, _COUNTED = 16, 1e10  # groups of points that are searched to count, and products at most


class SearchCost(NamedTuple):
    """Predicted cost of an exact search on one core.

    `pairs` is the number of pairs of points that are compared, n^2 if nothing is left out.
    """

    seconds: float
    pairs: float


def search_cost(sample: NDArray[np.float64], n_neighbors: int, n_points: int | None = None) -> SearchCost:
    """Predict the cost of `glle_engine.graph.neighbors.kneighbors` from the work counted on a sample.

    The work depends on the data only, not on the clock, so that the same sample gives the same prediction. For more
    points than the sample has, the pairs of a point are extrapolated as a power of n, from the sample and a quarter of
    it: they stay the same in few intrinsic dimensions, and grow with n in many.

    Parameters
    ----------
    sample : (m, d) float64
        All points, or two or more of them in random order; of more than 20,000, evenly spaced ones are used.
    n_neighbors : int
        k < n.
    n_points : int, optional
        n >= m; by default m.

    """
    n, d = n_points or len(sample), sample.shape[1]
    sample = sample[:: -(-len(sample) // SAMPLE)]
    sample = sample / unit_of(sample)
    work = _count_work(sample, min(n_neighbors, len(sample) - 1))
    if n > len(sample) and len(sample) // 4 > n_neighbors:
        less = _count_work(sample[::4], n_neighbors)
        growth = np.clip(np.log(work / less) / np.log(4), 0.0, 1.0)
        work = work * (n / len(sample)) ** growth
    pairs, distances = work.tolist()
    search = (PAIR + PAIR_FEATURE * d) * pairs + (_DISTANCE + _DISTANCE_FEATURE * d) * distances
    each = search + _ENTRY * d + _LEVEL * np.log2(n)
    return SearchCost(_START + n * float(each), n * pairs)


def approximate_seconds(n: int, d: int) -> float:
    """Return the predicted seconds of the approximate search of n points in d features on one core."""
    return n * (_WALK + _WALK_FEATURE * d)


def all_pairs_seconds(n: int, d: int) -> float:
    """Return the predicted seconds on one core of an exact search that leaves out no pair."""
    return n * n * (PAIR + PAIR_FEATURE * d)


def _count_work(X: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Return the pairs in tiles and the computed distances of a point, on average over some groups of points."""
    leaves = Leaves(X)
    groups = max(2, min(_GROUPS, int(_COUNTED // (leaves.size * X.size))))
    return leaves.work(k, groups) / len(X)
