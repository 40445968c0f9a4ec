"""Sweep of the stored files: removes expired results, results of deleted resources, and files without a record.

Files that no record names come from killed uploads and tasks, and from deletions while the store did not answer.
Results about deleted resources come from killed deletions. One worker sweeps each hour, or more often if results
expire sooner.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from worker.records.stored_file import ORPHAN_SECONDS
from worker.storage.mark import MARK_FOLDER
from worker.storage.object_store.files import FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.storage.file_records import FileRecord, FileStore
    from worker.stores import Stores


def sweep(stores: Stores, age: float = ORPHAN_SECONDS) -> tuple[int, int]:
    """Remove expired results, results about what was deleted, and files older than `age` seconds that no record names.

    Returns
    -------
    tuple
        The numbers of removed results, and of removed files without a record.

    Raises
    ------
    ProblemError
        ``records-lost``, ``files-lost``, ``store-unavailable``; the next sweep goes on.

    """
    unnamed = find_unnamed_files(stores, age)
    expired = stores.results.delete_of_deleted()
    expired += sum(stores.results.delete_expired(tenant) for tenant in stores.jobs.tenants())
    stores.files.remove(unnamed)
    stores.files.remove_abandoned()
    return expired, len(unnamed)


def find_unnamed_files(stores: Stores, age: float = ORPHAN_SECONDS) -> list[str]:
    """Return the paths of files that no record names and that were written more than `age` seconds ago.

    The record of a younger file may still be written.

    Raises
    ------
    ProblemError
        ``records-lost``, ``files-lost`` or another code of `RecordsMark.find_loss`; ``store-unavailable``.

    """
    # Files are listed before the records are read: in the other order, a file that is written and recorded in between
    # would be listed, but its record would be missing.
    times = stores.files.bucket.modification_times(FOLDER)
    stores.mark.require_no_loss()
    named = {path for _, record in _records_with_files(stores) for path in record.files}
    old = [path for path, written in times.items() if written < time.time() - age]
    return [path for path in old if path not in named and not path.startswith(MARK_FOLDER)]


def find_records_without_files(stores: Stores) -> list[str]:
    """Return the ids of the records that name files which are not in the store.

    The files are only listed. The command `glle scrub` also reads the files, and compares them with their digests.
    Raises `ProblemError` (``store-unavailable``).
    """
    records = list(_records_with_files(stores))
    # Files are listed after the records are read, because a record is written after its files.
    stored = stores.files.bucket.modification_times(FOLDER)
    return [
        record.id
        for store, record in records
        # Leave out records that were changed or deleted meanwhile.
        if not stored.keys() >= set(record.files) and store.get(record.id) == record
    ]


def _records_with_files(stores: Stores) -> Iterator[tuple[FileStore[Any], FileRecord]]:
    for store in stores.with_files:
        for id_, raw in store.all():
            yield store, store.kind.load(id_, raw)
