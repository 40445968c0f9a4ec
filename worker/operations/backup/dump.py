"""Taking a backup while the service runs: data first, then the records that refer to them.

So no record in a backup lacks its data.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, TypeVar

import numpy as np

from worker.base.clock import now_ms
from worker.base.versions import versioned
from worker.operations.backup.archive import member_of
from worker.records.draws import DRAW, LANE_GROUP
from worker.records.job import job_from
from worker.storage.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.operations.backup.archive import Writer
    from worker.records.cache_entry import Array
    from worker.records.dataset import Dataset
    from worker.storage.posteriors import PosteriorRecord
    from worker.storage.records import RecordStore
    from worker.stores import Stores

    Write = Callable[[dict[str, Any]], None]

R = TypeVar("R", bound=Record)
CACHED = ("posterior", DRAW, "result")  # the kinds of saved keys, which the subject follows
KINDS = ("data sets", "posteriors", "embeddings", "jobs", "keys", "cached arrays")


@dataclass(frozen=True, kw_only=True)
class BackupScope:
    """The part of a deployment that is backed up or restored."""

    tenants: frozenset[str] | None = None  # None: all
    arrays: bool = False  # of the cache
    keys: bool = False  # of the API

    def has(self, tenant: str) -> bool:
        """Return whether a tenant's data are included."""
        return self.tenants is None or tenant in self.tenants


def dump(stores: Stores, archive: Writer, scope: BackupScope) -> dict[str, int]:
    """Write a backup; return the number of each of `KINDS` in it.

    Records of data that were deleted or added meanwhile are left out, as are open jobs.
    """
    return _Dump(stores, archive, scope).run()


class _Dump:
    """One backup: the ids and counts of its content so far."""

    def __init__(self, stores: Stores, archive: Writer, scope: BackupScope) -> None:
        self._stores = stores
        self._archive = archive
        self._scope = scope
        self._datasets: set[str] = set()
        self._subjects: set[str] = set()  # data sets and posteriors
        self._counts = dict.fromkeys(KINDS, 0)

    def run(self) -> dict[str, int]:
        archive, scope = self._archive, self._scope
        self._datasets = self._write_records("data sets", self._stores.datasets, self._add_dataset)
        posteriors = self._write_records("posteriors", self._stores.posteriors, self._is_complete)
        self._subjects = self._datasets | posteriors
        embeddings = self._stores.embeddings
        self._write_records("embeddings", embeddings, lambda record: record.recipe.dataset in self._datasets)
        with archive.lines("jobs.jsonl") as write:
            self._write_jobs(write)
        if scope.keys:
            self._write_records("keys", self._stores.keys.records, lambda _: True)
        if scope.arrays:
            with archive.lines("cache.jsonl") as write:
                self._write_arrays(write)
        tenants = None if scope.tenants is None else sorted(scope.tenants)
        numbers = self._stores.numbers
        archive.seal(numbers=numbers, tenants=tenants, arrays=scope.arrays, keys=scope.keys, counts=self._counts)
        return self._counts

    def _write_records(self, kind: str, records: RecordStore[R], is_included: Callable[[R], bool]) -> set[str]:
        """Write the included records of a kind; return their ids."""
        written: set[str] = set()
        with self._archive.lines(f"{kind.replace(' ', '')}.jsonl") as write:
            for id_, raw in records.all():
                record = records.kind.load(id_, raw)
                if id_ not in written and self._scope.has(record.tenant) and is_included(record):
                    write({"id": id_, "record": json.loads(raw)})
                    written.add(id_)
        self._counts[kind] = len(written)
        return written

    def _is_complete(self, record: PosteriorRecord) -> bool:
        return self._add_import(record) if record.is_imported else self._datasets.issuperset(record.datasets)

    def _add_dataset(self, dataset: Dataset) -> bool:
        """Add the files of a data set; return False if it was deleted meanwhile."""
        with self._stores.datasets.opened(dataset) as files:
            for name, file in files.items():
                self._archive.add(member_of(dataset.id, name), file, _size(file))
            return bool(files)

    def _add_import(self, record: PosteriorRecord) -> bool:
        """Add the file of an imported posterior; return False if it was deleted meanwhile."""
        with self._stores.imports.opened(record) as file:
            if file is not None:
                self._archive.add(f"posteriors/{record.id}.npz", file, _size(file))
            return file is not None

    def _write_jobs(self, write: Write) -> None:
        written: set[str] = set()
        for id_, fields, ttl_ms in self._stores.jobs.all_ended():
            job = job_from(fields)
            is_included = not job.is_open and job.subject in self._subjects and self._scope.has(job.tenant)
            if is_included and id_ not in written:
                write({"id": id_, "record": fields, "until": now_ms() + ttl_ms})
                written.add(id_)
        self._counts["jobs"] = len(written)

    def _write_arrays(self, write: Write) -> None:
        """Write the cache entries of included subjects one by one; entries evicted meanwhile are left out."""
        number, written = 0, set[str]()
        for key in self._cache_keys():
            is_included = key.split(":")[1] in self._subjects and key not in written
            if not is_included or (entry := self._stores.cache.get(versioned(key))) is None:
                continue
            written.add(key)
            members = {}
            for name, array in entry.arrays.items():
                members[name] = f"cache/{number}.npy"
                with _npy(array) as file:
                    self._archive.add(members[name], file, file.getbuffer().nbytes)
                number += 1
            write({"key": key, "meta": entry.meta, "arrays": members})
        self._counts["cached arrays"] = len(written)

    def _cache_keys(self) -> Iterator[str]:
        """Yield the keys of the cache's entries without the schema's prefix; each draw has one."""
        prefix = versioned("")
        for kind in ("posterior", "result", LANE_GROUP):
            for key in self._stores.cache.cached_keys(kind):
                yield key.removeprefix(prefix)


def _size(file: IO[bytes]) -> int:
    """Return the bytes of a file, positioned at its start then."""
    nbytes = file.seek(0, io.SEEK_END)
    file.seek(0)
    return nbytes


def _npy(array: Array) -> io.BytesIO:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=False)
    file.seek(0)
    return file
