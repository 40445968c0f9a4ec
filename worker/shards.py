"""What a draws job's record says of its shards: how far each is, and who took it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.job import job_key

if TYPE_CHECKING:
    import redis

    from worker.job import Job


def counts(client: redis.Redis, job: Job, shards: int) -> list[int]:
    """Return how many draws each shard of a job's round has done."""
    fields = [count_field(job.round, shard) for shard in range(shards)]
    return [int(value or 0) for value in client.hmget(job_key(job.id), fields)]


def takers(client: redis.Redis, job: Job, shards: list[int]) -> list[int | None]:
    """Return by which shard's task each of these was last taken, None where by none."""
    if not shards:
        return []
    found = client.hmget(job_key(job.id), [taker_field(job.round, shard) for shard in shards])
    return [None if raw is None else int(raw) for raw in found]


def count_field(round_: int, shard: int) -> str:
    """Return the field of a job's record that tells how many draws of a shard are done."""
    return f"shard:{round_}:{shard}"


def taker_field(round_: int, shard: int) -> str:
    """Return the field of a job's record that tells which shard's task took this one."""
    return f"taker:{round_}:{shard}"
