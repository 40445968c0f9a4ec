"""npy bodies: the header is checked against the body's length before anything is allocated, never a pickle."""

from __future__ import annotations

import math
import os
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy

from worker.datasets import Table
from worker.problems import ProblemError, refuse

if TYPE_CHECKING:
    from service.readers.shape import Limits

_NUMBERS = "fiu"
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_npy(file: IO[bytes], limits: Limits, label: str | None = None) -> Table:
    """Return the matrix of an npy file, mapped from it.

    Raises
    ------
    ProblemError
        ``malformed-npy``, ``unsupported-dtype``, ``truncated-npy``, ``label-not-here`` or a shape that is
        refused.

    """
    if label is not None:
        remedy = "Send CSV or JSON to set labels apart, or leave ?label= out."
        raise refuse("label-not-here", 422, "An npy body has no column names to find a label by.", remedy)
    shape, fortran, dtype = _header(file)
    if dtype.kind not in _NUMBERS:
        raise refuse(
            "unsupported-dtype",
            422,
            f"The array is of dtype {dtype}.",
            "Send real numbers: convert with .astype(float). Objects are never unpickled.",
            dtype=str(dtype),
        )
    limits.check(shape)
    offset = file.tell()
    came = os.fstat(file.fileno()).st_size - offset
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
    order = "F" if fortran else "C"
    values = np.memmap(file, dtype, "r", offset, shape, order)  # type: ignore[call-overload] # IO[bytes] will do
    return Table(values=values, source={"kind": "upload", "format": "npy"})


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = npy.read_magic(file)
        shape, fortran, dtype = _HEADERS[version](file)
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
