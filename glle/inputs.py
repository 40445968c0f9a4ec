"""Uploads of data: arrays, frames and files as bodies, encoded piece by piece while they are sent."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
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


def upload_of(data: Any, options: UploadOptions | None = None) -> Upload:
    """Return the upload of an array, a frame, nested lists, or the path of a file.

    `options` are the roles of columns: `label` of a frame may also be an index level. Data that cannot be sent without
    a loss raise ValueError.
    """
    query = {name: value for name, value in (options or {}).items() if value is not None and value != []}
    for name in _LISTS.intersection(query):
        if isinstance(query[name], str):
            query[name] = [query[name]]
    if isinstance(data, (str, Path)):
        return _file_upload(Path(data), query)
    if hasattr(data, "iloc") and hasattr(data, "columns"):
        return _frame_upload(data, query)
    if query:
        given = ", ".join(f"{name}={value!r}" for name, value in query.items())
        raise ValueError(f"{given} needs named columns: give a pandas.DataFrame, or a CSV file.")
    return Upload(_array_body(np.asarray(data)))


def _file_upload(path: Path, query: dict[str, Any]) -> Upload:
    media = MEDIA_TYPES.get(path.suffix.lower())
    if media is None:
        raise ValueError(f"{path} is none of {', '.join(MEDIA_TYPES)}: read it, and give the array.")
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    return Upload(Body.of_file(path, media), query)


def _array_body(array: Array) -> Body:
    """Return an array as npy in C order, in pieces of one megabyte."""
    if array.dtype.kind not in "fiub":
        raise ValueError(f"The array is of dtype {array.dtype}: convert it with .astype(float).")
    buffer = io.BytesIO()
    header = {"descr": npy.dtype_to_descr(array.dtype), "fortran_order": False, "shape": array.shape}
    npy.write_array_header_1_0(buffer, header)
    head = buffer.getvalue()
    table = np.atleast_1d(array)

    def pieces() -> Iterator[bytes]:
        yield head
        rows = max(1, _PIECE_BYTES * len(table) // max(1, table.nbytes))
        for start in range(0, len(table), rows):
            yield np.ascontiguousarray(table[start : start + rows]).tobytes()

    return Body(NPY, pieces, len(head) + array.nbytes)


def _frame_upload(frame: pd.DataFrame, query: dict[str, Any]) -> Upload:
    """Return a frame as CSV with its names, or as npy if its columns are only numbered."""
    label = query.get("label")
    columns = frame if label is None or label not in frame.columns else frame.drop(columns=[label])
    labels = None if label is None else _labels(frame, label)
    names = [str(name) for name in columns.columns]
    kinds = [getattr(kind, "kind", "O") for kind in columns.dtypes]
    _require_numbers(names, kinds, query)
    if not query and list(columns.columns) == list(range(columns.shape[1])):
        values = columns.to_numpy()
        return Upload(_array_body(values.astype(float) if values.dtype.kind == "O" else values), index=frame.index)
    query = {**query, "header": "present", "delimiter": "comma", "decimal": "point", "charset": "utf-8"}

    def pieces() -> Iterator[bytes]:
        yield _csv([names if labels is None else [*names, label]])
        for start in range(0, len(columns), _PIECE_ROWS):
            rows = columns.iloc[start : start + _PIECE_ROWS].to_numpy().tolist()
            if labels is not None:
                rows = [[*row, text] for row, text in zip(rows, labels[start : start + _PIECE_ROWS], strict=True)]
            yield _csv(rows)

    return Upload(Body("text/csv", pieces), query, frame.index)


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
