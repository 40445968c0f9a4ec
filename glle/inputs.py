"""Uploads of data: arrays, frames and files as bodies, encoded piece by piece while they are sent."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy

from glle.transport.calls import JSON, NPY, NPZ, Body

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from glle.transport.sinks import Array

_PIECE_BYTES = 2**20
_PIECE_ROWS = 2048

MEDIA_TYPES = {
    ".npy": NPY,
    ".npz": NPZ,
    ".csv": "text/csv",
    ".json": JSON,
    ".parquet": "application/vnd.apache.parquet",
    ".arrow": "application/vnd.apache.arrow.stream",
    ".arrows": "application/vnd.apache.arrow.stream",
}


@dataclass(frozen=True)
class Upload:
    """Data set to send; `index` is the index of its frame, for frames of its embeddings."""

    body: Body
    query: dict[str, str] = field(default_factory=dict)
    index: Any = None


def upload_of(data: Any, label: str | None = None) -> Upload:
    """Return the upload of an array, a frame, nested lists, or the path of a file.

    `label` is the column of labels of a frame or a CSV file, or an index level of a frame. Data that cannot be sent
    without a loss raise ValueError.
    """
    if isinstance(data, (str, Path)):
        return _file_upload(Path(data), label)
    if hasattr(data, "iloc") and hasattr(data, "columns"):
        return _frame_upload(data, label)
    if label is not None:
        raise ValueError(f"label={label!r} needs named columns: give a pandas.DataFrame, or a CSV file.")
    return Upload(_array_body(np.asarray(data)))


def _file_upload(path: Path, label: str | None) -> Upload:
    media = MEDIA_TYPES.get(path.suffix.lower())
    if media is None:
        raise ValueError(f"{path} is none of {', '.join(MEDIA_TYPES)}: read it, and give the array.")
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    return Upload(Body.of_file(path, media), {} if label is None else {"label": label})


def _array_body(array: Array) -> Body:
    """Return an array as npy in C order, in pieces of one megabyte."""
    if array.dtype.kind not in "fiu":
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


def _frame_upload(frame: pd.DataFrame, label: str | None) -> Upload:
    """Return a frame as CSV with its names, or as npy if its columns are only numbered."""
    features = frame if label is None or label not in frame.columns else frame.drop(columns=[label])
    labels = None if label is None else _labels(frame, label)
    if texts := [str(name) for name, kind in features.dtypes.items() if getattr(kind, "kind", "O") not in "fiu"]:
        raise ValueError(f"The columns {', '.join(texts)} are no numbers: drop or encode them, or name one as label=.")
    if labels is None and list(features.columns) == list(range(features.shape[1])):
        return Upload(_array_body(features.to_numpy()), index=frame.index)
    names = [str(name) for name in features.columns]
    if numbers := [name for name in names if _is_number(name)]:
        raise ValueError(f"The name {numbers[0]!r} would be read as a value: rename it, as by add_prefix('x').")

    def pieces() -> Iterator[bytes]:
        yield _csv([names if labels is None else [*names, label]])
        for start in range(0, len(features), _PIECE_ROWS):
            rows = features.iloc[start : start + _PIECE_ROWS].to_numpy().tolist()
            if labels is not None:
                rows = [[*row, text] for row, text in zip(rows, labels[start : start + _PIECE_ROWS], strict=True)]
            yield _csv(rows)

    return Upload(Body("text/csv", pieces), {} if label is None else {"label": label}, frame.index)


def _labels(frame: pd.DataFrame, label: str) -> list[Any]:
    if label in frame.columns:
        labels: Any = frame[label]
    elif label in frame.index.names:
        labels = frame.index.get_level_values(label)
    else:
        raise ValueError(f"There is no column {label!r}: name one of {', '.join(map(str, frame.columns))}.")
    if labels.isna().any():
        raise ValueError(f"The label {label!r} is missing in {int(labels.isna().sum())} rows: fill or drop them.")
    return list(labels)


def _csv(rows: list[list[Any]]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue().encode()


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
