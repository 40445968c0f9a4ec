"""Putting a backup back: all of it is read and judged first; what is there already is not touched.

What a record is of is named by digests, so what has the same id is the same; names and tags alone may differ.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from worker.analyses.embedding_records import EmbeddingRecord
from worker.analyses.embedding_records import record_of as embedding_of
from worker.base.clock import now_ms
from worker.base.versions import versioned
from worker.operations.backup.archive import Archive, damaged
from worker.operations.backup.dump import CACHED, KINDS, BackupScope
from worker.operations.backup.records import put_job
from worker.operations.backup.validate import array_in, dataset_in
from worker.records.job import job_from
from worker.records.tenants import is_tenant_name
from worker.storage.posteriors import PosteriorRecord, calibration_of
from worker.storage.posteriors import record_of as posterior_of
from worker.tenancy.api_keys import parse_keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.records.dataset import Dataset
    from worker.records.job import Job
    from worker.stores import Stores

COLUMNS = ("in the backup", "restored", "there already", "named otherwise", "expired")


@dataclass
class Report:
    """How many of each of `take.KINDS` are in the backup, and what became of them: `COLUMNS`."""

    rows: dict[str, dict[str, int]] = field(default_factory=lambda: {kind: dict.fromkeys(COLUMNS, 0) for kind in KINDS})

    def count(self, kind: str, became: str) -> None:
        """Count one."""
        self.rows[kind]["in the backup"] += 1
        self.rows[kind][became] += 1


def restore(here: Stores, archive: Archive, chosen: BackupScope, *, rename: bool = False, dry: bool = False) -> Report:
    """Put back what is chosen of an archive, and return what became of it.

    Parameters
    ----------
    rename
        Whether names and tags of what is there already become those of the backup.
    dry
        Whether nothing is to be changed: the report is of what would be.

    Raises
    ------
    ProblemError
        ``backup-unreadable``, ``written-by-newer-version`` and the like, before anything is changed.

    """
    judged = _Restoring(here, archive, chosen, rename=rename, dry=True).run()
    return judged if dry else _Restoring(here, archive, chosen, rename=rename, dry=False).run()


@dataclass(frozen=True, kw_only=True)
class _Options:
    rename: bool
    dry: bool


class _Restoring:
    """One way through an archive: to judge it, or to put it back."""

    def __init__(self, here: Stores, archive: Archive, chosen: BackupScope, *, rename: bool, dry: bool) -> None:
        self._here = here
        self._archive = archive
        self._chosen = chosen
        self._does = _Options(rename=rename, dry=dry)
        self._report = Report()
        self._subjects: set[str] = set()

    def run(self) -> Report:
        """Go through it, data first."""
        for dataset in self._datasets():
            self._subjects.add(dataset.id)
            self._report.count("data sets", self._dataset(dataset))
        for record, calibration in self._posteriors():
            self._subjects.add(record.id)
            self._report.count("posteriors", self._posterior(record))
            if calibration is not None:
                self._report.count("calibrations", self._calibration(record, calibration))
        for embedding, until in self._embeddings():
            self._report.count("embeddings", self._embedding(embedding, until))
        for job, fields, until in self._jobs():
            self._report.count("jobs", self._job(job, fields, until))
        if self._chosen.keys:
            self._keys()
        if self._chosen.arrays:
            for line in self._entries():
                self._report.count("cached arrays", self._entry(line))
        return self._report

    def _datasets(self) -> Iterator[Dataset]:
        for name in self._archive.names("datasets/", ".json"):
            dataset = dataset_in(self._archive, name.removeprefix("datasets/").removesuffix(".json"))
            if self._chosen.has(dataset.tenant):
                yield dataset

    def _posteriors(self) -> Iterator[tuple[PosteriorRecord, dict[str, Any] | None]]:
        for line in self._archive.lines("posteriors.jsonl"):
            record = posterior_of(str(line.get("id")), json.dumps(line.get("record")))
            if self._chosen.has(record.tenant):
                self._require(record.id == line["id"], record.dataset, f"posterior {record.id}", record.tenant)
                found = line.get("calibration")
                yield record, None if found is None else calibration_of(record.id, json.dumps(found))

    def _embeddings(self) -> Iterator[tuple[EmbeddingRecord, int]]:
        for line in self._archive.lines("embeddings.jsonl"):
            record = embedding_of(str(line.get("id")), json.dumps(line.get("record")))
            if self._chosen.has(record.tenant):
                is_so = record.recipe.id == line["id"]
                self._require(is_so, record.recipe.dataset, f"embedding {record.recipe.id}", record.tenant)
                yield record, _moment(line)

    def _jobs(self) -> Iterator[tuple[Job, dict[str, str], int]]:
        for line in self._archive.lines("jobs.jsonl"):
            fields = line.get("record")
            if not isinstance(fields, dict) or not all(isinstance(value, str) for value in fields.values()):
                raise damaged("a job's record is no record")
            job = job_from(fields)
            if self._chosen.has(job.tenant):
                is_so = job.id == line.get("id") and job.id.startswith("job_") and job.id[4:].isalnum()
                self._require(is_so and not job.is_open, job.subject, f"job {job.id}", job.tenant)
                yield job, fields, _moment(line)

    def _entries(self) -> Iterator[dict[str, Any]]:
        for line in self._archive.lines("cache.jsonl"):
            kind, _, rest = str(line.get("key")).partition(":")
            if kind not in CACHED:
                raise damaged("an entry of the cache is none")
            if rest.partition(":")[0] in self._subjects:
                yield line

    def _require(self, is_so: bool, subject: str, what: str, tenant: str) -> None:  # noqa: FBT001 -- what is asserted
        if not is_so or subject not in self._subjects or not is_tenant_name(tenant):
            raise damaged(f"{what} is not what its id says, or lacks what it is about")

    def _dataset(self, dataset: Dataset) -> str:
        known = self._here.datasets.get(dataset.id)
        if known is not None:
            return self._named(known, dataset, self._here.datasets.rename)
        if not self._does.dry:
            with contextlib.ExitStack() as held:
                ends = (".npy", *(f".{name}.npy" for name in dataset.extras))
                files = {end: held.enter_context(self._archive.open(f"datasets/{dataset.id}{end}")) for end in ends}
                self._here.datasets.put(dataset, files)
        return "restored"

    def _posterior(self, record: PosteriorRecord) -> str:
        known = self._here.posteriors.get(record.id)
        if known is not None:
            return self._named(known, record, self._here.posteriors.rename)
        if not self._does.dry:
            self._here.posteriors.record(record)
        return "restored"

    def _named(self, known: Any, kept: Any, rename: Any) -> str:
        """Return what becomes of a thing that is there already, with these names or others."""
        theirs = {"name": kept.name, "tags": kept.tags}
        if {"name": known.name, "tags": known.tags} == theirs:
            return "there already"
        if not self._does.rename:
            return "named otherwise"
        if not self._does.dry:
            rename(kept.id, theirs)
        return "restored"

    def _calibration(self, record: PosteriorRecord, found: dict[str, Any]) -> str:
        if self._here.posteriors.calibration(record.id) is not None:
            return "there already"
        if not self._does.dry:
            self._here.posteriors.calibrate(record.id, found)
        return "restored"

    def _embedding(self, record: EmbeddingRecord, until: int) -> str:
        left = until - now_ms()
        if left <= 0:
            return "expired"
        if self._here.embeddings.exists(record.recipe.id):
            return "there already"
        return "restored" if self._does.dry or self._here.embeddings.put(record, left) else "there already"

    def _job(self, job: Job, fields: dict[str, str], until: int) -> str:
        left = until - now_ms()
        if left <= 0:
            return "expired"
        if self._here.jobs.get(job.id) is not None:
            return "there already"
        return "restored" if self._does.dry or put_job(self._here.client, fields, left) else "there already"

    def _keys(self) -> None:
        if "keys.json" not in self._archive:
            return
        with self._archive.open("keys.json") as file:
            try:
                keys = parse_keys(file.read())
            except (ValueError, KeyError, TypeError) as error:
                raise damaged("its keys are no keys") from error
        there = {key.id for key in self._here.keys.all()}
        mine = [key for key in keys.values() if self._chosen.has(key.tenant)]
        for key in mine:
            self._report.count("keys", "there already" if key.id in there else "restored")
        if not self._does.dry and mine:
            self._here.keys.put(mine)

    def _entry(self, line: dict[str, Any]) -> str:
        key, meta, members = versioned(str(line["key"])), line.get("meta"), line.get("arrays")
        if not isinstance(meta, dict) or not isinstance(members, dict):
            raise damaged("an entry of the cache is none")
        if not all(str(member) in self._archive for member in members.values()):
            raise damaged("an entry of the cache lacks its arrays")
        if all(self._here.cache.contains([key])):
            return "there already"
        arrays = {name: array_in(self._archive, member) for name, member in members.items()}
        if not self._does.dry:
            self._here.cache.put(key, meta, arrays)
        return "restored"


def _moment(line: dict[str, Any]) -> int:
    until = line.get("until")
    if not isinstance(until, int):
        raise damaged("a record does not say until when it is kept")
    return until
