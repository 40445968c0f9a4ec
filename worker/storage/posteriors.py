"""Fitted posteriors: records in the queue's Redis, arrays in the cache."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

import glle_engine
from worker.base.problems import refuse
from worker.base.versions import dump_record, load_record, versioned
from worker.records.fits import neighbors_of
from worker.records.ids import DIGEST, content_sha256, index_member, member_name, text
from worker.records.labels import with_labels
from worker.records.tenants import DEFAULT, tenant_key
from worker.tenancy.quotas import MAX_RECORD, RECORD_BYTES, too_many_posteriors, too_many_record_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

    from worker.records.cache_entry import Entry
    from worker.storage.tiered_cache import TieredCache

_INDEX = "glle:posteriors"
ARRAYS = "arrays_sha256"  # member of a provenance and of a cached entry: the digest of the arrays
IMPORTED = "imported"  # member of a provenance: the digest of head and arrays of an imported file

# Writes a record unless there is one. KEYS: record, index, the job's record (or again the record), and the posteriors
# of each data set that a fit reads. ARGV: record, index member, id, 1 with a job.
# Returns 1 if there is a record now, 0 if the job does not run.
_RECORD = """
if redis.call('EXISTS', KEYS[1]) == 1 then return 1 end
if ARGV[4] == '1' and redis.call('HGET', KEYS[3], 'status') ~= 'running' then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[2], 0, ARGV[2])
for at = 4, #KEYS do redis.call('SADD', KEYS[at], ARGV[3]) end
return 1
"""


@dataclass(frozen=True, kw_only=True)
class PosteriorRecord:
    """Record of a posterior.

    Parameters
    ----------
    spec
        Full specification, with the value of every parameter (`worker.records.fits`).
    diagnostics
        Figures and notes of the fit.
    eigenvalues
        Bottom of the spectrum at the mean weights, without the constant eigenvector's.
    seconds, stages
        Duration of the fit, and by stage; an imported posterior has no stages.
    arrays
        Shape and dtype of each array.
    nbytes
        Bytes of the arrays in the cache.
    draw_cost
        Expected cost of draws, from the fill of the factors (`glle_engine.posterior.cost.drawing.DrawCost`).
    name, tags
        Labels.
    provenance
        Versions and machine, for a replay.

    """

    id: str
    dataset: str
    n: int
    d: int
    spec: dict[str, Any]
    diagnostics: dict[str, Any]
    eigenvalues: list[float]
    seconds: float
    arrays: dict[str, dict[str, Any]]
    nbytes: int
    draw_cost: dict[str, float]
    provenance: dict[str, str]
    job: str
    created: str
    stages: dict[str, float] = field(default_factory=dict)
    tenant: str = DEFAULT
    name: str | None = None
    tags: list[str] = field(default_factory=list)

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets that a fit reads: its data, and its neighbors if they are given; none of an imported one."""
        if self.is_imported:
            return ()
        neighbors = neighbors_of(self.spec)
        return (self.dataset,) if neighbors is None else (self.dataset, neighbors)

    @property
    def is_imported(self) -> bool:
        """Whether the arrays are those of a file (`worker.storage.imported_posteriors`), and no fit makes them."""
        return IMPORTED in self.provenance

    @property
    def numbers(self) -> str:
        """Numerics version of the fit."""
        return self.provenance["numbers"]

    @property
    def arrays_sha256(self) -> str:
        """Digest of the fitted arrays (`PosteriorStore.cache`)."""
        return self.provenance[ARRAYS]

    @property
    def arrays_id(self) -> str:
        """Name of the arrays in the cache keys of draws: the id and their digest."""
        return f"{self.id}:{self.arrays_sha256[:DIGEST]}"

    @property
    def draw_seconds(self) -> float:
        """Expected seconds of one of many draws."""
        return self.draw_cost["each_seconds"]

    @property
    def single_draw_seconds(self) -> float:
        """Expected seconds of a draw alone."""
        return self.draw_cost["seconds"]

    @property
    def state(self) -> str:
        """Name of the content, which differs after a deletion and a new fit of the same id."""
        return f"{self.arrays_id} {self.created}"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dictionary."""
        return asdict(self)


def record_of(id_: str, raw: str | bytes) -> PosteriorRecord:
    """Parse a stored record; raises as `worker.base.versions.load_record`."""
    return load_record(f"The record of posterior {id_}", raw, lambda record: PosteriorRecord(**record))


def calibration_of(id_: str, raw: str | bytes) -> dict[str, Any]:
    """Parse a stored calibration; raises as `worker.base.versions.load_record`."""
    return load_record(f"The calibration of posterior {id_}", raw, dict)


class PosteriorStore:
    """Store of posteriors.

    Parameters
    ----------
    client
        The queue's Redis, for the records.
    cache
        The cache of the arrays.
    tenant
        Tenant whose posteriors are visible; None: all by id, and a list of the default tenant's.
    most
        Quota of the tenant; 0: no limit.

    """

    def __init__(self, client: redis.Redis, cache: TieredCache, tenant: str | None = None, most: int = 0) -> None:
        self._client = client
        self._cache = cache
        self._tenant = tenant
        self._most = most
        self._record = client.register_script(_RECORD)

    def of(self, tenant: str, most: int = 0) -> Self:
        """Return a tenant's view of the store."""
        return type(self)(self._client, self._cache, tenant, most)

    def require_room(self) -> None:
        """Raise ``quota-exceeded`` if the tenant has no room for a new posterior, or for the bytes of its record.

        Concurrent fits may all pass, so the quota can be exceeded by the number of running jobs.
        """
        if not self._most:
            return
        index, allowed = tenant_key(_INDEX, self._tenant or DEFAULT), self._most * RECORD_BYTES
        count = self._client.zcard(index)
        if count >= self._most:
            raise too_many_posteriors(self._tenant, self._most)
        if count * MAX_RECORD < allowed:  # without a look at the records
            return
        with self._client.pipeline(transaction=False) as pipeline:
            for member in self._client.zrange(index, 0, -1):
                pipeline.strlen(_key(member_name(text(member))))
            nbytes = sum(pipeline.execute())
        if nbytes >= allowed:
            raise too_many_record_bytes(self._tenant, nbytes, allowed)

    def usage(self) -> tuple[int, int]:
        """Return the number of the tenant's posteriors, and the bytes of their arrays; reads all records."""
        sizes = [record.nbytes for _, record in self.newest()]
        return len(sizes), sum(sizes)

    def cache(self, id_: str, posterior: glle_engine.Posterior, seconds: float = 0.0) -> str:
        """Cache a posterior's arrays; return their digest.

        Parameters
        ----------
        seconds
            Duration of the fit.

        Raises
        ------
        ProblemError
            ``other-bits``: the recorded digest differs. Nothing is written, so that an id never has two contents.

        """
        head, arrays = posterior.head(), posterior.arrays()
        sha256 = content_sha256({}, arrays)
        record = self.get(id_)
        if record is not None and record.arrays_sha256 != sha256:
            raise refuse(
                "other-bits",
                409,
                f"Posterior {id_} was evicted, and the repeated fit on this worker has other bits.",
                f"Delete it (DELETE /v1/posteriors/{id_}) and fit it again. `glle doctor` compares the workers.",
                posterior=id_,
                recorded=record.arrays_sha256,
                found=sha256,
            )
        tier = self._cache.tier_by_cost(seconds, sum(array.nbytes for array in arrays.values()))
        meta = {"head": head, "sha256": content_sha256({**head, ARRAYS: sha256}, {}), ARRAYS: sha256}
        self._cache.put(_cache_key(id_), meta, arrays, tier)
        return sha256

    def record(self, record: PosteriorRecord, while_running: str | None = None) -> bool:
        """Write a record unless there is one; return whether there is one now.

        Parameters
        ----------
        while_running
            Key of the job's record. Nothing is written unless the job runs, because a deleted posterior's job, which
            would write it again, is deleted with it.

        """
        is_new = self.get(record.id) is None
        if is_new:
            self._cache.create_index(record.id)
        sources = [_of_dataset(source) for source in record.datasets]
        keys = [_key(record.id), tenant_key(_INDEX, record.tenant), while_running or _key(record.id), *sources]
        exists = bool(
            self._record(
                keys=keys,
                args=[dump_record(record.to_dict()), _member(record), record.id, int(while_running is not None)],
            )
        )
        if is_new and not exists:
            self._cache.forget(record.id)
        return exists

    def rename(self, id_: str, changes: dict[str, Any]) -> PosteriorRecord:
        """Change name and tags (`worker.records.labels.with_labels`); return the record; raises as `fetch`."""

        def change(pipeline: redis.client.Pipeline) -> PosteriorRecord:
            record = with_labels(self.fetch(id_), changes)
            pipeline.multi()
            pipeline.set(_key(id_), dump_record(record.to_dict()))
            return record

        # Repeated if the record changes meanwhile.
        record = self._client.transaction(change, _key(id_), value_from_callable=True)  # type: ignore[arg-type] # of a callable with a value
        assert isinstance(record, PosteriorRecord)
        return record

    def get(self, id_: str) -> PosteriorRecord | None:
        """Return the record, or None."""
        raw = self._client.get(_key(id_))
        record = None if raw is None else record_of(id_, raw)
        return record if record is not None and self._tenant in {None, record.tenant} else None

    def exists(self, id_: str) -> bool:
        """Return whether there is a record of any tenant."""
        return bool(self._client.exists(_key(id_)))

    def fetch(self, id_: str) -> PosteriorRecord:
        """Return the record.

        Raises
        ------
        ProblemError
            ``posterior-not-found``.

        """
        if (record := self.get(id_)) is None:
            raise refuse(
                "posterior-not-found",
                404,
                f"There is no posterior {id_}.",
                "Fit it with POST /v1/posteriors, and wait for the job to succeed.",
                posterior=id_,
            )
        return record

    def listed(self, before: str | None = None) -> Iterator[tuple[str, PosteriorRecord | None]]:
        """Yield (cursor, record or None if deleted) from the newest on, or from the one after the cursor `before`.

        A hundred records take two round trips.
        """
        index = tenant_key(_INDEX, self._tenant or DEFAULT)
        upper = "+" if before is None else f"({before}"
        while members := [text(raw) for raw in self._client.zrevrangebylex(index, upper, "-", start=0, num=100)]:
            ids = [member_name(member) for member in members]
            for member, id_, raw in zip(members, ids, self._client.mget([_key(id_) for id_ in ids]), strict=True):
                record = None if raw is None else record_of(id_, raw)
                yield member, record if record is not None and self._tenant in {None, record.tenant} else None
            upper = f"({members[-1]}"

    def newest(self, before: str | None = None) -> Iterator[tuple[str, PosteriorRecord]]:
        """Yield (cursor, record) as `listed` does, without the deleted ones."""
        return ((at, record) for at, record in self.listed(before) if record is not None)

    def calibrate(self, id_: str, calibration: dict[str, Any]) -> dict[str, Any]:
        """Record a posterior's calibration unless there is one; return the recorded one.

        The first one stays, so that `auto` is one number on all machines.
        """
        self._client.set(_calibration_key(id_), dump_record(calibration), nx=True)
        return self.calibration(id_) or calibration

    def calibration(self, id_: str) -> dict[str, Any] | None:
        """Return a posterior's calibration, or None."""
        raw = self._client.get(_calibration_key(id_))
        return None if raw is None else calibration_of(id_, raw)

    def all(self) -> Iterator[tuple[str, str, str | None]]:
        """Yield (id, raw record, raw calibration) of all tenants' posteriors, perhaps one of them twice."""
        for raw in self._client.scan_iter(match=_key("*"), count=1000):
            id_ = text(raw).removeprefix(_key(""))
            record, calibration = self._client.mget(raw, _calibration_key(id_))
            if record is not None:  # deleted meanwhile
                yield id_, text(record), None if calibration is None else text(calibration)

    def of_dataset(self, dataset: str) -> list[str]:
        """Return the ids of the posteriors fitted on a data set, or with neighbors that it has."""
        members = self._client.smembers(_of_dataset(dataset))
        return sorted(text(raw) for raw in members)

    def arrays(self, record: PosteriorRecord) -> Entry | None:
        """Return a record's arrays for partial reads (`TieredCache.view`), or None if evicted."""
        entry = self._cache.view(_cache_key(record.id))
        return entry if entry is not None and entry.meta[ARRAYS] == record.arrays_sha256 else None

    def entry_sha256(self, record: PosteriorRecord) -> str | None:
        """Return the digest of a record's cached entry without a read of its arrays, or None if evicted."""
        head = self._cache.head(_cache_key(record.id))
        return None if head is None or head[ARRAYS] != record.arrays_sha256 else head.get("sha256")

    def load(self, id_: str, sha256: str | None = None) -> glle_engine.Posterior | None:
        """Return the posterior, or None if its arrays were evicted or have another digest than `sha256`."""
        entry = self._cache.get(_cache_key(id_))
        if entry is None or sha256 not in {None, entry.meta[ARRAYS]}:
            return None
        return glle_engine.Posterior.from_parts(entry.meta["head"], entry.arrays)

    def arrays_id(self, id_: str) -> str:
        """Return the name of a posterior's arrays in the cache keys of draws; its id without a record."""
        record = self.get(id_)
        return id_ if record is None else record.arrays_id

    def state(self, id_: str) -> str | None:
        """Return the `state` of a record, or None."""
        record = self.get(id_)
        return None if record is None else record.state

    def delete(self, record: PosteriorRecord) -> None:
        """Remove a posterior, its draws and all results."""
        with self._client.pipeline() as pipeline:
            pipeline.delete(_key(record.id))
            pipeline.zrem(tenant_key(_INDEX, record.tenant), _member(record))
            for source in record.datasets:
                pipeline.srem(_of_dataset(source), record.id)
            pipeline.execute()
        self.forget(record.id)

    def forget(self, id_: str, *, is_drawn: bool = True) -> None:
        """Remove a posterior's calibration and arrays; with `is_drawn` also its draws and all results."""
        self._client.delete(_calibration_key(id_))
        self._cache.delete(_cache_key(id_))
        if is_drawn:
            self._cache.forget(id_)


def _key(id_: str) -> str:
    return f"glle:posterior:{id_}"


def _calibration_key(id_: str) -> str:
    return f"glle:calibration:{id_}"


def _member(record: PosteriorRecord) -> str:
    return index_member(record.created, record.id)


def _of_dataset(dataset: str) -> str:
    return f"glle:dataset:{dataset}:posteriors"


def _cache_key(id_: str) -> str:
    return versioned(f"posterior:{id_}")
