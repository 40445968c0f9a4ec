"""Restoring a backup: it is validated completely first, and existing data stay as they are.

Ids are digests of the content, so equal ids mean equal content; only names and tags may differ.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worker.base.clock import now_ms
from worker.operations.backup.archive import Archive, damaged_archive, member_of
from worker.operations.backup.dump import JOBS, JOBS_MEMBER, KINDS, BackupKind, BackupScope
from worker.records.dataset import VALUES, Dataset
from worker.records.ids import content_sha256, is_tenant_name
from worker.records.job import job_from
from worker.storage.imported_posteriors import NAME, read_verified
from worker.storage.integrity import has_digest
from worker.storage.object_store.data_files import pieces_of
from worker.storage.posteriors import PosteriorRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.records.job import Job
    from worker.stores import Stores

COLUMNS = ("in the backup", "restored", "there already", "named otherwise", "expired")
Report = dict[str, dict[str, int]]  # numbers by kind of record, then by `COLUMNS`


def restore(stores: Stores, archive: Archive, scope: BackupScope, *, rename: bool = False, dry: bool = False) -> Report:
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
        self._ids: set[str] = set()  # of the validated records

    def run(self) -> Report:
        """Visit data before the records that refer to them."""
        report = {name: dict.fromkeys(COLUMNS, 0) for name in (*(kind.name for kind in KINDS), JOBS)}
        for kind in self._scope.kinds:
            for record in self._records(kind):
                self._count(report[kind.name], self._restore(kind, record))
        for job, fields, until in self._jobs():
            self._count(report[JOBS], self._restore_job(job, fields, until))
        return report

    @staticmethod
    def _count(row: dict[str, int], outcome: str) -> None:
        row["in the backup"] += 1
        row[outcome] += 1

    def _records(self, kind: BackupKind) -> Iterator[Any]:
        """Yield the validated records of a kind in the scope."""
        loads = kind.records(self._stores).kind
        for line in self._archive.lines(kind.member):
            record = loads.load(str(line.get("id", "?")), json.dumps(line))
            if not is_tenant_name(record.tenant):
                raise damaged_archive(f"the {loads.title} {record.id} has no tenant")
            if not self._scope.has(record.tenant):
                continue
            if not self._ids.issuperset(kind.needs(record)):
                raise damaged_archive(f"the {loads.title} {record.id} lacks its data")
            if not self._is_intact(record):
                raise damaged_archive(f"the {loads.title} {record.id} lacks files, or does not match its id")
            self._ids.add(record.id)
            yield record

    def _is_intact(self, record: Any) -> bool:
        """Return whether the archive has the files of a record, and the digest in its id."""
        match record:
            case Dataset():
                return has_digest(record, lambda name: self._archive.open(member_of(record.id, f"{name}.npy")))
            case PosteriorRecord(is_imported=True):
                return self._is_intact_import(record)
        return True

    def _is_intact_import(self, record: PosteriorRecord) -> bool:
        member = member_of(record.id, NAME)
        if member not in self._archive:
            return False
        with self._archive.open(member) as source, tempfile.NamedTemporaryFile(suffix=".npz") as file:
            shutil.copyfileobj(source, file)
            file.flush()
            posterior = read_verified(Path(file.name), record.id, record.tenant)
        return posterior is not None and content_sha256({}, posterior.arrays()) == record.arrays_sha256

    def _jobs(self) -> Iterator[tuple[Job, dict[str, str], int]]:
        for line in self._archive.lines(JOBS_MEMBER):
            fields, until = line.get("record"), line.get("until")
            if not isinstance(fields, dict) or not all(isinstance(value, str) for value in fields.values()):
                raise damaged_archive("a job's record is no record")
            job = job_from(fields)
            if self._scope.has(job.tenant):
                is_id = job.id.startswith("job_") and job.id[4:].isalnum()
                if not is_id or job.is_open or not is_tenant_name(job.tenant) or not isinstance(until, int):
                    raise damaged_archive(f"the record of job {job.id} is not that of an ended job")
                if job.subject not in self._ids:
                    raise damaged_archive(f"job {job.id} lacks its data")
                yield job, fields, until

    def _restore(self, kind: BackupKind, record: Any) -> str:
        """Restore a record with its files, or its names; return the column of the outcome."""
        stores, records = self._stores, kind.records(self._stores)
        existing = records.get(record.id)
        match existing:
            case Dataset():
                is_present = stores.datasets.is_intact(existing)
            case PosteriorRecord(is_imported=True):
                is_present = stores.imports.is_intact(existing)
            case _:
                is_present = existing is not None
        if is_present:
            return self._restore_names(kind, existing, record)
        if not self._is_dry_run:
            self._write(kind, record)
        return "restored"

    def _write(self, kind: BackupKind, record: Any) -> None:
        stores, archive = self._stores, self._archive
        match record:
            case Dataset():
                members = {name: member_of(record.id, f"{name}.npy") for name in (VALUES, *record.extras)}
                with contextlib.ExitStack() as stack:
                    files = {name: stack.enter_context(archive.open(member)) for name, member in members.items()}
                    sources = {name: (pieces_of(file), archive.size(members[name])) for name, file in files.items()}
                    stores.datasets.put(record, sources)
            case PosteriorRecord(is_imported=True):
                member = member_of(record.id, NAME)
                stores.cache.create_index(record.id)
                with archive.open(member) as file:
                    stores.imports.add(stores.posteriors, record, file, archive.size(member))
            case PosteriorRecord():
                stores.posteriors.record(replace(record, file=None, file_bytes=0))
            case _:
                kind.records(stores).create(record)

    def _restore_names(self, kind: BackupKind, existing: Any, record: Any) -> str:
        if (existing.name, existing.tags) == (record.name, record.tags):
            return "there already"
        if not self._renames:
            return "named otherwise"
        if not self._is_dry_run:
            kind.records(self._stores).rename(record.id, {"name": record.name, "tags": record.tags})
        return "restored"

    def _restore_job(self, job: Job, fields: dict[str, str], until: int) -> str:
        jobs, ttl_ms = self._stores.jobs, until - now_ms()
        if ttl_ms <= 0:
            return "expired"
        is_new = jobs.get(job.id) is None and (self._is_dry_run or jobs.put(fields, ttl_ms))
        return "restored" if is_new else "there already"
