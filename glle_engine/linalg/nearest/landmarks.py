r"""Choose landmarks, m of n points that cover the data, by k-means++.

The first landmark is drawn uniformly. Each further point is drawn with a probability proportional to its squared
distance to the nearest landmark so far (Arthur and Vassilvitskii 2007, *k-means++: the advantages of careful seeding*).
Regions far from all landmarks get a landmark first, as with farthest points (Gonzalez 1985), but outliers do not use up
the landmarks, and dense regions get more of them. `docs/explanation/spread.md` says what they cost.

The distances to all points are computed only each time the number of landmarks has grown by a factor of four. The
distribution is exact nevertheless, by rejection sampling: in between, a point is proposed in proportion to its last
known squared distance :math:`q`, and accepted with probability :math:`d^2 / q`, where :math:`d` is its present distance
to the nearest landmark. (New landmarks can only reduce this distance.) The random numbers are the words of Philox
4x64-10 keyed by (n, m), so that equal data have equal landmarks.
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

# The distance from each point to its nearest landmark is computed again each time the number of landmarks has grown by
# this factor.
_GROWTH_FACTOR = 4
_BATCH_POINTS = 64  # the nearest landmarks are searched for this many points at a time, which lie near each other
# Until the distances from all points to their nearest landmarks are computed again, points are proposed at random as
# landmarks, and accepted or rejected: this many proposals for each landmark to be added. If all proposals are used up
# before enough are accepted, the distances are computed again at once, and more points are proposed.
_PROPOSALS_PER_LANDMARK = 4


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
    """Add landmarks to `chosen` by rejection sampling, until there are `last`; return how many landmarks there are.

    A proposal is a row of X that is chosen at random and then accepted as a landmark or rejected; it uses two random
    numbers in [0, 1), a row of `uniforms` (proposals, 2). If all proposals are used up, there are fewer than `last`
    landmarks. The first `known` landmarks are in `chosen` already. For each row of X, `squares` (n,) has the squared
    distance to the nearest of these landmarks, and `reached` (n,) are the cumulative sums of `squares`.
    """
    count = known
    for proposal in range(len(uniforms)):
        if count == last:
            break
        point = min(int(np.searchsorted(reached, uniforms[proposal, 0] * reached[-1], side="right")), len(X) - 1)
        threshold = uniforms[proposal, 1] * squares[point]
        square = squares[point]
        for landmark in range(known, count):
            if square <= threshold:
                break
            apart = distance(X, point, X, chosen[landmark])
            square = min(square, apart * apart)
        if square > threshold:
            chosen[count] = point
            count += 1
    return count


def chosen_landmarks(X: NDArray[np.float64], count: int, on_progress: OnProgress = silent) -> NDArray[np.int32]:
    """Choose `count` <= n landmarks, rows of X (n, d) that cover the data; return their row numbers, ascending.

    The method is k-means++. If X has fewer than `count` distinct rows, each of these is chosen once, and the first
    rows of X that were not chosen, copies of chosen ones, are added until there are `count`. `on_progress` is called
    with (landmarks chosen, count, "landmarks").
    """
    on_progress(0, count, "landmarks")
    chosen = _seeds(X, count, on_progress)
    is_chosen = np.zeros(len(X), bool)
    is_chosen[chosen] = True
    is_chosen[np.flatnonzero(~is_chosen)[: count - len(chosen)]] = True
    on_progress(count, count, "landmarks")
    return np.flatnonzero(is_chosen).astype(np.int32)


def _seeds(X: NDArray[np.float64], count: int, on_progress: OnProgress) -> NDArray[np.int64]:
    """Return the numbers of the rows of X that k-means++ chooses: `count`, or fewer if X has fewer distinct rows."""
    words = np.random.Philox(key=np.array([len(X), count], np.uint64))

    def uniforms(size: int) -> NDArray[np.float64]:
        return np.asarray((words.random_raw(size) >> np.uint64(11)) * np.float64(2.0**-53))

    chosen, squares = np.empty(count, np.int64), np.full(len(X), np.inf)
    chosen[0] = min(int(uniforms(1)[0] * len(X)), len(X) - 1)
    known, total = 0, 1  # number of landmarks whose distances are in `squares`, and number of landmarks so far
    no_own_row = np.full(len(X), -1)  # -1: the search leaves out no row, since a landmark is its own nearest landmark
    order = leaf_order(PrincipalAxes.from_data(X).places(X)[0], _BATCH_POINTS)
    while total < count:
        for rows, _, distances in Leaves(X[chosen[known:total]]).nearest(X, no_own_row, 1, order):
            squares[rows] = np.minimum(squares[rows], distances[:, 0] ** 2)
            on_progress(known, count, "landmarks")
        reached = np.cumsum(squares)
        if reached[-1] == 0:  # each point is equal to a landmark
            break
        known, last = total, min(_GROWTH_FACTOR * total, count)
        proposals = uniforms(2 * _PROPOSALS_PER_LANDMARK * (last - known)).reshape(-1, 2)
        total = accept(dense.readable(X), squares, reached, proposals, chosen, known, last)
    return chosen[:total]
