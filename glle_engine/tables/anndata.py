"""Read the points of an AnnData, and columns of its `obs`, without importing the package anndata."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.errors import InvalidParameterError, TableError
from glle_engine.tables.frames import is_anndata, series_column
from glle_engine.tables.row_texts import label_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.tables.columns import Column
    from glle_engine.tables.roles import ColumnRoles


@dataclass(frozen=True, eq=False)
class Cells:
    """What is read from an AnnData: `values` (n, d), dense or sparse, names of the features, and ids (n,) of points.

    The names are None for an array of `obsm` without column names. `labels` and `colors` (n,) are columns of `obs`, or
    None if none was chosen.
    """

    values: Any
    names: list[str] | None
    ids: NDArray[Any]
    labels: NDArray[Any] | None = None
    colors: NDArray[np.float64] | None = None


def cells_of(data: Any, roles: ColumnRoles, obsm: str | None) -> Cells:
    """Read the points of an AnnData from `data.X`, or from `data.obsm[obsm]`, and labels and colors from `data.obs`.

    Raises
    ------
    InvalidParameterError, TableError
        If the data are not an AnnData, a key or a column does not exist, or `roles` name variables of the AnnData.

    """
    if not is_anndata(data):
        type_name = type(data).__name__
        raise InvalidParameterError(
            f"obsm={obsm!r} was given, but the data are of the type {type_name}, and only an AnnData has obsm.",
            remedy="Leave obsm out, or give the AnnData.",
        )
    reason = "the columns of an AnnData are its variables."
    roles.require_none(reason, "Choose variables before, as by data[:, names].", but=("labels", "colors"))
    keys = ", ".join(data.obsm) or "(none)"
    if obsm is not None and obsm not in data.obsm:
        raise InvalidParameterError(f"The AnnData has no obsm[{obsm!r}].", remedy=f"Name one of {keys}.")
    values = data.X if obsm is None else data.obsm[obsm]
    if values is None:
        raise InvalidParameterError(
            "The AnnData has no X.", remedy=f"Say which array has the points: give obsm=, one of {keys}."
        )
    values = values.to_memory() if hasattr(values, "to_memory") else values  # a sparse matrix in a file
    names = list(values.columns) if hasattr(values, "columns") else list(data.var_names) if obsm is None else None
    if names is not None and len(set(names)) < len(names):
        repeated = next(name for name, count in Counter(names).items() if count > 1)
        detail = f"{len(names) - len(set(names))} variables of the AnnData have a name that an earlier variable has, "
        detail += f"such as {str(repeated)[:50]!r}."
        raise TableError("invalid-names", detail, remedy="Call data.var_names_make_unique() first.")
    labels, colors = (None if name is None else obs_column(data, name) for name in (roles.labels, roles.colors))
    if colors is not None and colors.kind not in {"number", "date"}:
        detail = f"The column {roles.colors!r} is of type {colors.type}, but colors are numbers or dates."
        remedy = "Name another column for the colors, or convert this one to numbers."
        raise TableError("unsupported-column", detail, remedy=remedy)
    return Cells(
        values if hasattr(values, "tocsr") else np.asarray(values),
        None if names is None else list(map(str, names)),
        np.asarray(data.obs_names, dtype=str),
        None if labels is None else label_array(labels.objects(), 0),
        None if colors is None else np.asarray(colors.numbers, np.float64),
    )


def obs_column(data: Any, name: str) -> Column:
    """Return the column `name` of the `obs` of an AnnData; raise `TableError` if there is no such column."""
    if name not in data.obs:
        columns = ", ".join(map(str, data.obs)) or "(none)"
        detail = f"There is no column {name!r} in the obs of the AnnData."
        raise TableError("no-such-column", detail, remedy=f"Name one of its columns: {columns}.")
    return series_column(data.obs[name])
