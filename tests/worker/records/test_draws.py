"""Specifications of draws jobs."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glle_engine.linalg import LANES
from worker.records.cache_entry import PIECE
from worker.records.draws import (
    DrawAddress,
    DrawsSpec,
    batch_end,
    place_of,
)
from worker.records.sharding import MAX_SHARDS


def spec(
    *, n: int = 100, count: int = 10, scales: tuple[float | Literal["auto"], ...] = (1.0,), seconds: float = 2.0
) -> DrawsSpec:
    """Return the specification of a job."""
    return DrawsSpec(
        n=n, p=2, count=count, first=5, seed=3, scales=scales, grid=len(scales) > 1, source="posterior",
        align="none", draw_seconds=1e-6 * n, shard_seconds=seconds,
    )  # fmt: skip


@settings(max_examples=30)
@given(
    n=st.integers(10, 200_000),
    count=st.integers(1, 300),
    scales=st.lists(st.floats(0, 10), min_size=1, max_size=4),
    seconds=st.floats(0.01, 5),
)
def test_shards_are_the_draws_in_order(n: int, count: int, scales: list[float], seconds: float) -> None:
    """The shards contain every draw once, in the order of the result, and none is too long."""
    job = spec(n=n, count=count, scales=tuple(scales), seconds=seconds)
    shards = [job.shard_keys(shard) for shard in range(job.shards)]
    assert list(chain.from_iterable(shards)) == list(job.draws())
    assert [len(keys) for keys in shards] == [job.shard_size(shard) for shard in range(job.shards)]
    assert all(keys for keys in shards)
    assert len(shards) <= MAX_SHARDS
    assert sum(map(len, shards)) == job.total == count * len(scales)


def test_a_shard_has_the_requested_duration() -> None:
    """At n = 5,000 a shard of two seconds has 400 draws; few draws are one shard, and every lane is used."""
    assert spec(n=5000, count=1000).per_shard == 400
    assert spec(n=100_000, count=1000).per_shard == 20
    assert spec(n=10_000_000, count=1000).per_shard == 4
    longest = spec(n=10_000_000, count=10_000)
    assert (longest.per_shard, longest.shards) == (20, MAX_SHARDS), "each is a task"
    assert (spec(count=64).per_shard, spec(count=64).shards) == (64, 1)
    assert (spec(count=18).per_shard, spec(count=1).per_shard) == (20, 4)


@pytest.mark.parametrize("change", ["seed", "index", "scale", "source", "align"])
def test_the_cache_key_covers_every_field(change: str) -> None:
    """Equal draws of two jobs have one key, and draws of one lane group one group key."""
    key = DrawAddress(seed=1, index=2, scale=0.1, source="posterior", align="none")
    other = {"seed": 2, "index": 1, "scale": 0.1000000000000001, "source": "prior", "align": "procrustes"}[change]
    assert key.cache_key("post_a") != DrawAddress(**{**vars(key), change: other}).cache_key("post_a")
    assert key.cache_key("post_a") != key.cache_key("post_b")
    assert spec(count=3).key(1).cache_key("p") == spec(count=9, scales=(1.0, 2.0)).key(1).cache_key("p")
    is_same_group = key.group_key("post_a") == DrawAddress(**{**vars(key), change: other}).group_key("post_a")
    assert is_same_group == (change == "index")
    assert key.group_key("post_a") != key.group_key("post_b")


DRAW_KEYS = st.builds(
    DrawAddress,
    seed=st.integers(0, 2**64 - 1),
    index=st.integers(0, 2**64 - 1),
    scale=st.floats(min_value=1e-300, allow_infinity=False),
    source=st.sampled_from(["posterior", "prior"]),
    align=st.sampled_from(["none", "procrustes"]),
)


@settings(max_examples=30)
@given(DRAW_KEYS, st.sampled_from(["post_1", "post_1:0123"]))
def test_draws_of_a_lane_group_have_one_place(key: DrawAddress, arrays_id: str) -> None:
    """The place of a draw is its lane group, which is that of the other draws of the group."""
    assert place_of(key.cache_key(arrays_id)) == (key.group_key(arrays_id), str(key.index))
    first = key.index - key.index % LANES
    group = [replace(key, index=index).cache_key(arrays_id) for index in range(first, first + LANES)]
    assert {place_of(other)[0] for other in group} == {key.group_key(arrays_id)}


@settings(max_examples=30)
@given(st.integers(0, 9), st.integers(1, 60), st.sampled_from([100, PIECE // 6, PIECE // 2, PIECE, PIECE + 1]))
def test_batches_are_whole_lane_groups(first: int, count: int, nbytes: int) -> None:
    """Batches cover all draws in order; no lane group of small draws is split, and large draws are read one by one."""
    keys = [DrawAddress(0, first + i, 1.0, "posterior", "none") for i in range(count)]
    batches, start = [], 0
    while start < count:
        end = batch_end(keys, start, count, nbytes)
        batches.append(keys[start:end])
        assert (end - start) * nbytes <= PIECE + LANES * nbytes
        start = end
    assert list(chain(*batches)) == keys
    if nbytes > PIECE:
        assert {len(batch) for batch in batches} == {1}
    else:
        groups = [{key.group_key("") for key in batch} for batch in batches]
        assert sum(map(len, groups)) == len(set().union(*groups))
