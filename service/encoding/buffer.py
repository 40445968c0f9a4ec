"""A file that is not kept: what a writer puts into it is taken out again, piece by piece, and sent."""

from __future__ import annotations

import io
from typing import Any


class PieceBuffer(io.RawIOBase):
    """Takes what a writer of zip or Arrow writes and hands it on; it cannot seek, so the writer does not try."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        """Say that it can be written to."""
        return True

    def write(self, data: Any) -> int:
        """Take bytes."""
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def take(self) -> bytes:
        """Return what was written since the last time."""
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken
