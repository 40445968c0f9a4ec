"""CSV bodies: one point a row, an optional header, an optional label column; every bad cell is named."""

from __future__ import annotations

import csv
import itertools
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from service.uploads.disk_array import Appended, check_inflated
from service.uploads.formats.csv_lines import Lines
from service.uploads.label_columns import Labels, no_such_column
from service.uploads.limits import check_names
from worker.base.problems import ProblemError, refuse
from worker.storage.datasets import Table
from worker.storage.validation import REMEDIES, BadRows, bad_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service.uploads.label_columns import Apart
    from service.uploads.limits import Limits

_BLOCK_CELLS, _BLOCK_CHARACTERS = 2**16, 2**22  # of rows that are text at a time: a cell takes some sixty bytes
_LINES_A_POINT = 4  # blank ones between them, and those within quotes
_MOST_CELL = 1000  # characters of a number
_MOST_TOLD = 100  # names of columns that a problem lists
_EXACT_DIGITS = 15  # an integer of so many digits is a float64 without loss


def read_csv(file: IO[bytes], limits: Limits, apart: Apart, *, header: bool | None = None) -> Table:
    """Return the table of a CSV file (UTF-8, commas).

    The first row is a header when `header` says so; when it says nothing, if none of its cells is a number. `apart`
    names (or counts, from 0) the columns that are set apart.

    Raises
    ------
    ProblemError
        ``bad-cell`` or ``ragged-row`` with the row (of the data, from 1) and the column, and others.

    """
    lines = Lines(file, _LINES_A_POINT * (limits.points + 1))
    return _table(file, lines, limits, apart, header)


@dataclass(frozen=True)
class _Layout:
    """Which column is what; `numbers` are the features, and the colour after them."""

    width: int
    names: list[str] | None
    label: int | None
    color: int | None

    @property
    def features(self) -> list[int]:
        return [column for column in range(self.width) if column not in {self.label, self.color}]

    @property
    def numbers(self) -> list[int]:
        return [*self.features, *([] if self.color is None else [self.color])]


def _table(file: IO[bytes], lines: Lines, limits: Limits, apart: Apart, headed: bool | None) -> Table:  # noqa: FBT001 # three states, from one place
    rows = _rows(lines)
    first = next(rows, [])
    if len(first) > limits.features + 2:  # a label and a colour are none; before every cell is looked at
        limits.check((1, len(first)))
    headed = not any(_is_number(cell) for cell in first) if headed is None else headed
    header = [cell.strip() for cell in first] if headed else None
    data = rows if headed else itertools.chain([first], rows)
    layout = _Layout(
        len(first), header, _column(apart.label, header, len(first)), _column(apart.color, header, len(first))
    )
    if layout.label is not None and layout.label == layout.color:
        detail = "?label= and ?color= name the same column."
        raise refuse("same-column", 422, detail, "Name two columns, or leave one of them out.")
    features = len(layout.features)
    names = header and [header[column] for column in layout.features]
    limits.check((1, features))
    check_names(names, features)
    appended = Appended(file, np.dtype(np.float64), max(1, features))
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
        appended.write(np.ascontiguousarray(numbers[:, :features]).reshape(-1).view(np.uint8).data)
        if layout.color is not None:
            color.append(np.ascontiguousarray(numbers[:, features]))
    limits.check((count, features))
    return Table(
        values=appended.values(),
        names=names,
        labels=None if layout.label is None else _label_array(labels),
        color=None if layout.color is None else np.concatenate(color),
        source={"kind": "upload", "format": "csv"},
    )


def _rows(lines: Lines) -> Iterator[list[str]]:
    try:
        for row in csv.reader(lines, strict=True):
            if row:  # blank lines are no rows
                yield row
            lines.row = 0
    except UnicodeDecodeError as error:
        remedy = "Save it as UTF-8; an npy file belongs in application/x-npy."
        raise refuse("malformed-csv", 422, f"The body is not UTF-8 text: {error.reason}.", remedy) from None
    except csv.Error as error:
        remedy = "Check the quotes of that line."
        raise refuse("malformed-csv", 422, f"The body is not CSV: {error}.", remedy) from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell and len(cell) <= _MOST_CELL  # Python's digit groups are no CSV


def _column(name: str | None, header: list[str] | None, width: int) -> int | None:
    """Return the column that is named, or counted from 0."""
    if name is None:
        return None
    if header and name in header:
        return header.index(name)
    if name.isascii() and name.isdigit() and len(name) < 10 and int(name) < width:
        return int(name)
    raise no_such_column(name, ", ".join(header[:_MOST_TOLD]) if header else f"0 to {width - 1} (there is no header)")


def _blocks(rows: Iterator[list[str]], lines: Lines, width: int) -> Iterator[list[list[str]]]:
    """Yield the rows in blocks that take little memory, however wide they are."""
    block: list[list[str]] = []
    characters = 0
    for number, row in enumerate(rows, 1):
        if len(row) != width:
            raise refuse(
                "ragged-row",
                422,
                f"Row {number} has {len(row)} cells, the first has {width}.",
                "Give every row the same number of cells, separated by commas.",
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
    """Return the numbers of a block of rows; of the `rest` it is only told how many are bad, when one here is."""
    wanted = layout.numbers
    picked = (
        block if len(wanted) == layout.width and layout.color is None else [[row[i] for i in wanted] for row in block]
    )
    try:
        values = np.array([[float(cell) for cell in row] for row in picked], np.float64)
    except ValueError:
        values = np.full((1, 1), np.nan)  # some cell is no number: found below
    plain = bool((np.abs(values) < 10**_EXACT_DIGITS).all())  # NaN and infinity are not
    if plain and not any("_" in cell or len(cell) > _MOST_CELL for row in picked for cell in row):
        return values
    found: ProblemError | None = None
    bad = BadRows()
    for number, row in enumerate(block, start):
        if (problem := _first_bad(row, number, layout)) is not None:
            found = found or problem
            bad.add([number])
    if found is None:
        return values
    bad.add(
        number
        for number, row in enumerate(rest, start + len(block))
        if len(row) == layout.width and _first_bad(row, number, layout) is not None
    )
    raise bad.annotate(found)


def _first_bad(row: list[str], number: int, layout: _Layout) -> ProblemError | None:
    """Return the problem of a row's first bad cell."""
    for column in sorted(layout.numbers):
        if (problem := _bad(row[column], number, column, layout.names)) is not None:
            return problem
    return None


def _bad(cell: str, row: int, column: int, names: list[str] | None) -> ProblemError | None:
    """Return the problem of a cell, or None for a good one."""
    if not _is_number(cell):
        remedy = (
            "Fill the cell in, remove its row, or set its column apart with ?label=."
            if cell.strip()
            else "Fill the cell in, or remove its row."
        )
        return bad_value("bad-cell", cell, row, column, names=names, remedy=remedy)
    if not np.isfinite(float(cell)):
        return bad_value("not-finite", cell, row, column, names=names, remedy=REMEDIES["not-finite"])
    digits = cell.strip().lstrip("+-")
    if digits.isdigit() and int(float(cell)) != int(cell):
        return bad_value("inexact-integer", cell, row, column, names=names, remedy=REMEDIES["inexact-integer"])
    return None


def _label_array(labels: Labels) -> np.ndarray[Any, Any]:
    numeric = all(_is_number(cell) and np.isfinite(float(cell)) for cell in labels.found)
    return np.array([float(cell) for cell in labels.found]) if numeric else labels.array()
