"""Sweep of the object store: removes expired and deserted results, and finds files that nothing names."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.base.problems import refuse
from worker.records.stored_file import ORPHAN_SECONDS
from worker.storage.object_store.files import FOLDER
from worker.storage.object_store.results import FOLDER as RESULTS
from worker.storage.object_store.results import path_of

if TYPE_CHECKING:
    from worker.storage.object_store.results import ResultStore
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
    """Return the paths of the files of data sets that no record names, written more than `age` seconds ago.

    Killed uploads and deletions leave them. A younger one may still be in writing.

    Raises
    ------
    ProblemError
        ``records-lost`` if there are files, and no record names any; ``store-unavailable``.

    """
    old = _paths_before(stores, FOLDER, time.time() - age)  # listed before the records are read
    named: set[str] = set()
    for id_, raw in stores.datasets.all():
        named.update(stores.datasets.kind.load(id_, raw).files)
    if old and not named:
        raise refuse(
            "records-lost",
            409,
            f"The store has {len(old):,} files of data sets, and no record names any: the queue's Redis is another "
            "one, or has lost its records.",
            "Nothing was removed. Check GLLE_REDIS_URL, or restore a backup first: `glle restore`.",
            files=len(old),
        )
    return [path for path in old if path not in named]


def _paths_before(stores: Stores, folder: str, seconds: float) -> list[str]:
    """Return the paths in a folder of the store that were written before a time, in seconds since 1970."""
    times = stores.datasets.files.bucket.modification_times(folder)
    return [path for path, written in times.items() if written < seconds]
