"""Data on the way in: arrays, frames and files as bodies, made piece by piece as they are sent."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy

from glle.transport.calls import NPY, Body

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

Array = np.ndarray[Any, np.dtype[Any]]

_PIECE_BYTES = 2**20
_ROWS = 2048

MEDIA = {
    ".npy": NPY,
    ".npz": "application/zip",
    ".csv": "text/csv",
    ".json": "application/json",
    ".parquet": "application/vnd.apache.parquet",
    ".arrow": "application/vnd.apache.arrow.stream",
    ".arrows": "application/vnd.apache.arrow.stream",
}


@dataclass(frozen=True)
class Upload:
    """A data set to send.

    Parameters
    ----------
    index
        The index of the frame that it came from, for the frames that are made of its embeddings.

    """

    body: Body
    query: dict[str, str] = field(default_factory=dict)
    index: Any = None


def upload_of(data: Any, label: str | None = None) -> Upload:
    """Return what is sent for an array, a frame, nested lists, or the path of a file.

    Parameters
    ----------
    label
        Of a frame (a column, or a level of the index) or a CSV file: what is set apart as labels.

    Raises
    ------
    ValueError
        For what the service could not be sent without a loss; the message says the remedy.

    """
    if isinstance(data, (str, Path)):
        return _of_file(Path(data), label)
    if hasattr(data, "iloc") and hasattr(data, "columns"):
        return _of_frame(data, label)
    if label is not None:
        raise ValueError("An array has no columns to find a label by: give a pandas.DataFrame, or a CSV file.")
    return Upload(_of_array(np.asarray(data)))


def _of_file(path: Path, label: str | None) -> Upload:
    media = MEDIA.get(path.suffix.lower())
    if media is None:
        raise ValueError(f"{path} is none of {', '.join(MEDIA)}: read it, and give the array.")
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    return Upload(Body.of_file(path, media), {} if label is None else {"label": label})


def _of_array(array: Array) -> Body:
    """Return an array as npy, in C order, a megabyte at a time."""
    if array.dtype.kind not in "fiu":
        raise ValueError(f"The array is of dtype {array.dtype}: convert it with .astype(float).")
    buffer = io.BytesIO()
    header = {"descr": npy.dtype_to_descr(array.dtype), "fortran_order": False, "shape": array.shape}
    npy.write_array_header_1_0(buffer, header)
    head = buffer.getvalue()

    def pieces() -> Iterator[bytes]:
        yield head
        rows = max(1, _PIECE_BYTES * len(array) // max(1, array.nbytes)) if array.ndim else 1
        for start in range(0, len(array), rows) if array.ndim else ():
            yield np.ascontiguousarray(array[start : start + rows]).tobytes()
        if not array.ndim:
            yield array.tobytes()

    return Body(NPY, pieces, len(head) + array.nbytes)


def _of_frame(frame: pd.DataFrame, label: str | None) -> Upload:
    """Return a frame as CSV, with its names; as npy when its columns are but numbered."""
    features = frame if label is None or label not in frame.columns else frame.drop(columns=[label])
    labels = _labels(frame, label)
    if words := [str(name) for name, kind in features.dtypes.items() if getattr(kind, "kind", "O") not in "fiu"]:
        raise ValueError(f"The columns {', '.join(words)} are no numbers: drop or encode them, or name one as label=.")
    if labels is None and list(features.columns) == list(range(features.shape[1])):
        return Upload(_of_array(features.to_numpy()), index=frame.index)
    names = [str(name) for name in features.columns]
    if numbers := [name for name in names if _is_number(name)]:
        raise ValueError(f"The name {numbers[0]!r} would be read as a value: rename it, as by add_prefix('x').")

    def pieces() -> Iterator[bytes]:
        yield _csv([names if labels is None else [*names, label]])
        for start in range(0, len(features), _ROWS):
            rows = features.iloc[start : start + _ROWS].to_numpy().tolist()
            if labels is not None:
                rows = [[*row, own] for row, own in zip(rows, labels[start : start + _ROWS], strict=True)]
            yield _csv(rows)

    query = {} if labels is None or label is None else {"label": label}
    return Upload(Body("text/csv", pieces), query, frame.index)


def _labels(frame: pd.DataFrame, label: str | None) -> list[Any] | None:
    if label is None:
        return None
    if label in frame.columns:
        found: Any = frame[label]
    elif label in frame.index.names:
        found = frame.index.get_level_values(label)
    else:
        raise ValueError(f"There is no column {label!r}: name one of {', '.join(map(str, frame.columns))}.")
    if found.isna().any():
        raise ValueError(f"The label {label!r} is missing in {int(found.isna().sum())} rows: fill it in, or drop them.")
    return list(found)


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
