"""What a backup's data sets must be: the content of which their ids are digests, read piece by piece."""

from __future__ import annotations

import math
from typing import IO, TYPE_CHECKING

import numpy as np

from worker.operations.backup.archive import LINE, PIECE, Archive, damaged
from worker.records.dataset import EXTRAS, Content, Dataset, record_of
from worker.records.tenants import dataset_id, is_tenant_name

if TYPE_CHECKING:
    from worker.records.cache_entry import Array

VALUES = {"float64": "<f8", "float32": "<f4"}


def dataset_in(archive: Archive, id_: str) -> Dataset:
    """Return the record of a data set of an archive, whose files are those of which its id is the digest.

    Raises
    ------
    ProblemError
        ``backup-unreadable``, and as `worker.base.versions.load_record`.

    """
    if archive.size(f"datasets/{id_}.json") > LINE:
        raise damaged(f"the record of data set {id_} is too long")
    with archive.open(f"datasets/{id_}.json") as file:
        dataset = record_of(id_, file.read())
    wanted = {f"datasets/{id_}{end}" for end in (".json", ".npy", *(f".{name}.npy" for name in dataset.extras))}
    if dataset.id != id_ or set(archive.names(f"datasets/{id_}.", "")) != wanted or not is_tenant_name(dataset.tenant):
        raise damaged(f"data set {id_} lacks files, or has others")
    extras = {name: array_in(archive, f"datasets/{id_}.{name}.npy") for name in EXTRAS if name in dataset.extras}
    if dataset.sha256 not in _digests(archive, dataset, extras) or dataset_id(dataset.sha256, dataset.tenant) != id_:
        raise damaged(f"data set {id_} is not what its id is the digest of")
    return dataset


def array_in(archive: Archive, member: str) -> Array:
    """Return an array of an archive; a header that promises more than there is allocates nothing."""
    with archive.open(member) as file:
        shape, is_fortran, dtype = _header(file, archive.size(member))
        if dtype.kind not in "fiubU":
            raise damaged(f"{member} is of {dtype}")
        return np.frombuffer(file.read(), dtype).reshape(shape, order="F" if is_fortran else "C")


def _digests(archive: Archive, dataset: Dataset, extras: dict[str, Array]) -> list[str]:
    """Return the digests (`Content.digests`) of a data set with finite values."""
    member, d_type = f"datasets/{dataset.id}.npy", VALUES.get(dataset.dtype)
    with archive.open(member) as file:
        shape, is_fortran, dtype = _header(file, archive.size(member))
        if shape != (dataset.n, dataset.d) or is_fortran or dtype.str != d_type:
            raise damaged(f"{member} is not as its record says")
        content = Content((dataset.n, dataset.d), dtype, dataset.names, extras)
        while piece := file.read(PIECE):  # whole numbers: the header was looked at, and pieces are divisible by 8
            if not np.isfinite(np.frombuffer(piece, dtype)).all():
                raise damaged(f"{member} has values that are not finite")
            content.add(piece)
    return content.digests()


def _header(file: IO[bytes], size: int) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Return shape, order and dtype of an npy file, of which exactly the bytes are there."""
    try:
        version = np.lib.format.read_magic(file)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, is_fortran, dtype = reader(file)
        nbytes = math.prod(shape) * dtype.itemsize
    except (ValueError, TypeError) as error:
        raise damaged(f"an array cannot be read ({error})") from error
    if dtype.hasobject or min(shape, default=0) < 0 or nbytes != size - file.tell():
        raise damaged("an array is of another size than its header says")
    return shape, is_fortran, dtype
