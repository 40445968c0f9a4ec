"""Signs that the rows of the data are not independent samples: near-copies, and rows whose order matters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.results import Note
from glle_engine.graph.neighbors import kneighbors

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS = 2000  # at most these first rows are examined
NEAR_COPY, FIFTH = 0.1, 5  # distance to the nearest neighbor relative to the distance to the fifth neighbor
MIN_COPIES = 0.3  # share of rows with a near-copy from which on there is a note
DEPENDENT_COPIES = 0.5  # share of rows with a near-copy from which on halves are not independent
MAX_STEP = 0.8  # order matters if consecutive rows are nearer than this, relative to random rows (mean distance)
LAG = 5  # rows; at this lag rows of a series have moved apart, and rows of a sorted group have not


def find_dependence(points: NDArray[np.float64], seed: int = 0) -> tuple[list[Note], str]:
    """Return notes if points (n, d) have near-copies, or are near the points in the rows before them.

    Also returns the reason why halves of the points are not independent samples, or an empty text if they may be. Rows
    that are sorted by group are about as near to the fifth row before them as to the row before them, and can still be
    independent. Rows of a series and replicates are nearer to the row before them.
    """
    n, notes, reason = len(points), list[Note](), ""
    if n < 4 * FIFTH:
        return notes, reason
    rng = np.random.Generator(np.random.Philox(key=np.array([seed, n], np.uint64)))
    points = np.ascontiguousarray(points[:ROWS])
    distance = kneighbors(points, FIFTH)[1]
    if (copies := float((distance[:, 0] < NEAR_COPY * distance[:, -1]).mean())) >= MIN_COPIES:
        text = (
            f"{copies:.0%} of the rows have a near-copy. If they are replicates, give blocks=, with the same value for "
            "the replicates of one sample, because halves of the data otherwise share them and the map looks more "
            "certain than it is."
        )
        notes.append(Note("near-copies", text))
        reason = "most rows have a near-copy" if copies >= DEPENDENT_COPIES else ""
    step, far = (np.linalg.norm(points[lag:] - points[:-lag], axis=1).mean() for lag in (1, LAG))
    order = rng.permutation(len(points))
    usual = np.linalg.norm(points[order[1:]] - points[order[:-1]], axis=1).mean()
    if step < MAX_STEP * usual:
        text = (
            "Rows are nearer to the row before them than to random rows. If they are series or are sorted by subject, "
            "give blocks=, the series or subject of each row."
        )
        notes.append(Note("order-of-rows", text))
        if step < MAX_STEP * far:
            reason = "each row is near the row before it, as in a series or among replicates"
    return notes, reason
