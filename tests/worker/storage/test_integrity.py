"""Verification of stored data sets: a flipped bit is a problem, never a wrong result."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.base.problems import ProblemError
from worker.storage import integrity
from worker.storage.datasets import DatasetStore, Table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from worker.records.dataset import Dataset

X = np.random.default_rng(0).normal(size=(50, 3))
LABELS = np.array(["a", "b"] * 25)
PLACES = np.asfortranarray(X[:, :2])
TABLE = Table(values=X, source={"kind": "test"}, labels=LABELS, color=X[:, 0], coordinates=PLACES, ids=np.arange(50))
HEADER_BYTES = 128  # header of an npy file, version 1.0, with a short shape
FILES = (".npy", ".labels.npy", ".color.npy", ".coordinates.npy", ".ids.npy")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of the data sets."""
    return tmp_path / "datasets"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Dataset]:
    """Return a folder and the data set in it; a test restores what it damages."""
    folder = tmp_path_factory.mktemp("stored") / "datasets"
    return folder, DatasetStore.within(folder).add(TABLE)[0]


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


@settings(max_examples=60)
@given(data=st.data())
def test_a_flipped_bit_is_never_served(stored: tuple[Path, Dataset], data: st.DataObject) -> None:
    """For any bit of any file, a read returns the stored content or a problem."""
    folder, dataset = stored
    good = read(DatasetStore.within(folder), dataset)
    path = folder / (dataset.id + data.draw(st.sampled_from(FILES)))
    bit = data.draw(st.integers(0, 8 * path.stat().st_size - 1))
    flip(path, bit)
    try:
        # A bit of header padding has no effect.
        assert outcome(DatasetStore.within(folder), dataset) in (good, "dataset-damaged")
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
def test_no_bit_of_a_header_changes_the_content(stored: tuple[Path, Dataset], file: str) -> None:
    """A bit of each byte is tested, and each of the dtype: the digest does not cover the byte order of text."""
    folder, dataset = stored
    path = folder / (dataset.id + file)
    good = read(DatasetStore.within(folder), dataset)
    for bit in header_bits(path):
        flip(path, bit)
        found = outcome(DatasetStore.within(folder), dataset)
        flip(path, bit)
        assert found in (good, "dataset-damaged"), bit
    assert read(DatasetStore.within(folder), dataset) == good


def test_the_last_bit_of_the_values_is_noticed(folder: Path) -> None:
    """Every reading process and a scrub report it; the record is still listed."""
    dataset, _ = DatasetStore.within(folder).add(TABLE)
    path = folder / f"{dataset.id}.npy"
    flip(path, 8 * path.stat().st_size - 1)
    store = DatasetStore.within(folder)
    for reader in (store, store.of("default", 0)):
        with pytest.raises(ProblemError, match="differ from the upload"):
            reader.values(dataset.id)
    assert list(store.damaged()) == [dataset.id]
    assert store.get(dataset.id) == dataset


def test_a_record_of_other_data_is_noticed(folder: Path) -> None:
    """Shape, dtype, names and owner belong to the content."""
    store = DatasetStore.within(folder).of("alice", 0)
    dataset, _ = store.add(Table(values=X, source={"kind": "test"}, names=["x", "y", "z"]))
    record = folder / f"{dataset.id}.json"
    good = record.read_text()
    for old, new in (('"n": 50', '"n": 49'), ("float64", "float32"), ('"x"', '"w"'), ("alice", "alicf")):
        assert old in good
        record.write_text(good.replace(old, new))
        with pytest.raises(ProblemError, match="differ from"):
            DatasetStore.within(folder).values(dataset.id)


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_an_upload_repairs_a_damaged_data_set(folder: Path, damage: str) -> None:
    """Id and name stay, so that posteriors of the data set stay valid."""
    store = DatasetStore.within(folder)
    dataset, _ = store.add(TABLE)
    named = store.rename(dataset.id, {"name": "sheet", "tags": ["a"]})
    path = folder / f"{dataset.id}.npy"
    do: dict[str, Callable[[], object]] = {
        "flip": lambda: flip(path, 8 * path.stat().st_size - 1),
        "truncate": lambda: os.truncate(path, 200),
        "remove": path.unlink,
    }
    do[damage]()
    with pytest.raises(ProblemError):
        DatasetStore.within(folder).values(dataset.id)
    assert store.add(TABLE) == (named, False)
    np.testing.assert_array_equal(DatasetStore.within(folder).values(dataset.id), X)


def test_hot_reads_hash_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unchanged file is hashed again after an hour, a changed one at once."""
    store = DatasetStore.within(folder)
    dataset, _ = store.add(TABLE)
    store.values(dataset.id)
    hashed: list[str] = []
    whole = integrity.IntegrityChecker.is_intact

    def counted(self: integrity.IntegrityChecker, dataset: Dataset) -> bool:
        hashed.append(dataset.id)
        return whole(self, dataset)

    monkeypatch.setattr(integrity.IntegrityChecker, "is_intact", counted)
    for _ in range(5):
        store.values(dataset.id)
        store.load_extras(dataset)
    assert hashed == []
    path = folder / f"{dataset.id}.npy"
    os.utime(path)
    store.values(dataset.id)
    assert hashed == [dataset.id]
    later = time.monotonic() + integrity.AGAIN_SECONDS + 1
    monkeypatch.setattr(integrity, "time", SimpleNamespace(monotonic=lambda: later))
    store.values(dataset.id)
    assert hashed == [dataset.id] * 2


def test_a_data_set_deleted_meanwhile_is_not_found(folder: Path) -> None:
    """A concurrent deletion is not reported as damage."""
    store = DatasetStore.within(folder)
    dataset, _ = store.add(TABLE)
    (folder / f"{dataset.id}.npy").unlink()
    with pytest.raises(ProblemError) as caught:
        store.values(dataset.id)
    assert caught.value.problem.code == "dataset-not-found"
