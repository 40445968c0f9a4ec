"""The slow and plain reference of the searches for nearest rows: sort all distances."""

import numpy as np
from numpy.typing import NDArray

from glle_engine.linalg.distances import distances, ranks_of


def nearest_by_sorting(
    data: NDArray[np.float64], points: NDArray[np.float64], own_rows: NDArray[np.intp], k: int
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return the k rows of smallest (rank of the distance, index) for each point, without row own_rows[i] (-1: all)."""
    candidates = np.broadcast_to(np.arange(len(data)), (len(points), len(data)))
    apart = np.where(candidates == own_rows[:, None], np.inf, distances(points, data, candidates))
    order = np.lexsort((candidates, ranks_of(apart)), axis=1)[:, :k]
    return order, np.take_along_axis(apart, order, axis=1)
