"""Sweep of the object store: removes expired and deserted results, and finds files that nothing names."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from worker.records.stored_file import ORPHAN_SECONDS
from worker.storage.mark import MARK_FOLDER
from worker.storage.object_store.files import FOLDER
from worker.storage.object_store.results import FOLDER as RESULTS
from worker.storage.object_store.results import path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.storage.object_store.files import RecordWithFiles
    from worker.storage.object_store.results import ResultStore
    from worker.storage.records import RecordStore
    from worker.stores import Stores


@dataclass
class SweepResult:
    """Numbers of removed objects: of expired results, and others that no record or index entry names."""

    expired: int = 0
    unreferenced: int = 0


def sweep(stores: Stores, objects: ResultStore, *, age: float = ORPHAN_SECONDS) -> SweepResult:
    """Remove index entries of expired results and of subjects without a record, and then the objects without an entry.

    An object of the last `age` seconds stays, because its index entry or its record may be in writing. Raises
    ``store-unavailable``; the next sweep goes on.
    """
    started = time.time()
    result, expired, named = SweepResult(), set[str](), set[str]()
    old = set(_paths_before(stores, RESULTS, started - age))  # before the index is read
    for subject in objects.index.subjects():
        entries = dict(objects.index.of(subject))
        late = [key for key, stored in entries.items() if stored.until <= started]
        is_deserted = not (stores.posteriors.exists(subject) or stores.datasets.exists(subject))
        deserted = [key for key in entries if is_deserted and path_of(subject, key) in old]
        objects.index.drop(subject, [*late, *deserted])
        expired |= {path_of(subject, key) for key in late}
        named |= {path_of(subject, key) for key in set(entries).difference(late, deserted)}
    for path in sorted(old - named):
        objects.bucket.remove(path)
        result.expired += path in expired
        result.unreferenced += path not in expired
    objects.index.finish_sweep(started)
    return result


def unnamed_files(stores: Stores, age: float) -> list[str]:
    """Return the paths of the files that no record names, written more than `age` seconds ago.

    Killed uploads and deletions leave them. A younger one may still be in writing.

    Raises
    ------
    ProblemError
        ``records-lost`` or ``files-lost``, as the mark beside the files shows; ``store-unavailable``.

    """
    old = _paths_before(stores, FOLDER, time.time() - age)  # listed before the records are read
    stores.mark.require_no_loss()
    named = {path for _, record in _records_with_files(stores) for path in record.files}
    return [path for path in old if path not in named and not path.startswith(MARK_FOLDER)]


def ids_without_files(stores: Stores) -> list[str]:
    """Return the ids of the records whose files are not in the store; raises ``store-unavailable``.

    The store is listed and no file is read: `glle scrub` reads them.
    """
    records = list(_records_with_files(stores))
    stored = stores.datasets.files.bucket.modification_times(FOLDER)  # listed after the records are read
    return [
        record.id
        for store, record in records
        if not stored.keys() >= set(record.files) and store.get(record.id) == record  # not deleted meanwhile
    ]


def _records_with_files(stores: Stores) -> Iterator[tuple[RecordStore[Any], RecordWithFiles]]:
    for store in stores.with_files:
        for id_, raw in store.all():
            yield store, store.kind.load(id_, raw)


def _paths_before(stores: Stores, folder: str, seconds: float) -> list[str]:
    """Return the paths in a folder of the store that were written before a time, in seconds since 1970."""
    times = stores.datasets.files.bucket.modification_times(folder)
    return [path for path, written in times.items() if written < seconds]
