"""Files of data sets and imported posteriors that no record names: what killed uploads and deletions leave."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from worker.base.problems import refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.stores import Stores


def unnamed_files(stores: Stores, age: float) -> list[str]:
    """Return the paths of the files that no record names, written more than `age` seconds ago.

    A younger one may still be in writing.

    Raises
    ------
    ProblemError
        ``records-lost`` if there are files, and no record names any; ``store-unavailable``.

    """
    old = stores.datasets.files.written_before(time.time() - age)  # listed before the records are read
    named = set(_named_paths(stores))
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


def _named_paths(stores: Stores) -> Iterator[str]:
    for id_, raw in stores.datasets.all():
        yield from stores.datasets.kind.load(id_, raw).files
    for id_, raw in stores.posteriors.all():
        yield from stores.posteriors.kind.load(id_, raw).files
