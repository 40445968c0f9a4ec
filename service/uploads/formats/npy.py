"""npy bodies: the header is checked against the body's length before anything is allocated, never a pickle."""

from __future__ import annotations

import io
import math
import os
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy

from worker.base.files import NPY_HEADER_LOCK
from worker.base.problems import ProblemError, refuse
from worker.storage.datasets import Table

if TYPE_CHECKING:
    from service.uploads.label_columns import Apart
    from service.uploads.limits import Limits

_NUMBERS = "fiu"
_HEADERS = {(1, 0): (2, npy.read_array_header_1_0), (2, 0): (4, npy.read_array_header_2_0)}  # bytes of its length
_MOST_HEADER = 10_000  # bytes: numpy's own limit, which it looks at when it has read them all


def read_npy(file: IO[bytes], limits: Limits, apart: Apart) -> Table:
    """Return the matrix of an npy file, mapped from it.

    Raises
    ------
    ProblemError
        ``malformed-npy``, ``unsupported-dtype``, ``truncated-npy``, ``label-not-here`` or a shape that is
        refused.

    """
    apart.refuse_all("an npy body has no names.", "Send npz with labels and color as members, or leave it out.")
    shape, fortran, dtype = read_header(file)
    check_matrix(shape, dtype, limits)
    offset = file.tell()
    check_length(shape, dtype, os.fstat(file.fileno()).st_size - offset)
    order = "F" if fortran else "C"
    values = np.memmap(file, dtype, "r", offset, shape, order)  # type: ignore[call-overload] # IO[bytes] will do
    return Table(values=values, source={"kind": "upload", "format": "npy"})


def check_matrix(shape: tuple[int, ...], dtype: np.dtype[Any], limits: Limits) -> None:
    """Raise a problem unless this is a matrix of real numbers within the limits."""
    if dtype.kind not in _NUMBERS:
        raise refuse(
            "unsupported-dtype",
            422,
            f"The array is of dtype {dtype}.",
            "Send real numbers: convert with .astype(float). Objects are never unpickled.",
            dtype=str(dtype),
        )
    limits.check(shape)


def check_length(shape: tuple[int, ...], dtype: np.dtype[Any], came: int) -> None:
    """Raise a problem unless as many bytes came as the header announces."""
    announced = math.prod(shape) * dtype.itemsize
    if came != announced:
        raise refuse(
            "truncated-npy" if came < announced else "malformed-npy",
            422,
            f"The header announces {announced:,} bytes of values (shape {shape}, {dtype}); {came:,} came.",
            "Send the whole file, and nothing after it, such as with curl's --data-binary.",
            announced=announced,
            came=came,
        )


def read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, whether it is in Fortran order, and dtype; `file` then stands at the values."""
    try:
        length, parse = _HEADERS[npy.read_magic(file)]
        prefix = file.read(length)
        # One that is longer is read as far as numpy refuses: what announces four gigabytes brings them.
        announced = min(int.from_bytes(prefix, "little"), _MOST_HEADER + 1)
        header = io.BytesIO(prefix + file.read(announced))
        with NPY_HEADER_LOCK:
            shape, fortran, dtype = parse(header)
    except Exception as error:  # noqa: BLE001 # its parser evaluates the text: any kind may come
        raise _malformed(str(error)) from None
    # The parser takes any int for a length, True and -1 among them.
    if not all(type(size) is int and 0 <= size < 2**62 for size in shape):
        raise _malformed(f"shape {shape}")
    return shape, fortran, dtype


def _malformed(reason: str) -> ProblemError:
    return refuse(
        "malformed-npy",
        422,
        f"The body is not an npy file: {reason[:200]}.",
        "Send what numpy.save writes, as application/x-npy; text belongs in text/csv.",
    )
