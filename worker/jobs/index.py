"""Index of job records by tenant, status and kind, maintained by the scripts that change a status.

A job is a member of its tenant's list of all jobs, ``glle:jobs``, and of the list of its status and kind,
``glle:jobs:<status>:<kind>``. Members sort by time of creation. Ended jobs are also in ``glle:jobs:ended``, by the
time at which their records expire, so the oldest records of a tenant are removed first. A page of a filtered list
merges at most one list per status and kind, so its cost does not depend on the number of jobs.

The workers' sweep corrects lists that a version without this index left behind (`JobIndex.reindex`): all records of a
tenant at its first sweep, then `REINDEX_MEMBERS` in each.
"""

from __future__ import annotations

from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, get_args

from worker.base.clock import now_ms
from worker.records.ids import text
from worker.records.job import OPEN, Kind, Status
from worker.records.tenants import DEFAULT, tenant_key

if TYPE_CHECKING:
    import redis

INDEX = "glle:jobs"
TENANTS = "glle:tenants"  # the set of tenants with jobs
POSITIONS = "glle:jobs:reindexed"  # by tenant: the member at which the next sweep continues
KINDS: tuple[Kind, ...] = get_args(Kind)
STATUSES: tuple[Status, ...] = get_args(Status)
REMOVED = 8  # expired or surplus records that one creation removes; it adds at most one record
REINDEX_MEMBERS = 200  # members of a tenant's list that each sweep after the first checks
SWEEP_TENANTS = 20  # a random sample
SWEEP_RECORDS = 500  # expired or surplus records of a tenant that one sweep removes
_CHUNK = 100  # members of one script call

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

# ARGV: tenant, now, maximum of records, maximum to remove. Returns the number of removed records.
_TRIM = f"""
{LISTS}
return trim(ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]))
"""

# Corrects the lists of some members. ARGV: tenant, now, then members of the list of all jobs.
_REINDEX = f"""
{LISTS}
local statuses = {{{", ".join(repr(status) for status in STATUSES)}}}
local kinds = {{{", ".join(repr(kind) for kind in KINDS)}}}
local tenant = ARGV[1]
for at = 3, #ARGV do
  local member = ARGV[at]
  local record = 'glle:job:' .. string.match(member, '[^ ]*$')
  local is = redis.call('HMGET', record, 'status', 'kind')
  for _, kind in ipairs(is[2] and {{is[2]}} or kinds) do
    for _, status in ipairs(statuses) do
      if status ~= is[1] then
        redis.call('ZREM', list(tenant, 'jobs:' .. status .. ':' .. kind), member)
        if has_ended(status) then
          redis.call('ZREM', list(tenant, 'jobs:ended'), member .. ' ' .. status .. ':' .. kind)
        end
      end
    end
  end
  if not is[1] then
    redis.call('ZREM', list(tenant, 'jobs'), member)
  else
    index(record, nil, is[1], ARGV[2] + math.max(redis.call('PTTL', record), 0))
  end
end
"""

# Removes the record of an ended job. ARGV: tenant, id. Returns its status; an open record stays.
_DROP = f"""
{LISTS}
local is = redis.call('HMGET', 'glle:job:' .. ARGV[2], 'status', 'created', 'kind')
if has_ended(is[1]) then drop(ARGV[1], is[2] .. ' ' .. ARGV[2] .. ' ' .. is[1] .. ':' .. is[3]) end
return is[1]
"""


class JobIndex:
    """The job lists of all tenants."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._trim = client.register_script(_TRIM)
        self._reindex = client.register_script(_REINDEX)
        self._drop = client.register_script(_DROP)

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
        return int(self._trim(args=[tenant, now_ms(), limit, removed]))

    def drop(self, tenant: str, id_: str) -> bool:
        """Remove the record of an ended job; return False if the job is open."""
        status = self._drop(args=[tenant, id_])
        return status is not None and text(status) not in OPEN

    def tenants(self) -> list[str]:
        """Return a random sample of tenants with jobs; at the first sweep, all that have a list."""
        if not self._client.exists(POSITIONS):
            keys = (text(raw) for raw in self._client.scan_iter(match="glle:tenant:*:jobs", count=1000))
            tenants = {DEFAULT, *(key.split(":")[2] for key in keys)}
            self._client.sadd(TENANTS, *tenants)
            return sorted(tenants)
        return [text(raw) for raw in self._client.srandmember(TENANTS, SWEEP_TENANTS) or ()]

    def reindex(self, tenant: str) -> None:
        """Compare a tenant's lists with its records: all the first time, then the next `REINDEX_MEMBERS`."""
        position = self._client.hget(POSITIONS, tenant)
        remaining, before = (None, None) if position is None else (REINDEX_MEMBERS, text(position) or None)
        while remaining is None or remaining > 0:
            members = self.members(tenant, before, _CHUNK)
            if members:
                self._reindex(args=[tenant, now_ms(), *members])
            if len(members) < _CHUNK:
                before = None
                break
            before, remaining = members[-1], None if remaining is None else remaining - len(members)
        self._client.hset(POSITIONS, tenant, before or "")
