r"""Landmarks: m of n points that cover the data, by k-means++.

The first landmark is uniform. Each further one is drawn with a probability in proportion to its squared distance to the
nearest landmark so far (Arthur and Vassilvitskii 2007, *k-means++: the advantages of careful seeding*). Regions far
from all landmarks get one first, as with farthest points (Gonzalez 1985), but outliers do not use up the landmarks, and
dense regions get more of them. `docs/explanation/landmarks.md` compares the rules.

A landmark's points are searched only if the triangle inequality lets a new landmark take some of them
(`glle_engine.linalg.nearest.seeding_kernels`), so that the time grows like n log m, plus m^2, for data of few intrinsic
dimensions. The uniforms are the words of Philox 4x64-10 keyed by (n, m): equal data have equal landmarks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.progress import OnProgress, silent
from glle_engine.linalg import dense
from glle_engine.linalg.nearest.seeding_kernels import seed

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BETWEEN_REPORTS = 3e8  # products of landmarks, points and features


def chosen_landmarks(X: NDArray[np.float64], count: int, on_progress: OnProgress = silent) -> NDArray[np.int32]:
    """Choose landmarks of X (n, d), count <= n distinct rows, ascending.

    If fewer points differ, the first of the others complete them. `on_progress` is called with (chosen, count,
    "landmarks").
    """
    key = np.array([len(X), count], np.uint64)
    uniforms: NDArray[np.float64] = (np.random.Philox(key=key).random_raw(count) >> np.uint64(11)) * np.float64(
        2.0**-53
    )
    on_progress(0, count, "landmarks")
    chosen = _seeds(X, uniforms, on_progress)
    is_chosen = np.zeros(len(X), bool)
    is_chosen[chosen] = True
    is_chosen[np.flatnonzero(~is_chosen)[: count - len(chosen)]] = True
    on_progress(count, count, "landmarks")
    return np.flatnonzero(is_chosen).astype(np.int32)


def _seeds(X: NDArray[np.float64], uniforms: NDArray[np.float64], on_progress: OnProgress) -> NDArray[np.int64]:
    """Return the rows that k-means++ chooses, at most one for each uniform."""
    (n, d), m = X.shape, len(uniforms)
    chosen, heads, following = np.empty(m, np.int64), np.empty(m, np.int64), np.empty(n, np.int64)
    squares, sums, radii = np.empty(n), np.zeros(m), np.zeros(m)
    done = 0
    while done < m:
        share = max(1, int(_BETWEEN_REPORTS / (n * d)))  # of the first landmarks, which compare all points
        last = min(m, done + max(share, done // 8))
        reached = seed(dense.readable(X), uniforms, done, last, chosen, squares, heads, following, sums, radii)
        if reached < last:
            return chosen[:reached]
        done = last
        on_progress(done, m, "landmarks")
    return chosen
