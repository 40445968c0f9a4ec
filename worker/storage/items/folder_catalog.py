"""In-memory catalog of the data sets in a folder.

A folder of many data sets takes seconds to read record by record, and milliseconds to list. So each record is read
once, and the folder is listed only after a change.
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import TYPE_CHECKING

from worker.base.files import size
from worker.records.dataset import EXTRAS
from worker.records.ids import index_member
from worker.records.tenants import DEFAULT
from worker.storage.items.base import RECORD, CatalogEntry

if TYPE_CHECKING:
    from pathlib import Path

SUFFIXES = (RECORD, ".npy", *(f".{name}.npy" for name in EXTRAS))
# A folder's mtime has the resolution of its file system: a change so soon after a look may not change the mtime.
SETTLED_NS = 2 * 10**9


class DatasetCatalog:
    """Catalog of a folder.

    Parameters
    ----------
    folder
        Folder of the records and arrays; it need not exist yet.

    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._entries: dict[str, CatalogEntry] = {}
        self._sorted: list[CatalogEntry] = []
        self._mtime = -1  # of the folder at the last look; -1 if it may change unnoticed

    def entries(self) -> list[CatalogEntry]:
        """Return the data sets, the oldest first."""
        with self._lock:
            try:
                mtime = self._folder.stat().st_mtime_ns
            except FileNotFoundError:
                return []
            if mtime != self._mtime:
                is_settled = time.time_ns() - mtime > SETTLED_NS
                self._look()
                self._mtime = mtime if is_settled else -1
            return self._sorted

    def _look(self) -> None:
        with os.scandir(self._folder) as files:
            ids = {
                name[: -len(RECORD)]
                for file in files
                if (name := file.name).startswith("ds_") and name.endswith(RECORD)
            }
        removed, added = self._entries.keys() - ids, ids - self._entries.keys()
        for id_ in removed:
            del self._entries[id_]
        for id_ in added:
            if (entry := self._read(id_)) is not None:
                self._entries[id_] = entry
        if removed or added:
            self._sorted = sorted(self._entries.values())

    def _read(self, id_: str) -> CatalogEntry | None:
        try:
            record = json.loads((self._folder / (id_ + RECORD)).read_bytes())
        except FileNotFoundError:  # deleted meanwhile
            return None
        except ValueError:  # listed all the same, so that a reader gets the error
            record = {}
        nbytes = sum(size(self._folder / (id_ + suffix)) for suffix in SUFFIXES)
        return CatalogEntry(index_member(record.get("created", ""), id_), id_, record.get("tenant", DEFAULT), nbytes)
