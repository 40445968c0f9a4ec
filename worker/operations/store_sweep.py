"""Sweeping the object store: what expired, what is condemned, what is about nothing any more, what nobody names."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.storage.object_store.index import created_at

if TYPE_CHECKING:
    from worker.storage.object_store.index import StoredObject
    from worker.storage.object_store.store import ObjectStore
    from worker.stores import Stores

ORPHAN_SECONDS = 6 * 3600  # an object may be written for so long before the index names it


@dataclass
class SweepResult:
    """What a sweep removed, in objects; `orphans` were found, and removed if that was wanted."""

    expired: int = 0
    deserted: int = 0
    condemned: int = 0
    orphans: int = 0


def sweep(here: Stores, objects: ObjectStore, *, orphans: bool, age: float = ORPHAN_SECONDS) -> SweepResult:
    """Remove what is to be removed; raises ``store-unavailable``.

    Parameters
    ----------
    orphans
        Whether to remove objects that no index names, too. Another deployment's are such: each needs a URL of its own.
    age
        Seconds for which an object may be nobody's.

    """
    swept = SweepResult()
    for subject in objects.index.subjects():
        entries = list(objects.index.of(subject))
        if not _is_there(here, subject):
            gone = [entry for entry in entries if _age(entry[1].path) > age]
            swept.deserted += _dropped(objects, subject, gone)
            entries = [entry for entry in entries if entry not in gone]
        expired = [entry for entry in entries if entry[1].until <= time.time()]
        swept.expired += _dropped(objects, subject, expired)
        if left := [stored.until for _, stored in entries if stored.until > time.time()]:
            objects.index.due(subject, min(left))
    for path in objects.index.condemned():
        objects.bucket.remove(path)
        objects.index.removed(path)
        swept.condemned += 1
    old = [path for path in objects.bucket.paths() if _age(path) > age]  # before it is asked which are named
    named = objects.index.named()
    for path in old:
        if path not in named:
            swept.orphans += 1
            if orphans:
                objects.bucket.remove(path)
    return swept


def _is_there(here: Stores, subject: str) -> bool:
    """Say whether there is a posterior, or a data set, of this id."""
    return here.posteriors.exists(subject) or here.datasets.get(subject) is not None


def _dropped(objects: ObjectStore, subject: str, entries: list[tuple[str, StoredObject]]) -> int:
    objects.index.drop(subject, entries)
    return len(entries)


def _age(path: str) -> float:
    """Return the seconds since an object was made; what is not ours is never old."""
    made = created_at(path)
    return -math.inf if made is None else time.time() - made
