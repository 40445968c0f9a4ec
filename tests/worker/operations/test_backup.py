"""Backups: restored data, unchanged data, refused archives."""

from __future__ import annotations

import io
import json
import tarfile
import tracemalloc
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import glle_engine
from glle_engine import FitSpec
from tests.conftest import refusal, stored_files
from tests.service.conftest import posterior_record
from worker.analyses.embedding import Recipe
from worker.base.versions import SCHEMA
from worker.operations.backup import Archive, BackupScope, Writer, dump, restore
from worker.records.ids import posterior_id
from worker.storage.datasets import Table
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.base.settings import Settings

EVERYTHING = BackupScope(keys=True)
Member = tuple[tarfile.TarInfo, bytes]
KINDS = ("data sets", "posteriors", "embeddings", "keys")


def fill(stores: Stores, tenant: str, seed: int = 0) -> str:
    """Give a tenant one record of each kind; return the id of the data set."""
    mine, rng = stores.of(tenant), np.random.default_rng(seed)
    beside: dict[str, Any] = {"labels": np.array(list("abab")), "color": np.arange(4.0)}
    beside["coordinates"] = np.asfortranarray(rng.normal(size=(4, 2)))
    beside["ids"] = np.array([["a", "007"], ["ü", ""], ["b", "1"], ["c", "1"]]) if seed else np.array([7, -3, 2, 1])
    dataset, _ = mine.datasets.add(Table(values=rng.normal(size=(4, 3)), source={"kind": "test"}, **beside))
    mine.datasets.rename(dataset.id, {"name": "mine", "tags": ["a", "b"]})
    id_ = posterior_id(dataset.id, FitSpec(n_neighbors=10).to_dict(), glle_engine.NUMBERS)
    mine.posteriors.record(posterior_record(id=id_, dataset=dataset.id, tenant=tenant, n=4))
    mine.posteriors.calibrate(id_, {"scale": 0.5})
    mine.embeddings.note(Recipe(dataset=dataset.id, method="isomap", parameters={}), "claim")
    mine.keys.create(tenant, ("read",), "", None)
    return dataset.id


def state(stores: Stores) -> dict[str, Any]:
    """Return all data of a backup to the last byte, without times to live."""
    fields: dict[str, Any] = {}
    for id_ in ids(stores):
        dataset = stores.datasets.get(id_)
        assert dataset is not None
        files = stores.datasets.files
        content = {name: files.path(file).read_bytes() for name, file in dataset.stored.items()}
        fields[id_] = replace(dataset, stored={}), content
    for raw in stores.client.scan_iter():
        key = raw.decode()
        kind = stores.client.type(raw)
        if kind == b"string" and ":claim:" not in key and key.split(":")[1] != "dataset":
            fields[key] = stores.client.get(raw)
    for tenant in ("default", "alice"):
        fields[tenant] = [cursor for cursor, _ in stores.of(tenant).posteriors.newest()]
        fields[tenant] += [stores.of(tenant).datasets.usage()]
    return {**fields, "keys": stores.keys.all()}


def ids(stores: Stores) -> list[str]:
    """Return the ids of all data sets."""
    return sorted(id_ for id_, _ in stores.datasets.all())


def backup(stores: Stores, chosen: BackupScope = EVERYTHING) -> bytes:
    """Return a backup."""
    file = io.BytesIO()
    dump(stores, Writer(file), chosen)
    return file.getvalue()


@pytest.fixture
def full(stores: Stores) -> Stores:
    """Return a deployment in which two tenants have one record of each kind."""
    fill(stores, "default")
    fill(stores, "alice", seed=1)
    return stores


@pytest.fixture
def empty(full: Stores, tmp_path: Path) -> Iterator[Callable[[], Stores]]:
    """Return a function that empties the servers and connects to them with a new data folder."""
    connected: list[Stores] = []

    def empty_stores() -> Stores:
        full.client.flushall()
        full.cache.client.flushall()
        connected.append(Stores.connect(replace(full.settings, data_dir=str(tmp_path / f"new {len(connected)}"))))
        return connected[-1]

    yield empty_stores
    for stores in connected:
        stores.close()


def test_a_restoration_is_complete(full: Stores, empty: Callable[[], Stores]) -> None:
    """All data are restored to the last byte, with names and lists; a second restoration changes nothing.

    A dry run reports the outcomes, and changes nothing.
    """
    before, raw = state(full), backup(full)
    target = empty()
    dry = restore(target, Archive(io.BytesIO(raw)), EVERYTHING, dry=True)
    assert dry["data sets"]["restored"] == 2
    assert target.client.dbsize() == target.cache.client.dbsize() == 0
    assert (ids(target), stored_files(target)) == ([], [])
    report = restore(target, Archive(io.BytesIO(raw)), EVERYTHING)
    assert state(target) == before
    assert {kind: row["restored"] for kind, row in report.items()} == dict.fromkeys(KINDS, 2)
    again = restore(target, Archive(io.BytesIO(raw)), EVERYTHING)
    assert {kind: row["there already"] for kind, row in again.items()} == dict.fromkeys(KINDS, 2)
    assert state(target) == before


def test_paths_of_a_backup_are_not_used(full: Stores, empty: Callable[[], Stores]) -> None:
    """A restored record names the files that the restoration wrote."""
    raw = reseal(
        backup(full),
        lambda name, data: data.replace(b'"path": "data/', b'"path": "../../x/') if name.endswith(".jsonl") else data,
    )
    target = empty()
    restore(target, Archive(io.BytesIO(raw)), EVERYTHING)
    found = [dataset for id_ in ids(target) if (dataset := target.datasets.get(id_)) is not None]
    paths = [path for dataset in found for path in dataset.files]
    assert sorted(map(target.datasets.files.bucket.local_path, paths)) == stored_files(target)
    assert list(target.datasets.files.find_damaged(target.datasets)) == []


def test_a_damaged_data_set_is_restored(full: Stores) -> None:
    """It and the others keep their present names, and the damaged files are removed."""
    raw, (id_, other) = backup(full), ids(full)
    for renamed in (id_, other):
        full.datasets.rename(renamed, {"name": "newer"})
    dataset = full.datasets.get(id_)
    assert dataset is not None
    full.datasets.files.bucket.local_path(dataset.stored["values"].path).write_bytes(b"damaged")
    before = len(stored_files(full))
    report = restore(full, Archive(io.BytesIO(raw)), EVERYTHING)["data sets"]
    assert (report["restored"], report["there already"]) == (1, 1)
    assert list(full.datasets.files.find_damaged(full.datasets)) == []
    assert [full.datasets.fetch(renamed).name for renamed in (id_, other)] == ["newer"] * 2
    assert len(stored_files(full)) == before


def test_a_backup_of_one_tenant(full: Stores, empty: Callable[[], Stores]) -> None:
    """It contains no data of another tenant, and neither does its restoration. Keys are included on request."""
    assert "keys.jsonl" not in [info.name for info, _ in members(backup(full, BackupScope()))]
    whole, alices = backup(full), backup(full, replace(EVERYTHING, tenants=frozenset({"alice"})))
    for raw, chosen in ((alices, EVERYTHING), (whole, replace(EVERYTHING, tenants=frozenset({"alice"})))):
        target = empty()
        report = restore(target, Archive(io.BytesIO(raw)), chosen)
        assert {kind: row["restored"] for kind, row in report.items()} == dict.fromkeys(KINDS, 1)
        assert {target.datasets.get(id_).tenant for id_ in ids(target)} == {"alice"}  # type: ignore[union-attr] # it exists
    target = empty()
    assert restore(target, Archive(io.BytesIO(whole)), BackupScope())["keys"]["restored"] == 0
    assert target.keys.all() == []


def test_data_deleted_during_a_backup_are_excluded(full: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """No record in a backup refers to data that are not in it."""
    deleted, *_ = ids(full)
    records = list(full.datasets.all())
    monkeypatch.setattr(full.datasets, "all", lambda: records)
    full.datasets.delete(deleted)
    archive = Archive(io.BytesIO(backup(full)))
    assert archive.manifest["counts"] == dict.fromkeys(KINDS, 1) | {"keys": 2}
    assert all(line["dataset"] != deleted for line in archive.lines("posteriors.jsonl"))


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"damaged")])
def test_records_without_their_files_are_returned(full: Stores, damage: Callable[[Path], object]) -> None:
    """A missing or damaged file is no deletion, although the record and its posterior are left out alike."""
    lost, _ = ids(full)
    damage(full.datasets.files.bucket.local_path(full.datasets.fetch(lost).stored["values"].path))
    counts, left_out = dump(full, Writer(io.BytesIO()), EVERYTHING)
    assert (left_out, counts) == ([lost], dict.fromkeys(KINDS, 1) | {"keys": 2})


def test_a_posterior_is_backed_up_with_its_neighbors(full: Stores, empty: Callable[[], Stores]) -> None:
    """The data set of given neighbors is as necessary as the data; without it the posterior is left out."""
    near, _ = full.datasets.add(Table(values=np.ones((4, 2)), source={"kind": "test"}))
    (id_,) = full.of("default").posteriors.ids_in("")
    record = full.posteriors.fetch(id_)
    full.posteriors.delete(record.id)
    full.posteriors.record(replace(record, spec={**record.spec, "neighbors": near.id}))
    whole = backup(full)
    full.datasets.delete(near.id)
    partial = backup(full)
    stores = empty()
    restore(stores, Archive(io.BytesIO(whole)), EVERYTHING)
    assert stores.posteriors.of_dataset(near.id) == stores.posteriors.of_dataset(record.dataset) == [id_]
    stores = empty()
    restore(stores, Archive(io.BytesIO(partial)), EVERYTHING)
    assert stores.posteriors.get(id_) is None


@pytest.mark.parametrize("member", ["manifest.json", "posteriors.jsonl"])
def test_a_backup_of_another_schema_is_refused(full: Stores, member: str) -> None:
    """Another schema of the archive or of a record is refused, and nothing is changed."""
    own, other = (f'"format": {schema}'.encode() for schema in (SCHEMA, SCHEMA + 1))
    raw = reseal(backup(full), lambda name, data: data.replace(own, other) if name == member else data)
    full.client.flushall()
    assert refusal(lambda: restore(full, Archive(io.BytesIO(raw)), EVERYTHING)).code == "other-schema"
    assert full.client.dbsize() == 0


def members(raw: bytes) -> list[Member]:
    """Return the members of an archive."""
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        return [(info, tar.extractfile(info).read()) for info in tar]  # type: ignore[union-attr] # all are files


def pack(parts: list[Member]) -> bytes:
    """Return an archive of these members with a matching manifest."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for info, data in parts:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


def reseal(raw: bytes, change: Callable[[str, bytes], bytes]) -> bytes:
    """Return an archive with changed members and a matching manifest."""
    parts = [(info, change(info.name, data)) for info, data in members(raw)]
    manifest = json.loads(parts[-1][1])
    for info, data in parts[:-1]:
        manifest["members"][info.name] = {"bytes": len(data), "sha256": sha256(data).hexdigest()}
    return pack([*parts[:-1], (parts[-1][0], json.dumps(manifest).encode())])


def header(name: str, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    """Return the header of a member."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, "/etc/passwd"
    return info


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "no tar": lambda _: b"PK\x03\x04" + bytes(2000),
    "gzip bomb": lambda _: b"\x1f\x8b\x08" + bytes(3000),
    "cut off": lambda raw: raw[: len(raw) // 2],
    "without its end": lambda raw: pack(members(raw)[:-1]),
    "a bit": lambda raw: raw[:600] + bytes([raw[600] ^ 1]) + raw[601:],
    "a missing member": lambda raw: pack(members(raw)[1:]),
    "a repeated member": lambda raw: pack([members(raw)[0], *members(raw)]),
    "an extra member": lambda raw: pack([*members(raw), (header("README.txt"), b"")]),
    "a path upwards": lambda raw: pack([(header("datasets/../../../etc/cron.d/x"), b"x"), *members(raw)]),
    "a link": lambda raw: pack([(header("README.txt", tarfile.SYMTYPE), b""), *members(raw)[1:]]),
    "another program's": lambda _: pack([(header("manifest.json"), b'{"backup": "other", "members": {}}')]),
    "a deep manifest": lambda _: pack([(header("manifest.json"), b"[" * 10**5)]),
    "an incomplete manifest": lambda _: pack([(header("manifest.json"), b'{"backup": "glle"}')]),
}


def _change_members(end: str, change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    return lambda raw: reseal(raw, lambda name, data: change(data) if name.endswith(end) else data)


FORGERIES: dict[str, Callable[[bytes], bytes]] = {
    "data of another tenant": _change_members(
        "datasets.jsonl", lambda data: data.replace(b'"tenant": "alice"', b'"tenant": "default"')
    ),
    "a tenant's name": _change_members(
        "datasets.jsonl", lambda data: data.replace(b'"tenant": "alice"', b'"tenant": "../x"')
    ),
    "no JSON": _change_members("posteriors.jsonl", lambda _: b"{\n"),
    "deep JSON": _change_members("embeddings.jsonl", lambda _: b"[" * 10**5 + b"\n"),
    "an empty line": _change_members("embeddings.jsonl", lambda _: b"{}\n"),
    "no id": _change_members("posteriors.jsonl", lambda data: data.replace(b'"id": "post_', b'"no": "post_', 1)),
    "absent data": _change_members(
        "posteriors.jsonl", lambda data: data.replace(b'"dataset": "ds_', b'"dataset": "ds_0', 1)
    ),
    "an invalid key": _change_members("keys.jsonl", lambda data: data.replace(b'"secrets"', b'"secret"')),
}
BIG = (
    b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (4000000000, 3)}".ljust(117) + b"\n"
)
PICKLE = (
    b"\x93NUMPY\x01\x00v\x00"
    + b"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}".ljust(117)
    + b"\ncos\nsystem\n"
)
NAN = BIG.replace(b"(4000000000, 3)}", b"(4, 3)}         ") + np.full((4, 3), np.nan).tobytes()
FORGERIES["a pickle among labels"] = _change_members("/labels.npy", lambda _: PICKLE)
for _name, _bytes in {"a lying header": BIG, "a pickle": PICKLE, "NaN": NAN, "no array": b"x"}.items():
    FORGERIES[f"{_name} among values"] = _change_members("/values.npy", lambda _, put=_bytes: put)  # type: ignore[misc] # binds the loop variable


@pytest.fixture(scope="module")
def whole(server_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a backup, created once for the module."""
    stores = Stores.connect(replace(server_settings, data_dir=str(tmp_path_factory.mktemp("whole"))))
    stores.client.flushall()
    stores.cache.client.flushall()
    fill(stores, "default")
    fill(stores, "alice", seed=1)
    raw = backup(stores)
    stores.close()
    return raw


@pytest.mark.parametrize("damage", [*DAMAGES, *FORGERIES])
def test_an_invalid_archive_is_refused_without_changes(whole: bytes, stores: Stores, damage: str) -> None:
    """A truncated, changed or hostile archive is one problem, and changes neither servers nor disk."""
    raw, target = (DAMAGES | FORGERIES)[damage](whole), stores
    problem = refusal(lambda: restore(target, Archive(io.BytesIO(raw)), EVERYTHING))
    assert problem.code in {"backup-unreadable", "record-unreadable"}
    assert target.client.dbsize() == target.cache.client.dbsize() == 0
    assert stored_files(target) == []


def test_a_backup_uses_constant_memory(stores: Stores, settings: Settings, tmp_path: Path) -> None:
    """A data set of 16 MB is written and read in pieces of some MB."""
    stores.datasets.add(Table(values=np.random.default_rng(0).normal(size=(2**15, 64)), source={}))
    tracemalloc.start()
    with (tmp_path / "backup").open("w+b") as file:
        dump(stores, Writer(file), BackupScope())
        stores.client.flushall()
        target = Stores.connect(replace(settings, data_dir=str(tmp_path / "new")))
        file.seek(0)
        restore(target, Archive(file), BackupScope())
        target.close()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 2**20
