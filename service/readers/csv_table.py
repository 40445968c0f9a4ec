"""CSV bodies: one point a row, an optional header, an optional label column; every bad cell is named."""

from __future__ import annotations

import csv
import io
import itertools
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from service.readers.shape import check_names
from worker.datasets import Table, bad_cell
from worker.problems import ProblemError, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service.readers.shape import Limits

_BLOCK_ROWS = 1024
_EXACT_DIGITS = 15  # an integer of so many digits is a float64 without loss


def read_csv(file: IO[bytes], limits: Limits, label: str | None = None) -> Table:
    """Return the table of a CSV file (UTF-8, commas).

    The first row is a header when none of its cells is a number. `label` names (or counts, from 0) the
    column that is set apart as labels.

    Raises
    ------
    ProblemError
        ``bad-cell`` or ``ragged-row`` with the row (of the data, from 1) and the column, and others.

    """
    text = io.TextIOWrapper(file, "utf-8-sig", newline="")
    try:
        return _table(_rows(text), limits, label)
    finally:
        text.detach()  # the file belongs to whoever opened it


def _table(rows: Iterator[list[str]], limits: Limits, label: str | None) -> Table:
    first = next(rows, [])
    header = None if any(_is_number(cell) for cell in first) else [cell.strip() for cell in first]
    data = rows if header else itertools.chain([first], rows)
    column = None if label is None else _label_column(label, header, len(first))
    names = header and [name for i, name in enumerate(header) if i != column]
    features = len(first) - (column is not None)
    limits.check((1, features))
    check_names(names, features)
    blocks: list[np.ndarray[Any, np.dtype[np.float64]]] = []
    labels: list[str] = []
    count = 0
    while block := list(itertools.islice(data, _BLOCK_ROWS)):
        _check_widths(block, len(first), count)
        if column is not None:
            labels += [row.pop(column).strip() for row in block]
        blocks.append(_numbers(block, count, names))
        count += len(block)
        limits.check((count, features))
    limits.check((count, features))
    return Table(
        values=np.concatenate(blocks),
        names=names,
        labels=None if column is None else _label_array(labels),
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


def _label_column(label: str, header: list[str] | None, width: int) -> int:
    if header and label in header:
        return header.index(label)
    if label.isascii() and label.isdigit() and int(label) < width:
        return int(label)
    columns = ", ".join(header) if header else f"0 to {width - 1} (there is no header)"
    raise refuse("no-such-column", 422, f"There is no column {label!r}.", f"Name one of {columns}.")


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


def _numbers(block: list[list[str]], start: int, names: list[str] | None) -> np.ndarray[Any, Any]:
    try:
        values = np.array([[float(cell) for cell in row] for row in block], np.float64)
    except ValueError:
        values = np.full((1, 1), np.nan)  # some cell is no number: found below
    plain = bool((np.abs(values) < 10**_EXACT_DIGITS).all())  # NaN and infinity are not
    if plain and not any("_" in cell for row in block for cell in row):
        return values
    for number, row in enumerate(block, start):
        for column, cell in enumerate(row):
            if (problem := _bad(cell, number, column, names)) is not None:
                raise problem
    return values


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
        remedy = "Remove the row, or fill the value in before uploading."
        return bad_cell("not-finite", cell, row, column, names=names, remedy=remedy)
    digits = cell.strip().lstrip("+-")
    if digits.isdigit() and int(float(cell)) != int(cell):
        remedy = "Subtract an offset or rescale: beyond 2^53 float64 cannot tell neighbours apart."
        return bad_cell("inexact-integer", cell, row, column, names=names, remedy=remedy)
    return None


def _label_array(labels: list[str]) -> np.ndarray[Any, Any]:
    numeric = all(_is_number(cell) and np.isfinite(float(cell)) for cell in labels)
    return np.array([float(cell) for cell in labels]) if numeric else np.array(labels, np.str_)
