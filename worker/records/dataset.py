"""A data set as its record has it, and what it is made of."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from worker.base.versions import load_record
from worker.records.tenants import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping

Array = np.ndarray[Any, np.dtype[Any]]

EXTRAS = ("labels", "color", "coordinates")  # what may be kept beside the values, in the order of the digest


@dataclass(frozen=True, kw_only=True)
class Table:
    """What a reader found in a body.

    Parameters
    ----------
    values
        (n, d) array of any real dtype and memory order; may be mapped from a file.
    names
        Names of the d features.
    labels
        (n,) classes of the points, float64 or str.
    color
        (n,) a number of each point to colour it by, float64.
    coordinates
        (n, 2) true coordinates, known of synthetic data.
    source
        Where it comes from, JSON-able.

    """

    values: Array
    source: dict[str, Any]
    names: list[str] | None = None
    labels: Array | None = None
    color: Array | None = None
    coordinates: Array | None = None

    @property
    def extras(self) -> dict[str, Array]:
        """The arrays of `EXTRAS` that it has, in their order and little-endian, as they are stored."""
        arrays = {"labels": self.labels, "color": self.color, "coordinates": self.coordinates}
        return {
            name: array.astype(array.dtype.newbyteorder("<"), copy=False)
            for name, array in arrays.items()
            if array is not None
        }


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The record of a data set; `sha256` is the digest of its content, and `id` is made of it."""

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
    # Records of before there were these have them not.
    has_color: bool = False
    name: str | None = None
    tags: list[str] = field(default_factory=list)

    @property
    def extras(self) -> tuple[str, ...]:
        """Those of `EXTRAS` that are kept beside the values."""
        there = {"labels": self.has_labels, "color": self.has_color, "coordinates": self.has_coordinates}
        return tuple(name for name in EXTRAS if there[name])

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON-able dictionary."""
        return asdict(self)


def record_of(id_: str, raw: bytes) -> Dataset:
    """Return a record as it was written; raises as `worker.base.versions.load_record`."""
    return load_record(f"The record of data set {id_}", raw, lambda told: Dataset(**told))


class Content:
    """SHA-256 of a data set's content, fed with its values in C order.

    The digest is of shape, dtype and names, then of the values, then of the name and the bytes of each of `EXTRAS`.
    Labels that are numbers, but whose bytes text could have, have their dtype in it, too; in earlier versions they had
    not.

    Parameters
    ----------
    shape
        (n, d).
    dtype
        Of the stored values.
    names
        Of the d features, or None.
    extras
        The arrays beside the values, in the order of `EXTRAS`.

    """

    def __init__(
        self, shape: tuple[int, int], dtype: np.dtype[Any], names: list[str] | None, extras: Mapping[str, Array]
    ) -> None:
        heads: list[list[Any]] = [[*shape, dtype.str, names]]
        if _may_be_text(extras.get("labels")):
            heads.insert(0, [*heads[0], {"labels": "<f8"}])
        self._extras = extras
        self._hashes = [hashlib.sha256(json.dumps(head).encode()) for head in heads]

    def add(self, values: bytes | memoryview) -> None:
        """Add the next bytes of the values."""
        for content in self._hashes:
            content.update(values)

    def digests(self) -> list[str]:
        """Return the digest, and where that differs the one of earlier versions; after all values."""
        found = [content.copy() for content in self._hashes]
        for name, extra in self._extras.items():
            for content in found:
                content.update(name.encode() + extra.tobytes())
        return [content.hexdigest() for content in found]


def _may_be_text(labels: Array | None) -> bool:
    """Say whether labels are numbers whose bytes text of two characters could have: zero, or below 1e-308."""
    if labels is None or labels.dtype.kind != "f" or not labels.any():  # text of two characters has some second one
        return False
    return bool((np.ascontiguousarray(labels, "<f8").view("<u4") <= sys.maxunicode).all())
