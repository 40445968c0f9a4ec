"""Array on disk, unpacked behind the end of the body in its temporary file, so that memory stays flat."""

from __future__ import annotations

import os
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from worker.base.problems import refuse

if TYPE_CHECKING:
    from service.uploads.limits import Limits

NO_MEMORY = "std::bad_alloc"  # message of a C++ library without memory
_ALIGNED = 64


class DiskArray:
    """Matrix of `features` columns that is appended to a body block by block."""

    def __init__(self, file: IO[bytes], dtype: np.dtype[Any], features: int) -> None:
        self._file = file
        self._dtype = dtype
        self._features = features
        size = os.fstat(file.fileno()).st_size
        self._begin = self._end = -(-size // _ALIGNED) * _ALIGNED

    def write(self, block: bytes | memoryview) -> None:
        """Append the bytes of a block of rows."""
        view = memoryview(block)
        while view:  # not by a map, because a full disk would be a signal and not an error
            size = os.pwrite(self._file.fileno(), view, self._end)
            self._end += size
            view = view[size:]

    def values(self, order: str = "C") -> np.ndarray[Any, Any]:
        """Return the rows, mapped from the file."""
        rows = (self._end - self._begin) // (self._dtype.itemsize * self._features)
        shape = (rows, self._features)
        return np.memmap(self._file, self._dtype, "r", self._begin, shape, order)  # type: ignore[call-overload, no-any-return] # IO[bytes] will do


def check_inflated(name: str, size: int, limits: Limits) -> None:
    """Raise a problem if a body takes more bytes unpacked than the limits allow."""
    if size > limits.inflated:
        raise refuse(
            "inflated-too-large",
            413,
            f"{name} takes {size:,} bytes unpacked; {limits.inflated:,} are allowed.",
            "Send fewer rows or columns, or raise GLLE_MAX_BODY.",
            bytes=size,
            allowed=limits.inflated,
        )
