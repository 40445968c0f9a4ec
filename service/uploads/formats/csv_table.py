"""CSV bodies: one point in each row, an optional header, optional columns of labels, colors and ids.

Parsed by Python's csv and float, because errors must name row and column and numbers must be exact. numpy.loadtxt
(1.1 s for 100,000 x 50; this reader 3.3 s) refuses quotes and rounds integers beyond 2^53. pyarrow (2.2 s) accepts
0x10 and true, reads an empty cell as null, and infers a type for each column.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import os
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np

from service.uploads.column_roles import MOST_IDS, IdCheck, Layout, categorical, option
from service.uploads.disk_array import DiskArray, check_inflated
from service.uploads.formats.dialect import BOOLEANS, HEAD, MOST_CELL, Declared, Dialect, is_number, kind_of, sniffed
from service.uploads.id_columns import Ids
from service.uploads.label_columns import Labels, missing_labels
from service.uploads.limits import check_names
from worker.base.problems import ProblemError, refuse
from worker.storage.datasets import Table
from worker.storage.validation import REMEDIES, BadRows, bad_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import WriteableBuffer

    from service.uploads.column_roles import ColumnRoles
    from service.uploads.limits import Limits

MOST_ROW = 2**21  # characters of a row: 10,000 features of 200 characters
_BLOCK_CELLS, _BLOCK_CHARACTERS = 2**16, 2**22  # of the rows in memory as text: a cell takes some 60 bytes
_LINES_PER_POINT = 4  # for blank lines and line ends within quotes
_COUNTED = 10  # rows from which a column that counts them is noticed
_EXACT_DIGITS = 15  # every integer of 15 digits is an exact float64
_USUAL = Declared()


def read_csv(file: IO[bytes], limits: Limits, roles: ColumnRoles, *, declared: Declared = _USUAL) -> Table:
    """Return the table of a CSV file, in the declared or the sniffed dialect.

    The first row is a header if it is declared so, or if that is open and none of its cells is a number. A column is
    named, or numbered from 0.

    Raises
    ------
    ProblemError
        ``bad-cell`` or ``ragged-row`` with the row (of the data, from 1) and the column, and others.

    """
    size = os.fstat(file.fileno()).st_size
    head = os.pread(file.fileno(), HEAD, 0)
    labels = sum(name is not None for name in (roles.label,)) + len(roles.id) + len(roles.ignore) + len(roles.one_hot)
    dialect = sniffed(head, declared, is_whole=len(head) == size, labels=labels)
    kept: set[int] = set()
    while True:
        try:
            return _Reading.of(file, limits, roles, declared, dialect, kept).table()
        except _NotIdsError as error:  # read again, with the columns as features
            kept |= error.columns
            os.ftruncate(file.fileno(), size)


class _NotIdsError(Exception):
    """Candidate columns that hold no ids."""

    def __init__(self, columns: set[int]) -> None:
        super().__init__(columns)
        self.columns = columns


@dataclass
class _Reading:
    """One pass over the rows of a body.

    Parameters
    ----------
    booleans
        Positions of the columns of true and false.
    categories
        Sorted categories of each one-hot column.

    """

    file: IO[bytes]
    limits: Limits
    dialect: Dialect
    lines: Lines
    data: Iterator[list[str]]
    layout: Layout
    booleans: set[int]
    categories: dict[int, list[str]]
    kept: set[int]

    @classmethod
    def of(
        cls, file: IO[bytes], limits: Limits, roles: ColumnRoles, declared: Declared, dialect: Dialect, kept: set[int]
    ) -> Self:
        """Return the pass over a body, at its first row of data; check header and roles."""
        lines, rows = _opened(file, limits, dialect)
        first = next(rows, [])
        apart = len(roles.id) + len(roles.ignore)
        if len(first) > limits.features + 2 + apart and not (roles.features or roles.ignore):
            limits.check((1, len(first)))  # a label and a color are no features; checked before every cell is read
        has_header = declared.header
        if has_header is None:
            has_header = not any(dialect.is_number(cell) for cell in first)
        sample = dialect.rows[1:] if has_header else dialect.rows
        names = [cell.strip() for cell in first] if has_header else None
        if names is not None and sample and all(len(row) == len(first) + 1 for row in sample):
            names = ["", *names]  # R's write.table has no name for the rows
        layout = Layout.of(names, len(first) if names is None else len(names), roles, kept)
        even = [row for row in sample if len(row) == layout.width]
        kinds = [kind_of([row[at] for row in even], dialect) for at in range(layout.width)] if even else []
        categorical_columns = set(layout.one_hot)
        found = [at for at in layout.features if kinds and kinds[at] == "text" and at not in categorical_columns]
        booleans = {at for at, kind in enumerate(kinds) if kind == "bool"}
        if not found:
            limits.check((1, len(layout.features)))
            check_names(layout.feature_names({}), len(layout.features))
        else:
            _require_numbers(layout, found, even)
        reading = cls(file, limits, dialect, lines, rows, layout, booleans, {}, kept)
        if not has_header:
            reading.data = itertools.chain([first], rows)
        if layout.one_hot:
            reading.categories = reading.categories_of(has_header=has_header)
        return reading

    def categories_of(self, *, has_header: bool) -> dict[int, list[str]]:
        """Return the sorted categories of the one-hot columns, by a pass over all rows."""
        lines, rows = _opened(self.file, self.limits, self.dialect)
        data = itertools.islice(rows, int(has_header), None)
        layout, limits = self.layout, self.limits
        found: dict[int, set[str]] = {column: set() for column in layout.one_hot}
        others = len(layout.features) - len(found)
        for number, row in enumerate(_checked(data, layout.width)):
            for column, categories in found.items():
                if not (cell := row[column].strip()):
                    raise self.bad_cell("bad-cell", "", number, column)
                categories.add(cell)
            if number % 1000 == 0:
                limits.check((1, others + sum(map(len, found.values()))))
        sizes = sum(map(len, found.values()))
        limits.check((1, max(1, others + sizes)))
        del lines
        return {column: sorted(categories) for column, categories in found.items()}

    def table(self) -> Table:
        """Return the table; raise `_NotIdsError` with all candidates that hold no ids."""
        layout, dialect, limits = self.layout, self.dialect, self.limits
        names = layout.feature_names(self.categories)
        features = sum(len(self.categories.get(column, [""])) for column in layout.features)
        limits.check((1, features))
        check_names(names, features)
        disk_array = DiskArray(self.file, np.dtype(np.float64), max(1, features))
        color: list[np.ndarray[Any, Any]] = []
        labels, ids, checks = Labels(), Ids(), {column: IdCheck() for column in layout.candidates}
        count, counts_rows = 0, layout.features[:1] == [0] and not self.categories
        first = 0.0
        blocks = _blocks(self.data, self.lines, layout.width)
        for block in blocks:
            if not_ids := self.not_ids(block, checks):
                with contextlib.suppress(ProblemError):  # the next pass raises it
                    for later in blocks:
                        not_ids |= self.not_ids(later, checks)
                raise _NotIdsError(not_ids)
            if layout.label is not None:
                labels.add([row[layout.label].strip() for row in block])
            ids.add([row[column].strip() for row in block] for column in layout.id_columns[:MOST_IDS])
            numbers = self.numbers(block, count)
            matrix = self.expanded(numbers, block)
            first = numbers[0, 0] if count == 0 and numbers.size else first
            counts_rows = counts_rows and np.array_equal(
                numbers[:, 0], first + np.arange(count, count + len(block), dtype=np.float64)
            )
            count += len(block)
            limits.check((count, features))
            check_inflated("The table", 8 * count * features, limits)
            disk_array.write(matrix.reshape(-1).view(np.uint8).data)
            if layout.color is not None:
                color.append(np.ascontiguousarray(numbers[:, -1]))
        limits.check((count, features))
        notices = [layout.no_id_notice(column) for column in sorted(self.kept)]
        if counts_rows and count >= _COUNTED and features > 1 and 0 not in self.kept:
            notices.append(
                f"The column {layout.name(0)!r} counts the rows. It is fitted as a feature; if it is none, set it apart"
                f" with {option('id', [layout.name(0)])}."
            )
        found = None if layout.label is None else _label_array(labels)
        notices += [*missing_labels(found), *ids.notices()]
        words = dialect.source()
        return Table(
            values=disk_array.values(),
            names=names,
            labels=found,
            color=None if layout.color is None else np.concatenate(color),
            ids=ids.array(),
            source={
                "kind": "upload",
                "format": "csv",
                **({"dialect": words} if words else {}),
                **layout.source(notices),
            },
        )

    def not_ids(self, block: list[list[str]], checks: dict[int, IdCheck]) -> set[int]:
        """Return the candidates whose cells are no ids, and remove their checks."""
        plain, is_number = self.dialect.plain, self.dialect.is_number
        columns = set()
        for column, check in checks.items():
            cells = [row[column].strip() for row in block]
            if not check.add([float(plain(cell)) if is_number(cell) else cell for cell in cells]):
                columns.add(column)
        for column in columns:
            del checks[column]
        return columns

    @property
    def numeric(self) -> list[int]:
        """Positions of the columns of numbers: the features, then the color."""
        layout = self.layout
        features = [column for column in layout.features if column not in self.categories]
        return [*features, *([] if layout.color is None else [layout.color])]

    def plain(self, cell: str, column: int) -> str:
        """Return a cell as `float` reads it."""
        return BOOLEANS.get(cell.strip().lower(), "") if column in self.booleans else self.dialect.plain(cell)

    def numbers(self, block: list[list[str]], start: int) -> np.ndarray[Any, Any]:
        """Return the numbers of a block, or raise the problem of its first bad cell with the number of bad rows."""
        numeric = self.numeric
        if not numeric:
            return np.empty((len(block), 0))
        if self.booleans.intersection(numeric) or not self.dialect.is_usual:
            cells = [[self.plain(row[column], column) for column in numeric] for row in block]
        elif numeric == list(range(self.layout.width)):
            cells = block
        else:
            cells = [[row[column] for column in numeric] for row in block]
        try:
            values = np.array([[float(cell) for cell in row] for row in cells], np.float64)
        except ValueError:
            values = np.full((1, 1), np.nan)  # the check of the cells below finds the bad one
        is_plain = bool((np.abs(values) < 10**_EXACT_DIGITS).all())  # false for NaN and infinity
        if is_plain and not any("_" in cell or len(cell) > MOST_CELL for row in cells for cell in row):
            return values
        first: ProblemError | None = None
        bad = BadRows()
        for number, row in enumerate(block, start):
            if (problem := self.first_bad(row, number)) is not None:
                first = first or problem
                bad.add([number])
        if first is None:
            return values
        bad.add(
            number
            for number, row in enumerate(self.data, start + len(block))
            if len(row) == self.layout.width and self.first_bad(row, number) is not None
        )
        raise bad.annotate(first)

    def expanded(self, numbers: np.ndarray[Any, Any], block: list[list[str]]) -> np.ndarray[Any, Any]:
        """Return the features of a block, with zeros and ones in place of categories."""
        layout = self.layout
        if not self.categories:
            return np.ascontiguousarray(numbers[:, : len(layout.features)])
        parts, taken = [], 0
        for column in layout.features:
            if column not in self.categories:
                parts.append(numbers[:, taken, None])
                taken += 1
                continue
            codes = {category: code for code, category in enumerate(self.categories[column])}
            ones = np.zeros((len(block), len(codes)))
            ones[np.arange(len(block)), [codes[row[column].strip()] for row in block]] = 1
            parts.append(ones)
        return np.ascontiguousarray(np.column_stack(parts))

    def first_bad(self, row: list[str], number: int) -> ProblemError | None:
        """Return the problem of the first bad cell of a row, or None."""
        for column in sorted(self.numeric):
            if (problem := self.cell_problem(row[column], number, column)) is not None:
                return problem
        return None

    def cell_problem(self, cell: str, row: int, column: int) -> ProblemError | None:
        """Return the problem of a cell, or None."""
        plain = self.plain(cell, column)
        digits = plain.strip().lstrip("+-")
        if not is_number(plain):
            return self.bad_cell("bad-cell", cell, row, column)
        if not np.isfinite(float(plain)):
            return self.bad_cell("not-finite", cell, row, column)
        if digits.isdigit() and int(float(plain)) != int(plain):
            return self.bad_cell("inexact-integer", cell, row, column)
        return None

    def bad_cell(self, code: str, cell: str, row: int, column: int) -> ProblemError:
        """Return the problem of a cell, with the option that leaves its column out."""
        name, remedy, options = self.layout.name(column), REMEDIES.get(code, ""), {}
        if code != "inexact-integer" and column in self.layout.features:
            options = {"ignore": [name]}
            remedy = f"Fill the cell in, remove its row, or leave the column out with {option('ignore', [name])}."
            if self.dialect.decimal == "," and "." in cell:
                remedy = "The decimal mark is a comma: write numbers without marks of thousands. " + remedy
        elif code == "bad-cell":
            remedy = "Fill the cell in, or remove its row."
        error = bad_value(code, cell, row, column, names=self.layout.names, remedy=remedy)
        details = {**error.problem.details, "options": options} if options else error.problem.details
        return ProblemError(replace(error.problem, details=details))


def _opened(file: IO[bytes], limits: Limits, dialect: Dialect) -> tuple[Lines, Iterator[list[str]]]:
    """Return the lines and the rows of a body, without those before the table."""
    lines = Lines(file, _LINES_PER_POINT * (limits.points + 1), dialect.encoding)
    for _ in range(dialect.skipped):
        next(lines, "")
    lines.row = 0
    return lines, _rows(lines, dialect)


def _require_numbers(layout: Layout, columns: list[int], rows: list[list[str]]) -> None:
    """Raise the problem of columns of text without a role."""
    first = columns[0]
    cell = next(row[first] for row in rows if not is_number(row[first].strip() or "0"))
    others = ", ".join(repr(layout.name(column)) for column in columns[1:6])
    more = f", as {'does' if len(columns) == 2 else 'do'} {others}{' and others' if len(columns) > 6 else ''}"
    raise categorical(
        "bad-cell",
        layout,
        columns,
        f"The column {layout.name(first)!r} holds text, such as {cell[:50]!r}{more if len(columns) > 1 else ''}.",
        column=first + 1,
        name=layout.names[first] if layout.names else None,
        row=1 + next(at for at, row in enumerate(rows) if row[first] == cell),
        value=cell[:50],
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

    def __init__(self, file: IO[bytes], most: int, encoding: str = "utf-8-sig") -> None:
        self._remaining = self._most = most
        self._text = io.TextIOWrapper(io.BufferedReader(_Body(file)), encoding, newline="")
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


def _rows(lines: Lines, dialect: Dialect) -> Iterator[list[str]]:
    try:
        for row in csv.reader(lines, delimiter=dialect.delimiter, quotechar=dialect.quote, strict=True):
            if row:  # a blank line is not a row
                yield row
            lines.row = 0
    except UnicodeDecodeError as error:
        remedy = (
            "Save it as UTF-8, or declare the encoding of older versions of Excel with ?charset=windows-1252 (on a Mac"
            " ?charset=macintosh). Send an npy file as application/x-npy."
        )
        noun = "UTF-8" if dialect.encoding == "utf-8-sig" else dialect.encoding
        raise refuse("malformed-csv", 422, f"The body is not {noun} text: {error.reason}.", remedy) from None
    except UnicodeError as error:
        raise refuse("malformed-csv", 422, f"The body is not text: {error}.", "Save it as UTF-8.") from None
    except csv.Error as error:
        remedy = "Check the quotes of that line."
        raise refuse("malformed-csv", 422, f"The body is not CSV: {error}.", remedy) from None


def _checked(rows: Iterator[list[str]], width: int) -> Iterator[list[str]]:
    """Yield the rows, which must have one width."""
    for number, row in enumerate(rows, 1):
        if len(row) != width:
            raise refuse(
                "ragged-row",
                422,
                f"Row {number} has {len(row)} cells, the first has {width}.",
                "Send rows with the same number of cells, separated by commas, semicolons, tabs or pipes; or declare"
                " the dialect, as by ?delimiter=semicolon&decimal=comma.",
                row=number,
            )
        yield row


def _blocks(rows: Iterator[list[str]], lines: Lines, width: int) -> Iterator[list[list[str]]]:
    """Yield the rows in blocks of bounded memory."""
    block: list[list[str]] = []
    characters = 0
    for row in _checked(rows, width):
        block.append(row)
        characters += lines.row
        if len(block) * width >= _BLOCK_CELLS or characters >= _BLOCK_CHARACTERS:
            yield block
            block, characters = [], 0
    if block:
        yield block


def _label_array(labels: Labels) -> np.ndarray[Any, Any]:
    is_numeric = all(is_number(cell) and np.isfinite(float(cell)) for cell in labels.values)
    return np.array([float(cell) for cell in labels.values]) if is_numeric else labels.array()
