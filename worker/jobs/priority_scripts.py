"""Order of the waiting tasks: tenants take turns, interactive tasks go first, a tenant's tasks keep their order.

A waiting task is in two sorted sets of the queue: ``:waiting`` has all tasks by arrival,
``:line:<class>:<tenant>`` those of one tenant and one class (``interactive`` or ``batch``). The tenants of a class take
turns (``:turns:<class>``, the lowest turn is next), so a tenant with 10,000 tasks delays another tenant's first task by
one task. Interactive tasks go before batches, but after `MOST_PASSED` of them one waiting batch is next.

RQ's list ``rq:queue:<name>`` holds at most the next task: it wakes a worker that waits in BLMOVE, also one of a version
without lines. Tasks that another version pushed to the list join the lines when a worker takes its next task. Each
script is atomic: a task is in the lines, in the list, or taken. A short task that an executor has popped from the list
and not begun is in none of them; the comparison of its job with the queue enqueues it again (`JobRecovery`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.records.ids import text

if TYPE_CHECKING:
    import redis

MOST_PASSED = 64  # single draws of some 30 ms: together about as long as the delayed shard of a batch
MOST_ATTEMPTS = 4  # at a short task whose executor died
MOST_ADOPTED = 100  # tasks of the list that one script moves to the lines; the next script continues
TASKS = "rq:job:"  # prefix of RQ's records
INTERACTIVE, BATCH = "interactive", "batch"

# In every script KEYS[1] is the queue's list, KEYS[2] the list of taken tasks. The record of an interactive task has
# the field `interactive`; `place` is the task's number in order of arrival.
LINES = f"""
local queue = KEYS[1]
local waiting, clock = queue .. ':waiting', queue .. ':clock'

local function tenant_of(id)
  return redis.call('HGET', 'glle:job:' .. string.match(id, '^[^-]*'), 'tenant') or 'default'
end

local function class_of(id)
  return redis.call('HEXISTS', '{TASKS}' .. id, 'interactive') == 1 and '{INTERACTIVE}' or '{BATCH}'
end

local function place(id, number)
  local class, tenant = class_of(id), tenant_of(id)
  redis.call('ZADD', waiting, number, id)
  redis.call('ZADD', queue .. ':line:' .. class .. ':' .. tenant, number, id)
  if not redis.call('ZSCORE', queue .. ':turns:' .. class, tenant) then
    redis.call('ZADD', queue .. ':turns:' .. class, redis.call('HINCRBY', clock, 'turn', 1), tenant)
  end
  if redis.call('EXISTS', '{TASKS}' .. id) == 1 then redis.call('HSET', '{TASKS}' .. id, 'place', number) end
end

local function arrive(id) place(id, redis.call('HINCRBY', clock, 'number', 1)) end

local function leave(id)
  if redis.call('ZREM', waiting, id) == 0 then return redis.call('LREM', queue, 1, id) == 1 end
  redis.call('ZREM', queue .. ':line:' .. class_of(id) .. ':' .. tenant_of(id), id)
  return true
end

local function adopt()
  for _ = 1, {MOST_ADOPTED} do
    local id = redis.call('LPOP', queue)
    if not id then return end
    if redis.call('EXISTS', '{TASKS}' .. id) == 1 then
      local number = redis.call('HGET', '{TASKS}' .. id, 'place')
      if number then place(id, number) else arrive(id) end
    end
  end
end

local function head(class)
  while true do
    local tenant = redis.call('ZRANGE', queue .. ':turns:' .. class, 0, 0)[1]
    if not tenant then return nil end
    local id = redis.call('ZRANGE', queue .. ':line:' .. class .. ':' .. tenant, 0, 0)[1]
    if id then return id, tenant end
    redis.call('ZREM', queue .. ':turns:' .. class, tenant)
  end
end

local function following()
  local id, tenant = head('{INTERACTIVE}')
  local other, others = head('{BATCH}')
  local passed = tonumber(redis.call('HGET', clock, 'passed') or '0')
  if id and not (other and passed >= {MOST_PASSED}) then return id, tenant, '{INTERACTIVE}', other ~= nil end
  return other, others, '{BATCH}', false
end

local function remove(id, tenant, class)
  redis.call('ZREM', waiting, id)
  redis.call('ZREM', queue .. ':line:' .. class .. ':' .. tenant, id)
end

local function take()
  local id, tenant, class, passes = following()
  if not id then return nil end
  remove(id, tenant, class)
  redis.call('ZADD', queue .. ':turns:' .. class, redis.call('HINCRBY', clock, 'turn', 1), tenant)
  if class == '{BATCH}' then redis.call('HDEL', clock, 'passed') end
  if passes then redis.call('HINCRBY', clock, 'passed', 1) end
  return id
end

local function enqueue(queues, id, fields)
  if redis.call('EXISTS', '{TASKS}' .. id) == 1 then return false end
  redis.call('HSET', '{TASKS}' .. id, unpack(fields))
  redis.call('SADD', queues, queue)
  arrive(id)
  return true
end

local function publish()
  if redis.call('EXISTS', queue) == 1 then return end
  local id, tenant, class = following()
  if not id then return end
  remove(id, tenant, class)
  redis.call('RPUSH', queue, id)
end
"""

# Adds new tasks with their records. KEYS: queue, taken, the set of RQ's queues. ARGV: for each task its id, the number
# of names and values of its fields, and these. Returns the number of tasks that had no record.
ENQUEUE = f"""
{LINES}
local new, at = 0, 1
while at <= #ARGV do
  local last = at + 1 + ARGV[at + 1]
  if enqueue(KEYS[3], ARGV[at], {{unpack(ARGV, at + 2, last)}}) then new = new + 1 end
  at = last + 1
end
publish()
return new
"""

# Begins a short task that an executor has popped from the list, and publishes the next one. KEYS: queue, taken, the
# registry of begun tasks. ARGV: the task's id, the executor, the end of its lease in milliseconds since 1970. Returns
# the task, the time at which it was enqueued and the number of its begins, or nothing if it was withdrawn.
BEGIN = f"""
{LINES}
publish()
local record = '{TASKS}' .. ARGV[1]
if redis.call('EXISTS', record) == 0 then return nil end
redis.call('HSET', record, 'status', 'started')
local attempts = redis.call('HINCRBY', record, 'attempts', 1)
redis.call('ZADD', KEYS[3], ARGV[3], ARGV[1] .. ':' .. ARGV[2])
local task = redis.call('HMGET', record, 'task', 'enqueued_at')
return {{task[1], task[2], attempts}}
"""

# Ends a short task; its record stays for a while, so that a late repetition of its enqueuing has no effect.
# KEYS: the registry of begun tasks. ARGV: the task's id, the executor, the seconds.
END = f"""
redis.call('ZREM', KEYS[1], ARGV[1] .. ':' .. ARGV[2])
if redis.call('EXPIRE', '{TASKS}' .. ARGV[1], ARGV[3]) == 1 then
  redis.call('HSET', '{TASKS}' .. ARGV[1], 'status', 'finished')
end
"""

# Puts the short tasks of a dead executor first in their lines; one that was begun too often has failed. KEYS: queue,
# taken, the registry of begun tasks. ARGV: the executor, or an empty string for all whose leases have ended; now in
# milliseconds. Returns the number of tasks.
RETURN = f"""
{LINES}
local returned = 0
local begun = redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES')
for at = 1, #begun, 2 do
  local id, executor = string.match(begun[at], '^(.*):([^:]*)$')
  if executor == ARGV[1] or (ARGV[1] == '' and tonumber(begun[at + 1]) < tonumber(ARGV[2])) then
    redis.call('ZREM', KEYS[3], begun[at])
    returned = returned + 1
    local attempts = redis.call('HGET', '{TASKS}' .. id, 'attempts')
    if attempts and tonumber(attempts) >= {MOST_ATTEMPTS} then
      redis.call('HSET', '{TASKS}' .. id, 'status', 'failed')
    elseif attempts then
      redis.call('HSET', '{TASKS}' .. id, 'status', 'queued')
      place(id, redis.call('HINCRBY', clock, 'first', -1))
    end
  end
end
publish()
return returned
"""

# Puts a retried task last, or first, in its line. ARGV: the task's id, 1 for first.
PUSH = f"""
{LINES}
local id = ARGV[1]
leave(id)
if ARGV[2] == '1' then place(id, redis.call('HINCRBY', clock, 'first', -1)) else arrive(id) end
publish()
"""

# Removes a task from its line and keeps its record. ARGV: the task's id. Returns whether it waited.
LEAVE = f"""
{LINES}
local was = leave(ARGV[1])
publish()
return was and 1 or 0
"""

# Moves the next task to the list of taken tasks, and returns it.
NEXT = f"""
{LINES}
adopt()
local id = take()
if id then redis.call('RPUSH', KEYS[2], id) end
publish()
return id
"""

# Publishes the next task after a worker took one with BLMOVE.
PUBLISH = f"""
{LINES}
publish()
"""

# Makes waiting tasks interactive, behind the tenant's other interactive tasks. ARGV: the tasks' ids.
PROMOTE = f"""
{LINES}
for _, id in ipairs(ARGV) do
  if class_of(id) == '{BATCH}' and leave(id) then
    redis.call('HSET', '{TASKS}' .. id, 'interactive', 1)
    arrive(id)
  end
end
publish()
"""

# Removes waiting tasks with their records. ARGV: the tasks' ids.
WITHDRAW = f"""
{LINES}
for _, id in ipairs(ARGV) do
  if leave(id) then redis.call('DEL', '{TASKS}' .. id) end
end
publish()
"""

# Removes a task, waiting or begun, with its record. KEYS: queue, taken, the registry of begun tasks. ARGV: its id.
FORGET = f"""
{LINES}
local id = ARGV[1]
leave(id)
redis.call('DEL', '{TASKS}' .. id)
for _, begun in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
  if string.sub(begun, 1, #id + 1) == id .. ':' then redis.call('ZREM', KEYS[3], begun) end
end
publish()
"""

# Returns the status of each task, or an empty string. Removes the record of a lost task, which neither waits nor runs
# although its status says so. The cost grows with the number of workers, not with that of waiting tasks.
# KEYS: queue, taken, the registry of begun tasks. ARGV: the tasks' ids.
CHECK = f"""
{LINES}
local begun
local function is_begun(id)
  if redis.call('LPOS', KEYS[2], id) then return true end
  begun = begun or redis.call('ZRANGE', KEYS[3], 0, -1)
  for _, execution in ipairs(begun) do
    if string.sub(execution, 1, #id + 1) == id .. ':' then return true end
  end
  return false
end
local states = {{}}
for position, id in ipairs(ARGV) do
  local status = redis.call('HGET', '{TASKS}' .. id, 'status') or ''
  if status == 'queued' or status == 'started' or status == 'finished' then
    if not redis.call('ZSCORE', waiting, id) and not is_begun(id) and not redis.call('LPOS', queue, id) then
      redis.call('DEL', '{TASKS}' .. id)
      status = ''
    end
  end
  states[position] = status
end
return states
"""


def length(client: redis.Redis, queue: str) -> int:
    """Return the number of waiting tasks of a queue with the list `queue`."""
    with client.pipeline(transaction=True) as pipeline:
        pipeline.llen(queue)
        pipeline.zcard(f"{queue}:waiting")
        return sum(map(int, pipeline.execute()))


def waiting(client: redis.Redis, queue: str, limit: int = 0) -> list[str]:
    """Return the first `limit` waiting tasks of a queue (0: all): the published one, then the others by arrival."""
    with client.pipeline(transaction=True) as pipeline:
        pipeline.lrange(queue, 0, limit - 1)
        pipeline.zrange(f"{queue}:waiting", 0, limit - 1)
        published, others = pipeline.execute()
    return [text(raw) for raw in (*published, *others)][: limit or None]
