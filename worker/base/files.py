"""Files that are whole or absent, on disk before an answer says so, and readable by their owner alone.

A rename is durable only after an fsync of its folder; without it a power cut brings the old file back, or none.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import tempfile
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


PREFIX = ".unfinished-"  # of the names of temporary files
FOLDER_MODE, FILE_MODE = 0o700, 0o600
_NO_FOLDER_FSYNC = {errno.EINVAL, errno.ENOTSUP}  # some network and FUSE file systems
# numpy has Python parse npy headers; two threads at once may get a SystemError in Python 3.11 (python/cpython#106905).
NPY_HEADER_LOCK = threading.Lock()


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
        """Replace the file at `path`, and return once content and name survive a power cut."""
        self._file.flush()
        os.fsync(self._file.fileno())
        Path(self._file.name).replace(path)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to disk, after renames and deletions."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_FSYNC:
            raise
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder, and missing ones above it, durable and open to their owner alone, whatever the umask."""
    if folder.is_dir():
        return
    make_folder(folder.absolute().parent)
    with contextlib.suppress(FileExistsError):  # made meanwhile by another process
        folder.mkdir(mode=FOLDER_MODE)
    sync_folder(folder.absolute().parent)


def restrict_folder(folder: Path) -> None:
    """Make a folder as `make_folder` does; close one that an earlier version left open to others."""
    make_folder(folder)
    if _is_exposed(folder.stat()):
        folder.chmod(FOLDER_MODE)


def _is_exposed(status: os.stat_result) -> bool:
    """Say whether others can open a file of this process's user; the modes of another's files are not ours to set."""
    return bool(status.st_mode & 0o077) and status.st_uid == os.geteuid()


@contextlib.contextmanager
def private_file(path: Path) -> Iterator[IO[str]]:
    """Open a file for writing, made when absent, that its owner alone can open."""
    make_folder(path.parent)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE), "w") as file:
        if _is_exposed(os.fstat(file.fileno())):  # an earlier version obeyed the umask
            os.fchmod(file.fileno(), FILE_MODE)
        yield file


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of this file, made with its folder when absent; wait while another process holds it.

    The file is its owner's alone, because any user who can open it could hold its lock for ever.
    """
    with private_file(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


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
