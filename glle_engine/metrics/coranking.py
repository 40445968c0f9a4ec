r"""Measure how many neighbors an embedding keeps, for every number of neighbors: Q_NX, R_NX, LCMC, and the R_NX area.

With n points, :math:`Q_{NX}(K)` is the share of the K nearest points of each point in the data that are among its K
nearest in the embedding, averaged over the points. Random positions keep :math:`K / (n - 1)` of them:

.. math:: LCMC(K) = Q_{NX}(K) - \frac{K}{n - 1}, \quad R_{NX}(K) = \frac{(n - 1) Q_{NX}(K) - K}{n - 1 - K}

(Chen and Buja 2009, JASA 104; Lee and Verleysen 2009, Neurocomputing 72; Lee, Renard, Bernard, Dupont and Verleysen
2013, Neurocomputing 112). The area weights each K by 1 / K, so that small neighborhoods count more (Lee,
Peluffo-Ordonez and Verleysen 2015, Neurocomputing 169):

.. math:: AUC = \sum_{K=1}^{n-2} \frac{R_{NX}(K)}{K} \Big/ \sum_{K=1}^{n-2} \frac{1}{K}

Points at equal distances are ranked in the order of their rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.errors import TooFewPointsError
from glle_engine.base.progress import OnProgress, block_size, blocks, silent
from glle_engine.base.validation import require_same_length
from glle_engine.linalg.distances import distances, smallest_of_rows
from glle_engine.metrics.ranks import LANDMARKS, fixed_sample

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MIN_POINTS = 3


@dataclass(frozen=True, eq=False)
class QualityCurves:
    """Shares of a point's K nearest points in the data that are among its K nearest in an embedding of n points.

    Attributes
    ----------
    neighbors : (n - 2,) int64
        The numbers K of neighbors, from 1 to n - 2.
    q_nx, r_nx, lcmc : (n - 2,) float64
        `q_nx` is the share, averaged over the points; `lcmc` is `q_nx` minus the share that random positions keep;
        `r_nx` is `lcmc` over its maximum, so that random positions have 0 and a perfect embedding has 1.
    auc : float
        Area under `r_nx`, where each K has the weight 1 / K.

    """

    neighbors: NDArray[np.int64]
    q_nx: NDArray[np.float64]
    r_nx: NDArray[np.float64]
    lcmc: NDArray[np.float64]
    auc: float


def quality_curves(X: NDArray[np.float64], Y: NDArray[np.float64], on_progress: OnProgress = silent) -> QualityCurves:
    """Return the curves Q_NX, R_NX and LCMC of an embedding Y (n, p) of data X (n, d), and the area under R_NX.

    For more than 2,000 points, the curves are averages over a fixed sample of 400 points, whose neighbors are searched
    among all points.

    Parameters
    ----------
    X : (n, d) float64
        The data.
    Y : (n, p) float64
        The embedding.
    on_progress
        Called with (points done, all, "ranks").

    Raises
    ------
    InvalidShapeError
        If X and Y differ in length.
    TooFewPointsError
        For fewer than three points.

    """
    n = len(X)
    require_same_length(X, Y)
    if n < _MIN_POINTS:
        raise TooFewPointsError(
            f"{n} points are too few for quality curves, which compare ranks of neighbors.",
            remedy=f"Give at least {_MIN_POINTS} points.",
        )
    rows = fixed_sample(n, LANDMARKS)
    # Entry K counts the pairs of points whose larger rank, of the rank in the data and the rank in the embedding, is K.
    # Such a pair is among the K nearest in both, so it counts as kept for K and for every larger number of neighbors.
    first_kept = np.zeros(n, np.int64)
    for block in blocks(len(rows), block_size(n), "ranks", on_progress):
        larger = np.maximum(_ranks(X, rows[block]), _ranks(Y, rows[block]))
        first_kept += np.bincount(larger.ravel(), minlength=n)
    k = np.arange(1, n - 1)
    q_nx = np.cumsum(first_kept[1 : n - 1]) / (len(rows) * k)
    lcmc = q_nx - k / (n - 1)
    r_nx = lcmc * (n - 1) / (n - 1 - k)
    return QualityCurves(k, q_nx, r_nx, lcmc, float((r_nx / k).sum() / (1 / k).sum()))


def _ranks(points: NDArray[np.float64], rows: NDArray[np.intp]) -> NDArray[np.int64]:
    """Return ranks (m, n): entry (i, j) is the rank of point j among all points by its distance from point `rows[i]`.

    The nearest other point has rank 1, and the point `rows[i]` itself has rank 0.
    """
    n = len(points)
    apart = distances(points[rows], points, np.broadcast_to(np.arange(n), (len(rows), n)))
    apart[np.arange(len(rows)), rows] = -np.inf
    order = smallest_of_rows(apart, n)
    ranks = np.empty_like(order, np.int64)
    np.put_along_axis(ranks, order, np.broadcast_to(np.arange(n), order.shape), axis=1)
    return ranks
