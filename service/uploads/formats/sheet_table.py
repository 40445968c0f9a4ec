"""Columns of the first sheet of an Excel workbook (xlsx), as those of CSV, by python-calamine, which is an extra."""

from __future__ import annotations

import datetime as dt
import zipfile
import zlib
from typing import IO, TYPE_CHECKING, Any

from python_calamine import CalamineError, CalamineWorkbook

from service.uploads.column_table import read_columns
from service.uploads.formats.csv_table import CsvColumns
from service.uploads.formats.dialect import SAMPLE_ROWS, Declared, Dialect
from service.uploads.limits import check_inflated
from worker.base.problems import refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glle_engine.base.columns import ColumnRoles, Layout
    from service.uploads.limits import Limits
    from worker.storage.datasets import Array, Table


def read_sheet(file: IO[bytes], out: IO[bytes], limits: Limits, roles: ColumnRoles) -> Table:
    """Return the table of the first sheet of a workbook; a first row without a number has the names.

    Raises
    ------
    ProblemError
        ``malformed-xlsx``, ``inflated-too-large``, ``bad-cell`` with row and column, and others.

    """
    try:
        with zipfile.ZipFile(file) as archive:
            check_inflated("The workbook", sum(info.file_size for info in archive.infolist()), limits.inflated)
        file.seek(0)
        book = CalamineWorkbook.from_filelike(file)
        rows = [row for row in book.get_sheet_by_index(0).iter_rows() if any(cell != "" for cell in row)]
    except (CalamineError, zipfile.BadZipFile, zlib.error) as error:
        remedy = "Save it again as .xlsx, without a password, or as CSV UTF-8."
        raise refuse("malformed-xlsx", 422, f"The body is not an Excel workbook: {str(error)[:200]}.", remedy) from None
    if not rows:
        detail, remedy = "The first sheet of the workbook is empty.", "Move the sheet with the data to the front."
        raise refuse("empty-data", 422, detail, remedy)
    return read_columns(_SheetColumns(rows, book.sheet_names), out, limits, roles)


class _SheetColumns(CsvColumns):
    """Columns of the cells of a sheet, as texts."""

    format = "xlsx"

    def __init__(self, rows: list[list[Any]], sheets: list[str]) -> None:
        self._cells, self._sheets = [list(map(_text, row)) for row in rows], sheets
        has_names = all(isinstance(cell, str) for cell in rows[0])  # "2024" as text is a name
        super().__init__(Dialect("utf-8-sig", rows=self._cells[:SAMPLE_ROWS]), Declared(header=has_names or None))

    def _rows(self) -> Iterator[list[str]]:
        return iter(self._cells)

    def source(self, layout: Layout, values: Array) -> tuple[dict[str, Any], list[str]]:
        """Return the notices of CSV, and that of further sheets."""
        words, notices = super().source(layout, values)
        if len(self._sheets) > 1:
            first = self._sheets[0]
            notices.append(f"Of the {len(self._sheets)} sheets of the workbook the first was read, {first!r}.")
        return words, notices


def _text(cell: Any) -> str:
    """Return a cell as CSV has it; whole numbers have no decimals."""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return cell.isoformat() if isinstance(cell, dt.date) else str(cell)
