"""Signs that rows of data are no independent samples: near-copies, and rows whose order matters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.results import Note
from glle_engine.graph.neighbors import kneighbors

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS = 2000  # at most, for the distances
NEAR_COPY, FIFTH = 0.1, 5  # distance to the nearest neighbor relative to the distance to the fifth neighbor
MIN_COPIES = 0.3  # share of the rows
MOST = 0.5  # share of the rows from which on halves share most of them
FOLLOWING = 0.8  # mean distance of following rows relative to random ones
LAG = 5  # rows, over which neighbors in a series part and rows of a sorted group do not


def find_dependence(points: NDArray[np.float64], seed: int = 0) -> tuple[list[Note], str]:
    """Return notes if points (n, d) have near-copies, or are near the points in the rows before them.

    Also why halves of them are no independent samples, or nothing if they may be: rows that are sorted by group are
    near the fifth row before, too, and rows of a series and replicates are not.
    """
    n, notes, reason = len(points), list[Note](), ""
    if n < 4 * FIFTH:
        return notes, reason
    rng = np.random.Generator(np.random.Philox(key=np.array([seed, n], np.uint64)))
    distance = kneighbors(np.ascontiguousarray(points[:ROWS] if n > ROWS else points), FIFTH)[1]
    if (copies := float((distance[:, 0] < NEAR_COPY * distance[:, -1]).mean())) >= MIN_COPIES:
        text = (
            f"{copies:.0%} of the rows have a near-copy. If they are replicates, give blocks=, with the same value for "
            "the replicates of one sample, because halves of the data otherwise share them and the map looks more "
            "certain than it is."
        )
        notes.append(Note("near-copies", text))
        reason = "most rows have a near-copy" if copies >= MOST else ""
    points = points[:ROWS]
    step, far = (np.linalg.norm(points[lag:] - points[:-lag], axis=1).mean() for lag in (1, LAG))
    order = rng.permutation(len(points))
    usual = np.linalg.norm(points[order[1:]] - points[order[:-1]], axis=1).mean()
    if step < FOLLOWING * usual:
        text = (
            "Rows are nearer to the row before them than to random rows. If they are series or are sorted by subject, "
            "give blocks=, the series or subject of each row."
        )
        notes.append(Note("order-of-rows", text))
        if step < FOLLOWING * far:
            reason = "each row is near the row before it, as in a series or among replicates"
    return notes, reason
