"""Results: one record and one file each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import redis

from glle_engine.tables.table import Table
from tests.conftest import refusal, stored_files
from worker.base.clock import iso, now_ms
from worker.records.cache_entry import Entry
from worker.storage import results
from worker.storage.object_store.files import STORED_BYTES, ObjectFiles
from worker.storage.results import ResultRecord, result_id

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from worker.storage.results import ResultStore
    from worker.stores import Stores

X = np.random.default_rng(0).normal(size=(50, 3))
ENTRY = Entry({"a": 1}, {"x": X})


@pytest.fixture
def dataset(stores: Stores) -> str:
    """Store a data set and return its id."""
    return stores.datasets.add(Table(values=X, source={"kind": "test"}))[0].id


def put(store: ResultStore, key: str, *owners: str, entry: Entry = ENTRY, **fields: Any) -> bool:
    """Store a result of the default tenant."""
    return store.put(key, entry, **{"owners": owners, "job": "job_1", "tenant": "default", **fields})


def test_a_result_is_one_record_and_one_file(stores: Stores, dataset: str) -> None:
    """A result is found by its key, to the bit, even after the cache is emptied; its bytes count for its tenant."""
    used = stores.results.usage()[STORED_BYTES]
    assert put(stores.results, "a", dataset)
    stores.cache.client.flushall()
    entry = stores.results.fetch_entry("a")
    assert (entry.meta, entry.arrays["x"].tobytes()) == (ENTRY.meta, X.tobytes())
    assert not entry.arrays["x"].flags.writeable
    record = stores.results.fetch(result_id("a"))
    assert stores.results.usage() == {"datasets": 1, "results": 1, STORED_BYTES: used + record.file.size}
    assert len(stored_files(stores)) == 2
    assert stores.results.contains(["a", "b"]) == [True, False]
    assert stores.results.contains([]) == []
    assert stores.results.find("b") is None
    problem = refusal(stores.results.fetch_entry, "b")
    assert (problem.code, problem.status) == ("result-not-found", 404)


def test_the_first_of_equal_results_stays(stores: Stores, dataset: str) -> None:
    """A result that is stored again stays as it was, and there is one file."""
    assert put(stores.results, "a", dataset)
    before = stored_files(stores)
    assert put(stores.results, "a", dataset, entry=Entry({"a": 2}, {}), job="job_2")
    assert stored_files(stores) == before
    assert stores.results.fetch_entry("a").meta == {"a": 1}
    assert stores.results.usage()["results"] == 1


@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_result_whose_answer_is_lost_keeps_its_file(
    stores: Stores, dataset: str, monkeypatch: pytest.MonkeyPatch, *, is_repeated: bool
) -> None:
    """If the connection breaks after the record is written, the result is there, with one file."""
    script = stores.results._script

    def broken(**options: Any) -> Any:
        script(**options)
        if not is_repeated:
            raise redis.ConnectionError
        return script(**options)

    with monkeypatch.context() as patch:
        patch.setattr(stores.results, "_script", broken)
        if is_repeated:
            assert put(stores.results, "a", dataset)
        else:
            with pytest.raises(redis.ConnectionError):
                put(stores.results, "a", dataset)
    assert put(stores.results, "a", dataset)
    assert stores.results.fetch_entry("a").meta == {"a": 1}
    assert len(stored_files(stores)) == 2


@pytest.mark.parametrize("when", ["before", "between file and record"])
def test_nothing_is_stored_once_an_owner_was_deleted(
    stores: Stores, dataset: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """If one of two owners is deleted before the record is written, neither record nor file stay."""
    other = stores.datasets.add(Table(values=X + 1, source={"kind": "test"}))[0].id
    write = ObjectFiles.write_entry
    if when == "before":
        stores.datasets.delete(other)

    def write_and_delete(files: ObjectFiles, entry: Entry) -> Any:
        file = write(files, entry)
        stores.datasets.delete(other)
        return file

    monkeypatch.setattr(ObjectFiles, "write_entry", write_and_delete)
    assert not put(stores.results, "a", dataset, other)
    assert (stores.results.find("a"), len(stored_files(stores))) == (None, 1)
    assert stores.results.usage()["results"] == 0


def test_results_are_deleted_with_each_of_their_owners(stores: Stores, dataset: str) -> None:
    """Deleting one owner, or the job, deletes the results about it, and no others; mapped arrays stay readable."""
    other = stores.datasets.add(Table(values=X + 1, source={"kind": "test"}))[0].id
    for key, owners, job in (("a", (dataset, other), "1"), ("b", (other, dataset), "1"), ("c", (dataset,), "2")):
        assert put(stores.results, key, *owners, job=f"job_{job}")
    mapped = stores.results.fetch_entry("a").arrays["x"]
    stores.datasets.delete(other)
    assert stores.results.contains(["a", "b", "c"]) == [False, False, True]
    np.testing.assert_array_equal(mapped, X)
    stores.results.delete_of("job_1", "default")
    assert stores.results.contains(["c"]) == [True]
    stores.results.delete_of("job_2", "default")
    assert stores.results.contains(["c"]) == [False]
    assert len(stored_files(stores)) == 1
    assert stores.results.ids_in("") == stores.results.ids_in(f"of:{dataset}") == []


def test_a_result_beyond_the_quota_is_refused(stores: Stores, dataset: str) -> None:
    """All files of the tenant count; the new file is removed, and an existing result stays."""
    assert put(stores.results, "a", dataset)
    used = stores.results.usage()[STORED_BYTES]
    before = stored_files(stores)
    problem = refusal(lambda: put(stores.results, "b", dataset, max_bytes=used + 10))
    assert (problem.code, problem.details["used"]) == ("quota-exceeded", used)
    assert stored_files(stores) == before
    assert put(stores.results, "a", dataset, max_bytes=used + 10)
    assert put(stores.results, "b", dataset, max_bytes=3 * used)


DAMAGES: list[Callable[[Path], object]] = [
    lambda path: path.unlink(),
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(path.read_bytes()[:-100]),
    lambda path: path.write_bytes(path.read_bytes().replace(b'"a": 1', b'"a": 2')),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_result_is_a_problem(stores: Stores, dataset: str, damage: Callable[[Path], object]) -> None:
    """A missing or changed file is an error, whose remedy names the job with which the result is deleted."""
    put(stores.results, "a", dataset)
    stores.results.fetch_entry("a")
    damage(stores.files.bucket.local_path(stores.results.fetch(result_id("a")).file.path))
    problem = refusal(stores.results.find, "a")
    assert (problem.code, problem.status, problem.details) == ("result-damaged", 500, {"job": "job_1"})
    assert "DELETE /v1/jobs/job_1?record=true" in problem.to_dict()["remedy"]
    assert stores.results.contains(["a"]) == [True]
    stores.results.delete_of("job_1", "default")
    assert stores.results.find("a") is None
    assert put(stores.results, "a", dataset)
    assert stores.results.fetch_entry("a").meta == {"a": 1}


def test_a_result_that_is_deleted_during_a_read_is_missing(
    stores: Stores, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a result is deleted during a read, it is missing, and not damaged."""
    put(stores.results, "a", dataset)
    read = ObjectFiles.read_entry

    def delete_and_read(files: ObjectFiles, file: Any) -> Entry:
        stores.datasets.delete(dataset)
        return read(files, file)

    monkeypatch.setattr(ObjectFiles, "read_entry", delete_and_read)
    assert stores.results.find("a") is None


def test_old_results_expire(stores: Stores, dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of a tenant expire after their lifetime; results of other tenants stay."""
    ttl, now = stores.settings.job_ttl, now_ms()
    for key, age in (("young", ttl - 60), ("old", ttl + 60), ("older", ttl + 120)):
        monkeypatch.setattr(results, "now_iso", lambda age=age: iso(now - 1000 * age))
        put(stores.results, key, dataset)
        put(stores.results, f"{key} of bob", dataset, tenant="bob")
    assert stores.results.delete_expired("default") == 2
    assert stores.results.contains(["young", "old", "older"]) == [True, False, False]
    assert stores.results.contains(["young of bob", "old of bob"]) == [True, True]
    assert len(stored_files(stores)) == 5
    assert stores.results.delete_expired("default") == 0
    monkeypatch.setattr(results, "now_ms", lambda: now + 1000 * ttl)
    file = stores.results.for_tenant("bob").fetch(result_id("young of bob")).file
    for number in range(600):
        stores.results.create(
            ResultRecord(key=str(number), owners=[], job="job_1", file=file, created=iso(now - 1), tenant="carol")
        )
    assert stores.results.delete_expired("carol") == 600
    assert stores.results.delete_expired("bob") == 3
    assert stores.results.ids_in("") != []
