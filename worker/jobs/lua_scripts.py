"""Lua scripts that create, change and remove job records.

A script runs atomically, so readers always see a consistent record. The script that ends a job publishes the job's id.
"""

from worker.observability.counters import BUCKETS, SEPARATOR
from worker.observability.counters import KEY as COUNTS
from worker.records.job import FIELDS, PARTS
from worker.records.shares import MAY_HOLD

ENDED = "glle:ended"  # channel on which the id of each job that ends is published
INDEX = "glle:jobs"  # sorted set of the default tenant's jobs by time of creation
ENDED_BYTES = "glle:jobs:bytes"  # number of bytes of the records of the default tenant's ended jobs
TENANTS = "glle:tenants"  # set of the tenants that have had jobs
OPEN_JOBS = "glle:open"  # set of the default tenant's open jobs; for others see `worker.records.ids.tenant_key`
ALL_OPEN = "glle:unfinished"  # set of the open jobs of all tenants
MAX_REMOVED_RECORDS = 8  # the creation of one job removes at most this many expired or surplus records
STRING_BYTES = 24  # estimated bytes of memory of each field and each value of a record beyond its text
SWEEP_SECONDS = 3600  # an expired record stays in Redis this long, so that a sweep can subtract its bytes

_FIELDS = ", ".join(f"'{name}'" for name in FIELDS)

# Replies if a job cannot be created: the tenant has too many open jobs, all tenants together have too many open jobs,
# or the server is full.
QUOTA, JOBS, ROOM = "!quota", "!jobs", "!room"
# Functions of several scripts. `list` returns the key of a tenant's list. `drop` removes the record of an ended job,
# and the job's claim: the key that lets equal requests share one open job. `trim` removes expired records, and then the
# oldest records until the rest has at most `limit` bytes. `refusal` returns which limit of open jobs is reached: the
# tenant's limit, or the limit of all tenants.
_LISTS = f"""
{MAY_HOLD}
local function list(tenant, name)
  if not tenant or tenant == 'default' then return 'glle:' .. name end
  return 'glle:tenant:' .. tenant .. ':' .. name
end

local function has_ended(status) return status == 'succeeded' or status == 'failed' or status == 'cancelled' end

local function count_entered(kind, status)
  redis.call('HINCRBY', '{COUNTS}', table.concat({{'jobs_entered', kind, status, 'n'}}, '{SEPARATOR}'), 1)
end

local function drop(tenant, member)
  local id = string.match(member, '%S+$')
  local record = 'glle:job:' .. id
  local is = redis.call('HMGET', record, 'claim', 'bytes')
  local claim = is[1]
  redis.call('ZREM', list(tenant, 'jobs:ended'), member)
  redis.call('ZREM', list(tenant, 'jobs'), member)
  if claim and redis.call('GET', claim) == id then redis.call('DEL', claim) end
  redis.call('DEL', record)
  local bytes = list(tenant, 'jobs:bytes')
  redis.call('DECRBY', bytes, is[2] or 0)
  if redis.call('EXISTS', list(tenant, 'jobs:ended')) == 0 then redis.call('DEL', bytes) end
end

local function trim(tenant, now, limit, removed)
  local ended, bytes = list(tenant, 'jobs:ended'), list(tenant, 'jobs:bytes')
  for count = 0, removed - 1 do
    local oldest = redis.call('ZRANGE', ended, 0, 0, 'WITHSCORES')
    local is_surplus = limit > 0 and tonumber(redis.call('GET', bytes) or 0) > limit
    if not oldest[1] or (tonumber(oldest[2]) > tonumber(now) and not is_surplus) then return count end
    drop(tenant, oldest[1])
  end
  return removed
end

local function refusal(tenant, limit, all_limit)
  local all = redis.call('SCARD', '{ALL_OPEN}')
  if all >= all_limit then return '{JOBS}' end
  if not may_hold(redis.call('SCARD', list(tenant, 'open')), all, all_limit, limit) then return '{QUOTA}' end
end
"""

# Removes the record of a single ended job, whose id is given, or a tenant's expired and surplus records of ended jobs.
# ARGV:
#   1  tenant
#   2  present time, in milliseconds since 1970
#   3  bytes that the remaining records may have; 0: unlimited
#   4  maximum number of records to remove
#   5  id of the single job whose record is to be removed; an empty text to remove expired and surplus records
# Returns the number of removed records; with an id, 0 if this job is still open, and otherwise 1.
REMOVE = f"""
{_LISTS}
if ARGV[5] == '' then return trim(ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])) end
local is = redis.call('HMGET', 'glle:job:' .. ARGV[5], 'status', 'created')
if is[1] and not has_ended(is[1]) then return 0 end
if is[1] then drop(ARGV[1], is[2] .. ' ' .. ARGV[5]) end
return 1
"""

# Creates a job, unless an equal request has created a job that can be shared: then returns this job. Equal requests
# have one claim: a key with the id of the job that was created last for these requests.
# KEYS: the claim; the record of the new job.
# ARGV:
#   1  prefix of the keys of records
#   2  id of the new job
#   3  the text that stands for the new job in the sorted set of the tenant's jobs (`INDEX`): time of creation and id
#   4  seconds until the claim, by which equal requests find this job, expires
#   5  statuses in which a job can be shared, with commas between and around
#   6  limit of the tenant's open jobs (see `may_hold`)
#   7  limit of the open jobs of all tenants
#   8  limit of the bytes of the tenant's ended records; 0: unlimited
#   9  1 if the server is full, otherwise 0
#  10  tenant
#  11  present time, in milliseconds since 1970
#  12  and later: fields and values of the record
# Returns the id and the `FIELDS` of the job, or `QUOTA`, `JOBS` or `ROOM` if a limit is reached. A creation also
# removes up to `MAX_REMOVED_RECORDS` expired or surplus records.
CREATE = f"""
{_LISTS}
local holder = redis.call('GET', KEYS[1])
if holder then
  local status = redis.call('HGET', ARGV[1] .. holder, 'status')
  if status and string.find(ARGV[5], ',' .. status .. ',', 1, true) then
    return {{holder, redis.call('HMGET', ARGV[1] .. holder, {_FIELDS})}}
  end
end
local tenant = ARGV[10]
local reached = ARGV[9] == '1' and '{ROOM}' or refusal(tenant, tonumber(ARGV[6]), tonumber(ARGV[7]))
if reached then return {{reached}} end
trim(tenant, ARGV[11], tonumber(ARGV[8]), {MAX_REMOVED_RECORDS})
redis.call('SADD', list(tenant, 'open'), ARGV[2])
redis.call('SADD', '{ALL_OPEN}', ARGV[2])
redis.call('SADD', '{TENANTS}', tenant)
redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[4])
redis.call('HSET', KEYS[2], 'claim', KEYS[1], unpack(ARGV, 12))
redis.call('ZADD', list(tenant, 'jobs'), 0, ARGV[3])
count_entered(redis.call('HGET', KEYS[2], 'kind'), 'queued')
return {{ARGV[2], redis.call('HMGET', KEYS[2], {_FIELDS})}}
"""

# Changes a record, if the job's status allows the change. KEYS: record. ARGV: the change as JSON; the present time, in
# milliseconds since 1970 and in ISO format; seconds to keep an ended record. A change has an `action`, the `fields` to
# set, and for a new status `moves`, a mapping from old to new status. Returns the old status, the new status and the
# `FIELDS` of the record; nothing if there is no record.
#
#   move      change the status
#   progress  set fields while the job runs
#   count     set the number of finished steps of a shard; the call that completes a draws job also ends the job
#
# The number of finished steps of a shard never decreases, so that a repeated task changes nothing. `count` does not end
# an analysis, because one more task combines its parts.
CHANGE = f"""
{_LISTS}
local record, now = KEYS[1], tonumber(ARGV[2])
local change = cjson.decode(ARGV[1])
local id = string.match(record, '[^:]*$')

local function observe_end(kind, status, created)
  local seconds, bucket = math.max(0, now - tonumber(created or now)) / 1000, 0
  for _, edge in ipairs({{{", ".join(map(str, BUCKETS))}}}) do
    if seconds > edge then bucket = bucket + 1 end
  end
  local series = table.concat({{'job_seconds', kind, status}}, '{SEPARATOR}') .. '{SEPARATOR}'
  redis.call('HINCRBY', '{COUNTS}', series .. bucket, 1)
  redis.call('HINCRBY', '{COUNTS}', series .. 'us', string.format('%.0f', 1e6 * seconds))
end

local function move(from, to, fields)
  local is = redis.call('HMGET', record, 'tenant', 'kind', 'created_ms', 'created')
  local ended, member = list(is[1], 'jobs:ended'), is[4] .. ' ' .. id
  local open, ttl = list(is[1], 'open'), tonumber(ARGV[4])
  redis.call('HSET', record, 'status', to, 'touched', now, unpack(fields))
  redis.call('HSET', record, 'since', now, 'base', redis.call('HGET', record, 'done'))
  count_entered(is[2], to)
  if has_ended(to) then
    redis.call('HSET', record, 'finished', ARGV[3])
    redis.call('EXPIRE', record, ttl + {SWEEP_SECONDS})
    local size = 0
    for _, value in ipairs(redis.call('HGETALL', record)) do size = size + #value + {STRING_BYTES} end
    redis.call('HSET', record, 'bytes', size)
    redis.call('INCRBY', list(is[1], 'jobs:bytes'), size)
    redis.call('ZADD', ended, now + 1000 * ttl, member)
    redis.call('SREM', open, id)
    redis.call('SREM', '{ALL_OPEN}', id)
    redis.call('PUBLISH', '{ENDED}', id)
    if from ~= 'queued' then observe_end(is[2], to, is[3]) end
  end
  return to
end

local is = redis.call('HMGET', record, 'status', 'stage', 'done', 'total', '{PARTS}')
local was, fields, action = is[1], change.fields, change.action
if not was then return {{}} end
local after = was
if action == 'progress' then
  if was == 'running' then
    redis.call('HSET', record, 'touched', now, unpack(fields))
    local progress = redis.call('HMGET', record, 'stage', 'done')
    local is_new = progress[1] ~= is[2] or tonumber(progress[2]) < tonumber(is[3])
    if is_new then redis.call('HSET', record, 'since', now, 'base', progress[2]) end
  end
elseif action == 'count' then
  if was ~= 'running' and was ~= 'cancelling' then return {{}} end
  local before = tonumber(redis.call('HGET', record, change.shard) or '0')
  local count = math.max(change.count, before)
  local done = tonumber(is[3]) + count - before
  redis.call('HSET', record, change.shard, count, 'touched', now, 'done', done)
  if not is[5] and done == tonumber(is[4]) then after = move(was, 'succeeded', fields) end
else
  local to = change.moves[was]
  if to then after = move(was, to, fields) end
end
return {{was, after, redis.call('HMGET', record, {_FIELDS})}}
"""
