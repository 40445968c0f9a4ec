"""Data sets, with ids derived from their content."""

from __future__ import annotations

import contextlib
import io
import math
from dataclasses import replace
from itertools import chain
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from worker.base.clock import now_iso
from worker.base.files import NPY_HEADER_LOCK
from worker.records.dataset import VALUES, Array, Content, Dataset, Table
from worker.records.ids import DEFAULT, dataset_id
from worker.records.quotas import too_many_bytes
from worker.storage.integrity import IntegrityChecker, damaged_dataset
from worker.storage.object_store.data_files import STORED_BYTES
from worker.storage.records import RecordKind, RecordStore
from worker.storage.validation import BLOCK, checked_blocks, converted_blocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import redis

    from worker.storage.free_space import QueueCapacity
    from worker.storage.object_store.data_files import DataFiles, Source

__all__ = ["Array", "Dataset", "DatasetStore", "Table", "all_points_equal"]

ATTEMPTS = 3  # at a read whose file is replaced, or whose local copy another process removes

KIND = RecordKind[Dataset](
    "dataset",
    "data set",
    "Upload it with POST /v1/datasets.",
    lambda fields: Dataset(**fields),
    counts=lambda dataset: {"datasets": 1, STORED_BYTES: sum(dataset.sizes.values())},
)


class DatasetStore(RecordStore[Dataset]):
    """Data sets: records, and npy files that they name; the quota is of these and of imported posteriors.

    Parameters
    ----------
    client
        The queue's Redis, for the records.
    files
        Their files.
    room
        Of the queue's Redis; new data sets need it.

    """

    def __init__(self, client: redis.Redis, files: DataFiles, room: QueueCapacity) -> None:
        super().__init__(client, KIND)
        self.files = files
        self._room = room
        self._checker = IntegrityChecker(files)

    def add(self, table: Table) -> tuple[Dataset, bool]:
        """Store a table; return its record and whether it is new.

        Values are stored as float64, float32 stays. They are validated, hashed and written in blocks, so that the
        memory does not grow with the table. Damaged files of an existing data set are replaced.

        Raises
        ------
        ProblemError
            ``not-finite`` or ``inexact-integer``, with the row (from 1) and the column. ``quota-exceeded``,
            ``redis-full``.

        """
        tenant = self.tenant or DEFAULT
        n, d = table.values.shape
        dtype, extras = _stored_dtype(table), table.extras
        sha256 = _sha256(table)
        dataset = Dataset(
            id=dataset_id(sha256, tenant),
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
        if (existing := self.get(dataset.id)) is not None and self.is_intact(existing):
            return existing, False
        sources = {VALUES: _npy((n, d), dtype, converted_blocks(table.values, dtype))}
        sources |= {name: _npy(extra.shape, extra.dtype, [extra.tobytes()]) for name, extra in extras.items()}
        if existing is None:
            self._room.require()
            self.require_room(sum(size for _, size in sources.values()))
        return self.put(dataset, sources)

    def put(self, dataset: Dataset, sources: Mapping[str, Source]) -> tuple[Dataset, bool]:
        """Store the files of a data set by name, and its record; return the record, and whether it is new.

        The files of an existing one are replaced if they are damaged. Raises ``quota-exceeded``.
        """
        folder = self.files.write({f"{name}.npy": source for name, source in sources.items()})
        return self.files.publish(
            self,
            replace(dataset, folder=folder, sizes={name: size for name, (_, size) in sources.items()}),
            is_intact=self.is_intact,
            with_files=lambda old, new: replace(old, folder=new.folder, sizes=new.sizes),
            max_bytes=self.quota,
        )

    def id_of(self, table: Table) -> str:
        """Return the id of a table's data set without storing it; raises as `add` for its values."""
        return dataset_id(_sha256(table), self.tenant or DEFAULT)

    def values(self, id_: str) -> Array:
        """Return the (n, d) values, mapped from the verified file.

        Raises
        ------
        ProblemError
            ``dataset-not-found``, ``dataset-damaged``.

        """
        return self._load(id_, VALUES)

    def load_extras(self, dataset: Dataset) -> dict[str, Array]:
        """Return the existing ones of `labels` (n,), `color` (n,), `coordinates` (n, 2), `ids`; raises as `values`."""
        return {name: self._load(dataset.id, name) for name in dataset.extras}

    def ids_of(self, id_: str) -> Array | None:
        """Return the ids of the rows, (n,) or (n, columns), or None; raises ``dataset-damaged``."""
        dataset = self.get(id_)
        return None if dataset is None or not dataset.has_ids else np.asarray(self._load(id_, "ids"))

    def is_intact(self, dataset: Dataset) -> bool:
        """Read a data set where it is stored, and return whether it has its digest."""
        return self._checker.is_intact(dataset)

    def find_damaged(self) -> Iterator[str]:
        """Read all tenants' data sets, and yield the ids of those that differ from their digest."""
        for id_, _ in self.all():
            dataset = self.get(id_)
            if dataset is not None and not self.is_intact(dataset) and self.get(id_) == dataset:
                yield id_

    @contextlib.contextmanager
    def open_files(self, dataset: Dataset) -> Iterator[dict[str, IO[bytes]]]:
        """Yield the open files of a data set by name, none if one is missing; they stay readable after a deletion."""
        with contextlib.ExitStack() as stack:
            files: dict[str, IO[bytes]] = {}
            with contextlib.suppress(FileNotFoundError):
                paths = {name: self.files.local_path(dataset.path(name), size) for name, size in dataset.sizes.items()}
                files = {name: stack.enter_context(path.open("rb")) for name, path in paths.items()}
            yield files

    def delete(self, id_: str) -> Dataset | None:
        """Remove a data set; return its record, or None. Mapped arrays stay readable."""
        dataset = super().delete(id_)
        if dataset is not None:
            self.files.remove(dataset.files)
        return dataset

    def require_room(self, nbytes: int) -> None:
        """Raise ``quota-exceeded`` unless the tenant may store so many more bytes now."""
        stored = self.usage()[STORED_BYTES] if self.quota else 0
        if stored + nbytes > self.quota > 0:
            raise too_many_bytes(self.tenant, nbytes, stored, self.quota)

    def _load(self, id_: str, name: str) -> Array:
        dataset = self.get(id_)
        for _ in range(ATTEMPTS):
            if dataset is None:
                break
            with contextlib.suppress(FileNotFoundError):
                self._checker.require(dataset)
                path = self.files.local_path(dataset.path(name), dataset.sizes[name])
                with NPY_HEADER_LOCK:
                    return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
            dataset = self.get(id_)  # deleted or replaced meanwhile, or a file is lost
        raise KIND.not_found(id_) if dataset is None else damaged_dataset(dataset)


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


def _sha256(table: Table) -> str:
    """Return the digest of a table's content, whose values are validated."""
    dtype = _stored_dtype(table)
    content = Content(table.values.shape, dtype, table.names, table.extras)
    for block in checked_blocks(table.values, dtype, table.names):
        content.add(block)
    return content.digest()


def _npy(shape: tuple[int, ...], dtype: np.dtype[Any], parts: Iterable[bytes | memoryview]) -> Source:
    """Return an npy file of parts in C order, and its bytes."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": dtype.str, "fortran_order": False, "shape": shape})
    size = header.tell() + dtype.itemsize * math.prod(shape)
    return chain([header.getvalue()], parts), size
