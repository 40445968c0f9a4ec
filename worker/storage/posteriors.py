"""Fitted posteriors: a small record that nothing evicts, and the arrays in the cache."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from glle_engine import Posterior
from worker.base.problems import refuse
from worker.base.versions import FIRST_NUMBERS, dump_record, load_record, versioned
from worker.records.ids import DIGEST, content_sha256, index_member, member_name, text
from worker.records.labels import with_labels
from worker.records.tenants import DEFAULT, tenant_key
from worker.tenancy.quotas import too_many_posteriors

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

    from worker.records.cache_entry import Entry
    from worker.storage.tiered_cache import TieredCache

_INDEX = "glle:posteriors"
ARRAYS = "arrays_sha256"  # the member of a provenance, and of a cached entry, that names the bits of the arrays


@dataclass(frozen=True, kw_only=True)
class PosteriorRecord:
    """What is kept of a posterior.

    Parameters
    ----------
    spec
        The full specification, every parameter with its value.
    diagnostics
        What the fit found out: figures, and notes in words.
    eigenvalues
        The bottom of the spectrum at the mean weights, the constant's left out.
    seconds
        Time of the fit.
    stages
        The same by stage; empty in records of before it was told.
    arrays
        Shape and dtype of every array by name.
    nbytes
        Bytes of the arrays in the cache.
    name, tags
        What users call it.
    provenance
        Versions and machine: what a replay needs.

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
    provenance: dict[str, str]
    job: str
    created: str
    stages: dict[str, float] = field(default_factory=dict)
    tenant: str = DEFAULT
    name: str | None = None
    tags: list[str] = field(default_factory=list)

    @property
    def numbers(self) -> str:
        """The version of the engine's numbers that it has."""
        return self.provenance.get("numbers", FIRST_NUMBERS)

    @property
    def arrays_sha256(self) -> str | None:
        """The digest of the fitted arrays (`PosteriorStore.cache`); None in records of before it was recorded."""
        return self.provenance.get(ARRAYS)

    @property
    def arrays_id(self) -> str:
        """The name of its arrays in the cache keys of draws: the id, and the digest where it is known."""
        return self.id if self.arrays_sha256 is None else f"{self.id}:{self.arrays_sha256[:DIGEST]}"

    @property
    def state(self) -> str:
        """A name that changes with its content: an id that was deleted may be fitted again."""
        return f"{self.arrays_id} {self.created}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON-able dictionary."""
        return asdict(self)


def record_of(id_: str, raw: str | bytes) -> PosteriorRecord:
    """Return a record as it was written; raises as `worker.base.versions.load_record`."""
    return load_record(f"The record of posterior {id_}", raw, lambda told: PosteriorRecord(**told))


def calibration_of(id_: str, raw: str | bytes) -> dict[str, Any]:
    """Return a calibration as it was written; raises as `worker.base.versions.load_record`."""
    return load_record(f"The calibration of posterior {id_}", raw, dict)


class PosteriorStore:
    """Keeps records in the queue's Redis and arrays in the cache, or behind it.

    Parameters
    ----------
    client
        The queue's Redis.
    cache
        The array cache.
    tenant
        Whose posteriors are seen; None sees everyone's by their ids, and lists the default tenant's.
    most
        Posteriors that the tenant may have; 0: any number.

    """

    def __init__(self, client: redis.Redis, cache: TieredCache, tenant: str | None = None, most: int = 0) -> None:
        self._client = client
        self._cache = cache
        self._tenant = tenant
        self._most = most

    def of(self, tenant: str, most: int = 0) -> Self:
        """Return the same store as a tenant sees it."""
        return type(self)(self._client, self._cache, tenant, most)

    def require_room(self) -> None:
        """Refuse the fit of a new posterior where the tenant has as many as it may.

        Fits at the same time may each pass: there are at most as many more as jobs that may run.

        Raises
        ------
        ProblemError
            ``quota-exceeded``.

        """
        if self._most and self._client.zcard(tenant_key(_INDEX, self._tenant or DEFAULT)) >= self._most:
            raise too_many_posteriors(self._tenant, self._most)

    def cache(self, id_: str, posterior: Posterior, seconds: float = 0.0) -> str:
        """Write a posterior's arrays (again, after they were evicted); return their digest.

        Parameters
        ----------
        seconds
            The time of its fit.

        Raises
        ------
        ProblemError
            ``other-bits``: its record is of a fit with other arrays. Nothing is written, so that an id never has two
            contents.

        """
        head, arrays = posterior.head(), posterior.arrays()
        found = content_sha256({}, arrays)
        record = self.get(id_)
        if record is not None and record.arrays_sha256 not in {None, found}:
            raise refuse(
                "other-bits",
                409,
                f"Posterior {id_} was evicted, and its fit has other bits on the worker that repeated it.",
                f"Delete it (DELETE /v1/posteriors/{id_}) and fit it again. `glle doctor` compares the workers.",
                posterior=id_,
                recorded=record.arrays_sha256,
                found=found,
            )
        keep = self._cache.tier_by_cost(seconds, sum(array.nbytes for array in arrays.values()))
        metadata = {"head": head, "sha256": content_sha256({**head, ARRAYS: found}, {}), ARRAYS: found}
        self._cache.put(_cache_key(id_), metadata, arrays, keep)
        return found

    def record(self, record: PosteriorRecord, while_running: str | None = None) -> bool:
        """Write a record; one that is known stays as it is. Return whether there is one now.

        Parameters
        ----------
        while_running
            The key of its job's record: nothing is written unless that one runs. A posterior is deleted with the job
            that would bring it back.

        """

        def write(pipeline: redis.client.Pipeline) -> bool:
            if self.get(record.id) is not None:
                return True
            if while_running is not None and self._client.hget(while_running, "status") != b"running":
                return False
            pipeline.multi()
            pipeline.set(_key(record.id), dump_record(record.to_dict()))
            pipeline.zadd(tenant_key(_INDEX, record.tenant), {_member(record): 0})
            pipeline.sadd(_of_dataset(record.dataset), record.id)
            return True

        is_new = self.get(record.id) is None
        if is_new:
            self._cache.create_index(record.id)
        watched = [_key(record.id)] if while_running is None else [_key(record.id), while_running]
        # Done again if one of them changed meanwhile.
        is_there = bool(self._client.transaction(write, *watched, value_from_callable=True))  # type: ignore[arg-type] # of a callable with a value
        if is_new and not is_there:
            self._cache.forget(record.id)
        return is_there

    def rename(self, id_: str, changes: dict[str, Any]) -> PosteriorRecord:
        """Change name and tags, as `worker.records.labels.with_labels` does, and return the record; raises as `fetch`."""

        def change(pipeline: redis.client.Pipeline) -> PosteriorRecord:
            record = with_labels(self.fetch(id_), changes)
            pipeline.multi()
            pipeline.set(_key(id_), dump_record(record.to_dict()))
            return record

        # Done again if the record changed meanwhile.
        found = self._client.transaction(change, _key(id_), value_from_callable=True)  # type: ignore[arg-type] # of a callable with a value
        assert isinstance(found, PosteriorRecord)
        return found

    def get(self, id_: str) -> PosteriorRecord | None:
        """Return the record, or None."""
        raw = self._client.get(_key(id_))
        found = None if raw is None else record_of(id_, raw)
        return found if found is not None and self._tenant in {None, found.tenant} else None

    def exists(self, id_: str) -> bool:
        """Say whether there is a record."""
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
        """Yield (cursor, record) from the newest on, or from the one after the cursor `before`; 100 in two round trips.

        None in place of a record that is gone.
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
        """Yield (cursor, record) as `listed` does, without the records that are gone."""
        return ((at, record) for at, record in self.listed(before) if record is not None)

    def calibrate(self, id_: str, found: dict[str, Any]) -> dict[str, Any]:
        """Record a posterior's own calibration (`worker.analyses.posterior_analyses.CalibrationSpec`), and return what is recorded.

        The first one stays: `auto` is one number for everyone, whatever machine or cache comes later.
        """
        self._client.set(_calibration_key(id_), dump_record(found), nx=True)
        return self.calibration(id_) or found

    def calibration(self, id_: str) -> dict[str, Any] | None:
        """Return a posterior's own calibration, or None when there was none yet."""
        raw = self._client.get(_calibration_key(id_))
        return None if raw is None else calibration_of(id_, raw)

    def all(self) -> Iterator[tuple[str, str, str | None]]:
        """Yield (id, record, calibration) of all tenants' posteriors as they are written; perhaps one of them twice."""
        for raw in self._client.scan_iter(match=_key("*"), count=1000):
            id_ = text(raw).removeprefix(_key(""))
            record, calibration = self._client.mget(raw, _calibration_key(id_))
            if record is not None:  # deleted meanwhile
                yield id_, text(record), None if calibration is None else text(calibration)

    def of_dataset(self, dataset: str) -> list[str]:
        """Return the ids of the posteriors fitted on a data set."""
        members = self._client.smembers(_of_dataset(dataset))
        return sorted(text(raw) for raw in members)

    def arrays(self, record: PosteriorRecord) -> Entry | None:
        """Return a record's arrays to look at parts of (`TieredCache.view`), or None when they were evicted."""
        entry = self._cache.view(_cache_key(record.id))
        return entry if entry is not None and _is_of(entry.meta, record.arrays_sha256) else None

    def entry_sha256(self, record: PosteriorRecord) -> str | None:
        """Return the digest of a record's cached entry, or None when it was evicted; the arrays are not read."""
        head = self._cache.head(_cache_key(record.id))
        return None if head is None or not _is_of(head, record.arrays_sha256) else head.get("sha256")

    def load(self, id_: str, sha256: str | None = None) -> Posterior | None:
        """Return the posterior, or None when its arrays were evicted, or have another digest than `sha256`."""
        entry = self._cache.get(_cache_key(id_))
        if entry is None or not _is_of(entry.meta, sha256):
            return None
        return Posterior.from_parts(entry.meta["head"], entry.arrays)

    def arrays_id(self, id_: str) -> str:
        """Return the name of a posterior's arrays in the cache keys of draws; its id where there is no record."""
        record = self.get(id_)
        return id_ if record is None else record.arrays_id

    def state(self, id_: str) -> str | None:
        """Return the `state` of a record, None where there is none."""
        record = self.get(id_)
        return None if record is None else record.state

    def delete(self, record: PosteriorRecord) -> None:
        """Forget a posterior, its draws, and what was made of them."""
        with self._client.pipeline() as pipeline:
            pipeline.delete(_key(record.id))
            pipeline.zrem(tenant_key(_INDEX, record.tenant), _member(record))
            pipeline.srem(_of_dataset(record.dataset), record.id)
            pipeline.execute()
        self.forget(record.id)

    def forget(self, id_: str, *, is_drawn: bool = True) -> None:
        """Forget what is kept beside a posterior's record; `is_drawn`: its draws and what was made of them, too."""
        self._client.delete(_calibration_key(id_))
        self._cache.delete(_cache_key(id_))
        if is_drawn:
            self._cache.forget(id_)


def _is_of(meta: dict[str, Any], sha256: str | None) -> bool:
    """Return whether an entry has the arrays of a digest; True where either digest is not known."""
    return sha256 is None or meta.get(ARRAYS, sha256) == sha256


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
