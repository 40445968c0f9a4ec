"""Uploads of data: arrays, frames and files as bodies, encoded piece by piece while they are sent."""

from __future__ import annotations

import csv
import io
import zipfile
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy

from glle.transport.calls import JSON, NPY, NPZ, Body

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from glle.transport.sinks import Array
    from glle.types import UploadOptions

_PIECE_BYTES = 2**20
_PIECE_ROWS = 2048
_LISTS = frozenset({"features", "id", "ignore", "one_hot"})

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
    ".arrow": "application/vnd.apache.arrow.stream",
    ".arrows": "application/vnd.apache.arrow.stream",
}


@dataclass(frozen=True)
class Upload:
    """Data set to send; `index` is the index of its frame, for frames of its embeddings."""

    body: Body
    query: dict[str, Any] = field(default_factory=dict)
    index: Any = None


def upload_of(data: Any, options: UploadOptions | None = None, labels: Any = None, colors: Any = None) -> Upload:
    """Return the upload of an array, a frame, nested lists, or the path of a file.

    `options` are the roles of columns: `label` of a frame may also be an index level. `labels` and `colors` have one
    value for each row of an array or a frame. Data that cannot be sent without a loss raise ValueError.
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
        return _frame_upload(data, query, _vectors(data, query, labels, colors))
    if query:
        given = ", ".join(f"{name}={value!r}" for name, value in query.items())
        raise ValueError(f"{given} needs named columns: give a pandas.DataFrame, or a CSV file.")
    if hasattr(data, "toarray"):  # scipy.sparse
        raise ValueError(
            f"The data are a sparse matrix of shape {getattr(data, 'shape', ())}, and the service takes dense data. "
            "Give 50 components by sklearn.decomposition.TruncatedSVD, or data.toarray(). glle_engine.fit takes sparse "
            "data."
        )
    array = np.asarray(data)
    return Upload(_array_body(array, _vectors(array, query, labels, colors)))


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
        parts = [np.asarray(part) for part in neighbors]
        whole = [part for part in parts if part.dtype.kind in "iu"]
        if len(whole) != 1 or parts[0].shape != parts[1].shape:
            raise ValueError("A pair of neighbors has indices (n, k) of integers and distances (n, k).")
        return whole[0]
    return neighbors


def _vectors(data: Any, query: dict[str, Any], labels: Any, colors: Any) -> dict[str, Array]:
    """Return `labels` and `color`, those that are given, with one value for each row of the data.

    A missing label is the empty text among texts, and NaN among numbers.
    """
    vectors = {}
    for name, role, values in (("labels", "label", labels), ("color", "color", colors)):
        if values is None:
            continue
        keyword = "labels" if role == "label" else "colors"
        if role in query:
            raise ValueError(f"{role}= names a column, {keyword}= has the values: give one of them.")
        vector = np.asarray(values)
        if vector.dtype.kind == "O":
            missing = np.array([value is None or value != value for value in vector.tolist()])  # noqa: PLR0124 # NaN
            vector = np.where(missing, "", vector).astype(str)
        if vector.shape != (len(data),):
            raise ValueError(
                f"{keyword} has shape {vector.shape}; the data have {len(data)} rows: give one value a row."
            )
        if vector.dtype.kind not in ("fiubU" if role == "label" else "fiub"):
            raise ValueError(f"{keyword} is of dtype {vector.dtype}: convert it with .astype(float).")
        vectors[name] = vector.astype(np.int64) if vector.dtype.kind == "b" else vector
    return vectors


def _file_upload(path: Path, query: dict[str, Any]) -> Upload:
    media = MEDIA_TYPES.get(path.suffix.lower())
    if media is None:
        raise ValueError(f"{path} is none of {', '.join(MEDIA_TYPES)}: read it, and give the array.")
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    return Upload(Body.of_file(path, media), query)


def _array_body(array: Array, vectors: dict[str, Array]) -> Body:
    """Return an array as npy, or with vectors beside it as npz, in pieces of one megabyte."""
    if array.dtype.kind not in "fiub":
        raise ValueError(f"The array is of dtype {array.dtype}: convert it with .astype(float).")
    if vectors:
        return Body(NPZ, partial(_npz, {"data": array, **vectors}))
    return Body(NPY, partial(_npy, array), len(_header(array)) + array.nbytes)


def _header(array: Array) -> bytes:
    buffer = io.BytesIO()
    header = {"descr": npy.dtype_to_descr(array.dtype), "fortran_order": False, "shape": array.shape}
    npy.write_array_header_1_0(buffer, header)
    return buffer.getvalue()


def _npy(array: Array) -> Iterator[bytes]:
    """Yield an array as npy in C order."""
    yield _header(array)
    table = np.atleast_1d(array)
    rows = max(1, _PIECE_BYTES * len(table) // max(1, table.nbytes))
    for start in range(0, len(table), rows):
        yield np.ascontiguousarray(table[start : start + rows]).tobytes()


def _npz(arrays: dict[str, Array]) -> Iterator[bytes]:
    """Yield arrays as npz without compression."""
    sink = _Pieces()
    with zipfile.ZipFile(sink, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                for piece in _npy(array):
                    member.write(piece)
                    yield sink.take()
    yield sink.take()


class _Pieces:
    """Stream that holds what was written since the last `take`."""

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, data: bytes, /) -> int:
        """Append bytes."""
        self._written.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def take(self) -> bytes:
        """Return and forget what was written."""
        written, self._written = b"".join(self._written), []
        return written


def _frame_upload(frame: pd.DataFrame, query: dict[str, Any], vectors: dict[str, Array]) -> Upload:
    """Return a frame as CSV with its names, or as npy or npz if its columns are only numbered."""
    label = query.get("label")
    columns = frame if label is None or label not in frame.columns else frame.drop(columns=[label])
    labels = None if label is None else _labels(frame, label)
    names = [str(name) for name in columns.columns]
    kinds = [getattr(kind, "kind", "O") for kind in columns.dtypes]
    _require_numbers(names, kinds, query)
    if not query and list(columns.columns) == list(range(columns.shape[1])):
        values = columns.to_numpy()
        values = values.astype(float) if values.dtype.kind == "O" else values
        return Upload(_array_body(values, vectors), index=frame.index)
    query = {**query, "header": "present", "delimiter": "comma", "decimal": "point", "charset": "utf-8"}
    beside = {} if labels is None else {str(label): labels}
    for role, vector in zip(("label" if name == "labels" else name for name in vectors), vectors.values(), strict=True):
        query[role] = _unused(role, names)
        beside[query[role]] = vector.tolist()

    def pieces() -> Iterator[bytes]:
        yield _csv([[*names, *beside]])
        for start in range(0, len(columns), _PIECE_ROWS):
            part = slice(start, start + _PIECE_ROWS)
            rows = _rows(columns.iloc[part])
            more = [values[part] for values in beside.values()]
            yield _csv([[*row, *others] for row, *others in zip(rows, *more, strict=True)])

    return Upload(Body("text/csv", pieces), query, frame.index)


def _rows(frame: pd.DataFrame) -> list[Any]:
    """Return the rows of a frame as lists; columns of several types keep theirs, so that an id 7 is no 7.0."""
    if len(set(frame.dtypes)) <= 1:
        rows: list[Any] = frame.to_numpy().tolist()
        return rows
    return list(zip(*(frame.iloc[:, at].tolist() for at in range(frame.shape[1])), strict=True))


def _unused(name: str, names: list[str]) -> str:
    """Return a name that no column has."""
    while name in names:
        name += "_"
    return name


def _require_numbers(names: list[str], kinds: list[str], query: dict[str, Any]) -> None:
    """Raise ValueError if a column of text has no role."""
    apart = [query.get("color"), *(pattern for role in ("id", "ignore", "one_hot") for pattern in query.get(role, ()))]
    texts = [name for name, kind in zip(names, kinds, strict=True) if kind not in "fiub" and not _matches(name, apart)]
    if "features" in query:
        texts = [name for name in texts if _matches(name, query["features"])]
    if texts:
        remedy = f"give ignore={texts!r} or one_hot={texts!r}, or name one as label=."
        raise ValueError(f"The columns {', '.join(texts)} are no numbers: {remedy}")


def _matches(name: str, patterns: list[str | None]) -> bool:
    """Return whether a name is, or matches, one of the service's patterns."""
    words = [word for pattern in patterns if pattern for word in (pattern, *pattern.split(","))]
    return any(name == word.strip() or fnmatchcase(name, word.strip()) for word in words)


def _labels(frame: pd.DataFrame, label: str) -> list[Any]:
    """Return the labels; a missing one is the empty text."""
    if label in frame.columns:
        labels: Any = frame[label]
    elif label in frame.index.names:
        labels = frame.index.get_level_values(label)
    else:
        raise ValueError(f"There is no column {label!r}: name one of {', '.join(map(str, frame.columns))}.")
    return ["" if missing else value for value, missing in zip(labels, labels.isna(), strict=True)]


def _csv(rows: list[list[Any]]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue().encode()
