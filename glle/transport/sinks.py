"""Receivers of response bodies: an array, an archive, a file."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

_IN_MEMORY_BYTES = 16 * 2**20  # of a larger body only the array is in memory


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


class SpooledSink(Sink):
    """Body in memory, or on disk if it is large."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115 # `end` or `drop` closes it


class NpySink(SpooledSink):
    """Array of an npy body."""

    def end(self) -> Array:
        """Return the array."""
        self._file.seek(0)
        with self._file:
            array: Array = np.load(self._file, allow_pickle=False)
            if self._file.read(1):
                raise ValueError("The npy body is longer than its header says.")
        return array


class NpzSink(SpooledSink):
    """Arrays of an npz body."""

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
