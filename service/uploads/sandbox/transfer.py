"""Shared file of the API and a reader process: first the request, then the outcome in its place.

A request is JSON. An outcome is the bytes of arrays, then JSON, then the length of the JSON in eight bytes. An array
that is mapped from the body is not copied; the outcome has its offset.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np

from service.uploads.column_roles import ColumnRoles
from service.uploads.limits import Limits
from worker.records.dataset import EXTRAS, Table

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]

_ALIGNED = 64  # bytes
_LENGTH = 8  # bytes
_MOST_JSON = 2**27  # bytes: 10,000 names of 1,000 characters take a third
_KINDS = "fiubU"  # of dtypes
_MEMBERS = ("values", *EXTRAS)


@dataclass(frozen=True)
class ReadRequest:
    """Request to read a body: its media type, options and limits; with `cap`, to unpack a layer of it.

    `cap` is the most bytes of the content, or 0 to read a table; with `tenant`, to read a tenant's exported posterior
    with the numerics version `numbers`.
    """

    content_type: str
    limits: Limits
    roles: ColumnRoles
    memory: int  # bytes beyond those at the start of the reader process
    cpu: int  # seconds of processor time
    encoding: str = ""
    cap: int = 0
    tenant: str = ""
    numbers: str = ""

    def write(self, file: IO[bytes]) -> None:
        """Write the request into an empty file."""
        file.write(json.dumps(asdict(self)).encode())
        file.flush()

    @classmethod
    def read(cls, file: IO[bytes]) -> Self:
        """Return the request of a file, and empty the file."""
        file.seek(0)
        fields = json.loads(file.read())
        file.seek(0)
        file.truncate()
        return cls(**{**fields, "limits": Limits(**fields["limits"]), "roles": ColumnRoles.of(fields["roles"])})


def write_table(file: IO[bytes], table: Table) -> None:
    """Write a table as the outcome; copy the arrays that are not mapped from the body."""
    arrays = {"values": table.values, **table.extras}
    locations = {name: _mapped(array) or _copied(file, array) for name, array in arrays.items()}
    write_outcome(file, {"table": {**locations, "names": table.names, "source": table.source}})


def write_outcome(file: IO[bytes], outcome: dict[str, Any]) -> None:
    """Write an outcome without arrays."""
    encoded = json.dumps(outcome).encode()
    file.write(encoded)
    file.write(len(encoded).to_bytes(_LENGTH, "little"))
    file.flush()


def content_length(file: IO[bytes]) -> int:
    """Return the bytes before the JSON of a complete outcome."""
    size = os.fstat(file.fileno()).st_size
    return size - _LENGTH - int.from_bytes(os.pread(file.fileno(), _LENGTH, size - _LENGTH), "little")


def read_outcome(file: IO[bytes]) -> dict[str, Any]:
    """Return the outcome of a file.

    Raises
    ------
    ValueError
        If the outcome is incomplete.

    """
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(os.pread(file.fileno(), _LENGTH, max(0, size - _LENGTH)), "little")
    if not 0 < length <= min(_MOST_JSON, size - _LENGTH):
        raise ValueError("the outcome is incomplete")
    outcome = json.loads(os.pread(file.fileno(), length, size - _LENGTH - length))
    if not isinstance(outcome, dict):
        raise TypeError("the outcome is not an object")
    return outcome


def table_of(outcome: dict[str, Any], body: IO[bytes], result: IO[bytes]) -> Table:
    """Return the table of an outcome, with its arrays mapped from the body and the result file.

    Raises
    ------
    ValueError, TypeError, KeyError
        If an array has an unexpected dtype, or is not within its file.

    """
    files = {"body": body, "result": result}
    arrays = {name: _array(files[outcome[name]["file"]], outcome[name]) for name in _MEMBERS if name in outcome}
    return Table(**arrays, names=outcome["names"], source=outcome["source"])


def _mapped(array: Array) -> dict[str, Any] | None:
    """Return the location of an array in the body, or None if it is not a whole map of it."""
    if not isinstance(array, np.memmap) or array.base is None or isinstance(array.base, np.ndarray):
        return None
    order = "C" if array.flags.c_contiguous else "F"
    return {"file": "body", "offset": array.offset, "dtype": array.dtype.str, "shape": array.shape, "order": order}


def _copied(file: IO[bytes], array: Array) -> dict[str, Any]:
    """Write an array; return its location."""
    offset = -(-file.tell() // _ALIGNED) * _ALIGNED
    file.seek(offset)
    file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return {"file": "result", "offset": offset, "dtype": array.dtype.str, "shape": array.shape, "order": "C"}


def _array(file: IO[bytes], location: dict[str, Any]) -> Array:
    dtype, shape, offset = np.dtype(location["dtype"]), tuple(location["shape"]), location["offset"]
    if dtype.kind not in _KINDS or not all(type(size) is int and size > 0 for size in (*shape, dtype.itemsize)):
        raise ValueError(f"unexpected array of {dtype} and shape {shape}")
    if (
        type(offset) is not int
        or not 0 <= offset <= os.fstat(file.fileno()).st_size - math.prod(shape) * dtype.itemsize
    ):
        raise ValueError("an array is not within its file")
    return np.memmap(file, dtype, "r", offset, shape, "F" if location["order"] == "F" else "C")
