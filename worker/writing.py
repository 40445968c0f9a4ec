"""Files that are there whole or not at all, and what room they take."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


PREFIX = ".unfinished-"  # of the names of temporary files


def size(path: Path) -> int:
    """Return the bytes of a file, 0 where there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


class Temporary:
    """A file being written, readable by its owner alone; `publish` gives it its name, whole."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.write = file.write

    def publish(self, path: Path) -> None:
        """Put it in the place of what was there."""
        self._file.flush()
        os.fsync(self._file.fileno())
        Path(self._file.name).replace(path)


@contextlib.contextmanager
def temporary(folder: Path) -> Iterator[Temporary]:
    """Yield a temporary file in `folder`, gone afterwards unless it was published.

    It is locked for as long: so `remove_abandoned` can tell a file whose writer was killed.
    """
    file = _locked(folder)
    try:
        with file:
            yield Temporary(file)
    finally:
        Path(file.name).unlink(missing_ok=True)


def remove_abandoned(folder: Path) -> int:
    """Remove the temporary files of a folder whose writers were killed; return how many."""
    found = 0
    for path in folder.glob(PREFIX + "*"):
        with contextlib.suppress(FileNotFoundError, BlockingIOError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
            found += 1
    return found


def _locked(folder: Path) -> IO[bytes]:
    """Return a new temporary file, locked; one that was taken for abandoned before it was is made anew."""
    while True:
        file = tempfile.NamedTemporaryFile(dir=folder, prefix=PREFIX, delete=False)  # noqa: SIM115 # the caller closes it
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()
