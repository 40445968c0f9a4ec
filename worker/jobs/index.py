"""Index of job records by tenant, status and kind, maintained by the scripts that change a status.

A job is a member of its tenant's list of all jobs, ``glle:jobs``, and of the list of its status and kind,
``glle:jobs:<status>:<kind>``. Members sort by time of creation. Ended jobs are also in ``glle:jobs:ended``, by the
time at which their records expire, so the oldest records of a tenant are removed first. A page of a filtered list
merges at most one list per status and kind, so its cost does not depend on the number of jobs.
"""

from __future__ import annotations

from heapq import merge
from itertools import islice
from typing import get_args

import redis

from worker.base.clock import now_ms
from worker.records.ids import DEFAULT, index_member, tenant_key, text
from worker.records.job import Kind, Status, job_key

INDEX = "glle:jobs"
TENANTS = "glle:tenants"  # the set of tenants with jobs
KINDS: tuple[Kind, ...] = get_args(Kind)
STATUSES: tuple[Status, ...] = get_args(Status)
REMOVED = 8  # expired or surplus records that one creation removes; it adds at most one record
SWEEP_TENANTS = 20  # a random sample
SWEEP_RECORDS = 500  # expired or surplus records of a tenant that one sweep removes

# `list` returns the key of a tenant's list. `index` moves a record from the lists of status `from` to those of `to`;
# `until_` is the time at which an ended record expires, in milliseconds since 1970. `drop` removes an ended record with
# its claim. `trim` drops expired and surplus records.
LISTS = """
local function list(tenant, name)
  if not tenant or tenant == 'default' then return 'glle:' .. name end
  return 'glle:tenant:' .. tenant .. ':' .. name
end

local function has_ended(status) return status == 'succeeded' or status == 'failed' or status == 'cancelled' end

local function index(record, from, to, until_)
  local is = redis.call('HMGET', record, 'tenant', 'created', 'kind', 'id')
  if not is[2] or not is[3] or not is[4] then return end
  local member = is[2] .. ' ' .. is[4]
  if from then
    redis.call('ZREM', list(is[1], 'jobs:' .. from .. ':' .. is[3]), member)
    if has_ended(from) then
      redis.call('ZREM', list(is[1], 'jobs:ended'), member .. ' ' .. from .. ':' .. is[3])
    end
  end
  redis.call('ZADD', list(is[1], 'jobs:' .. to .. ':' .. is[3]), 0, member)
  if has_ended(to) then
    redis.call('ZADD', list(is[1], 'jobs:ended'), until_, member .. ' ' .. to .. ':' .. is[3])
  end
end

local function drop(tenant, entry)
  local created, id, status, kind = string.match(entry, '^(%S+) (%S+) (%a+):(%a+)$')
  redis.call('ZREM', list(tenant, 'jobs:ended'), entry)
  if not id then return end
  local record = 'glle:job:' .. id
  redis.call('ZREM', list(tenant, 'jobs'), created .. ' ' .. id)
  redis.call('ZREM', list(tenant, 'jobs:' .. status .. ':' .. kind), created .. ' ' .. id)
  local is = redis.call('HMGET', record, 'status', 'claim')
  if is[1] ~= status then return end
  if is[2] and redis.call('GET', is[2]) == id then redis.call('DEL', is[2]) end
  redis.call('DEL', record)
end

local function trim(tenant, now, limit, removed)
  local ended = list(tenant, 'jobs:ended')
  local old = redis.call('ZRANGEBYSCORE', ended, '-inf', now, 'LIMIT', 0, removed)
  local surplus = limit > 0 and redis.call('ZCARD', ended) - limit or 0
  if surplus > #old then old = redis.call('ZRANGE', ended, 0, math.min(surplus, removed) - 1) end
  for _, entry in ipairs(old) do drop(tenant, entry) end
  return #old
end
"""

# Removes records of ended jobs. ARGV: tenant, now, maximum of records, maximum to remove, then the id of one job or "".
# Returns the number of removed records; an open one stays.
_REMOVE = f"""
{LISTS}
if ARGV[5] == '' then return trim(ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])) end
local is = redis.call('HMGET', 'glle:job:' .. ARGV[5], 'status', 'created', 'kind')
if is[1] and not has_ended(is[1]) then return 0 end
if is[1] then drop(ARGV[1], is[2] .. ' ' .. ARGV[5] .. ' ' .. is[1] .. ':' .. is[3]) end
return 1
"""


class JobIndex:
    """The job lists of all tenants."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._remove = client.register_script(_REMOVE)

    def members(
        self, tenant: str, before: str | None, limit: int, status: Status | None = None, kind: Kind | None = None
    ) -> list[str]:
        """Return the newest members of a tenant's list after the member `before`; one round trip."""
        keys = [tenant_key(INDEX, tenant)]
        if status is not None or kind is not None:
            keys = [
                tenant_key(f"{INDEX}:{status_}:{kind_}", tenant)
                for status_ in (STATUSES if status is None else (status,))
                for kind_ in (KINDS if kind is None else (kind,))
            ]
        upper = "+" if before is None else f"({before}"
        with self._client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.zrevrangebylex(key, upper, "-", start=0, num=limit)
            lists = [[text(raw) for raw in members] for members in pipeline.execute()]
        return list(islice(merge(*lists, reverse=True), limit))

    def trim(self, tenant: str, limit: int, removed: int = SWEEP_RECORDS) -> int:
        """Remove a tenant's expired records and its oldest ended ones beyond `limit` (0: unlimited).

        Remove at most `removed` records; return their number.
        """
        return int(self._remove(args=[tenant, now_ms(), limit, removed, ""]))

    def drop(self, tenant: str, id_: str) -> bool:
        """Remove the record of an ended job; return False if the job is open."""
        return bool(self._remove(args=[tenant, now_ms(), 0, 1, id_]))

    def put(self, record: dict[str, str], ttl_ms: int) -> bool:
        """Restore the record of an ended job for some milliseconds; return False if one exists."""
        tenant, id_, kind, status = record.get("tenant", DEFAULT), record["id"], record["kind"], record["status"]
        member, key, lists = index_member(record["created"], id_), job_key(id_), tenant_key(INDEX, tenant)
        with self._client.pipeline(transaction=True) as pipeline:
            pipeline.watch(key)  # type: ignore[no-untyped-call] # redis-py
            if pipeline.exists(key):
                return False
            pipeline.multi()
            pipeline.hset(key, items=[part for pair in record.items() for part in pair])
            pipeline.pexpire(key, ttl_ms)
            pipeline.zadd(lists, {member: 0})
            pipeline.zadd(f"{lists}:{status}:{kind}", {member: 0})
            pipeline.zadd(f"{lists}:ended", {f"{member} {status}:{kind}": now_ms() + ttl_ms})
            pipeline.sadd(TENANTS, tenant)
            try:
                pipeline.execute()
            except redis.WatchError:
                return False
        return True

    def tenants(self) -> list[str]:
        """Return a random sample of tenants with jobs."""
        return [text(raw) for raw in self._client.srandmember(TENANTS, SWEEP_TENANTS) or ()]
