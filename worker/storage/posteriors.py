"""Posteriors: records in the queue's Redis, arrays in the cache."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pydantic.dataclasses
import redis

import glle_engine
from glle_engine.base.spec import FitSpec
from worker.base.problems import refuse
from worker.base.versions import dump_record, versioned_key
from worker.records.ids import DEFAULT, DIGEST, content_sha256, text
from worker.records.quotas import RECORD_BYTES, too_many_posteriors, too_many_record_bytes
from worker.records.stored_file import STORED
from worker.storage.records import RecordKind, RecordStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from worker.records.cache_entry import Entry
    from worker.storage.array_cache import ArrayCache

ARRAYS = "arrays_sha256"  # member of a provenance and of a cached entry: the digest of the arrays
NEIGHBORS = "neighbors"  # of a spec: the data set of given neighbors; absent otherwise, so that other ids stay
USED = "glle:posteriors:used"  # sorted set of all tenants' posteriors, by the day since 1970 of their last use
DAY = 86_400
MAX_NOTED = 2**16  # uses of a day that a process remembers, some megabytes


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=STORED)
class PosteriorRecord:
    """Record of a posterior.

    Parameters
    ----------
    spec
        Full specification, with the value of every parameter (`recorded_parameters`).
    diagnostics
        Figures and notes of the fit.
    eigenvalues
        Bottom of the spectrum at the mean weights, without the constant eigenvector's.
    seconds, stages
        Duration of the fit, and by stage.
    arrays
        Shape and dtype of each array.
    nbytes
        Bytes of the arrays in the cache.
    draw_cost
        Expected cost of draws, from the fill of the factors (`glle_engine.posterior.cost.estimate.DrawCost`).
    name, tags
        Labels.
    provenance
        Versions and machine, for a replay.
    calibration
        The first calibration, which every use of `auto` shares; None: not calibrated.

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
    calibration: dict[str, Any] | None = None

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets that a fit reads: its data, and its neighbors if they are given."""
        neighbors = neighbors_of(self.spec)
        return (self.dataset,) if neighbors is None else (self.dataset, neighbors)

    @property
    def numbers(self) -> str:
        """Numerics version of the fit."""
        return self.provenance["numbers"]

    @property
    def arrays_sha256(self) -> str:
        """Digest of the fitted arrays (`PosteriorStore.cache`)."""
        return self.provenance[ARRAYS]

    @cached_property
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

    @cached_property
    def state(self) -> str:
        """Name of the content, which differs after a deletion and a new fit of the same id."""
        return f"{self.arrays_id} {self.created}"


KIND = RecordKind[PosteriorRecord](
    "posterior",
    "posterior",
    "Fit it with POST /v1/posteriors, and wait for the job to succeed.",
    PosteriorRecord,
    counts=lambda record: {
        "posteriors": 1,
        "posterior_bytes": record.nbytes,
        "posterior_record_bytes": len(dump_record(asdict(record))),
    },
    sets=lambda record: [f"of:{dataset}" for dataset in record.datasets],
)


class PosteriorStore(RecordStore[PosteriorRecord]):
    """Store of posteriors.

    Parameters
    ----------
    client
        The queue's Redis, for the records.
    cache
        The cache of the arrays.

    """

    def __init__(self, client: redis.Redis, cache: ArrayCache) -> None:
        super().__init__(client, KIND)
        self._cache = cache
        self._used: dict[str, int] = {}  # days of the latest uses that this process has noted

    def get(self, id_: str) -> PosteriorRecord | None:
        """Return a record, or None; note its use, once a day and process."""
        record = super().get(id_)
        if record is not None:
            self._note_use(id_)
        return record

    def _note_use(self, id_: str) -> None:
        today = int(time.time()) // DAY
        if self._used.get(id_) == today:
            return
        if len(self._used) >= MAX_NOTED:
            self._used.clear()
        self._used[id_] = today
        with suppress(redis.ResponseError):  # a full server
            self._client.zadd(USED, {id_: today}, gt=True)

    def remove_unused(self, days: int) -> list[str]:
        """Remove the fitted posteriors without name and tags that are unused for some days; return their ids.

        The same request fits one again, under the same id. A posterior whose use is unknown, as after a restored
        backup, counts as used today.
        """
        today = int(time.time()) // DAY
        if known := [id_ for id_, _ in self.all()]:
            self._client.zadd(USED, dict.fromkeys(known, today), nx=True)
        removed = []
        for id_ in map(text, self._client.zrange(USED, "-inf", today - days, byscore=True)):
            record = super().get(id_)
            if record is None:
                self._client.zrem(USED, id_)
            elif not (record.name or record.tags):
                self.delete(id_)
                removed.append(id_)
        return removed

    def require_room(self) -> None:
        """Raise ``quota-exceeded`` if the tenant has no room for a new posterior, or for the bytes of its record.

        Concurrent fits may all pass, so the quota can be exceeded by the number of running jobs: no fit is lost.
        """
        usage, allowed = self.usage() if self.quota else Counter[str](), self.quota * RECORD_BYTES
        if 0 < self.quota <= usage["posteriors"]:
            raise too_many_posteriors(self.tenant, self.quota)
        if 0 < allowed <= usage["posterior_record_bytes"]:
            raise too_many_record_bytes(self.tenant, usage["posterior_record_bytes"], allowed)

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
        meta = {"head": head, "sha256": content_sha256({**head, ARRAYS: sha256}, {}), ARRAYS: sha256}
        self._cache.put(_cache_key(id_), meta, arrays, seconds=seconds)
        return sha256

    def record(
        self, record: PosteriorRecord, while_running: str | None = None, while_existing: Sequence[str] = ()
    ) -> bool:
        """Write a record unless there is one; return whether there is one now.

        Parameters
        ----------
        while_running
            Key of the job's record. Nothing is written unless the job runs, because a deleted posterior's job, which
            would write it again, is deleted with it.
        while_existing
            Keys of the records of its data sets. Nothing is written unless all of them exist.

        """
        written = self.create(record, while_running=while_running, while_existing=while_existing)
        if written or self.exists(record.id):
            return True
        self._cache.forget(record.id)
        return False

    def calibrate(self, id_: str, calibration: dict[str, Any]) -> dict[str, Any]:
        """Record a posterior's calibration unless there is one; return the recorded one.

        The first one stays, so that `auto` is one number on all machines.
        """
        record = self.change(id_, lambda old: old if old.calibration else replace(old, calibration=calibration))
        return (None if record is None else record.calibration) or calibration

    def calibration(self, id_: str) -> dict[str, Any] | None:
        """Return a posterior's calibration, or None."""
        record = self.get(id_)
        return None if record is None else record.calibration

    def of_dataset(self, dataset: str) -> list[str]:
        """Return the ids of the tenant's posteriors fitted on a data set, or with neighbors that it has."""
        return sorted(self.ids_in(f"of:{dataset}"))

    def arrays(self, record: PosteriorRecord) -> Entry | None:
        """Return a record's arrays, or None if evicted."""
        entry = self._cache.get(_cache_key(record.id))
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

    def delete(self, id_: str, *, unless_existing: Sequence[str] = ()) -> PosteriorRecord | None:
        """Remove a posterior, its draws and results, unless one of these keys exists; return it, or None."""
        record = super().delete(id_, unless_existing=unless_existing)
        if record is not None:
            self._client.zrem(USED, id_)
            self.forget(id_)
        return record

    def forget(self, id_: str, *, is_drawn: bool = True) -> None:
        """Remove a posterior's arrays; with `is_drawn` also its draws and all results."""
        self._cache.delete(_cache_key(id_))
        if is_drawn:
            self._cache.forget(id_)


def _cache_key(id_: str) -> str:
    return versioned_key(f"posterior:{id_}")


def recorded_parameters(spec: FitSpec, neighbors: str | None) -> dict[str, Any]:
    """Return the parameters of a record and of a posterior's id."""
    return spec.to_dict() if neighbors is None else {**spec.to_dict(), NEIGHBORS: neighbors}


def spec_of(parameters: Mapping[str, Any]) -> FitSpec:
    """Return the engine's specification of recorded parameters."""
    return FitSpec.from_dict({name: value for name, value in parameters.items() if name != NEIGHBORS})


def neighbors_of(parameters: Mapping[str, Any]) -> str | None:
    """Return the id of the data set of given neighbors, or None."""
    return parameters.get(NEIGHBORS)
