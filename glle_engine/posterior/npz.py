"""Save and load the arrays and the metadata of a posterior as one .npz file, without pickle."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_HEAD = "head.json"
_REMEDY = "Give a file written by Posterior.save, or by the export of a service; write it again."
_UNREADABLE = (
    ValueError, KeyError, EOFError, AttributeError, TypeError, OverflowError, RuntimeError, zipfile.BadZipFile,
    zlib.error,
)  # fmt: skip


def save(path: str | os.PathLike[str], head: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write metadata (`head`, JSON-able) and arrays to a .npz file, which replaces `path` atomically.

    After a power cut, `path` is the old file or the complete new file.
    """
    path = Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, allow_pickle=False, **saved_arrays(head, arrays))
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def saved_arrays(head: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays to store in a .npz file: `arrays`, and the metadata `head` as JSON in an array of bytes."""
    return {_HEAD: np.frombuffer(json.dumps(head, allow_nan=False).encode(), np.uint8), **arrays}


def load(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the metadata and the arrays of a file that `save` wrote.

    Raises
    ------
    StorageError
        If the file has another format, or is damaged.
    FileNotFoundError
        If there is no file at `path`.

    """
    try:
        # numpy would not close a file that it opens itself and cannot read
        with Path(path).open("rb") as raw, zipfile.ZipFile(raw), np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        return json.loads(arrays.pop(_HEAD).tobytes()), arrays
    except _UNREADABLE as error:
        raise StorageError(
            f"{os.fspath(path)} is not the file of a saved posterior: {str(error).rstrip('.')}.", remedy=_REMEDY
        ) from error


def require_array(
    name: str,
    array: NDArray[Any],
    dtype: type[np.generic],
    shape: tuple[int, ...],
    *,
    below: int | None = None,
) -> None:
    """Raise `StorageError` unless an array from a file has this type and shape, and no NaN or infinite entries.

    Unless `below` is None, all entries must be indices from 0 to below - 1. The error calls the array `name`.
    """
    if array.dtype != dtype or array.shape != shape:
        raise inconsistent(
            f"the array {name} has type {array.dtype} and shape {array.shape}, not {dtype.__name__} and {shape}"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise inconsistent(f"the array {name} has NaN or infinite entries")
    if below is not None and array.size and not (int(array.min()) >= 0 and int(array.max()) < below):
        raise inconsistent(
            f"the array {name} has entries from {array.min()} to {array.max()}, but only 0 to {below - 1} are valid"
        )


def inconsistent(reason: str) -> StorageError:
    """Return the error for a file whose arrays and metadata cannot be those of a saved posterior, because of `reason`.

    `reason` is a clause, such as "the embedding has NaN entries".
    """
    return StorageError(f"The file of the posterior is damaged, or another program wrote it: {reason}.", remedy=_REMEDY)
