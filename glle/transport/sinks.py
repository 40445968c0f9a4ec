"""Receivers of response bodies: an array that is filled piece by piece, an archive, a file."""

from __future__ import annotations

import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

Array = np.ndarray[Any, np.dtype[Any]]

_IN_MEMORY_BYTES = 16 * 2**20
_PREFIX_BYTES = 12  # magic, version and the longest length field of a header


class Sink:
    """Receiver of a body piece by piece, so that memory never holds it twice."""

    _file: Any

    def feed(self, piece: bytes) -> None:
        """Write the next bytes."""
        self._file.write(piece)

    def end(self) -> Any:
        """Return the content, after the last bytes."""
        raise NotImplementedError

    def drop(self) -> None:
        """Release the content of a broken connection."""
        self._file.close()


class NpySink(Sink):
    """Array filled from an npy body; memory holds the array and one piece."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._array: Array | None = None
        self._buffer = memoryview(bytearray())
        self._filled = 0

    def feed(self, piece: bytes) -> None:
        """Copy the next bytes into the array."""
        if self._array is None:
            self._head += piece
            piece = self._allocate()
        if len(piece) > len(self._buffer) - self._filled:
            raise ValueError("The npy body is longer than its header says.")
        self._buffer[self._filled : self._filled + len(piece)] = piece
        self._filled += len(piece)

    def end(self) -> Array:
        """Return the array."""
        if self._array is None or self._filled != len(self._buffer):
            raise ValueError("The npy body is shorter than its header says.")
        return self._array

    def drop(self) -> None:
        """Release the array."""
        self._array, self._buffer = None, memoryview(bytearray())

    def _allocate(self) -> bytes:
        """Allocate the array if its header is complete; return the bytes after the header."""
        if len(self._head) < _PREFIX_BYTES:
            return b""
        start, size = (10, self._head[8:10]) if self._head[6] == 1 else (12, self._head[8:12])
        if len(self._head) < start + int.from_bytes(size, "little"):
            return b""
        file = io.BytesIO(self._head)
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, is_fortran, dtype = read(file)
        if dtype.hasobject:
            raise ValueError("The npy body holds Python objects, which are never unpickled.")
        flat = np.empty(int(np.prod(shape, dtype=np.int64)), dtype)
        self._array = flat.reshape(shape[::-1]).T if is_fortran else flat.reshape(shape)
        self._buffer = flat.view(np.uint8).data
        return bytes(self._head[file.tell() :])


class NpzSink(Sink):
    """Archive of arrays, on disk if it is large."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115 # `end` or `drop` closes it

    def end(self) -> dict[str, Array]:
        """Return the arrays by name."""
        self._file.seek(0)
        with self._file, np.load(self._file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}


class DownloadSink(Sink):
    """File that replaces `path` when it is complete."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = Path(tempfile.mkdtemp(prefix=path.name, dir=path.parent))
        self._file = (self._folder / path.name).open("wb")

    def end(self) -> Any:
        """Move the file to its path; return the path."""
        self._file.close()
        (self._folder / self._path.name).replace(self._path)
        self._folder.rmdir()
        return self._path

    def drop(self) -> None:
        """Remove the incomplete file."""
        super().drop()
        shutil.rmtree(self._folder)


class FileSink(DownloadSink):
    """Npy file that replaces `path` when it is complete; its array is memory-mapped."""

    def end(self) -> Array:
        """Move the file to its path; return its array."""
        array: Array = np.load(super().end(), mmap_mode="r", allow_pickle=False)
        return array
