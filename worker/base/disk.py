"""The reserve of a disk, and files that never use it.

Whatever is written below the data folder leaves the reserve free: bodies, their unpacked layers, what readers write,
data sets and results. The reserve is for the log of the embedded queue server, which ends when it cannot write. Writers
check the free space again and again, because several bodies may be unpacked at the same time.
"""

from __future__ import annotations

import io
import os
import tempfile
from typing import IO, TYPE_CHECKING, cast

from worker.base.problems import refuse

if TYPE_CHECKING:
    from pathlib import Path

    from _typeshed import ReadableBuffer

MAX_RESERVE = 2**28
BUFFER_BYTES = 2**16  # bytes written between two checks of the free space
DISK_REMEDY = (
    "Delete data sets, posteriors and results of jobs that are no longer needed, or enlarge the disk of GLLE_DATA_DIR."
)


def nearest_existing(folder: Path) -> Path:
    """Return a folder, or its nearest parent that exists, because only the first upload makes the folders."""
    return next(place for place in (folder, *folder.absolute().parents) if place.exists())


def free_bytes(folder: Path) -> int:
    """Return the bytes that this process can still write on a folder's disk."""
    return _free(os.statvfs(nearest_existing(folder)))


def disk_reserve(folder: Path) -> int:
    """Return the bytes that stay free on a folder's disk."""
    return reserve_of(os.statvfs(nearest_existing(folder)))


def require_room(folder: Path, nbytes: int) -> None:
    """Raise ``storage-full`` if writing `nbytes` more to a folder would leave less than the reserve."""
    _require(os.statvfs(nearest_existing(folder)), nbytes)


def require_room_in(file: IO[bytes], nbytes: int) -> None:
    """Raise ``storage-full`` if writing `nbytes` more to an open file would leave less than the reserve of its disk."""
    _require(os.fstatvfs(file.fileno()), nbytes)


def open_reserving(descriptor: int) -> IO[bytes]:
    """Return a file for reading and writing that raises ``storage-full`` before it uses the reserve of its disk."""
    return cast("IO[bytes]", io.BufferedRandom(_ReservingFile(descriptor, "r+b"), BUFFER_BYTES))


def temporary_file(folder: Path) -> IO[bytes]:
    """Return a file without a name in `folder`, which keeps the reserve as in `open_reserving`."""
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        return open_reserving(os.dup(file.fileno()))


def reserve_of(disk: os.statvfs_result) -> int:
    """Return the bytes that stay free on a disk: an eighth, and `MAX_RESERVE` at most."""
    return min(MAX_RESERVE, disk.f_blocks * disk.f_frsize // 8)


def _free(disk: os.statvfs_result) -> int:
    return disk.f_bavail * disk.f_frsize


def _require(disk: os.statvfs_result, nbytes: int) -> None:
    if (free := _free(disk)) - nbytes < (reserve := reserve_of(disk)):
        detail = f"{free:,} bytes are free on the disk of the data folder; {nbytes:,} more would leave less than "
        detail += f"the reserve of {reserve:,}."
        raise refuse("storage-full", 507, detail, DISK_REMEDY, free=free, needed=nbytes, reserve=reserve)


class _ReservingFile(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        _require(os.fstatvfs(self.fileno()), memoryview(data).nbytes)
        return super().write(data)

    def truncate(self, size: int | None = None, /) -> int:
        """Set the size and allocate new space: writing to a mapped file on a full disk would end the process."""
        end = self.tell() if size is None else size
        if (added := end - os.fstat(self.fileno()).st_size) > 0:
            _require(os.fstatvfs(self.fileno()), added)
            os.posix_fallocate(self.fileno(), end - added, added)
        return super().truncate(end)
