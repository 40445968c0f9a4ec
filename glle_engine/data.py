"""What data must be before anything is computed from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from glle_engine.errors import InvalidShapeError, NotFiniteError, OutOfRangeError, TooFewPointsError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from glle_engine.spec import FitSpec

# Sums of squares of some ten thousand features stay finite, and normal, within these.
LARGEST, SMALLEST = 1e150, 1e-140


def checked_data(X: ArrayLike, spec: FitSpec) -> NDArray[np.float64]:
    """Return X as `checked_matrix` does, with enough points for the specification."""
    data = checked_matrix(X)
    require_enough_points(len(data), spec)
    return data


def checked_matrix(X: ArrayLike) -> NDArray[np.float64]:
    """Return X as a C-contiguous float64 matrix, or raise the error that names the remedy."""
    raw = np.asarray(X)
    if raw.dtype.kind not in "fiub":
        raise InvalidShapeError(
            f"The data are of type {raw.dtype}, not numbers.", remedy="Give real numbers, such as float64."
        )
    if raw.ndim != 2 or 0 in raw.shape:
        raise InvalidShapeError(
            f"The data have shape {raw.shape}.",
            remedy="Give a matrix, one point a row, one feature a column.",
        )
    data = np.ascontiguousarray(raw, np.float64)
    require_finite(data, "X")
    require_range(data)
    return data


def require_finite(data: NDArray[np.float64], name: str) -> None:
    """Raise `NotFiniteError`, with row and column of the first bad entry, unless all entries are finite."""
    if not np.isfinite(data).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(data))[0])
        raise NotFiniteError(
            f"{name}[{row}, {column}] is {data[row, column]}.",
            remedy="Remove or impute rows with NaN or infinity; nothing is dropped silently.",
            details={"row": row, "column": column},
        )


def require_range(data: NDArray[np.float64]) -> None:
    """Raise `OutOfRangeError` where squared distances would overflow, or all underflow to 0."""
    largest, extent = float(np.abs(data).max()), float(np.ptp(data, axis=0).max())
    if largest > LARGEST or 0 < extent < SMALLEST:
        raise OutOfRangeError(
            f"The data reach {largest:.3g} and extend over {extent:.3g}: their squared distances leave the range of "
            "floating-point numbers.",
            remedy="Change the unit: divide the data by their largest absolute value.",
            details={"largest": largest, "extent": extent},
        )


class OfNeighbors(Protocol):
    """Parameters with neighbourhoods."""

    @property
    def n_neighbors(self) -> int:
        """The neighbours of a point, k."""

    @property
    def n_components(self) -> int:
        """The dimensions, p."""


def require_enough_points(n: int, spec: OfNeighbors) -> None:
    """Raise `TooFewPointsError` unless n points have k neighbours each and p dimensions between them."""
    if spec.n_neighbors >= n:
        raise TooFewPointsError(
            f"n_neighbors={spec.n_neighbors} needs more than {n} points.",
            remedy=f"Give n_neighbors of at most {n - 1}, or more points.",
            details={"n_points": n, "n_neighbors": spec.n_neighbors},
        )
    if spec.n_components > n - 2:
        raise TooFewPointsError(
            f"n_components={spec.n_components} needs at least {spec.n_components + 2} points, not {n}.",
            remedy=f"Give n_components of at most {n - 2}, or more points.",
            details={"n_points": n, "n_components": spec.n_components},
        )
