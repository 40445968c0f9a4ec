"""Write files durably and atomically, readable by their owner only.

A file is written under a temporary name, synced and renamed. The rename is durable only after an fsync of the folder:
without this fsync, a power cut can undo the rename.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import tempfile
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING

from worker.base.disk import open_reserving

if TYPE_CHECKING:
    from collections.abc import Iterator


PREFIX = ".unfinished-"  # prefix of temporary file names
FOLDER_MODE, FILE_MODE = 0o700, 0o600
# Errors of fsync on a folder that are ignored: some network and FUSE file systems have no such call.
_NO_FOLDER_FSYNC = {errno.EINVAL, errno.ENOTSUP}
# Python 3.11 may raise SystemError if two threads parse npy headers at once (python/cpython#106905).
NPY_HEADER_LOCK = threading.Lock()


class Temporary:
    """A file that is written under a temporary name; `publish` renames the file to its final name."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file = file
        self._path = path
        self.write = file.write

    def publish(self, path: Path) -> None:
        """Rename the temporary file to `path`, replacing any file there; the result survives a power cut."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._path.replace(path)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames and deletions in a folder durable, by an fsync of the folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_FSYNC:
            raise
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, with access for their owner only; they survive a power cut."""
    if folder.is_dir():
        return
    make_folder(folder.absolute().parent)
    with contextlib.suppress(FileExistsError):  # another process has just created the folder
        folder.mkdir(mode=FOLDER_MODE)
    sync_folder(folder.absolute().parent)


@contextlib.contextmanager
def temporary(folder: Path, *, keep_reserve: bool = False) -> Iterator[Temporary]:
    """Yield a temporary file in `folder`; remove the file at the end of the context unless it was published.

    The file is locked during the context, so that `remove_abandoned` can tell it from the file of a killed writer.

    Parameters
    ----------
    keep_reserve
        Whether a write that would use the reserve of free disk space (`worker.base.disk`) raises the `ProblemError`
        ``storage-full`` instead.

    """
    locked = _create_locked(folder)
    path = Path(locked.name)
    try:
        with locked, open_reserving(os.dup(locked.fileno())) if keep_reserve else nullcontext(locked) as file:
            yield Temporary(file, path)
    finally:
        path.unlink(missing_ok=True)


def remove_abandoned(folder: Path) -> int:
    """Remove temporary files that no process has locked, because their writers were killed; return their number."""
    removed = 0
    for path in folder.glob(PREFIX + "*"):
        with contextlib.suppress(FileNotFoundError, BlockingIOError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
            removed += 1
    return removed


def _create_locked(folder: Path) -> IO[bytes]:
    """Return a new temporary file in `folder`, with an exclusive lock on it."""
    while True:
        file = tempfile.NamedTemporaryFile(dir=folder, prefix=PREFIX, delete=False)  # noqa: SIM115 # the caller closes it
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # `remove_abandoned` removed the file before it was locked
