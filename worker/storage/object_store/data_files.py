"""Files of data sets and imported posteriors: objects of the store, each written once under a new path.

    data/<random>/<name>

A record names its files once they are durable. So a reader finds all of them or none, and two writers of one record do
not disturb each other. What a killed process leaves is named by no record (`worker.operations.unnamed_files`).
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, Self, TypeVar

from worker.base.files import remove_abandoned
from worker.base.problems import ProblemError
from worker.storage.object_store.backend import Bucket
from worker.storage.object_store.local_copies import LocalCopies, copies_limit
from worker.storage.records import LimitExceededError, Record
from worker.tenancy.quotas import too_many_bytes

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
SECONDS = 15.0  # time limit of a request to the store

log = logging.getLogger(__name__)


class RecordWithFiles(Record, Protocol):
    """Record that names files."""

    @property
    def files(self) -> dict[str, int]:
        """Bytes of the files by path."""


R = TypeVar("R", bound=RecordWithFiles)


class DataFiles:
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

    @classmethod
    def of(cls, settings: Settings, bucket: Bucket | None) -> Self:
        """Return the files of a store, by default of a folder in the data folder."""
        folder = Path(settings.data_dir).absolute()
        bucket = bucket or Bucket(f"file://{folder / LOCAL}", seconds=SECONDS)
        return cls(bucket, LocalCopies(folder / COPIES, copies_limit(folder)))

    def write(self, sources: Mapping[str, Source]) -> str:
        """Write files by name to a new folder; return the folder.

        Raises
        ------
        ProblemError
            ``store-unavailable``, ``storage-full``; nothing is left.

        """
        folder = f"{FOLDER}/{secrets.token_hex(16)}"
        begun: list[str] = []
        try:
            for name, (parts, size) in sources.items():
                begun.append(f"{folder}/{name}")
                self.bucket.write(begun[-1], parts, size)
        except BaseException:
            self.remove(begun)
            raise
        return folder

    def publish(
        self,
        records: RecordStore[R],
        new: R,
        *,
        is_intact: Callable[[R], bool],
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
                if is_intact(existing):
                    self.remove(new.files)
                    return existing, False
                if (changed := records.change(new.id, change)) is not None:
                    self.remove(replaced.difference(new.files))
                    return changed, False
        except LimitExceededError as error:
            self.remove(new.files)
            used = records.usage()[STORED_BYTES]
            raise too_many_bytes(new.tenant, sum(new.files.values()), used, max_bytes) from error
        except ProblemError:
            self.remove(new.files)
            raise
        return new, True

    def local_path(self, path: str, size: int) -> Path:
        """Return a local path of a file, for reading; it may vanish after the return.

        Raises
        ------
        FileNotFoundError
            The file is missing, or was replaced meanwhile; of a local store, once the path is opened.

        """
        if self.bucket.is_local:
            return self.bucket.local_path(path)
        return self._copies.get(_copy_name(path), size, lambda: self.bucket.pieces(path, size))

    def discard_copies(self, record: RecordWithFiles) -> bool:
        """Remove the local copies of a record's files; return whether there can be any."""
        if not self.bucket.is_local:
            for path in record.files:
                self._copies.discard(_copy_name(path))
        return not self.bucket.is_local

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files that no record names; if the store fails, a sweep removes them later."""
        try:
            for path in paths:
                self.bucket.remove(path)
        except ProblemError as error:
            log.warning("Files without a record could not be removed yet: %s", error)

    def written_before(self, seconds: float) -> list[str]:
        """Return the paths of all files that were written before a time, in seconds since 1970."""
        return [path for path, modified in self.bucket.modified(FOLDER).items() if modified < seconds]

    def remove_abandoned(self) -> int:
        """Remove the temporary files of killed writers on this machine; return their number."""
        removed = self._copies.remove_abandoned()
        folders = self.bucket.local_path(FOLDER).glob("*") if self.bucket.is_local else ()
        for folder in folders:
            removed += remove_abandoned(folder)
            with contextlib.suppress(OSError):  # it has files, which a record may name
                folder.rmdir()
        return removed


def pieces_of(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a file from its position on."""
    while piece := file.read(COPY_BYTES):
        yield piece


def _copy_name(path: str) -> str:
    return path.removeprefix(f"{FOLDER}/").replace("/", "-")
