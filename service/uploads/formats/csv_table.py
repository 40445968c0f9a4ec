"""CSV bodies: one point in each row, an optional header, optional columns of labels, colors and ids.

Bodies are parsed by Python's csv and float (3.3 s for 100,000 x 50), in blocks of bounded memory. Most small bodies
are parsed in the API process, all others in a reader, a forked process with limits on its memory and time.

Faster parsers do not fit: numpy.loadtxt refuses quotes. pyarrow (0.4 s) reads `"1"2` as 12, and takes the end of a file
within quotes for the end of a cell. polars (0.2 s) keeps all texts of a table in memory, fills short rows with empty
cells, and aborts the process when memory runs out; it also starts threads when it is imported, and a reader that is
forked after that hangs.
"""

from __future__ import annotations

import csv
import itertools
import os
from abc import abstractmethod
from typing import IO, TYPE_CHECKING

from glle_engine.base.errors import TableError
from glle_engine.base.texts import Note, Way, joined
from glle_engine.tables.cells import KIND_SAMPLE_ROWS, kind_of
from glle_engine.tables.columns import Block, Column, Columns, cell_column
from glle_engine.tables.table import read_table
from service.uploads.formats.dialect import SNIFFED_BYTES, Declared, Dialect, read_rows, sniff
from service.uploads.uploaded import uploaded
from worker.base.problems import refuse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from glle_engine.tables.cells import TextKind
    from glle_engine.tables.roles import ColumnRoles
    from glle_engine.tables.table import Table
    from service.uploads.limits import Limits

BLOCK_CELLS = 2**15  # cells that are in memory as text at a time, some 60 bytes each
_USUAL = Declared()


def read_csv(
    file: IO[bytes], out: IO[bytes], limits: Limits, roles: ColumnRoles, *, declared: Declared = _USUAL
) -> Table:
    """Return the table of a CSV file, in the declared or the sniffed dialect.

    The values of the table are memory-mapped from `out`. `roles` may refer to a column by its name, or by its number
    from 0.

    Raises
    ------
    ProblemError, TableError
        ``malformed-csv`` or ``ragged-row`` with the row (of the data, from 1), and others.

    """
    head = os.pread(file.fileno(), SNIFFED_BYTES, 0)
    labels = (roles.labels is not None) + len(roles.id) + len(roles.ignore) + len(roles.one_hot)
    dialect = sniff(head, declared, is_whole=len(head) == os.fstat(file.fileno()).st_size, labels=labels)
    columns = _TextColumns(file, dialect)
    try:
        table = read_table(columns, roles, out, limits)
    except TableError as error:
        if error.code == "bad-cell" and dialect.decimal == ",":
            error.remedy = "The decimal mark is a comma: write numbers without marks of thousands. " + error.remedy
        elif error.code == "unsupported-column" and len(columns.head) == 1:
            separators = "comma, semicolon, tab, pipe or space"
            error.remedy += f" If cells are separated by another sign than {separators}, use one of these."
        if columns.notices():
            error.remedy = joined([error.remedy, *(note.message for note in columns.notices())])
        raise
    words = dialect.source()
    return uploaded(table, "csv", **({"dialect": words} if words else {}))


class CellColumns(Columns):
    """Columns of a table whose cells are text; subclasses provide the rows."""

    base = 1

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        first = next(iter(self._take(self._rows(), 1)), [])
        header = dialect.header
        sample = dialect.rows[1:] if header.is_present else dialect.rows
        self.names = [cell.strip() for cell in first] if header.is_present else None
        width = len(first)
        self._has_end = (
            bool(sample) and not first[-1].strip() and all(len(row) == width and not row[-1].strip() for row in sample)
        )
        if self.names is not None and sample and all(len(row) == width + 1 for row in sample):
            self._has_end = all(not row[-1].strip() for row in sample)
            if not self._has_end:
                self.names = ["", *self.names]  # R's write.table writes no name for the column of row names
            width += 1
        self._width = width
        if self._has_end:
            self.names = self.names[: width - 1] if self.names is not None else None
        rows = [row for row in sample if len(row) == width]
        cells = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]
        cells = cells[: width - self._has_end]
        self._kinds = [self.kind_of(column[:KIND_SAMPLE_ROWS]) for column in cells]
        self.head = [self.column(index, column, self._kinds[index]) for index, column in enumerate(cells)]

    def kind_of(self, cells: Sequence[str]) -> TextKind:
        """Return whether the cells of a column are numbers, dates, booleans or text, judged by its first cells."""
        return kind_of(cells, self._dialect.decimal)

    def column(self, index: int, cells: Sequence[str], kind: TextKind) -> Column:
        """Return the values of `cells`, which belong to the column `index`, read as `kind`."""
        del index
        return cell_column(cells, kind, self._dialect.decimal)

    def blocks(self) -> Iterator[Block]:
        """Yield the rows after the header in blocks that fit into memory.

        Raises `ProblemError` (``ragged-row``) for a row with too few or too many cells.
        """
        rows, size, count = self._rows(), max(1, BLOCK_CELLS // max(1, self._width)), 0
        if self.names is not None:
            self._take(rows, 1)
        while block := self._take(rows, size):
            if {*map(len, block)} != {self._width} or self._has_end:
                self._require_even(block, count)
            count += len(block)
            yield _CellBlock(self, block, self._kinds)

    def _require_even(self, block: list[list[str]], start: int) -> None:
        """Raise `ProblemError` (``ragged-row``) for the first row of a block with too few or too many cells.

        If the rows end with a delimiter, each has an empty last cell. A row without this cell is then accepted, but not
        a row in which this cell has a value. `start` is the number of rows before the block.
        """
        width = self._width
        for number, row in enumerate(block, start + 1):
            if len(row) != width and not (self._has_end and len(row) == width - 1):
                detail = f"Row {number}, counted from 1, has {len(row)} cells, but the first row has {width}."
                remedy = (
                    "Send rows with the same number of cells, separated by commas, semicolons, tabs, pipes or "
                    f"spaces; or declare the dialect, as by {Way('delimiter', 'semicolon')} and "
                    f"{Way('decimal', 'comma')}."
                )
                raise refuse("ragged-row", 422, detail, remedy, row=number)
            if self._has_end and len(row) == width and row[-1].strip():
                detail = f"Row {number}, counted from 1, has the cell {row[-1][:50]!r} after its last delimiter, where "
                detail += "the header has no column."
                remedy = "Write a name for that column into the header, or remove the cell."
                raise refuse("ragged-row", 422, detail, remedy, row=number)

    @abstractmethod
    def _rows(self) -> Iterator[list[str]]:
        """Return an iterator over all rows, the header included."""

    def _take(self, rows: Iterator[list[str]], count: int) -> list[list[str]]:
        """Return the next rows, at most `count`."""
        return list(itertools.islice(rows, count))

    def notices(self) -> list[Note]:
        """Return a list with the notice that the header is doubtful; an empty list if there is no doubt."""
        return [self._dialect.header.notice] if self._dialect.header.notice else []


class _CellBlock(Block):
    """Block of rows whose cells are text."""

    def __init__(self, columns: CellColumns, rows: list[list[str]], kinds: Sequence[TextKind]) -> None:
        self._columns, self._rows, self._kinds = columns, rows, kinds

    def __len__(self) -> int:
        return len(self._rows)

    def column(self, index: int) -> Column:
        """Return the column with this index, for the rows of the block."""
        return self._columns.column(index, [row[index] for row in self._rows], self._kinds[index])


class _TextColumns(CellColumns):
    """Columns of a CSV file, which is read again from its start for each pass over its rows."""

    def __init__(self, file: IO[bytes], dialect: Dialect) -> None:
        self._file = file
        super().__init__(dialect)

    def _rows(self) -> Iterator[list[str]]:
        """Return an iterator over the rows, without blank lines and without the lines before the table."""
        dialect = self._dialect
        os.lseek(self._file.fileno(), 0, os.SEEK_SET)
        text = open(self._file.fileno(), encoding=dialect.encoding, newline="", closefd=False)  # noqa: SIM115 # a descriptor
        return read_rows(itertools.islice(text, dialect.skipped, None), dialect.delimiter)

    def _take(self, rows: Iterator[list[str]], count: int) -> list[list[str]]:
        """Return the next rows, at most `count`; raise `ProblemError` if they cannot be decoded or parsed."""
        try:
            return super()._take(rows, count)
        except UnicodeError as error:
            encoding = self._dialect.encoding
            noun, reason = "UTF-8" if encoding == "utf-8-sig" else encoding, getattr(error, "reason", error)
            remedy = (
                "Save it as UTF-8, or declare the encoding of older versions of Excel with "
                f"{Way('charset', 'windows-1252')} (on a Mac {Way('charset', 'macintosh')}). Give an npy file the "
                "ending .npy."
            )
            raise refuse("malformed-csv", 422, f"The body is not text in {noun}: {reason}.", remedy) from None
        except csv.Error as error:
            raise refuse(
                "malformed-csv",
                422,
                f"The body cannot be read as CSV: {error}.",
                "Check that every quoted cell of the file ends with a quote.",
            ) from None
