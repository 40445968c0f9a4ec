"""Files of the object store: of data sets, imported posteriors and large results, with local copies of a remote store.

A file is an object that is written once, and named afterwards, with its SHA-256, by a record or by the index of
results. So a reader finds all of it or none. The files of data sets and imported posteriors have new paths,
`data/<random>/<name>`, so that two writers of one record do not disturb each other. What a killed process leaves is
named by nothing (`worker.operations.sweep`).

A process compares a file with its digest before the first use, after a change of its status, and every
`AGAIN_SECONDS`. So a flipped bit never becomes a wrong answer under a strong ETag, and hot reads cost microseconds.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import mmap
import os
import secrets
import shutil
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, Self, TypeVar

from worker.base.disk import nearest_existing
from worker.base.files import PREFIX, make_folder, remove_abandoned, temporary
from worker.base.problems import ProblemError, refuse
from worker.records.quotas import too_many_bytes
from worker.records.stored_file import StoredFile
from worker.storage.object_store.backend import PIECE, Bucket
from worker.storage.records import LimitExceededError, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from worker.base.settings import Settings
    from worker.storage.records import RecordStore

    Source = tuple[Iterable[bytes | memoryview], int]  # parts of a file, and their bytes

FOLDER = "data"  # of the store
LOCAL = "objects"  # folder of the store within the data folder, without another store
COPIES = "copies"  # folder within the data folder
STORED_BYTES = "stored_bytes"  # counter of a tenant's usage
COPY_BYTES = 2**20
MAX_COPIES = 2**32  # bytes, and a quarter of the disk at most
RECENT_SECONDS = 60.0  # a copy stays for so long after its last use, so that a reader can open it
AGAIN_SECONDS = 3600.0  # disks lose bits without a change of the file times
MAX_REMEMBERED = 2**16  # verified files, some 200 bytes each
_REMEDY = "Enlarge the disk of GLLE_DATA_DIR on this machine, or keep other files elsewhere."
_WRITABLE = "With an object store workers need a GLLE_DATA_DIR that their user can write, too."

log = logging.getLogger(__name__)


class DamagedFileError(Exception):
    """A stored file does not have its digest."""


class RecordWithFiles(Record, Protocol):
    """Record that names files."""

    @property
    def files(self) -> Mapping[str, StoredFile]:
        """Its files by path."""


R = TypeVar("R", bound=RecordWithFiles)


class LocalCopies:
    """Folder of copies, named by their digests.

    Any number of processes of a machine may share it. A removed copy stays readable where it is open. Its reader
    compares the content with the digest.

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
        make_folder(self._folder)
        with temporary(self._folder, keep_reserve=True) as file:
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


class ObjectFiles:
    """Files in the store, with local copies of those of a remote one.

    Parameters
    ----------
    bucket
        The store.
    copies
        Of this machine.

    """

    def __init__(self, bucket: Bucket, copies: LocalCopies) -> None:
        self.bucket = bucket
        self._copies = copies
        self._verified: dict[Path, tuple[str, tuple[int, ...], float]] = {}

    @classmethod
    def of(cls, settings: Settings, bucket: Bucket | None) -> Self:
        """Return the files of a store, by default of a folder in the data folder."""
        folder = Path(settings.data_dir).absolute()
        bucket = bucket or Bucket(f"file://{folder / LOCAL}")
        quarter = shutil.disk_usage(nearest_existing(folder)).total // 4
        return cls(bucket, LocalCopies(folder / COPIES, min(MAX_COPIES, quarter)))

    def write(self, path: str, parts: Iterable[bytes | memoryview], size: int) -> StoredFile:
        """Write or replace a file; raises ``store-unavailable``, ``storage-full``."""
        sha256 = hashlib.sha256()

        def digest_parts() -> Iterator[bytes | memoryview]:
            for part in parts:
                sha256.update(part)
                yield part

        self.bucket.write(path, digest_parts(), size)
        return StoredFile(path, size, sha256.hexdigest())

    def write_new(self, sources: Mapping[str, Source]) -> dict[str, StoredFile]:
        """Write files by name to a new folder, all or none; raises as `write`."""
        folder = f"{FOLDER}/{secrets.token_hex(16)}"
        paths = {name: f"{folder}/{name}" for name in sources}
        try:
            return {name: self.write(paths[name], *source) for name, source in sources.items()}
        except BaseException:
            self.remove(paths.values())
            raise

    def publish(
        self,
        records: RecordStore[R],
        new: R,
        *,
        with_files: Callable[[R, R], R],
        max_bytes: int = 0,
    ) -> tuple[R, bool]:
        """Write a record of new files, or give them to an existing record whose files are damaged.

        Files that no record names then are removed.

        Parameters
        ----------
        with_files
            Returns the first record with the files of the second.
        max_bytes
            Quota of the tenant's stored bytes; 0: none.

        Returns
        -------
        tuple
            The record, and whether it is new.

        Raises
        ------
        ProblemError
            ``quota-exceeded``.

        """
        replaced: set[str] = set()

        def change(old: R) -> R:
            replaced.update(old.files)
            return with_files(old, new)

        try:
            while not records.create(new, limits={STORED_BYTES: max_bytes}):
                if (existing := records.get(new.id)) is None:  # deleted meanwhile
                    continue
                if existing.files == new.files:  # the reply to the first command was lost
                    break
                if self.is_intact(existing.files.values()):
                    self.remove(new.files)
                    return existing, False
                if (changed := records.change(new.id, change)) is not None:
                    self.remove(replaced.difference(new.files))
                    return changed, False
        except LimitExceededError as error:
            self.remove(new.files)
            used = records.usage()[STORED_BYTES]
            raise too_many_bytes(new.tenant, sum(file.size for file in new.files.values()), used, max_bytes) from error
        except ProblemError:
            self.remove(new.files)
            raise
        return new, True

    def path(self, file: StoredFile) -> Path:
        """Return a local path of a file, for reading; it may vanish after the return.

        Raises
        ------
        FileNotFoundError
            The file is missing, or was replaced meanwhile.
        DamagedFileError
            It does not have its digest.

        """
        for is_last in (self.bucket.is_local, True):
            path = self._locate(file)
            status = path.stat()
            found = (status.st_ino, status.st_size, status.st_mtime_ns)
            *verified, until = self._verified.get(path, ("", (), 0.0))
            if verified == [file.sha256, found] and time.monotonic() < until:
                return path
            if _digest(path) == file.sha256:
                if len(self._verified) >= MAX_REMEMBERED:
                    self._verified.clear()
                self._verified[path] = file.sha256, found, time.monotonic() + AGAIN_SECONDS
                return path
            self._copies.discard(file.sha256)  # it is read again
            if is_last:
                break
        path.stat()  # raises FileNotFoundError after a deletion
        raise DamagedFileError(file.path)

    def read(self, file: StoredFile) -> memoryview:
        """Return the bytes of a file, mapped from it if they are many; raises as `path`."""
        if file.size > PIECE:
            with self.path(file).open("rb") as opened:
                return memoryview(mmap.mmap(opened.fileno(), file.size, access=mmap.ACCESS_READ))
        if (data := self.bucket.read(file.path, 0, file.size)) is None:
            raise FileNotFoundError(errno.ENOENT, "The stored object is missing", file.path)
        if hashlib.sha256(data).hexdigest() != file.sha256:
            raise DamagedFileError(file.path)
        return memoryview(data)

    def is_intact(self, files: Iterable[StoredFile]) -> bool:
        """Read files where they are stored; return whether they have their digests."""
        try:
            for file in files:
                self._copies.discard(file.sha256)
                self._verified.pop(self._locate(file), None)
                self.path(file)
        except (FileNotFoundError, DamagedFileError):
            return False
        return True

    def find_damaged(self, records: RecordStore[R]) -> Iterator[R]:
        """Read the files of all tenants' records; yield the records with damaged ones."""
        for id_, _ in records.all():
            record = records.get(id_)
            if record is not None and not self.is_intact(record.files.values()) and records.get(id_) == record:
                yield record

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files that no record names; if the store fails, a sweep removes them later."""
        try:
            for path in paths:
                self.bucket.remove(path)
        except ProblemError as error:
            log.warning("Files without a record could not be removed yet: %s", error)

    def remove_abandoned(self) -> int:
        """Remove the temporary files of killed writers on this machine; return their number."""
        removed = self._copies.remove_abandoned()
        folders = self.bucket.local_path(FOLDER).glob("*") if self.bucket.is_local else ()
        for folder in folders:
            removed += remove_abandoned(folder)
            with contextlib.suppress(OSError):  # it has files, which a record may name
                folder.rmdir()
        return removed

    def _locate(self, file: StoredFile) -> Path:
        """Return the path of a file, or of its copy; raises `FileNotFoundError`."""
        if self.bucket.is_local:
            return self.bucket.local_path(file.path)
        return self._copies.get(file.sha256, file.size, lambda: self.bucket.pieces(file.path, file.size))


def pieces_of(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a file from its position on."""
    while piece := file.read(COPY_BYTES):
        yield piece


def _digest(path: Path) -> str | None:
    """Return the SHA-256 of a file, None if the disk cannot read it; raises `FileNotFoundError`."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return None
