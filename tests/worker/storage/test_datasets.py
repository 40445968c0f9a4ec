"""Storage of data sets on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from glle_engine.tables.table import Table
from tests.conftest import refusal, stored_files
from worker.base.files import NPY_HEADER_LOCK, PREFIX, temporary
from worker.base.problems import ProblemError
from worker.storage import datasets, validation
from worker.storage.datasets import DatasetStore, all_points_equal
from worker.storage.object_store.backend import Bucket
from worker.storage.object_store.files import FOLDER

if TYPE_CHECKING:
    from worker.stores import Stores

X = np.random.default_rng(0).normal(size=(50, 3))


@pytest.fixture
def store(stores: Stores) -> DatasetStore:
    """Return an empty store."""
    return stores.datasets


def table(values: Any, **fields: Any) -> Table:
    """Return a table of these values."""
    return Table(values=np.asarray(values), source={"kind": "test"}, **fields)


def test_same_content_is_the_same_data_set(store: DatasetStore) -> None:
    """Memory order and byte order do not count; values, dtype, names and labels do."""
    first, new = store.add(table(X))
    assert new
    for same in (np.asfortranarray(X), X.astype(">f8"), X.copy()[::1]):
        assert store.add(table(same)) == (first, False)
    others = [
        table(X.T.reshape(50, 3)),
        table(X.astype(np.float32)),
        table(X, names=["a", "b", "c"]),
        table(X, labels=np.zeros(50)),
        table(X, labels=np.array(["0"] * 50)),
        table(X, colors=np.zeros(50)),
        table(X, coordinates=X[:, :2]),
        table(X.reshape(75, 2)),
        table(X, ids=np.arange(50)),
        table(X, ids=np.arange(50).astype(str)),
        table(X, ids=np.arange(100).reshape(50, 2)),
    ]
    assert len({store.add(other)[0].id for other in others} | {first.id}) == 12


def test_labels_of_another_dtype_with_equal_bytes_are_other_content(store: DatasetStore) -> None:
    """The digest covers the dtype of ambiguous labels."""
    text = np.array(["ab"] * 50)
    numbers = text.view(np.float64)
    assert text.tobytes() == numbers.tobytes()
    results = [store.add(table(X, labels=labels)) for labels in (text, numbers)]
    assert [is_new for _, is_new in results] == [True, True]
    assert results[0][0].id != results[1][0].id
    assert [store.load_extras(dataset)["labels"].dtype.kind for dataset, _ in results] == ["U", "f"]


def test_the_id_of_a_table_is_that_of_its_data_set(store: DatasetStore) -> None:
    """The id is computed without storing the table; invalid values are refused."""
    uploaded = table(X, names=["a", "b", "c"], labels=np.array(["ü"] * 50), colors=X[:, 2])
    for mine in (store, store.for_tenant("alice", 0)):
        id_ = mine.id_of(uploaded)
        assert mine.get(id_) is None
        assert mine.add(uploaded)[0].id == id_
    with pytest.raises(ProblemError):
        store.id_of(table(np.full((2, 2), np.nan)))


@pytest.mark.parametrize("dtype", ["f2", ">f4", "u8", "longdouble"])
def test_numbers_become_float64_but_float32_stays(store: DatasetStore, dtype: str) -> None:
    """Every real dtype is accepted; only float32 keeps its width."""
    values = np.arange(12).reshape(4, 3).astype(dtype)
    dataset, _ = store.add(table(values))
    assert dataset.dtype == ("float32" if dtype == ">f4" else "float64")
    np.testing.assert_array_equal(store.values(dataset.id), values.astype(float))


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_not_finite_is_refused_with_row_and_column(stores: Stores, bad: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The position is counted over all blocks of rows, and nothing is stored."""
    monkeypatch.setattr(validation, "BLOCK_VALUES", 30)
    store = stores.datasets
    values = X.copy()
    values[37, 1] = bad
    values[[39, 48], 0] = bad
    problem = refusal(lambda: store.add(table(values, names=["a", "b", "c"])))
    assert (problem.code, problem.status) == ("not-finite", 422)
    assert problem.details == {
        "row": 38, "column": 2, "name": "b", "value": str(bad), "rows_affected": 3, "rows": [38, 40, 49],
    }  # fmt: skip
    assert "row 38, column 2 (b)" in problem.detail
    assert list(store.newest()) == []
    assert stored_files(stores) == []


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1])
def test_integers_that_float64_cannot_hold_are_refused(store: DatasetStore, value: int) -> None:
    """An integer that would be rounded is refused, 2^53 is not."""
    with pytest.raises(ProblemError, match="row 2, column 1") as caught:
        store.add(table(np.array([[1, 2], [value, 3]])))
    assert caught.value.problem.code == "inexact-integer"
    store.add(table(np.array([[1, 2], [2**53, 3]])))


def test_long_double_beyond_float64_is_refused(store: DatasetStore) -> None:
    """A value that would become infinite is refused, not clipped."""
    with pytest.raises(ProblemError, match="inf"):
        store.add(table(np.array([[1, 2], [np.longdouble("1e4000"), 3]])))


def test_a_deletion_begins_with_the_record(store: DatasetStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is removed before the files, so that no record lacks its files if the process is killed."""
    dataset, _ = store.add(table(X))
    remove, removed = Bucket.remove, []

    def check_and_remove(self: Bucket, path: str) -> None:
        assert store.get(dataset.id) is None
        removed.append(path)
        remove(self, path)

    monkeypatch.setattr(Bucket, "remove", check_and_remove)
    store.delete(dataset.id)
    assert removed == list(dataset.files)


@pytest.mark.parametrize("n", [1, 1000])
def test_all_points_equal(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal rows are found, and a different last row is noticed."""
    monkeypatch.setattr(datasets, "BLOCK_VALUES", 64)
    values = np.full((n, 3), 1.5)
    assert all_points_equal(values)
    if n > 1:
        values[-1, -1] = 2
        assert not all_points_equal(values)


def test_files_of_killed_writers_are_removed(stores: Stores) -> None:
    """Unlocked temporaries are removed; files in use and data sets stay."""
    store = stores.datasets
    dataset, _ = store.add(table(X, labels=np.zeros(50)))
    before = stored_files(stores)
    folder = store.files.bucket.local_path(f"{FOLDER}/ab")
    folder.mkdir()
    (folder / f"{PREFIX}dead").write_bytes(b"incomplete")
    with temporary(before[0].parent) as file:
        file.write(b"being written")
        assert store.files.remove_abandoned() == 1
        assert len(stored_files(stores)) == len(before) + 1
    assert stored_files(stores) == before
    assert not folder.exists()
    np.testing.assert_array_equal(store.values(dataset.id), X)


def test_an_upload_during_a_deletion_is_a_new_data_set(store: DatasetStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a data set is uploaded again while it is deleted, the new data set is whole."""
    dataset, _ = store.add(table(X))
    delete = store.files.remove

    def uploading(paths: Any) -> None:
        monkeypatch.undo()
        assert store.add(table(X))[1]
        delete(paths)

    monkeypatch.setattr(store.files, "remove", uploading)
    assert store.delete(dataset.id)
    np.testing.assert_array_equal(store.values(dataset.id), X)


def test_uploads_are_refused_while_the_queue_server_is_full(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new data set needs a new record, and is refused; data that are stored already are accepted."""
    store = stores.datasets
    dataset, _ = store.add(table(X))
    monkeypatch.setattr(type(stores.room), "is_full", True)
    assert store.add(table(X)) == (dataset, False)
    assert refusal(lambda: store.add(table(X + 1))).code == "redis-full"
    assert len(stored_files(stores)) == 1


def test_headers_are_parsed_one_at_a_time(store: DatasetStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock serializes the parsing of npy headers, which may fail in threads of Python 3.11."""
    dataset, _ = store.add(table(X))
    store.values(dataset.id)  # the first read verifies the data set, which parses headers too
    load, is_locked = np.load, []

    def recording_load(*arguments: Any, **options: Any) -> Any:
        is_locked.append(NPY_HEADER_LOCK.locked())
        return load(*arguments, **options)

    monkeypatch.setattr(np, "load", recording_load)
    assert store.values(dataset.id).shape == X.shape
    assert is_locked == [True]
    assert not NPY_HEADER_LOCK.locked()
