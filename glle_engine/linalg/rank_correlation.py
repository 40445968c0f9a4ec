"""Spearman's rank correlation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.linalg import dense

if TYPE_CHECKING:
    from numpy.typing import NDArray


def rank_correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return Spearman's correlation of two arrays (n,), ties at their mean rank; 0 if one is constant.

    Doubled centered ranks are integers: their products are exact, and their sums up to 10^5 values.
    """
    x, y = (doubled_centered_ranks(values) for values in (a, b))
    variance = dense.dot(x, x) * dense.dot(y, y)
    return dense.dot(x, y) / math.sqrt(variance) if variance else 0.0


def doubled_centered_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 2 (mean rank) - (n + 1) for each value: the number of smaller values minus the number of larger ones."""
    order = np.argsort(values)  # scipy.stats has the ranks, too, but takes half a second to import
    ordered = values[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))  # of runs of equal values
    ends = np.append(starts[1:], len(values))
    ranks = np.empty(len(values))
    ranks[order] = np.repeat(starts + ends - len(values), ends - starts)
    return ranks
