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
from glle_engine.base.progress import OnProgress, blocks
from glle_engine.base.space import Space
from glle_engine.base.validation import in_unit, require_enough_points
from glle_engine.graph.sparse import SparsePoints, require_possible, residual_matrix
from glle_engine.linalg import dense
from glle_engine.linalg.distances import ranks_of, smallest_of_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_array

    from glle_engine.base.spec import FitSpec

# Rounding error of a distance, as the root of a difference of squares, relative to the largest distance.
DISTANCE_ROUNDING = 1e-7
# Negative eigenvalues of a Gram matrix up to this share of the largest one are rounding errors.
EIGENVALUE_ROUNDING = 1e-10
_BLOCK_ENTRIES = 1 << 22
_RESIDUAL_ROUNDING = 2.0**-46  # squared residuals up to this share of the largest squared distance are rounding errors


@dataclass(frozen=True, eq=False)
class Distances:
    """Distances from m points to n known points, and among the known points.

    Attributes
    ----------
    to_known : (m, n) float64
    known : (n, n) float64
        Exactly symmetric, with a diagonal of 0. The same array as `to_known` if the points are the known ones.

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
        """Return the distances among n points from their matrix (n, n); raises the errors of `checked_distances`."""
        known = checked_distances(matrix)
        return cls(known, known)

    def at(self, rows: NDArray[np.intp]) -> Self:
        """Return the distances among some of the known points, which `rows` are."""
        return type(self).among(self.known[np.ix_(rows, rows)])

    def of_others(self, rows: NDArray[np.intp], known: NDArray[np.intp]) -> Self:
        """Return the distances from some known points (`rows`) to the points `known`, and among the points `known`."""
        return type(self)(self.known[np.ix_(rows, known)], self.known[np.ix_(known, known)])

    def nearest(self, k: int, on_progress: OnProgress) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return the k nearest known points of each point, and their distances, both (m, k).

        Neighbors are sorted by (rank of the distance, index), and a known point is not its own neighbor. `on_progress`
        is called with (points done, m, "neighbors").
        """
        m, n = self.shape
        indices, distances = np.empty((m, k), np.int32), np.empty((m, k))
        for rows in blocks(m, max(1, _BLOCK_ENTRIES // n), "neighbors", on_progress):
            apart = self.to_known[rows].copy()
            if self.to_known is self.known:
                apart[np.arange(len(apart)), np.arange(rows.start, rows.start + len(apart))] = np.inf
            order = smallest_of_rows(apart, k)
            indices[rows], distances[rows] = order, np.take_along_axis(apart, order, axis=1)
        return indices, distances

    def closest(self, a: NDArray[np.intp], b: NDArray[np.intp]) -> tuple[int, int]:
        """Return the closest pair of a known point in `a` and one in `b`; among ties, the pair of smallest indices."""
        best = int(np.argmin(ranks_of(self.known[np.ix_(a, b)])))
        return int(a[best // len(b)]), int(b[best % len(b)])

    def gram(self, rows: slice, neighbors: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the Gram matrices (r, k, k) of the r points `rows` and their `neighbors` (r, k), known points.

        Negative eigenvalues, which mean that no points have these distances, are set to 0.
        """
        gram = self._gram_matrices(rows, neighbors)
        values, vectors = dense.eigh(gram)
        bent = values[:, 0] < -EIGENVALUE_ROUNDING * np.abs(values).max(axis=1)
        if bent.any():
            roots = vectors[bent] * np.sqrt(np.maximum(values[bent], 0.0))[:, None, :]
            gram[bent] = dense.gram(np.ascontiguousarray(roots))
        return gram

    def shortfall(self, neighbors: NDArray[np.int32]) -> tuple[int, float]:
        """Return the number of neighborhoods that are not Euclidean, and the largest share of negative eigenvalues.

        A neighborhood, a point and its `neighbors` (n, k), is not Euclidean if no points have its distances. Its share
        is the sum of the absolute values of the negative eigenvalues of its Gram matrix, divided by the sum of the
        absolute values of all eigenvalues.
        """
        count, largest = 0, 0.0
        size = max(1, _BLOCK_ENTRIES // neighbors.shape[1] ** 2)
        for rows in blocks(len(neighbors), size, "diagnostics"):
            values = dense.eigvalsh(self._gram_matrices(rows, neighbors[rows]))
            count += int((values[:, 0] < -DISTANCE_ROUNDING * np.abs(values).max(axis=1)).sum())
            total = np.abs(values).sum(axis=1)
            share = -np.minimum(values, 0.0).sum(axis=1) / np.where(total > 0, total, 1.0)
            largest = max(largest, float(share.max(initial=0.0)))
        return count, largest

    def residual_dimension(self, neighbors: NDArray[np.int32], weights: NDArray[np.float64]) -> float:
        r"""Return the participation ratio of the residuals that weights (n, k) leave, computed from distances.

        This is `glle_engine.weights.constrained.residual_dimension` without coordinates. With V = W - I, whose rows sum
        to zero, the inner products of the residuals are :math:`-V D^2 V^T / 2`, D^2 the matrix of squared distances.
        """
        n = len(neighbors)
        V = residual_matrix(neighbors, weights)
        largest = float(self.known.max()) or 1.0
        total, squares = 0.0, 0.0
        for rows in blocks(n, max(1, _BLOCK_ENTRIES // n), "posterior"):
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
        """Return, for each of the points `rows` (m,), by how much its `neighbors` (m, c) exceed rank k, in sum (m,).

        A point's other points are ranked by their distance from it, from 1. A neighbor of rank r adds max(0, r - k).
        Distances with a relative difference below `equal` have equal ranks. This sum is what trustworthiness and
        continuity need.
        """
        excess = np.zeros(len(rows))
        for item, (row, near) in enumerate(zip(rows, neighbors, strict=True)):
            others = np.sort(np.delete(self.known[row], row))
            rank = 1 + np.searchsorted(others, self.known[row, near] * (1 - equal), side="left")
            excess[item] = np.maximum(rank - k, 0).sum()
        return excess

    def _gram_matrices(self, rows: slice, neighbors: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the Gram matrices (d_ij^2 + d_ik^2 - d_jk^2) / 2, (r, k, k), of points i with neighbors j and k."""
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
    """Return the data in the form that a fit computes with: coordinates, distances or sparse points.

    `space` applies `standardize` and `metric`; by default it is fitted to the data. The result is divided by a power of
    2, so that squares stay in the range of floating-point numbers. Raises the errors of `Space`,
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
    """Raise `InvalidShapeError` unless n == d: a matrix (n, d) with a value for each pair of points must be square."""
    if n != d:
        raise InvalidShapeError(
            f"A matrix of all pairs is square, not {n} x {d}.",
            remedy="Give a value for each pair of points; or the points, with another value than 'precomputed'.",
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
        If an entry is negative, not symmetric, or on the diagonal and not 0, by more than rounding. The message names
        the first such entry.

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
