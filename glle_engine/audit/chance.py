r"""Neighborhoods beyond chance: an embedding against embeddings of the data with permuted columns.

Permuting each column by itself keeps every feature's distribution and removes all relations among features. If
features are independent, the permuted data have the law of the data, so that the test below keeps its level for any
method, sample size and scale of features. The statistic of point i is the share of its neighbors in the data that are
its neighbors in the embedding, :math:`T_i`. With the statistics :math:`T^*` of m permuted data sets,

.. math:: p_i = \frac{1 + \#\{T^* \ge T_i\}}{1 + \#T^*}, \qquad
          t = \frac{\bar T - \overline{T^*}}{s \sqrt{1 + 1 / m}},

s the standard deviation of the m means. The embedding is beyond chance if t exceeds the quantile of Student's
distribution with m - 1 degrees of freedom. The idea is that of EMBEDR (Johnson, Kath, Mani, Patterns 3, 2022), whose
null is a resample of distances.

The test says nothing where an embedding can show all features, and where one feature has nearly all of the variance:
permuted data then have the same neighbors. It sees no structure within single features either, such as two modes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtrit

from glle_engine.base.brief import brief
from glle_engine.base.progress import OnProgress, silent
from glle_engine.graph.neighbors import kneighbors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.audit.sources import Source

NULLS = 8
NEIGHBORS = 15
BLOCK = 1000  # points that are embedded at a time: permuted data have costly graphs
LEVEL = 0.995  # of the test
LEAST_GAIN = 0.01  # of the mean share; below it a difference is of no use to a reader
DOMINANT = 0.9  # share of the variance in one feature
FALSE_DISCOVERIES = 0.1  # accepted share among the points beyond chance


@dataclass(frozen=True, eq=False)
class Chance:
    """Comparison of neighborhoods with those of permuted data.

    Attributes
    ----------
    preserved : (n,) float64 in [0, 1]
        Share of each point's neighbors in the data that are its neighbors in the embedding.
    expected : (m,) float64
        Mean of the same over each permuted data set.
    p_value : (n,) float64
        Of each point.
    is_point_beyond : (n,) bool
        By the rule of Benjamini and Hochberg (1995), at most 10 % of these falsely in the mean.
    statistic : float
        t of the means.
    is_beyond : bool
        Whether the whole embedding is beyond chance.

    """

    preserved: NDArray[np.float64]
    expected: NDArray[np.float64]
    p_value: NDArray[np.float64]
    is_point_beyond: NDArray[np.bool_]
    statistic: float
    is_beyond: bool

    __repr__ = brief

    @property
    def gain(self) -> float:
        """Mean share of preserved neighbors beyond that of permuted data."""
        return float(self.preserved.mean() - self.expected.mean())


def compare_with_chance(
    source: Source,
    Y: NDArray[np.float64],
    *,
    n_neighbors: int = NEIGHBORS,
    n_nulls: int = NULLS,
    seed: int = 0,
    on_progress: OnProgress = silent,
) -> Chance:
    """Compare an embedding with embeddings of permuted data.

    Parameters
    ----------
    source : Source
        Of the embedding.
    Y : (n, p) float64
    n_neighbors, n_nulls
    seed : int
        Of the permutations and the blocks of points.
    on_progress
        Called with (done, all, "chance").

    """
    data, n = source.data, len(Y)
    rng = np.random.Generator(np.random.Philox(key=np.array([seed, n], np.uint64)))
    blocks = np.array_split(rng.permutation(n), -(-n // BLOCK))
    k = min(n_neighbors, min(map(len, blocks)) // 5)
    preserved = np.empty(n)
    for block in blocks:
        preserved[block] = shared_neighbors(source.place(data[block]), Y[block], k)
    nulls = []
    for number in range(n_nulls):
        on_progress(number, n_nulls, "chance")
        permuted = np.stack([rng.permutation(column) for column in data[blocks[number % len(blocks)]].T], axis=1)
        nulls.append(shared_neighbors(source.place(permuted), source.embed(permuted, number), k))
    on_progress(n_nulls, n_nulls, "chance")
    expected = np.array([null.mean() for null in nulls])
    ordered = np.sort(np.concatenate(nulls))
    p_value = (1 + len(ordered) - np.searchsorted(ordered, preserved, "left")) / (1 + len(ordered))
    gain = float(preserved.mean() - expected.mean())
    deviation = max(float(expected.std(ddof=1)), 1e-12) * np.sqrt(1 + 1 / n_nulls)
    return Chance(
        preserved=preserved,
        expected=expected,
        p_value=p_value,
        is_point_beyond=discoveries(p_value),
        statistic=gain / deviation,
        is_beyond=bool(gain >= LEAST_GAIN and gain / deviation > stdtrit(n_nulls - 1, LEVEL)),
    )


def shared_neighbors(points: NDArray[np.float64], Y: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Return the share (n,) of each point's k nearest neighbors that are also among its k nearest in an embedding."""
    expected, found = (kneighbors(np.ascontiguousarray(of), k)[0] for of in (points, Y))
    return np.asarray((expected[:, :, None] == found[:, None, :]).any(axis=2).mean(axis=1))


def discoveries(p_value: NDArray[np.float64], rate: float = FALSE_DISCOVERIES) -> NDArray[np.bool_]:
    """Return the points whose p-values are discoveries at a false-discovery rate (Benjamini and Hochberg, 1995)."""
    ordered = np.sort(p_value)
    below = ordered <= rate * np.arange(1, len(ordered) + 1) / len(ordered)
    return np.asarray(p_value <= (ordered[below].max() if below.any() else -1.0))


def unknown_reason(points: NDArray[np.float64], p: int) -> str | None:
    """Return the reason for which the comparison says nothing on these points, or None."""
    d = points.shape[1]
    if d <= p:
        return f"an embedding of {p} dimensions can show all {d} features, so that each map preserves neighbors"
    variance = points.var(axis=0)
    share = float(variance.max() / (variance.sum() or 1.0))
    if share >= DOMINANT:
        return (
            f"one feature has {share:.0%} of the variance, so that permuted data have the same neighbors; "
            "standardize the features"
        )
    return None
