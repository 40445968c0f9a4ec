"""The shards of a job, as its record has them: their counts, their takers, and the open ones.

    shard 0 begins -> the first `chains` shards are open -> each shard whose parts are made opens the next one

So at most `chains` shards wait or run at once, besides those whose last parts are being written; with new workers that
number grows while the job runs. An open shard waits, is taken, runs, or was lost: then `JobRecovery.repair` enqueues it
again. A part is a draw, or a block of resamples (`worker.records.sharding`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.base.clock import now_iso, now_ms
from worker.jobs import lua_scripts, priority_scripts
from worker.jobs.rq_types import SafeQueue, script_keys
from worker.records.job import job_key
from worker.records.sharding import CHAINS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import redis

    from worker.records.job import Job

# Reads the record into `chains` and `opened`. Ends the function or script with `nothing` if the round does not run.
_READ = f"""
local is = redis.call('HMGET', record, 'status', 'round', 'chains', 'opened:' .. round)
if is[1] ~= 'running' or is[2] ~= round then return nothing end
local chains = tonumber(is[3] or '{CHAINS}')
local opened = tonumber(is[4]) or math.min(chains, shards)
"""

# Opens the successor of a shard that ends; a repeated end opens the same one, unless a task of it has begun. Skips the
# successor `enqueued`, if any, and shards that a program of another version has begun. Returns the opened shard, or
# nothing, and whether it is new.
_FOLLOW = f"""
local function follow(record, round, shards, ended, enqueued)
  local nothing = nil
  {_READ}
  local after, count = 'after:' .. round .. ':' .. ended, 'shard:' .. round .. ':'
  local successor = redis.call('HGET', record, after)
  if successor and tonumber(successor) ~= enqueued then
    return redis.call('HEXISTS', record, count .. successor) == 0 and tonumber(successor) or nil, false
  end
  while opened < shards and redis.call('HEXISTS', record, count .. opened) == 1 do opened = opened + 1 end
  if opened >= shards then return nothing end
  redis.call('HSET', record, 'opened:' .. round, opened + 1, after, opened)
  return opened, true
end
"""

# Continues a job after a shard whose parts are made: reports the finished steps of shards, opens the successor, and
# takes the earliest open shard for the same task. A task is enqueued for the successor unless it is taken itself.
# KEYS: queue, taken, record, stats, the set of RQ's queues. ARGV: round, seconds to keep the ended record, now in ISO
# format and in milliseconds, number of shards, the ended shard, the shard of the task, 1 if the task has time for
# another shard, the first shard to look at, JSON of a short task but for its shard (empty: a long one), then field and
# count of each shard. Returns the status, the shard that is taken and the one that the caller must enqueue (-1: none),
# and whether requests for draws wait; nothing if the job is not wanted. A shard that this task took before counts as
# waiting, because the reply was lost. An interactive task that waits goes before a batch.
CONTINUE = f"""
{priority_scripts.LINES}
{lua_scripts.ADVANCE}
{_FOLLOW}
local record, round, shards, ended, taker = KEYS[3], ARGV[1], tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
local status = advance(record, KEYS[4], round, ARGV[2], ARGV[3], ARGV[4], {{unpack(ARGV, 11)}})
local is_asked = redis.call('EXISTS', queue .. ':asked')
if status ~= 'running' then return status and {{status, -1, -1, is_asked}} end
local id, interactive = string.match(record, '[^:]*$') .. '-r' .. round .. '-s', '{priority_scripts.INTERACTIVE}'
local is_interactive = redis.call('HGET', record, 'priority') == interactive

local function has_holder(shard)
  local has_task = redis.call('EXISTS', '{priority_scripts.TASKS}' .. id .. shard) == 1
  return has_task or redis.call('HEXISTS', record, 'taker:' .. round .. ':' .. shard) == 1
end

local opened, is_new = follow(record, round, shards, ended)
while opened and is_new and redis.call('EXISTS', '{priority_scripts.TASKS}' .. id .. opened) == 1 do
  opened, is_new = follow(record, round, shards, ended, opened)
end
if opened and not is_new and has_holder(opened) then opened = nil end

local function taken(shard)
  redis.call('HSET', record, 'taker:' .. round .. ':' .. shard, taker)
  return shard
end

local function take_waiting()
  local is = redis.call('HMGET', record, 'opened:' .. round, 'chains')
  for shard = tonumber(ARGV[9]), math.min(tonumber(is[1] or is[2] or '{CHAINS}'), shards) - 1 do
    if shard ~= ended and leave(id .. shard) then
      redis.call('DEL', '{priority_scripts.TASKS}' .. id .. shard)
      return taken(shard)
    end
    local of = redis.call('HMGET', record, 'taker:' .. round .. ':' .. shard, 'shard:' .. round .. ':' .. shard)
    if of[1] == taker and not of[2] and shard ~= ended then return shard end
  end
end

adopt()
local next_shard
if ARGV[8] == '1' and (is_interactive or not head(interactive)) then
  next_shard = take_waiting()
  if not next_shard and opened then next_shard = taken(opened) end
end
local to_enqueue = -1
if opened and opened ~= next_shard then
  if ARGV[10] == '' then
    to_enqueue = opened
  else
    local task = cjson.decode(ARGV[10])
    table.insert(task[2], opened)
    local fields = {{'task', cjson.encode(task), 'status', 'queued', 'enqueued_at', ARGV[3], 'attempts', 0}}
    if is_interactive then
      table.insert(fields, 'interactive')
      table.insert(fields, 1)
    end
    enqueue(KEYS[5], id .. opened, fields)
  end
end
publish()
return {{status, next_shard or -1, to_enqueue, is_asked}}
"""

# Raises the number of chains of a job whose first shard has ended. KEYS: record. ARGV: round, number of shards, chains.
# Returns the first shard that is open as a result, and the first that is not.
WIDEN = f"""
local record, round, shards, nothing = KEYS[1], ARGV[1], tonumber(ARGV[2]), {{0, 0}}
{_READ}
local more = tonumber(ARGV[3]) - chains
if more <= 0 or redis.call('HEXISTS', record, 'shard:' .. round .. ':0') == 0 then return nothing end
local upto = math.min(opened + more, shards)
redis.call('HSET', record, 'chains', ARGV[3], 'opened:' .. round, upto)
return {{opened, upto}}
"""


@dataclass(frozen=True)
class Continuation:
    """What a task does after a shard.

    Parameters
    ----------
    shard
        The shard that it has taken, or None.
    to_enqueue
        The opened shard whose long task is to be enqueued, or None.
    is_requested
        Whether requests for single draws wait in the queue of the job.

    """

    shard: int | None
    to_enqueue: int | None
    is_requested: bool


class Shards:
    """Opens the shards of jobs.

    Parameters
    ----------
    ttl
        Seconds to keep the record of an ended job.

    """

    def __init__(self, client: redis.Redis, ttl: int) -> None:
        self._ttl = ttl
        self._continue = client.register_script(CONTINUE)
        self._widen = client.register_script(WIDEN)

    def continue_after(
        self,
        job: Job,
        ended: int,
        *,
        taker: int,
        first: int,
        has_time: bool,
        counts: Mapping[int, int],
        short_task: Sequence[object] | None,
    ) -> Continuation | None:
        """Report counts, open the successor of a shard whose parts are made, and take a shard for the same task.

        Parameters
        ----------
        taker
            The shard of the task.
        first
            The first shard that may be taken.
        has_time
            Whether the task takes another shard.
        counts
            Finished steps by shard.
        short_task
            Name, arguments but for the shard, and metadata of a short task; None for a long one.

        Returns
        -------
        The continuation, or None if the job is not wanted or is in another round.

        """
        task = "" if short_task is None else json.dumps(short_task)
        assert job.sharding is not None
        raw = self._continue(
            keys=[*script_keys(job.queue), job_key(job.id), lua_scripts.ENTERED, SafeQueue.redis_queues_keys],
            args=[
                job.round, self._ttl, now_iso(), now_ms(), job.sharding.shards, ended, taker,
                int(has_time), first, task, *count_fields(job.round, counts),
            ],
        )  # fmt: skip
        if raw is None or raw[0] == b"cancelling":
            return None
        shard, to_enqueue = (None if number < 0 else int(number) for number in raw[1:3])
        return Continuation(shard, to_enqueue, bool(raw[3]))

    def widen(self, job: Job, shards: int, chains: int) -> range:
        """Raise the number of chains of a running job; return the shards that are open as a result."""
        return range(*self._widen(keys=[job_key(job.id)], args=[job.round, shards, chains]))


def draw_counts(client: redis.Redis, job: Job, shards: int) -> list[int]:
    """Return the number of finished draws of each shard of a job's round."""
    fields = [count_field(job.round, shard) for shard in range(shards)]
    return [int(value or 0) for value in client.hmget(job_key(job.id), fields)]


def unfinished_shards(client: redis.Redis, job: Job) -> list[int]:
    """Return the unfinished shards that are open, and the earliest others if fewer than `Job.chains` are."""
    sharding = job.sharding
    assert sharding is not None
    fields = [f"opened:{job.round}", *(count_field(job.round, shard) for shard in range(sharding.shards))]
    opened, *counts = (int(value or 0) for value in client.hmget(job_key(job.id), fields))
    unfinished = [shard for shard, count in enumerate(counts) if count < sharding.shard_size(shard)]
    return [shard for place, shard in enumerate(unfinished) if place < job.chains or shard < opened]


def takers(client: redis.Redis, job: Job, shards: list[int]) -> list[int | None]:
    """Return for each shard the one whose task took it last, or None."""
    if not shards:
        return []
    values = client.hmget(job_key(job.id), [taker_field(job.round, shard) for shard in shards])
    return [None if raw is None else int(raw) for raw in values]


def count_fields(round_: int, counts: Mapping[int, int]) -> list[str | int]:
    """Return fields and counts of shards as arguments of the scripts."""
    return [part for shard, count in counts.items() for part in (count_field(round_, shard), count)]


def count_field(round_: int, shard: int) -> str:
    """Return the record's field for the number of finished steps of a shard."""
    return f"shard:{round_}:{shard}"


def taker_field(round_: int, shard: int) -> str:
    """Return the record's field for the shard whose task took this one."""
    return f"taker:{round_}:{shard}"
