"""Integrity check of stored data sets, so that a flipped bit never becomes a wrong answer under a strong ETag.

A process compares a data set with its digest before the first use, after a change of its files, and every
`AGAIN_SECONDS`. Otherwise it compares only the files' status, so that hot reads cost microseconds.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from typing import IO, TYPE_CHECKING

import numpy as np

from worker.base.files import NPY_HEADER_LOCK
from worker.base.problems import ProblemError, refuse
from worker.records.dataset import VALUES, Content
from worker.records.ids import dataset_id

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from worker.records.dataset import Array, Dataset
    from worker.storage.object_store.data_files import DataFiles

AGAIN_SECONDS = 3600.0  # disks lose bits without a change of the file times
MAX_REMEMBERED = 2**16  # data sets, some 200 bytes each
PIECE = 2**22  # bytes hashed at a time

Status = tuple[tuple[int, int, int], ...]  # inode, size, mtime in ns of each file


class IntegrityChecker:
    """Integrity check of data sets, with a memory of the intact ones.

    Parameters
    ----------
    files
        Of the data sets.

    """

    def __init__(self, files: DataFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._verified: dict[str, tuple[Status, Dataset, float]] = {}

    def require(self, dataset: Dataset) -> None:
        """Verify a data set, unless that happened recently.

        Raises
        ------
        ProblemError
            ``dataset-damaged``.
        FileNotFoundError
            A file is missing, or was removed or replaced meanwhile.

        """
        status = self._status(dataset)
        *verified, until = self._verified.get(dataset.id, ((), None, 0.0))
        if verified == [status, dataset] and time.monotonic() < until:
            return
        if not self._has_digest(dataset) and not (self._files.discard_copies(dataset) and self._has_digest(dataset)):
            self._verified.pop(dataset.id, None)
            self._status(dataset)  # raises FileNotFoundError after a deletion
            raise damaged_dataset(dataset)
        with self._lock:
            if len(self._verified) >= MAX_REMEMBERED:
                self._verified.clear()
            self._verified[dataset.id] = status, dataset, time.monotonic() + AGAIN_SECONDS

    def is_intact(self, dataset: Dataset) -> bool:
        """Read a data set where it is stored; return whether record, values and extras have the digest in its id."""
        self._files.discard_copies(dataset)
        return self._has_digest(dataset)

    def _has_digest(self, dataset: Dataset) -> bool:
        return has_digest(dataset, lambda name: self._path(dataset, name).open("rb"))

    def _status(self, dataset: Dataset) -> Status:
        files = [os.stat(self._path(dataset, name)) for name in dataset.sizes]  # noqa: PTH116 # faster in hot reads
        return tuple((status.st_ino, status.st_size, status.st_mtime_ns) for status in files)

    def _path(self, dataset: Dataset, name: str) -> Path:
        return self._files.local_path(dataset.path(name), dataset.sizes[name])


def has_digest(dataset: Dataset, open_file: Callable[[str], IO[bytes]]) -> bool:
    """Return whether record, values and extras of a data set have the digest in its id.

    Parameters
    ----------
    open_file
        Opens the npy file of the values or of an extra.

    """
    try:
        sha256 = _digest(dataset, open_file)
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.EIO}:
            raise
        return False
    except ProblemError:  # of the store
        raise
    except Exception:  # noqa: BLE001 # numpy raises half a dozen types for malformed headers
        return False
    return dataset.sha256 == sha256 and dataset.id == dataset_id(dataset.sha256, dataset.tenant)


def _digest(dataset: Dataset, open_file: Callable[[str], IO[bytes]]) -> str | None:
    """Return the digest of the files' content, None if a header differs from the record or a value is not finite.

    The files are read, not mapped, because a bad sector in a mapping ends the process.
    """
    extras: dict[str, Array] = {}
    for name in dataset.extras:
        with open_file(name) as file:
            shape, is_fortran, dtype = _read_header(file)
            if not _is_valid_extra(name, shape, dtype, dataset.n):
                return None
            extras[name] = np.frombuffer(file.read(), dtype).reshape(shape, order="F" if is_fortran else "C")
    dtype = np.dtype(dataset.dtype).newbyteorder("<")
    content = Content((dataset.n, dataset.d), dtype, dataset.names, extras)
    with open_file(VALUES) as file:
        if _read_header(file) != ((dataset.n, dataset.d), False, dtype):
            return None
        while piece := file.read(PIECE):  # whole values, because 8 divides `PIECE`
            if not np.isfinite(np.frombuffer(piece, dtype)).all():
                return None
            content.add(piece)
    return content.digest()


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Return shape, order and dtype of an npy file, positioned at its values then; raises ValueError and others."""
    with NPY_HEADER_LOCK:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError
        header: tuple[tuple[int, ...], bool, np.dtype[np.generic]] = np.lib.format.read_array_header_1_0(file)
    return header


def _is_valid_extra(name: str, shape: tuple[int, ...], dtype: np.dtype[np.generic], n: int) -> bool:
    """Return whether `DatasetStore` writes such a header; the digest covers the bytes, not their interpretation."""
    is_little = dtype == dtype.newbyteorder("<")
    if name == "ids":
        return shape[:1] == (n,) and len(shape) <= 2 and is_little and dtype.kind in "iU"
    return shape == ((n, 2) if name == "coordinates" else (n,)) and is_little and dtype.kind in "fU"


def damaged_dataset(dataset: Dataset) -> ProblemError:
    """Return the problem of a data set whose files changed on disk."""
    return refuse(
        "dataset-damaged",
        500,
        f"The stored files of data set {dataset.id} differ from the upload: the disk has lost or changed bits.",
        "Upload the same data again, which replaces the files under the same id; or restore a backup. Check the disk.",
        dataset=dataset.id,
    )
