"""Uploads of data: arrays, tables and files as bodies, encoded piece by piece while they are sent."""

from __future__ import annotations

import codecs
import csv
import io
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NotRequired

import numpy as np
from numpy.lib import format as npy

from glle.transport.calls import JSON, NPY, NPZ, Body
from glle.types import AdviceOptions, AuditOptions, CompareOptions, FitOptions, TransformOptions, UploadOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    import pyarrow as pa

    from glle.transport.calls import Array

_PIECE_BYTES = 2**20
_PIECE_ROWS = 2048
_LISTS = frozenset({"features", "id", "ignore", "one_hot"})
_ARROW = "application/vnd.apache.arrow.stream"

MEDIA_TYPES = {
    ".npy": NPY,
    ".npz": NPZ,
    ".csv": "text/csv",
    ".json": JSON,
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


def data_options(options: Any) -> tuple[DataOptions, dict[str, Any]]:
    """Return the options of the data, and those of the method."""
    data: Any = {name: value for name, value in options.items() if name in DataOptions.__annotations__}
    return data, {name: value for name, value in options.items() if name not in data}


@dataclass(frozen=True)
class DatasetUpload:
    """Data set to send; `index` is the index of its frame, for frames of its embeddings."""

    body: Body
    query: dict[str, Any] = field(default_factory=dict)
    index: Any = None


@dataclass(frozen=True)
class _Column:
    """Column of a table: its name, whether its values are numbers or texts, and its type in words."""

    name: str
    is_number: bool
    is_text: bool
    type: str


def upload_of(
    data: Any,
    options: UploadOptions | None = None,
    labels: Any = None,
    colors: Any = None,
    *,
    call: str = "dataset(frame",
) -> DatasetUpload:
    """Return the upload of an array, a table, nested lists, or the path of a file.

    `options` are the roles of columns: `label` of a pandas frame may also be an index level. `labels` and `colors` have
    one value for each row of an array or a table. `call` is the beginning of the call in the remedies of errors. Data
    that cannot be sent without a loss raise ValueError.
    """
    query = {name: value for name, value in (options or {}).items() if value is not None and value != []}
    for name in _LISTS.intersection(query):
        if isinstance(query[name], str):
            query[name] = [query[name]]
    if isinstance(data, (str, Path)):
        if labels is not None or colors is not None:
            raise ValueError("labels= and colors= go with an array or a frame. Name a file's columns: label=, color=.")
        return _file_upload(Path(data), query)
    if hasattr(data, "iloc") and hasattr(data, "columns"):
        return _frame_upload(data, query, _vectors(len(data), query, labels, colors), call)
    table = _arrow_table(data) if hasattr(data, "__arrow_c_stream__") else None
    if table is not None:
        return _arrow_upload(table, query, _vectors(table.num_rows, query, labels, colors), call)
    if query:
        given = ", ".join(f"{name}={value!r}" for name, value in query.items())
        raise ValueError(f"{given} needs named columns: give a frame of pandas or polars, or a CSV file.")
    if hasattr(data, "toarray"):  # scipy.sparse
        raise ValueError(
            f"The data are a sparse matrix of shape {getattr(data, 'shape', ())}, and the service takes dense data. "
            "Give 50 components by sklearn.decomposition.TruncatedSVD, or data.toarray(). glle.fit takes sparse "
            "data."
        )
    if hasattr(data, "collect_schema"):  # polars.LazyFrame
        raise ValueError("The data are a query without values: give data.collect().")
    array = as_array(data, "The data")
    return DatasetUpload(_array_body(array, _vectors(len(array) if array.ndim else 0, query, labels, colors)))


def as_array(values: Any, name: str) -> Array:
    """Return values as an array; raise ValueError if some are masked by numpy.ma, because arrays have no mask."""
    parts = values if isinstance(values, (list, tuple)) else [values]
    masked = sum(np.count_nonzero(part.mask) for part in parts if isinstance(part, np.ma.MaskedArray))
    if masked:
        raise ValueError(
            f"{name}: {masked:,} values are masked. Remove or impute rows with masked values, as by "
            "X.data[~numpy.ma.getmaskarray(X).any(axis=1)] or X.filled(value); nothing is dropped silently."
        )
    return np.asarray(values)


def neighbor_indices(neighbors: Any) -> Any:
    """Return the indices (n, k) of neighbors: an array, a pair of indices and distances, or a sparse graph.

    A pair is in the order of scikit-learn's `kneighbors` or the other one. Other data, such as files, stay as they are.
    """
    if hasattr(neighbors, "tocsr"):
        rows = neighbors.tocsr()
        counts = np.diff(rows.indptr)
        if counts.min() != counts.max():
            raise ValueError(
                f"Points have from {counts.min()} to {counts.max()} neighbors in the graph: give a graph of k nearest "
                "neighbors, not of a radius, and not symmetrised."
            )
        return rows.indices.reshape(rows.shape[0], -1)
    if isinstance(neighbors, tuple) and len(neighbors) == 2:
        parts = [as_array(part, "The neighbors") for part in neighbors]
        whole = [part for part in parts if part.dtype.kind in "iu"]
        if len(whole) != 1 or parts[0].shape != parts[1].shape:
            raise ValueError("A pair of neighbors has indices (n, k) of integers and distances (n, k).")
        return whole[0]
    return neighbors


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


def _file_upload(path: Path, query: dict[str, Any]) -> DatasetUpload:
    media = MEDIA_TYPES.get(path.suffix.lower())
    if media is None:
        raise ValueError(f"{path} is none of {', '.join(MEDIA_TYPES)}: read it, and give the array.")
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    return DatasetUpload(Body.of_file(path, media), query)


def _array_body(array: Array, vectors: dict[str, Array]) -> Body:
    """Return an array as npy, or with vectors beside it as npz, in pieces of one megabyte."""
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


def _frame_upload(frame: pd.DataFrame, query: dict[str, Any], vectors: dict[str, Array], call: str) -> DatasetUpload:
    """Return a frame as CSV with its names, or as npy or npz if its columns are only numbered."""
    if (label := query.get("label")) is not None:
        if label not in frame.columns and label not in frame.index.names:
            raise ValueError(f"There is no column {label!r}: name one of {', '.join(map(str, frame.columns))}.")
        labels = frame[label] if label in frame.columns else frame.index.get_level_values(label).to_series(frame.index)
        frame = frame.assign(**{label: labels.astype(object).where(labels.notna(), "")})  # a missing label is empty
    columns = [
        _Column(str(name), getattr(kind, "kind", "O") in "fiub", getattr(kind, "kind", "O") in "OSUT", str(kind))
        for name, kind in frame.dtypes.items()
    ]
    _require_numbers(columns, query, vectors, call)
    if not query and list(frame.columns) == list(range(frame.shape[1])):
        values = frame.to_numpy()
        values = values.astype(float) if values.dtype.kind == "O" else values
        return DatasetUpload(_array_body(values, vectors), index=frame.index)
    query = {**query, "header": "present", "delimiter": "comma", "decimal": "point", "charset": "utf-8"}
    for role, name, vector in _vector_columns(vectors, [column.name for column in columns]):
        query[role] = name
        frame = frame.assign(**{name: vector})

    def write(file: IO[bytes]) -> None:
        writer = csv.writer(codecs.getwriter("utf-8")(file), lineterminator="\n")
        writer.writerow(frame.columns)
        for start in range(0, len(frame), _PIECE_ROWS):
            writer.writerows(_rows(frame.iloc[start : start + _PIECE_ROWS]))

    return DatasetUpload(Body.of_writer("text/csv", write), query, frame.index)


def _rows(frame: pd.DataFrame) -> list[Any]:
    """Return the rows of a frame as lists; columns of several types keep theirs, so that an id 7 is no 7.0."""
    if len(set(frame.dtypes)) <= 1:
        rows: list[Any] = frame.to_numpy().tolist()
        return rows
    return list(zip(*(frame.iloc[:, at].tolist() for at in range(frame.shape[1])), strict=True))


def _vector_columns(vectors: dict[str, Array], names: list[str]) -> Iterator[tuple[str, str, Array]]:
    """Yield role, name and values of the columns of `labels` and `color`, with names that no column has."""
    for key, vector in vectors.items():
        role = name = "label" if key == "labels" else key
        while name in names:
            name += "_"
        yield role, name, vector


def _arrow_table(data: Any) -> pa.Table | None:
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


def _arrow_upload(table: pa.Table, query: dict[str, Any], vectors: dict[str, Array], call: str) -> DatasetUpload:
    """Return a table as an Arrow stream with its names and types; dates and times of labels and one-hot become text."""
    import pyarrow as pa  # noqa: PLC0415 # optional
    from pyarrow import compute  # noqa: PLC0415 # optional

    label = query.get("label")
    if label is not None and label not in table.column_names:
        raise ValueError(f"There is no column {label!r}: name one of {', '.join(table.column_names)}.")
    _require_numbers([_arrow_column(column) for column in table.schema], query, vectors, call)
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


def _arrow_column(column: pa.Field) -> _Column:
    """Return the description of a column of a table."""
    import pyarrow as pa  # noqa: PLC0415 # optional

    kind = column.type
    text = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_number = pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    return _Column(column.name, is_number, pa.types.is_string(text) or pa.types.is_large_string(text), str(kind))


def _require_numbers(columns: list[_Column], query: dict[str, Any], vectors: dict[str, Array], call: str) -> None:
    """Raise ValueError if a column that is no number has no role, with all such columns and the calls that help."""
    for column in columns:
        if column.name == query.get("color") and not column.is_number and column.type != "object":
            raise ValueError(f"The column {column.name!r} of type {column.type} is no color: name a column of numbers.")
    named = {query.get("label"), query.get("color")}
    apart = [pattern for role in ("id", "ignore", "one_hot") for pattern in query.get(role, ())]
    refused = [
        column
        for column in columns
        if not (column.is_number or column.name in named or _matches(column.name, apart))
        and _matches(column.name, query.get("features", ["*"]))
    ]
    if not refused:
        return
    names = [column.name for column in refused]
    texts = [column.name for column in refused if column.is_text]
    others = [column.name for column in refused if not column.is_text]
    ways = [f"leave {'it' if len(names) == 1 else 'them'} out with {_call(call, query, ignore=names)}"]
    if texts:
        ways.append(f"make a feature of each category with {_call(call, query, one_hot=texts, ignore=others)}")
    if texts and "label" not in query and "labels" not in vectors:
        label, rest = texts[0], [name for name in names if name != texts[0]]
        ways.insert(0, f"take {label!r} as labels with {_call(call, query, label=label, ignore=rest)}")
    listed = [repr(column.name) + ("" if column.is_text else f" ({column.type})") for column in refused]
    subject = f"The column {listed[0]} is" if len(names) == 1 else f"The columns {', '.join(listed)} are"
    raise ValueError(f"{subject} not numeric: {'; or '.join(ways)}.")


def _call(call: str, query: dict[str, Any], **more: Any) -> str:
    """Return a call with the roles of its query and more."""
    roles = dict(query)
    for role, value in more.items():
        if value:
            roles[role] = [*roles.get(role, []), *value] if role in _LISTS else value
    return ", ".join([call, *(f"{role}={value!r}" for role, value in roles.items())]) + ")"


def _matches(name: str, patterns: list[str | None]) -> bool:
    """Return whether a name is, or matches, one of the service's patterns."""
    words = [word for pattern in patterns if pattern for word in (pattern, *pattern.split(","))]
    return any(name == word.strip() or fnmatchcase(name, word.strip()) for word in words)
