"""Sweep of the object store: removes expired and deserted results, and objects that no index names."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.storage.object_store.store import FOLDER, ORPHAN_SECONDS, path_of

if TYPE_CHECKING:
    from worker.storage.object_store.store import ObjectStore
    from worker.stores import Stores


@dataclass
class SweepResult:
    """Numbers of index entries that were expired or deserted, and of removed objects."""

    expired: int = 0
    deserted: int = 0
    removed: int = 0


def sweep(stores: Stores, objects: ObjectStore, *, age: float = ORPHAN_SECONDS) -> SweepResult:
    """Remove index entries of expired results and of subjects without a record, and then the objects without an entry.

    An object of the last `age` seconds stays, because its index entry or its record may be in writing. Raises
    ``store-unavailable``; the next sweep goes on.
    """
    started = time.time()
    result, named = SweepResult(), set()
    written = objects.bucket.modification_times(FOLDER)  # before the index is read
    old = {path for path, seconds in written.items() if seconds < started - age}
    for subject in objects.index.subjects():
        entries = dict(objects.index.of(subject))
        expired = [key for key, stored in entries.items() if stored.until <= started]
        is_deserted = not _exists(stores, subject)
        deserted = [key for key in entries if is_deserted and path_of(subject, key) in old]
        objects.index.drop(subject, [*expired, *deserted])
        result.expired += len(expired)
        result.deserted += len(set(deserted).difference(expired))
        named |= {path_of(subject, key) for key in set(entries).difference(expired, deserted)}
    for path in sorted(old - named):
        objects.bucket.remove(path)
        result.removed += 1
    objects.index.finish_sweep(started)
    return result


def _exists(stores: Stores, subject: str) -> bool:
    """Return whether a posterior or a data set of this id exists."""
    return stores.posteriors.exists(subject) or stores.datasets.get(subject) is not None
