r"""Points known by their distances only (``metric="precomputed"``).

LLE needs no coordinates, because the Gram matrix of a neighborhood follows from the distances, as in classical scaling
(Saul and Roweis 2003, section 6.1):

.. math:: G_{jk} = (x_j - x_i)^T (x_k - x_i) = (d_{ij}^2 + d_{ik}^2 - d_{jk}^2) / 2

If no points of a Euclidean space have these distances, some of these matrices have negative eigenvalues. Setting them
to 0 gives the nearest Gram matrix; `Distances.shortfall` measures how much this changes the matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

from glle_engine.base.errors import DegenerateDataError, InvalidParameterError, InvalidShapeError
from glle_engine.base.progress import OnProgress, block_size, blocks
from glle_engine.base.space import Space
from glle_engine.base.validation import in_unit, require_enough_points
from glle_engine.graph.sparse import SparsePoints, require_possible, residual_matrix
from glle_engine.linalg import dense
from glle_engine.linalg.distances import ranks_of, smallest_of_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_array

    from glle_engine.base.spec import FitSpec

# Rounding errors of distances, relative to the largest: a distance that was computed as sqrt(|x|^2 + |y|^2 - 2 x^T y)
# has only half the digits of a double.
DISTANCE_ROUNDING = 1e-7
# Negative eigenvalues of a Gram matrix up to this share of the largest one are rounding errors.
EIGENVALUE_ROUNDING = 1e-10
_RESIDUAL_ROUNDING = 2.0**-46  # squared residuals up to this share of the largest squared distance are rounding errors


@dataclass(frozen=True, eq=False)
class Distances:
    """Distances from m points to n known points (those of a fit), and among the known points.

    Attributes
    ----------
    to_known : (m, n) float64
        Row i has the distances from point i to the known points.
    known : (n, n) float64
        The distances among the known points, exactly symmetric, with a diagonal of 0. If the m points are the known
        points themselves, this is the same array as `to_known`.

    """

    to_known: NDArray[np.float64]
    known: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.to_known)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of points m, and the number of known points n."""
        return self.to_known.shape[0], self.to_known.shape[1]

    @classmethod
    def among(cls, matrix: NDArray[np.float64]) -> Self:
        """Return the `Distances` of n points among each other from their matrix (n, n).

        Raises `InvalidShapeError` or `InvalidParameterError` if the matrix is not one of distances
        (`checked_distances`).
        """
        known = checked_distances(matrix)
        return cls(known, known)

    def at(self, rows: NDArray[np.intp]) -> Self:
        """Return the `Distances` among some of the known points (those of a fit), whose row numbers are `rows`."""
        return type(self).among(self.known[np.ix_(rows, rows)])

    def of_others(self, rows: NDArray[np.intp], known: NDArray[np.intp]) -> Self:
        """Return the `Distances` from the points `rows` to the points `known`, and among the points `known`.

        Both arguments are row numbers of the points of a fit, whose distances among each other this object has.
        """
        return type(self)(self.known[np.ix_(rows, known)], self.known[np.ix_(known, known)])

    def nearest(self, k: int, on_progress: OnProgress) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return, for each of the m points, the k nearest of the n known points and their distances, both (m, k).

        The known points (those of a fit) are given as columns of `to_known`, nearest first; of distances that agree to
        34 bits, the smaller index comes first. If the m points are the known points, no point is its own neighbor.
        `on_progress` is called with (points done, m, "neighbors").
        """
        m, n = self.shape
        indices, distances = np.empty((m, k), np.int32), np.empty((m, k))
        for rows in blocks(m, block_size(n), "neighbors", on_progress):
            apart = self.to_known[rows].copy()
            if self.to_known is self.known:
                apart[np.arange(len(apart)), np.arange(rows.start, rows.start + len(apart))] = np.inf
            order = smallest_of_rows(apart, k)
            indices[rows], distances[rows] = order, np.take_along_axis(apart, order, axis=1)
        return indices, distances

    def closest(self, a: NDArray[np.intp], b: NDArray[np.intp]) -> tuple[int, int]:
        """Return the closest pair of points, one from the set `a` and one from the set `b`, as row numbers.

        `a` and `b` have row numbers of points of the fit; this object stores the distances between all points of the
        fit. Of pairs whose distances agree to 34 bits, the first in the order of `a` and `b` is returned.
        """
        best = int(np.argmin(ranks_of(self.known[np.ix_(a, b)])))
        return int(a[best // len(b)]), int(b[best % len(b)])

    def gram(self, rows: slice, neighbors: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the Gram matrices (r, k, k) of the differences between r points and their neighbors, from distances.

        The points are the slice `rows` of the rows of `to_known`, and their `neighbors` (r, k) are column numbers of
        `to_known`. If no points of a Euclidean space have the distances of a neighborhood, its Gram matrix has negative
        eigenvalues, which are set to 0.
        """
        gram = self._gram_matrices(rows, neighbors)
        values, vectors = dense.eigh(gram)
        bent = values[:, 0] < -EIGENVALUE_ROUNDING * np.abs(values).max(axis=1)
        if bent.any():
            roots = vectors[bent] * np.sqrt(np.maximum(values[bent], 0.0))[:, None, :]
            gram[bent] = dense.gram(np.ascontiguousarray(roots))
        return gram

    def shortfall(self, neighbors: NDArray[np.int32]) -> tuple[int, float]:
        """Return how many neighborhoods are not Euclidean, and a measure in [0, 1] of the worst of them.

        A neighborhood is a point and its `neighbors` (n, k). It is not Euclidean if no points of a Euclidean space have
        these distances, which shows in negative eigenvalues of its Gram matrix. The second number is the largest share
        of the negative eigenvalues in the sum of all absolute eigenvalues of a neighborhood.
        """
        count, largest = 0, 0.0
        size = block_size(neighbors.shape[1] ** 2)
        for rows in blocks(len(neighbors), size, "diagnostics"):
            values = dense.eigvalsh(self._gram_matrices(rows, neighbors[rows]))
            count += int((values[:, 0] < -DISTANCE_ROUNDING * np.abs(values).max(axis=1)).sum())
            total = np.abs(values).sum(axis=1)
            share = -np.minimum(values, 0.0).sum(axis=1) / np.where(total > 0, total, 1.0)
            largest = max(largest, float(share.max(initial=0.0)))
        return count, largest

    def residual_dimension(self, neighbors: NDArray[np.int32], weights: NDArray[np.float64]) -> float:
        r"""Return the effective number of directions (participation ratio) of the residuals of reconstruction weights.

        The residual of a point is its difference from the sum of its `neighbors` (n, k) times `weights` (n, k), whose
        rows sum to one. This is `glle_engine.weights.constrained.residual_dimension` without coordinates: with
        V = W - I, the inner products of the residuals are :math:`-V D V^T / 2`, where D has the squared distances.
        """
        n = len(neighbors)
        V = residual_matrix(neighbors, weights)
        largest = float(self.known.max()) or 1.0
        total, squares = 0.0, 0.0
        for rows in blocks(n, block_size(n), "posterior"):
            halves = (V[rows] @ ((self.known / largest) ** 2)) / -2
            products = V @ halves.T  # (n, r)
            total += float(products[np.arange(rows.start, rows.start + len(halves)), np.arange(len(halves))].sum())
            squares += float((products * products).sum())
        return (
            float(np.clip(total * total / squares, 1.0, n)) if total > _RESIDUAL_ROUNDING * n and squares > 0 else 0.0
        )

    def ranks_beyond(
        self, rows: NDArray[np.intp], neighbors: NDArray[np.int32], k: int, equal: float
    ) -> NDArray[np.float64]:
        """Return, for each of the points `rows` (m,), the sum (m,) of max(0, r - k) over the ranks r of its neighbors.

        All other points are ranked by their distance from the point: the nearest has rank 1. `neighbors` (m, c) are the
        points whose ranks are summed. Distances with a relative difference below `equal` have equal ranks.
        Trustworthiness and continuity are computed from these sums.
        """
        excess = np.zeros(len(rows))
        for item, (row, near) in enumerate(zip(rows, neighbors, strict=True)):
            others = np.sort(np.delete(self.known[row], row))
            rank = 1 + np.searchsorted(others, self.known[row, near] * (1 - equal), side="left")
            excess[item] = np.maximum(rank - k, 0).sum()
        return excess

    def _gram_matrices(self, rows: slice, neighbors: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the matrices (r, k, k) of (d_ij^2 + d_ik^2 - d_jk^2) / 2 for each point i with neighbors j and k.

        d are distances. The r points i are the slice `rows` of the rows of `to_known`, and their `neighbors` (r, k) are
        column numbers of `to_known`. These are the Gram matrices of the differences to the neighbors, but may have
        negative eigenvalues if no points of a Euclidean space have these distances.
        """
        squares = np.take_along_axis(self.to_known[rows], neighbors, axis=1) ** 2
        between = self.known[neighbors[:, :, None], neighbors[:, None, :]] ** 2
        return np.asarray((squares[:, :, None] + squares[:, None, :] - between) / 2)


Data: TypeAlias = "NDArray[np.float64] | Distances | SparsePoints"  # points as coordinates (n, d) or in other forms


def coordinates(points: Data) -> NDArray[np.float64]:
    """Assert that `points` are coordinates (n, d), not distances or sparse points, and return them."""
    assert isinstance(points, np.ndarray)
    return points


def require_differing(points: Data) -> None:
    """Raise `DegenerateDataError` if all points are equal."""
    if isinstance(points, SparsePoints):
        are_equal = points.are_equal()
    else:
        are_equal = not points.known.any() if isinstance(points, Distances) else bool(np.all(points == points[0]))
    if are_equal:
        raise DegenerateDataError(
            f"All {len(points)} points are equal.", remedy="Check that the data were read as intended."
        )


def locate(data: NDArray[np.float64] | csr_array, spec: FitSpec, space: Space | None = None) -> Data:
    """Return the data (n, d) in the form that a fit computes with: coordinates, distances or sparse points.

    `space` applies the parameters `standardize` and `metric`; by default it is fitted to the data. The result is
    divided by a power of 2, so that squares stay in the range of floating-point numbers. Raises the errors of `Space`,
    `glle_engine.base.validation.in_unit`, `checked_distances` and `glle_engine.graph.sparse.require_possible`.
    """
    if not isinstance(data, np.ndarray):
        require_possible(spec)
        require_enough_points(data.shape[0], spec)
        points = SparsePoints.from_rows(data, spec.metric)
        return points.over(points.exponent)
    placed = (space or Space.from_data(data, spec)).points(data)
    if spec.metric != "precomputed":
        return in_unit(placed, spec)
    require_enough_points(len(placed), spec)
    known = checked_distances(placed)
    return Distances.among(np.ldexp(known, -int(np.frexp(known.max())[1])))


def require_square(n: int, d: int) -> None:
    """Raise `InvalidShapeError` unless n == d, as in a matrix (n, d) that has a value for each pair of points."""
    if n != d:
        raise InvalidShapeError(
            f"A matrix of all pairs is square, not {n} x {d}.",
            remedy="Give a value for each pair of points. Or give the points, and another option than 'precomputed'.",
            details={"rows": n, "columns": d},
        )


def symmetric(matrix: Any, name: str) -> Any:
    """Return (A + A^T) / 2 of a dense or sparse matrix A (n, n) that is symmetric up to rounding.

    Raises
    ------
    InvalidParameterError
        If an entry differs from its mirror image by more than rounding. The message names the first such entry, and
        calls entries by `name`, such as "weight".

    """
    rows, columns = (abs(matrix - matrix.T) > DISTANCE_ROUNDING * float(abs(matrix).max())).nonzero()
    if len(rows):
        row, column = int(rows[0]), int(columns[0])
        raise InvalidParameterError(
            f"The {name} X[{row}, {column}] = {matrix[row, column]:g} differs from its mirror image, "
            f"{matrix[column, row]:g}.",
            remedy="Give a symmetric matrix, such as (X + X^T) / 2.",
            details={"row": row, "column": column},
        )
    return matrix / 2 + matrix.T / 2


def checked_distances(D: NDArray[np.float64]) -> NDArray[np.float64]:
    """Check a matrix of dissimilarities (n, n), and return it exactly symmetric, with a diagonal of 0.

    Raises
    ------
    InvalidShapeError
        If the matrix is not square.
    InvalidParameterError
        If an entry is negative, differs from its mirror image, or is on the diagonal and not 0, each by more than
        rounding errors. The message names the first such entry.

    """
    require_square(*D.shape)
    evened: NDArray[np.float64] = symmetric(D, "dissimilarity")
    tolerance = DISTANCE_ROUNDING * float(D.max())
    checks = (
        (-tolerance > D, "is negative", "Give dissimilarities of at least 0; a similarity s may become sqrt(1 - s)."),
        (np.diag(np.diag(D) > tolerance), "is on the diagonal and not 0", "Set the diagonal to 0."),
    )
    for is_wrong, reason, remedy in checks:
        if is_wrong.any():
            row, column = (int(i) for i in np.argwhere(is_wrong)[0])
            raise InvalidParameterError(
                f"The dissimilarity X[{row}, {column}] = {D[row, column]:g} {reason}.",
                remedy=remedy,
                details={"row": row, "column": column},
            )
    known = np.maximum(evened, 0.0)
    np.fill_diagonal(known, 0.0)
    return known
