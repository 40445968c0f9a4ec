"""Specifications of draws jobs."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glle_engine.linalg import LANES
from worker.records.draws import MAX_SHARD_BYTES, DrawAddress, DrawsSpec, draws_bytes
from worker.records.sharding import MAX_SHARDS


def spec(
    *, n: int = 100, n_draws: int = 10, scales: tuple[float | Literal["auto"], ...] = (1.0,), seconds: float = 2.0
) -> DrawsSpec:
    """Return the parameters of a job of draws."""
    return DrawsSpec(
        n=n, p=2, n_draws=n_draws, first=5, seed=3, scales=scales, grid=len(scales) > 1, source="posterior",
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
    job = spec(n=n, n_draws=count, scales=tuple(scales), seconds=seconds)
    shards = [job.shard_keys(shard) for shard in range(job.shards)]
    assert list(chain.from_iterable(shards)) == [job.key(position) for position in range(job.total)]
    assert [len(keys) for keys in shards] == [job.shard_size(shard) for shard in range(job.shards)]
    assert all(keys for keys in shards)
    assert len(shards) <= MAX_SHARDS
    assert sum(map(len, shards)) == job.total == count * len(scales)


def test_a_shard_has_the_requested_duration() -> None:
    """At n = 5,000 a shard of two seconds has 400 draws; few draws are one shard, and every lane is used."""
    assert spec(n=5000, n_draws=1000).per_shard == 400
    assert spec(n=100_000, n_draws=1000).per_shard == 20
    assert spec(n=10_000_000, n_draws=1000).per_shard == 4
    longest = spec(n=10_000_000, n_draws=10_000)
    assert (longest.per_shard, longest.shards) == (20, MAX_SHARDS), "each is a task"
    assert (spec(n_draws=64).per_shard, spec(n_draws=64).shards) == (64, 1)
    assert (spec(n_draws=18).per_shard, spec(n_draws=1).per_shard) == (20, 4)


def test_a_shard_fits_into_the_memory_of_a_worker() -> None:
    """Many draws of many points are in more shards than their duration asks for."""
    job = spec(n=500_000, n_draws=64, seconds=1e6)
    assert (job.per_shard, job.shards) == (8, 8)
    assert draws_bytes(job.n, job.p, job.per_shard) <= MAX_SHARD_BYTES < draws_bytes(job.n, job.p, 2 * job.per_shard)


@pytest.mark.parametrize("change", ["seed", "index", "scale", "source", "align"])
def test_the_draws_of_a_lane_group_have_one_key(change: str) -> None:
    """Draws of a lane group differ only in their index; equal draws of two jobs have equal addresses."""
    key = DrawAddress(seed=1, index=2, scale=0.1, source="posterior", align="none")
    other = {"seed": 2, "index": 1, "scale": 0.1000000000000001, "source": "prior", "align": "procrustes"}[change]
    is_same_group = key.group_key("post_a") == DrawAddress(**{**vars(key), change: other}).group_key("post_a")
    assert is_same_group == (change == "index")
    assert key.group_key("post_a") != key.group_key("post_b")
    assert key.group_key("post_a") != replace(key, index=LANES).group_key("post_a")
    assert spec(n_draws=3).key(1) == spec(n_draws=9, scales=(1.0, 2.0)).key(1)


def test_the_key_of_a_shard_covers_posterior_request_and_number() -> None:
    """A repeated task finds the draws of its shard, and no other draws."""
    job = spec(n_draws=40, seconds=0.0)
    keys = {job.result_key(posterior, shard) for posterior in ("post_a", "post_b") for shard in range(job.shards)}
    others = [replace(job, seed=4), replace(job, first=6), replace(job, n_draws=41)]
    assert len(keys | {other.result_key("post_a", 0) for other in others}) == 2 * job.shards + 3
    assert DrawsSpec.from_dict(job.to_dict()).result_key("post_a", 0) == job.result_key("post_a", 0)
    assert replace(job, scales=(1.0, "auto")).at(2.0) == replace(job, scales=(1.0, 2.0))
