"""Lua scripts of the job records. Each change of status is one script, so readers always see a consistent record.

Each change is numbered in the record and published; progress is published at most ten times a second.
"""

from worker.base.versions import MEMBER, SCHEMA
from worker.jobs.index import LISTS, REMOVED, TENANTS
from worker.records.job import FIELDS, PARTS

ENDED = "glle:ended"  # the channel of the ids of jobs that end
CHANGED = "glle:changed"  # the channel of the ids of jobs whose records change
OPEN = "glle:open"  # the set of the default tenant's open jobs; `worker.records.tenants.own` names those of others
ENTERED = "glle:jobs:entered"  # transitions by kind and entered status
ALL_OPEN = "glle:unfinished"  # the set of all tenants' open jobs
PROGRESS_MS = 100  # between two publications of a job's progress

_FIELDS = ", ".join(f"'{name}'" for name in FIELDS)

# Relaxes the terms of an open job, `record`: the later deadline and the higher priority count; empty means none.
_SHARE = f"""
local function share(record, deadline, priority)
  local is = redis.call('HMGET', record, 'status', 'deadline', '{MEMBER}')
  if is[3] ~= '{SCHEMA}' then return end
  if is[1] ~= 'queued' and is[1] ~= 'running' then return end
  if is[2] and is[2] ~= '' and (deadline == '' or tonumber(deadline) > tonumber(is[2])) then
    redis.call('HSET', record, 'deadline', deadline)
  end
  if priority == 'interactive' then redis.call('HSET', record, 'priority', priority) end
end
"""

# Creates a job, or returns the holder of its claim. KEYS: claim, record, index, stats, the tenant's open jobs.
# ARGV: prefix of records, id, index member, claim's seconds, statuses of a holder to return (comma between and around),
# deadline, priority, maximum of open jobs of the tenant and of all, maximum of ended records of the tenant (0:
# unlimited), 1 if the server is full, tenant, now, then the record's fields. Returns the id and the `FIELDS` of the
# record, or `QUOTA`, `JOBS` or `ROOM` if a limit is reached. Removes surplus ended records, and expired ones among
# three random members of the index.
QUOTA, JOBS, ROOM = "!quota", "!jobs", "!room"
CREATE = f"""
{_SHARE}
{LISTS}
local holder = redis.call('GET', KEYS[1])
if holder then
  local status = redis.call('HGET', ARGV[1] .. holder, 'status')
  if status and string.find(ARGV[5], ',' .. status .. ',', 1, true) then
    share(ARGV[1] .. holder, ARGV[6], ARGV[7])
    return {{holder, redis.call('HMGET', ARGV[1] .. holder, {_FIELDS})}}
  end
end
local limit, all_limit = tonumber(ARGV[8]), tonumber(ARGV[9])
if ARGV[11] == '1' then return {{'{ROOM}'}} end
if limit > 0 and redis.call('SCARD', KEYS[5]) >= limit then return {{'{QUOTA}'}} end
if all_limit > 0 and redis.call('SCARD', '{ALL_OPEN}') >= all_limit then return {{'{JOBS}'}} end
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
return {{ARGV[2], redis.call('HMGET', KEYS[2], {_FIELDS})}}
"""

# Changes the status of a record by the moves {from: to}; `ttl` in seconds, `iso` and `now` (milliseconds) are the time,
# the further arguments are fields to set. Returns the status before and after.
_MOVE = f"""
{LISTS}
local function move(record, stats, moves, ttl, iso, now, ...)
  local status = redis.call('HGET', record, 'status')
  if not status then return false end
  local to = moves[status]
  if not to then return {{status, status}} end
  local id, open = string.match(record, '[^:]*$'), list(redis.call('HGET', record, 'tenant'), 'open')
  redis.call('HSET', record, 'status', to, 'touched', now, ...)
  redis.call('HSET', record, 'since', now, 'base', redis.call('HGET', record, 'done'))
  redis.call('HINCRBY', record, 'sequence', 1)
  redis.call('HINCRBY', stats, redis.call('HGET', record, 'kind') .. ':' .. to, 1)
  if has_ended(to) then
    redis.call('HSET', record, 'finished', iso)
    redis.call('EXPIRE', record, ttl)
    redis.call('SREM', open, id)
    redis.call('SREM', '{ALL_OPEN}', id)
    redis.call('PUBLISH', '{ENDED}', id)
  else
    redis.call('SADD', open, id)
    redis.call('SADD', '{ALL_OPEN}', id)
    redis.call('PERSIST', record)
  end
  index(record, status, to, now + 1000 * ttl)
  redis.call('PUBLISH', '{CHANGED}', id)
  return {{status, to}}
end
"""

# KEYS: record, stats. ARGV: JSON of {from: to}, seconds to keep the ended record, now in ISO format and in
# milliseconds, then fields to set. Returns the status before and after.
_MOVE_RECORD = "move(KEYS[1], KEYS[2], cjson.decode(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], unpack(ARGV, 5))"
MOVE = f"""
{_MOVE}
return {_MOVE_RECORD}
"""

# As MOVE; returns the `FIELDS` of the record.
START = f"""
{_MOVE}
{_MOVE_RECORD}
return redis.call('HMGET', KEYS[1], {_FIELDS})
"""

# As MOVE, into the next round of the record; the caller may have read an earlier round. The first fields to set are
# deadline and priority, which a job that another call has reopened shares.
REOPEN = f"""
{_SHARE}
{_MOVE}
if redis.call('HGET', KEYS[1], 'status') == 'succeeded' then
  redis.call('HINCRBY', KEYS[1], 'round', 1)
else
  share(KEYS[1], ARGV[6], ARGV[8])
end
return {_MOVE_RECORD}
"""

# As MOVE, for a job whose deadline has passed.
EXPIRE = f"""
{_MOVE}
local deadline = redis.call('HGET', KEYS[1], 'deadline')
if not deadline or deadline == '' or tonumber(deadline) > tonumber(ARGV[4]) then return false end
return {_MOVE_RECORD}
"""

# Numbers a change of progress and publishes it, unless one was published less than `PROGRESS_MS` ago.
_PUBLISH = f"""
local function publish_progress(record, now)
  redis.call('HINCRBY', record, 'sequence', 1)
  if tonumber(now) - tonumber(redis.call('HGET', record, 'progress_at') or '0') >= {PROGRESS_MS} then
    redis.call('HSET', record, 'progress_at', now)
    redis.call('PUBLISH', '{CHANGED}', string.match(record, '[^:]*$'))
  end
end
"""

# Notes that the end of a job is counted. KEYS: record. Returns the `FIELDS` of the record, and 1 to the first caller
# after the end of the first round; a later round belongs to another request.
COUNT_END = f"""
local is = redis.call('HMGET', KEYS[1], 'finished', 'round')
local is_first = is[1] and is[1] ~= '' and is[2] == '0' and redis.call('HSETNX', KEYS[1], 'counted', 1) == 1
return {{redis.call('HMGET', KEYS[1], {_FIELDS}), is_first and 1 or 0}}
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

# Writes progress. KEYS: record. ARGV: now, then fields to set while the job runs. Returns the status, `LATE` after the
# deadline.
LATE = "late"
TOUCH = f"""
{_PUBLISH}
local was = redis.call('HMGET', KEYS[1], 'status', 'stage', 'done', 'deadline')
if was[1] ~= 'running' then return was[1] end
if was[4] and was[4] ~= '' and tonumber(was[4]) <= tonumber(ARGV[1]) then return '{LATE}' end
redis.call('HSET', KEYS[1], 'touched', ARGV[1], unpack(ARGV, 2))
local is = redis.call('HMGET', KEYS[1], 'stage', 'done')
if is[1] ~= was[2] or tonumber(is[2]) < tonumber(was[3]) then
  redis.call('HSET', KEYS[1], 'since', ARGV[1], 'base', is[2])
elseif is[2] == was[3] then
  return was[1]
end
publish_progress(KEYS[1], ARGV[1])
return was[1]
"""

# Adds the finished steps of a shard. KEYS: record, stats. ARGV: round, seconds to keep the ended record, now in ISO
# format and in milliseconds, field and count of the shard. Returns the status, or nothing if the job is not wanted or
# is in another round. A count never decreases, so a repeated shard loses nothing. The count that completes a draws job
# ends it; parts of an analysis are combined by another task.
ADVANCE = f"""
{_MOVE}
{_PUBLISH}
local record, now = KEYS[1], ARGV[4]
local is = redis.call('HMGET', record, 'status', 'round', 'total', 'done', '{PARTS}', ARGV[5], 'deadline')
if is[2] ~= ARGV[1] or (is[1] ~= 'running' and is[1] ~= 'cancelling') then return nil end
if is[7] and is[7] ~= '' and tonumber(is[7]) <= tonumber(now) then return '{LATE}' end
local count = tonumber(is[6] or '0')
local done = tonumber(is[4]) + math.max(tonumber(ARGV[6]) - count, 0)
redis.call('HSET', record, ARGV[5], math.max(tonumber(ARGV[6]), count), 'touched', now, 'done', done)
publish_progress(record, now)
if is[5] or done ~= tonumber(is[3]) then return is[1] end
move(record, KEYS[2], {{running = 'succeeded', cancelling = 'succeeded'}}, ARGV[2], ARGV[3], now, 'stage', 'done')
return 'succeeded'
"""
