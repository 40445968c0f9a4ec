"""Lua scripts of the job records. Each change of status is one script, so readers always see a consistent record.

Each change is numbered in the record and published; progress is published at most ten times a second.
"""

from worker.base.versions import FIRST_QUEUE, SCHEMA
from worker.jobs.index import LISTS, REMOVED, TENANTS

ENDED = "glle:ended"  # the channel of the ids of jobs that end
CHANGED = "glle:changed"  # the channel of the ids of jobs whose records change
OPEN = "glle:open"  # the set of the default tenant's open jobs; `worker.records.tenants.own` names those of others
ALL_OPEN = "glle:unfinished"  # the set of all tenants' open jobs
PROGRESS_MS = 100  # between two publications of a job's progress

# Relaxes the terms of an open job, `record`: the later deadline and the higher priority count; empty means none.
_SHARE = f"""
local function share(record, deadline, priority)
  local is = redis.call('HMGET', record, 'status', 'deadline', 'format')
  if tonumber(is[3] or '1') > {SCHEMA} then return end
  if is[1] ~= 'queued' and is[1] ~= 'running' then return end
  if is[2] and is[2] ~= '' and (deadline == '' or tonumber(deadline) > tonumber(is[2])) then
    redis.call('HSET', record, 'deadline', deadline)
  end
  if priority == 'interactive' then redis.call('HSET', record, 'priority', priority) end
end
"""

# KEYS: record. ARGV: deadline, priority.
SHARE = f"""
{_SHARE}
share(KEYS[1], ARGV[1], ARGV[2])
"""

# Creates a job, or returns the holder of its claim. KEYS: claim, record, index, stats, the tenant's open jobs.
# ARGV: prefix of records, id, index member, claim's seconds, statuses of a holder to return (comma between and around),
# deadline, priority, maximum of open jobs of the tenant and of all, maximum of ended records of the tenant (0:
# unlimited), 1 if the server is full, tenant, now, then the record's fields. Returns `QUOTA`, `JOBS` or `ROOM` if a
# limit is reached. Removes surplus ended records, and expired ones among three random members of the index.
QUOTA, JOBS, ROOM = "!quota", "!jobs", "!room"
CREATE = f"""
{_SHARE}
{LISTS}
local holder = redis.call('GET', KEYS[1])
if holder then
  local status = redis.call('HGET', ARGV[1] .. holder, 'status')
  if status and string.find(ARGV[5], ',' .. status .. ',', 1, true) then
    share(ARGV[1] .. holder, ARGV[6], ARGV[7])
    return holder
  end
end
local limit, all_limit = tonumber(ARGV[8]), tonumber(ARGV[9])
if ARGV[11] == '1' then return '{ROOM}' end
if limit > 0 and redis.call('SCARD', KEYS[5]) >= limit then return '{QUOTA}' end
if all_limit > 0 and redis.call('SCARD', '{ALL_OPEN}') >= all_limit then return '{JOBS}' end
trim(ARGV[12], ARGV[13], tonumber(ARGV[10]), {REMOVED})
redis.call('SADD', KEYS[5], ARGV[2])
redis.call('SADD', '{ALL_OPEN}', ARGV[2])
redis.call('SADD', '{TENANTS}', ARGV[12])
redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[4])
redis.call('HSET', KEYS[2], 'deadline', ARGV[6], 'priority', ARGV[7], 'claim', KEYS[1], unpack(ARGV, 14))
redis.call('ZADD', KEYS[3], 0, ARGV[3])
index(KEYS[2], nil, 'queued')
for _, member in ipairs(redis.call('ZRANDMEMBER', KEYS[3], 3)) do
  if redis.call('EXISTS', ARGV[1] .. string.match(member, '[^ ]*$')) == 0 then redis.call('ZREM', KEYS[3], member) end
end
redis.call('HINCRBY', KEYS[4], redis.call('HGET', KEYS[2], 'kind') .. ':queued', 1)
return ARGV[2]
"""

# Changes the status. KEYS: record, stats. ARGV: JSON of {from: to}, seconds to keep the ended record, now in ISO format
# and in milliseconds, then fields to set. Returns the status before and after.
_MOVE = f"""
local status = redis.call('HGET', KEYS[1], 'status')
if not status then return false end
local to = cjson.decode(ARGV[1])[status]
if not to then return {{status, status}} end
local id, open = string.match(KEYS[1], '[^:]*$'), list(redis.call('HGET', KEYS[1], 'tenant'), 'open')
redis.call('HSET', KEYS[1], 'status', to, 'touched', ARGV[4], unpack(ARGV, 5))
redis.call('HSET', KEYS[1], 'since', ARGV[4], 'base', redis.call('HGET', KEYS[1], 'done'))
redis.call('HINCRBY', KEYS[1], 'sequence', 1)
redis.call('HINCRBY', KEYS[2], redis.call('HGET', KEYS[1], 'kind') .. ':' .. to, 1)
if has_ended(to) then
  redis.call('HSET', KEYS[1], 'finished', ARGV[3])
  redis.call('EXPIRE', KEYS[1], ARGV[2])
  redis.call('SREM', open, id)
  redis.call('SREM', '{ALL_OPEN}', id)
  redis.call('PUBLISH', '{ENDED}', id)
else
  redis.call('SADD', open, id)
  redis.call('SADD', '{ALL_OPEN}', id)
  redis.call('PERSIST', KEYS[1])
end
index(KEYS[1], status, to, ARGV[4] + 1000 * ARGV[2])
redis.call('PUBLISH', '{CHANGED}', id)
return {{status, to}}
"""

MOVE = f"""
{LISTS}
{_MOVE}
"""

# As MOVE, into the next round of the record; the caller may have read an earlier round.
REOPEN = f"""
{LISTS}
if redis.call('HGET', KEYS[1], 'status') == 'succeeded' then redis.call('HINCRBY', KEYS[1], 'round', 1) end
{_MOVE}
"""

# As MOVE, for a job whose deadline has passed.
EXPIRE = f"""
{LISTS}
local deadline = redis.call('HGET', KEYS[1], 'deadline')
if not deadline or deadline == '' or tonumber(deadline) > tonumber(ARGV[4]) then return false end
{_MOVE}
"""

# Numbers a change of progress and publishes it, unless one was published less than `PROGRESS_MS` ago.
_PUBLISH = f"""
redis.call('HINCRBY', KEYS[1], 'sequence', 1)
if tonumber(ARGV[1]) - tonumber(redis.call('HGET', KEYS[1], 'progress_at') or '0') >= {PROGRESS_MS} then
  redis.call('HSET', KEYS[1], 'progress_at', ARGV[1])
  redis.call('PUBLISH', '{CHANGED}', string.match(KEYS[1], '[^:]*$'))
end
"""

# Restores an ended record. KEYS: record, index. ARGV: milliseconds to keep it, index member, now, tenant, then the
# record's fields. Returns 0 if the record exists.
PUT = f"""
{LISTS}
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
for field = 5, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[field], ARGV[field + 1]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[2], 0, ARGV[2])
redis.call('SADD', '{TENANTS}', ARGV[4])
index(KEYS[1], nil, redis.call('HGET', KEYS[1], 'status'), ARGV[3] + ARGV[1])
return 1
"""

# Moves an open job to another queue. KEYS: record. ARGV: its queue, the new queue. Returns 1 to the first caller.
HAND_OVER = f"""
local is = redis.call('HMGET', KEYS[1], 'status', 'queue')
if (is[1] ~= 'queued' and is[1] ~= 'running' and is[1] ~= 'cancelling') or (is[2] or '{FIRST_QUEUE}') ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'queue', ARGV[2])
return 1
"""

# Writes progress. KEYS: record. ARGV: now, then fields to set while the job runs. Returns the status.
TOUCH = f"""
local was = redis.call('HMGET', KEYS[1], 'status', 'stage', 'done')
if was[1] ~= 'running' then return was[1] end
redis.call('HSET', KEYS[1], 'touched', ARGV[1], unpack(ARGV, 2))
local is = redis.call('HMGET', KEYS[1], 'stage', 'done')
if is[1] ~= was[2] or tonumber(is[2]) < tonumber(was[3]) then
  redis.call('HSET', KEYS[1], 'since', ARGV[1], 'base', is[2])
elseif is[2] == was[3] then
  return was[1]
end
{_PUBLISH}
return was[1]
"""

# Writes the count of a shard. KEYS: record. ARGV: now, round, field of the shard, its count. Returns status, done,
# total. Counts never decrease, so a worker that returns late to a shard of another one loses nothing.
ADVANCE = f"""
local is = redis.call('HMGET', KEYS[1], 'status', 'round', 'total', ARGV[3])
if is[2] ~= ARGV[2] or (is[1] ~= 'running' and is[1] ~= 'cancelling') then return false end
local was = tonumber(is[4] or '0')
local more = math.max(tonumber(ARGV[4]) - was, 0)
redis.call('HSET', KEYS[1], ARGV[3], was + more, 'touched', ARGV[1])
local done = redis.call('HINCRBY', KEYS[1], 'done', more)
{_PUBLISH}
return {{is[1], done, tonumber(is[3])}}
"""
