"""Store of data sets. The id of a data set is a digest of its content, so that equal uploads are one data set."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.texts import Way
from glle_engine.tables.table import EXTRAS, Table
from worker.base.clock import now_iso
from worker.base.files import NPY_HEADER_LOCK
from worker.base.problems import refuse
from worker.records.dataset import VALUES, Array, Dataset, content_digest
from worker.records.ids import DEFAULT, dataset_id
from worker.records.quotas import too_many_bytes
from worker.storage.file_records import FileStore
from worker.storage.object_store.files import STORED_BYTES, DamagedFileError
from worker.storage.records import RecordKind
from worker.storage.validation import BLOCK_VALUES, checked_blocks, converted_blocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import redis

    from worker.storage.free_space import QueueCapacity
    from worker.storage.object_store.files import ObjectFiles, Source
    from worker.storage.results import ResultStore

__all__ = ["Array", "Dataset", "DatasetStore", "Table", "all_points_equal"]

# Attempts to read a file, because another process may meanwhile replace the file, or remove the local copy of it.
MAX_READ_ATTEMPTS = 3

DATASET_KIND = RecordKind[Dataset](
    "dataset",
    "data set",
    f"Upload it with {Way('upload')}.",
    Dataset,
    counts=lambda dataset: {"datasets": 1, STORED_BYTES: sum(file.size for file in dataset.stored.values())},
)


class DatasetStore(FileStore[Dataset]):
    """Store of data sets: their records in Redis, and the npy files of their arrays.

    The quota limits the bytes of all files of a tenant, those of posteriors, embeddings and results included.

    Parameters
    ----------
    client
        The queue's Redis, for the records.
    files
        Files of the data sets.
    room
        Says whether the queue's Redis and the disk have space for a new data set.
    results
        Results about data sets, which are deleted with the data sets.

    """

    def __init__(self, client: redis.Redis, files: ObjectFiles, room: QueueCapacity, results: ResultStore) -> None:
        super().__init__(client, DATASET_KIND, files, results)
        self._room = room

    def add(self, table: Table) -> tuple[Dataset, bool]:
        """Store a table as a data set; return the record, and whether the data set is new.

        Values are stored as float64, or as float32 if the table has float32. They are validated, hashed and written in
        blocks, so that memory use does not grow with the table. Damaged files of an existing data set are replaced.

        Raises
        ------
        ProblemError
            ``not-finite`` or ``inexact-integer``, with row (from 1) and column; ``quota-exceeded``, ``redis-full``.

        """
        tenant = self.tenant or DEFAULT
        n, d = table.values.shape
        dtype, extras = _stored_dtype(table), table.extras
        sha256 = _sha256(table)
        has_extras: dict[str, Any] = {f"has_{name}": name in extras for name in EXTRAS}
        dataset = Dataset(
            id=dataset_id(sha256, tenant),
            sha256=sha256,
            n=n,
            d=d,
            dtype=dtype.name,
            nbytes=n * d * dtype.itemsize,
            names=table.names,
            **has_extras,
            source=table.source,
            created=now_iso(),
            tenant=tenant,
        )
        if (existing := self.get(dataset.id)) is not None and self.files.is_intact(existing.stored.values()):
            return existing, False
        sources = {VALUES: _npy((n, d), dtype, converted_blocks(table.values, dtype))}
        sources |= {name: _npy(extra.shape, extra.dtype, [extra.tobytes()]) for name, extra in extras.items()}
        if existing is None:
            self._room.require()
            self.require_room(sum(size for _, size in sources.values()))
        return self._write(dataset, sources)

    def _write(self, dataset: Dataset, sources: Mapping[str, Source]) -> tuple[Dataset, bool]:
        """Write the files of a data set, and then its record; return the record, and whether the data set is new.

        `sources` has the content of each file, by the name of its array. If another process has written the data set
        meanwhile, its files are replaced if they are damaged, and otherwise the new files are removed. Raises
        `ProblemError` (``quota-exceeded``).
        """
        stored = self.files.write_new({f"{name}.npy": source for name, source in sources.items()})
        new = replace(dataset, stored={name: stored[f"{name}.npy"] for name in sources})
        replaced: set[str] = set()

        def change(old: Dataset) -> Dataset:
            replaced.update(old.files)
            return replace(old, stored=new.stored)

        with self.limited(new, self.quota):
            while not self.create(new, limits={STORED_BYTES: self.quota}):
                if (existing := self.get(new.id)) is None:  # the existing data set was deleted meanwhile
                    continue
                if existing.files == new.files:  # `create` succeeded, but its reply was lost
                    break
                if self.files.is_intact(existing.files.values()):
                    self.files.remove(new.files)
                    return existing, False
                if (changed := self.change(new.id, change)) is not None:
                    self.files.remove(replaced.difference(new.files))
                    return changed, False
        return new, True

    def id_of(self, table: Table) -> str:
        """Return the id that `add` would give to a table; nothing is stored.

        Raises `ProblemError` (``not-finite``, ``inexact-integer``) for the first invalid value.
        """
        return dataset_id(_sha256(table), self.tenant or DEFAULT)

    def values(self, id_: str) -> Array:
        """Return the values (n, d) of a data set, memory-mapped from the verified file.

        Raises
        ------
        ProblemError
            ``dataset-not-found``, ``dataset-damaged``.

        """
        return self._load(id_, VALUES)

    def load_extras(self, dataset: Dataset) -> dict[str, Array]:
        """Return by name the arrays that a data set has in addition to its values, such as ``labels``.

        Raises `ProblemError` (``dataset-not-found``, ``dataset-damaged``).
        """
        return {name: self._load(dataset.id, name) for name in dataset.extras}

    def ids_of(self, id_: str) -> Array | None:
        """Return the ids that the user gave to the rows of a data set, (n,) or (n, columns); None without ids.

        Raises `ProblemError` (``dataset-damaged``).
        """
        dataset = self.get(id_)
        return None if dataset is None or not dataset.has_ids else np.asarray(self._load(id_, "ids"))

    def require_room(self, nbytes: int) -> None:
        """Raise `ProblemError` (``quota-exceeded``) if `nbytes` more exceed the tenant's quota of stored bytes."""
        stored = self.usage()[STORED_BYTES] if self.quota else 0
        if stored + nbytes > self.quota > 0:
            raise too_many_bytes(self.tenant, nbytes, stored, self.quota)

    def _load(self, id_: str, name: str) -> Array:
        dataset, is_absent = self.get(id_), False
        for _ in range(MAX_READ_ATTEMPTS):
            if dataset is None:
                break
            try:
                path = self.files.path(dataset.stored[name])
                with NPY_HEADER_LOCK:
                    return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
            except (FileNotFoundError, DamagedFileError) as error:
                is_absent = isinstance(error, FileNotFoundError)
            dataset = self.get(id_)  # the data set may have been deleted or replaced, or the file is lost
        if dataset is None:
            raise DATASET_KIND.not_found(id_)
        remedy = "Upload the same data again, which replaces the files under the same id; or restore a backup."
        if is_absent:
            detail = f"This process does not find the file of data set {id_}."
            remedy = f"API and workers need the same GLLE_DATA_DIR or GLLE_STORE_URL. If the file is lost: {remedy}"
        else:
            detail = f"The stored files of data set {id_} differ from the upload: the disk has lost or changed bits."
            remedy += " Check the disk."
        raise refuse("dataset-damaged", 500, detail, remedy, dataset=id_)


def all_points_equal(values: Array) -> bool:
    """Return whether all rows of `values` (n, d) are equal; stops reading at the first block with another row."""
    rows = max(1, BLOCK_VALUES // values.shape[1])
    return all(
        np.array_equal(block, np.broadcast_to(values[0], block.shape))
        for block in (values[start : start + rows] for start in range(0, len(values), rows))
    )


def _stored_dtype(table: Table) -> np.dtype[Any]:
    """Return the dtype in which the values of a table are stored: little-endian float32 or float64."""
    return np.dtype("<f4" if table.values.dtype.newbyteorder("=") == np.float32 else "<f8")


def _sha256(table: Table) -> str:
    """Return the SHA-256 of a table's content.

    Raises `ProblemError` (``not-finite``, ``inexact-integer``) for the first invalid value.
    """
    dtype = _stored_dtype(table)
    blocks = checked_blocks(table.values, dtype, table.names)
    return content_digest(table.values.shape, dtype, table.names, table.extras, blocks)


def _npy(shape: tuple[int, ...], dtype: np.dtype[Any], parts: Iterable[bytes | memoryview]) -> Source:
    """Return the content of an npy file in parts, and its size; `parts` are the bytes of the array in C order."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": dtype.str, "fortran_order": False, "shape": shape})
    size = header.tell() + dtype.itemsize * math.prod(shape)
    return chain([header.getvalue()], parts), size
