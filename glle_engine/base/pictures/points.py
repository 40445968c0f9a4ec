"""Results with a row for each point, as tables and for pictures.

A result is any object with coordinates: of the engine, of a service, an estimator, or an array. A posterior stands for
the summary of some draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.arrays import array_of, require_unmasked
from glle_engine.base.errors import InvalidParameterError, InvalidShapeError, NotFiniteError
from glle_engine.base.texts import Line
from glle_engine.base.validation import float64_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

# The table of a posterior summarizes 40 draws, or fewer for many points: 400,000 rows in all, but at least 4 draws.
_MAX_DRAWS, _MIN_DRAWS, _MAX_ROWS = 40, 4, 400_000
# Attributes of results that have the coordinates.
_COORDINATE_ATTRIBUTES = ("embedding", "consensus", "Y", "embedding_")
_COLUMN_NAMES = (
    "island", "neighborhood", "stretch", "squeeze", "is_torn", "is_glued", "seam", "p_value", "is_point_beyond",
    "spread", "stability", "local_trust", "member_probability",
)  # fmt: skip
MIN_APART_SHARE = 0.9  # groups stay apart if they are apart in this share of the embeddings of other samples
_MISSING_WORDS = {"None", "nan", "NaT", "<NA>"}  # how Python, numpy and pandas write missing values
_MIN_EXPONENT_NUMBER = 1e15  # whole numbers from this size on are written with their first digits and an exponent
# By coverage: radius, in standard deviations, of the ellipse that contains this share of a normal distribution in two
# dimensions.
_NORMAL_RADII = {0.5: 1.1774, 0.9: 2.1460}


@dataclass(frozen=True, eq=False)
class PointTable:
    """Coordinates and further values of a result's points, in the form that frames, pictures and widgets need.

    Attributes
    ----------
    places : (n, p) float64
        Coordinates of the points.
    columns : dict of str to (n,) array
        Spread, stability, p-value and others, as far as the result has them.
    verdict : str
        Verdict of an audit, or a sentence on the stability of a posterior's draws, or empty.
    reads : str
        Lines of the verdict of an audit that say what to read from the map and what not, or what to do first; or empty.
    covariance : (n, 2, 2) float64, optional
        Covariance of each point's position, if there are two coordinates.
    radii : dict of float to float
        For each probability, such as 0.9, the radius of the region that contains a point's position with this
        probability; the unit is the point's standard deviation.
    labels, ids : (n,) array, optional
        Labels and ids of the table that was fitted, if it has them; for an audit, the group of each point.
    index : (n,) index of pandas or array, optional
        Index of the rows of the data.
    label : str
        Name of the column of the labels, or empty.
    apart_from : dict of str to int
        Number of other groups from which each group of an audit stays apart.
    islands : dict of int to (str, bool)
        Name of each island (clump of points) of an audit, by its index in the column "island", and whether the audit
        trusts the island.
    tears : (t, 2) int64
        Pairs of neighbors that the map of an audit tears apart.
    level : str
        Level of an audit ("trust", "partly", "no" or "unknown"), or empty.

    """

    places: NDArray[np.float64]
    columns: dict[str, NDArray[Any]] = field(default_factory=dict)
    verdict: str = ""
    covariance: NDArray[np.float64] | None = None
    radii: dict[float, float] = field(default_factory=lambda: _NORMAL_RADII)
    labels: NDArray[Any] | None = None
    ids: NDArray[Any] | None = None
    index: Any = None
    apart_from: dict[str, int] = field(default_factory=dict)
    islands: dict[int, tuple[str, bool]] = field(default_factory=dict)
    tears: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 2), np.int64))
    level: str = ""
    reads: str = ""
    label: str = ""

    @classmethod
    def from_result(cls, shown: Any) -> PointTable:
        """Return the table of any result's points; for a posterior, with the mean of their positions in some draws.

        Raises InvalidShapeError, a ValueError, if the result has no coordinates.
        """
        if isinstance(shown, PointTable):
            return shown
        values = {name: getattr(shown, name, None) for name in ("labels", "ids")}
        of_table: dict[str, Any] = {name: each for name, each in values.items() if isinstance(each, np.ndarray)}
        # Only an index of rows is kept: of a list, `index` is a method, and of a draw, a number.
        index: Any = getattr(shown, "index", None)
        of_table["index"] = index if np.ndim(index) else None
        options = getattr(shown, "options", None)
        of_table["label"] = str((options.get("labels") or "") if isinstance(options, dict) else "")
        count = getattr(shown, "n_points", None) or getattr(shown, "n", None)
        if hasattr(shown, "posterior_"):
            return cls.from_result(shown.posterior_)
        if count is not None and callable(getattr(shown, "summary", None)):
            draws = int(np.clip(_MAX_ROWS // count, _MIN_DRAWS, _MAX_DRAWS))
            return replace(cls.from_result(shown.summary(draws, scale=1.0)), **of_table)
        places = coordinates(shown)
        members: dict[str, Any] = {name: getattr(shown, name, None) for name in _COLUMN_NAMES}
        groups: Any = getattr(shown, "groups", None)
        if groups is not None:
            counts = count_apart(_part(groups, "apart")).tolist()
            of_table["apart_from"] = dict(zip(map(name_of_label, _part(groups, "names")), counts, strict=True))
        if hasattr(groups, "classes"):  # an audit of this process, not of a service
            members["member_probability"] = groups.member_probability
            of_table.setdefault("labels", groups.names[groups.classes])
        if (islands := getattr(shown, "islands", None)) is not None:
            of_table |= _audited(shown, islands)
        columns = {name: np.asarray(values) for name, values in members.items() if np.shape(values) == (len(places),)}
        regions = _regions(shown, places.shape[1], has_spread="spread" in columns)
        return cls(places, columns, _verdict(shown, columns), *regions, **of_table)


def coordinates(shown: Any) -> NDArray[np.float64]:
    """Return the coordinates (n, p) of an array or of an object with an embedding; else raise InvalidShapeError."""
    named = (getattr(shown, name, None) for name in _COORDINATE_ATTRIBUTES)
    # An attribute that is a text is skipped: it is the id of an embedding, not its coordinates.
    result = next((value for value in named if not isinstance(value, (str, type(None)))), shown)
    if result is shown and callable(getattr(shown, "arrays", None)):  # the posterior of a `Client`
        result = shown.arrays()["embedding"]
    places = array_of(result, "the coordinates")
    if places.ndim != 2 or not places.shape[1] or places.dtype.kind not in "fiub":
        raise InvalidShapeError(
            f"An object of type {type(shown).__name__}{f' and shape {places.shape}' if places.ndim else ''} was given, "
            "which has no coordinates of points.",
            remedy="Give an array (n, p) of numbers, or a result with one in its attribute `embedding`.",
        )
    return float64_of(places)


def require_finite_places(places: NDArray[np.float64]) -> None:
    """Raise `NotFiniteError` with the number of points whose coordinates are not finite, and the first one."""
    is_finite = np.isfinite(places).all(axis=1)
    if not is_finite.all():
        raise NotFiniteError(
            f"{len(places) - is_finite.sum():,} of {len(places):,} points have coordinates that are not finite; the "
            f"first is row {is_finite.argmin()}, counted from 0.",
            remedy="Leave these points out, or give them finite coordinates. A function that makes the coordinates "
            "must return finite ones for every part of the data.",
            details={"row": int(is_finite.argmin())},
        )


def count_apart(apart: ArrayLike) -> NDArray[np.int64]:
    """Return, for each group (g,), the number of other groups from which the group stays apart.

    `apart` (g, g) is the share of the maps in which two groups are apart. Two groups stay apart if this share is at
    least `MIN_APART_SHARE`.
    """
    return np.asarray((np.asarray(apart) >= MIN_APART_SHARE).sum(axis=1), np.int64)


def frame(shown: Any, labels: ArrayLike | None = None, ids: ArrayLike | None = None) -> Any:
    """Return a pandas DataFrame with a row for each point of a result.

    The columns are id and label, if there are any, the coordinates y1, ..., yp, and spread, stability, p_value and
    others if the result has them. The coordinates of a posterior are the mean of some draws. For an audit, `island` is
    the name of the point's island (clump of points) in the verdict, and `is_trusted` says whether the island is
    trusted. The name is empty for points without an island, and for all points if the map is in one piece.

    Parameters
    ----------
    shown
        Result as for `glle.plot`.
    labels, ids
        One value for each point; by default the values of the table that a posterior was fitted to.

    Raises
    ------
    ImportError
        Without pandas.
    ValueError
        Without coordinates, or for labels or ids of another length.

    """
    try:
        import pandas as pd  # noqa: PLC0415 # optional
    except ImportError as error:
        raise ImportError("Frames need pandas: pip install pandas.") from error
    points = PointTable.from_result(shown)
    arrays = {"id": points.ids if ids is None else ids, "label": points.labels if labels is None else labels}
    aligned = {
        name: align_rows(values, points.index, f"the {name}s") for name, values in arrays.items() if values is not None
    }
    columns: dict[str, Any] = {name: np.asarray(values) for name, values in aligned.items()}
    if "id" in columns and columns["id"].ndim == 2:  # ids of several columns
        columns = {f"id_{number}": column for number, column in enumerate(columns.pop("id").T, start=1)} | columns
    for name, values in columns.items():
        require_rows(f"{name}s", values, len(points.places))
    columns |= {f"y{axis}": column for axis, column in enumerate(points.places.T, start=1)}
    point_columns = dict(points.columns)
    if points.level and "island" in point_columns:
        islands = [points.islands.get(island, ("", False)) for island in point_columns.pop("island").tolist()]
        names, is_trusted = zip(*islands, strict=True)
        point_columns = {"island": np.array(names), "is_trusted": np.array(is_trusted), **point_columns}
    return pd.DataFrame({**columns, **point_columns}, index=points.index)


def to_xarray(draws: Any) -> Any:
    """Return draws as an xarray DataArray `embedding` with the dimensions draw, point and axis.

    ArviZ reads ``to_xarray(draws).expand_dims("chain").to_dataset()``.

    Parameters
    ----------
    draws
        Draws of a posterior, such as ``posterior.draws(100)``, from this process or from a service.

    Raises
    ------
    ImportError
        Without xarray.
    ValueError
        Unless the draws are embeddings (count, n, p).

    """
    try:
        import xarray as xr  # noqa: PLC0415 # optional
    except ImportError as error:
        raise ImportError("to_xarray needs xarray: pip install xarray.") from error
    each = list(draws)
    values = np.array([getattr(draw, "embedding", draw) for draw in each])
    if values.ndim != 3:
        raise ValueError(f"The values have shape {values.shape}. Give draws, of shape (count, n, p).")
    coords = {
        "draw": [getattr(draw, "index", index) for index, draw in enumerate(each)],
        "axis": [f"y{axis}" for axis in range(1, values.shape[2] + 1)],
    }
    return xr.DataArray(values, coords=coords, dims=("draw", "point", "axis"), name="embedding")


def align_rows(values: Any, index: Any, name: str) -> Any:
    """Return a pandas series or frame in the order of an index; `name` is what errors call it, such as "the labels".

    Other values, and all values if `index` is None, are returned as they are.

    Raises
    ------
    NotFiniteError
        If values are masked.
    InvalidParameterError
        If the index of the values differs from `index`, and lacks some of its rows or has duplicates.

    """
    require_unmasked(values, name)
    values_index = getattr(values, "index", None) if hasattr(values, "iloc") else None
    if values_index is None or index is None or (len(values_index) == len(index) and (values_index == index).all()):
        return values
    if values_index.is_unique and len(set(index)) == len(index) and set(index) <= set(values_index):
        return values.loc[list(index)]
    raise InvalidParameterError(
        f"The index of {name} is not the index of the data, so that it is not clear which value belongs to which row.",
        remedy="Give the values the index of the data; or give them without an index, by .to_numpy(), in row order.",
    )


def name_of_label(value: Any) -> str:
    """Return a label as a text for legends and verdicts; whole numbers are written with all their digits."""
    if isinstance(value, (str, bool, np.bool_)):
        return str(value)
    return f"{value:.0f}" if value == round(value) and abs(value) < _MIN_EXPONENT_NUMBER else f"{value:g}"


def texts_of_labels(labels: Any) -> Any:
    """Return labels unchanged, or as texts if they are objects or some are missing; missing labels become empty texts.

    Missing labels are None, NaN, NaT and <NA>.
    """
    values = np.asarray(labels)
    if labels is None or values.dtype.kind in "iub":
        return labels
    each = labels if isinstance(labels, (list, tuple)) else values.ravel()  # `values` has NaN as the text "nan"
    texts = ["" if str(value) in _MISSING_WORDS and not isinstance(value, str) else str(value) for value in each]
    return np.array(texts) if values.dtype.kind == "O" or "" in texts else labels


def require_rows(name: str, values: NDArray[Any], rows: int) -> None:
    """Raise ValueError unless `values` has the shape (rows,); `name` is what the error calls the values."""
    if values.shape != (rows,):
        raise ValueError(f"{name} has shape {values.shape}; there are {rows} points: give one value for each point.")


def _verdict(shown: Any, columns: dict[str, NDArray[Any]]) -> str:
    """Return the verdict of a result, or a sentence on the stability of draws, or an empty text."""
    if (verdict := getattr(shown, "verdict", None)) or "stability" not in columns:
        return str(verdict or "")
    codes = [_part(note, "code") for note in getattr(shown, "notes", ())]
    doubt = "Do not read positions or neighbors: " if "unrelated-draws" in codes else ""
    draws = getattr(shown, "n_draws", None) or len(shown.eigenvalues)  # results of a service have `n_draws`
    return f"{doubt}{columns['stability'].mean():.0%} of a point's neighbors stay in a draw, the mean of {draws} draws."


def _audited(shown: Any, islands: Any) -> dict[str, Any]:
    """Return the fields of a `PointTable` that only audits have, from an audit and its `islands`.

    If the audit trusts no part of the map, it trusts no island.
    """
    is_trusting = shown.level in {"trust", "partly"}
    stays = [bool(flag) and is_trusting for flag in _part(islands, "stays")]
    named = dict(enumerate(zip(_part(islands, "names"), stays, strict=True))) if len(stays) > 1 else {}
    tears = shown.disturbed.tears if hasattr(shown, "disturbed") else shown.tears
    # The lines of an audit from a service are dictionaries.
    lines = [line if isinstance(line, Line) else Line.from_dict(line) for line in shown.lines]
    return {
        "islands": named,
        "tears": np.asarray(tears, np.int64).reshape(-1, 2),
        "level": str(shown.level),
        "reads": "\n".join(str(line) for line in lines if line.role != "why"),
    }


def _regions(shown: Any, p: int, *, has_spread: bool) -> tuple[NDArray[np.float64] | None, dict[float, float]]:
    """Return the fields `covariance` and `radii` of a `PointTable` for a result `shown` with p coordinates.

    The covariance is None unless p is 2. If the result has regions, both fields describe these regions. Otherwise the
    covariance is an attribute of the result, used only if the result also has a spread (`has_spread`), and the radii
    are those of a normal distribution.
    """
    regions = getattr(shown, "regions", None)
    # An audit has a mapping of regions by name: use "mean". Another mapping is a single `Regions`, which a service sent
    # as JSON.
    if isinstance(regions, Mapping):
        regions = regions.get("mean", regions)
    if p == 2 and regions:
        half_axes = np.asarray(shown.half_axes if isinstance(regions, Mapping) else regions.half_axes)
        radii = dict(zip(_part(regions, "levels"), _part(regions, "radii"), strict=True))
        return np.einsum("nja,njb->nab", half_axes, half_axes), radii
    covariance = getattr(shown, "covariance", None) if p == 2 and has_spread else None
    return None if covariance is None else np.asarray(covariance), _NORMAL_RADII


def _part(values: Any, name: str) -> Any:
    """Return an attribute of an object, or the item if a service sent the object as JSON."""
    return values[name] if isinstance(values, Mapping) else getattr(values, name)
