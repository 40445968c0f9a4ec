"""How a record names a stored file: by path, size and digest."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ConfigDict

STORED = ConfigDict(extra="forbid")  # pydantic configuration of records: refuse unknown members
ORPHAN_SECONDS = 6 * 3600  # a file without a record is kept this long, because its record may still be written


@dataclass(frozen=True)
class StoredFile:
    """A file: its path in the store, its number of bytes, and the SHA-256 of its content."""

    path: str
    size: int
    sha256: str
