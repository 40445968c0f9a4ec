"""Division of analyses into shards."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from worker.records.sharding import MAX_SHARDS, PartsSharding

SIZES = [4] * 30


def test_a_short_analysis_is_one_task() -> None:
    """Parts that together take no longer than a shard are not divided; nor is a single part."""
    assert PartsSharding.from_sizes("resamples", SIZES, 2.0 / 30, 2.0) is None
    assert PartsSharding.from_sizes("resamples", [4], 100.0, 2.0) is None
    assert PartsSharding.from_sizes("resamples", [], 100.0, 2.0) is None
    assert PartsSharding.from_sizes("resamples", SIZES, 2.1 / 30, 2.0) is not None


@pytest.mark.parametrize(("seconds", "per_shard"), [(100.0, 1), (2.0, 1), (0.5, 4), (0.2, 10)])
def test_shards_take_the_time_of_a_shard(seconds: float, per_shard: int) -> None:
    """A part that takes longer is a shard by itself."""
    divided = PartsSharding.from_sizes("resamples", SIZES, seconds, 2.0)
    assert divided is not None
    assert divided.per_shard == per_shard
    assert divided.shards == -(-30 // per_shard)


def test_many_long_parts_share_shards() -> None:
    """A job has at most `MAX_SHARDS` tasks; the last shard has the rest."""
    divided = PartsSharding.from_sizes("refits", [4] * (2 * MAX_SHARDS - 1), 10.0, 2.0)
    assert divided is not None
    assert (divided.per_shard, divided.shards) == (2, MAX_SHARDS)
    assert [divided.shard_size(shard) for shard in (0, MAX_SHARDS - 1)] == [8, 4]


@settings(max_examples=25)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(1, 50))
def test_every_part_is_in_one_shard(sizes: list[int], per_shard: int) -> None:
    """Each part is in one shard, in order; the division survives the record of the job."""
    divided = PartsSharding("refits", tuple(sizes), per_shard)
    assert TypeAdapter(PartsSharding).validate_json(json.dumps(asdict(divided))) == divided
    parts = [part for shard in range(divided.shards) for part in divided.parts(shard)]
    assert parts == list(range(len(sizes)))
    assert sum(divided.shard_size(shard) for shard in range(divided.shards)) == divided.total == sum(sizes)
