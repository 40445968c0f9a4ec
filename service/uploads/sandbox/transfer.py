"""Outcome of a reader process: JSON, with the arrays in a file.

Nothing that a reader writes is unpickled, and no array is mapped beyond its file.
"""

from __future__ import annotations

import math
import os
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from worker.records.dataset import EXTRAS, VALUES, Table

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]

_ALIGNED = 64  # bytes
_KINDS = "fiubU"  # of dtypes


def write_table(out: IO[bytes], table: Table) -> dict[str, Any]:
    """Return the outcome of a table; append the arrays that are not in the file."""
    out.seek(0, os.SEEK_END)
    arrays = {name: _place(out, array) for name, array in {VALUES: table.values, **table.extras}.items()}
    out.flush()
    return {"arrays": arrays, "names": table.names, "source": table.source}


def table_of(out: IO[bytes], outcome: dict[str, Any]) -> Table:
    """Return the table of an outcome, with its arrays mapped from the file.

    Raises
    ------
    ValueError, TypeError, KeyError, AttributeError
        If an array has an unexpected dtype, or is not within the file.

    """
    arrays = {name: _map_array(out, place) for name, place in outcome["arrays"].items() if name in (VALUES, *EXTRAS)}
    return Table(**arrays, names=outcome["names"], source=outcome["source"])


def _place(out: IO[bytes], array: Array) -> dict[str, Any]:
    """Return the location of an array that `map_rows` mapped from the file, or append it."""
    order = "C" if array.flags.c_contiguous or not array.flags.f_contiguous else "F"
    if isinstance(array, np.memmap) and array.mode == "r+":
        offset = array.offset
    else:
        offset = -(-out.tell() // _ALIGNED) * _ALIGNED
        out.seek(offset)
        out.write(np.ascontiguousarray(array if order == "C" else array.T).reshape(-1).view(np.uint8).data)
    return {"offset": offset, "dtype": array.dtype.str, "shape": array.shape, "order": order}


def _map_array(file: IO[bytes], location: dict[str, Any]) -> Array:
    dtype, shape, offset = np.dtype(location["dtype"]), tuple(location["shape"]), location["offset"]
    if dtype.kind not in _KINDS or not all(type(size) is int and size > 0 for size in (*shape, dtype.itemsize)):
        raise ValueError(f"unexpected array of {dtype} and shape {shape}")
    room = os.fstat(file.fileno()).st_size - math.prod(shape) * dtype.itemsize
    if type(offset) is not int or not 0 <= offset <= room:
        raise ValueError("an array is not within its file")
    return np.memmap(file, dtype, "r", offset, shape, "F" if location["order"] == "F" else "C")
