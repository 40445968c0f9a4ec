r"""Neighbourhoods that are as large as the data are flat: of the k candidates of a point, those near its tangent plane.

For a point with its m nearest candidates, :math:`\sigma_1 \ge \sigma_2 \ge \dots` the singular values of their
positions about their mean,

.. math:: r_i^{(m)} = \Big(\sum_{j > p} \sigma_j^2 \Big/ \sum_{j \le p} \sigma_j^2\Big)^{1/2}

says how far they are from a plane of p dimensions (Zhang, Wang and Zha 2012, *Adaptive Manifold Learning*). As there, a
neighbourhood that is not flat is *contracted*, from its farthest candidate on, and then *expanded* again by the
candidates that lie along the plane of what was kept: those whose distance from it is at most :math:`\eta` times their
distance along it. Flat is what most are: :math:`r_i^{(m)} \le \eta_m`, :math:`\eta_m` twice the median of
:math:`r^{(m)}` over all points, and at least .05. So where no neighbourhood differs much from the others, few
candidates are dropped; a short circuit, between two turns of a roll, is as far from the plane as can be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.progress import OnProgress, blocks, silent

if TYPE_CHECKING:
    from numpy.typing import NDArray

FLAT = 2.0  # times the median: twice as far from flat as most
LEAST = 0.05  # within three degrees of a plane anything is flat, rounding errors included
_BLOCK_ENTRIES = 1 << 20


def kept_candidates(
    X: NDArray[np.float64], nearest: NDArray[np.int32], n_components: int, on_progress: OnProgress = silent
) -> NDArray[np.bool_]:
    """Say which candidates are neighbours.

    It does not change with a shift, a rotation or a scale of the data.

    Parameters
    ----------
    X : (n, d) float64
    nearest : (n, k) int32
        The candidates, nearest first.
    n_components : int
        p, the dimension of the tangent plane.
    on_progress
        Called with (sizes looked at, all, "neighborhoods").

    Returns
    -------
    (n, k) bool
        At least the p + 2 nearest of each point, and all where k is no larger.

    """
    n, k = nearest.shape
    least = min(k, n_components + 2)
    size = np.full(n, k)
    doubtful = np.arange(n)
    for m in range(k, least, -1):
        on_progress(k - m, k - least, "neighborhoods")
        flatness = _flatness(X, nearest[:, :m], n_components)
        eta = _eta(flatness)
        size[doubtful] = m
        doubtful = doubtful[flatness[doubtful] > eta]
        if not len(doubtful):
            break
    size[doubtful] = least
    kept = np.arange(k) < size[:, None]
    contracted = np.flatnonzero(size < k)
    if len(contracted):
        kept[contracted] |= _along(X, nearest, contracted, kept[contracted], n_components)
    on_progress(1, 1, "neighborhoods")
    return kept


def _eta(flatness: NDArray[np.float64]) -> float:
    """Return up to where a neighbourhood counts as flat."""
    return max(LEAST, FLAT * float(np.median(flatness)))


def _flatness(X: NDArray[np.float64], nearest: NDArray[np.int32], p: int) -> NDArray[np.float64]:
    """Return r_i of every point with these candidates."""
    n, m = nearest.shape
    result = np.empty(n)
    for rows in blocks(n, max(1, _BLOCK_ENTRIES // ((m + 1) * max(m + 1, X.shape[1]))), "neighborhoods"):
        points = np.concatenate([X[rows, None, :], X[nearest[rows]]], axis=1)
        points -= points.mean(axis=1, keepdims=True)
        gram = points.transpose(0, 2, 1) @ points if X.shape[1] <= m else points @ points.transpose(0, 2, 1)
        squares = np.maximum(np.linalg.eigvalsh(gram), 0.0)
        plane, rest = squares[:, -p:].sum(axis=1), squares[:, :-p].sum(axis=1)
        result[rows] = np.sqrt(rest / np.where(plane > 0, plane, 1.0))
    return result


def _along(
    X: NDArray[np.float64],
    nearest: NDArray[np.int32],
    points: NDArray[np.intp],
    kept: NDArray[np.bool_],
    p: int,
) -> NDArray[np.bool_]:
    """Say which candidates lie along the tangent plane of what was kept of these points."""
    eta = _eta(_flatness(X, nearest, p))
    result = np.zeros_like(kept)
    for row, (point, own) in enumerate(zip(points, kept, strict=True)):
        members = np.concatenate([X[point][None, :], X[nearest[point, own]]])
        centre = members.mean(axis=0)
        axes = np.linalg.svd(members - centre, full_matrices=False)[2][:p]
        offset = X[nearest[point]] - centre
        along = offset @ axes.T
        off = np.linalg.norm(offset - along @ axes, axis=1)
        result[row] = off <= eta * np.linalg.norm(along, axis=1)
    return result
