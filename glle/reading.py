"""Read the points for the engine from arrays, sparse matrices, tables and AnnData.

Tables are interpreted in the same way as in an upload to a service (`glle_engine.tables`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import numpy as np

from glle_engine.base.arrays import array_of
from glle_engine.base.errors import InvalidParameterError, InvalidShapeError, NotFiniteError
from glle_engine.base.parameters import require_known_names
from glle_engine.base.pictures.points import align_rows, texts_of_labels
from glle_engine.base.texts import Note, Way
from glle_engine.base.validation import Missing, is_sparse, rows_of_sparse
from glle_engine.tables.anndata import cells_of
from glle_engine.tables.columns import WholeTable, number_column
from glle_engine.tables.frames import frame_columns, is_anndata, is_frame, is_series, require_here
from glle_engine.tables.given import given_column, is_column, with_given
from glle_engine.tables.roles import COLUMN_LISTS, SINGLE, ColumnRoles, array_of_column, column_order
from glle_engine.tables.table import read_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray


class ColumnOptions(TypedDict):
    """Keyword arguments for data that may be a table or an AnnData, except `labels`: see `glle.Client.dataset`."""

    colors: NotRequired[Any]
    features: NotRequired[Any]
    id: NotRequired[Any]
    ignore: NotRequired[Any]
    one_hot: NotRequired[Any]
    missing: NotRequired[Missing | None]
    obsm: NotRequired[str | None]


class TableOptions(ColumnOptions):
    """Keyword arguments for data that may be a table or an AnnData: see `glle.Client.dataset`."""

    labels: NotRequired[Any]


@dataclass(frozen=True, eq=False)
class DataPoints:
    """Points for the engine, with the labels, colors and ids of their rows.

    Attributes
    ----------
    X
        (n, d) numbers, dense or sparse; unchanged if the data are not a table and have no missing values.
    labels, colors, ids
        (n,) or None. Labels are texts or numbers, colors are numbers, ids are texts or integers, and (n, columns) if
        they have several columns.
    notes
        Which roles of columns were guessed, and how missing values were handled.
    kept
        (rows,) mask of the rows of the data that were not dropped for missing values, or None if all are kept.
    names
        Names of the features of a table, or None.
    options
        Roles of the columns, also those that were guessed, so that `read_features` reads new data in the same way.
    index
        Index of a pandas frame with all its rows, or None.

    """

    X: Any
    labels: NDArray[Any] | None = None
    colors: NDArray[np.float64] | None = None
    ids: NDArray[Any] | None = None
    notes: tuple[Note, ...] = ()
    kept: NDArray[np.bool_] | None = None
    names: list[str] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    index: Any = None

    def all_notes(self, notes: Iterable[Note]) -> tuple[Note, ...]:
        """Return the notes on the data, followed by `notes` with the names of the features filled in."""
        return (*self.notes, *(note.with_names(self.names) for note in notes))

    def rows(self, values: Any, name: str) -> Any:
        """Return one of `values` for each row that was kept; rows with missing values may have been dropped.

        If there is a value for each row of the original data, the values of dropped rows are left out. Otherwise all
        values are returned, because there may already be one for each kept row. A `Series` of pandas is first put in
        the order of the frame's index. Messages call the values `name`, such as "the labels".
        """
        if values is None or not hasattr(values, "__len__"):
            return values
        is_whole = self.kept is not None and len(values) == len(self.kept)
        values = align_rows(values, self.index if is_whole or self.index is None else self.kept_index, name)
        return np.asarray(values)[self.kept] if is_whole else values

    @property
    def kept_index(self) -> Any:
        """Index of the frame without dropped rows. Without a frame: the numbers of the kept rows, or None for all."""
        if self.kept is None:
            return self.index
        return (np.arange(len(self.kept)) if self.index is None else self.index)[self.kept]

    def column(self, name: str) -> NDArray[Any]:
        """Return the values (n,) of the column `name`, which has the role of labels, colors or ids.

        Raises `InvalidParameterError` if there is no such column.
        """
        lists = {role: [names] if isinstance(names, str) else names for role, names in self.options.items()}
        location = array_of_column(name, lists)
        if location is None:
            raise InvalidParameterError(
                f"The data have no column {name!r} of labels, colors or ids.",
                remedy="Give an array with one value for each point in place of the name.",
            )
        array = getattr(self, location[0])
        return np.asarray(array if array.ndim == 1 else array[:, location[1]])


def table_options(options: Mapping[str, Any], others: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split keyword arguments into the `TableOptions` and the rest, whose names have to be in `others`.

    Raises
    ------
    InvalidParameterError
        For any other name; the message has the most similar known name.

    """
    require_known_names(options, [*others, *TableOptions.__annotations__])
    of_table = {name: value for name, value in options.items() if name in TableOptions.__annotations__}
    return of_table, {name: value for name, value in options.items() if name not in of_table}


def read_points(data: Any, options: Mapping[str, Any], *, are_new: bool = False) -> DataPoints:
    """Return the points of an array, a sparse matrix, a table or an AnnData; `options` are `TableOptions`.

    `labels` and `colors` name a column, or have one value for each row. A missing label becomes the empty text.
    `are_new` says that a fitted map will place the points: an error on missing values then does not offer to drop rows
    or to fill in values.

    Raises
    ------
    GlleError
        If columns need a role, if columns have missing values and there is no option `missing`, or if labels or colors
        have another length; the message names all such columns.
    ImportError
        If the package that reads the data is not installed; the message names the package.

    """
    present = {name: value for name, value in options.items() if value is not None}
    values = {name: present.pop(name) for name in sorted(SINGLE & present.keys()) if not is_column(present[name])}
    roles = ColumnRoles.from_options(present)
    present |= {name: value for name in present if (value := getattr(roles, name, None)) not in {None, ()}}
    points = _points(data, roles, present.get("obsm"), values, are_new=are_new)
    lists = {name: [*value] if isinstance(value, tuple) else value for name, value in present.items()}
    options = {name: value for name, value in {**lists, **points.options}.items() if name not in values}
    vectors = {name: _given_values(points, name, vector) for name, vector in values.items()}
    return replace(points, options=options, **{"labels": texts_of_labels(points.labels), **vectors})


def _given_values(points: DataPoints, name: str, vector: Any) -> NDArray[Any]:
    """Return the labels or colors of the points from a `vector` of values that the user gave instead of a column.

    Raises `InvalidShapeError` unless there is one value for each row of the data, or for each row that was kept (rows
    with missing values may have been dropped).
    """
    column, count = points.rows(vector, f"the {name}"), np.shape(points.X)[0]
    if name == "colors":
        return np.asarray(given_column(name, column, count).numbers, np.float64)
    column = np.asarray(texts_of_labels(column))
    if np.shape(column) != (count,):
        raise InvalidShapeError(
            f"The {name} have shape {np.shape(column)}, but there are {count} points.",
            remedy=f"Give an array of {count} {name}, one for each point.",
        )
    return column


def _points(data: Any, roles: ColumnRoles, obsm: str | None, values: Mapping[str, Any], *, are_new: bool) -> DataPoints:
    if isinstance(data, (str, os.PathLike)):
        raise InvalidParameterError(
            f"The data were given as the text or path {str(data)!r:.200}, but files are not read here.",
            remedy="Read the file first, for example with pandas.read_csv, and give the frame.",
        )
    require_here(data)
    if is_anndata(data) or obsm is not None:
        return _anndata_points(data, roles, obsm, are_new=are_new)
    if not is_frame(data):
        roles.require_none("the data have no named columns.", "Give a frame of pandas or polars.")
        return _array_points(data, roles.missing)
    columns = frame_columns(data, with_index=roles.missing == "drop")
    index = data.index if hasattr(data, "iloc") else None
    # Zeros stand for labels that the caller gave as values, so that no column is guessed to be the labels.
    # `read_points` adds the labels themselves, which may have values for the kept rows only.
    role_values = {**values, **({"labels": np.zeros(len(columns))} if "labels" in values else {})}
    columns, names = with_given(columns, role_values, index)
    roles = replace(roles, labels=names.get("labels", roles.labels), colors=names.get("colors", roles.colors))
    return replace(_table_points(columns, roles, are_new=are_new), index=index)


def read_features(data: Any, fitted: Mapping[str, Any], names: Sequence[str] | None, *, is_new: bool = False) -> Any:
    """Return the features (m, d) of `data` in the order in which a fit had them; columns are matched by their names.

    `fitted` are the `DataPoints.options` of the fit, and `names` the names of its features. `is_new` says that `data`
    are new points, not the data of the fit; new points without column names, such as an array, are returned unchanged.

    Raises
    ------
    GlleError
        If columns of the fit are missing, if there are unknown columns, or if columns have missing values and the fit
        had no option `missing`; the message names the columns.

    """
    require_here(data)
    columns = _column_names(data)
    if is_new and columns is None:
        return data
    without = {*SINGLE, "id", "ignore", "missing"} if is_new else set()
    without |= set() if is_anndata(data) else {"obsm"}
    without |= {*SINGLE, *COLUMN_LISTS} if is_anndata(data) or columns is None else set()
    known = {"features": ["*"] if names is None else [*names], **fitted}
    known = {name: value for name, value in known.items() if name not in without}
    if columns is None or names is None:
        return read_points(data, known, are_new=is_new).X
    apart = {fitted.get("labels"), fitted.get("colors")}.union(*(fitted.get(name, ()) for name in ("id", "ignore")))
    column_order(fitted.get("features", names), [name for name in columns if name not in apart])
    data_points = read_points(data, known, are_new=is_new)
    read_names = dict.fromkeys(data_points.names or ())
    absent = [name for name in names if name not in read_names]  # categories that occur in the fit, but not here
    X = np.hstack([data_points.X, np.zeros((len(data_points.X), len(absent)))]) if absent else data_points.X
    order = column_order(names, [*read_names, *absent])
    return X if order is None else X[:, order]


def _column_names(data: Any) -> list[str] | None:
    """Return the column names of a frame, or the names of the variables of an AnnData; None for other data."""
    names = getattr(data, "column_names", getattr(data, "columns", None)) if is_frame(data) else None
    names = getattr(data, "var_names", [getattr(data, "name", None) or "0"] if is_series(data) else names)
    return None if names is None else [str(name) for name in names]


def _array_points(data: Any, missing: Missing | None, *, are_new: bool = False) -> DataPoints:
    """Return the points of an array or a sparse matrix; missing values are handled as `missing` says."""
    if is_sparse(data):
        return _sparse_points(data, missing)
    values = array_of(data)
    if values.ndim != 2 or values.dtype.kind != "f" or not np.isnan(values).any():
        return DataPoints(data)
    columns = [number_column(column) for column in values.T]
    table = _table_points(WholeTable(None, columns), ColumnRoles(missing=missing), are_new=are_new)
    return replace(table, options={})


def _sparse_points(data: Any, missing: Missing | None) -> DataPoints:
    if data.ndim != 2 or data.dtype.kind != "f":
        return DataPoints(data)
    rows = rows_of_sparse(data)
    gaps = np.isnan(rows.data)
    if not gaps.any():
        return DataPoints(data)
    if missing != "drop":
        remedy = f"Drop their rows by {Way('missing', 'drop')}."
        raise NotFiniteError(f"{gaps.sum():,} entries of the sparse data are NaN.", remedy=remedy)
    kept = np.ones(rows.shape[0], bool)
    kept[np.repeat(np.arange(len(kept)), np.diff(rows.indptr))[np.isnan(rows.data)]] = False
    note = f"{(~kept).sum():,} of {len(kept):,} rows have missing values and were dropped."
    return DataPoints(rows[kept], notes=(Note("rows-dropped", note),), kept=kept)


def _anndata_points(data: Any, roles: ColumnRoles, obsm: str | None, *, are_new: bool) -> DataPoints:
    """Return the points of an AnnData: `data.obsm[obsm]`, or `data.X` if `obsm` is None.

    Labels and colors are the columns of `data.obs` that `roles` names. `are_new` says that a fitted map will place the
    points, as in `_table_points`.
    """
    cells = cells_of(data, roles, obsm)
    points = replace(
        _array_points(cells.values, roles.missing, are_new=are_new), names=cells.names, index=data.obs_names
    )
    return replace(
        points, **{name: points.rows(getattr(cells, name), f"the {name}") for name in ("labels", "colors", "ids")}
    )


def _table_points(columns: WholeTable, roles: ColumnRoles, *, are_new: bool) -> DataPoints:
    """Return the points of a table; columns without a role in `roles` get the role that their values suggest.

    `are_new` says that a fitted map will place the points: an error on missing values then does not offer to drop rows
    or to fill in values.
    """
    table = read_table(columns, roles, are_new=are_new)
    layout = table.layout
    assert layout is not None
    columns_of_roles = {"features": layout.features, **layout.roles}
    options: dict[str, Any] = {}
    for role, indices in columns_of_roles.items():
        names = [layout.name(index) for index in indices if index not in columns.index]
        if names:
            options[role] = names
    options |= {role: options[role][0] for role in SINGLE if role in options}
    return DataPoints(
        np.asarray(table.values, np.float64),
        labels=table.labels,
        colors=table.colors,
        ids=table.ids,
        notes=table.notices,
        kept=table.kept,
        names=table.names,
        options=options,
    )
