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
from worker.records.ids import text
from worker.storage import integrity
from worker.storage.datasets import DatasetStore, Table

if TYPE_CHECKING:
    from pathlib import Path

    from worker.records.dataset import Dataset
    from worker.stores import Stores

X = np.random.default_rng(0).normal(size=(50, 3))
LABELS = np.array(["a", "b"] * 25)
PLACES = np.asfortranarray(X[:, :2])
TABLE = Table(values=X, source={"kind": "test"}, labels=LABELS, color=X[:, 0], coordinates=PLACES, ids=np.arange(50))
HEADER_BYTES = 128  # header of an npy file, version 1.0, with a short shape
FILES = ("values", "labels", "color", "coordinates", "ids")


@pytest.fixture
def dataset(stores: Stores) -> Dataset:
    """Return a stored data set."""
    return stores.datasets.add(TABLE)[0]


def fresh(stores: Stores) -> DatasetStore:
    """Return the data sets as another process reads them, which has verified none."""
    return DatasetStore(stores.client, stores.datasets.files, stores.room)


def path_of(stores: Stores, dataset: Dataset, name: str = "values") -> Path:
    """Return a file of a data set."""
    return stores.datasets.files.bucket.local_path(dataset.path(name))


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


def header_bits(path: Path) -> list[int]:
    """Return every bit of the dtype and the shape in a header, and one bit of each other byte."""
    header = path.read_bytes()[:HEADER_BYTES]
    dtype, order = header.index(b"'descr': ") + len("'descr': "), header.index(b", 'fortran_order'")
    shape, end = header.index(b"'shape': ") + len("'shape': "), header.index(b"}")
    in_full = {*range(dtype, order), *range(shape, end)}
    return [8 * byte + bit for byte in range(HEADER_BYTES) for bit in (range(8) if byte in in_full else [byte % 8])]


@pytest.mark.parametrize("file", FILES)
def test_no_bit_of_a_header_changes_the_content(stores: Stores, dataset: Dataset, file: str) -> None:
    """A bit of each byte is tested, and each of the dtype: the digest does not cover the byte order of text."""
    path = path_of(stores, dataset, file)
    good = read(fresh(stores), dataset)
    for bit in header_bits(path):
        flip(path, bit)
        found = outcome(fresh(stores), dataset)
        flip(path, bit)
        assert found in (good, "dataset-damaged"), bit
    assert read(fresh(stores), dataset) == good


def test_a_record_of_other_data_is_noticed(stores: Stores) -> None:
    """Shape, dtype, names and owner belong to the content."""
    store = fresh(stores).of("alice", 0)
    dataset, _ = store.add(Table(values=X, source={"kind": "test"}, names=["x", "y", "z"]))
    key = store.kind.key(dataset.id)
    good = text(stores.client.get(key))
    for old, new in (('"n": 50', '"n": 49'), ("float64", "float32"), ('"x"', '"w"'), ("alice", "alicf")):
        assert old in good
        stores.client.set(key, good.replace(old, new))
        with pytest.raises(ProblemError, match="differ from"):
            fresh(stores).values(dataset.id)


def test_hot_reads_hash_nothing(stores: Stores, dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unchanged file is hashed again after an hour, a changed one at once."""
    store = fresh(stores)
    store.values(dataset.id)
    hashed: list[str] = []
    whole = integrity.IntegrityChecker._has_digest

    def counted(self: integrity.IntegrityChecker, dataset: Dataset) -> bool:
        hashed.append(dataset.id)
        return whole(self, dataset)

    monkeypatch.setattr(integrity.IntegrityChecker, "_has_digest", counted)
    for _ in range(5):
        store.values(dataset.id)
        store.load_extras(dataset)
    assert hashed == []
    os.utime(path_of(stores, dataset))
    store.values(dataset.id)
    assert hashed == [dataset.id]
    later = time.monotonic() + integrity.AGAIN_SECONDS + 1
    monkeypatch.setattr(integrity, "time", SimpleNamespace(monotonic=lambda: later))
    store.values(dataset.id)
    assert hashed == [dataset.id] * 2


def test_a_data_set_deleted_during_a_read_is_not_found(
    stores: Stores, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A concurrent deletion is not reported as damage; a lost file is."""
    store = fresh(stores)
    path_of(stores, dataset).unlink()
    with pytest.raises(ProblemError) as caught:
        store.values(dataset.id)
    assert caught.value.problem.code == "dataset-damaged"
    require = integrity.IntegrityChecker.require

    def late(self: integrity.IntegrityChecker, dataset: Dataset) -> None:
        store.delete(dataset.id)
        require(self, dataset)

    monkeypatch.setattr(integrity.IntegrityChecker, "require", late)
    with pytest.raises(ProblemError) as caught:
        store.values(dataset.id)
    assert caught.value.problem.code == "dataset-not-found"
