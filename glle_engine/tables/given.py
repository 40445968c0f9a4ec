"""Labels and colors that a caller passes as arrays with one value for each row, and not as the name of a column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.arrays import array_of, require_lossless, require_open
from glle_engine.base.errors import InvalidShapeError
from glle_engine.base.pictures.points import align_rows
from glle_engine.tables.columns import WholeTable, number_column, objects_column
from glle_engine.tables.frames import free_name, is_series, series_column
from glle_engine.tables.row_texts import label_array

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from glle_engine.tables.columns import Column


def is_column(value: Any) -> bool:
    """Return whether the labels or colors that a caller gave are the name or number of a column, not an array."""
    require_open(value, "the values for the rows")
    return value is not None and (isinstance(value, str) or np.ndim(value) == 0)


def with_given(table: WholeTable, values: Mapping[str, Any], index: Any) -> tuple[WholeTable, dict[str, str]]:
    """Append labels and colors to a table; return the new table, and the name of the new column of each role.

    `values` maps the roles "labels" and "colors" to one value for each row, and `index` is the index of the rows.
    """
    names, columns, roles = list(table.names or ()), list(table.head), {}
    for role, vector in values.items():
        roles[role] = free_name(role, names)
        names.append(roles[role])
        columns.append(given_column(role, vector, len(table), index))
    return WholeTable(names, columns, index=table.index), roles


def given_arrays(values: Mapping[str, Any], rows: int, index: Any = None) -> dict[str, NDArray[Any]]:
    """Convert labels and colors that the caller passes to arrays (rows,) of the types in which data sets store them.

    `values` maps the roles "labels" and "colors" to one value for each row. Errors as for `given_column`.
    """
    columns = {name: given_column(name, vector, rows, index) for name, vector in values.items()}
    return {
        name: label_array(column.objects(), 0) if name == "labels" else np.asarray(column.numbers, np.float64)
        for name, column in columns.items()
    }


def given_column(role: str, values: Any, rows: int, index: Any = None) -> Column:
    """Convert labels or colors that the caller passes to a column; values with a pandas index are sorted as `index`.

    `role` is "labels" or "colors".

    Raises
    ------
    NotFiniteError, InexactIntegerError
        For masked values, and for colors that float64 cannot hold.
    InvalidShapeError
        Unless there is one value for each row, of a type that suits the role.

    """
    are_labels = role == "labels"
    aligned = align_rows(values, index, f"the {role}")
    vector = array_of(aligned, f"the {role}", are_labels=are_labels)
    if vector.shape != (rows,):
        raise InvalidShapeError(
            f"The {role} have shape {vector.shape}; the data have {rows} rows.",
            remedy=f"Give an array of {rows} {role}, one for each row.",
        )
    if is_series(aligned):
        column = series_column(aligned)
    elif vector.dtype.kind == "M":
        column = objects_column(vector.astype("M8[us]").tolist(), "date")
    else:
        is_number = vector.dtype.kind in "fiub"
        column = number_column(vector) if is_number else objects_column(vector.tolist(), str(vector.dtype))
    if column.kind not in {"number", "date", *(["text"] if are_labels else [])}:
        kinds = "texts, numbers or dates" if are_labels else "numbers or dates"
        raise InvalidShapeError(
            f"The {role} are of type {vector.dtype}, but they have to be {kinds}.",
            remedy=f"Convert the {role}, for example with .astype(float).",
        )
    if not are_labels:
        require_lossless(column.values, f"the {role}")
    return column
