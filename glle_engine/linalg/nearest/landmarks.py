r"""Landmarks: m of n points that cover the data, by k-means++.

The first landmark is uniform. Each further one is drawn with a probability in proportion to its squared distance to the
nearest landmark so far (Arthur and Vassilvitskii 2007, *k-means++: the advantages of careful seeding*). Regions far
from all landmarks get one first, as with farthest points (Gonzalez 1985), but outliers do not use up the landmarks, and
dense regions get more of them. `docs/explanation/landmarks.md` compares the rules.

The distribution is exact, although distances to all points are computed only when there are four times as many
landmarks. Between, a point is proposed in proportion to its last known square :math:`q`, and accepted with probability
:math:`d^2 / q`, :math:`d` its distance to the nearest landmark by now (rejection sampling: landmarks only bring a point
nearer). The random numbers are the words of Philox 4x64-10 keyed by (n, m): equal data have equal landmarks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.progress import OnProgress, silent
from glle_engine.linalg import dense
from glle_engine.linalg.compiled import compiled
from glle_engine.linalg.nearest.distance_kernels import distance
from glle_engine.linalg.nearest.leaves import Leaves, PrincipalAxes, leaf_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GROWTH = 4  # of the number of landmarks between two computations of all distances
_NEAR = 64  # points near each other, whose nearest landmarks are searched together
_PROPOSALS = 4  # for each landmark that is to be added: if more are rejected, distances are computed earlier


@compiled
def accept(
    X: NDArray[np.float64],
    squares: NDArray[np.float64],
    reached: NDArray[np.float64],
    uniforms: NDArray[np.float64],
    chosen: NDArray[np.int64],
    known: int,
    last: int,
) -> int:
    """Add landmarks to the `known` ones until there are `last`, or no proposals are left; return their number.

    `squares` (n,) are the squared distances to the known landmarks, and `reached` (n,) their cumulative sums. Each
    proposal has two `uniforms` (proposals, 2).
    """
    count = known
    for at in range(len(uniforms)):
        if count == last:
            break
        point = min(int(np.searchsorted(reached, uniforms[at, 0] * reached[-1], side="right")), len(X) - 1)
        least = uniforms[at, 1] * squares[point]
        square = squares[point]
        for landmark in range(known, count):
            if square <= least:
                break
            apart = distance(X, point, X, chosen[landmark])
            square = min(square, apart * apart)
        if square > least:
            chosen[count] = point
            count += 1
    return count


def chosen_landmarks(X: NDArray[np.float64], count: int, on_progress: OnProgress = silent) -> NDArray[np.int32]:
    """Choose landmarks of X (n, d), count <= n distinct rows, ascending.

    If fewer points differ, the first of the others complete them. `on_progress` is called with (chosen, count,
    "landmarks").
    """
    on_progress(0, count, "landmarks")
    chosen = _seeds(X, count, on_progress)
    is_chosen = np.zeros(len(X), bool)
    is_chosen[chosen] = True
    is_chosen[np.flatnonzero(~is_chosen)[: count - len(chosen)]] = True
    on_progress(count, count, "landmarks")
    return np.flatnonzero(is_chosen).astype(np.int32)


def _seeds(X: NDArray[np.float64], count: int, on_progress: OnProgress) -> NDArray[np.int64]:
    """Return at most `count` rows that k-means++ chooses, fewer if fewer points differ."""
    words = np.random.Philox(key=np.array([len(X), count], np.uint64))

    def uniforms(size: int) -> NDArray[np.float64]:
        return np.asarray((words.random_raw(size) >> np.uint64(11)) * np.float64(2.0**-53))

    chosen, squares = np.empty(count, np.int64), np.full(len(X), np.inf)
    chosen[0] = min(int(uniforms(1)[0] * len(X)), len(X) - 1)
    nobody, known, found = np.full(len(X), -1), 0, 1
    order = leaf_order(PrincipalAxes.from_data(X).places(X)[0], _NEAR)
    while found < count:
        for rows, _, apart in Leaves(X[chosen[known:found]]).nearest(X, nobody, 1, order):
            squares[rows] = np.minimum(squares[rows], apart[:, 0] ** 2)
            on_progress(known, count, "landmarks")
        reached = np.cumsum(squares)
        if reached[-1] == 0:  # no other point differs
            break
        known, last = found, min(_GROWTH * found, count)
        proposals = uniforms(2 * _PROPOSALS * (last - known)).reshape(-1, 2)
        found = accept(dense.readable(X), squares, reached, proposals, chosen, known, last)
    return chosen[:found]
