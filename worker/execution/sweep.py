"""Sweep of the stored files: removes expired results, and the files that no record names.

Killed uploads and tasks leave such files, and deletions while the store does not answer. A worker sweeps each hour.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from worker.base.problems import refuse
from worker.records.stored_file import ORPHAN_SECONDS
from worker.storage.object_store.files import FOLDER

if TYPE_CHECKING:
    from worker.stores import Stores


def sweep(stores: Stores, age: float = ORPHAN_SECONDS) -> tuple[int, int]:
    """Remove expired results, and files that no record names and that are older than `age` seconds.

    Returns
    -------
    tuple
        The numbers of removed results, and of removed files without a record.

    Raises
    ------
    ProblemError
        ``records-lost``, ``store-unavailable``; the next sweep goes on.

    """
    unnamed = find_unnamed_files(stores, age)
    expired = sum(stores.results.delete_expired(tenant) for tenant in stores.jobs.tenants())
    stores.files.remove(unnamed)
    stores.files.remove_abandoned()
    return expired, len(unnamed)


def find_unnamed_files(stores: Stores, age: float = ORPHAN_SECONDS) -> list[str]:
    """Return the paths of the files that no record names, written more than `age` seconds ago.

    A younger one may wait for its record.

    Raises
    ------
    ProblemError
        ``records-lost`` if there are files, and no record names any; ``store-unavailable``.

    """
    times = stores.files.bucket.modification_times(FOLDER)  # listed before the records are read
    old = [path for path, written in times.items() if written < time.time() - age]
    named: set[str] = set()
    for store in (stores.datasets, stores.posteriors, stores.embeddings, stores.results):
        for id_, raw in store.all():
            named.update(store.kind.load(id_, raw).files)
    if old and not named:
        raise refuse(
            "records-lost",
            409,
            f"There are {len(old):,} stored files, and no record names any: the queue's Redis is another one, or has "
            "lost its records.",
            "Nothing was removed. Check GLLE_REDIS_URL, or restore a backup.",
            files=len(old),
        )
    return [path for path in old if path not in named]
