"""The lines of a CSV body, read so that no row of it is ever larger than memory is to hold."""

from __future__ import annotations

import io
import os
from typing import IO, TYPE_CHECKING

from worker.base.problems import refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import WriteableBuffer

MOST_ROW = 2**21  # characters of a row: 10,000 features have 200 each


class Lines:
    """The lines of a body from its begin to where it ends now, whatever is appended to its file meanwhile.

    Parameters
    ----------
    file
        The body.
    most
        Lines that are read, blank ones and those within quotes included.

    Attributes
    ----------
    row
        Characters of the row that is being read, line ends within its quotes included; whoever reads rows sets it back.

    """

    def __init__(self, file: IO[bytes], most: int) -> None:
        self._left = self._most = most
        self._text = io.TextIOWrapper(io.BufferedReader(_Body(file)), "utf-8-sig", newline="")
        self.row = 0

    def __iter__(self) -> Iterator[str]:
        """Return itself."""
        return self

    def __next__(self) -> str:
        """Return the next line.

        Raises
        ------
        ProblemError
            ``row-too-long``, before more of it is read, and ``too-many-lines``.

        """
        line = self._text.readline(MOST_ROW + 1)
        if not line:
            raise StopIteration
        self._left -= 1
        if self._left < 0:
            detail = f"The body has more than {self._most:,} lines, blank ones included."
            raise refuse("too-many-lines", 422, detail, "Leave blank lines out.", allowed=self._most)
        self.row += len(line)
        if self.row > MOST_ROW:
            detail = f"A row has more than {MOST_ROW:,} characters."
            remedy = "Check the line ends and the quotes, or send npy."
            raise refuse("row-too-long", 422, detail, remedy, allowed=MOST_ROW)
        return line


class _Body(io.RawIOBase):
    """The bytes of a file up to where it ends now."""

    def __init__(self, file: IO[bytes]) -> None:
        self._descriptor = file.fileno()
        self._place, self._end = 0, os.fstat(self._descriptor).st_size

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill the buffer as far as there are bytes."""
        view = memoryview(buffer).cast("B")
        piece = os.pread(self._descriptor, min(len(view), self._end - self._place), self._place)
        view[: len(piece)] = piece
        self._place += len(piece)
        return len(piece)
