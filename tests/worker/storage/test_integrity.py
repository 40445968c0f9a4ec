"""Verification of stored data sets: a flipped bit is a problem, never a wrong result."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from worker.base.problems import ProblemError
from worker.storage.datasets import DatasetStore, Table
from worker.storage.object_store import files
from worker.storage.object_store.files import ObjectFiles

if TYPE_CHECKING:
    from pathlib import Path

    from worker.records.dataset import Dataset
    from worker.records.stored_file import StoredFile
    from worker.stores import Stores

X = np.random.default_rng(0).normal(size=(50, 3))
LABELS = np.array(["a", "b"] * 25)
PLACES = np.asfortranarray(X[:, :2])
TABLE = Table(values=X, source={"kind": "test"}, labels=LABELS, color=X[:, 0], coordinates=PLACES, ids=np.arange(50))
FILES = ("values", "labels", "color", "coordinates", "ids")


@pytest.fixture
def dataset(stores: Stores) -> Dataset:
    """Return a stored data set."""
    return stores.datasets.add(TABLE)[0]


def fresh(stores: Stores) -> DatasetStore:
    """Return the data sets as another process reads them, which has verified none."""
    return DatasetStore(stores.client, ObjectFiles.of(stores.settings, None), stores.room)


def path_of(stores: Stores, dataset: Dataset, name: str = "values") -> Path:
    """Return a file of a data set."""
    return stores.datasets.files.bucket.local_path(dataset.stored[name].path)


def flip(path: Path, bit: int) -> None:
    """Flip a bit of a file and keep its times, as a disk error does."""
    before = path.stat()
    raw = bytearray(path.read_bytes())
    raw[bit // 8] ^= 1 << bit % 8
    path.write_bytes(raw)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def read(store: DatasetStore, dataset: Dataset) -> tuple[list[object], dict[str, list[object]]]:
    """Read all values and extras of a data set."""
    values = store.values(dataset.id).tolist()
    return values, {name: array.tolist() for name, array in store.load_extras(dataset).items()}


def outcome(store: DatasetStore, dataset: Dataset) -> object:
    """Read a data set; return its content or the code of the problem."""
    try:
        return read(store, dataset)
    except ProblemError as error:
        return error.problem.code


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_flipped_bit_is_never_served(stores: Stores, dataset: Dataset, data: st.DataObject) -> None:
    """For any bit of any file, a read returns the stored content or a problem."""
    good = read(fresh(stores), dataset)
    path = path_of(stores, dataset, data.draw(st.sampled_from(FILES)))
    bit = data.draw(st.integers(0, 8 * path.stat().st_size - 1))
    flip(path, bit)
    try:
        # A bit of header padding has no effect.
        assert outcome(fresh(stores), dataset) in (good, "dataset-damaged")
    finally:
        flip(path, bit)


def test_hot_reads_hash_nothing(stores: Stores, dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unchanged file is hashed again after an hour, a changed one at once."""
    store = fresh(stores)
    read(store, dataset)
    hashed: list[Path] = []
    whole = files._digest

    def count_read(path: Path) -> str | None:
        hashed.append(path)
        return whole(path)

    monkeypatch.setattr(files, "_digest", count_read)
    for _ in range(5):
        read(store, dataset)
    assert hashed == []
    path = path_of(stores, dataset)
    os.utime(path)
    read(store, dataset)
    assert hashed == [path]
    later = time.monotonic() + files.AGAIN_SECONDS + 1
    monkeypatch.setattr(files, "time", SimpleNamespace(monotonic=lambda: later))
    store.values(dataset.id)
    assert hashed == [path] * 2


def test_a_data_set_deleted_during_a_read_is_not_found(
    stores: Stores, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A concurrent deletion is not reported as damage; a lost file is."""
    store = fresh(stores)
    path_of(stores, dataset).unlink()
    with pytest.raises(ProblemError) as caught:
        store.values(dataset.id)
    assert caught.value.problem.code == "dataset-damaged"
    find = ObjectFiles.path

    def find_late(self: ObjectFiles, file: StoredFile) -> Path:
        store.delete(dataset.id)
        return find(self, file)

    monkeypatch.setattr(ObjectFiles, "path", find_late)
    with pytest.raises(ProblemError) as caught:
        store.values(dataset.id)
    assert caught.value.problem.code == "dataset-not-found"
