r"""Adaptive neighborhoods: of its k nearest points, the candidates, each point keeps those near its tangent plane.

The plane has p dimensions. For a point and its m nearest candidates, let :math:`\sigma_1 \ge \sigma_2 \ge \dots` be the
singular values of their positions about their mean. Then

.. math:: r_i^{(m)} = \Big(\sum_{j > p} \sigma_j^2 \Big/ \sum_{j \le p} \sigma_j^2\Big)^{1/2}

measures how far these points lie off a plane of p dimensions (Zhang, Wang and Zha 2012, *Adaptive Manifold Learning*).
As in that paper, a neighborhood that is not flat is first *contracted*: its farthest candidates are dropped until it is
flat. Then it is *expanded* by candidates along the plane of the remaining ones, that is, by candidates whose distance
from the plane is at most :math:`\eta_k` times their distance along the plane. A neighborhood of m candidates is flat if
:math:`r_i^{(m)} \le \eta_m`, where :math:`\eta_m` is twice the median of :math:`r^{(m)}` over all points, and at least
.05. Because the limit is relative to the median, few candidates are dropped if all neighborhoods are about equally
flat. A short circuit between two turns of a roll is far from the plane, and is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.progress import OnProgress, block_size, blocks, silent
from glle_engine.linalg import dense

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A neighborhood is flat if r, which says how far it lies off a plane relative to its extent, is at most this many times
# the median of r over all points.
FLATNESS_RATIO = 2.0
# Whatever the median is, a neighborhood is also flat if r, which says how far it lies off a plane relative to its
# extent, is at most this, the tangent of about 3 degrees: if all neighborhoods lie in planes, the median of r is a
# rounding error, and must decide nothing.
MIN_FLATNESS = 0.05


def kept_candidates(
    X: NDArray[np.float64], nearest: NDArray[np.int32], n_components: int, on_progress: OnProgress = silent
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Select the neighbors of each point among its k nearest points, the candidates: those near its tangent plane.

    The selection does not change if the data are shifted, rotated or scaled.

    Parameters
    ----------
    X : (n, d) float64
    nearest : (n, k) int32
        The candidates of each point, nearest first.
    n_components : int
        p, the dimension of the tangent plane.
    on_progress
        Called with (neighborhood sizes done, number of sizes, "neighborhoods").

    Returns
    -------
    kept : (n, k) bool
        Whether each candidate is a neighbor. The p + 2 nearest candidates of a point always are.
    thresholds : (k + 1,) float64
        A neighborhood of m candidates counts as flat if r, which says how far it lies off a plane relative to its
        extent (`glle_engine.graph.adaptive`), is at most thresholds[m]. `kept_of_new` needs them for new points.

    """
    n, k = nearest.shape
    min_kept = _least(k, n_components)
    size, doubtful = np.full(n, k), np.arange(n)
    thresholds = np.full(k + 1, MIN_FLATNESS)
    for m in range(k, min_kept, -1):
        on_progress(k - m, k - min_kept, "neighborhoods")
        flatness = _flatness(X, X, nearest[:, :m], n_components)
        thresholds[: m + 1] = max(MIN_FLATNESS, FLATNESS_RATIO * float(np.median(flatness)))
        size[doubtful] = m
        doubtful = doubtful[flatness[doubtful] > thresholds[m]]
        if not len(doubtful):
            break
    size[doubtful] = min_kept
    return _expand(X, X, nearest, size, thresholds, n_components), thresholds


def kept_of_new(
    points: NDArray[np.float64],
    X: NDArray[np.float64],
    nearest: NDArray[np.int32],
    thresholds: NDArray[np.float64],
    n_components: int,
) -> NDArray[np.bool_]:
    """Return a mask (m, k): which of the k nearest rows of X are neighbors of each new point in `points` (m, d).

    A new point keeps the candidates near its tangent plane of `n_components` dimensions, whatever the other new points
    are. The candidates `nearest` (m, k) are row numbers of X (n, d), nearest first. The farthest are dropped until the
    c that remain lie off a plane by at most thresholds[c] times their extent, or n_components + 2 remain. Dropped
    candidates near the plane of the remaining ones are then kept nevertheless. `thresholds` (k + 1,) are the result of
    `kept_candidates` for X.
    """
    m, k = nearest.shape
    min_kept = _least(k, n_components)
    size, doubtful = np.full(m, k), np.arange(m)
    for count in range(k, min_kept, -1):
        size[doubtful] = count
        flatness = _flatness(points[doubtful], X, nearest[doubtful, :count], n_components)
        doubtful = doubtful[flatness > thresholds[count]]
        if not len(doubtful):
            break
    size[doubtful] = min_kept
    return _expand(points, X, nearest, size, thresholds, n_components)


def _least(k: int, p: int) -> int:
    """Return how many of k candidates a point keeps at least: p + 2 for a tangent plane of p dimensions, or all k."""
    return min(k, p + 2)


def _flatness(
    points: NDArray[np.float64], X: NDArray[np.float64], nearest: NDArray[np.int32], p: int
) -> NDArray[np.float64]:
    """Return r (n,): how far each point and its neighbors lie off a plane of p dimensions, relative to their extent.

    The `points` (n, d) are rows of X or new points, and the neighbors of each point are the rows `nearest` (n, m) of X.
    r^2 is computed from the squared singular values of the centered positions of a point and its neighbors: it is the
    sum of all but the p largest, over the sum of the p largest.
    """
    n, m = nearest.shape
    result = np.empty(n)
    for rows in blocks(n, block_size((m + 1) * max(m + 1, X.shape[1])), "neighborhoods"):
        cloud = np.concatenate([points[rows, None, :], X[nearest[rows]]], axis=1)
        cloud -= cloud.mean(axis=1, keepdims=True)
        gram = dense.gram(cloud.transpose(0, 2, 1) if X.shape[1] <= m else cloud)
        squares = np.maximum(dense.eigvalsh(gram), 0.0)
        plane, rest = squares[:, -p:].sum(axis=1), squares[:, :-p].sum(axis=1)
        result[rows] = np.sqrt(rest / np.where(plane > 0, plane, 1.0))
    return result


def _expand(
    points: NDArray[np.float64],
    X: NDArray[np.float64],
    nearest: NDArray[np.int32],
    size: NDArray[np.intp],
    thresholds: NDArray[np.float64],
    p: int,
) -> NDArray[np.bool_]:
    """Return a mask (n, k) of the candidates that each of `points` (n, d) keeps.

    The k candidates of each point, `nearest` (n, k), are row numbers of X, nearest first. Point i keeps its first
    size[i] candidates, and a plane of p dimensions is fitted to the point and these candidates. The point also keeps
    each other candidate whose distance from the plane is at most thresholds[k] times its distance along the plane from
    the center of the fitted points. `thresholds` (k + 1,) is the array that `kept_candidates` returns with its mask:
    thresholds[m] is the largest ratio of the extents off and along the plane at which m candidates count as flat.
    """
    k = nearest.shape[1]
    kept = np.arange(k) < size[:, None]
    for row in np.flatnonzero(size < k):
        members = np.concatenate([points[row][None, :], X[nearest[row, kept[row]]]])
        center = members.mean(axis=0)
        axes = dense.svd(members - center)[2][:p]
        offset = X[nearest[row]] - center
        along = dense.matmul(offset, np.ascontiguousarray(axes.T))
        off = offset - dense.matmul(along, axes)
        kept[row] |= (off * off).sum(axis=1) <= thresholds[k] ** 2 * (along * along).sum(axis=1)
    return kept
