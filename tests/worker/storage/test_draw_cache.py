"""The cache of draws."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from glle_engine.linalg import LANES
from worker.records.cache_entry import PIECE, Entry, entry_bytes
from worker.records.draws import DrawAddress, draws_bytes
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator

ID = "post_1:0123"
KEY = DrawAddress(0, 0, 1.0, "posterior", "procrustes")
# As large as the metadata of a draw whose solver reports everything.
DIAGNOSTICS = {f"diagnostic_{number}": 0.12345678901234567 for number in range(24)}


def keys_of(*indices: int) -> list[DrawAddress]:
    """Return the draws with these indices."""
    return [replace(KEY, index=index) for index in indices]


def entry_of(index: int, n: int = 3, value: float = 0.0) -> Entry:
    """Return the entry of a draw."""
    return Entry(
        {"index": index, "value": value}, {"embedding": np.full((n, 2), index + value), "eigenvalues": np.ones(2)}
    )


def put(stores: Stores, *indices: int, n: int = 3, value: float = 0.0, tier: Any = "cache") -> None:
    """Write draws."""
    stores.draws.put(ID, {key: entry_of(key.index, n, value) for key in keys_of(*indices)}, tier)


def indices(entries: list[Entry | None]) -> list[int | None]:
    """Return the indices of entries, None for a missing one; an entry must be complete."""
    for entry in entries:
        if entry is not None:
            value = entry.meta["index"] + entry.meta["value"]
            assert np.unique(np.asarray(entry.arrays["embedding"])).tolist() == [value]
            assert list(entry.arrays) == ["embedding", "eigenvalues"]
    return [None if entry is None else entry.meta["index"] for entry in entries]


@contextmanager
def received(stores: Stores) -> Iterator[list[str]]:
    """Yield a list, which has the names of the commands that the server received at the end."""
    client, names = stores.cache.client, list[str]()
    with client.monitor() as monitor:  # type: ignore[no-untyped-call] # redis-py's
        client.echo("begin")  # on another connection, which may be new
        while monitor.next_command()["command"] != "ECHO begin":
            pass
        yield names
        client.echo("end")
        while (row := monitor.next_command())["command"] != "ECHO end":
            if row["client_type"] != "lua":
                names.append(row["command"].split()[0].upper())


def test_a_lane_group_is_one_hash(stores: Stores) -> None:
    """Draws that differ only in index % LANES share a hash; every other difference is another hash."""
    put(stores, *range(LANES))
    assert stores.cache.client.dbsize() == 1
    put(stores, LANES)
    assert stores.cache.client.dbsize() == 2
    assert indices(stores.draws.get_many(ID, keys_of(LANES, 1, 99, 0))) == [LANES, 1, None, 0]
    for other in ({"seed": 1}, {"scale": 0.5}, {"source": "mean"}, {"align": "none"}):
        assert stores.draws.get(ID, replace(KEY, **other)) is None
    assert stores.draws.get("post_2:0123", KEY) is None
    assert stores.draws.get("post_1:4567", KEY) is None


def test_a_lane_group_is_one_command(stores: Stores) -> None:
    """The draws of a lane group are written in one round trip, and read by one command."""
    with received(stores) as written:
        put(stores, *range(LANES))
    assert written == ["HSET", "EXPIRE"]
    keys = keys_of(*range(LANES))
    for read in (stores.draws.get_many, stores.draws.heads, stores.draws.contains):
        with received(stores) as commands:
            assert all(read(ID, keys))
        assert commands == ["HMGET"]


def test_each_draw_counts_as_one_read(stores: Stores) -> None:
    """A draw is a hit or a miss, whatever the number of commands; metadata and `contains` do not count."""
    put(stores, 0, 1)
    put(stores, 2, n=PIECE // 8)
    stores.draws.get_many(ID, keys_of(0, 1, 2, 3, 4))
    stores.draws.heads(ID, keys_of(0, 1, 2, 3))
    stores.draws.contains(ID, keys_of(0, 1, 2, 3))
    stores.counts.flush()
    reads = {series[1:]: count for series, count in stores.counts.read()[0].items() if series[0] == "cache_reads"}
    assert reads == {("server", "hit"): 3, ("server", "miss"): 2}


def test_a_large_draw_has_a_separate_entry(stores: Stores) -> None:
    """It is read, listed and deleted as a small one; without its entry or its head it is missing."""
    put(stores, 0, 1, n=PIECE // 8)
    put(stores, 2)
    keys = keys_of(0, 1, 2, 3)
    assert stores.cache.client.dbsize() == 3
    assert indices(stores.draws.get_many(ID, keys)) == [0, 1, 2, None]
    stores.cache.client.unlink(keys[0].cache_key(ID))
    assert stores.draws.contains(ID, keys) == [False, True, True, False]
    assert [head and head["index"] for head in stores.draws.heads(ID, keys)] == [None, 1, 2, None]
    assert indices(stores.draws.get_many(ID, keys)) == [None, 1, 2, None]
    stores.draws.delete(ID, keys[1])
    assert stores.draws.contains(ID, keys) == [False, False, True, False]
    put(stores, 0)
    assert indices(stores.draws.get_many(ID, keys)) == [0, None, 2, None], "a small one takes its place"
    assert stores.cache.client.dbsize() == 1


def test_a_torn_draw_is_missing(stores: Stores) -> None:
    """A draw whose head or data are missing or short counts as evicted; the others of its group stay."""
    put(stores, 0, 1, 2, 3)
    group = KEY.group_key(ID)
    stores.cache.client.hdel(group, "head:0")
    stores.cache.client.hdel(group, "data:1")
    stores.cache.client.hset(group, "data:2", b"short")
    assert indices(stores.draws.get_many(ID, keys_of(0, 1, 2, 3))) == [None, None, None, 3]


def test_a_server_short_of_memory_evicts_whole_groups(stores: Stores) -> None:
    """Under the policy of the cache, a lane group is complete or missing."""
    client = stores.cache.client
    limit = str(client.config_get("maxmemory")["maxmemory"])
    client.config_set("maxmemory", client.info("memory")["used_memory"] + 4 * 2**20)
    try:
        for first in range(0, 400, LANES):
            put(stores, *range(first, first + LANES), n=2000)
        present = [index is not None for index in indices(stores.draws.get_many(ID, keys_of(*range(400))))]
    finally:
        client.config_set("maxmemory", limit)
    groups = {tuple(present[first : first + LANES]) for first in range(0, 400, LANES)}
    assert groups == {(True,) * LANES, (False,) * LANES}


def test_two_writers_of_one_group_do_not_disturb_each_other(stores: Stores) -> None:
    """Draws of both writers are complete after any interleaving, while readers see each completely or not at all."""
    both = [Stores.connect(stores.settings) for _ in range(2)]
    barrier = threading.Barrier(3)

    def write(own: Stores, mine: list[int]) -> None:
        barrier.wait()
        for round_ in range(60):
            for index in mine:
                put(own, index, n=500, value=float(100 * round_))

    threads = [
        threading.Thread(target=write, args=(own, mine)) for own, mine in zip(both, ([0, 2], [1, 2, 3]), strict=True)
    ]
    for thread in threads:
        thread.start()
    barrier.wait()
    while any(thread.is_alive() for thread in threads):
        indices(stores.draws.get_many(ID, keys_of(0, 1, 2, 3)))
    for thread in threads:
        thread.join()
    entries = stores.draws.get_many(ID, keys_of(0, 1, 2, 3))
    assert indices(entries) == [0, 1, 2, 3]
    assert [entry and entry.meta["value"] for entry in entries] == [5900.0] * 4
    for own in both:
        own.close()


@hypothesis_settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["put", "put large", "delete", "evict"]),
            st.lists(st.integers(0, 3 * LANES - 1), min_size=1, max_size=6, unique=True),
        ),
        max_size=8,
    ),
    wanted=st.lists(st.integers(0, 3 * LANES - 1), max_size=8),
)
def test_any_order_of_writes_is_read_as_by_a_dictionary(
    stores: Stores, steps: list[tuple[str, list[int]]], wanted: list[int]
) -> None:
    """Every read agrees with a dictionary of the draws, for every subset in every order."""
    stores.cache.client.flushall()
    expected: dict[int, float] = {}
    for number, (step, chosen) in enumerate(steps, start=1):
        if step == "evict":
            stores.cache.client.unlink(replace(KEY, index=chosen[0]).group_key(ID))
            group = chosen[0] // LANES
            expected = {index: value for index, value in expected.items() if index // LANES != group}
        elif step == "delete":
            for index in chosen:
                stores.draws.delete(ID, replace(KEY, index=index))
                expected.pop(index, None)
        else:
            put(stores, *chosen, n=3 if step == "put" else PIECE // 16 + 1, value=float(number))
            expected.update(dict.fromkeys(chosen, float(number)))
    keys = keys_of(*wanted)
    entries = stores.draws.get_many(ID, keys)
    assert indices(entries) == [index if index in expected else None for index in wanted]
    values = [expected.get(index) for index in wanted]
    assert [entry and entry.meta["value"] for entry in entries] == values
    assert [head and head["value"] for head in stores.draws.heads(ID, keys)] == values
    assert stores.draws.contains(ID, keys) == [index in expected for index in wanted]


def test_forgetting_a_subject_removes_its_draws(stores: Stores) -> None:
    """Lane groups and separate entries are removed; another subject's stay."""
    put(stores, *range(6))
    put(stores, 6, n=PIECE // 8)
    stores.draws.put("post_12:0", {KEY: entry_of(0)})
    stores.cache.forget("post_1")
    assert stores.cache.client.keys("*") == [KEY.group_key("post_12:0").encode()]


def test_a_group_expires_with_its_last_write(stores: Stores) -> None:
    """Each write extends the lifetime of the group."""
    put(stores, 0)
    group = KEY.group_key(ID)
    assert 0 < stores.cache.client.ttl(group) <= stores.settings.cache_ttl
    stores.cache.client.expire(group, 10)
    put(stores, 1)
    assert stores.cache.client.ttl(group) > 10


@pytest.mark.parametrize("n", [10, 100, 1797, 5000, 5200, 20_000, 20_481, 65_000, 100_000])
def test_the_estimate_bounds_the_memory_of_draws(stores: Stores, n: int) -> None:
    """The server's memory of a full lane group is at most the estimate, whatever the allocator's rounding."""
    arrays = {"embedding": np.random.default_rng(0).normal(size=(n, 2)), "eigenvalues": np.ones(2)}
    meta = {"diagnostics": DIAGNOSTICS, "sha256": "0" * 64}
    stores.draws.put(ID, {key: Entry(meta, arrays) for key in keys_of(*range(LANES))})
    usage = sum(stores.cache.client.memory_usage(key, samples=0) or 0 for key in stores.cache.client.keys("*"))
    assert usage <= draws_bytes(n, 2, LANES) <= 1.3 * usage + 3000 * LANES
    assert draws_bytes(n, 2, LANES) == LANES * entry_bytes((n, 2), (2,))


def test_draws_of_a_large_job_are_in_the_object_store(tiered: Stores) -> None:
    """The cache has none of them, and the store everything."""
    put(tiered, 0, 1, 2, n=50_000, tier="store")
    put(tiered, 5, n=2**17 + 1)  # more than half of the cache
    assert tiered.cache.client.exists(KEY.group_key(ID)) == 0
    keys = keys_of(0, 1, 2, 3, 4, 5)
    for is_evicted in (False, True):
        if is_evicted:
            tiered.cache.client.flushall()
        assert tiered.draws.contains(ID, keys) == [True, True, True, False, False, True]
        assert [head and head["index"] for head in tiered.draws.heads(ID, keys)] == [0, 1, 2, None, None, 5]
        assert indices(tiered.draws.get_many(ID, keys)) == [0, 1, 2, None, None, 5]
    tiered.draws.delete(ID, keys[1])
    assert tiered.draws.contains(ID, keys) == [True, False, True, False, False, True]
    tiered.cache.forget("post_1")
    assert tiered.cache.objects is not None
    assert list(tiered.cache.objects.bucket.modification_times()) == []
    assert tiered.cache.client.dbsize() == 0
