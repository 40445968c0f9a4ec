"""Files that are there whole or not at all, and what room they take."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def size(path: Path) -> int:
    """Return the bytes of a file, 0 where there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


class Temporary:
    """A file being written, readable by its owner alone; `publish` gives it its name, whole."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.write = file.write

    def publish(self, path: Path) -> None:
        """Put it in the place of what was there."""
        self._file.flush()
        os.fsync(self._file.fileno())
        Path(self._file.name).replace(path)


@contextlib.contextmanager
def temporary(folder: Path) -> Iterator[Temporary]:
    """Yield a temporary file in `folder`, gone afterwards unless it was published."""
    file = tempfile.NamedTemporaryFile(dir=folder, prefix=".", delete=False)  # noqa: SIM115 # closed below
    try:
        with file:
            yield Temporary(file)
    finally:
        Path(file.name).unlink(missing_ok=True)
