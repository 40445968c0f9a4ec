"""Stores whose records name files: deleting a record also deletes its files, and the results about the resource."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from glle_engine.base.texts import Way
from worker.base.problems import ProblemError, refuse
from worker.records.quotas import too_many_bytes
from worker.storage.object_store.files import STORED_BYTES, DamagedFileError
from worker.storage.records import LimitExceededError, Record, RecordStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import redis

    from worker.records.cache_entry import Entry
    from worker.records.stored_file import StoredFile
    from worker.storage.object_store.files import ObjectFiles
    from worker.storage.records import RecordKind


class FileRecord(Record, Protocol):
    """Record of a resource with stored files."""

    @property
    def files(self) -> dict[str, StoredFile]:
        """The files of the record, by their paths in the store."""


R = TypeVar("R", bound=FileRecord)


class FileStore(RecordStore[R]):
    """Store of the records of one kind, such as posteriors, and of the files that the records name.

    Parameters
    ----------
    client
        The queue's Redis, for the records.
    kind
        Kind of the records.
    files
        Reads and writes the files.
    results
        Store of the results about the resources; a resource is deleted with its results. None if there are no results.

    """

    def __init__(
        self, client: redis.Redis, kind: RecordKind[R], files: ObjectFiles, results: FileStore[Any] | None = None
    ) -> None:
        super().__init__(client, kind)
        self.files = files
        self._results = results

    def delete(self, id_: str, *, unless_existing: Sequence[str] = ()) -> R | None:
        """Remove a record, its files and the results about it; return the record, or None if none was removed.

        Nothing is removed if one of the Redis keys in `unless_existing` exists. Arrays that are already memory-mapped
        stay readable.
        """
        record = super().delete(id_, unless_existing=unless_existing)
        if record is not None:
            self.files.remove(record.files)
            if self._results is not None:
                self._results.delete_of(id_, record.tenant)
        return record

    def delete_of(self, owner: str, tenant: str) -> None:
        """Remove a tenant's records, with their files, that belong to a data set, posterior, embedding or job.

        `owner` is the id of this data set, posterior, embedding or job.
        """
        for id_ in self.for_tenant(tenant).ids_in(f"of:{owner}"):
            self.delete(id_)

    def create_with_files(
        self, new: R, *, max_bytes: int = 0, while_running: str | None = None, while_existing: Sequence[str] = ()
    ) -> bool:
        """Write the record `new`, whose files are already written, unless its id has a record or a condition fails.

        Return whether this id has a record in the end. Files of `new` that the stored record does not name are removed.

        Parameters
        ----------
        max_bytes
            Quota of the tenant's stored bytes; 0: none.
        while_running, while_existing
            Redis keys of a job's record, and of other records: nothing is written unless this job is running and all
            of these records exist.

        Raises
        ------
        ProblemError
            ``quota-exceeded``.

        """
        with self.limited(new, max_bytes):
            limits = {STORED_BYTES: max_bytes}
            if self.create(new, limits=limits, while_running=while_running, while_existing=while_existing):
                return True
        existing = self.get(new.id)
        # If the files are equal, `create` has written this record, and only the reply of Redis was lost.
        if existing is None or existing.files != new.files:
            self.files.remove(new.files)
        return existing is not None

    @contextmanager
    def limited(self, new: R, max_bytes: int) -> Iterator[None]:
        """Return a context in which the caller writes the record `new`; if this fails, the files of `new` are removed.

        A `LimitExceededError` in the context becomes the `ProblemError` ``quota-exceeded``; `max_bytes` is the tenant's
        quota of stored bytes.
        """
        try:
            yield
        except LimitExceededError as error:
            self.files.remove(new.files)
            nbytes, stored = sum(file.size for file in new.files.values()), self.for_tenant(new.tenant).usage()
            raise too_many_bytes(new.tenant, nbytes, stored[STORED_BYTES], max_bytes) from error
        except ProblemError:
            self.files.remove(new.files)
            raise

    def verify(self) -> Iterator[tuple[R, bool]]:
        """Read the files of all records of all tenants; yield each record, and whether its files match their digests.

        A record that was changed or deleted meanwhile counts as matching.
        """
        for id_, _ in self.all():
            record = self.get(id_)
            if record is not None:
                yield record, self.files.is_intact(record.files.values()) or self.get(id_) != record

    def read_entry(self, record: R, file: StoredFile) -> Entry | None:
        """Return the entry (metadata and arrays) in a file of a record, or None if the record has been deleted.

        Raises `ProblemError`: for a missing or changed file, for example ``posterior-damaged``; ``store-unavailable``.
        """
        try:
            return self.files.read_entry(file)
        except (FileNotFoundError, DamagedFileError) as error:
            if self.get(record.id) is None:
                return None
            is_missing = isinstance(error, FileNotFoundError)
            raise self.damaged(record, "is missing" if is_missing else "has changed") from error

    def damaged(self, record: R, flaw: str) -> ProblemError:
        """Return the error for a record whose file is damaged; `flaw` says how: "is missing" or "has changed"."""
        name, title = self.kind.name, self.kind.title
        way = f"{title} ({Way(f'delete-{name}', record.id)})"
        return damaged_file(name, f"{title} {record.id}", flaw, way, **{name: record.id})


def damaged_file(kind: str, subject: str, flaw: str, deletion: str, **details: str) -> ProblemError:
    """Return the error, such as ``posterior-damaged``, for a file that is missing or has changed.

    Parameters
    ----------
    kind
        Kind of the record that names the file, such as ``posterior``.
    subject
        What the file belongs to, for the message, such as "posterior post_1".
    flaw
        "is missing" or "has changed".
    deletion
        What the user must delete, and how, for the remedy: the user's request then makes the file again.

    """
    remedy = (
        "API and workers need the same GLLE_DATA_DIR or GLLE_STORE_URL. If the file is lost: delete the "
        f"{deletion} and send its request again; or restore a backup. Check the disk."
    )
    return refuse(f"{kind}-damaged", 500, f"The stored file of {subject} {flaw}.", remedy, **details)
