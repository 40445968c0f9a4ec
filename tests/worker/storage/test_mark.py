"""The mark beside the files: each loss of records or files is noticed, and nothing else is taken for one."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from glle_engine.tables.table import Table
from tests.conftest import refusal
from tests.service.conftest import posterior_record
from worker.analyses.embedding import Recipe
from worker.analyses.embedding_records import EmbeddingRecord
from worker.base.clock import now_iso
from worker.base.versions import SCHEMA
from worker.storage import mark
from worker.storage.mark import PATH, RecordsMark
from worker.storage.object_store import backend
from worker.storage.object_store.files import FOLDER
from worker.storage.records import CHANGES, SCHEMA_OF_RECORDS, SERVICE

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.base.problems import ProblemError
    from worker.stores import Stores

KINDS: dict[str, Callable[[Stores], object]] = {
    "data sets": lambda stores: add(stores, 3),
    "posteriors": lambda stores: stores.posteriors.create(posterior_record(dataset="ds_1", n=3)),
    "embeddings": lambda stores: stores.embeddings.create(
        EmbeddingRecord(recipe=Recipe(dataset="ds_1", method="pca", parameters={}), claim="", created=now_iso())
    ),
    "keys": lambda stores: stores.keys.create("alice", ("read",), "", None),
}
WHOLE = {"service": "a", "changes": 1, "records": {}, "has_keys": False, "at": "2026-01-01T00:00:00Z"}


def add(stores: Stores, n: int) -> None:
    """Store a data set of n points."""
    stores.datasets.add(Table(values=np.eye(n), source={}))


def process(stores: Stores) -> RecordsMark:
    """Return the comparison of mark and records as another process makes it."""
    return RecordsMark(stores.client, stores.datasets.files.bucket)


def code(loss: ProblemError | None) -> str | None:
    """Return the code of a loss."""
    return None if loss is None else loss.problem.code


def write_mark(stores: Stores, raw: bytes) -> None:
    """Replace the mark."""
    stores.datasets.files.bucket.write(PATH, [raw], len(raw))


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_of_records_of_any_kind_is_noticed(remote_stores: Stores, kind: str) -> None:
    """All processes notice the loss until it is accepted; none marks the new state as right meanwhile."""
    KINDS[kind](remote_stores)
    running = process(remote_stores)
    running.renew()
    assert code(running.find_loss()) is None
    remote_stores.client.flushall()
    add(remote_stores, 5)
    for each in (running, process(remote_stores)):
        each.renew()
        assert code(each.find_loss()) == "records-lost"
    assert "--accept-loss" in refusal(running.require_no_loss).remedy
    process(remote_stores).accept_loss()
    assert code(running.find_loss()) is code(process(remote_stores).find_loss()) is None


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_of_the_files_is_noticed(remote_stores: Stores, kind: str) -> None:
    """An empty bucket is not taken for the bucket of the records, and gets no mark."""
    KINDS[kind](remote_stores)
    process(remote_stores).renew()
    bucket = remote_stores.datasets.files.bucket
    for path in bucket.modification_times(FOLDER):
        bucket.remove(path)
    restarted = process(remote_stores)
    restarted.renew()
    assert code(restarted.find_loss()) == "files-lost"
    assert bucket.modification_times(FOLDER) == {}
    restarted.accept_loss()
    assert code(process(remote_stores).find_loss()) is None


def test_an_empty_service_has_nothing_to_lose(remote_stores: Stores) -> None:
    """A service without records may lose Redis, the store, or both: it is marked again as a new service."""
    first = process(remote_stores)
    assert first.start_refusal() == ""
    bucket = remote_stores.datasets.files.bucket
    assert list(bucket.modification_times(FOLDER)) == [PATH]
    for loses_records, loses_files in ((True, False), (False, True), (True, True)):
        if loses_records:
            remote_stores.client.flushall()
        if loses_files:
            bucket.remove(PATH)
        assert code(first.find_loss()) is None
        assert process(remote_stores).start_refusal() == ""
        assert list(bucket.modification_times(FOLDER)) == [PATH]
        assert remote_stores.client.hget(SERVICE, "marked")


@pytest.mark.parametrize("files", ["beside a blank mark", "without a mark"])
def test_files_beside_an_empty_redis_are_no_new_service(remote_stores: Stores, files: str) -> None:
    """Files without records are a loss, whether there is a mark or not."""
    if files == "beside a blank mark":
        assert process(remote_stores).start_refusal() == ""
    add(remote_stores, 3)
    remote_stores.client.flushall()
    restarted = process(remote_stores)
    problem = refusal(restarted.require_no_loss)
    assert (problem.code, problem.status) == ("records-lost", 503)
    assert problem.remedy in restarted.start_refusal()
    for is_write in (False, True):
        assert refusal(lambda of=is_write: restarted.require_no_recent_loss(is_write=of)).code == "records-lost"
    assert remote_stores.client.hgetall(SERVICE) == {}, "it is not marked"
    restarted.accept_loss()
    assert process(remote_stores).start_refusal() == ""


def test_no_file_is_written_before_the_mark(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the mark cannot be written, no request may write, because a first file without a mark looks like a loss."""
    with monkeypatch.context() as patched:
        patched.setattr(
            backend.Bucket, "write", lambda *_: (_ for _ in ()).throw(backend._unavailable("a test", "None."))
        )
        running = process(stores)
        assert running.start_refusal() == ""
        running.require_no_recent_loss(is_write=False)
        problem = refusal(lambda: running.require_no_recent_loss(is_write=True))
        assert problem.code == "store-unavailable"
    running.require_no_recent_loss(is_write=True)
    path = f"{FOLDER}/00/orphan"
    stores.files.bucket.write(path, [b"x"], 1)
    assert code(process(stores).find_loss()) is None


def test_an_earlier_state_of_the_records_is_a_loss(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deletions are no loss, and neither is a failover that loses the changes of the last moments."""
    now = 1000.0
    monkeypatch.setattr("worker.storage.mark.time", SimpleNamespace(monotonic=lambda: now))
    running = process(stores)
    for n in range(3, 6):
        add(stores, n)
        running.renew()
    earlier = int(stores.client.hget(SERVICE, CHANGES) or 0)
    now += mark.CHANGE_SETTLING_SECONDS
    running.renew()
    for dataset in stores.datasets.ids_in(""):
        stores.datasets.delete(dataset)
    now += mark.CHANGE_SETTLING_SECONDS / 2
    for _ in range(2):
        running.renew()
    assert code(process(stores).find_loss()) is None
    stores.client.hset(SERVICE, CHANGES, earlier)  # as on a promoted replica
    assert code(process(stores).find_loss()) is None
    stores.client.hset(SERVICE, CHANGES, earlier - 1)
    assert code(process(stores).find_loss()) == "records-lost"


def test_the_mark_lags_by_a_known_time(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark is at most a settling time and one renewal behind; after a clean stop, it has all changes."""
    now = 1000.0
    monkeypatch.setattr("worker.storage.mark.time", SimpleNamespace(monotonic=lambda: now))
    running = process(stores)
    changes = {}
    for n in range(3, 23):
        add(stores, n)
        changes[now] = int(stores.client.hget(SERVICE, CHANGES) or 0)
        running.renew()
        marked = json.loads(stores.files.bucket.read(PATH, 0, 4096) or b"")["changes"]
        oldest = now - mark.CHANGE_SETTLING_SECONDS - mark.RENEW_SECONDS
        assert all(marked >= count for time, count in changes.items() if time <= oldest), "the bound of the page"
        assert all(
            marked <= max(count, 1) for time, count in changes.items() if time > now - mark.CHANGE_SETTLING_SECONDS
        )
        now += mark.RENEW_SECONDS
    running.renew(is_last=True)
    stores.client.hincrby(SERVICE, CHANGES, -1)
    assert code(process(stores).find_loss()) == "records-lost"


def test_a_first_key_is_marked_at_once(stores: Stores) -> None:
    """The loss of the API keys alone is noticed, even if the number of changes has grown."""
    running = process(stores)
    add(stores, 3)
    running.renew()
    key, _ = stores.keys.create("alice", ("read",), "", None)
    running.renew()
    stores.keys.revoke(key.id)
    assert code(process(stores).find_loss()) is None, "revoked keys are not lost ones"
    stores.client.hdel("glle:usage:all", "keys")
    assert code(process(stores).find_loss()) == "records-lost"


def test_the_first_mark_is_no_loss_for_other_processes(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that write the first mark at the same time, or follow a killed writer, see no loss."""
    early, first, second = (process(stores) for _ in range(3))
    assert code(early.find_loss()) is None
    add(stores, 3)
    with monkeypatch.context() as patched:
        patched.setattr(backend.Bucket, "write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            process(stores).renew()
    stores.client.hset(SERVICE, CHANGES, 1)
    assert code(process(stores).find_loss()) is None
    assert code(second.find_loss()) is None
    first.renew()
    second.renew()
    for each in (early, first, second, process(stores)):
        assert code(each.find_loss()) is None


def test_a_writer_that_was_killed_after_the_mark_is_completed(stores: Stores) -> None:
    """The next process tells Redis that there is a mark, so that a loss of the files is noticed."""
    add(stores, 3)
    process(stores).renew()
    stores.client.hdel(SERVICE, "marked")
    process(stores).renew()
    stores.files.bucket.remove(PATH)
    assert code(process(stores).find_loss()) == "files-lost"


DAMAGED = {
    "garbage": b"\x00\xffgarbage",
    "a list": b"[]",
    "a schema alone": json.dumps({"format": SCHEMA}).encode(),
    "a member too much": json.dumps({**WHOLE, "format": SCHEMA, "more": 1}).encode(),
    "a number as text": json.dumps({**WHOLE, "format": SCHEMA, "changes": "many"}).encode(),
    "too long": json.dumps({**WHOLE, "format": SCHEMA, "at": "x" * mark.MAX_MARK_BYTES}).encode(),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_mark_is_named(stores: Stores, damage: str) -> None:
    """The problem names the file and the command that writes it anew; until then, no process replaces the file."""
    add(stores, 3)
    running = process(stores)
    running.renew()
    file = stores.files.bucket.local_path(PATH)
    write_mark(stores, DAMAGED[damage])
    for each in (running, process(stores)):
        each.renew()
        problem = refusal(lambda it=each: it.require_no_recent_loss(is_write=True))
        assert (problem.code, problem.status) == ("mark-damaged", 503)
        assert str(file) in problem.detail
        assert "datasets: 1" in problem.detail
        assert "`glle doctor --accept-loss`" in problem.remedy
        assert str(file) in each.start_refusal()
    assert Path(file).read_bytes() == DAMAGED[damage]
    process(stores).accept_loss()
    assert code(running.find_loss()) is None
    assert running.start_refusal() == ""


@pytest.mark.parametrize("schema", [SCHEMA - 1, SCHEMA + 1])
@pytest.mark.parametrize("where", ["mark", "records", "records without a schema"])
def test_data_of_another_schema_are_refused(stores: Stores, where: str, schema: int) -> None:
    """Whether mark or records have another schema, nothing is changed, and a loss cannot be accepted."""
    add(stores, 3)
    running = process(stores)
    running.renew()
    if where == "mark":
        raw = json.loads(stores.files.bucket.read(PATH, 0, 4096) or b"")
        write_mark(stores, json.dumps({**raw, "format": schema}).encode())
    elif where == "records":
        stores.client.hset(SERVICE, SCHEMA_OF_RECORDS, schema)
    else:
        stores.client.hdel(SERVICE, SCHEMA_OF_RECORDS)
    before = stores.files.bucket.read(PATH, 0, 4096), stores.client.hgetall(SERVICE)
    for each in (running, process(stores)):
        each.renew()
        problem = refusal(lambda it=each: it.require_no_recent_loss(is_write=True))
        assert (problem.code, problem.status) == ("other-schema", 503)
        assert f"reads schema {SCHEMA}" in problem.detail
        assert problem.detail in each.start_refusal()
        assert refusal(each.accept_loss).code == "other-schema"
    assert (stores.files.bucket.read(PATH, 0, 4096), stores.client.hgetall(SERVICE)) == before


def test_a_comparison_reads_the_store_seldom(remote_stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand comparisons read the mark once and list no files; a store that fails later changes nothing."""
    add(remote_stores, 3)
    process(remote_stores).renew()
    read: list[str] = []
    monkeypatch.setattr(backend.Bucket, "modification_times", lambda *_: pytest.fail("it was listed"))
    monkeypatch.setattr(backend.Bucket, "contains", lambda *_, **__: pytest.fail("it was listed"))
    original = backend.Bucket.read

    def read_and_note(bucket: backend.Bucket, path: str, start: int, stop: int) -> bytes | None:
        read.append(path)
        return original(bucket, path, start, stop)

    monkeypatch.setattr(backend.Bucket, "read", read_and_note)
    running = process(remote_stores)
    for _ in range(1000):
        assert code(running.find_loss()) is None
        running.require_no_recent_loss(is_write=False)
    assert read == [PATH]
    monkeypatch.setattr(
        backend.Bucket, "read", lambda *_: (_ for _ in ()).throw(backend._unavailable("a test", "None."))
    )
    running._read_at -= mark.MARK_READ_SECONDS
    assert code(running.find_loss()) is None
    running.require_no_recent_loss(is_write=True)
    assert refusal(process(remote_stores).find_loss).code == "store-unavailable"


def test_requests_notice_a_loss_at_once_if_they_write(stores: Stores) -> None:
    """Requests that only read notice a loss within a second; all notice when it is over."""
    add(stores, 3)
    running = process(stores)
    running.renew()
    assert not running.was_whole(is_write=False)
    running.require_no_recent_loss(is_write=False)
    assert [running.was_whole(is_write=is_write) for is_write in (False, True)] == [True, False]
    file = stores.files.bucket.local_path(PATH)
    kept = file.read_bytes()
    file.unlink()
    running.require_no_recent_loss(is_write=False)
    assert refusal(lambda: running.require_no_recent_loss(is_write=True)).code == "files-lost"
    assert refusal(lambda: running.require_no_recent_loss(is_write=False)).code == "files-lost"
    assert not running.was_whole(is_write=False)
    file.write_bytes(kept)
    running.require_no_recent_loss(is_write=True)
    running.require_no_recent_loss(is_write=False)
