"""A stored file, as described by the record that names it."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ConfigDict

STORED = ConfigDict(extra="forbid")  # refuse members that another program has added to a record
ORPHAN_SECONDS = 6 * 3600  # a file may be written this long before a record or the index names it


@dataclass(frozen=True)
class StoredFile:
    """File of a record: the path of its object, its bytes, and their SHA-256."""

    path: str
    size: int
    sha256: str
