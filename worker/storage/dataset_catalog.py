"""What never changes about the data sets of a folder, remembered by a process: a list reads no record twice.

A folder of many data sets takes seconds to read, record by record, and milliseconds to look through for names; when
nothing was added or deleted, not even that.
"""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.base.files import size
from worker.records.dataset import EXTRAS
from worker.records.ids import index_member
from worker.records.tenants import DEFAULT

if TYPE_CHECKING:
    from pathlib import Path

RECORD = ".json"
SUFFIXES = (RECORD, ".npy", *(f".{name}.npy" for name in EXTRAS))
# A folder's time is only as fine as its file system's: what happens this soon after a look may not change it.
SETTLED_NS = 2 * 10**9


@dataclass(frozen=True, order=True)
class CatalogEntry:
    """A data set in the list of all: `member` sorts by its creation; `nbytes` are of its files when first seen."""

    member: str
    id: str
    tenant: str
    nbytes: int


class DatasetCatalog:
    """The places of a folder's data sets.

    Parameters
    ----------
    folder
        Of the records and their arrays; there need be none yet.

    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._known: dict[str, CatalogEntry] = {}
        self._sorted: list[CatalogEntry] = []
        self._seen = -1  # the folder's time when it was looked through, once that was settled

    def places(self) -> list[CatalogEntry]:
        """Return the data sets that are there, the oldest first."""
        with self._lock:
            try:
                changed = self._folder.stat().st_mtime_ns
            except FileNotFoundError:
                return []
            if changed != self._seen:
                settled = time.time_ns() - changed > SETTLED_NS
                self._look()
                self._seen = changed if settled else -1
            return self._sorted

    def _look(self) -> None:
        with os.scandir(self._folder) as entries:
            there = {name[: -len(RECORD)] for entry in entries if _is_record(name := entry.name)}
        gone, new = self._known.keys() - there, there - self._known.keys()
        for id_ in gone:
            del self._known[id_]
        for id_ in new:
            if (place := self._read(id_)) is not None:
                self._known[id_] = place
        if gone or new:
            self._sorted = sorted(self._known.values())

    def _read(self, id_: str) -> CatalogEntry | None:
        try:
            told = json.loads((self._folder / (id_ + RECORD)).read_bytes())
        except FileNotFoundError:  # deleted meanwhile
            return None
        except ValueError:  # it has its place all the same: who reads it says what is wrong
            told = {}
        nbytes = sum(size(self._folder / (id_ + suffix)) for suffix in SUFFIXES)
        return CatalogEntry(index_member(told.get("created", ""), id_), id_, told.get("tenant", DEFAULT), nbytes)


def _is_record(name: str) -> bool:
    return name.startswith("ds_") and name.endswith(RECORD)
