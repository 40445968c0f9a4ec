"""Sparse LU factorization with threshold pivoting, with the same bits on every processor.

The factorization is left-looking (Gilbert and Peierls 1988, in the form of Davis 2006, section 6.2): a triangular
system with column j of :math:`A` and the columns of L so far is solved, and a depth-first search finds the pattern of
the solution. One of the rows without a pivot then gives the pivot of column j: the diagonal entry if its absolute value
is at least `threshold` times the largest, or else the largest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from glle_engine.linalg.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Space for this many entries of L and of U is reserved for each column at the start; it is extended if needed.
_INITIAL_ENTRIES_PER_COLUMN = 24


class SparseLU(NamedTuple):
    """Factors P A = L U of a sparse matrix, L unit lower triangular.

    Attributes
    ----------
    pivots : (n,) int32
        The permutation P: row pivots[j] of A is row j of L U.
    lower_start, upper_start : (n + 1,) int64
        Column j of L has the entries lower_start[j] to lower_start[j + 1] - 1 of `lower` and `lower_rows`, without the
        diagonal. Column j of U is stored alike; its diagonal comes last.
    lower_rows, upper_rows : int32
        The row number of each entry, as a row of L or U.
    lower, upper : float64
        The entries; the diagonal of U is stored as its reciprocal.

    """

    pivots: NDArray[np.int32]
    lower_start: NDArray[np.int64]
    lower_rows: NDArray[np.int32]
    lower: NDArray[np.float64]
    upper_start: NDArray[np.int64]
    upper_rows: NDArray[np.int32]
    upper: NDArray[np.float64]

    @staticmethod
    def factor(
        start: NDArray[np.int32],
        rows: NDArray[np.int32],
        values: NDArray[np.float64],
        threshold: float,
    ) -> SparseLU:
        """Factor a square matrix in compressed column format.

        Parameters
        ----------
        start : (n + 1,) int32
            Column j has the entries start[j] to start[j + 1] - 1 of `rows` and `values`.
        rows, values : (entries,) int32, float64
            No row occurs twice in a column.
        threshold : float
            A diagonal entry is taken as pivot if its absolute value is at least this share, in [0, 1], of the largest
            in its column; 1 is partial pivoting.

        Raises
        ------
        FloatingPointError
            If no entry of a column can be a pivot.

        """
        factors = _factorize(start, rows, values, threshold)
        if factors.pivots[-1] < 0:
            raise FloatingPointError("the matrix is singular, or its factors are not finite")
        return factors

    def solve(self, b: NDArray[np.float64], trans: str = "N") -> NDArray[np.float64]:
        """Return the solution x of A x = b, or of A^T x = b for trans="T"; b and x are (n,) or (n, m)."""
        if b.ndim == 2:
            return np.stack([self.solve(np.ascontiguousarray(column), trans) for column in b.T], axis=1)
        x = np.empty(len(b))
        (_solve if trans == "N" else _solve_transposed)(self, b, x)
        return x


@compiled
def _longer(values: NDArray[Any], extra: int) -> NDArray[Any]:
    """Return a copy of `values` that is longer, with 2 len(values) + extra entries; the new ones are undefined."""
    longer = np.empty(2 * len(values) + extra, values.dtype)
    for e in range(len(values)):
        longer[e] = values[e]
    return longer


@compiled
def _factorize(
    start: NDArray[np.int32], rows: NDArray[np.int32], values: NDArray[np.float64], threshold: float
) -> SparseLU:
    """Factor a sparse matrix with the parameters of `SparseLU.factor`.

    If a column has only zeros or a number that is not finite where a pivot could be, the factorization stops, and the
    last entry of `pivots` is -1.
    """
    n = len(start) - 1
    pivots, place = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    lower_start, upper_start = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    lower_rows, upper_rows = (
        np.empty(_INITIAL_ENTRIES_PER_COLUMN * n, np.int32),
        np.empty(_INITIAL_ENTRIES_PER_COLUMN * n, np.int32),
    )
    lower, upper = np.empty(_INITIAL_ENTRIES_PER_COLUMN * n), np.empty(_INITIAL_ENTRIES_PER_COLUMN * n)
    x, mark = np.zeros(n), np.full(n, -1, np.int32)
    reach, stack, resume = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int64)
    pruned = np.empty(n, np.int64)  # the depth-first search reads each column of L up to this entry
    for j in range(n):
        if lower_start[j] + n > len(lower_rows):
            lower_rows, lower = _longer(lower_rows, n), _longer(lower, n)
        if upper_start[j] + n > len(upper_rows):
            upper_rows, upper = _longer(upper_rows, n), _longer(upper, n)
        # reach[top:] has the rows that column j reaches through L, in topological order.
        top = n
        free = lower_start[j]  # end of the new column of L, which gets the reached rows that have no pivot yet
        for e in range(start[j], start[j + 1]):
            row = rows[e]
            if mark[row] == j:
                continue
            mark[row] = j
            if place[row] < 0:
                lower_rows[free] = row
                free += 1
                continue
            depth = 0
            stack[0], resume[0] = row, lower_start[place[row]]
            while depth >= 0:
                column = place[stack[depth]]
                next_entry, end = resume[depth], pruned[column]
                descended = False
                while next_entry < end:
                    below = lower_rows[next_entry]
                    next_entry += 1
                    if mark[below] == j:
                        continue
                    mark[below] = j
                    if place[below] < 0:
                        lower_rows[free] = below
                        free += 1
                        continue
                    resume[depth] = next_entry
                    depth += 1
                    stack[depth], resume[depth] = below, lower_start[place[below]]
                    descended = True
                    break
                if not descended:
                    top -= 1
                    reach[top] = stack[depth]
                    depth -= 1
        for e in range(start[j], start[j + 1]):
            x[rows[e]] = values[e]
        up = upper_start[j]
        for i in range(top, n):
            row = reach[i]
            column = place[row]
            value = x[row]
            x[row] = 0.0
            upper_rows[up], upper[up] = column, value
            up += 1
            for e in range(lower_start[column], lower_start[column + 1]):
                x[lower_rows[e]] -= lower[e] * value
        largest, best, diagonal = 0.0, -1, -1
        finite = True
        for e in range(lower_start[j], free):
            size = abs(x[lower_rows[e]])
            finite = finite and np.isfinite(size)
            if size > largest:
                largest, best = size, e
            if lower_rows[e] == j:
                diagonal = e
        if not finite or best < 0:
            break
        if diagonal >= 0 and abs(x[j]) >= threshold * largest:
            best = diagonal
        pivot = lower_rows[best]
        inverse = 1.0 / x[pivot]
        pivots[j], place[pivot] = pivot, j
        upper_rows[up], upper[up] = j, inverse
        upper_start[j + 1] = up + 1
        free -= 1
        lower_rows[best] = lower_rows[free]
        x[pivot] = 0.0
        for e in range(lower_start[j], free):
            row = lower_rows[e]
            lower[e] = x[row] * inverse
            x[row] = 0.0
        lower_start[j + 1] = free
        pruned[j] = free
        # Symmetric pruning (Eisenstat and Liu 1992) of earlier columns c of L, now that row `pivot` is the pivot row of
        # column j. If U[c, j] != 0, the elimination has given column j an entry in each row of column c that is not a
        # pivot row yet. If column c also has an entry in row `pivot`, each later search that reads column c goes on
        # from this entry to column j, and finds these rows there. In column c, it then has to read only the pivot rows,
        # which are sorted to the front here.
        for i in range(top, n):
            column = place[reach[i]]
            begin, end = lower_start[column], lower_start[column + 1]
            if pruned[column] < end:
                continue
            holds = False
            for e in range(begin, end):
                holds = holds or lower_rows[e] == pivot
            if not holds:
                continue
            low, high = begin, end - 1
            while low <= high:
                if place[lower_rows[low]] >= 0:
                    low += 1
                else:
                    row, entry = lower_rows[low], lower[low]
                    lower_rows[low], lower[low] = lower_rows[high], lower[high]
                    lower_rows[high], lower[high] = row, entry
                    high -= 1
            pruned[column] = low
    if pivots[n - 1] >= 0:
        for e in range(lower_start[n]):
            lower_rows[e] = place[lower_rows[e]]
    return SparseLU(
        pivots,
        lower_start,
        lower_rows[: lower_start[n]],
        lower[: lower_start[n]],
        upper_start,
        upper_rows[: upper_start[n]],
        upper[: upper_start[n]],
    )


@compiled
def _solve(factors: SparseLU, b: NDArray[np.float64], x: NDArray[np.float64]) -> None:
    """Solve A x = b: write U^-1 L^-1 P b to `x`."""
    pivots, lower_start, lower_rows, lower, upper_start, upper_rows, upper = factors
    n = len(b)
    for j in range(n):
        x[j] = b[pivots[j]]
    for j in range(n):
        value = x[j]
        for e in range(lower_start[j], lower_start[j + 1]):
            x[lower_rows[e]] -= lower[e] * value
    for j in range(n - 1, -1, -1):
        last = upper_start[j + 1] - 1
        value = x[j] * upper[last]
        x[j] = value
        for e in range(upper_start[j], last):
            x[upper_rows[e]] -= upper[e] * value


@compiled
def _solve_transposed(factors: SparseLU, b: NDArray[np.float64], x: NDArray[np.float64]) -> None:
    """Solve A^T x = b: write P^T L^-T U^-T b to `x`."""
    pivots, lower_start, lower_rows, lower, upper_start, upper_rows, upper = factors
    n = len(b)
    y = np.empty(n)
    for j in range(n):
        last = upper_start[j + 1] - 1
        even, odd = b[j], 0.0
        for e in range(upper_start[j], last - 1, 2):
            even -= upper[e] * y[upper_rows[e]]
            odd -= upper[e + 1] * y[upper_rows[e + 1]]
        if (last - upper_start[j]) % 2:
            even -= upper[last - 1] * y[upper_rows[last - 1]]
        y[j] = (even + odd) * upper[last]
    for j in range(n - 1, -1, -1):
        first, end = lower_start[j], lower_start[j + 1]
        even, odd = y[j], 0.0
        for e in range(first, end - 1, 2):
            even -= lower[e] * y[lower_rows[e]]
            odd -= lower[e + 1] * y[lower_rows[e + 1]]
        if (end - first) % 2:
            even -= lower[end - 1] * y[lower_rows[end - 1]]
        y[j] = even + odd
    for j in range(n):
        x[pivots[j]] = y[j]
