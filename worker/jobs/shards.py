"""The shards of a draws job, as its record has them: their counts, their takers, and the open ones.

    shard 0 ends -> the first `chains` shards are open -> each shard that ends opens the next one -> none is left

So at most `chains` shards run at once; with new workers that number grows while the job runs. An open shard waits,
runs, or was lost: then `JobRecovery.repair` enqueues it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.records.draws import CHAINS
from worker.records.job import job_key

if TYPE_CHECKING:
    import redis

    from worker.records.job import Job

# Reads the record into `chains` and `opened`. Ends the script with `nothing` if the round does not run.
_READ = f"""
local is = redis.call('HMGET', KEYS[1], 'status', 'round', 'chains', 'opened:' .. ARGV[1])
if is[1] ~= 'running' or is[2] ~= ARGV[1] then return nothing end
local chains = tonumber(is[3] or '{CHAINS}')
local opened = tonumber(is[4]) or math.min(chains, tonumber(ARGV[2]))
"""

# Opens the successor of a shard that ends; a repeated end opens the same one. Skips shards that a program of another
# version has begun. KEYS: record. ARGV: round, number of shards, the shard that ends, its successor if that is enqueued
# already, or nothing. Returns the opened shard and whether it is new, or -1 if nothing is to be enqueued.
FOLLOW = f"""
local nothing = {{-1, 0}}
{_READ}
local after, count = 'after:' .. ARGV[1] .. ':' .. ARGV[3], 'shard:' .. ARGV[1] .. ':'
local successor = redis.call('HGET', KEYS[1], after)
if successor and successor ~= ARGV[4] then
  return redis.call('HEXISTS', KEYS[1], count .. successor) == 1 and nothing or {{tonumber(successor), 0}}
end
while opened < tonumber(ARGV[2]) and redis.call('HEXISTS', KEYS[1], count .. opened) == 1 do opened = opened + 1 end
if opened >= tonumber(ARGV[2]) then return nothing end
redis.call('HSET', KEYS[1], 'opened:' .. ARGV[1], opened + 1, after, opened)
return {{opened, 1}}
"""

# Raises the number of chains of a job whose first shard has ended. KEYS: record. ARGV: round, number of shards, chains.
# Returns the first shard that is open as a result, and the first that is not.
WIDEN = f"""
local nothing = {{0, 0}}
{_READ}
local more = tonumber(ARGV[3]) - chains
if more <= 0 or redis.call('HEXISTS', KEYS[1], 'shard:' .. ARGV[1] .. ':0') == 0 then return nothing end
local upto = math.min(opened + more, tonumber(ARGV[2]))
redis.call('HSET', KEYS[1], 'chains', ARGV[3], 'opened:' .. ARGV[1], upto)
return {{opened, upto}}
"""


class Shards:
    """Opens the shards of draws jobs."""

    def __init__(self, client: redis.Redis) -> None:
        self._follow = client.register_script(FOLLOW)
        self._widen = client.register_script(WIDEN)

    def follow(self, job: Job, shards: int, ended: int, opened: int | None = None) -> tuple[int, bool] | None:
        """Open the successor of a shard that ends, other than `opened`; return it and whether it is new, or None."""
        args = [job.round, shards, ended, "" if opened is None else opened]
        shard, is_new = self._follow(keys=[job_key(job.id)], args=args)
        return None if shard < 0 else (int(shard), bool(is_new))

    def widen(self, job: Job, shards: int, chains: int) -> range:
        """Raise the number of chains of a running job; return the shards that are open as a result."""
        return range(*self._widen(keys=[job_key(job.id)], args=[job.round, shards, chains]))


def draw_counts(client: redis.Redis, job: Job, shards: int) -> list[int]:
    """Return the number of finished draws of each shard of a job's round."""
    fields = [count_field(job.round, shard) for shard in range(shards)]
    return [int(value or 0) for value in client.hmget(job_key(job.id), fields)]


def takers(client: redis.Redis, job: Job, shards: list[int]) -> list[int | None]:
    """Return for each shard the one whose task took it last, or None."""
    if not shards:
        return []
    values = client.hmget(job_key(job.id), [taker_field(job.round, shard) for shard in shards])
    return [None if raw is None else int(raw) for raw in values]


def count_field(round_: int, shard: int) -> str:
    """Return the record's field for the number of finished draws of a shard."""
    return f"shard:{round_}:{shard}"


def taker_field(round_: int, shard: int) -> str:
    """Return the record's field for the shard whose task took this one."""
    return f"taker:{round_}:{shard}"
