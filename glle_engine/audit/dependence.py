"""Signs that rows of data are no independent samples: near-copies, and rows whose order matters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.results import Note
from glle_engine.graph.neighbors import kneighbors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

ROWS = 2000  # at most, for the distances
NEAR_COPY, FIFTH = 0.1, 5  # distance to the nearest neighbor relative to the distance to the fifth neighbor
MIN_COPIES = 0.3  # share of the rows
FOLLOWING = 0.8  # mean distance of following rows relative to random ones


def dependence_notes(points: NDArray[np.float64], seed: int = 0) -> Iterator[Note]:
    """Yield notes if points (n, d) have near-copies, or are near the points in the rows before them."""
    n = len(points)
    if n < 4 * FIFTH:
        return
    rng = np.random.Generator(np.random.Philox(key=np.array([seed, n], np.uint64)))
    distance = kneighbors(np.ascontiguousarray(points[:ROWS] if n > ROWS else points), FIFTH)[1]
    if (copies := float((distance[:, 0] < NEAR_COPY * distance[:, -1]).mean())) >= MIN_COPIES:
        yield Note(
            "near-copies",
            f"{copies:.0%} of the rows have a near-copy. If they are replicates, give blocks=, with the same value for "
            "the replicates of one sample, because halves of the data otherwise share them and the map looks more "
            "certain than it is.",
        )
    step = np.linalg.norm(points[1:ROWS] - points[: min(n, ROWS) - 1], axis=1).mean()
    order = rng.permutation(min(n, ROWS))
    usual = np.linalg.norm(points[order[1:]] - points[order[:-1]], axis=1).mean()
    if step < FOLLOWING * usual:
        yield Note(
            "order-of-rows",
            "Rows are nearer to the row before them than to random rows. If they are series or are sorted by subject, "
            "give blocks=, the series or subject of each row.",
        )
