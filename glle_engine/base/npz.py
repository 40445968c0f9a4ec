"""Arrays and JSON metadata in one .npz file, without pickle."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_HEAD = "head.json"


def save(path: str | os.PathLike[str], head: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Replace `path` atomically by a file of metadata and arrays; the file survives a power cut whole."""
    path = Path(path)
    encoded = np.frombuffer(json.dumps(head, allow_nan=False).encode(), np.uint8)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, allow_pickle=False, **{_HEAD: encoded}, **arrays)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the metadata and the arrays of a file that `save` wrote.

    Raises
    ------
    StorageError
        When the file has another format, or is damaged. A missing file is a FileNotFoundError.

    """
    try:
        # numpy leaves a file that it opened itself and cannot read open
        with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        return json.loads(arrays.pop(_HEAD).tobytes()), arrays
    except (ValueError, KeyError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise StorageError(
            f"{os.fspath(path)} is not a saved posterior: {error}.",
            remedy="Give a file written by Posterior.save.",
        ) from error
