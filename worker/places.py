"""Places in the queue: what someone waits for stands before the rest, in the order in which it came.

There is one list, because RQ takes tasks off atomically only from one. An interactive task is put behind the other
interactive ones and before the first that is not. So that no batch waits for ever, a task that has been passed
`MOST_PASSED` times is passed no more. RQ's record of a task has both: the fields `interactive` and `passed`.
"""

MOST_PASSED = 64  # single draws, some 30 ms each: about as long as the shard of a batch that they keep waiting
TASKS = "rq:job:"  # RQ's records

# Puts the task `id`, which waits nowhere, in its place of the list KEYS[1].
_PLACE = f"""
if redis.call('HEXISTS', '{TASKS}' .. id, 'interactive') == 1 then
  local start = 0
  repeat
    local some = redis.call('LRANGE', KEYS[1], start, start + 99)
    for _, other in ipairs(some) do
      local record = '{TASKS}' .. other
      local is = redis.call('HMGET', record, 'interactive', 'passed')
      if not is[1] and tonumber(is[2] or '0') < {MOST_PASSED} then
        if redis.call('EXISTS', record) == 1 then redis.call('HINCRBY', record, 'passed', 1) end
        redis.call('LINSERT', KEYS[1], 'BEFORE', other, id)
        return 1
      end
    end
    start = start + 100
  until #some < 100
end
redis.call('RPUSH', KEYS[1], id)
return 1
"""

# KEYS: the queue's list. ARGV: the task's id.
PUSH = f"""
local id = ARGV[1]
{_PLACE}
"""

# Makes a task that waits interactive. KEYS: the queue's list. ARGV: the task's id. Returns whether it was not already.
PROMOTE = f"""
local id = ARGV[1]
if redis.call('HEXISTS', '{TASKS}' .. id, 'interactive') == 1 then return 0 end
if redis.call('LREM', KEYS[1], 1, id) == 0 then return 0 end
redis.call('HSET', '{TASKS}' .. id, 'interactive', 1)
{_PLACE}
"""

# Takes a shard off the queue, for the task of another; not while someone waits for something else.
# KEYS: the queue's list, the job's record. ARGV: the task's id, the field of its taker, the taker.
TAKE = f"""
local head = redis.call('LINDEX', KEYS[1], 0)
if head and redis.call('HEXISTS', '{TASKS}' .. head, 'interactive') == 1
  and redis.call('HEXISTS', '{TASKS}' .. ARGV[1], 'interactive') == 0 then return 0 end
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 0 then return 0 end
redis.call('DEL', '{TASKS}' .. ARGV[1])
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
return 1
"""

# Forgets a task, whether it waits or was begun. KEYS: the queue's list, the set of those begun. ARGV: the task's id.
FORGET = f"""
redis.call('LREM', KEYS[1], 0, ARGV[1])
redis.call('DEL', '{TASKS}' .. ARGV[1])
for _, begun in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  if string.sub(begun, 1, #ARGV[1] + 1) == ARGV[1] .. ':' then redis.call('ZREM', KEYS[2], begun) end
end
"""

# KEYS: the queue's list. ARGV: the task's id.
WITHDRAW = f"""
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 1 then redis.call('DEL', '{TASKS}' .. ARGV[1]) end
"""

# Forgets a task that is lost: one that RQ knows of, and that neither waits nor is in work. KEYS: the queue's list, the
# list of those just taken off it, the set of those in work. ARGV: the task's id. Returns whether it was lost.
FORGET_LOST = f"""
if redis.call('LPOS', KEYS[1], ARGV[1]) or redis.call('LPOS', KEYS[2], ARGV[1]) then return 0 end
for _, execution in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
  if string.sub(execution, 1, #ARGV[1] + 1) == ARGV[1] .. ':' then return 0 end
end
return redis.call('DEL', '{TASKS}' .. ARGV[1])
"""
