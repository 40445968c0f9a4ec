"""Data sets in the object store: two machines with separate folders, one store and one index."""

from __future__ import annotations

import errno
import os
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import redis

from worker.base.files import Temporary
from worker.base.problems import ProblemError
from worker.base.settings import SettingsError
from worker.operations.store_sweep import sweep
from worker.operations.stored_items import reindex
from worker.storage.datasets import DatasetStore, Table
from worker.storage.items import leases, local_copies, objects
from worker.storage.items.index import INLINE
from worker.storage.items.objects import COPIES, ObjectItems
from worker.storage.object_store import backend
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.base.settings import Settings
    from worker.storage.object_store.store import ObjectStore

X = np.random.default_rng(0).normal(size=(50, 3))
LABELS = np.array(["a", "ü"] * 25)


def table(values: Any = X, **more: Any) -> Table:
    """Return a table of these values."""
    return Table(values=np.asarray(values), source={"kind": "test"}, **more)


@pytest.fixture(params=["file", "memory"])
def connect(
    request: pytest.FixtureRequest, settings: Settings, stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Stores]]:
    """Return the function that connects the stores of a machine with this folder to one object store."""
    del stores  # it empties the servers
    url = f"file://{tmp_path}/objects" if request.param == "file" else f"memory://{tmp_path.name}"
    connected: list[Stores] = []

    def machine(name: str, *, patient: bool = False, **more: Any) -> Stores:
        changed = replace(settings, data_dir=str(tmp_path / name), data_in="store", store_url=url, **more)
        connected.append(Stores.connect(changed, patient=patient))
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


def objects_of(stores: Stores) -> ObjectStore:
    """Return the object store."""
    assert stores.cache.objects is not None
    return stores.cache.objects


def paths(stores: Stores) -> list[str]:
    """Return the paths of all objects of items."""
    return [path for path in objects_of(stores).bucket.paths() if path.startswith("items/")]


def copies(stores: Stores) -> list[Path]:
    """Return the local copies of a machine."""
    return [path for path in Path(stores.settings.data_dir, COPIES).iterdir() if not path.name.startswith(".")]


def code(call: Callable[[], object]) -> str:
    """Return the code of a refusal."""
    with pytest.raises(ProblemError) as caught:
        call()
    return caught.value.problem.code


def rewrite(stores: Stores, suffix: str, change: Callable[[bytes], bytes]) -> None:
    """Change the bytes of the one object with this suffix."""
    bucket = objects_of(stores).bucket
    (path,) = [path for path in paths(stores) if path.endswith(suffix)]
    raw = bucket.read(path, 0, 2**30)
    assert raw is not None
    bucket.remove(path)
    bucket.write(path, [change(raw)], len(raw))


def test_every_machine_reads_what_one_has_stored(one: Stores, two: Stores) -> None:
    """Values, arrays beside them, record, list, usage, name and deletion are the same on both."""
    original = table(labels=LABELS, color=X[:, 0], coordinates=X[:, :2], ids=np.arange(50), names=["x", "y", "z"])
    alice = one.datasets.of("alice", 0)
    dataset, new = alice.add(original)
    assert new
    assert two.datasets.of("alice", 0).add(original) == (dataset, False)
    other = two.datasets.of("alice", 0)
    assert other.get(dataset.id) == dataset
    np.testing.assert_array_equal(other.values(dataset.id), X)
    beside = other.load_extras(dataset)
    assert {name: array.tolist() for name, array in beside.items()} == {
        "labels": LABELS.tolist(),
        "color": X[:, 0].tolist(),
        "coordinates": X[:, :2].tolist(),
        "ids": list(range(50)),
    }
    second, _ = other.add(table(X + 1))
    assert [found.id for _, found in alice.newest()] == [second.id, dataset.id]
    (first, _), _ = alice.newest()
    assert [found.id for _, found in alice.newest(first)] == [dataset.id]
    assert list(one.datasets.of("bob", 0).newest()) == []
    assert one.datasets.of("bob", 0).get(dataset.id) is None
    assert alice.usage() == other.usage() == one.datasets.usage()
    assert alice.usage()[1] >= 2 * X.nbytes + LABELS.nbytes
    renamed = other.rename(dataset.id, {"name": "sheet", "tags": ["a"]})
    assert alice.get(dataset.id) == renamed
    np.testing.assert_array_equal(alice.values(dataset.id), X)
    mapped = alice.values(dataset.id)
    assert other.delete(dataset.id)
    assert not other.delete(dataset.id)
    assert code(lambda: alice.values(dataset.id)) == "dataset-not-found"
    np.testing.assert_array_equal(mapped, X)
    assert alice.delete(second.id)
    assert paths(one) == []
    assert (alice.usage(), one.datasets.usage(), one.datasets.ids()) == ((0, 0), (0, 0), [])


def test_data_sets_equal_those_of_a_folder(one: Stores, tmp_path: Path) -> None:
    """Ids, records and bytes of the files do not depend on the place."""
    folder = DatasetStore.within(tmp_path / "folder" / "datasets")
    here, there = folder.add(table(labels=LABELS))[0], one.datasets.add(table(labels=LABELS))[0]
    assert replace(here, created="") == replace(there, created="")
    with folder.opened(here.id) as expected, one.datasets.opened(there.id) as found:
        assert expected is not None
        assert found is not None
        assert {name: file.read() for name, file in expected.items() if name != ".json"} == {
            name: file.read() for name, file in found.items() if name != ".json"
        }
    assert one.datasets.id_of(table(labels=LABELS)) == there.id


def test_a_data_set_of_several_pieces_is_whole(one: Stores, two: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that exceeds one request is written and read in pieces, and compared as a whole."""
    for module in (backend, objects):
        monkeypatch.setattr(module, "PIECE", 2**16)
    values = np.random.default_rng(1).normal(size=(2 * backend.PIECE // 80 + 100, 10))
    dataset, _ = one.datasets.add(table(values))
    np.testing.assert_array_equal(two.datasets.values(dataset.id), values)
    assert list(two.datasets.damaged()) == []
    rewrite(one, ".npy", lambda raw: raw[: -backend.PIECE])
    assert list(two.datasets.damaged()) == [dataset.id]


@pytest.mark.parametrize("damage", ["remove", "truncate", "flip"])
def test_a_damaged_local_copy_is_read_again(one: Stores, two: Stores, damage: str) -> None:
    """Whatever happens to a copy, the bits are those of the upload."""
    dataset, _ = one.datasets.add(table())
    np.testing.assert_array_equal(two.datasets.values(dataset.id), X)
    (copy,) = copies(two)
    if damage == "remove":
        copy.unlink()
    elif damage == "truncate":
        os.truncate(copy, 200)
    else:
        raw = bytearray(copy.read_bytes())
        raw[-1] ^= 1
        copy.unlink()
        copy.write_bytes(raw)
    np.testing.assert_array_equal(two.datasets.values(dataset.id), X)
    np.testing.assert_array_equal(np.load(copies(two)[0]), X)


@pytest.mark.parametrize("damage", ["remove", "truncate", "flip"])
def test_a_damaged_object_is_reported_and_an_upload_repairs_it(one: Stores, two: Stores, damage: str) -> None:
    """No machine serves other bits; the upload works on the machine that has an intact copy, too."""
    dataset, _ = one.datasets.add(table())
    named = one.datasets.rename(dataset.id, {"name": "sheet", "tags": []})
    if damage == "remove":
        objects_of(one).bucket.remove(*[path for path in paths(one) if path.endswith(".npy")])
    else:
        rewrite(
            one,
            ".npy",
            {"truncate": lambda raw: raw[:200], "flip": lambda raw: raw[:-1] + bytes([raw[-1] ^ 1])}[damage],
        )
    assert code(lambda: two.datasets.values(dataset.id)) == "dataset-damaged"
    assert list(one.datasets.damaged()) == [dataset.id]
    assert one.datasets.add(table()) == (named, False)
    np.testing.assert_array_equal(two.datasets.values(dataset.id), X)
    assert list(one.datasets.damaged()) == []
    assert len(paths(one)) == 2  # the replaced objects are gone


def test_local_copies_are_bounded(connect: Callable[..., Stores], one: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently used are removed, and read again when they are needed; those in use stay."""
    monkeypatch.setattr(local_copies, "RECENT_SECONDS", 0.0)
    values = [np.random.default_rng(seed).normal(size=(2**13, 4)) for seed in range(6)]  # 256 kB each
    ids = [one.datasets.add(table(value))[0].id for value in values]
    monkeypatch.setattr(objects, "MAX_COPIES", 2**20)
    small = connect("small")
    for _ in range(2):
        for id_, value in zip(ids, values, strict=True):
            np.testing.assert_array_equal(small.datasets.values(id_), value)
            assert sum(path.stat().st_size for path in copies(small)) <= 2**20
    small.datasets.values(ids[3])
    small.datasets.values(ids[0])
    names = {path.name for path in copies(small)}
    small.datasets.values(ids[3])
    assert {path.name for path in copies(small)} == names
    monkeypatch.setattr(local_copies, "RECENT_SECONDS", 60.0)
    for id_ in ids:
        small.datasets.values(id_)
    assert names < {path.name for path in copies(small)}


@pytest.mark.parametrize(
    ("number", "expected", "remedy"),
    [
        (errno.ENOSPC, ("storage-full", 507), "Enlarge the disk"),
        (errno.EROFS, ("data-folder-read-only", 503), "GLLE_DATA_DIR"),
    ],
)
def test_a_folder_without_room_for_copies_is_a_problem_with_a_remedy(
    one: Stores, two: Stores, number: int, expected: object, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads of that machine are refused and leave no file, and succeed once the folder can be written."""

    def fail(*_: object) -> None:
        raise OSError(number, "A test")

    dataset, _ = one.datasets.add(table())
    with monkeypatch.context() as patch:
        patch.setattr(Temporary, "publish", fail)
        with pytest.raises(ProblemError) as caught:
            two.datasets.values(dataset.id)
    assert (caught.value.problem.code, caught.value.problem.status) == expected
    assert remedy in caught.value.problem.remedy
    assert list(Path(two.settings.data_dir, COPIES).iterdir()) == []
    np.testing.assert_array_equal(two.datasets.values(dataset.id), X)


def test_a_long_record_is_not_in_the_index(one: Stores, two: Stores) -> None:
    """Names of many features do not fill the queue's memory; the manifest has them."""
    names = [f"feature number {number}" for number in range(1000)]
    dataset, _ = one.datasets.add(table(np.random.default_rng(0).normal(size=(3, 1000)), names=names))
    raw = one.client.hget("glle:items:datasets", dataset.id)
    assert raw is not None
    assert len(raw) < INLINE
    assert two.datasets.get(dataset.id) == dataset
    renamed = two.datasets.rename(dataset.id, {"name": "wide", "tags": []})
    assert one.datasets.get(dataset.id) == renamed
    assert renamed.names == names
    objects_of(one).bucket.remove(*[path for path in paths(one) if path.endswith(".item")])
    for copy in copies(one):
        copy.unlink()
    assert code(lambda: one.datasets.get(dataset.id)) == "record-unreadable"


def test_a_change_without_its_lease_is_refused_and_loses_nothing(
    one: Stores, two: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was suspended beyond its lease changes neither index nor store."""
    existing, _ = one.datasets.add(table(X + 1))
    commit = ObjectItems.commit

    def late(self: ObjectItems, item: Any) -> None:
        key = f"glle:lease:datasets:{item.id}"
        assert one.client.exists(key)
        one.client.set(key, "of another holder")
        try:
            commit(self, item)
        finally:
            one.client.delete(key)

    before = paths(one)
    monkeypatch.setattr(ObjectItems, "commit", late)
    assert code(lambda: one.datasets.add(table())) == "lease-lost"
    assert code(lambda: one.datasets.rename(existing.id, {"name": "x", "tags": []})) == "lease-lost"
    monkeypatch.undo()
    assert paths(one) == before
    assert two.datasets.ids() == [existing.id]
    assert two.datasets.get(existing.id) == existing
    assert one.datasets.add(table())[1]


def test_a_killed_holder_blocks_until_its_lease_ends(one: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiting request is refused after its patience, and goes on after the end of the lease."""
    dataset, _ = one.datasets.add(table())
    one.client.set(f"glle:lease:datasets:{dataset.id}", "of a killed process", ex=1)
    monkeypatch.setattr(leases, "PATIENCE_SECONDS", 0.0)
    assert code(lambda: one.datasets.delete(dataset.id)) == "lease-lost"
    monkeypatch.setattr(leases, "PATIENCE_SECONDS", 60.0)
    assert one.datasets.delete(dataset.id)


def test_concurrent_uploads_and_deletions_leave_whole_data_sets(one: Stores, two: Stores) -> None:
    """After any order of changes on two machines, each listed data set is intact, and no other object is left."""
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
    ids = one.datasets.ids()
    assert list(two.datasets.damaged()) == []
    assert {path.split("/")[2] for path in paths(one)} == set(ids)
    assert len(paths(one)) == 3 * len(ids)
    assert one.datasets.usage()[0] == len(ids)
    sizes = [len(objects_of(one).bucket.read(path, 0, 2**20) or b"") for path in paths(one)]
    assert sum(sizes) == one.datasets.usage()[1]
    assert not list(one.client.scan_iter(match="glle:lease:*"))


def test_two_machines_do_not_share_the_same_room(one: Stores, two: Stores) -> None:
    """Concurrent uploads of a tenant never exceed its quota, and refused ones leave nothing."""
    quota = 3 * (X.nbytes + 1500)  # with header, record and manifest

    def upload(number: int) -> str:
        try:
            (one, two)[number % 2].datasets.of("alice", quota).add(table(X + number))
        except ProblemError as error:
            return error.problem.code
        return "stored"

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(upload, range(8)))
    stored = outcomes.count("stored")
    assert set(outcomes) == {"stored", "quota-exceeded"}
    assert stored == len(one.datasets.ids())
    assert one.datasets.of("alice", quota).stored_bytes() <= quota + 2500  # what is not data, of one upload
    assert len(paths(one)) == 2 * stored


def test_a_failing_store_leaves_no_data_set(one: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload gets 503, and its repetition succeeds."""
    write = backend.Bucket.write

    def fail(self: backend.Bucket, path: str, *arguments: Any) -> None:
        if path.endswith(".item"):
            raise backend._unavailable("a test")
        write(self, path, *arguments)

    monkeypatch.setattr(backend.Bucket, "write", fail)
    assert code(lambda: one.datasets.add(table())) == "store-unavailable"
    monkeypatch.undo()
    assert one.datasets.ids() == []
    assert one.datasets.add(table())[1]
    assert list(one.datasets.damaged()) == []


def test_a_task_waits_for_a_store_that_fails_for_a_moment(
    connect: Callable[..., Stores], one: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker reads again, so that no job fails; an API refuses at once."""
    dataset, _ = one.datasets.add(table())
    monkeypatch.setattr(objects, "WAITS", (0.01, 0.02))
    worker = connect("worker", patient=True)
    read, failures = backend.Bucket.read, [True, True, True]

    def failing(self: backend.Bucket, *arguments: Any) -> Any:
        if failures:
            failures.pop()
            raise backend._unavailable("a test")
        return read(self, *arguments)

    monkeypatch.setattr(backend.Bucket, "read", failing)
    assert code(lambda: connect("api").datasets.values(dataset.id)) == "store-unavailable"
    assert len(failures) == 2
    np.testing.assert_array_equal(worker.datasets.values(dataset.id), X)
    assert failures == []


def test_an_upload_whose_answer_is_lost_may_be_repeated(one: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the connection to the index breaks after the change, the objects stay, because the index names them."""
    items = one.datasets._items
    assert isinstance(items, ObjectItems)
    change = items.index._change

    def broken(**options: Any) -> None:
        change(**options)
        raise redis.ConnectionError

    monkeypatch.setattr(items.index, "_change", broken)
    with pytest.raises(redis.ConnectionError):
        one.datasets.add(table())
    monkeypatch.undo()
    dataset, new = one.datasets.add(table())
    assert not new
    np.testing.assert_array_equal(one.datasets.values(dataset.id), X)


def test_a_sweep_removes_objects_of_killed_writers_alone(one: Stores) -> None:
    """Data sets stay, also while the index lacks them; `reindex` names them again."""
    kept, _ = one.datasets.add(table(labels=LABELS))
    one.datasets.rename(kept.id, {"name": "sheet", "tags": []})
    lost, _ = one.datasets.add(table(X + 1))
    bucket = objects_of(one).bucket
    bucket.write("items/datasets/ds_0123/18c0.ab.npy", [b"killed"], 6)
    bucket.write(f"items/datasets/{kept.id}/18c0.ab.npy", [b"killed"], 6)
    data = [path for path in paths(one) if "/18c0.ab." not in path]
    result = sweep(one, objects_of(one), age=-60.0)
    assert (result.removed, result.unnamed) == (2, 0)
    assert paths(one) == data
    one.client.flushall()
    assert one.datasets.ids() == []
    result = sweep(one, objects_of(one), age=-60.0)
    assert (result.removed, result.unnamed) == (0, 2)
    rewrite_last = [path for path in paths(one) if lost.id in path and path.endswith(".npy")]
    bucket.remove(*rewrite_last)
    assert reindex(one, objects_of(one)) == (2, [lost.id])
    assert reindex(one, objects_of(one)) == (0, [])
    assert one.datasets.get(kept.id) == replace(kept, name="sheet")
    np.testing.assert_array_equal(one.datasets.values(kept.id), X)


def test_a_deleted_data_set_does_not_return(one: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects that could not be removed are condemned, and the next sweep removes them."""
    dataset, _ = one.datasets.add(table())
    with monkeypatch.context() as patch:
        patch.setattr(backend.Bucket, "remove", lambda *_: (_ for _ in ()).throw(backend._unavailable("a test")))
        assert one.datasets.delete(dataset.id)
    assert len(paths(one)) == 2
    assert reindex(one, objects_of(one)) == (0, [])
    assert sweep(one, objects_of(one)).removed == 2
    assert paths(one) == []


def test_a_store_needs_its_address(settings: Settings) -> None:
    """The refusal names both settings."""
    with pytest.raises(SettingsError, match="GLLE_DATA_IN=store needs GLLE_STORE_URL"):
        Stores.connect(replace(settings, data_in="store"))
