r"""Score an embedding by distances between pairs of points: stress, Shepard correlation, triplets, silhouette.

:math:`\delta_{ij}` is the distance of two points in the data, :math:`d_{ij}` their distance in the embedding. For more
than 2,000 points, all scores except the triplets are computed for a fixed sample of 2,000 points.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.errors import DegenerateDataError, InvalidParameterError, TooFewPointsError
from glle_engine.linalg.distances import distances
from glle_engine.linalg.rank_correlation import rank_correlation
from glle_engine.metrics.ranks import MAX_POINTS_OF_ALL_PAIRS, fixed_sample

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TRIPLETS_PER_POINT = 5  # the triplet accuracy compares this many random triplets for each point
_SEED = 0
_MIN_POINTS = 3


def raw_stress(X: NDArray[np.float64], Y: NDArray[np.float64]) -> float:
    r"""Return the raw stress :math:`\sum_{i<j} (d_{ij} - \delta_{ij})^2` (Kruskal 1964, Psychometrika 29); 0 is best.

    The unit of the stress is the square of the data's unit. `sklearn.manifold.MDS` computes the same stress. For more
    than 2,000 points, the stress is estimated: the mean over the pairs of a sample times the number of all pairs.
    """
    expected, embedded = _pairs(X, Y)
    return float(((embedded - expected) ** 2).mean() * len(X) * (len(X) - 1) / 2)


def normalized_stress(X: NDArray[np.float64], Y: NDArray[np.float64]) -> float:
    r"""Return :math:`\sqrt{\sum (d_{ij} - \delta_{ij})^2 / \sum \delta_{ij}^2}`; 0 is best.

    The sums are over all pairs of points, with distances :math:`\delta_{ij}` in the data and :math:`d_{ij}` in the
    embedding. `sklearn.manifold.MDS` computes the same normalized stress, which depends on the unit of the embedding.
    Raises DegenerateDataError if all points of the data are equal.
    """
    expected, embedded = _pairs(X, Y)
    _require_apart(expected)
    return float(np.sqrt(((embedded - expected) ** 2).sum() / (expected**2).sum()))


def scaled_stress(X: NDArray[np.float64], Y: NDArray[np.float64]) -> float:
    r"""Return the normalized stress, in [0, 1], of the embedding scaled by the factor a that fits best; 0 is best.

    .. math:: \min_a \sqrt{\sum (a d_{ij} - \delta_{ij})^2 / \sum \delta_{ij}^2}

    Unlike the normalized stress, this score can compare methods that fix the unit of their embeddings (Smelser, Miller
    and Kobourov 2024, arXiv 2408.07724). Raises DegenerateDataError if all points are equal, in the data or in the
    embedding.
    """
    expected, embedded = _pairs(X, Y)
    _require_apart(expected, embedded)
    explained = (embedded * expected).sum() ** 2 / ((embedded**2).sum() * (expected**2).sum())
    return float(np.sqrt(max(0.0, 1.0 - explained)))


def shepard_correlation(X: NDArray[np.float64], Y: NDArray[np.float64]) -> float:
    """Return Spearman's rank correlation of the distances in the data and in the embedding, in [-1, 1]; 1 is best.

    It is 1 if the Shepard diagram (distances in the embedding over distances in the data) ascends throughout. Equal
    distances have the mean of their ranks.

    Raises
    ------
    DegenerateDataError
        If all distances are equal, in the data or in the embedding.

    """
    expected, embedded = _pairs(X, Y)
    if not np.ptp(expected) or not np.ptp(embedded):
        raise DegenerateDataError(
            f"All distances between the points of the {'embedding' if np.ptp(expected) else 'data'} are equal, so that "
            "they have no correlation with other distances.",
            remedy="Give more points, and an embedding whose points differ.",
        )
    return rank_correlation(expected, embedded)


def random_triplets(n: int) -> NDArray[np.int64]:
    """Return random triplets of different points as indices (5 n, 3): each of n points comes first in five triplets.

    The triplets depend only on n. Raises TooFewPointsError for fewer than three points.
    """
    if n < _MIN_POINTS:
        raise TooFewPointsError(
            f"{n} points are too few for the triplet accuracy, which compares triplets of points.",
            remedy=f"Give at least {_MIN_POINTS} points.",
        )
    rng = np.random.default_rng(_SEED)
    first = np.repeat(np.arange(n), _TRIPLETS_PER_POINT)
    second, third = rng.integers(0, n - 1, len(first)), rng.integers(0, n - 2, len(first))
    third += third >= second
    return np.stack([first, second + (second >= first), third + (third >= first)], axis=1)


def triplet_accuracy(X: NDArray[np.float64], Y: NDArray[np.float64], triplets: NDArray[np.int64]) -> float:
    """Return the share of triplets (i, j, l) for which data and embedding agree whether j or l is nearer to i.

    `triplets` are indices (m, 3). The share is in [0, 1], about one half for random positions, and 1 is best (Wang,
    Huang, Rudin and Shaposhnik 2021, JMLR 22, section 5).
    """
    first = triplets[:, 0]
    nearer = [np.less(*distances(points[first], points, triplets[:, 1:]).T) for points in (X, Y)]
    return float((nearer[0] == nearer[1]).mean())


def silhouette(Y: NDArray[np.float64], labels: NDArray[np.generic]) -> float:
    r"""Return the mean silhouette of the labels (n,) in an embedding (n, p), in [-1, 1]; 1 is best.

    The silhouette of a point is :math:`(b - a) / \max(a, b)`. Here :math:`a` is the point's mean distance to the other
    points with its label, and :math:`b` is the smallest mean distance to the points of another label. A point whose
    label no other point has gets silhouette 0 (Rousseeuw 1987, J. Comput. Appl. Math. 20).

    Raises
    ------
    InvalidParameterError
        If all points have one label, or all labels are different.

    """
    rows = fixed_sample(len(Y), MAX_POINTS_OF_ALL_PAIRS)
    names, of_points = np.unique(labels[rows], return_inverse=True)
    if not 1 < len(names) < len(rows):
        raise InvalidParameterError(
            f"The silhouette of {len(rows)} points with {len(names)} labels is not defined.",
            remedy="Give at least two labels, and fewer labels than points.",
        )
    sizes = np.bincount(of_points)
    apart = _distances_among(Y, rows)
    sums = np.stack([apart[:, of_points == label].sum(axis=1) for label in range(len(names))], axis=1)
    own_label = np.arange(len(rows)), of_points
    is_alone = sizes[of_points] == 1
    within = sums[own_label] / np.where(is_alone, 1, sizes[of_points] - 1)
    means = sums / sizes
    means[own_label] = np.inf
    between = means.min(axis=1)
    larger = np.maximum(within, between)
    values = np.where(is_alone | (larger == 0), 0.0, (between - within) / np.where(larger == 0, 1.0, larger))
    return float(values.mean())


def _distances_among(points: NDArray[np.float64], rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the distances (m, m) between the points with the row numbers `rows` (m,)."""
    return distances(points[rows], points, np.broadcast_to(rows, (len(rows), len(rows))))


def _pairs(X: NDArray[np.float64], Y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the distances (pairs,) in the data and the distances (pairs,) in the embedding, for all pairs of points.

    For more than 2,000 points, they are the distances between the points of a fixed sample.
    """
    rows = fixed_sample(len(X), MAX_POINTS_OF_ALL_PAIRS)
    above = np.triu_indices(len(rows), 1)
    return _distances_among(X, rows)[above], _distances_among(Y, rows)[above]


def _require_apart(*distances: NDArray[np.float64]) -> None:
    """Raise `DegenerateDataError` if all distances in one of the arrays are 0, so that a stress would divide by 0."""
    if not all(values.any() for values in distances):
        raise DegenerateDataError(
            "All points are equal, in the data or in the embedding.",
            remedy="Give points that differ, and an embedding whose points differ.",
        )
