"""Uploads of data: arrays, tables and files as bodies, encoded piece by piece while they are sent."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import partial
from numbers import Number
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NotRequired

import numpy as np
from numpy.lib import format as npy

from glle.transport.calls import JSON, NPY, NPZ, Body
from glle.transport.errors import COLUMN_LISTS
from glle.types import AdviceOptions, AuditOptions, CompareOptions, FitOptions, TransformOptions, UploadOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd
    import pyarrow as pa

    from glle.transport.calls import Array

_PIECE_BYTES = 2**20
_PIECE_ROWS = 2048
_ALIKE = 0.75  # similarity of a misspelt name; no parameter of a method is as similar to an option of the data
_ARROW = "application/vnd.apache.arrow.stream"

MEDIA_TYPES = {
    ".npy": NPY,
    ".npz": NPZ,
    ".csv": "text/csv",
    ".json": JSON,
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".parquet": "application/vnd.apache.parquet",
    ".tsv": "text/tab-separated-values",
    ".txt": "text/plain",
    ".gz": "application/gzip",  # the service sees what is in it
    ".zst": "application/zstd",
    ".feather": "application/vnd.apache.arrow.file",
    ".arrow": _ARROW,
    ".arrows": _ARROW,
}


class DataOptions(UploadOptions):
    """Options of data to upload: roles of the columns, dialect of a text, labels and colors of the rows."""

    labels: NotRequired[Any]
    """
    One label for each row of an array or a table.
    """
    colors: NotRequired[Any]
    """
    One number for each row of an array or a table.
    """
    obsm: NotRequired[str | None]
    """
    Key of the points in `obsm` of an AnnData, such as "X_pca"; by default they are its `X`.
    """


class FitDataOptions(FitOptions, DataOptions):
    """Keyword arguments of `Client.fit`."""


class AdviceDataOptions(AdviceOptions, DataOptions):
    """Keyword arguments of `Client.advice`."""


class AuditDataOptions(AuditOptions, DataOptions):
    """Keyword arguments of `Client.audit`."""


class CompareDataOptions(CompareOptions, DataOptions):
    """Keyword arguments of `Client.compare`."""


class TransformDataOptions(TransformOptions, DataOptions):
    """Keyword arguments of `Posterior.transform`."""


def data_options(options: Any, known: type[DataOptions] = DataOptions) -> tuple[DataOptions, dict[str, Any]]:
    """Return the options of the data, and those of the method.

    Raises ValueError for a misspelt name of the `known` options, before an upload. The service knows the others.
    """
    for name in options.keys() - known.__annotations__.keys():
        if near := get_close_matches(name, known.__annotations__, 1, _ALIKE):
            raise ValueError(f"There is no option {name}=. Did you mean {near[0]}=?")
    data: Any = {name: value for name, value in options.items() if name in DataOptions.__annotations__}
    return data, {name: value for name, value in options.items() if name not in data}


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the data that have values; a list of columns may be one name."""
    given = {name: value for name, value in options.items() if value is not None and value != []}
    return {
        name: [value] if name in COLUMN_LISTS and isinstance(value, str) else value for name, value in given.items()
    }


@dataclass(frozen=True)
class DatasetUpload:
    """Data set to send; `index` is the index of its frame, for frames of its embeddings."""

    body: Body
    query: dict[str, Any] = field(default_factory=dict)
    index: Any = None


@dataclass(frozen=True)
class Cells:
    """Points of an AnnData: `values` (n, d), dense or sparse, `names`, `ids` (n,), `labels` and `colors` or None."""

    values: Any
    names: list[str] | None
    ids: Array
    labels: Any = None
    colors: Any = None


def upload_of(
    data: Any,
    options: UploadOptions | None = None,
    labels: Any = None,
    colors: Any = None,
    obsm: str | None = None,
) -> DatasetUpload:
    """Return the upload of an array, a sparse matrix, a table, an AnnData, nested lists, or the path of a file.

    `options` are the roles of columns: `label` of a pandas frame may also be an index level. `labels` and `colors` have
    one value for each row of an array or a table. The service guesses the roles of other columns. Data that cannot be
    sent without a loss raise ValueError.
    """
    query = given_options(options or {})
    if is_anndata(data) or obsm is not None:
        return _cells_upload(cells_of(data, query, obsm), query, labels, colors, data.obs_names)
    if isinstance(data, (str, Path)):
        return _file_upload(Path(data), query, labels, colors)
    if hasattr(data, "iloc") and hasattr(data, "columns"):
        return _frame_upload(data, query, _vectors(len(data), query, labels, colors))
    table = arrow_table(data) if hasattr(data, "__arrow_c_stream__") else None
    if table is not None:
        return _arrow_upload(table, query, _vectors(table.num_rows, query, labels, colors))
    if given := ", ".join(f"{name}={value!r}" for name, value in query.items() if name != "missing"):
        raise ValueError(f"{given} needs named columns: give a frame of pandas or polars, or a CSV file.")
    if hasattr(data, "collect_schema"):
        raise ValueError("The data are a query of polars without values: give data.collect().")
    array = data if hasattr(data, "tocsr") else as_array(data, "The data")
    return DatasetUpload(
        _array_body(array, _vectors(array.shape[0] if array.ndim else 0, query, labels, colors)), query
    )


def is_anndata(data: Any) -> bool:
    """Return whether data are an AnnData, without importing it."""
    return all(hasattr(data, name) for name in ("obs", "obsm", "obs_names", "var_names"))


def cells_of(data: Any, query: dict[str, Any], obsm: str | None) -> Cells:
    """Return the points of an AnnData, and the columns of its `obs` that `label` and `color` of the query name.

    Raises ValueError for a key or a column that does not exist, and for other roles of columns.
    """
    if not is_anndata(data):
        raise ValueError(f"obsm={obsm!r} is a key of an AnnData, and the data are of type {type(data).__name__}.")
    if other := ", ".join(f"{name}=" for name in query if name not in {"label", "color", "missing"}):
        raise ValueError(f"{other} has no meaning for an AnnData: choose its variables before, as by data[:, names].")
    if obsm is not None and obsm not in data.obsm:
        raise ValueError(f"There is no obsm={obsm!r}: name one of {', '.join(data.obsm) or '(none)'}.")
    values = data.X if obsm is None else data.obsm[obsm]
    if values is None:
        raise ValueError(f"The AnnData has no X: name the points by obsm=, one of {', '.join(data.obsm) or '(none)'}.")
    values = values.to_memory() if hasattr(values, "to_memory") else values  # a sparse matrix of a file
    columns = {}
    for role in ("label", "color"):
        if (name := query.get(role)) is not None:
            if name not in data.obs:
                raise ValueError(f"There is no column {name!r} in obs: name one of {', '.join(data.obs) or '(none)'}.")
            columns[f"{role}s"] = data.obs[name]
    names = list(values.columns) if hasattr(values, "columns") else list(data.var_names) if obsm is None else None
    if names is not None and len(set(names)) < len(names):
        raise ValueError("The AnnData has several variables of one name: call data.var_names_make_unique().")
    values = values if hasattr(values, "tocsr") else np.asarray(values)
    return Cells(values, names, np.asarray(data.obs_names, dtype=str), **columns)


def _cells_upload(cells: Cells, query: dict[str, Any], labels: Any, colors: Any, index: Any) -> DatasetUpload:
    """Return the points of an AnnData as npz, with its names, ids, labels and colors."""
    labels = cells.labels if labels is None else labels
    colors = cells.colors if colors is None else colors
    members = {"ids": cells.ids, **_vectors(len(cells.ids), {}, labels, colors)}
    if cells.names is not None:
        members["names"] = np.array(cells.names, np.str_)
    query = {name: value for name, value in query.items() if name == "missing"}
    return DatasetUpload(_array_body(cells.values, members), query, index)


def as_array(values: Any, name: str) -> Array:
    """Return values as an array; raise ValueError if some are masked by numpy.ma, because arrays have no mask."""
    parts = values if isinstance(values, (list, tuple)) else [values]
    masked = sum(np.count_nonzero(part.mask) for part in parts if isinstance(part, np.ma.MaskedArray))
    if masked:
        raise ValueError(
            f"{name}: {masked:,} values are masked. Remove or impute rows with masked values, as by "
            "X.data[~numpy.ma.getmaskarray(X).any(axis=1)] or X.filled(value); nothing is dropped silently."
        )
    if not (isinstance(values, Sequence) or hasattr(values, "__array__") or _is_buffer(values)):
        # numpy would take any object with a length for a sequence, and read it item by item.
        raise ValueError(f"{name} are of type {type(values).__module__}.{type(values).__qualname__}: give an array.")
    return np.asarray(values)


def _is_buffer(values: Any) -> bool:
    try:
        memoryview(values)
    except TypeError:
        return np.isscalar(values) or not hasattr(values, "__len__")
    return True


def _vectors(rows: int, query: dict[str, Any], labels: Any, colors: Any) -> dict[str, Array]:
    """Return `labels` and `color`, those that are given, with one value for each of the rows.

    A missing label is the empty text among texts, and NaN among numbers.
    """
    vectors = {}
    for name, role, values in (("labels", "label", labels), ("color", "color", colors)):
        if values is None:
            continue
        keyword = "labels" if role == "label" else "colors"
        if role in query:
            raise ValueError(f"{role}= names a column, {keyword}= has the values: give one of them.")
        vector = as_array(values, keyword)
        if vector.dtype.kind == "O":
            missing = np.array([value is None or value != value for value in vector.tolist()])  # noqa: PLR0124 # NaN
            vector = np.where(missing, "", vector).astype(str)
        if vector.shape != (rows,):
            raise ValueError(f"{keyword} has shape {vector.shape}; the data have {rows} rows: give one value a row.")
        if vector.dtype.kind not in ("fiubU" if role == "label" else "fiub"):
            raise ValueError(f"{keyword} is of dtype {vector.dtype}: convert it with .astype(float).")
        vectors[name] = vector.astype(np.int64) if vector.dtype.kind == "b" else vector
    return vectors


def _file_upload(path: Path, query: dict[str, Any], labels: Any, colors: Any) -> DatasetUpload:
    if labels is not None or colors is not None:
        raise ValueError("labels= and colors= go with an array or a frame. Name a file's columns: label=, color=.")
    media = MEDIA_TYPES.get(path.suffix.lower())
    if media is None:
        raise ValueError(f"{path} is none of {', '.join(MEDIA_TYPES)}: read it, and give the array.")
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    return DatasetUpload(Body.of_file(path, media), query)


def _array_body(array: Any, vectors: dict[str, Array]) -> Body:
    """Return an array as npy, with vectors beside it or if it is sparse as npz, in pieces of one megabyte."""
    if hasattr(array, "tocsr"):
        rows = array.tocsr()
        parts = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr, "shape": np.array(rows.shape)}
        members: dict[str, Any] = {"format": np.array("csr"), **parts, **vectors}
        return Body.of_writer(NPZ, partial(np.savez, **members))
    if array.dtype.kind not in "fiub":
        raise ValueError(f"The array is of dtype {array.dtype}: convert it with .astype(float).")
    if vectors:
        arrays: dict[str, Any] = {"data": array, **vectors}
        return Body.of_writer(NPZ, partial(np.savez, **arrays))
    header = io.BytesIO()
    layout = {"descr": npy.dtype_to_descr(array.dtype), "fortran_order": False, "shape": array.shape}
    npy.write_array_header_1_0(header, layout)

    def pieces() -> Iterator[bytes]:
        yield header.getvalue()
        for rows in np.array_split(np.atleast_1d(array), 2 + array.nbytes // _PIECE_BYTES):
            yield rows.tobytes()

    return Body(NPY, pieces, header.tell() + array.nbytes)


def _frame_upload(frame: pd.DataFrame, query: dict[str, Any], vectors: dict[str, Array]) -> DatasetUpload:
    """Return a frame as CSV with its names.

    An index that is no plain numbering names the rows, so that its levels are columns of ids.
    """
    label, index = query.get("label"), frame.index
    is_level = label is not None and label not in frame.columns
    if label is not None:
        if label not in frame.columns and label not in index.names:
            raise ValueError(f"There is no column {label!r}: name one of {', '.join(map(str, frame.columns))}.")
        labels = frame[label] if label in frame.columns else index.get_level_values(label).to_series(index)
        frame = frame.assign(**{label: labels.astype(object).where(labels.notna(), "")})  # a missing label is empty
    _require_plain(frame, query)
    levels = None if is_level else _index_columns(index, query)
    query = {**query, "header": "present", "delimiter": "comma", "decimal": "point", "charset": "utf-8"}
    for role, name, vector in _vector_columns(vectors, [str(name) for name in frame.columns]):
        query[role] = name
        frame = frame.assign(**{name: vector})
    if levels is not None:
        taken = [str(name) for name in frame.columns]
        levels.columns = [_free_name(name, taken) for name in levels.columns]
        query["id"] = [*query.get("id", []), *levels.columns]
        frame = levels.join(frame.set_axis(levels.index))

    def write(file: IO[bytes]) -> None:
        writer = csv.writer(codecs.getwriter("utf-8")(file), lineterminator="\n")
        writer.writerow(frame.columns)
        for start in range(0, len(frame), _PIECE_ROWS):
            writer.writerows(_rows(frame.iloc[start : start + _PIECE_ROWS]))

    return DatasetUpload(Body.of_writer("text/csv", write), query, index)


def _index_columns(index: pd.Index, query: dict[str, Any]) -> pd.DataFrame | None:
    """Return the levels of an index as columns of ids, or None if it numbers the rows from 0 and all rows stay."""
    is_plain = index.nlevels == 1 and index.dtype.kind in "iu" and np.array_equal(index, np.arange(len(index)))
    if is_plain and query.get("missing") != "drop":
        return None
    names = [f"__index_level_{at}__" if name is None else str(name) for at, name in enumerate(index.names)]
    return index.to_frame(index=False, name=names if index.nlevels > 1 else names[0])


def _free_name(name: str, taken: list[str]) -> str:
    """Return a name that no column has."""
    while name in taken:
        name += "_"
    return name


def _require_plain(frame: pd.DataFrame, query: dict[str, Any]) -> None:
    """Raise ValueError if columns without a role would lose their meaning in a text, with all of them."""
    apart = [query.get("label"), query.get("color")]
    apart += [pattern for role in ("id", "ignore", "one_hot") for pattern in query.get(role, ())]
    others, digits = [], []
    for name, column in frame.items():
        kind = getattr(column.dtype, "kind", "O")
        if kind in "fiubM" or _matches(str(name), apart) or not _matches(str(name), query.get("features", ["*"])):
            continue
        values = column[column.notna()].tolist() if kind == "O" else [object()]
        if not all(isinstance(value, (str, Number, Decimal, date)) for value in values):
            others.append(str(name))
        elif values and all(isinstance(value, str) and _is_number(value) for value in values):
            digits.append(str(name))
    problems = []
    if others:
        noun = "column has" if len(others) == 1 else "columns have"
        shown = ", ".join(f"{name!r} ({frame[name].dtype})" for name in others)
        problems.append(
            f"The {noun} neither numbers, texts nor dates: {shown}. Leave out with ignore={others!r}, or convert."
        )
    if digits:
        problems.append(
            f"Numbers as texts: {', '.join(map(repr, digits))}. Name their role, as by id={digits!r} or "
            f"ignore={digits!r}, or convert them with .astype(float)."
        )
    if problems:
        raise ValueError(" ".join(problems))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _rows(frame: pd.DataFrame) -> list[Any]:
    """Return the rows of a frame as lists; columns of several types keep theirs, so that an id 7 is no 7.0."""
    has_na = [not isinstance(kind, np.dtype) for kind in frame.dtypes]  # of pandas, which no text should have
    if len(set(frame.dtypes)) <= 1 and not any(has_na):
        rows: list[Any] = frame.to_numpy().tolist()
        return rows
    columns = (frame.iloc[:, at] for at in range(frame.shape[1]))
    without = (
        column.astype(object).where(column.notna(), None) if has else column
        for column, has in zip(columns, has_na, strict=True)
    )
    return list(zip(*(column.tolist() for column in without), strict=True))


def _vector_columns(vectors: dict[str, Array], names: list[str]) -> Iterator[tuple[str, str, Array]]:
    """Yield role, name and values of the columns of `labels` and `color`, with names that no column has."""
    for key, vector in vectors.items():
        role = "label" if key == "labels" else key
        yield role, _free_name(role, names), vector


def arrow_table(data: Any) -> pa.Table | None:
    """Return the table of an object with an Arrow stream, with types that the service reads; None for a single column.

    Views of texts become texts, and decimals become int64 or float64.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 # optional
    except ImportError as error:
        message = (
            f"Data of the type {type(data).__module__}.{type(data).__qualname__} need pyarrow: pip install pyarrow."
        )
        raise ImportError(message) from error
    try:
        reader = pa.RecordBatchReader.from_stream(data)
    except pa.ArrowInvalid:  # the stream is one array: a polars.Series, a pyarrow.ChunkedArray
        return None
    table = reader.read_all().replace_schema_metadata(None)
    for at, column in enumerate(table.schema):
        target = _read_type(column.type)
        if target == column.type:
            continue
        try:
            table = table.set_column(at, column.name, table.column(at).cast(target))
        except pa.ArrowInvalid as error:
            remedy = f"Cast the column {column.name!r} of type {column.type} to float64."
            raise ValueError(f"{str(error).rstrip('.')}. {remedy}") from error
    return table


def _read_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that the service reads in place of a view of texts, or of a decimal; other types as they are."""
    import pyarrow as pa  # noqa: PLC0415 # optional

    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _read_type(kind.value_type), kind.ordered)
    if pa.types.is_decimal(kind):
        return pa.float64() if kind.scale > 0 else pa.int64()
    return pa.large_string() if pa.types.is_string_view(kind) else kind


def _arrow_upload(table: pa.Table, query: dict[str, Any], vectors: dict[str, Array]) -> DatasetUpload:
    """Return a table as an Arrow stream with its names and types; dates and times of labels and one-hot become text."""
    import pyarrow as pa  # noqa: PLC0415 # optional
    from pyarrow import compute  # noqa: PLC0415 # optional

    label = query.get("label")
    if label is not None and label not in table.column_names:
        raise ValueError(f"There is no column {label!r}: name one of {', '.join(table.column_names)}.")
    for at, column in enumerate(table.schema):
        if pa.types.is_temporal(column.type) and _matches(column.name, [label, *query.get("one_hot", [])]):
            texts = compute.replace_substring_regex(table.column(at).cast(pa.large_string()), r"\.0+(Z?)$", r"\1")
            table = table.set_column(at, column.name, texts)
    query = dict(query)
    for role, name, vector in _vector_columns(vectors, table.column_names):
        query[role] = name
        table = table.append_column(name, pa.array(vector))
    table = table.unify_dictionaries().combine_chunks()  # the service bounds the number of batches
    rows = max(1, _PIECE_BYTES * table.num_rows // max(1, table.nbytes))

    def write(file: IO[bytes]) -> None:
        with pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table, max_chunksize=rows)

    return DatasetUpload(Body.of_writer(_ARROW, write), query)


def _matches(name: str, patterns: list[str | None]) -> bool:
    """Return whether a name is, or matches, one of the service's patterns."""
    words = [word for pattern in patterns if pattern for word in (pattern, *pattern.split(","))]
    return any(name == word.strip() or fnmatchcase(name, word.strip()) for word in words)
