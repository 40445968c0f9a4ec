"""Data of any kind as points for the engine: arrays, sparse matrices, tables and AnnData.

The roles of columns are those of an upload to a service, given or guessed (`glle_engine.base.columns`).
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from importlib import import_module
from numbers import Real
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import numpy as np

from glle.inputs import arrow_table, cells_of, given_options, is_anndata
from glle.transport.errors import COLUMN_LISTS, in_words, keyword
from glle_engine.base.columns import (
    ColumnProfile,
    ColumnRoles,
    Layout,
    column_order,
    no_features,
    option,
)
from glle_engine.base.errors import GlleError, InvalidParameterError, NotFiniteError, TableError
from glle_engine.base.parameters import require_known_names
from glle_engine.base.pictures.points import align_rows, texts_of_labels
from glle_engine.base.results import Note
from glle_engine.base.validation import Missing, array_of, is_sparse, require_unmasked, resolve_missing, rows_of_sparse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from glle_engine.base.columns import Kind

_LISTED = 20  # columns in a message
_EXACT = 2.0**53  # the largest integer up to which float64 is exact


class TableOptions(TypedDict):
    """Keyword arguments for data that are a table or an AnnData; as for `glle.Client`."""

    label: NotRequired[str | None]
    color: NotRequired[str | None]
    features: NotRequired[list[str]]
    id: NotRequired[list[str]]
    ignore: NotRequired[list[str]]
    one_hot: NotRequired[list[str]]
    missing: NotRequired[Missing | None]
    obsm: NotRequired[str | None]


@dataclass(frozen=True, eq=False)
class DataPoints:
    """Points of data, with the columns beside them.

    Attributes
    ----------
    X
        (n, d) numbers, dense or sparse; data that are no table and have no missing values as they are.
    labels, color, ids
        (n,) texts or numbers, numbers, and texts or integers, or None; ids of several columns are (n, columns).
    notes
        Guessed roles, and the remedy of missing values.
    kept
        (rows,) mask of the rows of the data that are points, or None for all.
    names
        Names of the features of a table, or None.
    options
        Those that read such data again: of a table with the roles that were guessed.
    index
        Index of a frame, or None.

    """

    X: Any
    labels: NDArray[Any] | None = None
    color: NDArray[np.float64] | None = None
    ids: NDArray[Any] | None = None
    notes: tuple[Note, ...] = ()
    kept: NDArray[np.bool_] | None = None
    names: list[str] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    index: Any = None

    def rows(self, values: Any) -> Any:
        """Return values for each row of the data without those of the dropped rows; others as they are.

        Values of pandas are in the order of the frame's index then.
        """
        if values is None or not hasattr(values, "__len__"):
            return values
        is_whole = self.kept is not None and len(values) == len(self.kept)
        values = align_rows(values, self.index if is_whole or self.index is None else self.kept_index)
        return np.asarray(values)[self.kept] if is_whole else values

    @property
    def kept_index(self) -> Any:
        """Index of the points: of the frame, or their rows if some were dropped, or None."""
        if self.kept is None:
            return self.index
        return (np.arange(len(self.kept)) if self.index is None else self.index)[self.kept]

    def classes(self, labels: Any) -> Any:
        """Return the given labels of the points, or those of the table; a missing one is the empty text."""
        return texts_of_labels(self.labels if labels is None else self.rows(labels))


@dataclass(frozen=True)
class _Column:
    """Column of a table: numbers and dates are float64 with NaN, others objects with None.

    `integers` are those that float64 would round.
    """

    kind: Kind
    values: NDArray[Any]
    type: str
    integers: NDArray[Any] | None = None
    is_category: bool = False

    @property
    def keys(self) -> list[Any]:
        """The values, without rounding."""
        keys: list[Any] = (self.values if self.integers is None else self.integers).tolist()
        return keys


def table_options(options: Mapping[str, Any], others: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of the table, and the others, whose names must be among `others`.

    Raises
    ------
    InvalidParameterError
        For an unknown name, with the closest one.

    """
    require_known_names(options, [*others, *TableOptions.__annotations__])
    of_table = {name: value for name, value in options.items() if name in TableOptions.__annotations__}
    return of_table, {name: value for name, value in options.items() if name not in of_table}


def read_points(data: Any, options: Mapping[str, Any]) -> DataPoints:
    """Return the points of data; `options` are `TableOptions`.

    Raises
    ------
    GlleError
        With all columns that need a role, and all columns with missing values, unless `missing` resolves them.
    ImportError
        With the package that reads the data.

    """
    given = given_options(options)
    try:
        points = _points(data, ColumnRoles.of(given), given)
        return replace(points, options={**given, **points.options})
    except GlleError as error:
        error.args = (in_words(error.message, keyword),)
        error.remedy = in_words(error.remedy, keyword)
        raise


def _points(data: Any, roles: ColumnRoles, options: dict[str, Any]) -> DataPoints:
    data = _table_of(data)
    if is_anndata(data) or "obsm" in options:
        return _anndata_points(data, roles, options)
    if (names := _column_names(data)) is None:
        roles.require_none("the data have no named columns.", "Give a frame of pandas or polars.")
        return _array_points(data, roles.missing)
    index = data.index
    if roles.label is not None and roles.label in index.names and roles.label not in data.columns:
        data = data.reset_index(level=roles.label)
        names = _column_names(data) or []
    columns = [_frame_column(column) for _, column in data.items()]
    points = _with_index(_table_points(names, columns, roles), data.index)
    return replace(points, index=index)


def read_features(data: Any, fitted: Mapping[str, Any], names: Sequence[str] | None, *, is_new: bool = False) -> Any:
    """Return the features of data like those of a fit, in its order, by the names of their columns.

    `fitted` are `DataPoints.options` of the fit, and `names` the names of its features. An array is as it is.

    Raises
    ------
    GlleError
        As `read_points`, and for missing and unknown columns.

    """
    data = _table_of(data)
    columns = _column_names(data)
    if is_new and columns is None:
        return data
    without = {"label", "color", "id", "ignore", "missing"} if is_new else set()
    without |= set() if is_anndata(data) else {"obsm"}
    without |= {"label", "color", *COLUMN_LISTS} if is_anndata(data) or columns is None else set()
    known = {"features": ["*"] if names is None else [*names], **fitted}
    known = {name: value for name, value in known.items() if name not in without}
    if columns is None or names is None:
        return read_points(data, known).X
    apart = {fitted.get("label"), fitted.get("color")}.union(*(fitted.get(name, ()) for name in ("id", "ignore")))
    column_order(fitted.get("features", names), [name for name in columns if name not in apart])
    try:
        found = read_points(data, known)
    except GlleError as error:
        if is_new:
            error.remedy = error.remedy.replace(in_words(_CHOICE, keyword), "Remove these rows, or fill the values in.")
        raise
    given = dict.fromkeys(found.names or ())
    absent = [name for name in names if name not in given]  # categories
    X = np.hstack([found.X, np.zeros((len(found.X), len(absent)))]) if absent else found.X
    order = column_order(names, [*given, *absent])
    return X if order is None else X[:, order]


def _table_of(data: Any) -> Any:
    """Return the frame of an Arrow stream, with its types, and other data as they are; refuse the path of a file."""
    if isinstance(data, (str, os.PathLike)):
        raise InvalidParameterError(f"{data} is a path.", remedy="Read the file, as by pandas.read_csv.")
    is_stream = hasattr(data, "__arrow_c_stream__") and not hasattr(data, "iloc")
    if not is_stream or (table := arrow_table(data)) is None:
        return data
    try:
        return table.to_pandas(types_mapper=import_module("pandas").ArrowDtype)
    except ImportError as error:
        raise ImportError("Tables of Arrow need pandas: pip install pandas.") from error


def _column_names(data: Any) -> list[str] | None:
    """Return the names of the columns of a frame, or of the variables of an AnnData, or None."""
    names = getattr(data, "columns", None) if hasattr(data, "iloc") else getattr(data, "var_names", None)
    return None if names is None else [str(name) for name in names]


def _array_points(data: Any, missing: Missing | None) -> DataPoints:
    """Return the points of an array or a sparse matrix."""
    if is_sparse(data):
        return _sparse_points(data, missing)
    require_unmasked(data, "the data")
    values = array_of(data)
    if values.ndim != 2 or values.dtype.kind != "f" or not np.isnan(values).any():
        return DataPoints(data)
    values, kept, notes = _resolve(values, missing, None)
    return DataPoints(values, notes=notes, kept=kept)


def _sparse_points(data: Any, missing: Missing | None) -> DataPoints:
    if data.ndim != 2 or data.dtype.kind != "f":
        return DataPoints(data)
    rows = rows_of_sparse(data)
    gaps = np.isnan(rows.data)
    if not gaps.any():
        return DataPoints(data)
    if missing != "drop":
        raise NotFiniteError(
            f"{gaps.sum():,} entries of the sparse data are NaN.", remedy="Drop their rows by ?missing=drop."
        )
    kept = np.ones(rows.shape[0], bool)
    kept[np.repeat(np.arange(len(kept)), np.diff(rows.indptr))[np.isnan(rows.data)]] = False
    note = f"{(~kept).sum():,} of {len(kept):,} rows have missing values and were dropped."
    return DataPoints(rows[kept], notes=(Note("missing-values", note),), kept=kept)


def _resolve(
    values: NDArray[Any], missing: Missing | None, names: list[str] | None
) -> tuple[NDArray[Any], NDArray[np.bool_] | None, tuple[Note, ...]]:
    """Return values without missing ones, the mask of the kept rows, and the note; refuse them without a choice."""
    if missing is None:
        raise NotFiniteError(_missing_text(values, names), remedy=_CHOICE)
    values = np.array(values, np.float64)
    kept, change = resolve_missing(values, missing, names)
    notes = (Note("missing-values", change),) if change else ()
    return values if kept is None else values[kept], kept, notes


_CHOICE = "Drop such rows with ?missing=drop, or take the medians of their columns with ?missing=median."


def _missing_text(values: NDArray[Any], names: list[str] | None) -> str:
    """Return the missing values of a matrix in words."""
    gaps = np.isnan(values)
    counts = gaps.sum(axis=0)
    columns = np.flatnonzero(counts)
    listed = ", ".join(f"{names[at] if names else f'X[:, {at}]'} ({counts[at]:,})" for at in columns[:_LISTED])
    more = f" and {len(columns) - _LISTED:,} more" if len(columns) > _LISTED else ""
    first = int(np.argmax(gaps.any(axis=1)))
    return (
        f"Values are missing in {gaps.any(axis=1).sum():,} of {len(values):,} rows, first in row {first} (from 0). "
        f"Columns with missing values: {listed}{more}."
    )


def _anndata_points(data: Any, roles: ColumnRoles, options: dict[str, Any]) -> DataPoints:
    """Return the points of an AnnData, with columns of its `obs`."""
    query = {name: value for name, value in options.items() if name != "obsm"}
    cells = cells_of(data, query, options.get("obsm"))
    found = _array_points(cells.values, roles.missing)
    labels = None if cells.labels is None else _labels(_frame_column(cells.labels))
    color = None if cells.colors is None else _color(_frame_column(cells.colors))
    names = None if cells.names is None or "obsm" in options else list(map(str, cells.names))
    found = replace(found, names=names, index=data.obs_names)
    return replace(found, labels=found.rows(labels), color=found.rows(color), ids=found.rows(cells.ids))


def _with_index(points: DataPoints, index: Any) -> DataPoints:
    """Return the points of a frame, with its index as ids if it has no column of ids and numbers no rows."""
    if points.ids is not None or (index.dtype.kind in "iu" and np.array_equal(index, np.arange(len(index)))):
        return points
    ids = np.array(index.tolist()) if index.nlevels == 1 else np.array([list(map(str, row)) for row in index])
    return replace(points, ids=points.rows(ids if ids.dtype.kind in "iuU" else ids.astype(str)))


def _table_points(names: list[str], columns: list[_Column], roles: ColumnRoles) -> DataPoints:
    """Return the points of the columns of a table, with guessed roles for those without one."""
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        shown = ", ".join(map(repr, twice[:_LISTED]))
        raise TableError("duplicate-columns", f"Several columns are named {shown}.", remedy="Give each its own name.")
    layout, kinds = Layout.of(names, len(names), roles), [column.kind for column in columns]
    if not layout.features:
        raise TableError("no-features", "No column is a feature.", remedy="Give a table with columns of numbers.")
    profiles = {at: ColumnProfile(is_category=columns[at].is_category) for at in layout.open_columns(roles, kinds)}
    for at, profile in profiles.items():
        profile.add(columns[at].keys)
    layout = layout.guess(kinds, profiles)
    one_hot = set(layout.roles["one_hot"])
    numbers = [at for at in layout.features if at not in one_hot and kinds[at] == "number"]
    _require_features(layout, columns, numbers, roles.missing)
    parts, found = [], []
    for at in layout.features:
        if at in one_hot:
            categories, zeros_and_ones = _one_hot(columns[at])
            parts.append(zeros_and_ones)
            found += [f"{names[at]}={category}" for category in categories]
        else:
            parts.append(columns[at].values[:, None])
            found.append(names[at])
    color = None if layout.color is None else _color(columns[layout.color])
    if color is not None:
        parts.append(color[:, None])
        found.append(names[layout.color or 0])
    values = np.hstack(parts)
    numbered = [names[at] for at in numbers if columns[at].is_category]
    sentences = [
        f"The column {name!r} is categorical, and its numbers are fitted as a feature; as labels use"
        f" {option('label', [name])}, as features of zeros and ones {option('one_hot', [name])}."
        for name in numbered
    ]
    notes = [Note("column-role", in_words(sentence, keyword)) for sentence in [*layout.notices(), *sentences]]
    kept = None
    if np.isnan(values).any():
        values, kept, more = _resolve(values, roles.missing, found)
        notes += more
    if color is not None:
        values, color, found = values[:, :-1], values[:, -1], found[:-1]
    given = {"features": layout.features, **layout.roles}
    options: dict[str, Any] = {role: [names[at] for at in positions] for role, positions in given.items() if positions}
    options |= {role: options[role][0] for role in ("label", "color") if role in options}
    points = DataPoints(values, color=color, notes=tuple(notes), kept=kept, names=found, options=options)
    labels = None if layout.label is None else _labels(columns[layout.label])
    ids = [_ids(columns[at]) for at in layout.roles["id"]]
    return replace(
        points,
        labels=points.rows(labels),
        ids=points.rows(None if not ids else ids[0] if len(ids) == 1 else np.column_stack(ids)),
    )


def _require_features(layout: Layout, columns: list[_Column], numbers: list[int], missing: Missing | None) -> None:
    """Raise `TableError` with all columns without a role, and all with missing or inexact values."""
    problems, remedies = [], []
    refused = [at for at in layout.features if at not in {*numbers, *layout.roles["one_hot"]}]
    details: dict[str, Any] = {}
    if refused:
        texts = [at for at in refused if columns[at].kind == "text"]
        listed = ", ".join(f"{layout.name(at)!r} ({columns[at].type}{_odd_cell(columns[at])})" for at in refused)
        subject = f"The column {listed} needs" if len(refused) == 1 else f"The columns {listed} need"
        error = no_features("columns", layout, texts, [at for at in refused if at not in texts], f"{subject} a role.")
        problems, remedies, details = [error.message], [error.remedy], error.details
    values = np.column_stack([columns[at].values for at in numbers]) if numbers else np.zeros((1, 0))
    names = [layout.name(at) for at in numbers]
    if missing is None and np.isnan(values).any():
        problems.append(_missing_text(values, names))
        remedies.append(_CHOICE)
    if inexact := [layout.name(at) for at in numbers if columns[at].integers is not None]:
        problems.append(f"Integers beyond 2^53 would be rounded in {', '.join(inexact)}.")
        remedies.append("Set the columns apart, as by id=[...], or subtract an offset.")
    is_infinite = np.isinf(values)
    if infinite := [
        f"{names[at]} (row {is_infinite[:, at].argmax()})" for at in np.flatnonzero(is_infinite.any(axis=0))
    ]:
        problems.append(f"Values are infinite in {', '.join(infinite)}.")
        remedies.append("Remove their rows, or make them NaN.")
    if problems:
        raise TableError("invalid-table", " ".join(problems), remedy=" ".join(remedies), details=details)


def _odd_cell(column: _Column) -> str:
    """Return the first cell that is no number, of a column of several types, in words."""
    cells = enumerate(column.values.tolist() if column.kind == "other" else [])
    odd = ((row, value) for row, value in cells if value is not None and not isinstance(value, Real))
    return next((f", {value!r:.40} in row {row}" for row, value in odd), "")


def _frame_column(column: Any) -> _Column:
    """Return the column of a pandas series."""
    kind, name = getattr(column.dtype, "kind", "O"), str(column.dtype)
    if kind in "fiub":
        is_large = kind in "iu" and column.notna().any() and (column.max() > _EXACT or column.min() < -_EXACT)
        integers = _objects(_with_none(column)) if is_large else None
        return _Column("number", column.to_numpy(np.float64, na_value=np.nan), name, integers)
    if kind == "M" and column.dtype.type is not date:  # days without a time are objects, as those of Arrow
        zoned = column.dt.tz_convert("UTC").dt.tz_localize(None) if getattr(column.dt, "tz", None) else column
        since = zoned - np.datetime64(0, "s")
        return _Column("date", since.dt.total_seconds().to_numpy(np.float64, na_value=np.nan), name)
    return replace(_objects_column(_with_none(column), name), is_category=name.startswith(("category", "dictionary")))


def _with_none(column: Any) -> list[Any]:
    """Return the values of a pandas series; a missing one is None."""
    return [value if there else None for value, there in zip(column.tolist(), column.notna(), strict=True)]


def _objects_column(values: list[Any], name: str) -> _Column:
    """Return the column of objects: texts, numbers or dates, with None."""
    found = [value for value in values if value is not None]
    if found and all(isinstance(value, (Real, Decimal)) for value in found):
        return _Column("number", np.array([np.nan if value is None else float(value) for value in values]), name)
    if found and all(isinstance(value, date) for value in found):
        days = np.array([None if value is None else value.isoformat() for value in values], "datetime64[s]")
        seconds = np.where(np.isnat(days), np.nan, days.astype(np.int64))
        return _Column("date", seconds, "date")
    if all(isinstance(value, str) for value in found):
        return _Column("text", _objects(values), "text")
    return _Column("other", _objects(values), name)


def _objects(values: list[Any]) -> NDArray[Any]:
    """Return a vector of objects, also of lists."""
    objects = np.empty(len(values), object)
    objects[:] = values
    return objects


def _one_hot(column: _Column) -> tuple[list[str], NDArray[np.float64]]:
    """Return the categories of a column and their indicators (n, categories); NaN where the value is missing."""
    texts = _labels(column).astype(str)
    is_present = np.array([value is not None and value == value for value in column.values.tolist()])  # noqa: PLR0124 # NaN
    categories = np.unique(texts[is_present])
    ones = (texts[:, None] == categories).astype(np.float64)
    ones[~is_present] = np.nan
    return categories.tolist(), ones


def _color(column: _Column) -> NDArray[np.float64]:
    """Return numbers, or dates in seconds since 1970."""
    if column.kind not in {"number", "date"}:
        message = f"A column of type {column.type} cannot be the color, which has numbers or dates."
        raise TableError("unsupported-column", message, remedy="Name another column, or cast this one.")
    return column.values


def _labels(column: _Column) -> NDArray[Any]:
    """Return labels: numbers if all are, else texts; a missing one is the empty text."""
    if column.kind == "other":
        raise TableError(
            "unsupported-column", f"A column of type {column.type} is no label.", remedy="Name another one."
        )
    values = column.values
    if values.dtype.kind == "f" and not np.isnan(values).any():
        return np.asarray(values)
    return np.array(["" if value is None or value != value else str(value) for value in values.tolist()])  # noqa: PLR0124 # NaN


def _ids(column: _Column) -> NDArray[Any]:
    """Return ids: integers if all are whole, else texts; a missing one is the empty text."""
    values = column.values
    is_number = column.kind in {"number", "date"} and column.integers is None
    if is_number and np.isfinite(values).all() and (values == np.rint(values)).all():
        return np.asarray(values, np.int64)
    return np.array(["" if value is None or value != value else str(value) for value in column.keys])  # noqa: PLR0124 # NaN
