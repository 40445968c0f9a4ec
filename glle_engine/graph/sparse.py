r"""Points with sparse coordinates, such as texts by the frequencies of their words: exact search and differences.

A point is a sparse row minus a constant, :math:`u_i = x_i - c_i 1`, so that rows stay sparse if the metric
"correlation" centers them. The search first bounds squared distances by products of sparse rows,
:math:`|u_i|^2 + |u_j|^2 - 2 u_i^T u_j`, in blocks. For the pairs that remain, it sums the squared differences in the
order of the columns. The differences of a neighborhood are stored densely, but only for the columns in which the
differences have entries. The other columns, in which a difference is the constant :math:`(c_i - c_j)`, are replaced by
one column: this constant times the root of their number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, svds

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.progress import OnProgress, blocks, silent
from glle_engine.base.space import flat_row
from glle_engine.base.texts import Way
from glle_engine.base.validation import DENSE, unresolved_neighbors
from glle_engine.linalg.distances import ranks_of
from glle_engine.linalg.nearest.distance_kernels import TIE_TOLERANCE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.spec import Metric

METRICS = ("euclidean", "cosine", "correlation")  # the metrics that sparse data can have
_EPSILON = float(np.finfo(np.float64).eps)
_BLOCK_ENTRIES = 1 << 21  # inner products and differences are computed in blocks of this many entries, to limit memory
# Residuals are rounding errors if their root mean square length is below this share of the points' root mean square
# length: 64 times the machine epsilon of float64.
_ROUNDING = 2.0**-46


@dataclass(frozen=True, eq=False)
class SparsePoints:
    """Points that are sparse rows minus a constant each: u_i = x_i - c_i 1.

    Attributes
    ----------
    rows : (n, d) csr_array of float64
        The rows x_i in canonical form: columns ascending, without duplicates or stored zeros.
    shifts : (n,) float64
        The constants c_i.

    """

    rows: csr_array
    shifts: NDArray[np.float64]

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def __getitem__(self, index: Any) -> SparsePoints:
        return SparsePoints(self.rows[index], self.shifts[index])

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of points and of features."""
        return int(self.rows.shape[0]), int(self.rows.shape[1])

    @classmethod
    def from_rows(cls, rows: csr_array, metric: Metric) -> Self:
        """Return points whose Euclidean distances order all pairs of rows (n, d) as the metric does.

        The rows must be in canonical form. The rows are transformed as by `glle_engine.base.space` for dense data.

        Raises
        ------
        DegenerateDataError
            If a row has no direction: only zeros, with "cosine", or only equal numbers, with "correlation".

        """
        if metric == "euclidean":
            return cls(rows, np.zeros(rows.shape[0]))
        n, d = rows.shape
        row, count = _row_of_entries(rows), np.diff(rows.indptr)
        largest, smallest = (_extremes(rows, pick, axis=1) for pick in (np.maximum, np.minimum))
        is_flat = largest == smallest if metric == "correlation" else count == 0
        if is_flat.any():
            raise flat_row(metric, is_flat, d)
        values = np.ldexp(rows.data, -np.frexp(np.maximum(np.abs(largest), np.abs(smallest)))[1][row])
        means = np.bincount(row, values, n) / d if metric == "correlation" else np.zeros(n)
        apart = values - means[row]
        lengths = np.sqrt(np.bincount(row, apart * apart, n) + (d - count) * means * means)
        scaled = csr_array((values / lengths[row], rows.indices, rows.indptr), shape=rows.shape)
        return cls(scaled, means / lengths)

    @cached_property
    def exponent(self) -> int:
        """The integer e for which the largest absolute entry of `rows` is in [2^(e - 1), 2^e); 0 if all are 0."""
        return int(np.frexp(np.abs(self.rows.data).max(initial=0.0))[1])

    def over(self, exponent: int) -> SparsePoints:
        """Return the points divided by 2^exponent, which is exact."""
        values = np.ldexp(self.rows.data, -exponent)
        rows = csr_array((values, self.rows.indices, self.rows.indptr), shape=self.rows.shape)
        return SparsePoints(rows, np.ldexp(self.shifts, -exponent))

    def are_equal(self) -> bool:
        """Return whether all points are equal."""
        first = self[np.zeros(len(self), np.intp)]
        return not (self.rows - first.rows).nnz and not (self.shifts - first.shifts).any()

    def nearest(
        self,
        points: SparsePoints,
        excluded: NDArray[np.integer[Any]],
        k: int,
        on_progress: OnProgress = silent,
        groups: NDArray[np.intp] | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return the indices and distances, both (m, k), of the k points of self that are nearest to each of `points`.

        The nearest comes first; of distances that agree to 34 bits, the smaller index comes first. For point i of the m
        `points`, point excluded[i] of self is left out. With `groups` (n,), the group numbers of the n points of self,
        all points of group excluded[i] are left out; -1 leaves out no point. `on_progress` is called with (points done,
        m, "neighbors").
        """
        indices, distances = np.empty((len(points), k), np.int32), np.empty((len(points), k))
        width = max(int(np.diff(matrix.indptr).max(initial=0)) for matrix in (self.rows, points.rows))
        # A squared distance that is computed from inner products has a rounding error of at most `error` times the sum
        # of the two points' `_sizes` (about their squared lengths), in whatever order scipy adds the products.
        error = 8 * (width + 16) * _EPSILON
        of_rows = np.arange(len(self)) if groups is None else groups
        for block in blocks(len(points), _rows_of_products(self.rows, points.rows), "neighbors", on_progress):
            some = points[block]
            about = some._sizes[:, None] + self._sizes  # noqa: SLF001 -- the same class
            off = error * about
            about -= 2 * self._products(some)
            about[of_rows == excluded[block][:, None]] = np.inf
            reach = np.partition(about + off, k - 1, axis=1)[:, k - 1] * (1 + 8 * TIE_TOLERANCE)
            item, near = np.nonzero(about - off <= reach[:, None])
            apart = self._apart(some, item, near)
            order = np.lexsort((near, ranks_of(apart), item))
            first = np.searchsorted(item, np.arange(len(some)))  # items are ascending, before and after the sort
            chosen = order[first[:, None] + np.arange(k)]
            indices[block], distances[block] = near[chosen], apart[chosen]
        return indices, distances

    def distances(self, points: SparsePoints, candidates: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        """Return the distances (m, c) from each of m other `points` to its `candidates` (m, c), points of self."""
        item = np.repeat(np.arange(len(points)), candidates.shape[1])
        return self._apart(points, item, candidates.ravel()).reshape(candidates.shape)

    def differences(self, points: SparsePoints, neighbors: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        """Return dense vectors (m, k, c) that stand for the differences between m other `points` and their neighbors.

        The `neighbors` (m, k) are points of self. Within a neighborhood, the vectors have the same inner products as
        the differences (m, k, d), but c is small. Each neighborhood has its own columns: one for each feature in which
        one of its differences has a stored entry. If shifts differ, the last column stands for all other features
        together.
        """
        m, k = neighbors.shape
        d = self.shape[1]
        item, near = np.repeat(np.arange(m), k), neighbors.ravel()
        apart, shifts = self.rows[near] - points.rows[item], self.shifts[near] - points.shifts[item]
        row = _row_of_entries(apart)
        used, place = np.unique(row // k * d + apart.indices.astype(np.int64), return_inverse=True)
        first = np.searchsorted(used, np.arange(m + 1) * d)
        count = np.diff(first)
        others = 1 if shifts.any() else 0
        dense = np.zeros((m * k, max(1, int(count.max()) + others)))
        if others:
            count = np.repeat(count, k)
            dense[np.arange(dense.shape[1]) < count[:, None]] = np.repeat(-shifts, count)
            dense[:, -1] = -shifts * np.sqrt(d - count)
        dense[row, place.ravel() - first[row // k]] += apart.data
        return dense.reshape(m, k, -1)

    @property
    def neighborhood_width(self) -> int:
        """The mean number of stored entries of a point, at least 1, for choosing the size of blocks."""
        return max(1, int(self.rows.nnz) // max(1, len(self)))

    def require_resolved(self, nearest: NDArray[np.int32], distances: NDArray[np.float64], limit: float) -> None:
        """Raise `OutOfRangeError` if all neighbors of a point are so near that their squared distances underflow.

        The squares of distances (n, k) below `limit` underflow. A point whose neighbors `nearest` (n, k) are all
        duplicates, at distance 0, raises no error.
        """
        for point in np.flatnonzero(distances[:, -1] < limit):
            apart = np.abs(self.differences(self[[point]], nearest[[point]])).max()
            if apart:
                raise unresolved_neighbors(int(point), float(apart))

    def deviations(self) -> NDArray[np.float64]:
        """Return the standard deviations (d,) of the features, exactly 0 for constant features."""
        n, d = self.shape
        row, column, values = _row_of_entries(self.rows), self.rows.indices, self.rows.data
        shifts = self.shifts - self.shifts.mean()
        means = np.bincount(column, values, d) / n
        level = shifts[row] + means[column]
        sums = np.bincount(column, (values - level) ** 2 - level**2, d) + (shifts**2).sum() + n * means**2
        if not shifts.any():
            sums[constant_columns(self.rows)] = 0.0
        return np.asarray(np.sqrt(np.maximum(sums, 0.0) / n))

    def residual_dimension(self, neighbors: NDArray[np.int32], weights: NDArray[np.float64]) -> float:
        """Return the effective number of directions (participation ratio) of the residuals of reconstruction weights.

        The residual of a point is its difference from the sum of its `neighbors` (n, k) times `weights` (n, k), whose
        rows sum to one. This is `glle_engine.weights.constrained.residual_dimension` for sparse points. The residuals
        are R = V U, with V = W - I and the points U. Their inner products V (U R^T) are computed in blocks of columns,
        and computing U R^T costs no more than the search for neighbors.
        """
        n, d = self.shape
        V = residual_matrix(neighbors, weights)
        rest = SparsePoints(csr_array(V @ self.rows), V @ self.shifts)
        total = float((rest._sizes - 2 * rest.shifts * rest._sums).sum())
        if total <= _ROUNDING**2 * float(self._sizes.sum()):
            return 0.0
        squares = 0.0
        for block in blocks(n, _rows_of_products(self.rows, rest.rows), "posterior"):
            some, sums = rest[block], rest._sums[block]
            inner = _inner_products(self.rows, some.rows)
            inner -= sums[:, None] * self.shifts + some.shifts[:, None] * (self._sums - d * self.shifts)
            products = V @ inner.T
            squares += float((products * products).sum())
        return float(np.clip(total * total / squares, 1.0, min(n, d)))

    def principal_scores(self, count: int) -> NDArray[np.float64]:
        """Return the scores (n, count) of the leading principal components, by a Lanczos method on the centered points.

        Raises
        ------
        InvalidParameterError
            Unless `count` is below both the number of points and the number of features.

        """
        n, d = self.shape
        if count >= min(n, d):
            raise InvalidParameterError(
                f"{count} principal components of {n} sparse points with {d} features cannot be computed; of sparse "
                f"data, at most {min(n, d) - 1} can.",
                remedy="Give fewer components, another `init`, or a dense array.",
            )
        mean = self.rows.mean(axis=0)
        shifts = self.shifts - self.shifts.mean()
        operator = LinearOperator(
            (n, d),
            matvec=lambda v: self.rows @ v.ravel() - mean @ v.ravel() - shifts * v.sum(),
            rmatvec=lambda v: self.rows.T @ v.ravel() - mean * v.sum() - shifts @ v.ravel(),
            dtype=np.float64,
        )
        vectors, values, _ = svds(operator, count, v0=np.random.default_rng(n).standard_normal(min(n, d)))
        return np.asarray((vectors * values)[:, ::-1])

    @cached_property
    def _sums(self) -> NDArray[np.float64]:
        """The sum (n,) of the entries of each row x_i."""
        return np.asarray(np.bincount(_row_of_entries(self.rows), self.rows.data, len(self)), np.float64)

    @cached_property
    def _sizes(self) -> NDArray[np.float64]:
        """s_i = |x_i|^2 + d c_i^2 (n,) for each point x_i - c_i 1: sparse row i minus its shift in each of d features.

        s_i is at least half of the squared length of the point, so that rounding errors of lengths and distances can be
        bounded by it.
        """
        squares = np.bincount(_row_of_entries(self.rows), self.rows.data**2, len(self))
        return np.asarray(squares + self.shape[1] * self.shifts**2)

    def _products(self, points: SparsePoints) -> NDArray[np.float64]:
        """Return the inner products (m, n) of m `points` and the n points of self, up to terms of one point alone.

        A point is x - c 1, a sparse row x minus its shift c in each of the d features. The result is
        (s_i + s_j - a_ij^2) / 2, where a_ij is the distance between point i of `points` and point j of self, and s
        (`_sizes`) is |x|^2 + d c^2 for each point. If all shifts are 0, s is the squared length, and the result is
        exactly the inner products.
        """
        products = _inner_products(self.rows, points.rows)
        if self.shifts.any() or points.shifts.any():
            # For points u = x - c 1 and v = y - e 1: |u - v|^2 = |x - y|^2 - 2 (c - e) (sum x - sum y) + d (c - e)^2
            apart = points.shifts[:, None] - self.shifts
            products += apart * (points._sums[:, None] - self._sums)
            products += self.shape[1] * points.shifts[:, None] * self.shifts
        return products

    def _apart(
        self, points: SparsePoints, item: NDArray[np.intp], near: NDArray[np.integer[Any]]
    ) -> NDArray[np.float64]:
        """Return the distances (q,) of q pairs: number item[i] of the other `points`, and number near[i] of self."""
        distances = np.empty(len(item))
        size = max(1, _BLOCK_ENTRIES // (self.neighborhood_width + points.neighborhood_width))
        for block in blocks(len(item), size, "neighbors"):
            i, j = item[block], near[block]
            apart, shifts = self.rows[j] - points.rows[i], self.shifts[j] - points.shifts[i]
            row = _row_of_entries(apart)
            values = apart.data - shifts[row]
            others = self.shape[1] - np.diff(apart.indptr)
            distances[block] = np.sqrt(np.bincount(row, values * values, len(shifts)) + others * shifts * shifts)
        return distances


def require_possible(spec: Any) -> None:
    """Raise `InvalidParameterError` if a parameter of a fit or a method does not allow sparse data.

    `spec` is a `glle_engine.base.spec.SpaceSpec`. A parameter that `spec` does not have counts as having its default.
    """
    standardize, metric = spec.space
    scaled = (
        "Centering would make the columns dense. Scale them yourself, for example by "
        "sklearn.preprocessing.StandardScaler(with_mean=False), which gives "
        "the distances of standardize='zscore'."
    )
    for is_wrong, option, remedy in (
        (standardize != "none", f"standardize={standardize!r}", scaled),
        (
            metric == "hamming",
            "metric='hamming'",
            f"Give a column of 0 and 1 for each level, with {Way('metric', 'euclidean')}. {DENSE}",
        ),
        (
            metric == "precomputed",
            "metric='precomputed'",
            "Give the distances of all pairs as a dense matrix, or points X with neighbors=graph.",
        ),
        (metric not in {*METRICS, "hamming", "precomputed"}, f"metric={metric!r}", DENSE),
        *(
            (getattr(spec, name, default) != default, f"{name}={getattr(spec, name, default)!r}", DENSE)
            for name, default in (
                ("variant", "constrained"),
                ("noise", "isotropic"),
                ("neighborhoods", "fixed"),
                ("search", "exact"),
            )
        ),
        (getattr(spec, "has_landmarks", False), f"landmarks={getattr(spec, 'landmarks', 0)}", DENSE),
    ):
        if is_wrong:
            raise InvalidParameterError(f"The data are sparse, which {option} does not support.", remedy=remedy)


def residual_matrix(neighbors: NDArray[np.int32], weights: NDArray[np.float64]) -> csr_array:
    """Return the sparse matrix V = W - I (n, n), where W has the `weights` (n, k) of the `neighbors` (n, k).

    V times the points is the residuals: the reconstruction of each point minus the point.
    """
    n, k = neighbors.shape
    columns = np.concatenate([neighbors, np.arange(n, dtype=np.int32)[:, None]], axis=1)
    values = np.concatenate([weights, np.full((n, 1), -1.0)], axis=1)
    return csr_array((values.ravel(), columns.ravel(), np.arange(0, n * (k + 1) + 1, k + 1)), shape=(n, n))


def constant_columns(rows: csr_array) -> NDArray[np.bool_]:
    """Return a mask (d,) of the constant columns of sparse rows (n, d), in which entries that are not stored are 0."""
    return np.asarray(_extremes(rows, np.maximum, axis=0) == _extremes(rows, np.minimum, axis=0))


def _row_of_entries(rows: csr_array) -> NDArray[np.intp]:
    """Return the row number of each stored entry of a CSR matrix."""
    return np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))


def _extremes(rows: csr_array, pick: np.ufunc, axis: int) -> NDArray[np.float64]:
    """Return the maximum or minimum (`pick`) of each row (axis 1) or column (axis 0); entries not stored are 0."""
    index = rows.indices if axis == 0 else _row_of_entries(rows)
    length, others = rows.shape[1 - axis], rows.shape[axis]
    extremes = np.full(length, -np.inf if pick is np.maximum else np.inf)
    pick.at(extremes, index, rows.data)
    has_zero = np.bincount(index, minlength=length) < others
    extremes[has_zero] = pick(extremes[has_zero], 0.0)
    return extremes


def _inner_products(rows: csr_array, others: csr_array) -> NDArray[np.float64]:
    """Return the inner products (m, n) of sparse `others` (m, d) with sparse `rows` (n, d) as a dense array.

    Scratch memory is a dense copy of the columns in which `others` have entries.
    """
    used = np.unique(others.indices)
    return np.ascontiguousarray((rows[:, used] @ others[:, used].T.toarray()).T)


def _rows_of_products(rows: csr_array, others: csr_array) -> int:
    """Return how many rows of `others` a block may have, so that its inner products with all `rows` fit in memory."""
    width = 1 + int(others.nnz) // max(1, others.shape[0])
    return max(1, min(_BLOCK_ENTRIES // int(rows.shape[0]), math.isqrt(4 * _BLOCK_ENTRIES // width)))
