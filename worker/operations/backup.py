"""Backups: all user data in one file, taken while the service runs, and their restoration.

The file is a plain tar of npy and JSON files, sealed by its last member, the manifest:

    README.txt                     how to read it without glle
    files/<id>/values.npy, ...     the arrays of a data set
    datasets.jsonl, ...            records, one a line: data sets, posteriors, embeddings; API keys with `--keys`
    manifest.json                  versions, counts, and size and SHA-256 of each other member

It is not compressed, because floating-point numbers hardly compress: so no member is larger than the file. It is
written and read in pieces. Data are written before the records that refer to them, so no record lacks its data. A
restoration validates the whole file first, and existing data stay as they are: ids are digests of the content.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import re
import tarfile
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Any, cast

import glle_engine
from worker.base.clock import now_iso
from worker.base.problems import refuse
from worker.base.versions import check_schema, stamp
from worker.records.dataset import Dataset
from worker.records.ids import dataset_id, is_tenant_name
from worker.storage.object_store.files import DamagedFileError, pieces_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import redis
    from _typeshed import SupportsWrite

    from worker.base.problems import ProblemError
    from worker.records.stored_file import StoredFile
    from worker.storage.records import RecordKind, RecordStore
    from worker.stores import Stores

PIECE = 2**20  # bytes
MAX_LINE = 64 * 2**20  # bytes of one record
MANIFEST = "manifest.json"
README = "README.txt"
_NAMES = re.compile(
    r"README\.txt|(datasets|posteriors|embeddings|keys)\.jsonl"
    r"|files/ds_[0-9a-f]{32}/(values|labels|color|coordinates|ids)\.npy"
)
_README = """A backup of glle (`glle restore` reads it). Without glle:
files/*/*.npy: numpy.load. *.jsonl: their records, and others, a JSON object a line.
manifest.json: bytes and SHA-256 of every other file; `tar xf` and `sha256sum` are enough to check them.
"""
LATEST_BACKUP = "glle:backup"  # in the queue's Redis: Unix time of the latest complete backup
log = logging.getLogger(__name__)
COLUMNS = ("in the backup", "restored", "there already")


def member_of(id_: str, file: str) -> str:
    """Return the name of the member that has a file of a record, such as ``values.npy``."""
    return f"files/{id_}/{file}"


class Writer:
    """Writer of an archive to a file that takes bytes in order, without seeking."""

    def __init__(self, file: SupportsWrite[bytes]) -> None:
        # The GNU format allows members beyond 8 GB, and each header stands before its member.
        self._tar = tarfile.open(fileobj=cast("IO[bytes]", file), mode="w|", format=tarfile.GNU_FORMAT)  # noqa: SIM115 # closed by `seal`
        self._members: dict[str, dict[str, Any]] = {}
        self.add(README, io.BytesIO(_README.encode()), len(_README))

    def add(self, name: str, source: IO[bytes], size: int) -> None:
        """Add a member with the next `size` bytes of a source."""
        assert _NAMES.fullmatch(name), name
        assert name not in self._members, name
        hashing = _HashingReader(source)
        self._tar.addfile(_header(name, size), hashing)
        self._members[name] = {"bytes": size, "sha256": hashing.sha256.hexdigest()}

    @contextmanager
    def lines(self, name: str) -> Iterator[Callable[[dict[str, Any]], None]]:
        """Add a member of JSON lines, buffered in a temporary file; yield the function that writes a line."""
        with tempfile.TemporaryFile() as file:

            def write(record: dict[str, Any]) -> None:
                file.write(json.dumps(record, allow_nan=False).encode() + b"\n")

            yield write
            size = file.tell()
            file.seek(0)
            self.add(name, file, size)

    def seal(self, **facts: Any) -> None:
        """Write the manifest, and the end."""
        manifest = {
            "backup": "glle",
            "glle": glle_engine.__version__,
            "created": now_iso(),
            **facts,
            "members": self._members,
        }
        raw = json.dumps(stamp(manifest), indent=1, allow_nan=False).encode()
        self._tar.addfile(_header(MANIFEST, len(raw)), io.BytesIO(raw))
        self._tar.close()


class _HashingReader:
    """A file that is read once, and the digest of the bytes read."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self.sha256 = hashlib.sha256()

    def read(self, size: int = -1, /) -> bytes:
        piece = self._source.read(size)
        self.sha256.update(piece)
        return piece


class Archive:
    """An archive in a seekable file, whose members match its `manifest`.

    Raises ``backup-unreadable`` for a file that is no archive of glle, cut off, changed, or has foreign members, and
    ``other-schema``.
    """

    def __init__(self, file: IO[bytes]) -> None:
        try:
            self._tar = tarfile.open(fileobj=file, mode="r:")  # noqa: SIM115 # closed with its file
            self._infos = self._verify()
        except (
            tarfile.TarError, EOFError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError,
        ) as error:  # fmt: skip
            raise damaged_archive(f"{type(error).__name__}: {error}") from error

    def _verify(self) -> dict[str, tarfile.TarInfo]:
        """Set the manifest, and return the members by name, each compared with it."""
        infos: dict[str, tarfile.TarInfo] = {}
        members: dict[str, dict[str, Any]] = {}
        for info in self._tar:
            is_regular = info.isreg() and not info.issparse()
            if MANIFEST in infos or info.name in infos or not is_regular:
                raise damaged_archive(f"{info.name!r} is no member of a backup")
            if info.name != MANIFEST:
                if not _NAMES.fullmatch(info.name):
                    raise damaged_archive(f"{info.name!r} is no member of a backup")
                members[info.name] = {"bytes": info.size, "sha256": self._digest(info)}
            infos[info.name] = info
        if MANIFEST not in infos:
            raise damaged_archive("it has no manifest, so its end is missing")
        manifest = json.loads(self._file(infos.pop(MANIFEST)).read())
        if not isinstance(manifest, dict) or manifest.get("backup") != "glle":
            raise damaged_archive("its manifest is not of glle")
        self.manifest = check_schema("The backup", manifest)
        if not all(isinstance(self.manifest[name], str) for name in ("glle", "numbers", "created")) or not all(
            isinstance(count, int) for count in self.manifest["counts"].values()
        ):
            raise damaged_archive("its manifest is not of glle")
        if (listed := self.manifest["members"]) != members:
            names = sorted(name for name in {*listed, *members} if listed.get(name) != members.get(name))
            raise damaged_archive(f"{len(names)} members differ from the manifest: {', '.join(names[:5])}")
        return infos

    def _digest(self, info: tarfile.TarInfo) -> str:
        file, sha256, size = self._file(info), hashlib.sha256(), 0
        while piece := file.read(PIECE):
            sha256.update(piece)
            size += len(piece)
        if size != info.size:
            raise damaged_archive(f"{info.name!r} is cut off")
        return sha256.hexdigest()

    def _file(self, info: tarfile.TarInfo) -> IO[bytes]:
        file = self._tar.extractfile(info)
        assert file is not None
        return file

    def __contains__(self, name: str) -> bool:
        """Return whether a member of this name exists."""
        return name in self._infos

    def open(self, name: str) -> IO[bytes]:
        """Return a member as a readable file; raises KeyError."""
        return self._file(self._infos[name])

    def sha256(self, name: str) -> str | None:
        """Return the digest of a member, or None if it is missing."""
        return self.manifest["members"][name]["sha256"] if name in self else None

    def size(self, name: str) -> int:
        """Return the bytes of a member."""
        return self._infos[name].size

    def lines(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the objects of a member of JSON lines, none if the member is missing."""
        if name not in self:
            return
        with self.open(name) as file:
            while line := file.readline(MAX_LINE):
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise damaged_archive(f"a line of {name} is no JSON") from error
                if not isinstance(record, dict):
                    raise damaged_archive(f"a line of {name} is no object")
                yield record


def damaged_archive(why: str) -> ProblemError:
    """Return the refusal of a file that is no complete backup."""
    remedy = "Nothing was changed. Take another backup, or fetch this one again."
    return refuse("backup-unreadable", 422, f"This file is no backup of glle, or is damaged: {why}.", remedy)


def _header(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, 0o600, int(time.time())
    return info


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


def dump(stores: Stores, archive: Writer, scope: BackupScope) -> tuple[dict[str, int], list[str]]:
    """Write a backup; return the number of records of each kind in it, and the ids of those whose files are lost.

    Records of data that were deleted or added meanwhile are left out, and so are those of lost data.
    """
    counts = {kind.name: 0 for kind in KINDS}
    written: set[str] = set()
    lost: list[str] = []
    for kind in scope.kinds:
        before = len(written)
        records = kind.records(stores)
        with archive.lines(kind.member) as write:
            for id_, raw in records.all():
                record = records.kind.load(id_, raw)
                is_included = scope.has(record.tenant) and written.issuperset(kind.needs(record))
                if not is_included or id_ in written:
                    continue
                if _add_files(stores, archive, id_, kind.files(record)):
                    write(json.loads(raw))
                    written.add(id_)
                elif records.exists(id_):  # otherwise it was deleted meanwhile
                    log.error("The files of %s are missing or damaged: it is left out of the backup.", id_)
                    lost.append(id_)
        counts[kind.name] = len(written) - before
    tenants = None if scope.tenants is None else sorted(scope.tenants)
    archive.seal(numbers=stores.numbers, tenants=tenants, keys=scope.keys, counts=counts)
    return counts, lost


def record_backup(client: redis.Redis) -> None:
    """Record the time of a complete backup, which the metrics report."""
    client.set(LATEST_BACKUP, int(client.time()[0]))


def _add_files(stores: Stores, archive: Writer, id_: str, files: Mapping[str, StoredFile]) -> bool:
    """Add the files of a record; return False if one is missing or damaged."""
    with contextlib.ExitStack() as stack:
        try:
            opened = {file: stack.enter_context(stores.datasets.files.path(file).open("rb")) for file in files.values()}
        except (FileNotFoundError, DamagedFileError):
            return False
        for file, source in opened.items():
            archive.add(member_of(id_, PurePosixPath(file.path).name), source, file.size)
    return True


Report = dict[str, dict[str, int]]  # numbers by kind of record, then by `COLUMNS`


def restore(stores: Stores, archive: Archive, scope: BackupScope, *, dry: bool = False) -> Report:
    """Restore the part of an archive that is missing; return the report. A `dry` run changes nothing.

    Raises ``backup-unreadable``, ``other-schema`` and the like, before anything is changed.
    """
    report = _restore_missing(stores, archive, scope, dry=True)
    return report if dry else _restore_missing(stores, archive, scope, dry=False)


def _restore_missing(stores: Stores, archive: Archive, scope: BackupScope, *, dry: bool) -> Report:
    """Validate an archive, and restore what is missing or damaged, data before the records that refer to them."""
    report = {kind.name: dict.fromkeys(COLUMNS, 0) for kind in KINDS}
    restored: set[str] = set()
    for kind in scope.kinds:
        records = kind.records(stores)
        for record in _included_records(records.kind, archive, kind, scope):
            if not restored.issuperset(kind.needs(record)):
                raise damaged_archive(f"the {records.kind.title} {record.id} lacks its data")
            restored.add(record.id)
            existing = records.get(record.id)
            is_present = existing is not None and stores.datasets.files.is_intact(kind.files(existing).values())
            if not is_present and not dry:
                _write(stores, archive, records, record)
            report[kind.name]["in the backup"] += 1
            report[kind.name]["there already" if is_present else "restored"] += 1
    return report


def _included_records(loads: RecordKind[Any], archive: Archive, kind: BackupKind, scope: BackupScope) -> Iterator[Any]:
    """Yield the records of a kind in a scope, each with its files in the archive."""
    for line in archive.lines(kind.member):
        record = loads.load(str(line.get("id", "?")), json.dumps(line))
        if not is_tenant_name(record.tenant):
            raise damaged_archive(f"the {loads.title} {record.id} has no tenant")
        if not scope.has(record.tenant):
            continue
        digests = {
            member_of(record.id, PurePosixPath(path).name): file.sha256 for path, file in kind.files(record).items()
        }
        has_id = not isinstance(record, Dataset) or record.id == dataset_id(record.sha256, record.tenant)
        if not has_id or any(archive.sha256(member) != sha256 for member, sha256 in digests.items()):
            raise damaged_archive(f"the {loads.title} {record.id} lacks files, or does not match its id")
        yield record


def _write(stores: Stores, archive: Archive, records: RecordStore[Any], record: Any) -> None:
    """Write a record with its files."""
    match record:
        case Dataset():
            members = {name: member_of(record.id, f"{name}.npy") for name in record.stored}
            with contextlib.ExitStack() as stack:
                files = {name: stack.enter_context(archive.open(member)) for name, member in members.items()}
                sources = {name: (pieces_of(file), archive.size(members[name])) for name, file in files.items()}
                stores.datasets.put(record, sources)
        case _:
            records.create(record)
