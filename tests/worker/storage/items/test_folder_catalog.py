"""In-memory catalog of a folder of data sets."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

from worker.storage.datasets import DatasetStore, Table
from worker.storage.items import folder_catalog
from worker.storage.items.folder_catalog import DatasetCatalog

if TYPE_CHECKING:
    from pathlib import Path

    from worker.storage.items.base import CatalogEntry


def add(store: DatasetStore, number: int) -> str:
    """Store a small data set and return its id."""
    values = np.arange(6.0).reshape(3, 2) + number
    return store.add(Table(values=values, color=np.ones(3), source={"kind": "test"}))[0].id


def size_of(folder: Path) -> int:
    """Return the bytes of the files of a folder."""
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that collects the ids of the records that are read."""
    ids: list[str] = []
    read = DatasetCatalog._read

    def record_read(self: DatasetCatalog, id_: str) -> CatalogEntry | None:
        ids.append(id_)
        return read(self, id_)

    monkeypatch.setattr(DatasetCatalog, "_read", record_read)
    return ids


def test_a_record_is_read_once(tmp_path: Path, reads: list[str]) -> None:
    """Changes of another process are noticed, and a cataloged record is not read again."""
    store, other = DatasetStore.within(tmp_path), DatasetStore.within(tmp_path)
    assert store.usage() == (0, 0)
    ids = [add(other, number) for number in range(3)]
    assert store.usage() == (3, size_of(tmp_path))
    assert {dataset.id for _, dataset in store.newest()} == set(ids) == set(reads)
    assert len(reads) == 3
    ids.append(add(other, 3))
    other.delete(ids.pop(0))
    assert {dataset.id for _, dataset in store.of("default", 0).newest()} == set(ids)
    assert store.usage() == (3, size_of(tmp_path))
    assert store.of("default", 0).stored_bytes() == size_of(tmp_path)
    assert store.of("another", 0).stored_bytes() == 0
    assert list(store.of("another", 0).newest()) == []
    assert len(reads) == 4


def test_a_folder_is_scanned_only_after_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a recent modification time is always scanned, because of the clock's resolution."""
    looks: list[DatasetCatalog] = []
    look = DatasetCatalog._look

    def record_look(self: DatasetCatalog) -> None:
        looks.append(self)
        look(self)

    monkeypatch.setattr(DatasetCatalog, "_look", record_look)
    store = DatasetStore.within(tmp_path)
    add(store, 0)
    for _ in range(3):
        store.usage()
    assert len(looks) == 3
    long_ago = tmp_path.stat().st_mtime_ns - 2 * folder_catalog.SETTLED_NS
    os.utime(tmp_path, ns=(long_ago, long_ago))
    for _ in range(3):
        store.usage()
    assert len(looks) == 4
    add(store, 1)
    assert store.usage()[0] == 2
