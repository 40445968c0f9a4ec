"""Copy of a data folder into the object store, imported posteriors in it, and its commands."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from service.cli import main
from tests.worker.operations.test_backup import imported
from worker.operations.backup.archive import Archive, Writer
from worker.operations.backup.dump import BackupScope, dump
from worker.operations.backup.restore import restore
from worker.operations.stored_items import migrate
from worker.storage.datasets import Table
from worker.storage.items.objects import ObjectItems
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.storage.items.index import StoredFile
    from worker.storage.object_store.store import ObjectStore

X = np.random.default_rng(0).normal(size=(50, 3))


def table(number: int) -> Table:
    """Return one of several tables."""
    return Table(values=X + number, labels=np.array(["a", "b"] * 25), source={"kind": "test"})


def objects_of(stores: Stores) -> ObjectStore:
    """Return the object store."""
    assert stores.cache.objects is not None
    return stores.cache.objects


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def target(stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stores]:
    """Return stores with data in the object store."""
    folder, url = str(tmp_path / "machine"), f"file://{tmp_path}/objects"
    connected = Stores.connect(replace(stores.settings, data_dir=folder, data_in="store", store_url=url))
    yield connected
    connected.close()


@pytest.fixture
def source(stores: Stores, tmp_path: Path) -> Iterator[Stores]:
    """Return stores with data in a folder."""
    connected = Stores.connect(replace(stores.settings, data_dir=str(tmp_path / "before")))
    yield connected
    connected.close()


def test_a_folder_is_copied_and_stays(source: Stores, target: Stores) -> None:
    """Data sets with names and imported posteriors are in the store, and a repetition copies nothing."""
    alice = source.of("alice").datasets
    named = alice.rename(alice.add(table(0))[0].id, {"name": "sheet", "tags": ["a"]})
    other, _ = source.datasets.add(table(1))
    record = imported(source, "alice")
    draw = source.imports.load(record).draw(3).embedding
    folder = Path(source.settings.data_dir)
    before = contents(folder)
    result = migrate(target, objects_of(target), str(folder))
    assert (result.copied, result.present, result.damaged) == (3, 0, [])
    assert contents(folder) == before
    assert target.of("alice").datasets.get(named.id) == named
    np.testing.assert_array_equal(target.datasets.values(other.id), X + 1)
    assert target.imports.ids() == [record.id]
    assert target.imports.tenant(record.id) == "alice"
    np.testing.assert_array_equal(target.imports.load(record).draw(3).embedding, draw)
    assert target.of("alice").datasets.stored_bytes() > alice.get(named.id).nbytes + target.imports.nbytes("alice") > 0  # type: ignore[union-attr] # it exists
    result = migrate(target, objects_of(target), str(folder))
    assert (result.copied, result.present, result.damaged) == (0, 3, [])


def test_an_interrupted_copy_goes_on(source: Stores, target: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was copied is not copied again; what the store has lost since is."""
    ids = [source.datasets.add(table(number))[0].id for number in range(4)]
    folder, commit, done = source.settings.data_dir, ObjectItems.commit, list[str]()

    def interrupted(self: ObjectItems, *arguments: object) -> None:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append("one")
        commit(self, *arguments)  # type: ignore[arg-type] # those of `commit`

    monkeypatch.setattr(ObjectItems, "commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        migrate(target, objects_of(target), folder)
    monkeypatch.undo()
    assert target.datasets.ids() == sorted(ids)[:2]
    bucket = objects_of(target).bucket
    bucket.remove(next(path for path in bucket.paths() if min(ids) in path and path.endswith(".npy")))
    result = migrate(target, objects_of(target), folder)
    assert (result.copied, result.present, result.damaged) == (3, 1, [])
    assert list(target.datasets.damaged()) == []


def test_damaged_files_are_not_copied(source: Stores, target: Stores, capsys: pytest.CaptureFixture[str]) -> None:
    """The command names them and ends with 1, and copies the rest."""
    good, bad = (source.datasets.add(table(number))[0].id for number in range(2))
    path = Path(source.settings.data_dir, "datasets", f"{bad}.npy")
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert main.main(["store", "migrate", source.settings.data_dir, *flags(target)]) == 1
    printed = capsys.readouterr().out
    assert f"{bad} is damaged" in printed
    assert "1 copied and read back, 0 were in the store" in printed
    assert target.datasets.ids() == [good]
    assert main.main(["store", "migrate", source.settings.data_dir + "/none", *flags(target)]) == 2
    assert "does not exist" in capsys.readouterr().err


def flags(stores: Stores) -> list[str]:
    """Return the flags of a command for these stores."""
    settings = stores.settings
    return ["--store-url", settings.store_url, "--data-dir", settings.data_dir]


@pytest.fixture(autouse=True)
def _environment(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give commands the addresses of the servers, which are secret."""
    monkeypatch.setenv("GLLE_REDIS_URL", stores.settings.redis_url)
    monkeypatch.setenv("GLLE_CACHE_URL", stores.settings.cache_url)


def test_commands_read_the_store(
    target: Stores, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`glle keys`, `glle scrub`, `glle store sweep` and `reindex` need no shared folder."""
    monkeypatch.setenv("GLLE_DATA_IN", "store")
    monkeypatch.setenv("GLLE_STORE_URL", target.settings.store_url)
    folder = ["--data-dir", target.settings.data_dir]
    assert main.main(["keys", "create", "--tenant", "alice", *folder]) == 0
    assert target.keys.verify(capsys.readouterr().out.strip()).tenant == "alice"
    id_ = target.datasets.add(table(0))[0].id
    assert main.main(["scrub", *folder]) == 0
    assert "1 data sets" in capsys.readouterr().out
    target.client.flushall()
    assert main.main(["store", "sweep", "--age-hours", "0"]) == 0
    assert "1 data sets or other items are not in the index" in capsys.readouterr().out
    assert main.main(["store", "reindex"]) == 0
    assert "1 items are in the index again; 0 damaged" in capsys.readouterr().out
    np.testing.assert_array_equal(target.datasets.values(id_), X)
    bucket = objects_of(target).bucket
    bucket.remove(next(path for path in bucket.paths() if path.endswith(".labels.npy")))
    assert main.main(["scrub", *folder]) == 1
    assert f"{id_} is damaged" in capsys.readouterr().out


def test_backups_of_folder_and_store_are_interchangeable(source: Stores, target: Stores) -> None:
    """A backup of one is restored into the other, with data sets, imported posteriors and keys."""
    everything = BackupScope(keys=True)
    dataset, _ = source.of("alice").datasets.add(table(0))
    record = imported(source, "alice")
    key, _ = source.keys.create("alice", ("read",), "", None)
    file = io.BytesIO()
    dump(source, Writer(file), everything)
    source.of("alice").posteriors.delete(record.id)
    source.keys.revoke(key.id)
    file.seek(0)
    expected = Archive(file)
    rows = restore(target, expected, everything).rows
    assert {name: row["restored"] for name, row in rows.items() if row["restored"]} == {
        "data sets": 1,
        "posteriors": 1,
        "keys": 1,
    }
    assert (target.datasets.get(dataset.id), target.keys.all()) == (dataset, [key])
    again = io.BytesIO()
    assert dump(target, Writer(again), everything)["data sets"] == 1
    again.seek(0)
    found = Archive(again)
    names = [*expected.names("datasets/", ".npy"), *expected.names("posteriors/", ".npz")]
    assert len(names) == 3
    for name in (*names, *expected.names("datasets/", ".json"), "keys.jsonl"):
        with expected.open(name) as one, found.open(name) as two:
            assert one.read() == two.read(), name
    target.datasets.delete(dataset.id)
    with target.imports.exclusive(record.id):
        target.imports.delete(record.id)
    assert [path for path in objects_of(target).bucket.paths() if "/keys/" not in path] == []


def test_only_manifests_are_written_under_a_lease(
    source: Stores, target: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long upload does not outlast its lease, because files are written before the lease is taken."""
    imported(source, "alice")
    source.of("alice").datasets.add(table(0))
    file = io.BytesIO()
    dump(source, Writer(file), BackupScope())
    target.client.flushall()
    upload, written = ObjectItems.upload, list[tuple[str, int]]()

    def observed(self: ObjectItems, id_: str, suffix: str, *arguments: object) -> StoredFile:
        written.append((suffix, len(target.client.keys("glle:lease:*"))))
        return upload(self, id_, suffix, *arguments)  # type: ignore[arg-type] # those of `upload`

    monkeypatch.setattr(ObjectItems, "upload", observed)
    file.seek(0)
    restore(target, Archive(file), BackupScope())
    target.of("alice").datasets.of("alice", 10**6).add(table(1))
    assert [suffix for suffix, held in written if held] == [".item"] * 3
    assert sorted(suffix for suffix, held in written if not held) == [".labels.npy"] * 2 + [".npy"] * 2 + [".npz"]


@pytest.mark.parametrize("damage", ["copy", "object"])
def test_a_damaged_import_is_noticed(target: Stores, damage: str) -> None:
    """A damaged copy is read again; a damaged object is a problem until the file is imported again."""
    record = imported(target, "alice")
    if damage == "copy":
        (copy,) = Path(target.settings.data_dir, "copies").glob("*.npz")
        copy.write_bytes(b"broken".ljust(copy.stat().st_size))
        assert target.imports.load(record).draw(0).embedding.shape == (40, 2)
        return
    bucket = objects_of(target).bucket
    (path,) = [path for path in bucket.paths() if path.endswith(".npz")]
    bucket.remove(path)
    bucket.write(path, [b"broken"], 6)
    assert list(target.imports.damaged()) == [record.id]
    target.of("alice").posteriors.delete(record.id)
    imported(target, "alice")
    assert list(target.imports.damaged()) == []
    assert target.imports.load(record).draw(0).embedding.shape == (40, 2)
