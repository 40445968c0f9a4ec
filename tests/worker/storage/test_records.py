"""Records of a kind in a real Redis."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from worker.base.problems import ProblemError
from worker.storage.records import LimitExceededError, RecordKind, RecordStore

if TYPE_CHECKING:
    from worker.stores import Stores


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A record."""

    id: str
    created: str
    tenant: str = "default"
    name: str | None = None
    tags: list[str] = field(default_factory=list)
    size: int = 1
    source: str = "a"


KIND = RecordKind[Sheet](
    "sheet",
    "sheet",
    "Write it first.",
    lambda record: Sheet(**record),
    counts=lambda sheet: {"sheets": 1, "bytes": sheet.size},
    sets=lambda sheet: [f"of:{sheet.source}"],
)


def sheet(number: int, **members: Any) -> Sheet:
    """Return a record."""
    return Sheet(id=f"s{number}", created=f"2026-01-01T00:00:{number:02}", **members)


@pytest.fixture
def sheets(stores: Stores) -> RecordStore[Sheet]:
    """Return an empty store."""
    return RecordStore(stores.client, KIND)


def ids(records: Any) -> list[str | None]:
    """Return the ids of listed records."""
    return [None if record is None else record.id for _, record in records]


def test_a_record_is_written_once(sheets: RecordStore[Sheet]) -> None:
    """The first one stays, and counts once."""
    assert sheets.create(sheet(1, size=5))
    assert not sheets.create(sheet(1, size=7))
    assert sheets.get("s1") == sheet(1, size=5)
    assert sheets.usage() == sheets.of("default").usage() == {"sheets": 1, "bytes": 5}
    assert sheets.exists("s1")
    assert not sheets.exists("s2")


def test_tenants_do_not_see_each_others_records(sheets: RecordStore[Sheet]) -> None:
    """By id, in lists, in usage and in changes."""
    sheets.create(sheet(1, tenant="alice"))
    alice, bob = sheets.of("alice"), sheets.of("bob")
    assert alice.get("s1") is not None
    assert bob.get("s1") is None
    assert bob.change("s1", lambda record: record) is None
    assert bob.delete("s1") is None
    assert ids(alice.newest()) == ["s1"]
    assert ids(bob.newest()) == ids(sheets.newest()) == []
    assert alice.usage() == sheets.usage() == {"sheets": 1, "bytes": 1}
    assert bob.usage() == {}
    assert [id_ for id_, _ in sheets.all()] == ["s1"]


def test_lists_begin_with_the_newest_and_continue_at_a_cursor(
    sheets: RecordStore[Sheet], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when a page of the server ends within the list."""
    monkeypatch.setattr("worker.storage.records.PAGE", 2)
    for number in range(5):
        sheets.create(sheet(number))
    every = list(sheets.newest())
    assert ids(every) == ["s4", "s3", "s2", "s1", "s0"]
    assert ids(sheets.newest(every[1][0])) == ["s2", "s1", "s0"]


def test_names_and_tags_are_indexed(sheets: RecordStore[Sheet]) -> None:
    """A list reads the records with the name, or with the first tag, alone; changed labels move a record."""
    sheets.create(sheet(1, name="roll", tags=["a", "b"]))
    sheets.create(sheet(2, tags=["a"]))
    sheets.create(sheet(3))
    assert ids(sheets.newest(name="roll")) == ["s1"]
    assert ids(sheets.newest(tags=["a"])) == ["s2", "s1"]
    assert ids(sheets.newest(tags=["a", "b"])) == [None, "s1"]
    assert ids(sheets.newest(name="roll", tags=["c"])) == [None]
    changed = sheets.change("s1", lambda record: replace(record, name="hole", tags=["b"]))
    assert changed == sheets.get("s1") == sheet(1, name="hole", tags=["b"])
    assert ids(sheets.newest(name="roll")) == []
    assert ids(sheets.newest(name="hole")) == ids(sheets.newest(tags=["b"])) == ["s1"]
    assert ids(sheets.newest(tags=["a"])) == ["s2"]
    assert ids(sheets.newest()) == ["s3", "s2", "s1"]


def test_a_renamed_record_has_the_labels_of_a_merge_patch(sheets: RecordStore[Sheet]) -> None:
    """Null resets a member; the refusal of a missing record is its kind's, and nothing is written."""
    sheets.create(sheet(1, name="roll", tags=["a"]))
    assert sheets.rename("s1", {"tags": ["b"]}) == sheet(1, name="roll", tags=["b"])
    assert sheets.rename("s1", {"name": None, "tags": None}) == sheets.fetch("s1") == sheet(1)
    for request in (sheets.fetch, lambda id_: sheets.rename(id_, {"name": "x"})):
        with pytest.raises(ProblemError, match="no sheet s2") as caught:
            request("s2")
        problem = caught.value.problem
        assert (problem.code, problem.status, problem.remedy) == ("sheet-not-found", 404, "Write it first.")
    assert ids(sheets.newest()) == ["s1"]


def test_a_kind_has_further_sets(sheets: RecordStore[Sheet]) -> None:
    """Such as the posteriors of a data set; a deleted record leaves all sets."""
    sheets.create(sheet(1))
    sheets.create(sheet(2, source="b"))
    assert sheets.ids_in("of:a") == ["s1"]
    assert sheets.delete("s1") == sheet(1)
    assert sheets.delete("s1") is None
    assert sheets.ids_in("of:a") == []
    assert ids(sheets.newest()) == ["s2"]
    assert sheets.usage() == {"sheets": 1, "bytes": 1}


def test_limits_refuse_what_exceeds_them(sheets: RecordStore[Sheet]) -> None:
    """Nothing is written then; a change that frees room is never refused."""
    alice = sheets.of("alice")
    assert alice.create(sheet(1, tenant="alice", size=6), limits={"bytes": 10, "sheets": 2})
    with pytest.raises(LimitExceededError) as error:
        alice.create(sheet(2, tenant="alice", size=5), limits={"bytes": 10})
    assert error.value.counter == "bytes"
    assert alice.create(sheet(2, tenant="alice", size=4), limits={"bytes": 10})
    with pytest.raises(LimitExceededError, match="sheets"):
        alice.create(sheet(3, tenant="alice", size=0), limits={"sheets": 2})
    assert alice.change("s1", lambda record: replace(record, size=5), limits={"bytes": 1}) is not None
    assert alice.usage() == {"sheets": 2, "bytes": 9}
    assert sheets.create(sheet(4, tenant="bob", size=9), limits={"bytes": 10}), "limits are a tenant's"


def test_concurrent_creations_do_not_exceed_a_limit(sheets: RecordStore[Sheet]) -> None:
    """The script counts and writes."""

    def create(number: int) -> bool:
        try:
            return sheets.create(sheet(number), limits={"sheets": 3})
        except LimitExceededError:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(create, range(20))) == 3
    assert sheets.usage()["sheets"] == 3


def test_concurrent_changes_are_all_applied(sheets: RecordStore[Sheet]) -> None:
    """A change is repeated if the record has changed since it was read."""
    sheets.create(sheet(1, size=0))

    def grow(_: int) -> None:
        assert sheets.change("s1", lambda record: replace(record, size=record.size + 1)) is not None

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(grow, range(40)))
    record = sheets.get("s1")
    assert record is not None
    assert record.size == sheets.usage()["bytes"] == 40


def test_a_record_of_a_job_needs_the_running_job(sheets: RecordStore[Sheet], stores: Stores) -> None:
    """A job that was removed writes nothing."""
    stores.client.hset("glle:job:j", "status", "running")
    assert sheets.create(sheet(1), while_running="glle:job:j")
    stores.client.hset("glle:job:j", "status", "cancelled")
    assert not sheets.create(sheet(2), while_running="glle:job:j")
    assert not sheets.create(sheet(2), while_running="glle:job:none")
    assert not sheets.exists("s2")


def test_a_full_server_refuses_new_records_and_deletes_others(sheets: RecordStore[Sheet], stores: Stores) -> None:
    """A refused creation changes nothing."""
    sheets.create(sheet(1))
    memory = str(stores.client.config_get("maxmemory")["maxmemory"])
    stores.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.ResponseError, match="maxmemory"):
            sheets.create(sheet(2))
        assert ids(sheets.newest()) == ["s1"]
        assert sheets.delete("s1") == sheet(1)
        assert sheets.usage()["sheets"] == 0
    finally:
        stores.client.config_set("maxmemory", memory)
    assert ids(sheets.newest()) == []


def test_equal_bytes_are_parsed_once(sheets: RecordStore[Sheet]) -> None:
    """A changed record is parsed again."""
    sheets.create(sheet(1))
    assert sheets.get("s1") is sheets.get("s1")
    sheets.change("s1", lambda record: replace(record, size=9))
    assert sheets.get("s1") == sheet(1, size=9)


def test_a_damaged_record_is_refused(sheets: RecordStore[Sheet], stores: Stores) -> None:
    """The message names it."""
    stores.client.set(KIND.key("s1"), "{")
    with pytest.raises(ProblemError, match="The record of sheet s1 is damaged"):
        sheets.get("s1")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["create", "change", "delete"]),
        st.integers(0, 3),
        st.integers(0, 9),
        st.lists(st.sampled_from("ab"), max_size=2, unique=True),
    ),
    max_size=30,
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_sets_and_usage_follow_the_records(stores: Stores, steps: list[tuple[str, int, int, list[str]]]) -> None:
    """After any changes lists and counters are those of the records that exist."""
    stores.client.flushdb()
    sheets, model = RecordStore(stores.client, KIND), dict[str, Sheet]()
    for action, number, size, tags in steps:
        id_, record = f"s{number}", sheet(number, size=size, tags=tags)
        if action == "create":
            assert sheets.create(record) == (id_ not in model)
            model.setdefault(id_, record)
        elif action == "change":
            changed = sheets.change(id_, lambda old, size=size, tags=tags: replace(old, size=size, tags=tags))  # type: ignore[misc]
            assert (changed is not None) == (id_ in model)
            model |= {id_: record} if id_ in model else {}
        else:
            assert sheets.delete(id_) == model.pop(id_, None)
    assert ids(sheets.newest()) == sorted(model, reverse=True)
    for tag in "ab":
        assert ids(sheets.newest(tags=[tag])) == sorted((i for i in model if tag in model[i].tags), reverse=True)
    usage = sheets.usage()
    assert usage.get("sheets", 0) == len(model)
    assert usage.get("bytes", 0) == sum(record.size for record in model.values())
