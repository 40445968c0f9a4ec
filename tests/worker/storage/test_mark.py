"""The mark beside the files: each loss of records or files is noticed, and nothing else is taken for one."""

from __future__ import annotations

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
from worker.storage import mark
from worker.storage.mark import MARK_FOLDER, PATH, RecordsMark
from worker.storage.object_store import backend
from worker.storage.object_store.files import FOLDER
from worker.storage.records import CHANGES, SERVICE

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


def add(stores: Stores, n: int) -> None:
    """Store a data set of n points."""
    stores.datasets.add(Table(values=np.eye(n), source={}))


def process(stores: Stores) -> RecordsMark:
    """Return the mark as another process sees it."""
    return RecordsMark(stores.client, stores.datasets.files.bucket)


def code(found: ProblemError | None) -> str | None:
    """Return the code of a loss."""
    return None if found is None else found.problem.code


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_of_records_of_any_kind_is_noticed(remote_stores: Stores, kind: str) -> None:
    """By all processes, until the loss is accepted; no process marks the loss as the new state meanwhile."""
    process(remote_stores).renew()
    assert not remote_stores.datasets.files.bucket.modification_times(MARK_FOLDER), "without a record there is no mark"
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
    """An empty folder or bucket does not belong to records, and is not marked; an empty service has lost nothing."""
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


def test_an_earlier_state_of_the_records_is_a_loss(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deletions are not; nor is a failover that loses changes of the last moments, which the mark does not count."""
    now = 1000.0
    monkeypatch.setattr("worker.storage.mark.time", SimpleNamespace(monotonic=lambda: now))
    running = process(stores)
    for n in range(3, 6):
        add(stores, n)
        running.renew()
    earlier = int(stores.client.hget(SERVICE, CHANGES) or 0)
    now += mark.SETTLED_SECONDS
    running.renew()
    for dataset in stores.datasets.ids_in(""):
        stores.datasets.delete(dataset)
    now += mark.SETTLED_SECONDS / 2
    for _ in range(2):
        running.renew()
    assert code(process(stores).find_loss()) is None
    stores.client.hset(SERVICE, CHANGES, earlier)  # as on a promoted replica
    assert code(process(stores).find_loss()) is None
    stores.client.hset(SERVICE, CHANGES, earlier - 2)  # the first reading was settled
    assert code(process(stores).find_loss()) == "records-lost"


def test_a_first_key_is_marked_at_once(stores: Stores) -> None:
    """The loss of the keys alone is noticed, too: the number of changes may have grown since."""
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
    """One that has just found no mark, one that writes it at the same time, and one after a killed writer."""
    early, first, second = (process(stores) for _ in range(3))
    assert code(early.find_loss()) is None
    add(stores, 3)
    with monkeypatch.context() as patched:
        patched.setattr(backend.Bucket, "write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            process(stores).renew()
    assert code(process(stores).find_loss()) is None
    assert code(second.find_loss()) is None
    first.renew()
    second.renew()
    for each in (early, first, second, process(stores)):
        assert code(each.find_loss()) is None


def test_a_comparison_reads_the_store_seldom(remote_stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand comparisons read the mark once and list nothing; a store that fails later changes nothing."""
    add(remote_stores, 3)
    process(remote_stores).renew()
    read: list[str] = []
    monkeypatch.setattr(backend.Bucket, "modification_times", lambda *_: pytest.fail("it was listed"))
    original = backend.Bucket.read

    def read_and_note(bucket: backend.Bucket, path: str, start: int, stop: int) -> bytes | None:
        read.append(path)
        return original(bucket, path, start, stop)

    monkeypatch.setattr(backend.Bucket, "read", read_and_note)
    running = process(remote_stores)
    for _ in range(1000):
        assert code(running.find_loss()) is None
    assert read == [PATH]
    monkeypatch.setattr(backend.Bucket, "read", lambda *_: (_ for _ in ()).throw(backend._unavailable("a test")))
    running._read_again = 0.0
    assert code(running.find_loss()) is None
    assert refusal(process(remote_stores).find_loss).code == "store-unavailable"
