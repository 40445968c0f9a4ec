"""Store of posteriors (fitted models, from which draws are made): each has a record in Redis and a file of arrays."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pydantic.dataclasses

import glle_engine
from glle_engine.base.spec import FitSpec
from glle_engine.base.texts import Way
from worker.base.versions import dump_record
from worker.records.cache_entry import Entry
from worker.records.ids import DEFAULT, content_sha256, digest
from worker.records.quotas import RECORD_BYTES, too_many_posteriors, too_many_record_bytes
from worker.records.stored_file import STORED, StoredFile
from worker.storage.file_records import FileStore
from worker.storage.object_store.files import STORED_BYTES
from worker.storage.records import RecordKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    import redis

    from worker.storage.object_store.files import ObjectFiles
    from worker.storage.results import ResultStore

ARRAYS = "arrays_sha256"  # name of the digest of a posterior's arrays, in its provenance and in its file's metadata
# Member of `PosteriorRecord.spec`: id of the data set with the neighbors that the user passed in place of a search.
NEIGHBORS_MEMBER = "neighbors"


def posterior_id(dataset: str, spec: dict[str, Any]) -> str:
    """Return the id of a posterior: a digest of data set, parameters and version of the engine's results."""
    return "post_" + digest(dataset, spec, glle_engine.NUMBERS)


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=STORED)
class PosteriorRecord:
    """Record of a posterior.

    Parameters
    ----------
    spec
        Full specification, with the value of every parameter (`recorded_parameters`).
    diagnostics
        Numbers and notes of the fit.
    eigenvalues
        Smallest eigenvalues of the embedding's matrix at the mean weights, without the constant vector's eigenvalue.
    seconds, stages
        Seconds of the fit, and of each of its stages.
    arrays
        Shape and dtype of each array.
    nbytes
        Bytes of the arrays.
    draw_cost
        Expected cost of draws (`glle_engine.posterior.draw_cost.DrawCost`).
    name, tags
        Name and tags that the user has given to the posterior.
    provenance
        Versions of software, and machine, that made the fit, so that it can be repeated.
    calibration
        First calibration. It determines the factor on the posterior covariance (the scale) of all draws that are
        requested with ``scale="auto"``. None: not calibrated yet.
    file
        File with the posterior's arrays, and, as metadata, the parts that are no arrays (`Posterior.head`).

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
    file: StoredFile
    created: str
    stages: dict[str, float] = field(default_factory=dict)
    tenant: str = DEFAULT
    name: str | None = None
    tags: list[str] = field(default_factory=list)
    calibration: dict[str, Any] | None = None

    @property
    def files(self) -> dict[str, StoredFile]:
        """The file of the record, by its path in the store."""
        return {self.file.path: self.file}

    @property
    def datasets(self) -> tuple[str, ...]:
        """Ids of the data sets that the fit has read: the data, and the neighbors if the user passed some."""
        neighbors = neighbors_of(self.spec)
        return (self.dataset,) if neighbors is None else (self.dataset, neighbors)

    @property
    def numbers(self) -> str:
        """Version of the engine's results (`NUMBERS`) at the time of the fit."""
        return self.provenance["numbers"]

    @property
    def draw_seconds(self) -> float:
        """Expected seconds per draw when many draws are made together."""
        return self.draw_cost["each_seconds"]

    @property
    def single_draw_seconds(self) -> float:
        """Expected seconds of a single draw."""
        return self.draw_cost["seconds"]

    @cached_property
    def state(self) -> str:
        """Text for the keys of caches; it changes if the posterior is deleted and fitted again under the same id."""
        return f"{self.id} {self.created}"


POSTERIOR_KIND = RecordKind[PosteriorRecord](
    "posterior",
    "posterior",
    f"Fit it with {Way('fit')}, and wait for the job to succeed.",
    PosteriorRecord,
    counts=lambda record: {
        "posteriors": 1,
        "posterior_bytes": record.nbytes,
        STORED_BYTES: record.file.size,
        "posterior_record_bytes": len(dump_record(asdict(record))),
    },
    sets=lambda record: [f"of:{dataset}" for dataset in record.datasets],
)


class PosteriorStore(FileStore[PosteriorRecord]):
    """Store of posteriors: their records in Redis, and the files with their arrays.

    The cached draws of a deleted posterior are not deleted, but nothing reads them without the record, and they expire.

    Parameters
    ----------
    client
        The queue's Redis, for the records.
    files
        Files of the posteriors, which workers write and all processes read.
    results
        Results about posteriors, which are deleted with the posteriors.

    """

    def __init__(self, client: redis.Redis, files: ObjectFiles, results: ResultStore) -> None:
        super().__init__(client, POSTERIOR_KIND, files, results)

    def require_room(self) -> None:
        """Raise `ProblemError` (``quota-exceeded``) if the tenant may have no more posteriors.

        The quota limits the number of posteriors, and the bytes of their records.

        Concurrent fits may all pass this check, so the quota can be exceeded by as many posteriors as jobs are running.
        In return, no finished fit is lost.
        """
        usage, allowed = self.usage() if self.quota else Counter[str](), self.quota * RECORD_BYTES
        if 0 < self.quota <= usage["posteriors"]:
            raise too_many_posteriors(self.tenant, self.quota)
        if 0 < allowed <= usage["posterior_record_bytes"]:
            raise too_many_record_bytes(self.tenant, usage["posterior_record_bytes"], allowed)

    def write(self, posterior: glle_engine.Posterior) -> tuple[StoredFile, str]:
        """Write the file of a posterior; return the stored file, and the SHA-256 of the posterior's arrays.

        Raises
        ------
        ProblemError
            ``storage-full``, ``store-unavailable``.

        """
        head, arrays = posterior.head(), posterior.arrays()
        sha256 = content_sha256({}, arrays)
        meta = {"head": head, "sha256": content_sha256({**head, ARRAYS: sha256}, {}), ARRAYS: sha256}
        return self.files.write_entry(Entry(meta, arrays)), sha256

    def record(self, record: PosteriorRecord, *, while_running: str, max_bytes: int = 0) -> bool:
        """Write the record of a posterior whose file is written; return whether the posterior has a record now.

        Nothing is written if a record exists already, or if a data set of the fit was deleted. A new file that no
        record names is removed.

        Parameters
        ----------
        while_running
            Key of the job's record. Nothing is written unless the job is running: deleting a posterior also cancels
            its job, which must not write the posterior again.
        max_bytes
            Quota of the tenant's stored bytes; 0: none.

        Raises
        ------
        ProblemError
            ``quota-exceeded``.

        """
        sources = [f"glle:dataset:{source}" for source in record.datasets]
        return self.create_with_files(record, max_bytes=max_bytes, while_running=while_running, while_existing=sources)

    def calibrate(self, id_: str, calibration: dict[str, Any]) -> dict[str, Any]:
        """Write a calibration to the record of a posterior, unless it has one; return the calibration in the record.

        The first calibration stays, so that draws with ``scale="auto"`` have one scale on all machines. Without a
        record, return `calibration`.
        """
        record = self.change(id_, lambda old: old if old.calibration else replace(old, calibration=calibration))
        return (None if record is None else record.calibration) or calibration

    def calibration(self, id_: str) -> dict[str, Any] | None:
        """Return the calibration in the record of a posterior; None if it is not calibrated yet, or does not exist."""
        record = self.get(id_)
        return None if record is None else record.calibration

    def of_dataset(self, dataset: str) -> list[str]:
        """Return the ids of the tenant's posteriors whose fit used a data set.

        A fit used a data set if the posterior was fitted to its points, or if the data set has the neighbors of each
        point, which the user gave for the fit.
        """
        return sorted(self.ids_in(f"of:{dataset}"))

    def arrays(self, record: PosteriorRecord) -> Entry:
        """Return the content of a posterior's file: read-only arrays, and metadata.

        The metadata has the parts of the posterior that are no arrays (`Posterior.head`), and digests.

        Raises
        ------
        ProblemError
            ``posterior-not-found``, ``posterior-damaged``, ``store-unavailable``.

        """
        if (entry := self.read_entry(record, record.file)) is None:
            raise self.kind.not_found(record.id)
        return entry

    def load(self, record: PosteriorRecord) -> glle_engine.Posterior:
        """Return the posterior that a record describes, read from its file.

        Raises `ProblemError` (``posterior-not-found``, ``posterior-damaged``, ``store-unavailable``).
        """
        entry = self.arrays(record)
        return glle_engine.Posterior.from_parts(entry.meta["head"], entry.arrays)


def recorded_parameters(spec: FitSpec, neighbors: str | None) -> dict[str, Any]:
    """Return the parameters of a fit for a posterior's record: the fields of `spec`, and the data set of neighbors.

    `neighbors` is the id of a data set with the user's own neighbors of each point, or None.
    """
    return spec.to_dict() if neighbors is None else {**spec.to_dict(), NEIGHBORS_MEMBER: neighbors}


def spec_of(parameters: Mapping[str, Any]) -> FitSpec:
    """Return the engine's `FitSpec` from the parameters in a posterior's record (`recorded_parameters`)."""
    return FitSpec.from_dict({name: value for name, value in parameters.items() if name != NEIGHBORS_MEMBER})


def neighbors_of(parameters: Mapping[str, Any]) -> str | None:
    """Return the id of the data set with the user's own neighbors, if the parameters in a record name one, or None."""
    return parameters.get(NEIGHBORS_MEMBER)
