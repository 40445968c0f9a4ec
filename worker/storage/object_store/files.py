"""The files of all records, in a folder or behind a URL, with local copies of remote files.

A file is written once and synced; then a record names the file, with its SHA-256. A reader therefore finds either the
whole file or no file. Each file has a new path, `data/<two digits>/<random>-<name>`, so that two writers of one record
do not overwrite files of the other writer. If a process is killed before a record names its file, a sweep removes the
file later (`worker.execution.sweep`).

A process compares a file with the file's digest before the first use, whenever inode, size or modification time have
changed, and every `VERIFY_SECONDS`. A flipped bit therefore does not become a wrong answer under a strong ETag, and
repeated reads cost microseconds.

Remote files are copied: small files to the cache's Redis, for all machines, and other files to a folder on each
machine. A copy may vanish at any time; the answer is then slower, and nothing else changes.
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
from typing import TYPE_CHECKING, Any, Self

import redis

from worker.base.disk import nearest_existing
from worker.base.files import PREFIX, make_folder, remove_abandoned, temporary
from worker.base.problems import ProblemError, refuse
from worker.base.versions import versioned_key
from worker.records.cache_entry import entry_parts, parse_entry
from worker.records.stored_file import StoredFile
from worker.storage.object_store.backend import MAX_REQUEST_BYTES, Bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from worker.base.settings import Settings
    from worker.records.cache_entry import Entry

    Source = tuple[Iterable[bytes | memoryview], int]  # parts of a file, and the sum of their bytes

FOLDER = "data"  # folder, in the store, of all files of records
LOCAL = "objects"  # folder in GLLE_DATA_DIR that is the store unless GLLE_STORE_URL is set
COPIES = "copies"  # folder in GLLE_DATA_DIR of the local copies
STORED_BYTES = "stored_bytes"  # usage counter with the bytes of a tenant's files
ENTRY = "entry"  # end of the path of a file with metadata and arrays (an `Entry`)
COPY_SECONDS = 86_400  # lifetime of a copy in the cache's Redis
MAX_COPY_BYTES = 2**32  # all local copies take at most this many bytes, and at most a quarter of the disk
RECENT_SECONDS = 60.0  # a copy is kept this long after its last use, so that a reader can open it
# The digest of a file is checked again after this time, because disks lose bits without a change of file times.
VERIFY_SECONDS = 3600.0
MAX_REMEMBERED_FILES = 2**16  # a process remembers this many verified files, some 200 bytes each
_REMEDY = "Enlarge the disk of GLLE_DATA_DIR on this machine, or keep other files elsewhere."
_WRITABLE = "With an object store workers need a GLLE_DATA_DIR that their user can write, too."

log = logging.getLogger(__name__)


class DamagedFileError(Exception):
    """The content of a stored file does not match its digest, or cannot be parsed."""


class LocalCopies:
    """A folder with local copies of remote files, each named by the digest of its content.

    Any number of processes of a machine may share the folder. A removed copy stays readable for processes that have
    opened it. This class does not verify copies: their readers compare the content with the digest.

    Parameters
    ----------
    folder
        Folder of the copies, which the first copy creates.
    max_bytes
        Limit on the bytes of all copies, beyond which the least recently used copies are removed. Recently used copies
        and the newest copy stay even beyond the limit.

    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes

    def get(self, name: str, size: int, read: Callable[[], Iterable[bytes]]) -> Path:
        """Return the path of the local copy of a remote file, which has `size` bytes and the digest `name`.

        If there is no copy yet, it is made from the bytes of the remote file, which `read` yields.

        Raises
        ------
        FileNotFoundError
            The remote file is missing, or has fewer bytes.
        ProblemError
            ``storage-full``, ``data-folder-read-only``.

        """
        path = self._folder / name
        try:
            status = path.stat()
            if status.st_size == size:
                os.utime(path, ns=(time.time_ns(), status.st_mtime_ns))  # record the last use
                return path
        except FileNotFoundError:  # never copied, or removed to make room
            pass
        try:
            self._read(path, size, read)
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                detail = "The disk has no space left for the local copy of a stored file."
                raise refuse("storage-full", 507, detail, _REMEDY) from error
            if error.errno in {errno.EROFS, errno.EACCES, errno.EPERM}:
                detail = f"The folder {self._folder} cannot be written: {error.strerror}."
                raise refuse("data-folder-read-only", 503, detail, _WRITABLE) from error
            raise
        return path

    def _read(self, path: Path, size: int, read: Callable[[], Iterable[bytes]]) -> None:
        make_folder(self._folder)
        with temporary(self._folder, keep_reserve=True) as file:
            self._make_room(size)
            if (received := sum(file.write(piece) for piece in read())) != size:
                flaw = f"The stored object is missing or damaged: {received:,} of {size:,} bytes arrived"
                raise FileNotFoundError(errno.ENOENT, flaw, path.name)
            file.publish(path)

    def discard(self, name: str) -> None:
        """Delete the local copy of the stored object `name`, if there is one."""
        (self._folder / name).unlink(missing_ok=True)

    def remove_abandoned(self) -> int:
        """Remove the temporary files of killed writers; return their number."""
        return remove_abandoned(self._folder) if self._folder.is_dir() else 0

    def _make_room(self, size: int) -> None:
        """Remove the least recently used copies until another copy of `size` bytes fits below `max_bytes`.

        Copies that were used in the last `RECENT_SECONDS` are kept.
        """
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
    """Writes and reads the files of records, by way of local copies if the store is remote.

    Parameters
    ----------
    bucket
        The store.
    copies
        Local copies on this machine.
    cache
        The cache's Redis, for copies of small remote files; None: no copies in Redis.

    """

    def __init__(self, bucket: Bucket, copies: LocalCopies, cache: redis.Redis | None = None) -> None:
        self.bucket = bucket
        self._copies = copies
        self._cache = cache
        self._verified: dict[Path, tuple[str, tuple[int, ...], float]] = {}

    @classmethod
    def from_settings(cls, settings: Settings, bucket: Bucket | None, cache: redis.Redis | None = None) -> Self:
        """Return access to the files in `bucket`, or in the folder `LOCAL` of the data folder if `bucket` is None."""
        folder = Path(settings.data_dir).absolute()
        bucket = bucket or Bucket(f"file://{folder / LOCAL}")
        quarter = shutil.disk_usage(nearest_existing(folder)).total // 4
        return cls(bucket, LocalCopies(folder / COPIES, min(MAX_COPY_BYTES, quarter)), cache)

    def write(self, path: str, parts: Iterable[bytes | memoryview], size: int) -> StoredFile:
        """Write or replace a file; return the file's path, size and digest.

        Raises `ProblemError` (``store-unavailable``, ``storage-full``).
        """
        sha256 = hashlib.sha256()

        def digest_parts() -> Iterator[bytes | memoryview]:
            for part in parts:
                sha256.update(part)
                yield part

        self.bucket.write(path, digest_parts(), size)
        return StoredFile(path, size, sha256.hexdigest())

    def write_new(self, sources: Mapping[str, Source]) -> dict[str, StoredFile]:
        """Write new files, all or none; return path, size and digest of each file, by name.

        `sources` has the parts and the size of each file, by a name that becomes the end of the file's path. Raises
        `ProblemError` (``store-unavailable``, ``storage-full``).
        """
        # The first two digits name only 256 folders, because creating a folder costs an fsync of its parent.
        new = secrets.token_hex(16)
        paths = {name: f"{FOLDER}/{new[:2]}/{new}-{name}" for name in sources}
        try:
            return {name: self.write(paths[name], *source) for name, source in sources.items()}
        except BaseException:
            self.remove(paths.values())
            raise

    def path(self, file: StoredFile) -> Path:
        """Return a local path from which a file can be read, after comparing the content with the file's digest.

        Another process may remove the file at any time.

        Raises
        ------
        FileNotFoundError
            The file is missing, or was removed in the meantime.
        DamagedFileError
            The content does not match the digest.

        """
        for is_last in (self.bucket.is_local, True):
            path = self._locate(file)
            status = path.stat()
            version = (status.st_ino, status.st_size, status.st_mtime_ns)
            *verified, until = self._verified.get(path, ("", (), 0.0))
            if verified == [file.sha256, version] and time.monotonic() < until:
                return path
            if _digest(path) == file.sha256:
                if len(self._verified) >= MAX_REMEMBERED_FILES:
                    self._verified.clear()
                self._verified[path] = file.sha256, version, time.monotonic() + VERIFY_SECONDS
                return path
            self._copies.discard(file.sha256)  # so that the next attempt fetches the file again
            if is_last:
                break
        path.stat()  # raises FileNotFoundError if the file was deleted meanwhile
        raise DamagedFileError(file.path)

    def write_entry(self, entry: Entry) -> StoredFile:
        """Write metadata and arrays to a new file; return the file's path, size and digest.

        Raises `ProblemError` (``store-unavailable``, ``storage-full``).
        """
        parts = entry_parts(entry)
        return self.write_new({ENTRY: (parts, sum(map(len, parts)))})[ENTRY]

    def read_entry(self, file: StoredFile) -> Entry:
        """Return the metadata and the read-only arrays (an `Entry`) in a file.

        Raises
        ------
        FileNotFoundError
            The file is missing.
        DamagedFileError
            The content does not match the digest, or is not an entry.

        """
        try:
            return parse_entry(self._read(file))
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedFileError(file.path) from error

    def _read(self, file: StoredFile) -> memoryview:
        """Return the content of a file, memory-mapped unless the file is small and remote.

        Raises `FileNotFoundError`, and `DamagedFileError` if the content does not match the digest.
        """
        if self.bucket.is_local or file.size > MAX_REQUEST_BYTES:
            with self.path(file).open("rb") as opened:
                return memoryview(mmap.mmap(opened.fileno(), file.size, access=mmap.ACCESS_READ))
        if (data := self._read_copy(file)) is None:
            data = self.bucket.read(file.path, 0, file.size)
            if data is None:
                raise FileNotFoundError(errno.ENOENT, "The stored object is missing", file.path)
            if hashlib.sha256(data).hexdigest() != file.sha256:
                raise DamagedFileError(file.path)
            self._keep_copy(file, data)
        return memoryview(data)

    def _read_copy(self, file: StoredFile) -> bytes | None:
        """Return the copy of a small remote file in the cache's Redis, or None."""
        if self._cache is None:
            return None
        with contextlib.suppress(redis.RedisError):
            data: Any = self._cache.get(_copy_key(file))
            if data is not None and hashlib.sha256(data).hexdigest() == file.sha256:
                return bytes(data)
        return None

    def _keep_copy(self, file: StoredFile, data: bytes) -> None:
        if self._cache is not None:
            with contextlib.suppress(redis.RedisError):  # without the copy, the next read is as slow as this read
                self._cache.set(_copy_key(file), data, ex=COPY_SECONDS)

    def is_intact(self, files: Iterable[StoredFile]) -> bool:
        """Return whether files match their digests; each file is read again from the store, not from a local copy."""
        try:
            for file in files:
                self._copies.discard(file.sha256)
                self._verified.pop(self._locate(file), None)
                self.path(file)
        except (FileNotFoundError, DamagedFileError):
            return False
        return True

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files that no record names any more.

        A failure of the store is only logged, because the periodic sweep removes such files later.
        """
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
            with contextlib.suppress(OSError):  # the folder is not empty
                folder.rmdir()
        return removed

    def _locate(self, file: StoredFile) -> Path:
        """Return where this machine has a file: in the folder of the store, or as a copy, made if it is missing.

        Raises `FileNotFoundError`.
        """
        if self.bucket.is_local:
            return self.bucket.local_path(file.path)
        return self._copies.get(file.sha256, file.size, lambda: self.bucket.pieces(file.path, file.size))


def _copy_key(file: StoredFile) -> str:
    return versioned_key(f"file:{file.sha256}")


def _digest(path: Path) -> str | None:
    """Return the SHA-256 of a file in hex, or None if the disk cannot read the file; raises `FileNotFoundError`."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return None
