"""Data sets on disk, with ids derived from their content."""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np

from worker.base.clock import now_iso
from worker.base.files import NPY_HEADER_LOCK, locked, remove_abandoned, restrict_folder, sync_folder, temporary
from worker.base.problems import ProblemError, refuse
from worker.base.versions import dump_record
from worker.records.dataset import Array, Content, Dataset, Table, record_of
from worker.records.labels import with_labels
from worker.records.tenants import DEFAULT, dataset_id
from worker.storage.dataset_catalog import RECORD, SUFFIXES, DatasetCatalog
from worker.storage.imported_posteriors import ImportedPosteriors
from worker.storage.integrity import IntegrityChecker
from worker.storage.validation import BLOCK, checked_blocks
from worker.tenancy.quotas import too_many_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

__all__ = ["Array", "Dataset", "DatasetStore", "Table", "all_points_equal", "not_found"]

COPY_BYTES = 2**20


class DatasetStore:
    """Folder of `<id>.json` records with their `.npy` files.

    A data set exists while its record does: the record is written last and removed first.

    Parameters
    ----------
    folder
        Created by the first upload; shared by the API (read and write) and the workers (read).
    tenant
        Tenant whose data sets are visible; None: all tenants', and new ones are the default tenant's.
    most_bytes
        Quota of the tenant's files, with those of its imported posteriors; 0: no limit.
    catalog, checker
        Shared with the store of another tenant; None: new.

    """

    def __init__(
        self,
        folder: Path,
        tenant: str | None = None,
        most_bytes: int = 0,
        catalog: DatasetCatalog | None = None,
        checker: IntegrityChecker | None = None,
    ) -> None:
        self._folder = folder
        self._catalog = catalog or DatasetCatalog(folder)
        self._checker = checker or IntegrityChecker(folder)
        self._imports = ImportedPosteriors(folder.with_name("posteriors"))
        self._tenant = tenant
        self._most_bytes = most_bytes

    @classmethod
    def under(cls, data_dir: str) -> Self:
        """Return the store of a data folder."""
        return cls(Path(data_dir) / "datasets")

    def of(self, tenant: str, most_bytes: int) -> Self:
        """Return a tenant's view of the store."""
        return type(self)(self._folder, tenant, most_bytes, self._catalog, self._checker)

    def add(self, table: Table) -> tuple[Dataset, bool]:
        """Store a table; return its record and whether it is new.

        Values are stored as float64, float32 stays. They are validated and hashed in blocks, so that the memory does
        not grow with the table. An existing data set with damaged files is replaced.

        Raises
        ------
        ProblemError
            ``not-finite`` or ``inexact-integer``, with the row (from 1) and the column. ``quota-exceeded``.

        """
        tenant = self._tenant or DEFAULT
        restrict_folder(self._folder)
        n, d = table.values.shape
        dtype, extras = _stored_dtype(table), table.extras
        with temporary(self._folder) as file:
            np.lib.format.write_array_header_1_0(file, {"descr": dtype.str, "fortran_order": False, "shape": (n, d)})
            sha256 = _sha256(table, dtype, extras, file.write)
            id_ = dataset_id(sha256, tenant)
            existing = self.get(id_)
            if existing is not None and self._checker.is_intact(existing):
                sync_folder(self._folder)  # its upload may have ended between rename and fsync
                return existing, False
            dataset = Dataset(
                id=id_,
                sha256=sha256,
                n=n,
                d=d,
                dtype=dtype.name,
                nbytes=n * d * dtype.itemsize,
                names=table.names,
                has_labels=table.labels is not None,
                has_coordinates=table.coordinates is not None,
                has_color=table.color is not None,
                has_ids=table.ids is not None,
                source=table.source,
                created=now_iso(),
                tenant=tenant,
            )
            nbytes = dataset.nbytes + sum(extra.nbytes for extra in extras.values())
            # The lock excludes a concurrent deletion, which would remove some of the files.
            with self.room_for(nbytes if existing is None else 0), self._exclusive():
                if (existing := self.get(id_)) is not None:
                    if self._checker.is_intact(existing):
                        return existing, False
                    dataset = replace(dataset, created=existing.created, name=existing.name, tags=existing.tags)
                file.publish(self._path(id_, ".npy"))
                for name, extra in extras.items():
                    with temporary(self._folder) as extra_file:
                        np.lib.format.write_array(extra_file, extra, allow_pickle=False)
                        extra_file.publish(self._path(id_, f".{name}.npy"))
                self._write(dataset)
        return dataset, existing is None

    def id_of(self, table: Table) -> str:
        """Return the id of a table's data set without storing it; raises as `add` for its values."""
        return dataset_id(_sha256(table, _stored_dtype(table), table.extras), self._tenant or DEFAULT)

    def rename(self, id_: str, changes: dict[str, Any]) -> Dataset:
        """Change name and tags (`worker.records.labels.with_labels`); return the record.

        Raises
        ------
        ProblemError
            ``dataset-not-found``.

        """
        with self._exclusive():
            if (existing := self.get(id_)) is None:
                raise not_found(id_)
            self._write(dataset := with_labels(existing, changes))
        return dataset

    def _exclusive(self) -> AbstractContextManager[None]:
        """Lock the folder, so that no data set changes between a read and a write."""
        return locked(self._folder.with_name(self._folder.name + ".lock"))

    def _write(self, dataset: Dataset) -> None:
        with temporary(self._folder) as file:
            file.write(dump_record(dataset.to_dict()).encode())
            file.publish(self._path(dataset.id, RECORD))

    def get(self, id_: str) -> Dataset | None:
        """Return the record, or None."""
        if not _is_id(id_):  # the id comes from a URL and becomes a file name
            return None
        try:
            raw = self._path(id_, RECORD).read_bytes()
        except FileNotFoundError:
            return None
        dataset = record_of(id_, raw)
        return dataset if self._tenant in {None, dataset.tenant} else None

    def newest(self, before: str | None = None) -> Iterator[tuple[str, Dataset]]:
        """Yield (cursor, record) from the newest on, or from the one after the cursor `before`."""
        entries = self._catalog.entries()
        end = len(entries) if before is None else bisect_left(entries, before, key=attrgetter("member"))
        for entry in entries[end - 1 :: -1] if end else ():
            if self._tenant in {None, entry.tenant} and (dataset := self.get(entry.id)) is not None:
                yield entry.member, dataset

    def ids(self) -> list[str]:
        """Return the ids of all tenants' data sets."""
        return sorted(path.stem for path in self._folder.glob("ds_*.json"))

    def usage(self) -> tuple[int, int]:
        """Return the number of visible data sets, and the bytes of their files."""
        sizes = [entry.nbytes for entry in self._catalog.entries() if self._tenant in {None, entry.tenant}]
        return len(sizes), sum(sizes)

    def values(self, id_: str) -> Array:
        """Return the (n, d) values, mapped from the verified file.

        Raises
        ------
        ProblemError
            ``dataset-not-found``, ``dataset-damaged``.

        """
        return self._load(id_, ".npy")

    def load_extras(self, dataset: Dataset) -> dict[str, Array]:
        """Return the existing ones of `labels` (n,), `color` (n,), `coordinates` (n, 2), `ids`; raises as `values`."""
        return {name: self._load(dataset.id, f".{name}.npy") for name in dataset.extras}

    def ids_of(self, id_: str) -> Array | None:
        """Return the ids of the rows, (n,) or (n, columns), or None; raises ``dataset-damaged``."""
        dataset = self.get(id_)
        return None if dataset is None or not dataset.has_ids else np.asarray(self._load(id_, ".ids.npy"))

    def damaged(self) -> Iterator[str]:
        """Read every visible data set, and yield the ids of those that differ from their digest."""
        for _, dataset in self.newest():
            if not self._checker.is_intact(dataset) and self.get(dataset.id) is not None:  # not deleted meanwhile
                yield dataset.id

    @contextlib.contextmanager
    def opened(self, id_: str) -> Iterator[dict[str, IO[bytes]] | None]:
        """Yield the open files of a data set by suffix, the record's first; None if one is missing.

        They belong together, and stay readable after a deletion.
        """
        with contextlib.ExitStack() as stack:
            try:
                files: dict[str, IO[bytes]] = {RECORD: stack.enter_context(self._path(id_, RECORD).open("rb"))}
                dataset = record_of(id_, files[RECORD].read())
                files[RECORD].seek(0)
                for suffix in (".npy", *(f".{name}.npy" for name in dataset.extras)):
                    files[suffix] = stack.enter_context(self._path(id_, suffix).open("rb"))
            except FileNotFoundError:  # deleted
                yield None
            else:
                yield files

    def put(self, dataset: Dataset, files: Mapping[str, IO[bytes]]) -> bool:
        """Store a data set of a backup, its files by suffix; return whether it was missing or damaged."""
        if (existing := self.get(dataset.id)) is not None and self._checker.is_intact(existing):
            return False
        restrict_folder(self._folder)
        for suffix, source in files.items():
            with temporary(self._folder) as file:
                while piece := source.read(COPY_BYTES):
                    file.write(piece)
                file.publish(self._path(dataset.id, suffix))
        self._write(dataset)
        return True

    def delete(self, id_: str) -> bool:
        """Remove a data set; return whether it existed. Mapped arrays stay readable."""
        with self._exclusive():
            if self.get(id_) is None:
                return False
            self._path(id_, RECORD).unlink()
            sync_folder(self._folder)  # otherwise a power cut could bring back a record without its arrays
            for suffix in SUFFIXES:
                self._path(id_, suffix).unlink(missing_ok=True)
        return True

    def remove_abandoned(self) -> int:
        """Remove the files of interrupted uploads and deletions; return their number."""
        if not self._folder.is_dir():
            return 0
        with self._exclusive():
            removed = remove_abandoned(self._folder)
            ids = set(self.ids())
            for path in self._folder.glob("ds_*"):
                if path.name.partition(".")[0] not in ids:
                    path.unlink()
                    removed += 1
        return removed

    def stored_bytes(self) -> int:
        """Return the bytes on disk of all visible data sets and imported posteriors."""
        return self.usage()[1] + self._imports.nbytes(self._tenant)

    @contextlib.contextmanager
    def room_for(self, nbytes: int) -> Iterator[None]:
        """Hold the tenant's quota lock during an upload, so that two uploads cannot both use the same room."""
        with locked(self._folder / f".{self._tenant}.lock") if self._most_bytes else contextlib.nullcontext():
            if self._most_bytes and (stored := self.stored_bytes()) + nbytes > self._most_bytes:
                raise too_many_bytes(self._tenant, nbytes, stored, self._most_bytes)
            yield

    def _path(self, id_: str, suffix: str) -> Path:
        return self._folder / (id_ + suffix)

    def _load(self, id_: str, suffix: str) -> Array:
        if (dataset := self.get(id_)) is None:
            raise not_found(id_)
        try:
            self._checker.require(dataset)
            with NPY_HEADER_LOCK:
                return np.load(self._path(id_, suffix), mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
        except FileNotFoundError:
            raise not_found(id_) from None


def not_found(id_: str) -> ProblemError:
    """Return the problem of a missing data set."""
    return refuse(
        "dataset-not-found",
        404,
        f"There is no data set {id_}.",
        "Upload it with POST /v1/datasets.",
        dataset=id_,
    )


def all_points_equal(values: Array) -> bool:
    """Return whether all rows are equal; reads up to the first block that differs."""
    rows = max(1, BLOCK // values.shape[1])
    return all(
        np.array_equal(block, np.broadcast_to(values[0], block.shape))
        for block in (values[start : start + rows] for start in range(0, len(values), rows))
    )


def _stored_dtype(table: Table) -> np.dtype[Any]:
    """Return the dtype of the stored values."""
    return np.dtype("<f4" if table.values.dtype.newbyteorder("=") == np.float32 else "<f8")


def _sha256(
    table: Table,
    dtype: np.dtype[Any],
    extras: Mapping[str, Array],
    write: Callable[[memoryview], object] = lambda _: None,
) -> str:
    """Return the digest of a table's content; pass its validated values to `write`, block by block."""
    n, d = table.values.shape
    content = Content((n, d), dtype, table.names, extras)
    for block in checked_blocks(table.values, dtype, table.names):
        content.add(block)
        write(block)
    return content.digests()[0]


def _is_id(text: str) -> bool:
    return text.startswith("ds_") and text[3:].isalnum() and text.isascii()
