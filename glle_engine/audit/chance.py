r"""Structure that data with permuted columns do not have: neighborhoods of single points, and relations among features.

Permuting each column by itself keeps every feature's distribution and removes all relations among features.

Neighborhoods: an embedding is compared with embeddings of permuted data. If features are independent, the permuted data
have the distribution of the data, so that p-values hold for any method, sample size and scale of features. The
statistic of point i is the share of its neighbors in the data that are its neighbors in the embedding, :math:`T_i`.
With the statistics :math:`T^*` of m permuted data sets,

.. math:: p_i = \frac{1 + \#\{T^* \ge T_i\}}{1 + \#T^*}.

The idea comes from EMBEDR (Johnson, Kath, Mani, Patterns 3, 2022), whose null is a resample of distances.

The p-values say nothing if an embedding can show all features, or one feature has nearly all variance,
because permuted data then have the same neighbors. Whether the data as a whole have structure is the question of
`find_relations`.

Relations among features put points closer to each other: the mean logarithm of the distance to the fifth neighbor
estimates the entropy of the data (Kozachenko and Leonenko, 1987), and the joint entropy is below the sum of the
features' entropies unless they are independent. Features are replaced by their ranks, so that neither units nor heavy
tails matter. This statistic sees relations that no line shows, such as parity.

With many features and few points, all points are about equally far from each other. The second statistic is from
parallel analysis (Horn, "A rationale and test for the number of factors in factor analysis", Psychometrika 30, 1965):
the largest eigenvalue of the ranks' covariance. It sees factors, and groups in few points, but misses relations that
are not monotone.

Neither statistic sees groups among features that are principal components: these are uncorrelated, and most of them are
noise of small variance. The third statistic is the first one for ranks that keep the standard deviations of their
features. It assumes that features of larger variance say more.

The data and m permuted copies are m + 1 data sets that cannot be told apart if features are independent. Each statistic
is standardized over all of them, and the largest of the three values is the test's statistic T. The p-value is the
share of the m + 1 data sets whose T is at least the data's (Westfall and Young, "Resampling-based multiple testing",
1993). It only counts, so it holds for any distribution, sample size and number of statistics. The one assumption is
that rows are independent samples. If rows of a block are not, but blocks are, whole blocks are permuted: a row then
keeps its position in the block, and all blocks are cut to one length.

No test sees structure within single features, such as two modes of one column (`glle_engine.audit.columns`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse.linalg import eigsh

from glle_engine.audit.agreement import shared
from glle_engine.audit.options import AUDIT_NEIGHBORS
from glle_engine.base.progress import OnProgress, silent
from glle_engine.base.randomness import generator
from glle_engine.base.results import brief
from glle_engine.graph.neighbors import kneighbors
from glle_engine.linalg.distances import power_of_two
from glle_engine.linalg.rank_correlation import doubled_centered_ranks
from glle_engine.reliability.thresholds import CLEAR_GAIN, MIN_DOMINANT_VARIANCE_SHARE, STRUCTURE_LEVEL

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from glle_engine.audit.sources import Source

# For the test whether features are related.
# With so many permuted data sets, p <= STRUCTURE_LEVEL means that none of them has as large a statistic as the data.
PERMUTATIONS = round(1 / STRUCTURE_LEVEL) - 1
TESTED_NEIGHBOR = 5  # the test uses the distances to the neighbors of this rank
# The test uses at most this many random rows and features: they suffice to detect a relation that a map can show.
MAX_ROWS, MAX_ROWS_OF_MANY_FEATURES, MAX_FEATURES = 1000, 500, 1000
MANY_FEATURES = 200
# All blocks are cut to one length. At least this share of the blocks must be that long; shorter blocks are left out.
MIN_SHARE_OF_LONG_BLOCKS = 0.5
MAX_KEPT_P_VALUES = 8  # a process keeps this many p-values of the test for further maps of the same data
# At least this many blocks are permuted. If together they have more rows than the limits above (`MAX_ROWS`,
# `MAX_ROWS_OF_MANY_FEATURES`), each block is cut shorter.
MIN_EXCHANGED_BLOCKS = 8
MAX_ROUNDING_ERROR = 1e-9  # smaller differences count as rounding errors
MIN_LANCZOS_ROWS = 50  # all eigenvalues of a matrix with fewer rows are computed
# The constants down to MAX_FALSE_DISCOVERY_RATE are for the test whether a map keeps more of the data's neighbors than
# maps of permuted data keep of theirs.
PERMUTED_DATA_SETS = 4  # chance is judged by the maps of this many permuted data sets
# Permuted data sets have at most this many points. Their neighbor graphs have no structure and are costly to factorize:
# for LLE, larger ones would take longer than the map itself.
BLOCK_POINTS = 1000
MAX_FALSE_DISCOVERY_RATE = 0.1  # accepted share of false discoveries among the points beyond chance
# If one of this many first columns has no value twice, no row repeats another, and rows need not be compared.
DISTINCT_COLUMNS = 3
MIN_SHARE_OF_COPIES = 0.05  # if a smaller share of the rows are copies, they are kept: so few change no test


_ANSWERS: dict[tuple[Any, ...], float | None] = {}  # p-values by seed and digest of the data


def find_copies(data: NDArray[np.float64], seed: int = 0) -> NDArray[np.bool_]:
    """Return a mask (n,) of the rows of data (n, d) that repeat an earlier row.

    Such copies would look like relations among the features. No row is marked if less than 5 % of the rows are copies,
    or if chance explains the copies, as in columns of few distinct values. To test this, each column is permuted by
    itself: chance explains the copies if the permuted data have more than half as many.
    """
    rng = generator(seed, data.size)
    copies = _repeats(data)
    if copies.mean() < MIN_SHARE_OF_COPIES or 2 * _repeats(rng.permuted(data, axis=0)).sum() > copies.sum():
        return np.zeros(len(data), bool)
    return copies


def _repeats(data: NDArray[np.float64]) -> NDArray[np.bool_]:
    if len(data) and any(len(np.unique(column)) == len(data) for column in data[:, :DISTINCT_COLUMNS].T):
        return np.zeros(len(data), bool)  # no two rows have the same value in this column
    first: dict[int, int] = {}
    return np.array([first.setdefault(hash(row.tobytes()), index) != index for index, row in enumerate(data)])


def find_relations(
    data: NDArray[np.float64], seed: int = 0, of_blocks: NDArray[np.int64] | None = None
) -> float | None:
    """Return the p-value of the test whether features of data (n, d) are related; None if fewer than two features vary.

    `of_blocks` (n,) numbers the block of each row; rows of one block are not independent. The last p-values are cached,
    because several maps of one data set are compared.
    """
    blocks = b"" if of_blocks is None else of_blocks.tobytes()
    key = (seed, data.shape, sha256(data.tobytes()).digest(), sha256(blocks).digest())
    if key not in _ANSWERS:
        if len(_ANSWERS) >= MAX_KEPT_P_VALUES:
            _ANSWERS.pop(next(iter(_ANSWERS)), None)
        _ANSWERS[key] = _test_relations(data, seed, of_blocks)
    return _ANSWERS[key]


def _test_relations(data: NDArray[np.float64], seed: int, of_blocks: NDArray[np.int64] | None) -> float | None:
    rng = generator(seed, data.size)
    limit = MAX_ROWS if data.shape[1] <= MANY_FEATURES else MAX_ROWS_OF_MANY_FEATURES
    rows = _equal_blocks(np.arange(len(data)) if of_blocks is None else of_blocks, limit, rng)
    columns = np.sort(rng.permutation(data.shape[1])[:MAX_FEATURES])
    data = data[np.ix_(rows.ravel(), columns)]
    ranks = np.stack([doubled_centered_ranks(column) for column in data.T], axis=1)
    varies = np.ptp(ranks, axis=0) > 0
    if varies.sum() < 2:
        return None
    ranks, data = ranks[:, varies] / ranks[:, varies].std(axis=0), data[:, varies]
    deviations = (data / power_of_two(float(np.abs(data).max()))).std(axis=0)
    length = rows.shape[1]
    k = min(TESTED_NEIGHBOR + length - 1, len(ranks) // 5)

    def statistics(points: NDArray[np.float64]) -> list[float]:
        return [-_closeness(points, k), _top_eigenvalue(points), -_closeness(points * deviations, k)]

    permuted = (_permute_columns(ranks, length, rng) for _ in range(PERMUTATIONS))
    values = np.array([statistics(ranks), *(statistics(copy) for copy in permuted)])
    deviation = values.std(axis=0)
    standardized = (values - values.mean(axis=0)) / np.where(deviation > MAX_ROUNDING_ERROR, deviation, np.inf)
    largest = standardized.max(axis=1)
    return float((largest >= largest[0] - MAX_ROUNDING_ERROR).mean())


def _permute_columns(data: NDArray[np.float64], length: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return data (n, d) with each column permuted by itself, in blocks of `length` consecutive rows."""
    count, within = len(data) // length, np.arange(length)
    orders = ((length * rng.permutation(count)[:, None] + within).ravel() for _ in range(data.shape[1]))
    return np.stack([column[order] for column, order in zip(data.T, orders, strict=True)], axis=1)


def _equal_blocks(blocks: NDArray[np.int64], limit: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Choose at most `limit` rows for the test, as an array (b, m): m consecutive rows of each of b random blocks.

    The length m is the one that keeps the most rows, among the lengths that at least half of the blocks reach.
    """
    names, counts = np.unique(blocks, return_counts=True)
    lengths = np.unique(counts)
    enough = np.array([(counts >= length).sum() for length in lengths])
    is_allowed = enough >= MIN_SHARE_OF_LONG_BLOCKS * len(names)
    length = int(lengths[is_allowed][(lengths * enough)[is_allowed].argmax()])
    chosen = np.sort(rng.permutation(names[counts >= length])[: max(limit // length, MIN_EXCHANGED_BLOCKS)])
    length = min(length, max(limit // len(chosen), 1))
    order = np.argsort(blocks, kind="stable")
    first = np.searchsorted(blocks[order], chosen)
    start = first + [int(rng.integers(0, size - length + 1)) for size in counts[np.searchsorted(names, chosen)]]
    return np.asarray(order[start[:, None] + np.arange(length)])


def _top_eigenvalue(points: NDArray[np.float64]) -> float:
    """Return the largest eigenvalue of the covariance of centered points (n, d)."""
    products = points @ points.T if len(points) <= points.shape[1] else points.T @ points
    if len(products) < MIN_LANCZOS_ROWS:
        return float(np.linalg.eigvalsh(products)[-1] / len(points))
    start = np.cos(np.arange(len(products)))  # not constant: a constant start would be an eigenvector
    return float(eigsh(products, 1, v0=start, tol=1e-8, return_eigenvectors=False)[0] / len(points))


def _closeness(points: NDArray[np.float64], k: int) -> float:
    """Return the mean logarithm of the distance to the k-th neighbor; the smallest positive distance replaces 0."""
    distance = kneighbors(np.ascontiguousarray(points), k)[1][:, -1]
    positive = distance[distance > 0]
    return float(np.log(np.maximum(distance, positive.min() if len(positive) else 1.0)).mean())


@dataclass(frozen=True, eq=False)
class Chance:
    """Whether an embedding keeps more of the data's neighbors than embeddings of data with permuted columns do.

    Attributes
    ----------
    preserved : (n,) float64 in [0, 1]
        Share of each point's neighbors in the data that are its neighbors in the embedding.
    expected : (m,) float64
        Mean share of preserved neighbors in the embedding of each of m permuted data sets.
    p_value : (n,) float64
        For each point, the share of the points of all permuted data sets that preserve at least as large a share of
        their neighbors as this point does.
    is_point_beyond : (n,) bool
        Points that preserve more neighbors than chance, by the rule of Benjamini and Hochberg (1995): on average at
        most 10 % of these points do so by chance.

    """

    preserved: NDArray[np.float64]
    expected: NDArray[np.float64]
    p_value: NDArray[np.float64]
    is_point_beyond: NDArray[np.bool_]

    __repr__ = brief

    @property
    def gain(self) -> float:
        """Mean share of preserved neighbors, minus the mean share in embeddings of data with permuted columns."""
        return float(self.preserved.mean() - self.expected.mean())

    @property
    def has_gain(self) -> bool:
        """Whether the embedding clearly keeps more neighbors than embeddings of permuted data.

        The gain is measured from the mean of `expected`, the shares of neighbors that embeddings of permuted data keep.
        It must exceed the standard deviation of these shares, and be at least a tenth of the largest possible gain,
        which is 1 minus their mean.
        """
        min_gain = CLEAR_GAIN * (1 - float(self.expected.mean()))
        return self.gain > float(self.expected.std(ddof=1)) and self.gain >= min_gain


def compare_with_chance(
    source: Source,
    Y: NDArray[np.float64],
    n_neighbors: int = AUDIT_NEIGHBORS,
    *,
    of_blocks: NDArray[np.int64] | None = None,
    seed: int = 0,
    executor: Executor | None = None,
    threads: Executor | None = None,
    on_progress: OnProgress = silent,
) -> Chance:
    """Compare how many neighbors an embedding and embeddings of permuted data keep, with a p-value for each point.

    The points are split into random parts of up to 1,000 points. Neighbors are compared within each part, and each
    permuted data set is made from the rows of one part, or from whole blocks of rows.

    Parameters
    ----------
    source : Source
        Embeds the permuted data in the way in which the embedding was made.
    Y : (n, p) float64
        The embedding of `source.data`.
    n_neighbors : int
        Number of neighbors of each point that are compared, limited to a fifth of the points of a part.
    of_blocks : (n,) int64, optional
        Block of each row; rows of one block are not independent, and are permuted together.
    seed : int
        Seed of the permutations, and of the random parts.
    executor : concurrent.futures.Executor, optional
        Embeds the permuted data in parallel.
    threads : concurrent.futures.Executor, optional
        Threads that compare the neighbors of the embedding, each in one part at a time.
    on_progress
        Called with (permuted data sets done, number of them, "chance").

    """
    data, n = source.data, len(Y)
    rng = generator(seed, n)
    blocks = np.array_split(rng.permutation(n), _count_blocks(n))
    k = neighbors_of_block(n, n_neighbors)
    preserved = np.empty(n)

    def compare_block(block: NDArray[np.intp]) -> None:
        preserved[block] = _preserved(source.to_points(data[block]), Y[block], k)

    list((map if threads is None else threads.map)(compare_block, blocks))
    parts = [block[:, None] for block in blocks] if of_blocks is None else [_equal_blocks(of_blocks, BLOCK_POINTS, rng)]
    permuted = (
        _permute_columns(data[rows.ravel()], rows.shape[1], rng)
        for rows, _ in zip(cycle(parts), range(PERMUTED_DATA_SETS), strict=False)
    )
    compare = partial(_null, source, k)
    results = (map if executor is None else executor.map)(compare, permuted, range(PERMUTED_DATA_SETS))
    nulls = []
    for null in results:
        nulls.append(null)
        on_progress(len(nulls), PERMUTED_DATA_SETS, "chance")
    expected = np.array([null.mean() for null in nulls])
    ordered = np.sort(np.concatenate(nulls))
    p_value = (1 + len(ordered) - np.searchsorted(ordered, preserved, "left")) / (1 + len(ordered))
    return Chance(preserved=preserved, expected=expected, p_value=p_value, is_point_beyond=discoveries(p_value))


def _count_blocks(n: int) -> int:
    return -(-n // BLOCK_POINTS)


def neighbors_of_block(n: int, n_neighbors: int) -> int:
    """Return `n_neighbors`, limited to a fifth of the points among which neighbors are compared.

    These are all n points up to 1,000; more points are split into equal parts of at most 1,000.
    """
    return min(n_neighbors, n // _count_blocks(n) // 5)


def _null(source: Source, k: int, permuted: NDArray[np.float64], number: int) -> NDArray[np.float64]:
    assert source.embed is not None
    return _preserved(source.to_points(permuted), source.embed(permuted, number), k)


def _preserved(points: NDArray[np.float64], Y: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Return the share (n,) of each point's k nearest neighbors that are also among its k nearest in an embedding."""
    return shared(*(kneighbors(np.ascontiguousarray(each), k)[0] for each in (points, Y)))


def discoveries(p_value: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which p-values (n,) are significant at the `MAX_FALSE_DISCOVERY_RATE` (Benjamini and Hochberg, 1995)."""
    ordered = np.sort(p_value)
    below = ordered <= MAX_FALSE_DISCOVERY_RATE * np.arange(1, len(ordered) + 1) / len(ordered)
    return np.asarray(p_value <= (ordered[below].max() if below.any() else -1.0))


def unknown_reason(points: NDArray[np.float64], p: int) -> str | None:
    """Return why a comparison with permuted data would say nothing about a map of points (n, d) in p dimensions.

    Returns None if it would say something.
    """
    d = points.shape[1]
    if d <= p:
        return f"an embedding of {p} dimensions can show all {d} features, so that each map preserves neighbors"
    if (feature := dominant_feature(points)) is not None:
        return (
            f"one feature has {feature[1]:.0%} of the variance, so that permuted data have the same neighbors; "
            "standardize the features"
        )
    return None


def dominant_feature(points: NDArray[np.float64]) -> tuple[int, float] | None:
    """Return the column that has at least 90 % of the variance of points (n, d), and its share of the variance.

    Returns None if there is no such column, or if only one column varies.
    """
    variance = (points / power_of_two(float(np.abs(points).max()))).var(axis=0)
    share = float(variance.max() / (variance.sum() or 1.0))
    is_one_of_several = np.count_nonzero(variance) > 1
    return (int(variance.argmax()), share) if is_one_of_several and share >= MIN_DOMINANT_VARIANCE_SHARE else None
