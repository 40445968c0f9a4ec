"""Records of resources in the queue's Redis: a store for each kind of record, and one Lua script for all changes.

    glle:<kind>:<id>             a record, as JSON
    glle:<kind>s                 sorted set of the default tenant's records, by time of creation
    glle:<kind>s:tag:<tag>       sorted set of the records with a tag
    glle:<kind>s:name:<name>     sorted set of the records with a name
    glle:<kind>s:of:<id>         sorted set of the records that belong to another record, such as the posteriors that
                                 were fitted to a data set (`RecordKind.sets`)
    glle:usage                   hash: counters of the default tenant's records of all kinds, such as `datasets`
    glle:usage:all               hash: the same counters over all tenants
    glle:service                 hash: `changes` counts the changes of all records, and only grows; `schema`

Other tenants have sets and a usage hash of their own (`worker.records.ids.tenant_key`). A change carries the digest of
the record that it replaces, and is tried again if the record has changed in the meantime. No change is therefore lost,
and sets and usage are exact.
"""

from __future__ import annotations

from collections import Counter
from copy import copy
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from hashlib import sha1
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

from worker.base.problems import refuse
from worker.base.versions import SCHEMA, dump_record, load_record
from worker.records.ids import DEFAULT, index_member, member_name, other_kind, tenant_key, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import redis

    from worker.base.problems import ProblemError

PAGE_RECORDS = 100  # a list reads this many records in two round trips
MAX_PARSED_RECORDS = 512  # a process keeps this many parsed records, some 10 kB each
USAGE = "glle:usage"
USAGE_OF_ALL = "glle:usage:all"
SERVICE = "glle:service"  # `worker.storage.mark` documents all members of this hash
CHANGES = "changes"
SCHEMA_OF_RECORDS = "schema"
KEYS = "keys"  # name of the counter of API keys
_NO_LIMITS: dict[str, int] = {}

# Writes, replaces or deletes a record.
# KEYS:
#   1  the record
#   2  usage of the tenant
#   3  usage of all tenants
#   4  `SERVICE`, the hash that counts all changes
#   5  the record of a job that must be running; if no job must, key 1 again, so that later keys keep their indices
#   6  and later: keys that must exist; then keys that must not exist; then sets (sorted sets that list records) from
#      which the record is removed; then sets to which it is added
# ARGV:
#   1  SHA-1 of the record to replace, or an empty text for a new record
#   2  the new record, or an empty text to delete the record
#   3  the member that stands for the record in the sets (`index_member`)
#   4  index in KEYS of the last key that must exist
#   5  index in KEYS of the last key that must not exist
#   6  index in KEYS of the last set from which the record is removed
#   7  1 if the job must be running
#   8  and later: triples of a counter, its change, and its limit (0: none)
# Returns 'done'; 'changed' if the stored record is not the record to replace; 'unwanted' if the job is not running, if
# a key that must exist is missing, or if a key that must not exist exists; or the name of a counter that would exceed
# its limit.
_REPLACE = f"""
local record, usage, usage_of_all, service, job = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local needed, excluded, left = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local old = redis.call('GET', record)
if ARGV[1] ~= (old and redis.sha1hex(old) or '') then return 'changed' end
if ARGV[7] == '1' and redis.call('HGET', job, 'status') ~= 'running' then return 'unwanted' end
for at = 6, excluded do
  if redis.call('EXISTS', KEYS[at]) ~= (at <= needed and 1 or 0) then return 'unwanted' end
end
for at = 8, #ARGV, 3 do
  local change, limit = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local used = limit > 0 and tonumber(redis.call('HGET', usage, ARGV[at]) or '0') or 0
  if change > 0 and used + change > limit and limit > 0 then return ARGV[at] end
end
-- A full server refuses the script at its first write, unless this is a DEL: a record can be deleted to make room.
if ARGV[2] == '' then redis.call('DEL', record) else redis.call('SET', record, ARGV[2]) end
redis.call('HINCRBY', service, '{CHANGES}', 1)
redis.call('HSETNX', service, '{SCHEMA_OF_RECORDS}', {SCHEMA})
for at = 8, #ARGV, 3 do
  redis.call('HINCRBY', usage, ARGV[at], ARGV[at + 1])
  redis.call('HINCRBY', usage_of_all, ARGV[at], ARGV[at + 1])
end
for at = excluded + 1, #KEYS do
  if at <= left then
    redis.call('ZREM', KEYS[at], ARGV[3])
  else
    redis.call('ZADD', KEYS[at], 0, ARGV[3])
  end
end
return 'done'
"""


class Record(Protocol):
    """What the record of any resource has: a dataclass of JSON-able values with these members."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def id(self) -> str:
        """Id of the resource."""

    @property
    def tenant(self) -> str:
        """Tenant that owns the resource, which never changes."""

    @property
    def created(self) -> str:
        """Time of creation of the resource, ISO."""

    @property
    def name(self) -> str | None:
        """Name that the user has given to the resource, or None."""

    @property
    def tags(self) -> list[str]:
        """Tags in the user's order."""


R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class RecordKind(Generic[R]):
    """How the records of one kind, such as data sets, are named, parsed, counted and listed.

    Parameters
    ----------
    name, title
        Name of the kind in keys, and in messages for users; singular.
    remedy
        What the error for a missing record advises the user to do.
    parse
        Constructs a record from its members as keyword arguments.
    counts
        Returns how much a record adds to each counter of its tenant's usage, by the name of the counter.
    sets
        Returns the names of further sets in which a record is listed. Every record is listed in the set of all records,
        and in the sets of its name and of its tags.

    """

    name: str
    title: str
    remedy: str
    parse: Callable[..., R]
    counts: Callable[[R], Mapping[str, int]]
    sets: Callable[[R], Sequence[str]] = lambda _: ()

    def load(self, id_: str, raw: str | bytes) -> R:
        """Parse a stored record; raises `ProblemError` (``record-unreadable``, ``other-schema``).

        Parsed records are cached, so callers must not change the dictionaries and lists in them.
        """
        record: R = _parse(self, id_, raw)
        return record

    def key(self, id_: str) -> str:
        """Return the Redis key of a record."""
        return f"glle:{self.name}:{id_}"

    def not_found(self, id_: str) -> ProblemError:
        """Return the error for an id without a record, such as ``dataset-not-found``."""
        detail = f"There is no {self.title} {id_}."
        remedy = other_kind(id_, f"{self.name}s") or self.remedy
        return refuse(f"{self.name}-not-found", 404, detail, remedy, **{self.name: id_})

    def set_of(self, tenant: str, name: str = "") -> str:
        """Return the Redis key of a sorted set that lists records of a tenant.

        `name` is the name of the set, such as ``tag:mine``; an empty name means the set of all records.
        """
        return tenant_key(f"glle:{self.name}s", tenant) + (f":{name}" if name else "")


@lru_cache(MAX_PARSED_RECORDS)
def _parse(kind: RecordKind[Any], id_: str, raw: str | bytes) -> Any:
    return load_record(f"The record of {kind.title} {id_}", raw, lambda members: kind.parse(**members))


class LimitExceededError(Exception):
    """A counter of the tenant's usage would exceed its limit.

    Attributes
    ----------
    counter
        Name of the counter.

    """

    def __init__(self, counter: str) -> None:
        super().__init__(counter)
        self.counter = counter


class RecordStore(Generic[R]):
    """Store of the records of one kind, such as data sets; `for_tenant` returns a store with one tenant's records.

    Parameters
    ----------
    client
        The queue's Redis.
    kind
        Kind of the records.

    Attributes
    ----------
    tenant
        Tenant whose records are visible. With None, the records of all tenants are found by id, and lists have the
        records of the default tenant.
    quota
        Quota of the tenant: bytes of stored files or number of posteriors, as the kind needs it; 0: no limit.

    """

    def __init__(self, client: redis.Redis, kind: RecordKind[R]) -> None:
        self._client = client
        self.kind = kind
        self.tenant: str | None = None
        self.quota = 0
        self._script = client.register_script(_REPLACE)

    def for_tenant(self, tenant: str, quota: int = 0) -> Self:
        """Return a store in which only the records of a tenant are visible.

        `quota` is how much the tenant may store: bytes of files, or number of posteriors, as the kind of records needs
        it; 0 means no limit.
        """
        store = copy(self)
        store.tenant, store.quota = tenant, quota
        return store

    def get(self, id_: str) -> R | None:
        """Return a record by its id; None if no record exists, or if it belongs to another tenant.

        Raises `ProblemError` (``record-unreadable``, ``other-schema``).
        """
        return self._visible(id_, self._client.get(self.kind.key(id_)))

    def fetch(self, id_: str) -> R:
        """Return a record by its id.

        Raises `ProblemError`, for example ``dataset-not-found``, if no record exists, or if it belongs to another
        tenant.
        """
        if (record := self.get(id_)) is None:
            raise self.kind.not_found(id_)
        return record

    def exists(self, id_: str) -> bool:
        """Return whether a record with this id exists, whichever tenant owns it."""
        return bool(self._client.exists(self.kind.key(id_)))

    def create(
        self,
        record: R,
        *,
        limits: Mapping[str, int] = _NO_LIMITS,
        while_running: str | None = None,
        while_existing: Sequence[str] = (),
    ) -> bool:
        """Write a new record; return False, and write nothing, if a record with this id exists or a condition fails.

        Parameters
        ----------
        limits
            Largest allowed values of the tenant's counters; 0: no limit.
        while_running
            Key of a job's record. Nothing is written unless the job is running.
        while_existing
            Keys of other records. Nothing is written unless all of them exist.

        Raises
        ------
        LimitExceededError
            If a counter would exceed its limit; nothing was written.

        """
        return self._replace("", None, record, limits, while_running, needed=while_existing) == "done"

    def change(self, id_: str, change: Callable[[R], R], *, limits: Mapping[str, int] = _NO_LIMITS) -> R | None:
        """Replace a record by `change(record)`; return the new record, or None if there is no record.

        `change` is called again if another process changes the record meanwhile, so that no change is lost. `limits`
        has the largest allowed values of the tenant's counters (0: no limit); `LimitExceededError` is raised if the
        change would exceed one.
        """
        while (stored := self._find_stored(id_)) is not None:
            digest, old = stored
            new = change(old)
            if new == old or self._replace(digest, old, new, limits) == "done":
                return new
        return None

    def rename(self, id_: str, changes: dict[str, Any], check: Callable[[R], object] = lambda _: None) -> R:
        """Change name and tags of a record by a JSON merge patch (RFC 7396); return the record.

        `check` is called with the record before the change; an error that it raises prevents the change. If there is no
        record, `ProblemError` is raised, for example ``dataset-not-found``.
        """
        defaults: dict[str, Any] = {"name": None, "tags": []}
        labels = {member: defaults[member] if value is None else value for member, value in changes.items()}

        def change(record: R) -> R:
            check(record)
            return replace(record, **labels)

        return self.change(id_, change) or self.fetch(id_)

    def delete(self, id_: str, *, unless_existing: Sequence[str] = ()) -> R | None:
        """Remove a record, unless a Redis key in `unless_existing` exists; return the removed record, or None."""
        while (stored := self._find_stored(id_)) is not None:
            digest, old = stored
            outcome = self._replace(digest, old, None, _NO_LIMITS, excluded=unless_existing)
            if outcome != "changed":
                return old if outcome == "done" else None
        return None

    def newest(
        self, before: str | None = None, *, name: str | None = None, tags: Sequence[str] = ()
    ) -> Iterator[tuple[str, R | None]]:
        """Yield (cursor, record) for each of the tenant's records, the newest first.

        In place of the record, None is yielded if it was deleted meanwhile, or lacks the name or one of the tags.

        Parameters
        ----------
        before
            Cursor of the last record that the caller has: only older records follow. None begins with the newest one.
        name, tags
            Select the records with this name, unless it is None, and with all of these tags.

        """
        label = f"name:{name}" if name is not None else f"tag:{tags[0]}" if tags else ""
        for member, id_, raw in self._members(label, before):
            record = self._visible(id_, raw)
            is_match = record is not None and name in {None, record.name} and set(tags) <= set(record.tags)
            yield member, record if is_match else None

    def ids_in(self, name: str) -> list[str]:
        """Return the ids of the tenant's records that a set lists; an empty `name` means all records.

        The set ``of:ds_1``, for example, lists the records that belong to data set ds_1.
        """
        return [member_name(text(raw)) for raw in self._client.zrange(self.set_of(name), 0, -1)]

    def set_of(self, name: str) -> str:
        """Return the Redis key of a sorted set that lists records of the tenant; an empty `name` means all records.

        The set ``of:ds_1``, for example, lists the records that belong to data set ds_1.
        """
        return self.kind.set_of(self.tenant or DEFAULT, name)

    def all(self) -> Iterator[tuple[str, str]]:
        """Yield (id, stored record as JSON) for the records of all tenants, in any order; a record may come twice."""
        for key in self._client.scan_iter(match=self.kind.key("*"), count=1000):
            if (raw := self._client.get(key)) is not None:  # None if the record was deleted meanwhile
                yield text(key).removeprefix(self.kind.key("")), text(raw)

    def usage(self) -> Counter[str]:
        """Return the usage counters of the tenant, or of all tenants together if the store has no tenant."""
        counters = self._client.hgetall(self._usage(self.tenant)).items()
        return Counter({text(counter): int(value) for counter, value in counters})

    def _members(self, name: str, before: str | None) -> Iterator[tuple[str, str, Any]]:
        """Yield (member, id, stored record or None) for the records in a set, the newest first.

        Two round trips to Redis read `PAGE_RECORDS` records. `before` is the member of the last record that the caller
        has: only older records follow. None begins with the newest record.
        """
        upper = "+" if before is None else f"({before}"
        while members := [
            text(raw) for raw in self._client.zrevrangebylex(self.set_of(name), upper, "-", 0, PAGE_RECORDS)
        ]:
            ids = [member_name(member) for member in members]
            yield from zip(members, ids, self._client.mget([self.kind.key(id_) for id_ in ids]), strict=True)
            upper = f"({members[-1]}"

    def _find_stored(self, id_: str) -> tuple[str, R] | None:
        """Return the SHA-1 of a stored record, and the record; None if no record exists, or another tenant has it."""
        raw: Any = self._client.get(self.kind.key(id_))
        record = self._visible(id_, raw)
        return None if record is None else (sha1(raw, usedforsecurity=False).hexdigest(), record)

    @staticmethod
    def _usage(tenant: str | None) -> str:
        return USAGE_OF_ALL if tenant is None else tenant_key(USAGE, tenant)

    def _visible(self, id_: str, raw: Any) -> R | None:
        record = None if raw is None else self.kind.load(id_, raw)
        return record if record is not None and self.tenant in {None, record.tenant} else None

    def _replace(
        self,
        digest: str,
        old: R | None,
        new: R | None,
        limits: Mapping[str, int],
        job: str | None = None,
        *,
        needed: Sequence[str] = (),
        excluded: Sequence[str] = (),
    ) -> str:
        """Replace the record `old` by `new`, if the stored record still has this SHA-1 `digest`.

        Without `old`, and with an empty digest, a record is created; without `new`, the record is deleted. Returns
        ``done``; ``changed`` if the stored record has another digest; or ``unwanted`` if a condition fails.

        Parameters
        ----------
        limits
            Largest allowed values of the tenant's counters; 0: no limit.
        job
            Key of the record of a job that must be running, or None.
        needed, excluded
            Redis keys that must exist, and that must not exist.

        Raises
        ------
        LimitExceededError
            If a counter would exceed its limit.

        """
        record = new or old
        assert record is not None
        former, present = self._sets(old), self._sets(new)
        leave = [name for name in former if name not in present]
        enter = [name for name in present if name not in former]
        changes = Counter(self.kind.counts(new) if new is not None else {})
        changes.subtract(self.kind.counts(old) if old is not None else {})
        counters: list[tuple[Any, ...]] = [
            (counter, change, limits.get(counter, 0)) for counter, change in changes.items()
        ]
        key = self.kind.key(record.id)
        lists = [[key, self._usage(record.tenant), USAGE_OF_ALL, SERVICE, job or key], needed, excluded, leave]
        ends = list(accumulate(map(len, lists)))[1:]
        raw = "" if new is None else dump_record(asdict(new))
        member = index_member(record.created, record.id)
        outcome = text(
            self._script(
                keys=[*chain(*lists), *enter],
                args=[digest, raw, member, *ends, int(job is not None), *chain(*counters)],
            )
        )
        if outcome not in {"done", "changed", "unwanted"}:
            raise LimitExceededError(outcome)
        return outcome

    def _sets(self, record: R | None) -> list[str]:
        if record is None:
            return []
        labels = [*(f"tag:{tag}" for tag in record.tags), *([] if record.name is None else [f"name:{record.name}"])]
        return [self.kind.set_of(record.tenant, name) for name in ("", *labels, *self.kind.sets(record))]
