"""Validation of data, and the power of two by which data are divided before a computation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import numpy as np

from glle_engine.base.arrays import array_of, require_lossless
from glle_engine.base.errors import (
    DataMismatchError,
    InvalidParameterError,
    InvalidShapeError,
    NotFiniteError,
    OutOfRangeError,
    TooFewPointsError,
)
from glle_engine.base.texts import FEATURE, Note, Way

if TYPE_CHECKING:
    from collections.abc import Sequence, Sized

    from numpy.typing import ArrayLike, NDArray
    from scipy.sparse import csr_array

    from glle_engine.base.spec import FitSpec

# Between these bounds, sums of squares neither overflow nor become subnormal: ten thousand squares of 1e150 add up to
# 1e304, below the largest float64 of 1.8e308, and the square of 1e-140 is far above the smallest normal number, 2e-308.
LARGEST, SMALLEST = 1e150, 1e-140
# New points may lie this many times the extent of the data away from the data. Farther away, the distances from a new
# point to its neighbors agree in more than 26 of their 53 bits, and the remaining bits do not rank the neighbors
# reliably.
FARTHEST = 2.0**26
# Smallest distance whose square keeps all its digits, relative to the largest coordinate: the square, 2^-980, is above
# the smallest normal number, 2^-1022, with a margin for the squares of its components.
RESOLVED = 2.0**-490
_HASHED_ENTRIES = 1 << 20  # the digest of data is computed in blocks of this many entries
_MAX_LISTED_COLUMNS = 10  # an error or a note names at most this many columns
Missing = Literal["drop", "median"]
"""What to do with missing values: drop their rows, or fill in the median of their column."""
DENSE = "Give a dense array, or 50 components by a truncated SVD if that is too large."
"""Remedy for sparse data."""


@dataclass(frozen=True, eq=False)
class Unit:
    """Unit in which a fit computes: data are divided by a power of two, after constant features are left out.

    Attributes
    ----------
    exponent : int
        The largest absolute value of a varying feature lies in [2^(exponent - 1), 2^exponent).
    varying : (d,) bool
        Features that are not constant; all of them if none varies.
    origin : (d,) float64
        The value of each constant feature, 0 for the others.

    """

    exponent: int
    varying: NDArray[np.bool_]
    origin: NDArray[np.float64]

    @classmethod
    def from_data(cls, data: NDArray[np.float64]) -> Self:
        """Return the unit for the points (n, d) of a fit: a power of two, and the features that vary.

        Divided by this power of two, the largest absolute value of a varying feature is between 1/2 and 1, so that
        squares neither overflow nor underflow.
        """
        largest, smallest = data.max(axis=0), data.min(axis=0)
        varying = largest > smallest
        if not varying.any():
            varying = np.ones_like(varying)
        reach = float(np.maximum(largest, -smallest)[varying].max())
        return cls(int(np.frexp(reach)[1]), varying, np.where(varying, 0.0, smallest))

    def scale(self, data: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the varying features divided by 2^exponent.

        The division is exact: data that are multiplied by a power of two give the same result, bit for bit.
        """
        columns = data if self.varying.all() else data[:, self.varying]
        return np.ascontiguousarray(np.ldexp(columns, -self.exponent))

    def shift(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Subtract the constant of each constant feature from points (m, d), and divide all features by 2^exponent."""
        return np.ascontiguousarray(np.ldexp(points - self.origin, -self.exponent))


def restore_distances(distances: NDArray[np.float64], exponent: int) -> NDArray[np.float64]:
    """Return distances times 2^exponent; raise `OutOfRangeError` on overflow."""
    with np.errstate(over="ignore"):
        scaled = np.ldexp(distances, exponent)
    if not np.isfinite(scaled).all():
        raise OutOfRangeError(
            "The distances of the new points to the training data leave the range of floating-point numbers.",
            remedy="Divide the training data and the new points by their largest absolute value.",
        )
    return np.asarray(scaled)


def in_unit(data: NDArray[np.float64], spec: FitSpec) -> NDArray[np.float64]:
    """Check the points (n, c) of a fit, and return them in the unit in which the fit computes (`Unit`).

    For the constrained variant, which does not depend on the unit, they are divided by a power of two, and constant
    features are left out. The published variant takes them unchanged.

    Raises
    ------
    TooFewPointsError
        If there are too few points for the numbers of neighbors or components.
    OutOfRangeError
        If squared distances overflow or underflow, for the published variant only.

    """
    require_enough_points(len(data), spec)
    if spec.variant == "published":
        require_range(data)
        return data
    return Unit.from_data(data).scale(data)


def require_resolved(data: NDArray[np.float64], nearest: NDArray[np.int32], distances: NDArray[np.float64]) -> None:
    """Raise `OutOfRangeError` if the squared distances of a whole neighborhood underflow.

    `data` (n, d) are in the unit in which the fit computes (`Unit`). `distances` (n, k) are the distances to the
    neighbors `nearest` (n, k), and 0 where their squares underflow.
    """
    close = np.flatnonzero(distances[:, -1] < RESOLVED)
    for column in nearest[close].T:
        apart = np.abs(data[column] - data[close]).max(axis=1)
        if apart.any():
            raise unresolved_neighbors(int(close[np.argmax(apart)]), float(apart.max()))


def unresolved_neighbors(point: int, apart: float) -> OutOfRangeError:
    """Return the error for a point whose neighbors are so close that the squares of their distances underflow.

    `point` is the point's row number, and `apart` its distance to these neighbors, relative to the largest coordinate
    of the data; both are for the message.
    """
    return OutOfRangeError(
        f"The distances from point {point} (counted from 0) to its neighbors are at most {apart:.3g} times the largest "
        "coordinate of the data: the squares of such distances leave the range of floating-point numbers.",
        remedy="Remove the points that are far from all others, or fit this point and its neighbors alone.",
        details={"point": point},
    )


def digest(data: NDArray[np.float64] | csr_array) -> str:
    """Return the hexadecimal SHA-256 of the shape and the entries of a matrix; -0 counts as 0.

    The digest of sparse data covers the stored entries only, so that equal data in a dense array have another digest.
    """
    if not isinstance(data, np.ndarray):
        state = sha256(f"sparse,{data.shape[0]},{data.shape[1]};".encode())
        for array, dtype in ((data.indptr, "<i8"), (data.indices, "<i8"), (data.data, "<f8")):
            state.update(np.ascontiguousarray(array, dtype).data)
        return state.hexdigest()
    state = sha256(f"{data.shape[0]},{data.shape[1]};".encode())
    rows = max(1, _HASHED_ENTRIES // data.shape[1])
    for start in range(0, len(data), rows):
        state.update(np.ascontiguousarray(data[start : start + rows] + 0.0, "<f8").data)
    return state.hexdigest()


def require_training_data(X: ArrayLike, data_sha256: str) -> None:
    """Raise `DataMismatchError` unless the digest of the data X is `data_sha256`."""
    actual = digest(finite_data(X))
    if actual != data_sha256:
        raise DataMismatchError(
            f"The data are not the data of the fit: their SHA-256 begins with {actual[:12]}, but the digest of the "
            f"training data begins with {data_sha256[:12]}.",
            remedy="Give the data of the fit, in their order and unit, and sparse if they were sparse.",
            details={"data_sha256": actual, "expected": data_sha256},
        )


def checked_matrix(X: ArrayLike, name: str = "X") -> NDArray[np.float64]:
    """Return X as a C-contiguous float64 matrix with finite squared distances.

    Raises `InvalidShapeError`, `NotFiniteError`, `InexactIntegerError` or `OutOfRangeError` for other data.
    """
    data = finite_matrix(X, name)
    require_range(data)
    return data


def is_sparse(X: object) -> bool:
    """Return whether data are a matrix or an array of scipy.sparse, without importing it."""
    return hasattr(X, "toarray") and hasattr(X, "tocsr")


def rows_of_sparse(X: Any) -> Any:
    """Return a sparse matrix as CSR; raise `InvalidShapeError` for indices out of range, which compiled code trusts."""
    try:
        if X.format in {"csr", "csc", "bsr"}:
            X.check_format(full_check=True)
        elif X.format == "coo":
            X = type(X)((X.data, (X.row, X.col)), shape=X.shape)
    except ValueError as error:
        raise InvalidShapeError(
            f"The sparse matrix is inconsistent: {str(error).rstrip('.')}.",
            remedy="Create the matrix again from its rows, columns and values.",
        ) from error
    return X.tocsr()


def finite_data(X: ArrayLike, name: str = "X") -> NDArray[np.float64] | csr_array:
    """Return X in float64 after checking that all entries are finite: a matrix, or a CSR copy of sparse data.

    The CSR copy is canonical: columns ascend in each row, without duplicates or stored zeros.
    """
    if not is_sparse(X):
        return finite_matrix(X, name)
    from scipy.sparse import csr_array  # noqa: PLC0415 -- a slow import that dense data may not need

    matrix: Any = X
    _require_matrix(matrix)
    require_lossless(matrix, "the data" if name == "X" else name)
    rows = csr_array(rows_of_sparse(matrix), dtype=np.float64, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    wrong = np.flatnonzero(~np.isfinite(rows.data))
    if len(wrong):
        row, column = int(np.searchsorted(rows.indptr, wrong[0], "right")) - 1, int(rows.indices[wrong[0]])
        raise _not_finite(name, row, column, float(rows.data[wrong[0]]))
    return rows


def finite_matrix(X: ArrayLike, name: str = "X") -> NDArray[np.float64]:
    """Return X as a C-contiguous float64 matrix of finite numbers, or raise a `GlleError` that names the argument."""
    if is_sparse(X):
        raise InvalidShapeError(
            f"The data are a sparse matrix of shape {getattr(X, 'shape', ())}, and dense rows are needed.", remedy=DENSE
        )
    raw = array_of(X, "the data" if name == "X" else name)
    _require_matrix(raw)
    data = float64_of(raw)
    require_finite(data, name)
    return data


def resolve_missing(values: Any, missing: Missing, names: Sequence[str] | None = None) -> tuple[Any, list[Note]]:
    """Handle NaN in a matrix (n, d): find the rows to keep ("drop"), or fill in medians of columns in place ("median").

    Returns the mask (n,) of the rows to keep, or None if all rows are kept, and a list of notes: one note if there were
    missing values, else none.

    Raises
    ------
    NotFiniteError
        If no row would be left, or a column has no number.

    """
    n, d = values.shape
    gaps = np.zeros((n, d), bool)
    rows = max(1, _HASHED_ENTRIES // d)
    for start in range(0, n, rows) if values.dtype.kind == "f" else ():
        np.isnan(values[start : start + rows], out=gaps[start : start + rows])
    counts = gaps.sum(axis=0)
    columns = np.flatnonzero(counts)
    if not len(columns):
        return None, []
    worst = columns[np.argsort(-counts[columns], kind="stable")][:_MAX_LISTED_COLUMNS]
    listed = ", ".join(f"{_feature(column, names)} ({counts[column]:,})" for column in worst)
    listed += f" and {len(columns) - len(worst):,} more" if len(columns) > len(worst) else ""
    incomplete = gaps.any(axis=1)
    if missing == "drop":
        if incomplete.all():
            detail = f"Each of the {n:,} rows has a missing value, so that no row is left. Missing values: {listed}."
            remedy = f"Leave out the columns with many missing values, or use {Way('missing', 'median')}."
            raise NotFiniteError(detail, remedy=remedy)
        said = f"{incomplete.sum():,} of {n:,} rows have missing values and were dropped. Missing values: "
        return ~incomplete, [Note("rows-dropped", f"{said}{listed}.")]
    if len(empty := np.flatnonzero(counts == n)):
        shown = ", ".join(f"{_feature(column, names)}" for column in empty[:_MAX_LISTED_COLUMNS])
        shown += f" and {len(empty) - _MAX_LISTED_COLUMNS:,} more" if len(empty) > _MAX_LISTED_COLUMNS else ""
        detail = f"Columns without any value have no median: {shown}."
        raise NotFiniteError(detail, remedy="Leave these columns out.")
    for column in columns:
        values[gaps[:, column], column] = np.median(values[~gaps[:, column], column])
    said = f"{counts.sum():,} missing values in {incomplete.sum():,} of {n:,} rows were replaced by the medians of "
    return None, [Note("values-filled", f"{said}their columns: {listed}.")]


def _feature(number: int, names: Sequence[str] | None) -> str | Way:
    """Return the name of feature `number`; without names, a `Way`: a placeholder in a message.

    Each interface then writes the feature's number in its own form, such as `X[:, 3]` in Python.
    """
    return names[number] if names else Way(FEATURE, int(number))


def numbers_of(values: Any, name: str) -> NDArray[np.float64]:
    """Return real numbers of any shape as a C-contiguous float64 array; raise `InvalidShapeError` for other types."""
    raw = array_of(values, name)
    _require_real(raw, name)
    return float64_of(raw)


def float64_of(raw: NDArray[Any]) -> NDArray[np.float64]:
    """Return real numbers in float64; numbers of wider types that are too large for it become infinite."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(raw, np.float64)


def _require_real(raw: Any, name: str) -> None:
    if raw.dtype.kind not in "fiub":
        raise InvalidShapeError(
            f"{name[0].upper()}{name[1:]} are of type {raw.dtype}, not numbers.",
            remedy=_remedy_of_objects(raw) or "Give real numbers, such as float64.",
        )


def _remedy_of_objects(raw: NDArray[Any]) -> str:
    """Return the remedy if a caller gave a list of records or vectors, not a matrix; an empty text for other arrays."""
    first = raw.ravel()[0] if raw.dtype.kind == "O" and raw.ndim == 1 and raw.size else None
    if isinstance(first, Mapping):
        return "Give pandas.DataFrame(X)."
    return "Give numpy.stack(X), a matrix of numbers." if isinstance(first, (np.ndarray, list, tuple)) else ""


def _require_matrix(raw: Any) -> None:
    """Raise `InvalidShapeError` unless an array is a matrix of real numbers."""
    _require_real(raw, "the data")
    if raw.ndim != 2 or 0 in raw.shape:
        flaw = "which is empty" if raw.ndim == 2 else "not two dimensions"
        raise InvalidShapeError(
            f"The data have shape {raw.shape}, {flaw}.",
            remedy="Give a matrix with one row per point and one column per feature.",
        )


def require_finite(data: NDArray[np.float64], name: str) -> None:
    """Raise `NotFiniteError` with the row and column of the first entry that is not finite."""
    if not np.isfinite(data).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(data))[0])
        raise _not_finite(name, row, column, data[row, column])


def _not_finite(name: str, row: int, column: int, value: float) -> NotFiniteError:
    return NotFiniteError(
        f"{name}[{row}, {column}] is {value}.",
        remedy="Remove or impute rows with NaN or infinity; nothing is dropped silently.",
        details={"row": row, "column": column},
    )


def require_range(data: NDArray[np.float64]) -> None:
    """Raise `OutOfRangeError` if squared distances overflow, or all underflow to 0."""
    largest = float(np.abs(data).max())
    with np.errstate(over="ignore"):  # the extent of huge data may be infinite
        extent = float(np.ptp(data, axis=0).max())
    if largest > LARGEST or 0 < extent < SMALLEST:
        raise OutOfRangeError(
            f"The largest absolute value of the data is {largest:.3g}, and their largest extent along a feature is "
            f"{extent:.3g}: squared distances leave the range of floating-point numbers.",
            remedy="Change the unit: divide the data by their largest absolute value.",
            details={"largest": largest, "extent": extent},
        )


def require_same_length(X: Sized, Y: Sized) -> None:
    """Raise `InvalidShapeError` unless data and embedding have the same number of points."""
    if len(X) != len(Y):
        raise InvalidShapeError(
            f"The data have {len(X)} points, but the embedding has {len(Y)}.",
            remedy="Give one row of the data and one row of the embedding for each point.",
        )


def require_near(data: NDArray[np.float64], points: NDArray[np.float64]) -> None:
    """Raise `OutOfRangeError` if a new point (m, d) is too far from the data (n, d) for a ranking of its neighbors.

    The limit is `FARTHEST` times the longest side of the bounding box of the data. A point's distance from the box is
    measured along each feature, and the largest one counts.
    """
    upper, lower = data.max(axis=0), data.min(axis=0)
    with np.errstate(over="ignore"):  # a distance that overflows is infinite
        extent = float((upper - lower).max())
        away = np.maximum(points - upper, lower - points).max(axis=1)
    row = int(np.argmax(away))
    if not away[row] <= FARTHEST * extent:  # NaN is too far, too
        raise too_far(row, float(away[row]) / extent if extent else np.inf)


def too_far(row: int, extents: float) -> OutOfRangeError:
    """Return the error for a new point too far from the data: `extents` times the extent of the data away.

    `row` is the row of the new point. So far away, rounding errors would decide which points are its nearest neighbors.
    """
    return OutOfRangeError(
        f"The new point in row {row} (counted from 0) lies {extents:.3g} times the extent of the training data away "
        "from them: rounding errors would decide which points are its nearest neighbors.",
        remedy=f"Leave out new points that are more than {FARTHEST:.1g} extents away, or give them in the unit of the "
        "training data.",
        details={"row": row, "extents": extents},
    )


class OfNeighbors(Protocol):
    """Type of specifications with a number of neighbors and a number of components."""

    @property
    def n_neighbors(self) -> int:
        """The number of neighbors of a point, k."""

    @property
    def n_components(self) -> int:
        """The dimension of the embedding, p."""


def require_neighbors(score_neighbors: int, n: int) -> None:
    """Raise `InvalidParameterError` if a point and its `score_neighbors` neighbors would be all n points."""
    if score_neighbors > n - 2:
        raise InvalidParameterError(
            f"{Way('score_neighbors', score_neighbors)} is too many for {n:,} points.",
            remedy=f"Use {Way('score_neighbors')} <= {n - 2}.",
            details={"n_points": n, "score_neighbors": score_neighbors},
        )


def require_enough_points(n: int, spec: OfNeighbors) -> None:
    """Raise `TooFewPointsError` unless n > k and n >= p + 2, for k neighbors and p components."""
    if spec.n_neighbors >= n:
        raise TooFewPointsError(
            f"{Way('n_neighbors', spec.n_neighbors)} needs more than {n} points.",
            remedy=f"Give {Way('n_neighbors')} of at most {n - 1}, or more points." if n > 2 else "Give more points.",
            details={"n_points": n, "n_neighbors": spec.n_neighbors},
        )
    if spec.n_components > n - 2:
        raise TooFewPointsError(
            f"{Way('n_components', spec.n_components)} needs at least {spec.n_components + 2} points, not {n}.",
            remedy=f"Give {Way('n_components')} of at most {n - 2}, or more points.",
            details={"n_points": n, "n_components": spec.n_components},
        )
