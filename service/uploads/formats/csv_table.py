"""CSV bodies: one point in each row, an optional header, optional label and color columns.

Parsed by Python's csv and float, because errors must name row and column and numbers must be exact. numpy.loadtxt
(1.1 s for 100,000 x 50; this reader 3.3 s) refuses quotes and rounds integers beyond 2^53. pyarrow (2.2 s) accepts
0x10 and true, reads an empty cell as null, and infers a type for each column.
"""

from __future__ import annotations

import csv
import io
import itertools
import os
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from service.uploads.disk_array import DiskArray, check_inflated
from service.uploads.label_columns import Labels, no_such_column, require_distinct
from service.uploads.limits import check_names
from worker.base.problems import ProblemError, refuse
from worker.storage.datasets import Table
from worker.storage.validation import REMEDIES, BadRows, bad_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import WriteableBuffer

    from service.uploads.label_columns import LabelColumns
    from service.uploads.limits import Limits

MOST_ROW = 2**21  # characters of a row: 10,000 features of 200 characters
_BLOCK_CELLS, _BLOCK_CHARACTERS = 2**16, 2**22  # of the rows in memory as text: a cell takes some 60 bytes
_LINES_PER_POINT = 4  # for blank lines and line ends within quotes
_MOST_CELL = 1000  # characters of a number
_MOST_LISTED = 100  # column names in a problem
_EXACT_DIGITS = 15  # every integer of 15 digits is an exact float64


def read_csv(file: IO[bytes], limits: Limits, label_columns: LabelColumns, *, header: bool | None = None) -> Table:
    """Return the table of a CSV file (UTF-8, commas).

    The first row is a header if `header` is true, or if it is None and none of its cells is a number. A label column
    is a name, or a number from 0.

    Raises
    ------
    ProblemError
        ``bad-cell`` or ``ragged-row`` with the row (of the data, from 1) and the column, and others.

    """
    lines = Lines(file, _LINES_PER_POINT * (limits.points + 1))
    rows = _rows(lines)
    first = next(rows, [])
    if len(first) > limits.features + 2:  # a label and a color are not features; checked before every cell is read
        limits.check((1, len(first)))
    has_header = not any(_is_number(cell) for cell in first) if header is None else header
    data = rows if has_header else itertools.chain([first], rows)
    layout = _Layout.of([cell.strip() for cell in first] if has_header else None, len(first), label_columns)
    features = len(layout.features)
    names = layout.names and [layout.names[column] for column in layout.features]
    limits.check((1, features))
    check_names(names, features)
    disk_array = DiskArray(file, np.dtype(np.float64), max(1, features))
    color: list[np.ndarray[Any, Any]] = []
    labels = Labels()
    count = 0
    for block in _blocks(data, lines, layout.width):
        if layout.label is not None:
            labels.add([row[layout.label].strip() for row in block])
        numbers = _numbers(block, count, layout, data)
        count += len(block)
        limits.check((count, features))
        check_inflated("The table", 8 * count * features, limits)
        disk_array.write(np.ascontiguousarray(numbers[:, :features]).reshape(-1).view(np.uint8).data)
        if layout.color is not None:
            color.append(np.ascontiguousarray(numbers[:, features]))
    limits.check((count, features))
    return Table(
        values=disk_array.values(),
        names=names,
        labels=None if layout.label is None else _label_array(labels),
        color=None if layout.color is None else np.concatenate(color),
        source={"kind": "upload", "format": "csv"},
    )


class Lines:
    """Lines of a body up to its current end, because values are appended to the same file.

    Parameters
    ----------
    file
        The body.
    most
        Number of lines, with blank lines and lines within quotes.

    Attributes
    ----------
    row
        Characters of the current row, with the line ends within its quotes. The reader of the rows resets it.

    """

    def __init__(self, file: IO[bytes], most: int) -> None:
        self._remaining = self._most = most
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
            ``row-too-long``, before more of the row is read, and ``too-many-lines``.

        """
        line = self._text.readline(MOST_ROW + 1)
        if not line:
            raise StopIteration
        self._remaining -= 1
        if self._remaining < 0:
            detail = f"The body has more than {self._most:,} lines, blank lines included."
            raise refuse("too-many-lines", 422, detail, "Remove blank lines.", allowed=self._most)
        self.row += len(line)
        if self.row > MOST_ROW:
            detail = f"A row has more than {MOST_ROW:,} characters."
            remedy = "Check the line ends and the quotes, or send npy."
            raise refuse("row-too-long", 422, detail, remedy, allowed=MOST_ROW)
        return line


class _Body(io.RawIOBase):
    """Bytes of a file up to its current end."""

    def __init__(self, file: IO[bytes]) -> None:
        self._descriptor = file.fileno()
        self._offset, self._end = 0, os.fstat(self._descriptor).st_size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        piece = os.pread(self._descriptor, min(len(view), self._end - self._offset), self._offset)
        view[: len(piece)] = piece
        self._offset += len(piece)
        return len(piece)


@dataclass(frozen=True)
class _Layout:
    """Roles of the columns; `numbers` lists the features, then the color."""

    width: int
    names: list[str] | None
    label: int | None
    color: int | None

    @classmethod
    def of(cls, names: list[str] | None, width: int, label_columns: LabelColumns) -> _Layout:
        label = _column(label_columns.label, names, width)
        color = _column(label_columns.color, names, width)
        require_distinct(label, color)
        return cls(width, names, label, color)

    @property
    def features(self) -> list[int]:
        return [column for column in range(self.width) if column not in {self.label, self.color}]

    @property
    def numbers(self) -> list[int]:
        return [*self.features, *([] if self.color is None else [self.color])]


def _rows(lines: Lines) -> Iterator[list[str]]:
    try:
        for row in csv.reader(lines, strict=True):
            if row:  # a blank line is not a row
                yield row
            lines.row = 0
    except UnicodeDecodeError as error:
        remedy = "Save it as UTF-8. Send an npy file as application/x-npy."
        raise refuse("malformed-csv", 422, f"The body is not UTF-8 text: {error.reason}.", remedy) from None
    except csv.Error as error:
        remedy = "Check the quotes of that line."
        raise refuse("malformed-csv", 422, f"The body is not CSV: {error}.", remedy) from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell and len(cell) <= _MOST_CELL  # Python accepts digit groups, CSV does not


def _column(name: str | None, header: list[str] | None, width: int) -> int | None:
    """Return the index of a column by its name or number."""
    if name is None:
        return None
    if header and name in header:
        return header.index(name)
    if name.isascii() and name.isdigit() and len(name) < 10 and int(name) < width:
        return int(name)
    raise no_such_column(name, ", ".join(header[:_MOST_LISTED]) if header else f"0 to {width - 1} (there is no header)")


def _blocks(rows: Iterator[list[str]], lines: Lines, width: int) -> Iterator[list[list[str]]]:
    """Yield the rows in blocks of bounded memory."""
    block: list[list[str]] = []
    characters = 0
    for number, row in enumerate(rows, 1):
        if len(row) != width:
            raise refuse(
                "ragged-row",
                422,
                f"Row {number} has {len(row)} cells, the first has {width}.",
                "Send rows with the same number of cells, separated by commas.",
                row=number,
            )
        block.append(row)
        characters += lines.row
        if len(block) * width >= _BLOCK_CELLS or characters >= _BLOCK_CHARACTERS:
            yield block
            block, characters = [], 0
    if block:
        yield block


def _numbers(block: list[list[str]], start: int, layout: _Layout, rest: Iterator[list[str]]) -> np.ndarray[Any, Any]:
    """Return the numbers of a block, or raise the problem of its first bad cell with the number of bad rows."""
    if layout.numbers == list(range(layout.width)):
        cells = block
    else:
        cells = [[row[column] for column in layout.numbers] for row in block]
    try:
        values = np.array([[float(cell) for cell in row] for row in cells], np.float64)
    except ValueError:
        values = np.full((1, 1), np.nan)  # the check of the cells below finds the bad one
    is_plain = bool((np.abs(values) < 10**_EXACT_DIGITS).all())  # false for NaN and infinity
    if is_plain and not any("_" in cell or len(cell) > _MOST_CELL for row in cells for cell in row):
        return values
    first: ProblemError | None = None
    bad = BadRows()
    for number, row in enumerate(block, start):
        if (problem := _first_bad(row, number, layout)) is not None:
            first = first or problem
            bad.add([number])
    if first is None:
        return values
    bad.add(
        number
        for number, row in enumerate(rest, start + len(block))
        if len(row) == layout.width and _first_bad(row, number, layout) is not None
    )
    raise bad.annotate(first)


def _first_bad(row: list[str], number: int, layout: _Layout) -> ProblemError | None:
    """Return the problem of the first bad cell of a row, or None."""
    for column in sorted(layout.numbers):
        if (problem := _cell_problem(row[column], number, column, layout.names)) is not None:
            return problem
    return None


def _cell_problem(cell: str, row: int, column: int, names: list[str] | None) -> ProblemError | None:
    digits = cell.strip().lstrip("+-")
    if not _is_number(cell):
        remedy = "Fill the cell in, or remove its row."
        if cell.strip():
            remedy = "Fill the cell in, remove its row, or set its column apart with ?label=."
        return bad_value("bad-cell", cell, row, column, names=names, remedy=remedy)
    if not np.isfinite(float(cell)):
        code = "not-finite"
    elif digits.isdigit() and int(float(cell)) != int(cell):
        code = "inexact-integer"
    else:
        return None
    return bad_value(code, cell, row, column, names=names, remedy=REMEDIES[code])


def _label_array(labels: Labels) -> np.ndarray[Any, Any]:
    is_numeric = all(_is_number(cell) and np.isfinite(float(cell)) for cell in labels.values)
    return np.array([float(cell) for cell in labels.values]) if is_numeric else labels.array()
