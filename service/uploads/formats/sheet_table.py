"""Columns of a sheet of an Excel workbook (xlsx), read by python-calamine, which is an extra.

Cells keep their types: a text cell with digits stays text, as in a data frame, and is no number.
"""

from __future__ import annotations

import datetime as dt
import zipfile
import zlib
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from python_calamine import CalamineError, CalamineWorkbook

from glle_engine.base.arrays import EXACT
from glle_engine.base.texts import Note, Way
from glle_engine.tables.cells import KIND_SAMPLE_ROWS, is_missing, kind_of, number_of
from glle_engine.tables.columns import Column, cell_column, object_array
from glle_engine.tables.table import read_table
from service.uploads.formats.csv_table import CellColumns
from service.uploads.formats.dialect import Dialect, Header
from service.uploads.limits import check_inflated
from service.uploads.uploaded import uploaded
from worker.base.problems import refuse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from glle_engine.tables.cells import TextKind
    from glle_engine.tables.roles import ColumnRoles
    from glle_engine.tables.table import Table
    from service.uploads.limits import Limits

MAX_SHEETS = 20  # a notice names at most this many sheets
_EXCEL_DIGITS = 15  # significant digits of a number that Excel keeps
_SPANS = {dt.timedelta: "duration", dt.time: "time"}  # names of cell types other than number, date and text


class TextCell(str):
    """Text of a cell that has the type text in the workbook; cells of other types become a plain `str`."""

    __slots__ = ()


class RoundedCell(str):
    """Text of a whole number from 2^53 on, which the workbook may have rounded.

    Excel keeps 15 digits of a number, and other programs keep a float64, so that several ids may have become the same
    number. If the number has more than 15 significant digits, it must be an integer, such as an id, and the text has
    all of its digits. Otherwise the text is the number as Python writes a float, such as 1e+20.
    """

    __slots__ = ()


def read_sheet(file: IO[bytes], out: IO[bytes], limits: Limits, roles: ColumnRoles, sheet: str | None = None) -> Table:
    """Return the table of a workbook's sheet, by default the first; a first row without numbers names the columns.

    The values of the table are memory-mapped from `out`.

    Raises
    ------
    ProblemError
        ``malformed-xlsx``, ``no-such-sheet``, ``inflated-too-large``, ``bad-cell`` with row and column, and others.

    """
    try:
        with zipfile.ZipFile(file) as archive:
            check_inflated("The workbook", sum(info.file_size for info in archive.infolist()), limits.inflated)
        file.seek(0)
        book = CalamineWorkbook.from_filelike(file)
        names = book.sheet_names
        if not names:
            raise refuse("empty-data", 422, "The workbook has no sheets.", "Send a workbook with a sheet of rows.")
        if sheet is not None and sheet not in names:
            detail = f"The workbook has no sheet {sheet[:100]!r}."
            raise refuse("no-such-sheet", 422, detail, f"Use one of its sheets: {_ways(names)}.")
        name = names[0] if sheet is None else sheet
        rows = [row for row in book.get_sheet_by_name(name).iter_rows() if any(cell != "" for cell in row)]
    # python-calamine and the zipfile module raise these errors.
    except (CalamineError, zipfile.BadZipFile, zlib.error, NotImplementedError, ValueError) as error:
        remedy = "Save the workbook again as .xlsx, without a password, or the sheet as CSV UTF-8."
        detail = f"The body cannot be read as an Excel workbook: {str(error)[:200]}."
        raise refuse("malformed-xlsx", 422, detail, remedy) from None
    if not rows:
        others = [other for other in names if other != name]
        remedy = f"Read another sheet with {_ways(others)}." if others else "Send a workbook whose sheet has rows."
        raise refuse("empty-data", 422, f"The sheet {name!r} of the workbook is empty.", remedy)
    return uploaded(read_table(_SheetColumns(rows, name, names), roles, out, limits), "xlsx")


class _SheetColumns(CellColumns):
    """Columns of a sheet of an Excel workbook; `rows` are its cells, and `sheets` the names of all sheets."""

    rounds_integers = True

    def __init__(self, rows: list[list[Any]], sheet: str, sheets: list[str]) -> None:
        self._cells, self._sheet, self._sheets = [list(map(_text, row)) for row in rows], sheet, sheets
        has_names = all(isinstance(cell, str) for cell in rows[0])  # the text "2024" is a name
        spans = [{_SPANS[type(cell)] for cell in column if type(cell) in _SPANS} for column in zip(*rows, strict=True)]
        self._spans = {index: min(names) for index, names in enumerate(spans) if names}
        sample = self._cells[: KIND_SAMPLE_ROWS + 1]
        super().__init__(Dialect("utf-8-sig", rows=sample, header=Header.from_rows(sample, ".", has_names or None)))

    def _rows(self) -> Iterator[list[str]]:
        return iter(self._cells)

    def kind_of(self, cells: Sequence[str]) -> TextKind:
        """Return whether the cells of a column are numbers, dates, booleans or text, judged by its first cells.

        A column of digits counts as text if all its cells have the type text in the workbook.
        """
        kind = kind_of(cells)
        is_typed = any(not isinstance(cell, TextCell) and cell for cell in cells)
        return "text" if kind == "number" and not is_typed and any(map(str.strip, cells)) else kind

    def column(self, index: int, cells: Sequence[str], kind: TextKind) -> Column:
        """Return the values of `cells`, which belong to the column `index`, read as `kind`.

        If the column is numeric, `Column.faults` of the result has a problem code for each number in a cell of the type
        text, and for each integer that the workbook may have rounded.
        """
        if index in self._spans:
            missing = np.array([not cell for cell in cells], bool)
            return Column("other", self._spans[index], object_array(cells), missing)
        column = cell_column(cells, kind)
        rounded = np.array([isinstance(cell, RoundedCell) for cell in cells], bool)
        if rounded.any():
            column = replace(column, rounded=rounded)
        if kind != "number":
            return column
        texts = [row for row, cell in enumerate(cells) if isinstance(cell, TextCell) and not is_missing(cell)]
        faults = {row: "bad-cell" for row in texts if number_of(cells[row]) is not None}
        faults |= {row: "inexact-integer" for row in np.flatnonzero(rounded).tolist() if "e" not in cells[row]}
        return replace(column, faults={**column.faults, **faults}) if faults else column

    def notices(self) -> list[Note]:
        """Return the notice about a doubtful header, if any, and a notice with the sheets if there are several."""
        notices = super().notices()
        if len(self._sheets) > 1:
            said = f"The workbook has {len(self._sheets)} sheets; {self._sheet!r} was read. To choose, use"
            notices.append(Note("sheet-read", f"{said} {_ways(self._sheets)}."))
        return notices


def _ways(sheets: list[str]) -> str:
    """Return, as text for a message, the options that choose one of these sheets."""
    return " or ".join(f"{Way('sheet', name)}" for name in sheets[:MAX_SHEETS])


def _text(cell: Any) -> str:
    """Return a cell as the text that a CSV file would have; whole numbers have no decimals."""
    if isinstance(cell, str):
        return TextCell(cell) if cell else ""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float) and cell.is_integer():
        if abs(cell) < EXACT:
            return str(int(cell))
        is_integer = abs(cell) < 2**64 and cell != float(f"{cell:.{_EXCEL_DIGITS}g}")
        return RoundedCell(int(cell) if is_integer else repr(cell))
    if isinstance(cell, dt.datetime):
        return cell.isoformat(" ").removesuffix(" 00:00:00")
    return cell.isoformat() if isinstance(cell, dt.date) else str(cell)
