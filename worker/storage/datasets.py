"""Data sets, with ids derived from their content."""

from __future__ import annotations

import contextlib
import errno
import io
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np

from worker.base.clock import now_iso
from worker.base.files import NPY_HEADER_LOCK
from worker.base.problems import ProblemError, refuse
from worker.base.versions import dump_record
from worker.records.dataset import Array, Content, Dataset, Table, record_of
from worker.records.ids import is_id
from worker.records.labels import with_labels
from worker.records.tenants import DEFAULT, dataset_id
from worker.storage.imported_posteriors import ImportedPosteriors
from worker.storage.integrity import IntegrityChecker, damaged
from worker.storage.items.base import RECORD
from worker.storage.items.folder import FolderItems
from worker.storage.items.folder_catalog import SUFFIXES, DatasetCatalog
from worker.storage.validation import BLOCK, checked_blocks
from worker.tenancy.quotas import too_many_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from worker.storage.items.base import Draft, Items

__all__ = ["Array", "Dataset", "DatasetStore", "Table", "all_points_equal", "not_found"]

PREFIX = "ds_"  # of the ids
COPY_BYTES = 2**20
ATTEMPTS = 3  # at a read whose local copy another process removes


class DatasetStore:
    """Data sets as items: a record and npy files.

    Parameters
    ----------
    items
        Written by the API, read by the workers.
    imports
        Imported posteriors, which count in the same quota.
    tenant
        Tenant whose data sets are visible; None: all tenants', and new ones are the default tenant's.
    most_bytes
        Quota of the tenant's files, with those of its imported posteriors; 0: no limit.
    checker
        Shared with the store of another tenant; None: new.

    """

    def __init__(
        self,
        items: Items,
        imports: ImportedPosteriors,
        tenant: str | None = None,
        most_bytes: int = 0,
        checker: IntegrityChecker | None = None,
    ) -> None:
        self._items = items
        self._checker = checker or IntegrityChecker(items)
        self._imports = imports
        self._tenant = tenant
        self._most_bytes = most_bytes

    @classmethod
    def within(cls, folder: Path) -> Self:
        """Return the data sets of a folder."""
        items = FolderItems(folder, PREFIX, SUFFIXES, DatasetCatalog(folder).entries)
        return cls(items, ImportedPosteriors.within(folder.with_name("posteriors")))

    @classmethod
    def under(cls, data_dir: str) -> Self:
        """Return the store of a data folder."""
        return cls.within(Path(data_dir) / "datasets")

    def of(self, tenant: str, most_bytes: int) -> Self:
        """Return a tenant's view of the store."""
        return type(self)(self._items, self._imports, tenant, most_bytes, self._checker)

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
        n, d = table.values.shape
        dtype, extras = _stored_dtype(table), table.extras
        with self._items.draft() as draft:
            file = draft.file(".npy")
            np.lib.format.write_array_header_1_0(file, {"descr": dtype.str, "fortran_order": False, "shape": (n, d)})
            sha256 = _sha256(table, dtype, extras, file.write)
            id_ = dataset_id(sha256, tenant)
            existing = self.get(id_)
            if existing is not None and self.is_intact(existing):
                self._items.confirm()
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
            for name, extra in extras.items():
                np.lib.format.write_array(draft.file(f".{name}.npy"), extra, allow_pickle=False)
            nbytes = dataset.nbytes + sum(extra.nbytes for extra in extras.values())
            self.require_room(nbytes if existing is None else 0)
            draft.seal(id_)
            # The lock excludes a concurrent deletion, which would remove some of the files.
            with self.room_for(nbytes if existing is None else 0), self._items.exclusive(id_):
                if (existing := self.get(id_)) is not None:
                    if self.is_intact(existing):
                        return existing, False
                    dataset = replace(dataset, created=existing.created, name=existing.name, tags=existing.tags)
                _publish(draft, dataset)
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
        with self._items.exclusive(id_):
            if (existing := self.get(id_)) is None:
                raise not_found(id_)
            dataset = with_labels(existing, changes)
            self._items.set_record(id_, _record(dataset))
        return dataset

    def get(self, id_: str) -> Dataset | None:
        """Return the record, or None."""
        if not is_id(id_, PREFIX):  # the id comes from a URL and becomes a file name
            return None
        if (raw := self._items.record(id_)) is None:
            return None
        dataset = record_of(id_, raw)
        return dataset if self._tenant in {None, dataset.tenant} else None

    def newest(self, before: str | None = None) -> Iterator[tuple[str, Dataset]]:
        """Yield (cursor, record) from the newest on, or from the one after the cursor `before`."""
        for cursor, id_ in self._items.newest(self._tenant, before):
            if (dataset := self.get(id_)) is not None:
                yield cursor, dataset

    def ids(self) -> list[str]:
        """Return the ids of all tenants' data sets."""
        return self._items.ids()

    def usage(self) -> tuple[int, int]:
        """Return the number of visible data sets, and the bytes of their files."""
        return self._items.usage(self._tenant)

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

    def is_intact(self, dataset: Dataset) -> bool:
        """Read a data set where it is stored, and return whether it has its digest."""
        return self._items.is_stored(dataset.id) and self._checker.is_intact(dataset)

    def damaged(self) -> Iterator[str]:
        """Read every visible data set, and yield the ids of those that differ from their digest."""
        for _, dataset in self.newest():
            if not self.is_intact(dataset) and self.get(dataset.id) is not None:  # not deleted meanwhile
                yield dataset.id

    @contextlib.contextmanager
    def opened(self, id_: str) -> Iterator[dict[str, IO[bytes]] | None]:
        """Yield the open files of a data set by suffix, the record's first; None if one is missing.

        They belong together, and stay readable after a deletion.
        """
        with contextlib.ExitStack() as stack:
            files: dict[str, IO[bytes]] = {}
            if (raw := self._items.record(id_)) is not None:
                dataset = record_of(id_, raw)
                suffixes = (".npy", *(f".{name}.npy" for name in dataset.extras))
                with contextlib.suppress(FileNotFoundError), _reported(dataset):  # deleted
                    paths = self._items.paths(id_, suffixes)
                    arrays = [stack.enter_context(path.open("rb")) for path in paths]
                    files = {RECORD: io.BytesIO(raw), **dict(zip(suffixes, arrays, strict=True))}
            yield files or None

    def put(self, dataset: Dataset, files: Mapping[str, IO[bytes]]) -> bool:
        """Store a data set of a backup, its arrays by suffix; return whether it was missing or damaged."""
        if (existing := self.get(dataset.id)) is not None and self.is_intact(existing):
            return False
        with self._items.draft() as draft:
            for suffix, source in files.items():
                file = draft.file(suffix)
                while piece := source.read(COPY_BYTES):
                    file.write(piece)
            draft.seal(dataset.id)
            with self._items.exclusive(dataset.id):
                _publish(draft, dataset)
        return True

    def delete(self, id_: str) -> bool:
        """Remove a data set; return whether it existed. Mapped arrays stay readable."""
        if not is_id(id_, PREFIX):
            return False
        with self._items.exclusive(id_):
            return self.get(id_) is not None and self._items.delete(id_)

    def remove_abandoned(self) -> int:
        """Remove the files of interrupted uploads and deletions; return their number."""
        return self._items.remove_abandoned()

    def stored_bytes(self) -> int:
        """Return the stored bytes of all visible data sets and imported posteriors."""
        return self.usage()[1] + self._imports.nbytes(self._tenant)

    @contextlib.contextmanager
    def room_for(self, nbytes: int) -> Iterator[None]:
        """Hold the tenant's quota lock during an upload, so that two uploads cannot both use the same room."""
        with self._items.room(self._tenant) if self._most_bytes else contextlib.nullcontext():
            self.require_room(nbytes)
            yield

    def require_room(self, nbytes: int) -> None:
        """Raise ``quota-exceeded`` unless the tenant may store so many more bytes now."""
        if self._most_bytes and (stored := self.stored_bytes()) + nbytes > self._most_bytes:
            raise too_many_bytes(self._tenant, nbytes, stored, self._most_bytes)

    def _load(self, id_: str, suffix: str) -> Array:
        for _ in range(ATTEMPTS):
            if (dataset := self.get(id_)) is None:
                break
            with contextlib.suppress(FileNotFoundError), _reported(dataset):
                self._checker.require(dataset)
                (path,) = self._items.paths(id_, [suffix])
                with NPY_HEADER_LOCK:
                    return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
        raise not_found(id_)


@contextlib.contextmanager
def _reported(dataset: Dataset) -> Iterator[None]:
    """Raise ``dataset-damaged`` for a stored file that is lost or differs from its digest."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise damaged(dataset) from error


def _publish(draft: Draft, dataset: Dataset) -> None:
    draft.file(RECORD).write(_record(dataset))
    draft.publish(dataset.id, dataset.tenant, dataset.created)


def _record(dataset: Dataset) -> bytes:
    return dump_record(dataset.to_dict()).encode()


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
    return content.digest()
