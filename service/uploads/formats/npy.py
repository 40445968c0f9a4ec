"""npy bodies: check the header against the length before any allocation; never unpickle."""

from __future__ import annotations

import io
import math
import os
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy

from service.uploads.row_texts import build_table
from worker.base.files import NPY_HEADER_LOCK
from worker.base.problems import ProblemError, refuse

if TYPE_CHECKING:
    from service.uploads.column_roles import ColumnRoles
    from service.uploads.limits import Limits
    from worker.records.dataset import Table

_NUMBERS = "fiub"
_HEADERS = {(1, 0): (2, npy.read_array_header_1_0), (2, 0): (4, npy.read_array_header_2_0)}  # bytes of its length
_MAX_HEADER = 10_000  # bytes: numpy's limit, which it checks only after reading


def read_npy(file: IO[bytes], out: IO[bytes], limits: Limits, roles: ColumnRoles) -> Table:
    """Return the matrix of an npy file, mapped from it.

    Raises
    ------
    ProblemError
        ``malformed-npy``, ``unsupported-dtype``, ``truncated-npy``, ``label-not-here``, or that of the shape.

    """
    del out
    roles.require_none("an npy body has no names.", "Send npz with the members labels and color, or leave it out.")
    shape, fortran, dtype = read_header(file)
    check_matrix(shape, dtype, limits)
    offset = file.tell()
    check_length(shape, dtype, os.fstat(file.fileno()).st_size - offset)
    order = "F" if fortran else "C"
    values = np.memmap(file, dtype, "r", offset, shape, order)  # type: ignore[call-overload] # IO[bytes] will do
    return build_table("npy", values)


def check_matrix(shape: tuple[int, ...], dtype: np.dtype[Any], limits: Limits) -> None:
    """Raise a problem unless shape and dtype are those of a matrix of real numbers within the limits."""
    if dtype.kind not in _NUMBERS:
        remedy = "Send real numbers: convert with .astype(float). Objects are never unpickled."
        raise refuse("unsupported-dtype", 422, f"The array is of dtype {dtype}.", remedy, dtype=str(dtype))
    limits.check(shape)


def check_length(shape: tuple[int, ...], dtype: np.dtype[Any], received: int) -> None:
    """Raise a problem unless the number of bytes is that of the header."""
    announced = math.prod(shape) * dtype.itemsize
    if received != announced:
        code = "truncated-npy" if received < announced else "malformed-npy"
        detail = f"The header announces {announced:,} bytes of values (shape {shape}, {dtype}); {received:,} arrived."
        remedy = "Send the whole file and nothing else, for example with curl --data-binary."
        raise refuse(code, 422, detail, remedy, announced=announced, came=received)


def read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, Fortran order and dtype; leave `file` at the values."""
    try:
        length, parse = _HEADERS[npy.read_magic(file)]
        prefix = file.read(length)
        # Read at most one byte more than numpy accepts, because the announced length may be 4 GB.
        announced = min(int.from_bytes(prefix, "little"), _MAX_HEADER + 1)
        header = io.BytesIO(prefix + file.read(announced))
        with NPY_HEADER_LOCK:
            shape, fortran, dtype = parse(header)
    except Exception as error:  # noqa: BLE001 # numpy evaluates the text: any exception may follow
        raise _malformed_array(str(error)) from None
    # The parser accepts any int as a length, even True and -1.
    if not all(type(size) is int and 0 <= size < 2**62 for size in shape):
        raise _malformed_array(f"shape {shape}")
    return shape, fortran, dtype


def _malformed_array(reason: str) -> ProblemError:
    remedy = "Write it with numpy.save and send it as application/x-npy; send text as text/csv."
    return refuse("malformed-npy", 422, f"The body is not an npy file: {reason[:200]}.", remedy)
