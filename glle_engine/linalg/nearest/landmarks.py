"""Landmarks: m of n points that cover the data, by k-means++.

The first landmark is uniform. Each further one is drawn with a probability in proportion to its squared distance to the
nearest landmark so far (Arthur and Vassilvitskii 2007, *k-means++: the advantages of careful seeding*). Regions far
from all landmarks get one first, as with farthest points (Gonzalez 1985), but outliers do not use up the landmarks, and
dense regions get more of them. `docs/explanation/landmarks.md` compares the rules.

A landmark's points are searched only if the triangle inequality lets a new landmark take some of them, so that the time
grows like n log m, plus m^2, for data of few intrinsic dimensions. The uniforms are the words of Philox 4x64-10 keyed
by (n, m): equal data have equal landmarks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from glle_engine.base.progress import OnProgress, silent
from glle_engine.linalg import dense
from glle_engine.linalg.compiled import compiled
from glle_engine.linalg.nearest.distance_kernels import TIED, distance

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BETWEEN_REPORTS = 3e8  # products of landmarks, points and features


class Centres(NamedTuple):
    """Centres chosen so far, and the points nearest to each as a linked list.

    Attributes
    ----------
    chosen : (m,) int64
        Rows of the centres.
    squares : (n,) float64
        Squared distance of each point to the nearest centre.
    heads : (m,) int64
        First point of each centre's list.
    following : (n,) int64
        Next point of the same list, -1 for none.
    sums, radii : (m,) float64
        Sum and maximum of the squares in each list.

    """

    chosen: NDArray[np.int64]
    squares: NDArray[np.float64]
    heads: NDArray[np.int64]
    following: NDArray[np.int64]
    sums: NDArray[np.float64]
    radii: NDArray[np.float64]


@compiled
def choose_centres(
    X: NDArray[np.float64], uniforms: NDArray[np.float64], first: int, last: int, centres: Centres
) -> int:
    r"""Choose centres first, ..., last - 1, each with a probability in proportion to its squared distance.

    A new centre at distance D of an old one takes points from it only if D is less than twice the distance of the old
    one's farthest point, because of the triangle inequality (Elkan 2003; Raff 2021). `X` is (n, d); `uniforms` (m,) are
    in [0, 1), one for each centre. Returns the number of centres, fewer than `last` if no point
    is away from all of them.
    """
    chosen, squares, heads, following = centres.chosen, centres.squares, centres.heads, centres.following
    if first == 0:
        start = min(int(uniforms[0] * len(X)), len(X) - 1)
        chosen[0] = start
        heads[0] = -1
        for point in range(len(X) - 1, -1, -1):
            apart = distance(X, point, X, start)
            squares[point] = apart * apart
            following[point] = heads[0]
            heads[0] = point
        _measure(0, centres)
        first = 1
    for count in range(first, last):
        point = _sample(uniforms[count], count, centres)
        if point < 0:
            return count
        chosen[count] = point
        heads[count] = -1
        for centre in range(count):
            apart = distance(X, point, X, chosen[centre])
            if apart * apart < 4 * centres.radii[centre]:
                _give(X, point, count, centre, apart * apart, centres)
                _measure(centre, centres)
        _measure(count, centres)
    return last


@compiled
def _sample(uniform: float, count: int, centres: Centres) -> int:
    """Return the point at a share of the total of the squares, list after list; -1 if all are 0."""
    squares, heads, following, sums = centres.squares, centres.heads, centres.following, centres.sums
    total = 0.0
    for centre in range(count):
        total += sums[centre]
    rest = uniform * total
    found = -1
    for centre in range(count):
        if rest >= sums[centre] and found < 0:
            rest -= sums[centre]
            continue
        point = int(heads[centre])
        while point >= 0:
            if squares[point] > 0:
                found = point
                if rest < squares[point]:
                    return found
                rest -= squares[point]
            point = int(following[point])
        if found >= 0:
            return found  # rounding left a rest: the last point of the list
    for centre in range(count - 1, -1, -1):  # rounding left a rest after all lists
        point = int(heads[centre])
        while point >= 0:
            if squares[point] > 0:
                return point
            point = int(following[point])
    return -1


@compiled
def _give(X: NDArray[np.float64], point: int, new: int, old: int, between: float, centres: Centres) -> None:
    """Move the points that are nearer to `point` from the list of an old centre, `between` away squared, to `new`."""
    squares, heads, following = centres.squares, centres.heads, centres.following
    before, at = -1, heads[old]
    while at >= 0:
        after = following[at]
        moves = False
        if between < 4 * squares[at]:
            apart = distance(X, at, X, point)
            moves = apart * apart < squares[at] * (1.0 - TIED)  # of centres equally near, the first keeps the point
        if moves:
            squares[at] = apart * apart
            if before < 0:
                heads[old] = after
            else:
                following[before] = after
            following[at] = heads[new]
            heads[new] = at
        else:
            before = at
        at = after


@compiled
def _measure(centre: int, centres: Centres) -> None:
    """Compute sum and maximum of the squares in a list."""
    squares, following = centres.squares, centres.following
    total, largest = 0.0, 0.0
    point = centres.heads[centre]
    while point >= 0:
        total += squares[point]
        largest = max(largest, squares[point])
        point = following[point]
    centres.sums[centre], centres.radii[centre] = total, largest


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
    centres = Centres(chosen, np.empty(n), heads, following, np.zeros(m), np.zeros(m))
    done = 0
    while done < m:
        share = max(1, int(_BETWEEN_REPORTS / (n * d)))  # landmarks between two reports
        last = min(m, done + max(share, done // 8))
        reached = choose_centres(dense.readable(X), uniforms, done, last, centres)
        if reached < last:
            return chosen[:reached]
        done = last
        on_progress(done, m, "landmarks")
    return chosen
