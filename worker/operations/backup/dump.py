"""Taking a backup while the service runs: data first, then the records that refer to them.

So no record in a backup lacks its data.
"""

from __future__ import annotations

import contextlib
import json
import logging
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from worker.operations.backup.archive import member_of
from worker.storage.object_store.files import DamagedFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import redis

    from worker.operations.backup.archive import Writer
    from worker.records.stored_file import StoredFile
    from worker.storage.records import RecordStore
    from worker.stores import Stores


LATEST_BACKUP = "glle:backup"  # in the queue's Redis: Unix time of the latest complete backup

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class BackupKind:
    """Kind of records in a backup.

    Parameters
    ----------
    name
        Plural, in reports.
    records
        Returns their store.
    needs
        Returns the ids of the records that one refers to.
    files
        Returns the bytes of the files of one, by path.

    """

    name: str
    records: Callable[[Stores], RecordStore[Any]]
    needs: Callable[[Any], Iterable[str]] = lambda _: ()
    files: Callable[[Any], Mapping[str, StoredFile]] = lambda _: {}

    @property
    def member(self) -> str:
        """Name of the archive's member."""
        return f"{self.name.replace(' ', '')}.jsonl"


KEYS = BackupKind(name="keys", records=lambda stores: stores.keys.records)
KINDS = (
    BackupKind(name="data sets", records=lambda stores: stores.datasets, files=lambda record: record.files),
    BackupKind(
        name="posteriors",
        records=lambda stores: stores.posteriors,
        needs=lambda record: record.datasets,
        files=lambda record: record.files,
    ),
    BackupKind(
        name="embeddings", records=lambda stores: stores.embeddings, needs=lambda record: (record.recipe.dataset,)
    ),
    KEYS,
)


@dataclass(frozen=True, kw_only=True)
class BackupScope:
    """The part of a deployment that is backed up or restored."""

    tenants: frozenset[str] | None = None  # None: all
    keys: bool = False  # of the API

    @property
    def kinds(self) -> list[BackupKind]:
        """The included kinds of records."""
        return [kind for kind in KINDS if self.keys or kind is not KEYS]

    def has(self, tenant: str) -> bool:
        """Return whether a tenant's data are included."""
        return self.tenants is None or tenant in self.tenants


def dump(stores: Stores, archive: Writer, scope: BackupScope) -> dict[str, int]:
    """Write a backup; return the number of records of each kind in it.

    Records of data that were deleted or added meanwhile are left out.
    """
    counts = {kind.name: 0 for kind in KINDS}
    written: set[str] = set()
    for kind in scope.kinds:
        before = len(written)
        records = kind.records(stores)
        with archive.lines(kind.member) as write:
            for id_, raw in records.all():
                record = records.kind.load(id_, raw)
                is_included = scope.has(record.tenant) and written.issuperset(kind.needs(record))
                if is_included and id_ not in written and _add_files(stores, archive, id_, kind.files(record)):
                    write(json.loads(raw))
                    written.add(id_)
        counts[kind.name] = len(written) - before
    tenants = None if scope.tenants is None else sorted(scope.tenants)
    archive.seal(numbers=stores.numbers, tenants=tenants, keys=scope.keys, counts=counts)
    return counts


def record_backup(client: redis.Redis) -> None:
    """Record the time of a complete backup, which the metrics report."""
    client.set(LATEST_BACKUP, int(client.time()[0]))


def _add_files(stores: Stores, archive: Writer, id_: str, files: Mapping[str, StoredFile]) -> bool:
    """Add the files of a record; return False if they were deleted meanwhile, or are damaged."""
    with contextlib.ExitStack() as stack:
        try:
            opened = {file: stack.enter_context(stores.datasets.files.path(file).open("rb")) for file in files.values()}
        except FileNotFoundError:
            return False
        except DamagedFileError:
            log.error("%s is damaged, and left out of the backup: see `glle scrub`", id_)  # noqa: TRY400 # no traceback
            return False
        for file, source in opened.items():
            archive.add(member_of(id_, PurePosixPath(file.path).name), source, file.size)
    return True
