"""Fitted posteriors: records in the queue's Redis, arrays in the cache."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import glle_engine
from glle_engine.base.spec import FitSpec
from worker.base.problems import refuse
from worker.base.versions import dump_record, versioned_key
from worker.records.ids import DEFAULT, DIGEST, content_sha256
from worker.records.quotas import RECORD_BYTES, too_many_posteriors, too_many_record_bytes
from worker.records.stored_file import StoredFile
from worker.storage.records import RecordKind, RecordStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    import redis

    from worker.records.cache_entry import Entry
    from worker.storage.array_cache import ArrayCache

ARRAYS = "arrays_sha256"  # member of a provenance and of a cached entry: the digest of the arrays
NEIGHBORS = "neighbors"  # of a spec: the data set of given neighbors; absent otherwise, so that other ids stay
IMPORTED = "imported"  # member of a provenance: the digest of head and arrays of an imported file


@dataclass(frozen=True, kw_only=True)
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
    calibration
        The first calibration, which every use of `auto` shares; None: not calibrated.
    file
        File of an imported posterior; None of a fit.

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
    file: StoredFile | None = None

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """Return the record of a stored dictionary."""
        file = fields.get("file")
        return cls(**{**fields, "file": file and StoredFile(**file)})

    @property
    def files(self) -> dict[str, StoredFile]:
        """The file by its path; none of a fit."""
        return {} if self.file is None else {self.file.path: self.file}

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
    PosteriorRecord.from_dict,
    counts=lambda record: {
        "posteriors": 1,
        "posterior_bytes": record.nbytes,
        "stored_bytes": 0 if record.file is None else record.file.size,
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
        if self.create(record, while_running=while_running) or self.exists(record.id):
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

    def state(self, id_: str) -> str | None:
        """Return the `state` of a record, or None."""
        record = self.get(id_)
        return None if record is None else record.state

    def delete(self, id_: str) -> PosteriorRecord | None:
        """Remove a posterior, its draws and all results; return the record, or None."""
        record = super().delete(id_)
        if record is not None:
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
