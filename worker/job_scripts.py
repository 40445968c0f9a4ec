"""The Lua scripts of the job records: each change of status is one of them, so two readers never see two truths."""

ENDED = "glle:ended"  # the channel on which `MOVE` publishes the id of each job that ends
OPEN = "glle:open"  # the set of the default tenant's jobs that are to end yet; `worker.tenants.own` names the others'

# KEYS: claim, record, index, stats, the tenant's open jobs. ARGV: prefix of records, id, index member, claim's seconds,
# statuses (comma between and around) whose holder is returned instead, most open jobs (0: any number), then the
# record's fields. Returns the empty string where there would be more.
CREATE = """
local holder = redis.call('GET', KEYS[1])
if holder then
  local status = redis.call('HGET', ARGV[1] .. holder, 'status')
  if status and string.find(ARGV[5], ',' .. status .. ',', 1, true) then return holder end
end
local most = tonumber(ARGV[6])
if most > 0 and redis.call('SCARD', KEYS[5]) >= most then return '' end
redis.call('SADD', KEYS[5], ARGV[2])
redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[4])
redis.call('HSET', KEYS[2], unpack(ARGV, 7))
redis.call('ZADD', KEYS[3], 0, ARGV[3])
redis.call('HINCRBY', KEYS[4], redis.call('HGET', KEYS[2], 'kind') .. ':queued', 1)
return ARGV[2]
"""

# KEYS: record, stats. ARGV: JSON of {from: to}, seconds kept after the end, now, touched, then fields to set.
MOVE = """
local status = redis.call('HGET', KEYS[1], 'status')
if not status then return false end
local to = cjson.decode(ARGV[1])[status]
if not to then return {status, status} end
local id, tenant, open = string.match(KEYS[1], '[^:]*$'), redis.call('HGET', KEYS[1], 'tenant'), 'glle:open'
if tenant and tenant ~= 'default' then open = 'glle:tenant:' .. tenant .. ':open' end
redis.call('HSET', KEYS[1], 'status', to, 'touched', ARGV[4], unpack(ARGV, 5))
redis.call('HINCRBY', KEYS[2], redis.call('HGET', KEYS[1], 'kind') .. ':' .. to, 1)
if to == 'succeeded' or to == 'failed' or to == 'cancelled' then
  redis.call('HSET', KEYS[1], 'finished', ARGV[3])
  redis.call('EXPIRE', KEYS[1], ARGV[2])
  redis.call('SREM', open, id)
  redis.call('PUBLISH', 'glle:ended', id)
else
  redis.call('SADD', open, id)
  redis.call('PERSIST', KEYS[1])
end
return {status, to}
"""

# KEYS: record. ARGV: touched, then fields to set. Returns the status.
TOUCH = """
local status = redis.call('HGET', KEYS[1], 'status')
if not status then return false end
redis.call('HSET', KEYS[1], 'touched', ARGV[1], unpack(ARGV, 2))
return status
"""

# KEYS: record. ARGV: touched, round, field of the shard, its count. Returns status, done, total.
ADVANCE = """
local now = redis.call('HMGET', KEYS[1], 'status', 'round', 'total', ARGV[3])
if not now[1] or now[2] ~= ARGV[2] then return false end
local more = tonumber(ARGV[4]) - tonumber(now[4] or '0')
redis.call('HSET', KEYS[1], ARGV[3], ARGV[4], 'touched', ARGV[1])
return {now[1], redis.call('HINCRBY', KEYS[1], 'done', more), tonumber(now[3])}
"""
