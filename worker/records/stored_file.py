"""Stored file, as the record that names it says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StoredFile:
    """File of a record: the path of its object, its bytes, and their SHA-256."""

    path: str
    size: int
    sha256: str
