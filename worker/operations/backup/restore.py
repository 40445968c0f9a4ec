"""Restoring a backup: it is validated completely first, and existing data stay as they are.

Ids are digests of the content, so equal ids mean equal content; only names and tags may differ.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from worker.base.clock import now_ms
from worker.base.versions import versioned
from worker.operations.backup.archive import Archive, damaged, member_of
from worker.operations.backup.dump import CACHED, KINDS, BackupScope
from worker.operations.backup.validate import array_in, require_dataset, require_import
from worker.records.dataset import VALUES
from worker.records.ids import is_tenant_name
from worker.records.job import job_from
from worker.storage.array_cache import HEAD
from worker.storage.object_store.data_files import pieces_of
from worker.storage.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.records.dataset import Dataset
    from worker.records.job import Job
    from worker.storage.posteriors import PosteriorRecord
    from worker.storage.records import RecordStore
    from worker.stores import Stores

R = TypeVar("R", bound=Record)
COLUMNS = ("in the backup", "restored", "there already", "named otherwise", "expired")


class RestoreReport:
    """The number of each of `KINDS` in the backup, and of each outcome: `rows` by kind, then by `COLUMNS`."""

    def __init__(self) -> None:
        self.rows = {kind: dict.fromkeys(COLUMNS, 0) for kind in KINDS}

    def count(self, kind: str, outcome: str) -> None:
        """Count one object."""
        self.rows[kind]["in the backup"] += 1
        self.rows[kind][outcome] += 1


def restore(
    stores: Stores, archive: Archive, scope: BackupScope, *, rename: bool = False, dry: bool = False
) -> RestoreReport:
    """Restore a part of an archive; return the report.

    With `rename`, existing data get the names and tags of the backup. A `dry` run changes nothing.

    Raises ``backup-unreadable``, ``other-schema`` and the like, before anything is changed.
    """
    report = _Restoration(stores, archive, scope, rename=rename, dry=True).run()
    return report if dry else _Restoration(stores, archive, scope, rename=rename, dry=False).run()


class _Restoration:
    """One pass over an archive, to validate or to restore it."""

    def __init__(self, stores: Stores, archive: Archive, scope: BackupScope, *, rename: bool, dry: bool) -> None:
        self._stores = stores
        self._archive = archive
        self._scope = scope
        self._renames = rename
        self._is_dry_run = dry
        self._report = RestoreReport()
        self._subjects: set[str] = set()

    def run(self) -> RestoreReport:
        """Visit data before the records that refer to them."""
        count = self._report.count
        for dataset in self._datasets():
            self._subjects.add(dataset.id)
            count("data sets", self._restore_dataset(dataset))
        for record in self._posteriors():
            self._subjects.add(record.id)
            count("posteriors", self._restore_posterior(record))
        for embedding in self._records("embeddings", self._stores.embeddings):
            self._require(f"embedding {embedding.id}", embedding.recipe.dataset)
            count("embeddings", self._restore_record(self._stores.embeddings, embedding))
        for job, fields, until in self._jobs():
            count("jobs", self._restore_job(job, fields, until))
        keys = self._stores.keys.records
        for key in self._records("keys", keys) if self._scope.keys else ():
            count("keys", self._restore_record(keys, key))
        if self._scope.arrays:
            for line in self._entries():
                count("cached arrays", self._restore_entry(line))
        return self._report

    def _datasets(self) -> Iterator[Dataset]:
        for dataset in self._records("datasets", self._stores.datasets):
            require_dataset(self._archive, dataset)
            yield dataset

    def _records(self, kind: str, records: RecordStore[R]) -> Iterator[R]:
        """Yield the records of a kind in the scope."""
        for line in self._archive.lines(f"{kind}.jsonl"):
            id_ = str(line.get("id"))
            record = records.kind.load(id_, json.dumps(line.get("record")))
            if record.id != id_ or not is_tenant_name(record.tenant):
                raise damaged(f"the {records.kind.title} {id_} does not match its id")
            if self._scope.has(record.tenant):
                yield record

    def _posteriors(self) -> Iterator[PosteriorRecord]:
        for record in self._records("posteriors", self._stores.posteriors):
            if record.is_imported:  # its data set may be elsewhere
                require_import(self._archive, record)
            self._require(f"posterior {record.id}", *record.datasets)
            yield record

    def _jobs(self) -> Iterator[tuple[Job, dict[str, str], int]]:
        for line in self._archive.lines("jobs.jsonl"):
            fields = line.get("record")
            if not isinstance(fields, dict) or not all(isinstance(value, str) for value in fields.values()):
                raise damaged("a job's record is no record")
            job = job_from(fields)
            if self._scope.has(job.tenant):
                is_job = job.id == line.get("id") and job.id.startswith("job_") and job.id[4:].isalnum()
                if not is_job or job.is_open or not is_tenant_name(job.tenant):
                    raise damaged(f"job {job.id} does not match its id")
                self._require(f"job {job.id}", job.subject)
                yield job, fields, _expiry(line)

    def _entries(self) -> Iterator[dict[str, Any]]:
        for line in self._archive.lines("cache.jsonl"):
            kind, _, rest = str(line.get("key")).partition(":")
            if kind not in CACHED:
                raise damaged("an entry of the cache is none")
            if rest.partition(":")[0] in self._subjects and not rest.endswith(HEAD):  # of a draw in an object store
                yield line

    def _require(self, name: str, *subjects: str) -> None:
        if not self._subjects.issuperset(subjects):
            raise damaged(f"{name} lacks its data")

    def _restore_dataset(self, dataset: Dataset) -> str:
        datasets = self._stores.datasets
        if (existing := datasets.get(dataset.id)) is not None and datasets.is_intact(existing):
            return self._restore_names(existing, dataset, datasets.rename)
        if not self._is_dry_run:
            with contextlib.ExitStack() as stack:
                sources = {}
                for name in (VALUES, *dataset.extras):
                    member = member_of(dataset.id, name)
                    file = stack.enter_context(self._archive.open(member))
                    sources[name] = pieces_of(file), self._archive.size(member)
                datasets.put(dataset, sources)
        return "restored"

    def _restore_posterior(self, record: PosteriorRecord) -> str:
        posteriors, imports = self._stores.posteriors, self._stores.imports
        existing = posteriors.get(record.id)
        if existing is not None and record.calibration is not None and not self._is_dry_run:
            posteriors.calibrate(record.id, record.calibration)
        if existing is not None and (not record.is_imported or imports.is_intact(existing)):
            return self._restore_names(existing, record, posteriors.rename)
        if not self._is_dry_run and record.is_imported:
            member = f"posteriors/{record.id}.npz"
            self._stores.cache.create_index(record.id)
            with self._archive.open(member) as file:
                imports.add(posteriors, record, file, self._archive.size(member))
        elif not self._is_dry_run:
            posteriors.record(replace(record, file=None, file_bytes=0))
        return "restored"

    def _restore_names(self, existing: Any, saved: Any, rename: Callable[[str, dict[str, Any]], object]) -> str:
        names = {"name": saved.name, "tags": saved.tags}
        if {"name": existing.name, "tags": existing.tags} == names:
            return "there already"
        if not self._renames:
            return "named otherwise"
        if not self._is_dry_run:
            rename(saved.id, names)
        return "restored"

    def _restore_record(self, records: RecordStore[R], record: R) -> str:
        is_new = not records.exists(record.id) and (self._is_dry_run or records.create(record))
        return "restored" if is_new else "there already"

    def _restore_job(self, job: Job, fields: dict[str, str], until: int) -> str:
        jobs = self._stores.jobs
        ttl_ms = until - now_ms()
        if ttl_ms <= 0:
            return "expired"
        is_new = jobs.get(job.id) is None and (self._is_dry_run or jobs.put(fields, ttl_ms))
        return "restored" if is_new else "there already"

    def _restore_entry(self, line: dict[str, Any]) -> str:
        key, metadata, members = str(line["key"]), line.get("meta"), line.get("arrays")
        if not isinstance(metadata, dict) or not isinstance(members, dict):
            raise damaged("an entry of the cache is none")
        if not all(str(member) in self._archive for member in members.values()):
            raise damaged("an entry of the cache lacks its arrays")
        try:
            is_present = self._stores.cache.contains([versioned(key)])[0]
        except ValueError as error:
            raise damaged("a draw of the cache has no address") from error
        if is_present:
            return "there already"
        arrays = {name: array_in(self._archive, member) for name, member in members.items()}
        if not self._is_dry_run:
            self._stores.cache.put(versioned(key), metadata, arrays)
        return "restored"


def _expiry(line: dict[str, Any]) -> int:
    until = line.get("until")
    if not isinstance(until, int):
        raise damaged("a record has no time of expiry")
    return until
