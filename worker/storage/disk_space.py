"""Room on the disk of the data folder: what uploads leave free, and what the embedded queue server falls back on.

Of `GLLE_DISK_RESERVE` bytes R: an upload leaves R free; new work is refused below R/2 where the queue's log is on the
same disk, because its server ends when it cannot write; a file holds another R/4, which `glle up` gives up after such
an end, so that records and results can be read on a disk that another program filled.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from worker.base.files import FILE_MODE
from worker.base.problems import ProblemError, refuse

if TYPE_CHECKING:
    from worker.base.settings import Settings

ADDRESSES = "servers.json"  # in the data folder while the embedded servers of `glle up` run
PROBE_BYTES = 4096
_REMEDY = "Delete data sets that are no longer needed, enlarge the disk of GLLE_DATA_DIR, or lower GLLE_DISK_RESERVE."


def existing(folder: Path) -> Path:
    """Return a folder, or the nearest one above it that exists: folders are made with the first data."""
    return next(place for place in (folder, *folder.absolute().parents) if place.exists())


def free_bytes(folder: Path) -> int:
    """Return the bytes that this process can still write on the disk of a folder."""
    return shutil.disk_usage(existing(folder)).free


def probe(folder: Path) -> None:
    """Write a block in a folder and synchronise it; raises OSError when the disk is full or read-only."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"\0" * PROBE_BYTES)
        file.flush()
        os.fsync(file.fileno())


def require_room(folder: Path, nbytes: int, reserve: int) -> None:
    """Refuse an upload that would leave less than the reserve.

    Raises
    ------
    ProblemError
        ``storage-full``.

    """
    if reserve and (free := free_bytes(folder)) - nbytes < reserve:
        detail = f"{free:,} bytes are free on the disk of the data folder; {nbytes:,} more would leave less than "
        detail += f"the reserve of {reserve:,}."
        raise refuse("storage-full", 507, detail, _REMEDY, free=free, needed=nbytes, reserve=reserve)


def no_room_for_work(settings: Settings) -> ProblemError | None:
    """Return the refusal of new work where the queue's log has no room to grow, or None."""
    folder, least = Path(settings.data_dir), settings.disk_reserve // 2
    if not least or not (folder / ADDRESSES).exists() or (free := free_bytes(folder)) >= least:
        return None
    detail = f"{free:,} bytes are free on the disk of the queue's log: it takes nothing new. What it has can be read."
    return refuse("redis-full", 503, detail, _REMEDY, free=free, least=least)


class DiskReserve:
    """A file that holds room on the disk, given up when the queue server cannot write.

    Parameters
    ----------
    folder
        The data folder.
    nbytes
        Its size; 0: no file.

    """

    def __init__(self, folder: Path, nbytes: int) -> None:
        self._path = folder / "reserve"
        self._nbytes = nbytes

    @classmethod
    def of(cls, settings: Settings) -> DiskReserve:
        """Return the reserve of a deployment with embedded servers."""
        return cls(Path(settings.data_dir), settings.disk_reserve // 4)

    def hold(self) -> None:
        """Take the room, when the disk has much more than that and the file is missing."""
        if not self._nbytes:
            self._path.unlink(missing_ok=True)
        elif hasattr(os, "posix_fallocate") and not self._path.exists() and self._free() > 4 * self._nbytes:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            try:
                os.posix_fallocate(descriptor, 0, self._nbytes)
            except OSError:  # the disk filled meanwhile
                self._path.unlink()
            finally:
                os.close(descriptor)

    def release(self) -> bool:
        """Give the room up if the disk is full; return whether it was held."""
        if not self._path.exists() or self._free() >= self._nbytes:
            return False
        self._path.unlink()
        return True

    def _free(self) -> int:
        return free_bytes(self._path.parent)
