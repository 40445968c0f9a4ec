"""Messages of the API and a reader process: a request and an outcome as JSON, with the arrays in a file.

Nothing that a reader writes is unpickled, and no array is mapped beyond its file.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, field
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np

from service.uploads.column_roles import ColumnRoles
from service.uploads.limits import Limits
from worker.records.dataset import EXTRAS, Table

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]

_ALIGNED = 64  # bytes
_KINDS = "fiubU"  # of dtypes


@dataclass(frozen=True)
class ReadRequest:
    """Request to read a body: its media type, options and limits; with `cap`, to unpack a layer of it.

    `cap` is the most bytes of the content, or 0 to read a table; with `tenant`, to read a tenant's exported posterior
    with the numerics version `numbers`.
    """

    content_type: str
    limits: Limits
    memory: int  # bytes beyond those at the start of the reader process
    cpu: int  # seconds of processor time
    seconds: float  # of wall time
    roles: ColumnRoles = field(default_factory=ColumnRoles)
    encoding: str = ""
    cap: int = 0
    tenant: str = ""
    numbers: str = ""

    def encode(self) -> bytes:
        """Return the request as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def of(cls, encoded: bytes) -> Self:
        """Return the request of JSON."""
        fields = json.loads(encoded)
        return cls(**{**fields, "limits": Limits(**fields["limits"]), "roles": ColumnRoles.of(fields["roles"])})


def write_table(out: IO[bytes], table: Table) -> dict[str, Any]:
    """Return the outcome of a table; append the arrays that are not in the file."""
    out.seek(0, os.SEEK_END)
    arrays = {name: _place(out, array) for name, array in {"values": table.values, **table.extras}.items()}
    out.flush()
    return {"arrays": arrays, "names": table.names, "source": table.source}


def table_of(outcome: dict[str, Any], out: IO[bytes]) -> Table:
    """Return the table of an outcome, with its arrays mapped from the file.

    Raises
    ------
    ValueError, TypeError, KeyError
        If an array has an unexpected dtype, or is not within the file.

    """
    arrays = {name: _map_array(out, place) for name, place in outcome["arrays"].items() if name in ("values", *EXTRAS)}
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
