"""Storage of data sets on disk."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from worker.base.files import NPY_HEADER_LOCK, PREFIX, temporary
from worker.base.problems import ProblemError
from worker.storage import datasets, validation
from worker.storage.datasets import DatasetStore, Table, all_points_equal

if TYPE_CHECKING:
    from pathlib import Path

X = np.random.default_rng(0).normal(size=(50, 3))


@pytest.fixture
def store(tmp_path: Path) -> DatasetStore:
    """An empty store."""
    return DatasetStore.within(tmp_path / "datasets")


def table(values: Any, **more: Any) -> Table:
    """Return a table of these values."""
    return Table(values=np.asarray(values), source={"kind": "test"}, **more)


def test_round_trip(store: DatasetStore) -> None:
    """Values, labels and coordinates are restored unchanged."""
    vectors = {"labels": np.array(["ü"] * 50), "color": X[:, 2], "coordinates": X[:, :2], "ids": np.arange(50) - 3}
    original = table(X, names=["a", "b", "c"], **vectors)
    dataset, new = store.add(original)
    assert new
    assert (dataset.n, dataset.d, dataset.dtype, dataset.nbytes) == (50, 3, "float64", 1200)
    assert store.get(dataset.id) == dataset
    np.testing.assert_array_equal(store.values(dataset.id), X)
    beside = store.load_extras(dataset)
    assert list(beside) == ["labels", "color", "coordinates", "ids"]
    assert beside["ids"].dtype == np.int64
    np.testing.assert_array_equal(store.ids_of(dataset.id), np.arange(50) - 3)
    assert beside["labels"].tolist() == ["ü"] * 50
    np.testing.assert_array_equal(beside["color"], X[:, 2])
    np.testing.assert_array_equal(beside["coordinates"], X[:, :2])


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
        table(X, color=np.zeros(50)),
        table(X, coordinates=X[:, :2]),
        table(X.reshape(75, 2)),
        table(X, ids=np.arange(50)),
        table(X, ids=np.arange(50).astype(str)),
        table(X, ids=np.arange(100).reshape(50, 2)),
    ]
    assert len({store.add(other)[0].id for other in others} | {first.id}) == 12


def test_labels_of_another_dtype_with_equal_bytes_are_other_content(store: DatasetStore) -> None:
    """The digest covers the dtype of ambiguous labels; all other digests are unchanged."""
    text = np.array(["ab"] * 50)
    numbers = text.view(np.float64)
    assert text.tobytes() == numbers.tobytes()
    results = [store.add(table(X, labels=labels)) for labels in (text, numbers)]
    assert [is_new for _, is_new in results] == [True, True]
    assert results[0][0].id != results[1][0].id
    assert [store.load_extras(dataset)["labels"].dtype.kind for dataset, _ in results] == ["U", "f"]
    prefix = hashlib.sha256(json.dumps([50, 3, "<f8", None]).encode() + X.tobytes() + b"labels")
    for labels in (text, np.zeros(50), np.arange(50.0), -numbers):
        expected = prefix.copy()
        expected.update(labels.tobytes())
        assert store.add(table(X, labels=labels))[0].sha256 == expected.hexdigest()


def test_the_id_of_a_table_is_that_of_its_data_set(store: DatasetStore) -> None:
    """It is computed without storing; invalid values are refused."""
    uploaded = table(X, names=["a", "b", "c"], labels=np.array(["ü"] * 50), color=X[:, 2])
    for mine in (store, store.of("alice", 0)):
        id_ = mine.id_of(uploaded)
        assert mine.get(id_) is None
        assert mine.add(uploaded)[0].id == id_
    with pytest.raises(ProblemError):
        store.id_of(table(np.full((2, 2), np.nan)))


@pytest.mark.parametrize("dtype", ["f2", "f8", ">f4", "u1", "i8", "u8", "longdouble"])
def test_numbers_become_float64_but_float32_stays(store: DatasetStore, dtype: str) -> None:
    """Every real dtype is accepted; only float32 keeps its width."""
    values = np.arange(12).reshape(4, 3).astype(dtype)
    dataset, _ = store.add(table(values))
    assert dataset.dtype == ("float32" if dtype == ">f4" else "float64")
    np.testing.assert_array_equal(store.values(dataset.id), values.astype(float))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_not_finite_is_refused_with_row_and_column(
    store: DatasetStore, bad: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The position is counted over all blocks, and nothing is stored."""
    monkeypatch.setattr(validation, "BLOCK", 30)
    values = X.copy()
    values[37, 1] = bad
    values[[39, 48], 0] = bad
    with pytest.raises(ProblemError) as caught:
        store.add(table(values, names=["a", "b", "c"]))
    problem = caught.value.problem
    assert (problem.code, problem.status) == ("not-finite", 422)
    assert problem.details == {
        "row": 38, "column": 2, "name": "b", "value": str(bad), "rows_affected": 3, "rows": [38, 40, 49],
    }  # fmt: skip
    assert "row 38, column 2 (b)" in problem.detail
    assert list(store.newest()) == []
    assert list((tmp_path / "datasets").iterdir()) == []


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


def test_listing_is_newest_first_and_goes_on_after_a_cursor(
    store: DatasetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cursor of an entry leads to the next one."""
    times = iter(f"2025-01-0{day}T00:00:00.000Z" for day in range(1, 5))
    monkeypatch.setattr(datasets, "now_iso", lambda: next(times))
    ids = [store.add(table(X + shift))[0].id for shift in range(4)]
    listed = list(store.newest())
    assert [dataset.id for _, dataset in listed] == ids[::-1]
    assert [dataset.id for _, dataset in store.newest(before=listed[1][0])] == ids[1::-1]


def test_delete_removes_every_file(store: DatasetStore, tmp_path: Path) -> None:
    """No file is left, a second delete returns False, and a read is a 404 with a remedy."""
    dataset, _ = store.add(table(X, labels=np.zeros(50), color=np.ones(50), coordinates=X[:, :2]))
    assert store.delete(dataset.id)
    assert not store.delete(dataset.id)
    assert list((tmp_path / "datasets").iterdir()) == []
    with pytest.raises(ProblemError) as caught:
        store.values(dataset.id)
    assert (caught.value.problem.code, caught.value.problem.status) == ("dataset-not-found", 404)


def test_rename_changes_the_record_alone(store: DatasetStore, tmp_path: Path) -> None:
    """Name and tags are stored, id and digest stay; a deleted record is not written again."""
    dataset, _ = store.add(table(X))
    renamed = store.rename(dataset.id, {"name": "x", "tags": ["a"]})
    assert store.get(dataset.id) == renamed
    assert (renamed.sha256, renamed.name, renamed.tags) == (dataset.sha256, "x", ["a"])
    assert store.delete(dataset.id)
    with pytest.raises(ProblemError, match="no data set"):
        store.rename(dataset.id, {"name": "y"})
    assert list((tmp_path / "datasets").iterdir()) == []


@pytest.mark.parametrize("id_", ["", "ds_", "ds_../../etc/passwd", "ds_a/b", "post_1", "ds_é"])
def test_ids_never_leave_the_folder(store: DatasetStore, id_: str) -> None:
    """An invalid id is unknown, even if it is a path."""
    assert store.get(id_) is None
    assert not store.delete(id_)


def test_failed_write_leaves_nothing(store: DatasetStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An error between the files leaves no data set and no temporary file."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", fail)
    with pytest.raises(OSError, match="No space"):
        store.add(table(X, labels=np.zeros(50)))
    assert list(store.newest()) == []
    assert [path.name for path in (tmp_path / "datasets").iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("n", [1, 2, 1000])
def test_all_points_equal(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal rows are found, and a different last row is noticed."""
    monkeypatch.setattr(datasets, "BLOCK", 64)
    values = np.full((n, 3), 1.5)
    assert all_points_equal(values)
    if n > 1:
        values[-1, -1] = 2
        assert not all_points_equal(values)


def test_files_of_killed_writers_are_removed(store: DatasetStore, tmp_path: Path) -> None:
    """Files without a record and unlocked temporaries are removed; files in use and data sets stay."""
    dataset, _ = store.add(table(X, labels=np.zeros(50)))
    folder = tmp_path / "datasets"
    before = {path.name for path in folder.iterdir()}
    (folder / "ds_0123.npy").write_bytes(b"published without its record")
    (folder / f"{PREFIX}dead").write_bytes(b"incomplete")
    with temporary(folder) as file:
        file.write(b"being written")
        assert store.remove_abandoned() == 2
        assert len(list(folder.glob(PREFIX + "*"))) == 1
        file.publish(folder / "other")
    assert {path.name for path in folder.iterdir()} == before | {"other"}
    np.testing.assert_array_equal(store.values(dataset.id), X)
    assert DatasetStore.within(tmp_path / "none").remove_abandoned() == 0


def test_upload_waits_for_a_deletion(store: DatasetStore, tmp_path: Path) -> None:
    """An upload publishes nothing during a deletion of the same data set, which would remove a part of it."""
    with ThreadPoolExecutor() as pool:
        with store._items.exclusive(""):
            upload = pool.submit(store.add, table(X))
            with pytest.raises(TimeoutError):
                upload.result(0.3)
            assert not list((tmp_path / "datasets").glob("ds_*"))
        dataset, new = upload.result(10)
    assert new
    assert len(store.values(dataset.id)) == 50


def test_headers_are_parsed_one_at_a_time(store: DatasetStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Concurrent parsing may fail in Python 3.11, so that a lock serializes it."""
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
