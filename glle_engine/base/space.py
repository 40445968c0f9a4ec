r"""Space of a fit: standardized data, mapped to points whose Euclidean distances rank pairs as the metric does.

LLE's weights depend on distances only: with distances :math:`d_{ij}`, a neighborhood has the Gram matrix
:math:`G_{jk} = (d_{ij}^2 + d_{ik}^2 - d_{jk}^2) / 2`. If a metric is the Euclidean distance of some points, it
determines both the neighbors and the weights, and both are computed from these points:

- *cosine*: rows of length 1, whose squared distance is :math:`2 (1 - \cos)`;
- *correlation*: centered rows of length 1, with :math:`2 (1 - r)`;
- *hamming*: one column of 0 and 1 for each level of each feature; the squared distance is twice the number of features
  that differ. If no feature has more than two levels, one column for each feature; the squared distance is that number.

Weights of the untransformed rows would change with the length of a row, which cosine and correlation ignore.
Standardization is an affine map of each feature. Weights that sum to one commute with it, so that generated data have
the units of the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from glle_engine.base.errors import DegenerateDataError, InvalidParameterError
from glle_engine.base.texts import Way

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.spec import Metric, SpaceSpec, Standardize

# Hamming is refused for more distinct values of all features together: one-hot encoded, 1,000 points then take 160 MB.
MAX_LEVELS = 20_000
_MAX_SHOWN_COLUMNS = 10  # an error names at most this many columns


@dataclass(frozen=True, eq=False)
class Space:
    """Transformation of data to points whose Euclidean distances rank pairs as the metric of a fit does.

    Attributes
    ----------
    metric : Metric
    center, scale : (d,) float64, optional
        `center` is subtracted from each feature, and the result divided by `scale`. Both are in the units of the data;
        the scale of a constant feature is 1.
    levels : tuple of arrays, optional
        Values of each feature, ascending, for the Hamming distance.

    """

    metric: Metric
    center: NDArray[np.float64] | None = None
    scale: NDArray[np.float64] | None = None
    levels: tuple[NDArray[np.float64], ...] | None = None

    @classmethod
    def from_data(cls, data: NDArray[np.float64], spec: SpaceSpec) -> Self:
        """Return the transformation for finite data (n, d), with the standardization and metric of `spec`.

        Raises
        ------
        InvalidParameterError
            If a varying feature has no interquartile range (robust), or features are not integers (hamming).

        """
        standardize, metric = spec.space
        if metric == "hamming":
            return cls(metric, levels=_levels(data))
        if standardize == "none":
            return cls(metric)
        return cls(metric, *_center_and_scale(data, standardize))

    def points(self, data: NDArray[np.float64]) -> NDArray[np.float64]:
        """Transform data (m, d), from the fit or new, to points (m, q); each row independently of the other rows.

        Raises
        ------
        DegenerateDataError
            For a row of zeros (cosine) or a constant row (correlation), which has no direction.

        """
        if self.center is not None and self.scale is not None:
            # Divided by 2 first, the difference is finite for the data of the fit. New points far away may overflow.
            with np.errstate(over="ignore"):
                data = (data / 2 - self.center / 2) / (self.scale / 2)
        if self.metric in {"cosine", "correlation"}:
            return _directions(data, self.metric)
        return data if self.levels is None else _indicators(data, self.levels)

    def restore(self, places: NDArray[np.float64]) -> NDArray[np.float64]:
        """Undo the standardization: return `places` (m, d) in the units of the data, for the Euclidean metric only."""
        require_restorable(self.metric)
        if self.center is None or self.scale is None:
            return places
        return np.asarray(places * self.scale + self.center)


def require_restorable(metric: Metric) -> None:
    """Raise `InvalidParameterError` unless the metric is Euclidean: other metrics do not determine rows of the data."""
    if metric == "euclidean":
        return
    how = {
        "cosine": "Divide each row by its length",
        "correlation": "Subtract its mean from each row, divide the row by its length",
        "hamming": "Encode each level as a column of 0 and 1",
    }.get(metric)
    remedy: str = "Fit the coordinates of the points, if you have them."
    if how is not None:
        rest = ": the posterior is the same, and it generates rows of that kind."
        remedy = f"{how}, and fit the result with {Way('metric', 'euclidean')}{rest}"
    raise InvalidParameterError(
        f"Data that are generated with {Way('metric', metric)} would not be in the units of your data.",
        remedy=remedy,
    )


def _center_and_scale(
    data: NDArray[np.float64], standardize: Standardize
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the center (d,) and the scale (d,) of the features, for the standardization "zscore" or "robust".

    Features are divided by a power of two in the computation, so that squares neither overflow nor underflow.
    """
    largest, smallest = data.max(axis=0), data.min(axis=0)
    exponents = np.frexp(np.maximum(np.abs(largest), np.abs(smallest)))[1]
    scaled = np.ldexp(data, -exponents)
    if standardize == "zscore":
        center = scaled.mean(axis=0)
        scale = np.sqrt(((scaled - center) ** 2).mean(axis=0))
    else:
        lower, center, upper = np.quantile(scaled, [0.25, 0.5, 0.75], axis=0)
        scale = upper - lower
    constant = largest == smallest
    flat = np.flatnonzero(~constant & ~(scale > 0))
    if len(flat):
        shown = ", ".join(map(str, flat[:_MAX_SHOWN_COLUMNS])) + (", ..." if len(flat) > _MAX_SHOWN_COLUMNS else "")
        raise InvalidParameterError(
            f"{len(flat)} features have the same value in the middle half of the points (columns {shown}, "
            f"counted from 0), so that {Way('standardize', 'robust')} has no interquartile range to divide by.",
            remedy=f"Use {Way('standardize', 'zscore')}, or leave these columns out.",
            details={"columns": [int(j) for j in flat]},
        )
    center = np.ldexp(center, exponents)
    scale = np.maximum(np.ldexp(scale, exponents), np.finfo(np.float64).tiny)
    return np.where(constant, smallest, center), np.where(constant, 1.0, scale)


def _directions(data: NDArray[np.float64], metric: Metric) -> NDArray[np.float64]:
    """Scale each row to length 1; for the metric "correlation", first subtract the mean of the row."""
    is_flat = np.asarray(data.max(axis=1) == data.min(axis=1) if metric == "correlation" else ~data.any(axis=1))
    if is_flat.any():
        raise flat_row(metric, is_flat, data.shape[1])
    rows = np.ldexp(data, -np.frexp(np.abs(data).max(axis=1, keepdims=True))[1])
    if metric == "correlation":
        rows = rows - rows.mean(axis=1, keepdims=True)
    return np.asarray(rows / np.sqrt((rows * rows).sum(axis=1, keepdims=True)))


def flat_row(metric: Metric, is_flat: NDArray[np.bool_], d: int) -> DegenerateDataError:
    """Return the error for rows of d features that have no direction, which `is_flat` (n,) marks.

    Rows of zeros have no direction for the metric "cosine", and constant rows have none for "correlation".
    """
    row = int(np.argmax(is_flat))
    flaw = "is constant and has no correlation" if metric == "correlation" else "is 0 and has no direction"
    return DegenerateDataError(
        f"Row {row} (counted from 0) {flaw}; there are {int(is_flat.sum())} such row(s) among {len(is_flat)}, with {d} "
        "feature(s).",
        remedy=f"Leave such rows out, or use {Way('metric', 'euclidean')}.",
        details={"row": row, "rows": int(is_flat.sum())},
    )


def _levels(data: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Return the distinct values of each feature, ascending, for the Hamming distance.

    Raises `InvalidParameterError` if a value is not an integer, or there are too many distinct values.
    """
    fractions = np.argwhere(data != np.floor(data))
    if len(fractions):
        row, column = (int(i) for i in fractions[0])
        raise InvalidParameterError(
            f"X[{row}, {column}] is {data[row, column]:g}: {Way('metric', 'hamming')} compares integers, "
            "booleans or codes.",
            remedy=f"Use {Way('metric', 'euclidean')}, with {Way('standardize', 'zscore')} if the units differ, or "
            "round the data.",
            details={"row": row, "column": column},
        )
    levels = tuple(np.unique(column) for column in data.T)
    count = sum(map(len, levels))
    if count > MAX_LEVELS and max(map(len, levels)) > 2:
        raise InvalidParameterError(
            f"The {len(levels):,} features have {count:,} distinct values. {Way('metric', 'hamming')} needs a "
            f"column for each of them, and allows {MAX_LEVELS:,}.",
            remedy="Leave out the features that differ in every point, or give distances with "
            f"{Way('metric', 'precomputed')}.",
            details={"levels": count, "most": MAX_LEVELS},
        )
    return levels


def _indicators(data: NDArray[np.float64], levels: tuple[NDArray[np.float64], ...]) -> NDArray[np.float64]:
    """One-hot encode features, with one more column for values that were not seen in the fit.

    Such a value differs from every point of the fit. Squared distances between the resulting rows are integers, so that
    ties in the Hamming distance stay ties.
    """
    is_binary = max(map(len, levels)) <= 2
    known = [np.isin(column, values) for column, values in zip(data.T, levels, strict=True)]
    unseen = np.sum(~np.array(known), axis=0)
    parts = [
        np.where(is_known, column == values[-1], 0.5)[:, None] if is_binary else column[:, None] == values
        for column, values, is_known in zip(data.T, levels, known, strict=True)
    ]
    # An unknown value must add 1 (binary) or 2 to the squared distance from every point. The columns of its feature add
    # 1/4 or 1; the last column adds the rest.
    return np.column_stack([*parts, np.sqrt(unseen * (0.75 if is_binary else 1.0))]).astype(np.float64)
