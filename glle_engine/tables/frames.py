"""Read columns from frames of pandas, polars and pyarrow, from objects with an Arrow stream, and from series."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.errors import InvalidParameterError, InvalidShapeError
from glle_engine.tables.columns import (
    Column,
    WholeTable,
    date_column,
    number_column,
    object_array,
    objects_column,
    text_column,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.tables.cells import TextKind

_MICROSECONDS = 1e6


def is_anndata(data: Any) -> bool:
    """Return whether data are an AnnData, without importing the package anndata."""
    return all(hasattr(data, name) for name in ("obs", "obsm", "obs_names", "var_names"))


def is_frame(data: Any) -> bool:
    """Return whether data are a frame with named columns, or a series of vectors; a series of numbers is an array."""
    if is_series(data):
        return np.asarray(data[:1]).dtype.kind not in "fiub"
    return hasattr(data, "iloc") or hasattr(data, "__arrow_c_stream__")


def require_here(data: Any) -> None:
    """Raise `InvalidParameterError` for data without values in memory: a query, a view, or data on a GPU.

    The remedy is the call that brings the values into memory.
    """
    type_name = f"{type(data).__module__}.{type(data).__qualname__}"
    if hasattr(data, "collect_schema") and hasattr(data, "lazy") and not hasattr(data, "rows"):
        raise _not_computed(type_name, "data.collect()")
    if hasattr(data, "to_adata") and hasattr(data, "var_names"):
        raise InvalidParameterError(
            f"The data are of the type {type_name}, which is only the `raw` part of an AnnData.",
            remedy="Give adata.raw.to_adata().",
        )
    if hasattr(data, "__dask_graph__") and hasattr(data, "columns"):
        raise _not_computed(type_name, "data.compute()")
    if hasattr(data, "toPandas"):
        raise _not_computed(type_name, "data.toPandas()")
    is_away = hasattr(data, "__cuda_array_interface__") or bool(getattr(data, "is_cuda", False)) or "cudf" in type_name
    if is_away:
        calls = {"to_pandas": "data.to_pandas()", "get": "data.get()", "cpu": "data.cpu().numpy()"}
        call = next((call for name, call in calls.items() if hasattr(data, name)), "a copy as an array of numpy")
        raise InvalidParameterError(
            f"The data, of the type {type_name}, are in the memory of a graphics processor.",
            remedy=f"Give {call}, which is in main memory.",
        )


def _not_computed(type_name: str, call: str) -> InvalidParameterError:
    """Return the error for a lazy query, which has no values yet.

    `call` is the code that computes the values, such as "data.collect()", for the remedy.
    """
    return InvalidParameterError(
        f"The data are of the type {type_name}, a query that has not been computed yet.",
        remedy=f"Give {call}, which computes the values.",
    )


def frame_columns(frame: Any, *, with_index: bool = False) -> WholeTable:
    """Return the columns of a frame or a series as a `WholeTable`.

    The levels of a pandas index are the last columns, unless the index only numbers the rows from 0. With `with_index`,
    an index that only numbers the rows is also a column.

    Raises
    ------
    ImportError
        If the package that reads the frame is not installed; the message names the package.

    """
    require_here(frame)
    if is_series(frame):
        frame = _frame_of_series(frame)
    if hasattr(frame, "iloc"):
        names = [str(name) for name in frame.columns]
        series = [frame.iloc[:, column] for column in range(len(names))]
        levels = _levels(frame.index, with_index=with_index)
        for name, level in levels.items():
            names.append(free_name(name, names))
            series.append(level)
        index = tuple(range(len(names) - len(levels), len(names)))
        return WholeTable(names, [_numpy_column(each) or series_column(each) for each in series], index=index)
    if "polars" in type(frame).__module__:
        return WholeTable(list(frame.columns), [series_column(each) for each in frame.get_columns()])
    table = _arrow_table(frame)
    return WholeTable(list(table.column_names), [series_column(each) for each in table.columns])


def series_column(series: Any, kind: TextKind | None = None) -> Column:
    """Convert a series of pandas or polars, or a chunked array of pyarrow, to a `Column`.

    Texts are read as values of `kind`, by default the kind that the first texts have.
    """
    import narwhals as nw  # noqa: PLC0415 # loaded when the first frame is read

    is_dictionary = False
    if type(series).__module__.partition(".")[0] == "pyarrow":
        series, is_dictionary = _plain_arrow(series)
    column = nw.from_native(series, series_only=True)
    dtype = column.dtype
    is_category = is_dictionary or isinstance(dtype, (nw.Categorical, nw.Enum))
    type_ = "category" if is_category else str(dtype).partition("(")[0].lower()
    missing = column.is_null().to_numpy().astype(bool)
    if (dtype.is_numeric() or dtype == nw.Boolean) and not dtype.is_decimal() and not type_.endswith("int128"):
        filled = column.fill_null(value=False if dtype == nw.Boolean else 0) if missing.any() else column
        values = np.asarray(filled.to_numpy())
        if values.dtype.kind in "fiub":
            return replace(number_column(values, missing, type_), is_category=is_category)
        dtype = nw.Object()  # a nullable type of pandas, of which numpy has made objects
    if dtype == nw.Datetime:
        return _time_column(column, missing)
    if str(getattr(series, "dtype", "")).startswith(("interval", "period")):  # types of pandas
        dtype, texts = nw.String(), list(map(str, column.to_list()))
    elif dtype == nw.String and not is_category:
        texts = column.to_list()
    if dtype == nw.String and not is_category:
        present = [None if gone else text for text, gone in zip(texts, missing.tolist(), strict=True)]
        return text_column(present, kind=kind)
    if is_category or dtype.is_numeric() or isinstance(dtype, (nw.Date, nw.Object, nw.List, nw.Array)):
        return objects_column(column.to_list(), type_, is_category=is_category)
    return Column("other", type_, object_array([None] * len(column)), missing)


def _time_column(times: Any, missing: NDArray[np.bool_]) -> Column:
    """Convert a narwhals series of times to a column of dates; times with a time zone are converted to UTC."""
    if times.dtype.time_zone is not None:
        times = times.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    ticks = np.array([0 if tick is None or tick != tick else tick for tick in times.dt.timestamp("us").to_list()])  # noqa: PLR0124 # NaN
    seconds = ticks.astype(np.float64) / _MICROSECONDS
    seconds[missing] = np.nan
    return date_column(seconds, "date")


def _numpy_column(series: Any) -> Column | None:
    """Convert a pandas series whose dtype is a numeric dtype of numpy to a `Column`; return None for other series.

    For frames with thousands of columns, this takes a tenth of the time of `series_column`.
    """
    is_number = isinstance(series.dtype, np.dtype) and series.dtype.kind in "fiub"
    return number_column(series.to_numpy(), type_=str(series.dtype)) if is_number else None


def is_series(data: Any) -> bool:
    """Return whether data are one column: a series of pandas or polars, or an array of pyarrow."""
    is_column = not hasattr(data, "column_names") and not hasattr(data, "columns") and hasattr(data, "__len__")
    return is_column and (
        hasattr(data, "iloc") or hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")
    )


def _frame_of_series(series: Any) -> Any:
    """Return a frame whose only column is the series; a series without a name gets the name 0."""
    name = getattr(series, "name", None)
    if hasattr(series, "to_frame"):
        return series.to_frame("0" if name in {None, ""} else name)
    return import_module("pyarrow").table({"0": series})


def _levels(index: Any, *, with_index: bool) -> dict[str, Any]:
    """Return the levels of a pandas index as series by name.

    Without `with_index`, an index that only numbers the rows from 0 counts as no level.
    """
    is_plain = index.nlevels == 1 and index.dtype.kind in "iu" and np.array_equal(index, np.arange(len(index)))
    if is_plain and not with_index:
        return {}
    names = [f"__index_level_{level}__" if name is None else str(name) for level, name in enumerate(index.names)]
    return {name: index.get_level_values(level).to_series() for level, name in enumerate(names)}


def free_name(name: str, taken: list[str]) -> str:
    """Return `name` with as many underscores appended as it needs to differ from the names that are `taken`."""
    while name in taken:
        name += "_"
    return name


def _arrow_table(data: Any) -> Any:
    """Return the pyarrow table of an object with an Arrow stream.

    Raises ImportError if pyarrow is not installed, and InvalidShapeError if the stream has no named columns.
    """
    try:
        pa = sys.modules.get("pyarrow") or import_module("pyarrow")
    except ImportError as error:
        type_name = f"{type(data).__module__}.{type(data).__qualname__}"
        message = f"Data of the type {type_name} can be read only with pyarrow. Install it with pip install pyarrow."
        raise ImportError(message) from error
    if isinstance(data, pa.Table):
        return data
    try:
        return pa.RecordBatchReader.from_stream(data).read_all()
    except pa.ArrowInvalid as error:
        detail = f"The Arrow stream of the data, of the type {type(data).__qualname__}, has no named columns."
        raise InvalidShapeError(detail, remedy="Give a table or a record batch with named columns.") from error


def _plain_arrow(array: Any) -> tuple[Any, bool]:
    """Decode run-length and dictionary encoding, and cast rare types; also return whether there was a dictionary."""
    import pyarrow as pa  # noqa: PLC0415 # optional
    from pyarrow import compute  # noqa: PLC0415 # optional

    if not isinstance(array, pa.ChunkedArray):
        array = pa.chunked_array([array])
    arrow_type = array.type
    if pa.types.is_run_end_encoded(arrow_type):
        array = pa.chunked_array([compute.run_end_decode(each) for each in array.chunks], arrow_type.value_type)
    is_category = pa.types.is_dictionary(arrow_type)
    if is_category:
        value = pa.large_string() if pa.types.is_string_view(arrow_type.value_type) else arrow_type.value_type
        array = pa.chunked_array([each.dictionary.cast(value).take(each.indices) for each in array.chunks], value)
    arrow_type = array.type
    if pa.types.is_string_view(arrow_type):
        array = array.cast(pa.large_string())
    elif pa.types.is_float16(arrow_type):
        array = array.cast(pa.float32())
    elif pa.types.is_null(arrow_type):
        array = array.cast(pa.float64())
    return array, is_category
