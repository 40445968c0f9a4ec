"""Verification of stored data sets: a flipped bit is a problem, never a wrong answer under a strong ETag.

A process reads a data set whole and compares its digest before the first use, and again when a file has changed or
`AGAIN_SECONDS` have passed. In between only the files' status is compared, so that hot reads cost microseconds.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from typing import IO, TYPE_CHECKING

import numpy as np

from worker.base.files import NPY_HEADER_LOCK
from worker.base.problems import refuse
from worker.records.dataset import Content
from worker.records.tenants import dataset_id

if TYPE_CHECKING:
    from pathlib import Path

    from worker.base.problems import ProblemError
    from worker.records.dataset import Array, Dataset

AGAIN_SECONDS = 3600.0  # after which a file that looks the same is read again: disks err without touching its times
MOST_REMEMBERED = 2**16  # data sets, some 200 bytes each
PIECE = 2**22  # bytes hashed at a time

Status = tuple[tuple[int, int, int], ...]  # inode, size, time of change in ns of each file


class IntegrityChecker:
    """Verification of the data sets of one folder, with a memory of those that were found intact.

    Parameters
    ----------
    folder
        Of the records and their arrays.

    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._known: dict[str, tuple[Status, float]] = {}

    def require(self, dataset: Dataset) -> None:
        """Compare a data set with its digest, unless that was done a short while ago.

        Raises
        ------
        ProblemError
            ``dataset-damaged``.
        FileNotFoundError
            When it was deleted meanwhile.

        """
        status = self._status(dataset)
        known, until = self._known.get(dataset.id, ((), 0.0))
        if known == status and time.monotonic() < until:
            return
        if not self.is_intact(dataset):
            self._known.pop(dataset.id, None)
            self._status(dataset)  # deleted meanwhile?
            raise damaged(dataset)
        with self._lock:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known[dataset.id] = status, time.monotonic() + AGAIN_SECONDS

    def is_intact(self, dataset: Dataset) -> bool:
        """Read a data set whole, and return whether record, values and extras are there with the digest of its id."""
        try:
            digests = self._digests(dataset)
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.EIO}:
                raise
            return False
        except Exception:  # noqa: BLE001 # numpy raises half a dozen kinds for headers that it cannot read
            return False
        return dataset.sha256 in digests and dataset.id == dataset_id(dataset.sha256, dataset.tenant)

    def _digests(self, dataset: Dataset) -> list[str]:
        """Return the digests that the content of the files has (`Content.digests`), none where a header is another.

        The files are read, not mapped, because a bad sector would end the process.
        """
        extras: dict[str, Array] = {}
        for name in dataset.extras:
            with self._opened(dataset, f".{name}.npy") as file:
                shape, _, kept = _header(file)
                if not _is_as_written(name, shape, kept, dataset.n):
                    return []
                file.seek(0)
                with NPY_HEADER_LOCK:
                    extras[name] = np.lib.format.read_array(file, allow_pickle=False)
        dtype = np.dtype(dataset.dtype).newbyteorder("<")
        content = Content((dataset.n, dataset.d), dtype, dataset.names, extras)
        with self._opened(dataset, ".npy") as file:
            if _header(file) != ((dataset.n, dataset.d), False, dtype):
                return []
            while piece := file.read(PIECE):
                content.add(piece)
        return content.digests()

    def _opened(self, dataset: Dataset, suffix: str) -> IO[bytes]:
        return (self._folder / (dataset.id + suffix)).open("rb")

    def _status(self, dataset: Dataset) -> Status:
        suffixes = (".json", ".npy", *(f".{name}.npy" for name in dataset.extras))
        found = [os.stat(self._folder / (dataset.id + suffix)) for suffix in suffixes]  # noqa: PTH116 # each read pays for it
        return tuple((status.st_ino, status.st_size, status.st_mtime_ns) for status in found)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Return shape, order and dtype of an npy file, and leave it at its values; raises ValueError and others."""
    with NPY_HEADER_LOCK:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError
        found: tuple[tuple[int, ...], bool, np.dtype[np.generic]] = np.lib.format.read_array_header_1_0(file)
    return found


def _is_as_written(name: str, shape: tuple[int, ...], dtype: np.dtype[np.generic], n: int) -> bool:
    """Say whether an extra's header is one that is written: the digest has its bytes, and not how they are read."""
    is_little = dtype == dtype.newbyteorder("<")
    return shape == ((n, 2) if name == "coordinates" else (n,)) and is_little and dtype.kind in "fU"


def damaged(dataset: Dataset) -> ProblemError:
    """Return the problem of a data set whose files are not what was stored."""
    return refuse(
        "dataset-damaged",
        500,
        f"The stored files of data set {dataset.id} differ from what was uploaded: the disk has lost or changed bits.",
        "Upload the same data again, which replaces the files under the same id; or restore a backup. Check the disk.",
        dataset=dataset.id,
    )
