"""Validation of a backup's data sets against their ids, which are digests of the content, in pieces."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from worker.operations.backup.archive import PIECE, Archive, damaged, member_of
from worker.records.dataset import EXTRAS, VALUES, Content, Dataset
from worker.records.ids import content_sha256, dataset_id
from worker.storage.imported_posteriors import verified

if TYPE_CHECKING:
    from worker.records.cache_entry import Array
    from worker.storage.posteriors import PosteriorRecord

DTYPES = {"float64": "<f8", "float32": "<f4"}


def require_dataset(archive: Archive, dataset: Dataset) -> None:
    """Raise ``backup-unreadable`` unless an archive has the files of a data set, and they match its id."""
    id_ = dataset.id
    expected = {member_of(id_, name) for name in (VALUES, *dataset.extras)}
    if set(archive.names(f"datasets/{id_}.", "")) != expected:
        raise damaged(f"data set {id_} lacks files, or has unexpected ones")
    extras = {name: array_in(archive, member_of(id_, name)) for name in EXTRAS if name in dataset.extras}
    if dataset.sha256 != _digest(archive, dataset, extras) or dataset_id(dataset.sha256, dataset.tenant) != id_:
        raise damaged(f"data set {id_} does not match its id")


def require_import(archive: Archive, record: PosteriorRecord) -> None:
    """Raise ``backup-unreadable`` unless an archive has the file of an imported posterior, which matches its id."""
    member = f"posteriors/{record.id}.npz"
    if member not in archive:
        raise damaged(f"the imported posterior {record.id} lacks its file")
    with archive.open(member) as source, tempfile.NamedTemporaryFile(suffix=".npz") as file:
        while piece := source.read(PIECE):
            file.write(piece)
        file.flush()
        posterior = verified(Path(file.name), record.id, record.tenant)
        if posterior is None or content_sha256({}, posterior.arrays()) != record.arrays_sha256:
            raise damaged(f"the imported posterior {record.id} does not match its id")


def array_in(archive: Archive, member: str) -> Array:
    """Return an array of an archive; a header that exceeds the member allocates no memory."""
    with archive.open(member) as file:
        shape, is_fortran, dtype = _header(file, archive.size(member))
        if dtype.kind not in "fiubU":
            raise damaged(f"{member} is of {dtype}")
        return np.frombuffer(file.read(), dtype).reshape(shape, order="F" if is_fortran else "C")


def _digest(archive: Archive, dataset: Dataset, extras: dict[str, Array]) -> str:
    """Return the digest of a data set's content; refuse values that are not finite."""
    member = member_of(dataset.id, VALUES)
    with archive.open(member) as file:
        shape, is_fortran, dtype = _header(file, archive.size(member))
        if shape != (dataset.n, dataset.d) or is_fortran or dtype.str != DTYPES.get(dataset.dtype):
            raise damaged(f"{member} does not match its record")
        content = Content((dataset.n, dataset.d), dtype, dataset.names, extras)
        while piece := file.read(PIECE):  # complete values: the header was checked, and 8 divides the size of a piece
            if not np.isfinite(np.frombuffer(piece, dtype)).all():
                raise damaged(f"{member} has values that are not finite")
            content.add(piece)
    return content.digest()


def _header(file: IO[bytes], size: int) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Return shape, order and dtype of an npy file of exactly the size that they imply."""
    try:
        version = np.lib.format.read_magic(file)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, is_fortran, dtype = reader(file)
        nbytes = math.prod(shape) * dtype.itemsize
    except (ValueError, TypeError) as error:
        raise damaged(f"an array cannot be read ({error})") from error
    if dtype.hasobject or min(shape, default=0) < 0 or nbytes != size - file.tell():
        raise damaged("the size of an array does not match its header")
    return shape, is_fortran, dtype
