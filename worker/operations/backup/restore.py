"""Restoring a backup: it is validated completely first, and existing data stay as they are.

Ids are digests of the content, so equal ids mean equal content; only names and tags may differ.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from worker.operations.backup.archive import Archive, damaged_archive, member_of
from worker.operations.backup.dump import KINDS, BackupKind, BackupScope
from worker.records.dataset import Dataset
from worker.records.ids import dataset_id, is_tenant_name
from worker.storage.imported_posteriors import NAME
from worker.storage.object_store.files import pieces_of
from worker.storage.posteriors import PosteriorRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.stores import Stores

COLUMNS = ("in the backup", "restored", "there already", "named otherwise")
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
        report = {name: dict.fromkeys(COLUMNS, 0) for name in (kind.name for kind in KINDS)}
        for kind in self._scope.kinds:
            for record in self._records(kind):
                self._count(report[kind.name], self._restore(kind, record))
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
            if not self._is_intact(kind, record):
                raise damaged_archive(f"the {loads.title} {record.id} lacks files, or does not match its id")
            self._ids.add(record.id)
            yield record

    def _is_intact(self, kind: BackupKind, record: Any) -> bool:
        """Return whether the archive has the files of a record, with their digests, and a data set has its id."""
        if isinstance(record, Dataset) and record.id != dataset_id(record.sha256, record.tenant):
            return False
        digests = {
            member_of(record.id, PurePosixPath(path).name): file.sha256 for path, file in kind.files(record).items()
        }
        return all(self._archive.sha256(member) == sha256 for member, sha256 in digests.items())

    def _restore(self, kind: BackupKind, record: Any) -> str:
        """Restore a record with its files, or its names; return the column of the outcome."""
        stores, records = self._stores, kind.records(self._stores)
        existing = records.get(record.id)
        is_present = existing is not None and stores.datasets.files.is_intact(kind.files(existing).values())
        if is_present:
            return self._restore_names(kind, existing, record)
        if not self._is_dry_run:
            self._write(kind, record)
        return "restored"

    def _write(self, kind: BackupKind, record: Any) -> None:
        stores, archive = self._stores, self._archive
        match record:
            case Dataset():
                members = {name: member_of(record.id, f"{name}.npy") for name in record.stored}
                with contextlib.ExitStack() as stack:
                    files = {name: stack.enter_context(archive.open(member)) for name, member in members.items()}
                    sources = {name: (pieces_of(file), archive.size(members[name])) for name, file in files.items()}
                    stores.datasets.put(record, sources)
            case PosteriorRecord(is_imported=True):
                member = member_of(record.id, NAME)
                with archive.open(member) as file:
                    stores.imports.add(stores.posteriors, record, file, archive.size(member))
            case PosteriorRecord():
                stores.posteriors.record(record)
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
