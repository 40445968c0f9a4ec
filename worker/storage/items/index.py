"""Index of stored items, in the queue's Redis: an item exists while the index names it.

    glle:items:<kind>                  hash: id -> item, as JSON
    glle:items:<kind>:newest           sorted set: members that sort by creation
    glle:items:<kind>:newest:<tenant>  the same of a tenant
    glle:items:<kind>:bytes            hash: tenant -> bytes, `*` -> bytes of all

Each change is one script, so that an item appears, changes or vanishes as a whole. Replaced files are condemned in the
same script (`worker.storage.object_store.index`), and removed afterwards, or by the next sweep.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from worker.base.versions import dump_record, load_record
from worker.records.ids import member_name, text
from worker.storage.items.leases import lost
from worker.storage.object_store.index import CONDEMNED

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

    from worker.storage.items.leases import Leases

PAGE = 100  # members of one command
INLINE = 4096  # bytes of a record in the index; a longer one is in the item's manifest alone
_ALL = "*"  # no tenant's name

# KEYS: items, newest, newest of the tenant, bytes, condemned, then leases.
# ARGV: id, the item or nothing, "new" to keep an existing one, then tokens.
# Returns -1 if a lease is lost, 0 if nothing changed, otherwise the condemned paths.
_CHANGE = """
for at = 6, #KEYS do
  if redis.call('GET', KEYS[at]) ~= ARGV[at - 2] then return -1 end
end
local old = redis.call('HGET', KEYS[1], ARGV[1])
if ARGV[2] == '' and not old or ARGV[3] == 'new' and old then return 0 end
local kept, condemned = {}, {}
if ARGV[2] ~= '' then
  local item = cjson.decode(ARGV[2])
  kept[item.manifest.path] = true
  for _, file in pairs(item.files) do kept[file.path] = true end
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  redis.call('ZADD', KEYS[2], 0, item.created .. ' ' .. item.id)
  redis.call('ZADD', KEYS[3], 0, item.created .. ' ' .. item.id)
  redis.call('HINCRBY', KEYS[4], item.tenant, item.nbytes)
  redis.call('HINCRBY', KEYS[4], '*', item.nbytes)
end
if old then
  local was = cjson.decode(old)
  redis.call('HINCRBY', KEYS[4], was.tenant, -was.nbytes)
  redis.call('HINCRBY', KEYS[4], '*', -was.nbytes)
  was.files.manifest = was.manifest
  for _, file in pairs(was.files) do
    if not kept[file.path] then
      redis.call('SADD', KEYS[5], file.path)
      table.insert(condemned, file.path)
    end
  end
  if ARGV[2] == '' or cjson.decode(ARGV[2]).created ~= was.created then
    redis.call('ZREM', KEYS[2], was.created .. ' ' .. was.id)
    redis.call('ZREM', KEYS[3], was.created .. ' ' .. was.id)
  end
  if ARGV[2] == '' then redis.call('HDEL', KEYS[1], ARGV[1]) end
end
return condemned
"""


@dataclass(frozen=True)
class StoredFile:
    """Object of a file: path below the store's root, bytes, and SHA-256."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class StoredItem:
    """Item in the index, and in its manifest, an object that is written after the files.

    Parameters
    ----------
    record
        The record as text; None if it is long (the manifest has it) or missing.
    manifest
        Object of the manifest, None within it.

    """

    id: str
    tenant: str
    created: str
    files: dict[str, StoredFile]
    record: str | None = None
    manifest: StoredFile | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files.values()) + (self.manifest.size if self.manifest else 0)

    @property
    def paths(self) -> list[str]:
        """Paths of all objects, the manifest's first."""
        return [file.path for file in (self.manifest, *self.files.values()) if file is not None]

    def dump(self) -> bytes:
        """Return the JSON of the item."""
        return dump_record({**asdict(self), "nbytes": self.nbytes}).encode()

    @staticmethod
    def load(id_: str, raw: bytes) -> StoredItem:
        """Return the inverse of `dump`; raises as `worker.base.versions.load_record`."""

        def converted(value: dict[str, Any]) -> StoredItem:
            del value["nbytes"]
            files = {suffix: StoredFile(**file) for suffix, file in value.pop("files").items()}
            manifest = value.pop("manifest")
            return StoredItem(**value, files=files, manifest=None if manifest is None else StoredFile(**manifest))

        return load_record(f"The stored item {id_}", raw, converted)


class ItemIndex:
    """Index of the items of one kind.

    Parameters
    ----------
    client
        The queue's Redis, bytes in and out.
    kind
        Name in the keys.
    leases
        Those which a change of this request needs.

    """

    def __init__(self, client: redis.Redis, kind: str, leases: Leases) -> None:
        self._client = client
        self._key = f"glle:items:{kind}"
        self._leases = leases
        self._change = client.register_script(_CHANGE)

    def get(self, id_: str) -> StoredItem | None:
        """Return an item, or None."""
        raw = self._client.hget(self._key, id_)
        return None if raw is None else StoredItem.load(id_, bytes(raw))  # type: ignore[arg-type] # bytes

    def exists(self, id_: str) -> bool:
        """Return whether an item exists."""
        return bool(self._client.hexists(self._key, id_))

    def put(self, item: StoredItem, *, only_new: bool = False) -> list[str] | None:
        """Write an item; return the paths of the objects that it replaces, None if it exists and must not change.

        Raises
        ------
        ProblemError
            ``lease-lost``; nothing was changed.

        """
        if item.record is not None and len(item.record) > INLINE:
            item = replace(item, record=None)
        return self._changed(item.id, item.tenant, item.dump(), "new" if only_new else "")

    def drop(self, item: StoredItem) -> list[str] | None:
        """Remove an item; return the paths of its objects, None if it does not exist. Raises as `put`."""
        return self._changed(item.id, item.tenant, b"", "")

    def _changed(self, id_: str, tenant: str, raw: bytes, rule: str) -> list[str] | None:
        fences = self._leases.fences
        keys = [self._key, self._newest(None), self._newest(tenant), f"{self._key}:bytes", CONDEMNED, *fences]
        reply: Any = self._change(keys=keys, args=[id_, raw, rule, *fences.values()])
        if reply == -1:
            raise lost()
        return None if reply == 0 else [text(path) for path in reply]

    def removed(self, path: str) -> None:
        """Remove the path of a deleted object from the condemned ones."""
        self._client.srem(CONDEMNED, path)

    def newest(self, tenant: str | None, before: str | None) -> Iterator[tuple[str, str]]:
        """Yield (member, id) of a tenant's items (None: of all), from the newest or after a member."""
        end = "+" if before is None else f"({before}"
        while True:
            members = self._client.zrevrangebylex(self._newest(tenant), end, "-", 0, PAGE)
            for raw in members:
                yield text(raw), member_name(text(raw))
            if len(members) < PAGE:
                return
            end = f"({text(members[-1])}"

    def ids(self) -> list[str]:
        """Return the ids of all tenants' items."""
        return sorted(text(raw) for raw in self._client.hkeys(self._key))

    def usage(self, tenant: str | None) -> tuple[int, int]:
        """Return the number and the bytes of a tenant's items (None: of all)."""
        with self._client.pipeline(transaction=False) as pipeline:
            pipeline.zcard(self._newest(tenant))
            pipeline.hget(f"{self._key}:bytes", tenant or _ALL)
            count, nbytes = pipeline.execute()
        return int(count), int(nbytes or 0)

    def paths(self) -> set[str]:
        """Return the paths of all objects of the items."""
        items = self._client.hscan_iter(self._key, count=PAGE)
        return {path for id_, raw in items for path in StoredItem.load(text(id_), raw).paths}

    def _newest(self, tenant: str | None) -> str:
        return f"{self._key}:newest" + ("" if tenant is None else f":{tenant}")
