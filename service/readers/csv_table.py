"""CSV bodies: one point a row, an optional header, an optional label column; every bad cell is named."""

from __future__ import annotations

import csv
import io
import itertools
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from service.readers.apart import no_such_column, text_labels
from service.readers.shape import check_names
from worker.cells import REMEDIES, BadRows, bad_cell
from worker.datasets import Table
from worker.problems import ProblemError, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service.readers.apart import Apart
    from service.readers.shape import Limits

_BLOCK_ROWS = 1024
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
    text = io.TextIOWrapper(file, "utf-8-sig", newline="")
    try:
        return _table(_rows(text), limits, apart, header)
    finally:
        text.detach()  # the file belongs to whoever opened it


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


def _table(rows: Iterator[list[str]], limits: Limits, apart: Apart, headed: bool | None) -> Table:  # noqa: FBT001 # three states, from one place
    first = next(rows, [])
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
    blocks: list[np.ndarray[Any, np.dtype[np.float64]]] = []
    labels: list[str] = []
    count = 0
    while block := list(itertools.islice(data, _BLOCK_ROWS)):
        _check_widths(block, len(first), count)
        if layout.label is not None:
            labels += [row[layout.label].strip() for row in block]
        blocks.append(_numbers(block, count, layout, data))
        count += len(block)
        limits.check((count, features))
    limits.check((count, features))
    numbers = np.concatenate(blocks)
    return Table(
        values=numbers[:, :features],
        names=names,
        labels=None if layout.label is None else _label_array(labels),
        color=None if layout.color is None else np.ascontiguousarray(numbers[:, features]),
        source={"kind": "upload", "format": "csv"},
    )


def _rows(text: IO[str]) -> Iterator[list[str]]:
    try:
        yield from (row for row in csv.reader(text, strict=True) if row)  # blank lines are no rows
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
    return "_" not in cell  # Python's digit groups are no CSV


def _column(name: str | None, header: list[str] | None, width: int) -> int | None:
    """Return the column that is named, or counted from 0."""
    if name is None:
        return None
    if header and name in header:
        return header.index(name)
    if name.isascii() and name.isdigit() and int(name) < width:
        return int(name)
    raise no_such_column(name, ", ".join(header) if header else f"0 to {width - 1} (there is no header)")


def _check_widths(block: list[list[str]], width: int, start: int) -> None:
    for number, row in enumerate(block, start + 1):
        if len(row) != width:
            raise refuse(
                "ragged-row",
                422,
                f"Row {number} has {len(row)} cells, the first has {width}.",
                "Give every row the same number of cells, separated by commas.",
                row=number,
            )


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
    if plain and not any("_" in cell for row in picked for cell in row):
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
    raise bad.told(found)


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
        return bad_cell("bad-cell", cell, row, column, names=names, remedy=remedy)
    if not np.isfinite(float(cell)):
        return bad_cell("not-finite", cell, row, column, names=names, remedy=REMEDIES["not-finite"])
    digits = cell.strip().lstrip("+-")
    if digits.isdigit() and int(float(cell)) != int(cell):
        return bad_cell("inexact-integer", cell, row, column, names=names, remedy=REMEDIES["inexact-integer"])
    return None


def _label_array(labels: list[str]) -> np.ndarray[Any, Any]:
    numeric = all(_is_number(cell) and np.isfinite(float(cell)) for cell in labels)
    return np.array([float(cell) for cell in labels]) if numeric else text_labels(labels)
