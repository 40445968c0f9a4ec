"""A reserve of free bytes on the disk of the data folder: writes that would use the reserve are refused.

The embedded Redis of the queue needs the reserve for its append-only file, because it exits when it cannot write. The
reserve is kept by everything else that is written below the data folder: uploaded bodies and their unpacked contents,
the output of the processes that read uploads, data sets and results. Each write checks the free space again, because
several bodies may be unpacked at once.
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

# The reserve of free disk space is 256 MiB (the default size of the embedded queue server), or an eighth of the disk if
# that is less.
MAX_RESERVE_BYTES = 2**28
BUFFER_BYTES = 2**16  # the free space is checked each time this many bytes have been written
DISK_REMEDY = (
    "Delete data sets, posteriors and results of jobs that are no longer needed, or enlarge the disk of GLLE_DATA_DIR."
)


def nearest_existing(folder: Path) -> Path:
    """Return `folder`, or its nearest existing parent if the first upload has not created the folder yet."""
    return next(place for place in (folder, *folder.absolute().parents) if place.exists())


def free_bytes(folder: Path) -> int:
    """Return how many bytes are free for this process on the disk of a folder."""
    return _free(os.statvfs(nearest_existing(folder)))


def disk_reserve(folder: Path) -> int:
    """Return how many bytes must stay free on a folder's disk: an eighth of the disk, at most `MAX_RESERVE_BYTES`."""
    return reserve_of(os.statvfs(nearest_existing(folder)))


def require_room(folder: Path, nbytes: int) -> None:
    """Raise the `ProblemError` ``storage-full`` if writing `nbytes` to a folder would use the reserve of its disk."""
    _require(os.statvfs(nearest_existing(folder)), nbytes)


def require_room_in(file: IO[bytes], nbytes: int) -> None:
    """Raise the `ProblemError` ``storage-full`` if `nbytes` more in an open file would use the reserve of its disk."""
    _require(os.fstatvfs(file.fileno()), nbytes)


def open_reserving(descriptor: int) -> IO[bytes]:
    """Return a file for an open descriptor.

    A write that would use the reserve of free disk space raises the `ProblemError` ``storage-full``.
    """
    return cast("IO[bytes]", io.BufferedRandom(_ReservingFile(descriptor, "r+b"), BUFFER_BYTES))


def temporary_file(folder: Path) -> IO[bytes]:
    """Return an unnamed temporary file.

    A write that would use the reserve of free disk space raises the `ProblemError` ``storage-full``.
    """
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        return open_reserving(os.dup(file.fileno()))


def reserve_of(disk: os.statvfs_result) -> int:
    """Return how many bytes of a disk must stay free: an eighth of the disk, at most `MAX_RESERVE_BYTES`."""
    return min(MAX_RESERVE_BYTES, disk.f_blocks * disk.f_frsize // 8)


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
        """Set the file's size, and allocate the added bytes on the disk.

        Without the allocation, a process that writes to the mapped file would be killed when the disk is full.
        """
        end = self.tell() if size is None else size
        if (added := end - os.fstat(self.fileno()).st_size) > 0:
            _require(os.fstatvfs(self.fileno()), added)
            os.posix_fallocate(self.fileno(), end - added, added)
        return super().truncate(end)
