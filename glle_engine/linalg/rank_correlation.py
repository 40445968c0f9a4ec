"""Spearman's rank correlation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.linalg import dense

if TYPE_CHECKING:
    from numpy.typing import NDArray


def rank_correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return Spearman's rank correlation of two arrays (n,); 0 if one of them is constant. Equal values share a rank.

    The computation uses doubled centered ranks, which are integers, so that for up to 10^5 values rounding plays no
    part in the sums of products.
    """
    x, y = (doubled_centered_ranks(values) for values in (a, b))
    variance = dense.dot(x, x) * dense.dot(y, y)
    return dense.dot(x, y) / math.sqrt(variance) if variance else 0.0


def doubled_centered_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return, for each of n values, the number of smaller values minus the number of larger values.

    This is 2 r - (n + 1), where r is the rank of the value, from 1, and equal values have their mean rank.
    """
    order = np.argsort(values)  # scipy.stats.rankdata would do this, but scipy.stats takes half a second to import
    ordered = values[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))  # where runs of equal values begin
    ends = np.append(starts[1:], len(values))
    ranks = np.empty(len(values))
    ranks[order] = np.repeat(starts + ends - len(values), ends - starts)
    return ranks
