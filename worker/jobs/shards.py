"""What a draws job's record says of its shards: how far each is, who took it, and how many are open.

    shard 0 ends -> the first `chains` are open -> each that ends opens the next -> none is left

So as many are in work at once as the job has chains; while it runs their number may grow, with the workers. An open
shard waits, is in work, or got lost: then `TaskQueue.repair` enqueues it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.records.draws import CHAINS
from worker.records.job import job_key

if TYPE_CHECKING:
    import redis

    from worker.records.job import Job

# Reads the record into `chains` and `opened`, and ends the script with `nothing` where its round does not run.
_READ = f"""
local is = redis.call('HMGET', KEYS[1], 'status', 'round', 'chains', 'opened:' .. ARGV[1])
if is[1] ~= 'running' or is[2] ~= ARGV[1] then return nothing end
local chains = tonumber(is[3] or '{CHAINS}')
local opened = tonumber(is[4]) or math.min(chains, tonumber(ARGV[2]))
"""

# Opens the shard that comes after one that ends: the same one, should that be done again. Those that are begun, by a
# program of another version, are passed over. KEYS: record. ARGV: round, number of shards, the one that ends, the one
# that it has just opened and that is enqueued already, or nothing. Returns the shard and whether it was opened now, or
# -1 where nothing is to be enqueued.
FOLLOW = f"""
local nothing = {{-1, 0}}
{_READ}
local after, count = 'after:' .. ARGV[1] .. ':' .. ARGV[3], 'shard:' .. ARGV[1] .. ':'
local known = redis.call('HGET', KEYS[1], after)
if known and known ~= ARGV[4] then
  return redis.call('HEXISTS', KEYS[1], count .. known) == 1 and nothing or {{tonumber(known), 0}}
end
while opened < tonumber(ARGV[2]) and redis.call('HEXISTS', KEYS[1], count .. opened) == 1 do opened = opened + 1 end
if opened >= tonumber(ARGV[2]) then return nothing end
redis.call('HSET', KEYS[1], 'opened:' .. ARGV[1], opened + 1, after, opened)
return {{opened, 1}}
"""

# Gives a job more chains, once its first shard has opened those it had. KEYS: record. ARGV: round, number of shards,
# chains. Returns the first of the shards that are open since now, and the first that is not.
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

    def follow(self, job: Job, shards: int, ended: int, past: int | None = None) -> tuple[int, bool] | None:
        """Open the shard that comes after one that ends, and is not `past`; return it, and whether it was opened now.

        None where there is none to be enqueued.
        """
        args = [job.round, shards, ended, "" if past is None else past]
        shard, is_new = self._follow(keys=[job_key(job.id)], args=args)
        return None if shard < 0 else (int(shard), bool(is_new))

    def widen(self, job: Job, shards: int, chains: int) -> range:
        """Give a running job so many chains, if it has fewer; return the shards that are open since now."""
        return range(*self._widen(keys=[job_key(job.id)], args=[job.round, shards, chains]))


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
