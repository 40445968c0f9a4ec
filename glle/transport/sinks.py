"""Where the bodies of answers go: an array that is filled as it comes, a file, an archive of arrays."""

from __future__ import annotations

import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

Array = np.ndarray[Any, np.dtype[Any]]

_IN_MEMORY = 16 * 2**20
_PREFIX = 12  # bytes of magic, version and the longest length of a header


class Whole:
    """Keeps a small body as bytes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, piece: bytes) -> None:
        """Take the next bytes."""
        self._parts.append(piece)

    def end(self) -> bytes:
        """Return them."""
        return b"".join(self._parts)

    def drop(self) -> None:
        """Let go of them."""
        self._parts.clear()


class NpySink:
    """Fills an array as its npy file comes: at no time is there more than the array and one piece."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._array: Array | None = None
        self._room = memoryview(bytearray())
        self._filled = 0

    def feed(self, piece: bytes) -> None:
        """Take the next bytes."""
        if self._array is None:
            self._head += piece
            piece = self._begin()
        if len(piece) > len(self._room) - self._filled:
            raise ValueError("The npy body is longer than its header says.")
        self._room[self._filled : self._filled + len(piece)] = piece
        self._filled += len(piece)

    def end(self) -> Array:
        """Return the array."""
        if self._array is None or self._filled != len(self._room):
            raise ValueError("The npy body is shorter than its header says.")
        return self._array

    def drop(self) -> None:
        """Let go of the array."""
        self._array, self._room = None, memoryview(bytearray())

    def _begin(self) -> bytes:
        """Make room for the array once its header is there; return what came after the header."""
        if len(self._head) < _PREFIX:
            return b""
        major = self._head[6]
        start, size = (10, self._head[8:10]) if major == 1 else (12, self._head[8:12])
        if len(self._head) < start + int.from_bytes(size, "little"):
            return b""
        file = io.BytesIO(self._head)
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(file)
        if dtype.hasobject:
            raise ValueError("Objects are never unpickled.")
        flat = np.empty(int(np.prod(shape, dtype=np.int64)), dtype)
        self._array = flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)
        self._room = flat.view(np.uint8).data
        return bytes(self._head[file.tell() :])


class NpzSink:
    """Keeps an archive, on disk when it is large, and reads its arrays at the end."""

    def __init__(self) -> None:
        # Closed by `end` or `drop`.
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 # it outlives this block

    def feed(self, piece: bytes) -> None:
        """Take the next bytes."""
        self._file.write(piece)

    def end(self) -> dict[str, Array]:
        """Return the arrays by name."""
        self._file.seek(0)
        with self._file, np.load(self._file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}

    def drop(self) -> None:
        """Let go of the archive."""
        self._file.close()


class FileSink:
    """Writes an npy file, which is there when it is whole; the array is mapped from it.

    Parameters
    ----------
    path
        Written beside itself first: what stood there stays until the new one is whole.

    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = Path(tempfile.mkdtemp(prefix=path.name, dir=path.parent))
        self._file = (self._folder / path.name).open("wb")

    def feed(self, piece: bytes) -> None:
        """Take the next bytes."""
        self._file.write(piece)

    def end(self) -> Array:
        """Return the array, mapped from the file."""
        self._file.close()
        (self._folder / self._path.name).replace(self._path)
        self._folder.rmdir()
        array: Array = np.load(self._path, mmap_mode="r", allow_pickle=False)
        return array

    def drop(self) -> None:
        """Remove what was written."""
        self._file.close()
        shutil.rmtree(self._folder)
