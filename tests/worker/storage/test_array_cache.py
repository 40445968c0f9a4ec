"""The array cache."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from worker.base.problems import ProblemError
from worker.records.cache_entry import PIECE
from worker.records.ids import text
from worker.storage import array_cache as cache
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


@pytest.mark.parametrize("piece", [8, 24, 1000])
def test_arrays_are_cut_into_pieces(stores: Stores, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    """Any piece size restores the bytes, and only the last piece of an array is short."""
    monkeypatch.setattr(cache, "PIECE", piece)
    arrays = {name: array for name, array in ARRAYS.items() if array.nbytes < 1000}
    stores.cache.put("key", {}, arrays)
    entry = stores.cache.get("key")
    assert entry is not None
    for name, array in arrays.items():
        np.testing.assert_array_equal(entry.arrays[name], array, name)
    if sum(array.nbytes for array in arrays.values()) > piece:
        lengths = [
            stores.cache.client.hstrlen("key", str(number)) for number in range(stores.cache.client.hlen("key") - 1)
        ]
        cut = [[piece] * (array.nbytes // piece) + [array.nbytes % piece] for array in arrays.values()]
        assert lengths == [length for lengths_of_array in cut for length in lengths_of_array if length]


def test_several_entries_are_read_at_once(stores: Stores) -> None:
    """Small, large and missing entries are returned in the requested order."""
    stores.cache.put("small", {"i": 1}, {"a": np.arange(3.0), "b": np.arange(2)})
    stores.cache.put("large", {"i": 2}, ARRAYS)
    entries = stores.cache.get_many(["large", "nowhere", "small"])
    assert [entry and entry.meta["i"] for entry in entries] == [2, None, 1]
    assert entries[0] is not None
    np.testing.assert_array_equal(entries[0].arrays["big"], ARRAYS["big"])
    assert stores.cache.get_many([]) == []


def test_a_missing_entry_is_none(stores: Stores) -> None:
    """A missing entry is None, and `contains` is False."""
    stores.cache.put("there", {}, {})
    assert stores.cache.get("nowhere") is None
    assert stores.cache.head("nowhere") is None
    assert stores.cache.contains(["there", "nowhere"]) == [True, False]


def test_more_than_half_the_budget_is_refused(stores: Stores) -> None:
    """A value that would evict the rest is a problem with a remedy, and writes nothing."""
    stores.cache.put("small", {}, {"x": np.zeros(10)})
    with pytest.raises(ProblemError) as caught:
        stores.cache.put("huge", {}, {"x": np.zeros(stores.cache.budget // 16 + 1)})
    assert caught.value.problem.code == "cache-too-small"
    assert "GLLE_CACHE_BYTES" in caught.value.problem.remedy
    assert stores.cache.contains(["small", "huge"]) == [True, False]


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
        while complete < 15:
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


KEYS = ["draw:post_1:0:0", "v2:summary:post_1:0:1", "result:post_1:transform:x", "draw:post_12:0:0"]
LARGE = {"x": np.zeros(2**17 + 1)}  # larger than a piece


def remaining_keys(stores: Stores) -> set[str]:
    """Return every key of the cache."""
    return {text(key) for key in stores.cache.client.keys("*")}


def test_a_subject_is_forgotten_completely(stores: Stores) -> None:
    """Small, large and unfinished entries of a subject are deleted; other subjects stay."""
    for key in KEYS:
        stores.cache.put(key, {}, LARGE if key.startswith("result") else {})
    stores.cache.client.hset("result:post_1:x:tmp:0", "0", "killed")
    stores.cache.forget("post_1")
    assert remaining_keys(stores) == {"draw:post_12:0:0"}
