r"""Relations among the features of data, tested against permuted columns.

Permuting each column by itself keeps every feature's distribution and removes all relations among features. Relations
put points closer to each other: the mean logarithm of the distance to the k-th neighbor estimates the entropy of the
data (Kozachenko and Leonenko, 1987), and the joint entropy is below the sum of those of the features unless they are
independent. With the mean :math:`L` of the data, and :math:`L^*` of m permuted data sets,

.. math:: t = \frac{\overline{L^*} - L}{s \sqrt{1 + 1 / m}},

s the standard deviation of the m means. There are relations if t exceeds the quantile of Student's distribution with
m - 1 degrees of freedom. If features are independent, the permuted data have the law of the data, so that the test
keeps its level for any distribution and sample size. Features are replaced by their ranks, so that neither units nor
heavy tails matter. It needs searches of neighbors alone.

It sees no structure within single features, such as two modes of one column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtrit

from glle_engine.graph.neighbors import kneighbors

if TYPE_CHECKING:
    from numpy.typing import NDArray

NULLS = 16
NEIGHBOR = 5  # its distance
MAX_SHAPE = (1000, 1000)  # random points and features: enough for a relation that a picture shows
LEVEL = 0.995  # of the test


@dataclass(frozen=True)
class Relations:
    """Comparison of the distances to near points with those of permuted data.

    Attributes
    ----------
    gain : float
        Mean logarithm of the distance in permuted data minus that in the data.
    statistic : float
        t of the gain.
    is_present : bool
        Whether features are related.

    """

    gain: float
    statistic: float
    is_present: bool


def find_relations(data: NDArray[np.float64], seed: int = 0) -> Relations | None:
    """Return the relations among the features of data (n, d), or None for less than two features that vary."""
    rng = np.random.Generator(np.random.Philox(key=np.array([seed, data.size], np.uint64)))
    rows, columns = (np.sort(rng.permutation(size)[:most]) for size, most in zip(data.shape, MAX_SHAPE, strict=True))
    ranks = np.stack([_ranks(column) for column in data[np.ix_(rows, columns)].T], axis=1)
    ranks = ranks[:, np.ptp(ranks, axis=0) > 0]
    if ranks.shape[1] < 2:
        return None
    ranks /= ranks.std(axis=0)
    k = min(NEIGHBOR, len(ranks) // 5)
    nulls = [_closeness(np.stack([rng.permutation(column) for column in ranks.T], axis=1), k) for _ in range(NULLS)]
    gain = float(np.mean(nulls)) - _closeness(ranks, k)
    deviation = max(float(np.std(nulls, ddof=1)), 1e-12) * np.sqrt(1 + 1 / NULLS)
    return Relations(gain, gain / deviation, bool(gain / deviation > stdtrit(NULLS - 1, LEVEL)))


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the centered mean ranks of values (n,)."""
    ordered = np.sort(values)
    below, up_to = np.searchsorted(ordered, values, "left"), np.searchsorted(ordered, values, "right")
    return np.asarray(below + up_to - len(values), np.float64)


def _closeness(points: NDArray[np.float64], k: int) -> float:
    """Return the mean logarithm of the distance to the k-th neighbor; distances of 0 count as the smallest other."""
    distance = kneighbors(np.ascontiguousarray(points), k)[1][:, -1]
    positive = distance[distance > 0]
    return float(np.log(np.maximum(distance, positive.min() if len(positive) else 1.0)).mean())
