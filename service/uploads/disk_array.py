"""Values that were packed, unpacked behind the body's end in its own temporary file, so that memory stays flat."""

from __future__ import annotations

import os
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from worker.base.problems import ProblemError, refuse

if TYPE_CHECKING:
    from service.uploads.limits import Limits

NO_MEMORY = "std::bad_alloc"  # in the words of a library of C++ that has none left
_ALIGNED = 64


class Appended:
    """Rows of a matrix, written one block after the other.

    Parameters
    ----------
    file
        The body.
    dtype, features
        Of the matrix.

    """

    def __init__(self, file: IO[bytes], dtype: np.dtype[Any], features: int) -> None:
        self._file = file
        self._dtype = dtype
        self._features = features
        size = os.fstat(file.fileno()).st_size
        self._begin = self._end = -(-size // _ALIGNED) * _ALIGNED

    def write(self, block: bytes | memoryview) -> None:
        """Append the bytes of some rows."""
        view = memoryview(block)
        while view:  # written through the file, not a map: a full disk is then an error, and not a signal
            done = os.pwrite(self._file.fileno(), view, self._end)
            self._end += done
            view = view[done:]

    def values(self, order: str = "C") -> np.ndarray[Any, Any]:
        """Return what was written, mapped from the file."""
        rows = (self._end - self._begin) // (self._dtype.itemsize * self._features)
        shape = (rows, self._features)
        return np.memmap(self._file, self._dtype, "r", self._begin, shape, order)  # type: ignore[call-overload, no-any-return] # IO[bytes] will do


def check_inflated(what: str, size: int, limits: Limits) -> None:
    """Refuse a body that takes more bytes unpacked than is allowed."""
    if size > limits.inflated:
        raise too_large(what, size, limits.inflated)


def too_large(what: str, size: int, allowed: int) -> ProblemError:
    """Return the problem of a body that is larger unpacked than is allowed."""
    return refuse(
        "inflated-too-large",
        413,
        f"{what} takes {size:,} bytes unpacked; {allowed:,} are allowed.",
        "Send fewer rows or columns, or raise GLLE_MAX_INFLATED.",
        bytes=size,
        allowed=allowed,
    )
