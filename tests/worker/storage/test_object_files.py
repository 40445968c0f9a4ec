"""Files of records: on two machines with one store and one queue server; a flipped bit is never a wrong result."""

from __future__ import annotations

import errno
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glle_engine.tables.table import Table
from tests.conftest import refusal
from tests.worker.execution.workers import raiser
from worker.base.files import Temporary
from worker.base.problems import ProblemError
from worker.records.cache_entry import Entry
from worker.storage.datasets import DatasetStore
from worker.storage.object_store import backend, files
from worker.storage.object_store.files import COPIES, COPY_SECONDS, FOLDER, DamagedFileError, ObjectFiles
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.base.settings import Settings
    from worker.records.dataset import Dataset
    from worker.records.stored_file import StoredFile
    from worker.storage.object_store.backend import Bucket

X = np.random.default_rng(0).normal(size=(50, 3))
LABELS = np.array(["a", "ü"] * 25)


def table(values: Any = X, **fields: Any) -> Table:
    """Return a table of these values."""
    return Table(values=np.asarray(values), source={"kind": "test"}, **fields)


@pytest.fixture(params=["file", "memory"])
def connect(
    request: pytest.FixtureRequest, settings: Settings, stores: Stores, tmp_path: Path
) -> Iterator[Callable[..., Stores]]:
    """Return a function that connects the stores of a machine, by its name, to one object store."""
    del stores  # it empties the servers
    url = f"file://{tmp_path}/objects" if request.param == "file" else f"memory://{tmp_path.name}"
    connected: list[Stores] = []

    def machine(name: str) -> Stores:
        connected.append(Stores.connect(replace(settings, data_dir=str(tmp_path / name), store_url=url)))
        return connected[-1]

    yield machine
    for one in connected:
        one.close()


@pytest.fixture
def one(connect: Callable[..., Stores]) -> Stores:
    """Return the stores of a machine."""
    return connect("one")


@pytest.fixture
def two(connect: Callable[..., Stores]) -> Stores:
    """Return the stores of another machine."""
    return connect("two")


def bucket_of(stores: Stores) -> Bucket:
    """Return the object store."""
    return stores.datasets.files.bucket


def paths(stores: Stores) -> list[str]:
    """Return the paths of all files."""
    return list(bucket_of(stores).modification_times(FOLDER))


def copies(stores: Stores) -> list[Path]:
    """Return the local copies of a machine."""
    folder = Path(stores.settings.data_dir, COPIES)
    return [path for path in folder.iterdir() if not path.name.startswith(".")] if folder.is_dir() else []


def find_damaged_ids(stores: Stores) -> list[str]:
    """Return the ids of the damaged data sets."""
    return [dataset.id for dataset, is_intact in stores.datasets.verify() if not is_intact]


def ids(stores: Stores) -> set[str]:
    """Return the ids of all data sets."""
    return {id_ for id_, _ in stores.datasets.all()}


def rewrite(stores: Stores, change: Callable[[bytes], bytes]) -> None:
    """Change the bytes of the only file in the store."""
    (path,) = paths(stores)
    raw = bucket_of(stores).read(path, 0, 2**30)
    assert raw is not None
    bucket_of(stores).remove(path)
    bucket_of(stores).write(path, [change(raw)], len(raw))


def test_every_machine_reads_what_one_has_stored(one: Stores, two: Stores) -> None:
    """All arrays, the record, lists, usage and name of a data set, and its deletion, are the same on both machines."""
    original = table(labels=LABELS, colors=X[:, 0], coordinates=X[:, :2], ids=np.arange(50), names=["x", "y", "z"])
    alice = one.datasets.for_tenant("alice")
    dataset, new = alice.add(original)
    assert new
    assert two.datasets.for_tenant("alice").add(original) == (dataset, False)
    other = two.datasets.for_tenant("alice")
    assert other.get(dataset.id) == dataset
    np.testing.assert_array_equal(other.values(dataset.id), X)
    np.testing.assert_array_equal(other.ids_of(dataset.id), np.arange(50))
    beside = other.load_extras(dataset)
    assert {name: array.tolist() for name, array in beside.items()} == {
        "labels": LABELS.tolist(),
        "colors": X[:, 0].tolist(),
        "coordinates": X[:, :2].tolist(),
        "ids": list(range(50)),
    }
    second, _ = other.add(table(X + 1))
    assert [record for _, record in alice.newest()] == [second, dataset]
    assert alice.usage() == other.usage() == one.datasets.usage()
    assert alice.usage()["stored_bytes"] >= 2 * X.nbytes + LABELS.nbytes
    renamed = other.rename(dataset.id, {"name": "sheet", "tags": ["a"]})
    assert alice.get(dataset.id) == renamed
    mapped = alice.values(dataset.id)
    assert other.delete(dataset.id)
    assert not other.delete(dataset.id)
    assert refusal(alice.values, dataset.id).code == "dataset-not-found"
    np.testing.assert_array_equal(mapped, X)
    assert alice.delete(second.id)
    assert paths(one) == []
    assert not any(one.datasets.usage().values())


def test_a_data_set_of_several_pieces_is_whole(one: Stores, two: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is larger than one request may be is written and read in pieces, and compared as a whole."""
    monkeypatch.setattr(backend, "MAX_REQUEST_BYTES", 2**16)
    values = np.random.default_rng(1).normal(size=(2 * backend.MAX_REQUEST_BYTES // 80 + 100, 10))
    dataset, _ = one.datasets.add(table(values))
    np.testing.assert_array_equal(two.datasets.values(dataset.id), values)
    assert find_damaged_ids(two) == []
    rewrite(one, lambda raw: raw[: -backend.MAX_REQUEST_BYTES])
    assert find_damaged_ids(two) == [dataset.id]


@pytest.mark.parametrize("damage", [Path.unlink, lambda copy: copy.write_bytes(copy.read_bytes()[:-1] + b"?")])
@pytest.mark.parametrize("connect", ["memory"], indirect=True)
def test_a_damaged_local_copy_is_read_again(one: Stores, two: Stores, damage: Callable[[Path], object]) -> None:
    """If a copy is lost or changed, the data are read from the store again."""
    dataset, _ = one.datasets.add(table())
    np.testing.assert_array_equal(two.datasets.values(dataset.id), X)
    damage(*copies(two))
    np.testing.assert_array_equal(two.datasets.values(dataset.id), X)
    np.testing.assert_array_equal(np.load(copies(two)[0]), X)


@pytest.mark.parametrize("damage", [None, lambda raw: raw[:200], lambda raw: raw[:-1] + bytes([raw[-1] ^ 1])])
def test_a_damaged_object_is_reported_and_an_upload_repairs_it(
    one: Stores, two: Stores, damage: Callable[[bytes], bytes] | None
) -> None:
    """No machine serves changed bits; an upload repairs the data set even on a machine that has an intact copy."""
    dataset, _ = one.datasets.add(table())
    named = one.datasets.rename(dataset.id, {"name": "sheet", "tags": []})
    one.datasets.values(dataset.id)
    if damage is None:
        bucket_of(one).remove(*paths(one))
    else:
        rewrite(one, damage)
    assert refusal(two.datasets.values, dataset.id).code == "dataset-damaged"
    assert find_damaged_ids(one) == [dataset.id]
    repaired, new = one.datasets.add(table())
    assert (replace(repaired, stored=named.stored), new) == (named, False)
    np.testing.assert_array_equal(two.datasets.values(dataset.id), X)
    assert find_damaged_ids(one) == []
    assert paths(one) == list(repaired.files)  # the replaced file is gone
    assert one.datasets.usage()["datasets"] == 1


@pytest.mark.parametrize("connect", ["memory"], indirect=True)
def test_local_copies_are_bounded(connect: Callable[..., Stores], one: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently used copies are removed, and made again when they are needed; recently used ones stay."""
    monkeypatch.setattr(files, "RECENT_SECONDS", 0.0)
    values = [np.random.default_rng(seed).normal(size=(2**13, 4)) for seed in range(6)]  # 256 kB each
    stored = [one.datasets.add(table(value))[0].id for value in values]
    monkeypatch.setattr(files, "MAX_COPY_BYTES", 2**20)
    small = connect("small")
    for _ in range(2):
        for id_, value in zip(stored, values, strict=True):
            np.testing.assert_array_equal(small.datasets.values(id_), value)
            assert sum(path.stat().st_size for path in copies(small)) <= 2**20
    small.datasets.values(stored[3])
    small.datasets.values(stored[0])
    names = {path.name for path in copies(small)}
    small.datasets.values(stored[3])
    assert {path.name for path in copies(small)} == names
    monkeypatch.setattr(files, "RECENT_SECONDS", 60.0)
    for id_ in stored:
        small.datasets.values(id_)
    assert names < {path.name for path in copies(small)}


@pytest.mark.parametrize("connect", ["memory"], indirect=True)
def test_a_folder_without_room_for_copies_is_a_problem_with_a_remedy(
    one: Stores, two: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads are refused and leave no file while the folder of copies cannot be written."""

    def fail(*_: object) -> None:
        raise OSError(errno.EROFS, "A test")

    dataset, _ = one.datasets.add(table())
    with monkeypatch.context() as patch:
        patch.setattr(Temporary, "publish", fail)
        problem = refusal(two.datasets.values, dataset.id)
    assert (problem.code, problem.status) == ("data-folder-read-only", 503)
    assert "GLLE_DATA_DIR" in problem.remedy
    assert list(Path(two.settings.data_dir, COPIES).iterdir()) == []
    np.testing.assert_array_equal(two.datasets.values(dataset.id), X)


def test_concurrent_uploads_and_deletions_leave_whole_data_sets(one: Stores, two: Stores) -> None:
    """After any order of changes on two machines, each listed data set is intact, and no other file is left."""
    tables = [table(X + number, labels=LABELS) for number in range(3)]

    def work(seed: int) -> None:
        rng = random.Random(seed)  # noqa: S311 # no secret
        for _ in range(6):
            store, chosen = rng.choice([one, two]).datasets, rng.choice(tables)
            if rng.random() < 0.5:
                store.add(chosen)
            else:
                store.delete(store.id_of(chosen))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert find_damaged_ids(two) == []
    records = [one.datasets.get(id_) for id_ in ids(one)]
    assert sorted(paths(one)) == sorted(path for record in records if record is not None for path in record.files)
    sizes = [len(bucket_of(one).read(path, 0, 2**20) or b"") for path in paths(one)]
    assert one.datasets.usage() == {"datasets": len(records), "stored_bytes": sum(sizes)}


def test_the_quota_holds_between_a_look_and_the_record(one: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another upload fills the quota first, the record is refused, and the new files are removed."""
    store = one.datasets.for_tenant("alice", X.nbytes + 200)
    monkeypatch.setattr(DatasetStore, "require_room", lambda *_: None)
    kept, _ = store.add(table())
    problem = refusal(lambda: store.add(table(X + 1)))
    assert problem.code == "quota-exceeded"
    assert problem.details["used"] == store.usage()["stored_bytes"]
    assert paths(one) == list(kept.files)


def test_a_failing_store_leaves_no_data_set(one: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The upload is refused with 503; later it succeeds."""
    write = backend.Bucket.write

    def fail(self: Bucket, path: str, *arguments: Any) -> None:
        if path.endswith("labels.npy"):
            raise backend._unavailable("a test", "None.")
        write(self, path, *arguments)

    monkeypatch.setattr(backend.Bucket, "write", fail)
    assert refusal(lambda: one.datasets.add(table(labels=LABELS))).code == "store-unavailable"
    monkeypatch.undo()
    assert (ids(one), paths(one)) == (set(), [])
    assert one.datasets.add(table(labels=LABELS))[1]
    assert find_damaged_ids(one) == []


@pytest.mark.parametrize("is_repeated", [False, True])
def test_an_upload_whose_answer_is_lost_keeps_its_files(
    one: Stores, *, is_repeated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the connection breaks after the record is written, the files that the record names stay."""
    script = one.datasets._script

    def broken(**options: Any) -> Any:
        answer = script(**options)
        if not is_repeated:
            raise redis.ConnectionError
        monkeypatch.undo()
        del answer  # the client sends the command again
        return script(**options)

    monkeypatch.setattr(one.datasets, "_script", broken)
    if is_repeated:
        dataset, new = one.datasets.add(table())
        assert new
    else:
        with pytest.raises(redis.ConnectionError):
            one.datasets.add(table())
        monkeypatch.undo()
        dataset, new = one.datasets.add(table())
        assert not new
    np.testing.assert_array_equal(one.datasets.values(dataset.id), X)
    assert paths(one) == list(dataset.files)


@pytest.fixture
def small(remote_stores: Stores) -> StoredFile:
    """Return a small file of a remote store, which was read once."""
    file = remote_stores.files.write_entry(Entry({"a": 1}, {"x": X}))
    remote_stores.files.read_entry(file)
    return file


def test_small_remote_files_are_read_from_the_cache(remote_stores: Stores, small: StoredFile) -> None:
    """Small remote files are copied to Redis; a lost or damaged copy is read from the store, and written again."""
    cache, bucket = remote_stores.cache.client, remote_stores.files.bucket
    (key,) = cache.scan_iter("*")
    raw: Any = cache.get(key)
    assert 0 < cache.ttl(key) <= COPY_SECONDS
    assert copies(remote_stores) == []
    for damaged in (None, raw[:-1] + b"?", b""):
        cache.delete(key)
        if damaged is not None:
            cache.set(key, damaged)
        entry = remote_stores.files.read_entry(small)
        assert (entry.meta, entry.arrays["x"].tobytes()) == ({"a": 1}, X.tobytes())
        assert cache.get(key) == raw
    bucket.remove(small.path)
    np.testing.assert_array_equal(remote_stores.files.read_entry(small).arrays["x"], X)
    cache.set(key, raw[:-1] + b"?")
    with pytest.raises(FileNotFoundError):
        remote_stores.files.read_entry(small)


def test_a_damaged_small_object_is_not_copied(remote_stores: Stores, small: StoredFile) -> None:
    """A damaged object is reported, and no copy of it is made in Redis."""
    cache, bucket = remote_stores.cache.client, remote_stores.files.bucket
    raw = bucket.read(small.path, 0, small.size)
    assert raw is not None
    bucket.write(small.path, [raw[:-1] + b"?"], len(raw))
    cache.flushall()
    with pytest.raises(DamagedFileError):
        remote_stores.files.read_entry(small)
    assert cache.dbsize() == 0


def test_without_the_cache_reads_are_slower_only(
    remote_stores: Stores, small: StoredFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small remote files are read from the store while the cache's server is away."""
    for command in ("get", "set"):
        monkeypatch.setattr(remote_stores.cache.client, command, raiser(redis.ConnectionError("gone")))
    np.testing.assert_array_equal(remote_stores.files.read_entry(small).arrays["x"], X)


def test_large_remote_entries_are_mapped_from_local_copies(
    remote_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large entries are not copied to Redis; mapped arrays stay readable when file and copy are deleted."""
    monkeypatch.setattr(files, "MAX_REQUEST_BYTES", 100)
    file = remote_stores.files.write_entry(Entry({"a": 1}, {"x": X}))
    entry = remote_stores.files.read_entry(file)
    assert (len(copies(remote_stores)), remote_stores.cache.client.dbsize()) == (1, 0)
    remote_stores.files.remove([file.path])
    copies(remote_stores)[0].unlink()
    np.testing.assert_array_equal(entry.arrays["x"], X)
    with pytest.raises(FileNotFoundError):
        remote_stores.files.read_entry(file)


def test_a_file_that_is_no_entry_is_damaged(stores: Stores) -> None:
    """A file of another program is damaged, even if its digest is right."""
    for content in (b"", b"no entry", (2).to_bytes(8, "little") + b"[]"):
        stored = stores.files.write_new({"entry": ([content], len(content))})["entry"]
        with pytest.raises(DamagedFileError):
            stores.files.read_entry(stored)


WORDS = np.array(["a", "b"] * 25)
PLACES = np.asfortranarray(X[:, :2])
TABLE = Table(values=X, source={"kind": "test"}, labels=WORDS, colors=X[:, 0], coordinates=PLACES, ids=np.arange(50))
FILES = ("values", "labels", "colors", "coordinates", "ids")


@pytest.fixture
def dataset(stores: Stores) -> Dataset:
    """Return a stored data set."""
    return stores.datasets.add(TABLE)[0]


def fresh(stores: Stores) -> DatasetStore:
    """Return the store of data sets as another process has it, which has not verified any file."""
    return DatasetStore(stores.client, ObjectFiles.from_settings(stores.settings, None), stores.room, stores.results)


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


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
    later = time.monotonic() + files.VERIFY_SECONDS + 1
    monkeypatch.setattr(files, "time", SimpleNamespace(monotonic=lambda: later))
    store.values(dataset.id)
    assert hashed == [path] * 2


def test_a_data_set_deleted_during_a_read_is_not_found(
    stores: Stores, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a data set is deleted during a read, it is not found; a lost file is reported as damage."""
    store = fresh(stores)
    path_of(stores, dataset).unlink()
    problem = refusal(store.values, dataset.id)
    assert problem.code == "dataset-damaged"
    assert "does not find the file" in problem.detail
    assert "API and workers need the same GLLE_DATA_DIR" in problem.remedy
    find = ObjectFiles.path

    def find_late(self: ObjectFiles, file: StoredFile) -> Path:
        store.delete(dataset.id)
        return find(self, file)

    monkeypatch.setattr(ObjectFiles, "path", find_late)
    assert refusal(store.values, dataset.id).code == "dataset-not-found"
