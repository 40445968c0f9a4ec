"""Data sets on disk: the users' own, kept where nothing evicts them, named by their content."""

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
from worker.storage.integrity import IntegrityChecker
from worker.storage.validation import BLOCK, checked_blocks
from worker.tenancy.quotas import too_many_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

__all__ = ["Array", "Dataset", "DatasetStore", "Table", "all_points_equal", "not_found"]

COPY_BYTES = 2**20


class DatasetStore:
    """A folder of `<id>.json` records with their `.npy` files.

    The record is written last and removed first: a data set is there when its record is.

    Parameters
    ----------
    folder
        Made when absent; shared by the API (read and write) and the workers (read).
    tenant
        Whose data sets are seen, and made; None sees everyone's and makes the default tenant's.
    most_bytes
        What the files of the tenant's data sets may take together; 0: anything.
    catalogue
        What is remembered of the folder; None: nothing yet.
    intact
        The data sets that were verified; None: none yet.

    """

    def __init__(
        self,
        folder: Path,
        tenant: str | None = None,
        most_bytes: int = 0,
        catalogue: DatasetCatalog | None = None,
        intact: IntegrityChecker | None = None,
    ) -> None:
        self._folder = folder
        self._catalogue = catalogue or DatasetCatalog(folder)
        self._intact = intact or IntegrityChecker(folder)
        self._tenant = tenant
        self._most_bytes = most_bytes

    @classmethod
    def under(cls, data_dir: str) -> Self:
        """Return the store in the folder of all data."""
        return cls(Path(data_dir) / "datasets")

    def of(self, tenant: str, most_bytes: int) -> Self:
        """Return the same store as a tenant sees it."""
        return type(self)(self._folder, tenant, most_bytes, self._catalogue, self._intact)

    def add(self, table: Table) -> tuple[Dataset, bool]:
        """Store a table; return its record and whether it is new.

        Values become float64, but float32 stays; they are checked and hashed in blocks, so memory stays flat. Files
        that were damaged on disk are replaced.

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
            known = self.get(id_)
            if known is not None and self._intact.is_intact(known):
                sync_folder(self._folder)  # its upload may have ended between rename and fsync
                return known, False
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
                source=table.source,
                created=now_iso(),
                tenant=tenant,
            )
            nbytes = dataset.nbytes + sum(extra.nbytes for extra in extras.values())
            with self._room_for(nbytes if known is None else 0), self._alone():  # a deletion at once would take a part
                if (known := self.get(id_)) is not None:
                    if self._intact.is_intact(known):
                        return known, False
                    dataset = replace(dataset, created=known.created, name=known.name, tags=known.tags)
                file.publish(self._path(id_, ".npy"))
                self._publish_rest(dataset, extras)
        return dataset, known is None

    def id_of(self, table: Table) -> str:
        """Return the id that a table has as a data set, without storing it; raises as `add` for its values."""
        return dataset_id(_sha256(table, _stored_dtype(table), table.extras), self._tenant or DEFAULT)

    def rename(self, id_: str, changes: dict[str, Any]) -> Dataset:
        """Change name and tags, as `worker.records.labels.with_labels` does, and return the record.

        Raises
        ------
        ProblemError
            ``dataset-not-found``.

        """
        with self._alone():
            if (known := self.get(id_)) is None:
                raise not_found(id_)
            self._write(dataset := with_labels(known, changes))
        return dataset

    def _alone(self) -> AbstractContextManager[None]:
        """Hold the folder, so that no data set comes, changes or goes between a read and a write of it."""
        return locked(self._folder.with_name(self._folder.name + ".lock"))

    def _write(self, dataset: Dataset) -> None:
        with temporary(self._folder) as file:
            file.write(dump_record(dataset.to_dict()).encode())
            file.publish(self._path(dataset.id, ".json"))

    def get(self, id_: str) -> Dataset | None:
        """Return the record, or None."""
        if not _is_id(id_):  # the id comes from a URL and becomes a file's name
            return None
        try:
            raw = self._path(id_, ".json").read_bytes()
        except FileNotFoundError:
            return None
        found = record_of(id_, raw)
        return found if self._tenant in {None, found.tenant} else None

    def newest(self, before: str | None = None) -> Iterator[tuple[str, Dataset]]:
        """Yield (cursor, record) from the newest on, or from the one after the cursor `before`."""
        places = self._catalogue.places()
        end = len(places) if before is None else bisect_left(places, before, key=attrgetter("member"))
        for place in places[end - 1 :: -1] if end else ():
            if self._tenant in {None, place.tenant} and (dataset := self.get(place.id)) is not None:
                yield place.member, dataset

    def ids(self) -> list[str]:
        """Return the ids of all tenants' data sets."""
        return sorted(path.stem for path in self._folder.glob("ds_*.json"))

    def usage(self) -> tuple[int, int]:
        """Return the number of data sets, and the bytes of all their files."""
        places = self._catalogue.places()
        return len(places), sum(place.nbytes for place in places)

    def values(self, id_: str) -> Array:
        """Return the (n, d) values, mapped from the file and verified (`worker.storage.integrity`).

        Raises
        ------
        ProblemError
            ``dataset-not-found``, ``dataset-damaged``.

        """
        return self._load(id_, ".npy")

    def load_extras(self, dataset: Dataset) -> dict[str, Array]:
        """Return the arrays beside the values, those of `labels` (n,), `color` (n,), `coordinates` (n, 2) that exist.

        Raises
        ------
        ProblemError
            ``dataset-not-found``, ``dataset-damaged``.

        """
        return {name: self._load(dataset.id, f".{name}.npy") for name in dataset.extras}

    def damaged(self) -> Iterator[str]:
        """Read every data set that is seen, and yield the ids of those that differ from their digest."""
        for _, dataset in self.newest():
            if not self._intact.is_intact(dataset) and self.get(dataset.id) is not None:  # not deleted meanwhile
                yield dataset.id

    @contextlib.contextmanager
    def opened(self, id_: str) -> Iterator[dict[str, IO[bytes]] | None]:
        """Yield all files of a data set by their suffixes, the record's first; None when it is not (wholly) there.

        They are of one data set and stay readable, whether it is deleted meanwhile or not.
        """
        with contextlib.ExitStack() as held:
            try:
                files: dict[str, IO[bytes]] = {".json": held.enter_context(self._path(id_, ".json").open("rb"))}
                dataset = record_of(id_, files[".json"].read())
                files[".json"].seek(0)
                for suffix in (".npy", *(f".{name}.npy" for name in dataset.extras)):
                    files[suffix] = held.enter_context(self._path(id_, suffix).open("rb"))
            except FileNotFoundError:  # deleted
                yield None
            else:
                yield files

    def put(self, dataset: Dataset, files: Mapping[str, IO[bytes]]) -> bool:
        """Store a data set as it was, its files by their suffixes; return whether it was not there already."""
        if (known := self.get(dataset.id)) is not None and self._intact.is_intact(known):
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
        """Remove a data set; return whether it was there. Readers that have it mapped keep it."""
        with self._alone():
            if self.get(id_) is None:
                return False
            self._path(id_, RECORD).unlink()
            sync_folder(self._folder)  # no power cut leaves a record without its arrays, or brings it back
            for suffix in SUFFIXES:
                self._path(id_, suffix).unlink(missing_ok=True)
        return True

    def remove_abandoned(self) -> int:
        """Remove what was left by who was killed in the middle of an upload or a deletion; return how many files."""
        if not self._folder.is_dir():
            return 0
        with self._alone():
            found = remove_abandoned(self._folder)
            known = {path.stem for path in self._folder.glob("ds_*.json")}
            for path in self._folder.glob("ds_*"):
                if path.name.partition(".")[0] not in known:
                    path.unlink()
                    found += 1
        return found

    def stored_bytes(self) -> int:
        """Return the bytes on disk of all data sets that are seen."""
        return sum(place.nbytes for place in self._catalogue.places() if self._tenant in {None, place.tenant})

    @contextlib.contextmanager
    def _room_for(self, nbytes: int) -> Iterator[None]:
        """Hold room while a data set is published: of two at once that fit one by one, the second is refused."""
        with locked(self._folder / f".{self._tenant}.lock") if self._most_bytes else contextlib.nullcontext():
            if self._most_bytes and (stored := self.stored_bytes()) + nbytes > self._most_bytes:
                raise too_many_bytes(self._tenant, nbytes, stored, self._most_bytes)
            yield

    def _publish_rest(self, dataset: Dataset, extras: dict[str, Array]) -> None:
        """Write what goes with the values, and the record last."""
        for name, extra in extras.items():
            with temporary(self._folder) as file:
                np.lib.format.write_array(file, extra, allow_pickle=False)
                file.publish(self._path(dataset.id, f".{name}.npy"))
        self._write(dataset)

    def _path(self, id_: str, suffix: str) -> Path:
        return self._folder / (id_ + suffix)

    def _load(self, id_: str, suffix: str) -> Array:
        if (dataset := self.get(id_)) is None:
            raise not_found(id_)
        try:
            self._intact.require(dataset)
            with NPY_HEADER_LOCK:
                return np.load(self._path(id_, suffix), mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
        except FileNotFoundError:
            raise not_found(id_) from None


def not_found(id_: str) -> ProblemError:
    """Return the problem of a data set that is not there."""
    return refuse(
        "dataset-not-found",
        404,
        f"There is no data set {id_}.",
        "Upload it with POST /v1/datasets.",
        dataset=id_,
    )


def all_points_equal(values: Array) -> bool:
    """Say whether every row equals the first; stops reading at the first block that differs."""
    rows = max(1, BLOCK // values.shape[1])
    return all(
        np.array_equal(block, np.broadcast_to(values[0], block.shape))
        for block in (values[start : start + rows] for start in range(0, len(values), rows))
    )


def _stored_dtype(table: Table) -> np.dtype[Any]:
    """Return the dtype in which the values of a table are stored."""
    return np.dtype("<f4" if table.values.dtype.newbyteorder("=") == np.float32 else "<f8")


def _sha256(
    table: Table,
    dtype: np.dtype[Any],
    extras: Mapping[str, Array],
    write: Callable[[memoryview], object] = lambda _: None,
) -> str:
    """Return the digest of a table's content; hand its checked values to `write`, block by block."""
    n, d = table.values.shape
    content = Content((n, d), dtype, table.names, extras)
    for block in checked_blocks(table.values, dtype, table.names):
        content.add(block)
        write(block)
    return content.digests()[0]


def _is_id(text: str) -> bool:
    return text.startswith("ds_") and text[3:].isalnum() and text.isascii()
