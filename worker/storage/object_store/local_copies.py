"""Local copies of stored objects, bounded in bytes: a copy may vanish at any time, and is read again."""

from __future__ import annotations

import errno
import os
import shutil
import time
from typing import TYPE_CHECKING

from worker.base.files import PREFIX, remove_abandoned, restrict_folder, temporary
from worker.base.problems import refuse
from worker.storage.free_space import nearest_existing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

MAX_COPIES = 2**32  # bytes
RECENT_SECONDS = 60.0  # a copy stays for so long after its last use, so that a reader can open it
_REMEDY = "Enlarge the disk of GLLE_DATA_DIR on this machine, or keep other files elsewhere."
_WRITABLE = "With an object store workers need a GLLE_DATA_DIR that their user can write, too."


def copies_limit(folder: Path) -> int:
    """Return the bytes of the copies that a machine keeps in a folder: a quarter of the disk at most."""
    return min(MAX_COPIES, shutil.disk_usage(nearest_existing(folder)).total // 4)


class LocalCopies:
    """Folder of copies, named by the paths of their objects, which never change.

    Any number of processes of a machine may share it. A removed copy stays readable where it is open. A copy is as long
    as its object; its reader compares the content with a digest.

    Parameters
    ----------
    folder
        Created by the first copy.
    max_bytes
        Bytes of all copies, the least recently used are removed. Copies in use, and the last one, may exceed it.

    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes

    def get(self, name: str, size: int, read: Callable[[], Iterable[bytes]]) -> Path:
        """Return the path of a copy; a missing one is read.

        Raises
        ------
        FileNotFoundError
            The object is missing or shorter.
        ProblemError
            ``storage-full``, ``data-folder-read-only``.

        """
        path = self._folder / name
        try:
            status = path.stat()
            if status.st_size == size:
                os.utime(path, ns=(time.time_ns(), status.st_mtime_ns))  # the last use, on any file system
                return path
        except FileNotFoundError:  # or removed in between
            pass
        try:
            self._read(path, size, read)
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                detail = "There is no space left for a copy of a data set."
                raise refuse("storage-full", 507, detail, _REMEDY) from error
            if error.errno in {errno.EROFS, errno.EACCES, errno.EPERM}:
                detail = f"{self._folder} cannot be written: {error.strerror}."
                raise refuse("data-folder-read-only", 503, detail, _WRITABLE) from error
            raise
        return path

    def _read(self, path: Path, size: int, read: Callable[[], Iterable[bytes]]) -> None:
        restrict_folder(self._folder)
        with temporary(self._folder) as file:
            self._make_room(size)
            if sum(file.write(piece) for piece in read()) != size:
                raise FileNotFoundError(errno.ENOENT, "The stored object is missing or shorter", path.name)
            file.publish(path)

    def discard(self, name: str) -> None:
        """Remove a copy, if it exists."""
        (self._folder / name).unlink(missing_ok=True)

    def remove_abandoned(self) -> int:
        """Remove the temporary files of killed writers; return their number."""
        return remove_abandoned(self._folder) if self._folder.is_dir() else 0

    def _make_room(self, size: int) -> None:
        """Remove copies until one of `size` bytes fits, except those in use."""
        copies: list[tuple[int, int, str]] = []
        with os.scandir(self._folder) as files:
            for file in files:
                if not file.name.startswith(PREFIX):
                    try:
                        status = file.stat()
                    except FileNotFoundError:  # another process removed it
                        continue
                    copies.append((status.st_atime_ns, status.st_size, file.path))
        excess = sum(nbytes for _, nbytes, _ in copies) + size - self._max_bytes
        recent = time.time_ns() - int(RECENT_SECONDS * 1e9)
        for used, nbytes, path in sorted(copies):
            if excess <= 0 or used > recent:
                return
            (self._folder / path).unlink(missing_ok=True)
            excess -= nbytes
