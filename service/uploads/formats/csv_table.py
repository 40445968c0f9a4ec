"""CSV bodies: one point in each row, an optional header, optional columns of labels, colors and ids.

Parsed by Python's csv and float (3 s for 100,000 x 50), because errors must name row and column and numbers must be
exact. numpy.loadtxt refuses quotes and rounds integers beyond 2^53. pyarrow (0.4 s with a cast of texts) reads `"1"2`
as 12 and the end of a file within quotes as the end of a cell.
"""

from __future__ import annotations

import csv
import dataclasses
import itertools
import math
import os
from abc import abstractmethod
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.columns import MISSING, Layout, header_notice, no_features, option
from service.uploads.column_table import Columns, read_columns
from service.uploads.formats.dialect import (
    BOOLEANS,
    HEAD,
    MAX_CELL,
    Declared,
    Dialect,
    is_number,
    kind_of,
    seconds_of,
    sniff,
)
from worker.base.problems import ProblemError, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glle_engine.base.columns import ColumnRoles, Kind
    from service.uploads.limits import Limits
    from worker.records.dataset import Array, Table

BLOCK_CELLS = 2**15  # in memory as text: a cell takes some 60 bytes
_COUNTED = 10  # rows from which a column that counts them is noticed
_EXACT = 10**15  # every integer of 15 digits is an exact float64
_USUAL = Declared()
_KINDS: dict[str, Kind] = {"text": "text", "date": "date"}


def read_csv(
    file: IO[bytes], out: IO[bytes], limits: Limits, roles: ColumnRoles, *, declared: Declared = _USUAL
) -> Table:
    """Return the table of a CSV file, in the declared or the sniffed dialect.

    The first row is a header if it is declared so, or if that is open and none of its cells is a number. A column is
    named, or numbered from 0.

    Raises
    ------
    ProblemError
        ``bad-cell`` or ``ragged-row`` with the row (of the data, from 1) and the column, and others.

    """
    head = os.pread(file.fileno(), HEAD, 0)
    labels = (roles.label is not None) + len(roles.id) + len(roles.ignore) + len(roles.one_hot)
    dialect = sniff(head, declared, is_whole=len(head) == os.fstat(file.fileno()).st_size, labels=labels)
    return read_columns(_TextColumns(file, dialect, declared), out, limits, roles)


class CsvColumns(Columns[list[list[str]]]):
    """Columns of cells of text; subclasses yield the rows."""

    format = "csv"

    def __init__(self, dialect: Dialect, declared: Declared) -> None:
        self._dialect = dialect
        first = next(self._rows(), [])
        has_header = declared.header
        if has_header is None:
            has_header = not any(map(dialect.is_number, first))
        sample = dialect.rows[1:] if has_header else dialect.rows
        self.names = [cell.strip() for cell in first] if has_header else None
        if self.names is not None and sample and all(len(row) == len(first) + 1 for row in sample):
            self.names = ["", *self.names]  # R's write.table has no name for the rows
        is_sniffed = declared.header is None and not has_header
        self._header_notice = header_notice(sample) if is_sniffed else ""
        self.width = len(first if self.names is None else self.names)
        self._sample = [row for row in sample if len(row) == self.width]
        self._kinds = [kind_of(list(cells), dialect) for cells in zip(*self._sample, strict=True)]
        self.kinds = [_KINDS.get(kind, "number") for kind in self._kinds] or ["number"] * self.width

    def check(self, layout: Layout) -> np.dtype[Any]:
        """Return the dtype of the features; refuse columns of text without a role."""
        one_hot = set(layout.roles["one_hot"])
        texts = [at for at in layout.features if self.kinds[at] != "number" and at not in one_hot]
        if not texts:
            return np.dtype(np.float64)
        first, others = texts[0], ", ".join(repr(layout.name(column)) for column in texts[1:6])
        row = next(row for row, cells in enumerate(self._sample) if not is_number(cells[first].strip() or "0"))
        cell = self._sample[row][first][:50]
        more = f", as {'does' if len(texts) == 2 else 'do'} {others}{' and others' if len(texts) > 6 else ''}"
        detail = f"The column {layout.name(first)!r} holds text, such as {cell!r}{more if len(texts) > 1 else ''}."
        name = layout.names[first] if layout.names else None
        raise no_features("bad-cell", layout, texts, [], detail, column=first + 1, name=name, row=row + 1, value=cell)

    def blocks(self) -> Iterator[list[list[str]]]:
        """Yield the rows, which must have one width."""
        rows, size = self._even_rows(), max(1, BLOCK_CELLS // max(1, self.width))
        while block := list(itertools.islice(rows, size)):
            yield block

    def _even_rows(self) -> Iterator[list[str]]:
        """Yield the rows after the header; a block of wider ones would not fit in memory."""
        rows = itertools.islice(self._rows(), int(self.names is not None), None)
        for number, row in enumerate(rows, 1):
            if len(row) != self.width:
                detail = f"Row {number} has {len(row)} cells, the first has {self.width}."
                remedy = (
                    "Send rows with the same number of cells, separated by commas, semicolons, tabs or pipes; or"
                    " declare the dialect, as by ?delimiter=semicolon&decimal=comma."
                )
                raise refuse("ragged-row", 422, detail, remedy, row=number)
            yield row

    @abstractmethod
    def _rows(self) -> Iterator[list[str]]:
        """Yield the rows, with the header."""

    def values(self, block: list[list[str]], column: int) -> list[Any]:
        """Return the cells of a column."""
        return [row[column].strip() or None for row in block]

    def cell(self, block: list[list[str]], row: int, column: int) -> str:
        """Return a cell with the spaces around it, some of which `float` refuses."""
        return block[row][column]

    def numbers(self, block: list[list[str]], column: int) -> tuple[Array, Array]:
        """Return the numbers of a column, and the mask of the cells that are none, not finite or not exact."""
        cells = [row[column] for row in block]
        if self.kinds[column] == "date":
            found = [seconds_of(cell) for cell in cells]
            return np.array([math.nan if value is None else value for value in found]), np.array(
                [value is None for value in found]
            )
        if self._dialect.decimal != "." or (self._kinds and self._kinds[column] == "bool"):
            cells = [self._plain(cell, column) for cell in cells]
        try:
            values = np.array([float(cell) for cell in cells], np.float64)
        except ValueError:
            values = np.full(1, np.nan)  # the check of the cells below finds the bad one
        if (np.abs(values) < _EXACT).all() and max(map(len, cells)) <= MAX_CELL and "_" not in "".join(cells):
            return values, np.zeros(len(cells), bool)
        faults = np.array([bool(self.fault(row[column], column)) for row in block])
        return np.array([math.nan if bad else float(cell) for cell, bad in zip(cells, faults, strict=True)]), faults

    def _plain(self, cell: str, column: int) -> str:
        """Return a cell as `float` reads it."""
        if self._kinds and self._kinds[column] == "bool":
            return BOOLEANS.get(cell.strip().lower(), "")
        return self._dialect.plain(cell)

    def gaps(self, block: list[list[str]], column: int) -> Array:
        """Return the mask of the cells that are empty or a word for a missing value."""
        return np.array([row[column].strip().lower() in MISSING for row in block])

    def fault(self, value: str | None, column: int) -> str:
        """Return the problem code of a bad cell, or an empty string."""
        if self.kinds[column] == "date":
            return "" if seconds_of(value or "") is not None else "bad-cell"
        plain = self._plain(value or "", column)
        digits = plain.strip().lstrip("+-")
        if not is_number(plain):
            return "bad-cell"
        if not math.isfinite(float(plain)):
            return "not-finite"
        return "inexact-integer" if digits.isdigit() and int(float(plain)) != int(plain) else ""

    def keys(self, values: list[Any], column: int) -> list[Any] | None:
        """Return cells of digits as numbers."""
        del column
        dialect = self._dialect
        return [float(dialect.plain(cell)) if cell and dialect.is_number(cell) else cell for cell in values]

    def labels(self, values: list[Any]) -> Array:
        """Return the labels as numbers if all of them are."""
        if all(cell and is_number(cell) and math.isfinite(float(cell)) for cell in values):
            return np.array([float(cell) for cell in values])
        return super().labels(values)

    def source(self, layout: Layout, values: Array) -> tuple[dict[str, Any], list[str]]:
        """Return the dialect, and the notice of a first column that counts the rows."""
        words, notices = self._dialect.source(), list(filter(None, [self._header_notice]))
        is_counted = layout.features[:1] == [0] and 0 not in layout.roles["one_hot"] and values.shape[1] > 1
        if is_counted and len(values) >= _COUNTED and (values[:, 0] == values[0, 0] + np.arange(len(values))).all():
            name = layout.name(0)
            notices.append(
                f"The column {name!r} counts the rows. It is fitted as a feature; if it is none, set it apart with"
                f" {option('id', [name])}."
            )
        return {"dialect": words} if words else {}, notices

    def bad_value(
        self, code: str, value: Any, row: int, column: int, layout: Layout, *, is_missing: bool = False
    ) -> ProblemError:
        """Return the problem of a cell."""
        error = super().bad_value(code, value, row, column, layout, is_missing=is_missing)
        if code == "bad-cell" and self._dialect.decimal == "," and "." in (value or ""):
            more = "The decimal mark is a comma: write numbers without marks of thousands. "
            error = ProblemError(dataclasses.replace(error.problem, remedy=more + error.problem.remedy))
        return error


class _TextColumns(CsvColumns):
    """Columns of the cells of a CSV file."""

    def __init__(self, file: IO[bytes], dialect: Dialect, declared: Declared) -> None:
        self._file = file
        super().__init__(dialect, declared)

    def _rows(self) -> Iterator[list[str]]:
        """Yield the rows, without blank lines and without the lines before the table."""
        dialect = self._dialect
        os.lseek(self._file.fileno(), 0, os.SEEK_SET)
        with open(self._file.fileno(), encoding=dialect.encoding, newline="", closefd=False) as text:  # a descriptor
            try:
                lines = itertools.islice(text, dialect.skipped, None)
                rows = csv.reader(lines, delimiter=dialect.delimiter, quotechar=dialect.quote, strict=True)
                yield from filter(None, rows)
            except UnicodeError as error:
                noun = "UTF-8" if dialect.encoding == "utf-8-sig" else dialect.encoding
                reason = getattr(error, "reason", error)
                remedy = (
                    "Save it as UTF-8, or declare the encoding of older versions of Excel with ?charset=windows-1252"
                    " (on a Mac ?charset=macintosh). Send an npy file as application/x-npy."
                )
                raise refuse("malformed-csv", 422, f"The body is not {noun} text: {reason}.", remedy) from None
            except csv.Error as error:
                remedy = "Check the quotes of that line."
                raise refuse("malformed-csv", 422, f"The body is not CSV: {error}.", remedy) from None
