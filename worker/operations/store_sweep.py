"""Sweep of the object store: removes expired, deserted, condemned and, on request, orphaned objects."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.operations.stored_items import abandoned
from worker.storage.object_store.index import ORPHAN_SECONDS, created_at

if TYPE_CHECKING:
    from worker.storage.object_store.index import StoredObject
    from worker.storage.object_store.store import ObjectStore
    from worker.stores import Stores


@dataclass
class SweepResult:
    """Numbers of removed objects; `orphans` were found, and removed if requested.

    `unnamed` is the number of data sets and other items that the index lacks.
    """

    expired: int = 0
    deserted: int = 0
    condemned: int = 0
    orphans: int = 0
    unnamed: int = 0


def sweep(stores: Stores, objects: ObjectStore, *, orphans: bool, age: float = ORPHAN_SECONDS) -> SweepResult:
    """Sweep the object store; raises ``store-unavailable``.

    With `orphans`, also remove objects that are not in the index. Those of another deployment are not, so each
    deployment needs a separate URL. An object without a record is removed after `age` seconds.
    """
    result = SweepResult()
    for subject in objects.index.subjects():
        entries = list(objects.index.of(subject))
        if not _exists(stores, subject):
            deserted = [entry for entry in entries if _age(entry[1].path) > age]
            result.deserted += _drop(objects, subject, deserted)
            entries = [entry for entry in entries if entry not in deserted]
        expired = [entry for entry in entries if entry[1].until <= time.time()]
        result.expired += _drop(objects, subject, expired)
        if expiries := [stored.until for _, stored in entries if stored.until > time.time()]:
            objects.index.due(subject, min(expiries))
    for path in objects.index.condemned():
        objects.bucket.remove(path)
        objects.index.removed(path)
        result.condemned += 1
    old = [path for path in objects.bucket.paths() if _age(path) > age]  # listed before the index is read
    named = objects.index.named()
    items, result.unnamed = abandoned(stores, objects, age)
    for path in [*(path for path in old if path not in named), *items]:
        result.orphans += 1
        if orphans:
            objects.bucket.remove(path)
    return result


def _exists(stores: Stores, subject: str) -> bool:
    """Return whether a posterior or a data set of this id exists."""
    return stores.posteriors.exists(subject) or stores.datasets.get(subject) is not None


def _drop(objects: ObjectStore, subject: str, entries: list[tuple[str, StoredObject]]) -> int:
    objects.index.drop(subject, entries)
    return len(entries)


def _age(path: str) -> float:
    """Return the seconds since an object was written; a foreign object is never old."""
    written = created_at(path)
    return -math.inf if written is None else time.time() - written
