"""The array cache, and the draws in it."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from glle_engine.linalg import LANES
from worker.base.problems import ProblemError
from worker.records.cache_entry import PIECE, Entry, entry_bytes
from worker.records.draws import DrawAddress, draws_bytes
from worker.stores import Stores

if TYPE_CHECKING:
    from worker.base.settings import Settings

ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "empty": np.empty((0, 3)),
    "scalar": np.array(2.5),
    "ints": np.arange(7, dtype=np.int32),
    "strided": np.arange(20.0).reshape(4, 5)[:, ::2],
    "fortran": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "big": np.random.default_rng(0).normal(size=(3 * PIECE // 8 + 5,)),
    "one_piece": np.zeros(PIECE, np.uint8),
    "big_endian": np.arange(3, dtype=">f8"),
    "flags": np.array([True, False]),
}


def test_round_trip_keeps_every_bit(stores: Stores) -> None:
    """Arrays of every shape, order and size come back with value, dtype and shape."""
    stores.cache.put("key", {"a": 1}, ARRAYS)
    entry = stores.cache.get("key")
    assert entry is not None
    assert entry.meta == {"a": 1}
    assert list(entry.arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert entry.arrays[name].dtype == array.dtype, name
        np.testing.assert_array_equal(entry.arrays[name], array, name)


def test_head_must_be_finite(stores: Stores) -> None:
    """NaN in the head is an error, never null."""
    with pytest.raises(ValueError, match="JSON compliant"):
        stores.cache.put("key", {"x": float("nan")}, {})


@pytest.mark.parametrize("lost", [1, 10])
def test_incomplete_value_is_not_published(stores: Stores, monkeypatch: pytest.MonkeyPatch, lost: int) -> None:
    """Pieces lost once, by a restart, are written again; pieces lost each time give a problem, not a torn value."""
    cache = stores.cache
    real = cache.client.hset
    first_pieces = 0

    def forgetful(*arguments: Any, **options: Any) -> int:
        nonlocal first_pieces
        first_pieces += arguments[1] == "0"
        is_lost = arguments[1] == "0" and first_pieces <= lost
        return 1 if is_lost else int(real(*arguments, **options))

    monkeypatch.setattr(cache.client, "hset", forgetful)
    values = np.arange(PIECE, dtype=float)
    if lost == 1:
        cache.put("key", {}, {"x": values})
        entry = cache.get("key")
        assert entry is not None
        assert np.array_equal(entry.arrays["x"], values)
        return
    with pytest.raises(ProblemError, match="evicted while it was being written"):
        cache.put("key", {}, {"x": values})
    assert cache.get("key") is None
    assert list(cache.client.scan_iter("*key*")) == []


def test_readers_never_see_a_torn_value(stores: Stores, settings: Settings) -> None:
    """While a writer overwrites a value of many pieces, every read is of one generation."""
    other = Stores.connect(settings)
    stop = threading.Event()

    def write() -> None:
        value = 0.0
        while not stop.is_set():
            value += 1
            other.cache.put("key", {"value": value}, {"x": np.full(PIECE // 2, value)})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        complete = 0
        values = set()
        while complete < 8:
            entry = stores.cache.get("key")
            if entry is None:
                continue
            complete += 1
            values.add(entry.meta["value"])
            assert np.unique(entry.arrays["x"]).tolist() == [entry.meta["value"]]
    finally:
        stop.set()
        writer.join()
        other.close()
    assert len(values) > 1, "the writer writes between the reads"


def test_unfinished_value_expires(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed writer leaves a temporary value that expires."""
    cache = stores.cache
    monkeypatch.setattr(cache.client, "rename", lambda *_: pytest.fail("killed"))
    with pytest.raises(pytest.fail.Exception):
        cache.put("key", {}, {"x": np.zeros(200_000)})
    (key,) = cache.client.scan_iter("*key*")
    assert 0 < int(cache.client.ttl(key)) <= 120
    assert cache.get("key") is None


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


def put(stores: Stores, *indices: int, n: int = 3, value: float = 0.0, together: int = 0) -> None:
    """Write draws."""
    stores.draws.put(ID, {key: entry_of(key.index, n, value) for key in keys_of(*indices)}, together)


def indices(entries: list[Entry | None]) -> list[int | None]:
    """Return the indices of entries, None for a missing one; an entry must be complete."""
    for entry in entries:
        if entry is not None:
            value = entry.meta["index"] + entry.meta["value"]
            assert np.unique(np.asarray(entry.arrays["embedding"])).tolist() == [value]
            assert list(entry.arrays) == ["embedding", "eigenvalues"]
    return [None if entry is None else entry.meta["index"] for entry in entries]


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


def test_a_torn_draw_is_missing(stores: Stores) -> None:
    """A draw whose head, data or separate entry are missing or short counts as evicted; the others stay."""
    put(stores, 4, 5, n=PIECE // 8)
    keys = keys_of(4, 5)
    stores.cache.client.unlink(keys[0].cache_key(ID))
    assert stores.draws.contains(ID, keys) == [False, True]
    assert [head and head["index"] for head in stores.draws.heads(ID, keys)] == indices(stores.draws.get_many(ID, keys))
    put(stores, 0, 1, 2, 3)
    group = KEY.group_key(ID)
    stores.cache.client.hdel(group, "head:0")
    stores.cache.client.hdel(group, "data:1")
    stores.cache.client.hset(group, "data:2", b"short")
    assert indices(stores.draws.get_many(ID, keys_of(0, 1, 2, 3))) == [None, None, None, 3]


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
                stores.cache.delete(replace(KEY, index=index).cache_key(ID))
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


def test_a_group_expires_with_its_last_write(stores: Stores) -> None:
    """Each write extends the lifetime of the group."""
    put(stores, 0)
    group = KEY.group_key(ID)
    assert 0 < stores.cache.client.ttl(group) <= stores.settings.cache_ttl
    stores.cache.client.expire(group, 10)
    put(stores, 1)
    assert stores.cache.client.ttl(group) > 10


@pytest.mark.parametrize("n", [10, 5000, 5200, 20_481, 100_000])
def test_the_estimate_bounds_the_memory_of_draws(stores: Stores, n: int) -> None:
    """The server's memory of a full lane group is at most the estimate, whatever the allocator's rounding."""
    arrays = {"embedding": np.random.default_rng(0).normal(size=(n, 2)), "eigenvalues": np.ones(2)}
    meta = {"diagnostics": DIAGNOSTICS, "sha256": "0" * 64}
    stores.draws.put(ID, {key: Entry(meta, arrays) for key in keys_of(*range(LANES))})
    usage = sum(stores.cache.client.memory_usage(key, samples=0) or 0 for key in stores.cache.client.keys("*"))
    assert usage <= draws_bytes(n, 2, LANES) <= 1.3 * usage + 3000 * LANES
    assert draws_bytes(n, 2, LANES) == LANES * entry_bytes((n, 2), (2,))


def test_draws_of_a_large_job_are_in_the_object_store(tiered_stores: Stores) -> None:
    """The cache has none of them, and the store everything."""
    put(tiered_stores, 0, 1, 2, n=50_000, together=2**30)
    put(tiered_stores, 5, n=2**17 + 1)  # more than half of the cache
    assert tiered_stores.cache.client.exists(KEY.group_key(ID)) == 0
    keys = keys_of(0, 1, 2, 3, 4, 5)
    for is_evicted in (False, True):
        if is_evicted:
            tiered_stores.cache.client.flushall()
        assert tiered_stores.draws.contains(ID, keys) == [True, True, True, False, False, True]
        assert [head and head["index"] for head in tiered_stores.draws.heads(ID, keys)] == [0, 1, 2, None, None, 5]
        assert indices(tiered_stores.draws.get_many(ID, keys)) == [0, 1, 2, None, None, 5]
    tiered_stores.cache.delete(keys[1].cache_key(ID))
    assert tiered_stores.draws.contains(ID, keys) == [True, False, True, False, False, True]
    tiered_stores.cache.forget("post_1")
    assert tiered_stores.cache.objects is not None
    assert list(tiered_stores.cache.objects.bucket.modification_times()) == []
    assert tiered_stores.cache.client.dbsize() == 0
