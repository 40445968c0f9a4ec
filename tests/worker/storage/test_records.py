"""Records of a kind in a real Redis."""

from __future__ import annotations

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
    Sheet,
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


def test_limits_refuse_what_exceeds_them(sheets: RecordStore[Sheet]) -> None:
    """A record beyond a limit is not written; a change that needs less than before is never refused."""
    alice = sheets.for_tenant("alice")
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
    for other in (sheets.for_tenant("bob"), sheets.for_tenant("carol")):
        assert other.get("s1") is other.change("s1", lambda record: record) is other.delete("s1") is None
    assert sorted(id_ for id_, _ in sheets.all()) == ["s1", "s2", "s4"]


def test_null_removes_a_name_or_tags(sheets: RecordStore[Sheet]) -> None:
    """Members that the patch does not have stay; without the record there is an error."""
    sheets.create(sheet(1, name="roll", tags=["a"]))
    assert sheets.rename("s1", {"tags": ["b"]}) == sheets.get("s1") == sheet(1, name="roll", tags=["b"])
    assert sheets.rename("s1", {"name": None, "tags": None}) == sheets.get("s1") == sheet(1)
    with pytest.raises(ProblemError, match="s9"):
        sheets.rename("s9", {"name": "roll"})


def test_a_change_is_repeated_if_the_record_has_changed(sheets: RecordStore[Sheet]) -> None:
    """If another process changes the record meanwhile, both changes are kept."""
    sheets.create(sheet(1))
    seen: list[Sheet] = []

    def rename(record: Sheet) -> Sheet:
        seen.append(record)
        if len(seen) == 1:
            sheets.change("s1", lambda other: replace(other, size=9))
        return replace(record, name="roll")

    assert sheets.change("s1", rename) == sheets.get("s1") == sheet(1, size=9, name="roll")
    assert len(seen) == 2


def test_a_full_server_refuses_new_records_and_deletes_others(sheets: RecordStore[Sheet], stores: Stores) -> None:
    """A full server refuses a new record without a trace, and still deletes records."""
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


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["create", "change", "delete"]),
        st.integers(0, 3),
        st.integers(0, 9),
        st.lists(st.sampled_from("ab"), max_size=2, unique=True),
    ),
    max_size=30,
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_sets_and_usage_follow_the_records(stores: Stores, steps: list[tuple[str, int, int, list[str]]]) -> None:
    """After any changes, lists and counters agree with the existing records."""
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
    assert sheets.ids_in("of:a") == sorted(model)
    for tag in "ab":
        assert ids(sheets.newest(tags=[tag])) == sorted((i for i in model if tag in model[i].tags), reverse=True)
    usage = sheets.usage()
    assert usage.get("sheets", 0) == len(model)
    assert usage.get("bytes", 0) == sum(record.size for record in model.values())
