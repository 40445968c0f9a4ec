"""The record of a data set, and the digest of a data set's content, from which its id is derived."""

from __future__ import annotations

import hashlib
import json
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
import pydantic.dataclasses

from glle_engine.tables.table import EXTRAS
from worker.records.ids import DEFAULT
from worker.records.stored_file import STORED, StoredFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Array = np.ndarray[Any, np.dtype[Any]]

VALUES = "values"  # name of the file with the values (n, d) of a data set


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=STORED)
class Dataset:
    """Record of a data set with n points and d features.

    Parameters
    ----------
    id
        Derived from `sha256`, so that equal data of a tenant are one data set.
    sha256
        Digest of the content (`content_digest`).
    source
        Where the data come from, such as the format of the upload and the roles of its columns.
    stored
        The npy file of each array, by name: ``values`` (n, d), and those of ``labels``, ``colors``, ``coordinates`` and
        ``ids`` that the data set has.

    """

    id: str
    sha256: str
    n: int
    d: int
    dtype: str
    nbytes: int
    names: list[str] | None
    has_labels: bool
    has_coordinates: bool
    source: dict[str, Any]
    created: str
    tenant: str = DEFAULT
    has_colors: bool = False
    name: str | None = None
    tags: list[str] = field(default_factory=list)
    has_ids: bool = False
    stored: dict[str, StoredFile] = field(default_factory=dict)

    @property
    def files(self) -> dict[str, StoredFile]:
        """The npy files of the data set, by their paths in the store."""
        return {file.path: file for file in self.stored.values()}

    @property
    def extras(self) -> tuple[str, ...]:
        """The names of the arrays that this data set has beside its values: some of `EXTRAS`, such as ``labels``."""
        return tuple(name for name in EXTRAS if getattr(self, f"has_{name}"))


def content_digest(
    shape: tuple[int, int],
    dtype: np.dtype[Any],
    names: list[str] | None,
    extras: Mapping[str, Array],
    values: Iterable[bytes | memoryview],
) -> str:
    """Return the SHA-256 of a data set's content: of shape, dtypes, feature names, values and extra arrays.

    Parameters
    ----------
    shape
        (n, d).
    dtype
        Dtype of the stored values.
    names
        Names of the d features, or None.
    extras
        Extra arrays by name, in the order of `EXTRAS`.
    values
        Consecutive parts of the bytes of the values, in C order.

    """
    head = [*shape, dtype.str, names, {name: extra.dtype.str for name, extra in extras.items()}]
    hasher = hashlib.sha256(json.dumps(head).encode())
    for chunk in values:
        hasher.update(chunk)
    for name, extra in extras.items():
        hasher.update(name.encode() + extra.tobytes())
    return hasher.hexdigest()
