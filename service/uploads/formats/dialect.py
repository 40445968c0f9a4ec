"""Dialect of a table of text: encoding, delimiter, decimal mark and header, as declared or as sniffed from the text.

Quotes are always double. If a body can be read with commas, double quotes and decimal points, this dialect is used.
Other dialects are tried only for bodies that would otherwise be refused.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from glle_engine.base.texts import Note, Way
from glle_engine.tables.cells import KIND_SAMPLE_ROWS, has_marks, is_missing, number_of, plain_number
from worker.base.problems import refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SNIFFED_BYTES = 2**16  # first bytes of a body, from which the dialect is sniffed
DELIMITERS = {"comma": ",", "tab": "\t", "semicolon": ";", "pipe": "|", "space": " "}
DECIMALS = {"point": ".", "comma": ","}
CHARSETS = {
    "utf-8": "utf-8-sig",
    "us-ascii": "utf-8-sig",
    "utf-16": "utf-16",
    "utf-16le": "utf-16-le",
    "utf-16be": "utf-16-be",
    "windows-1252": "cp1252",
    "iso-8859-1": "cp1252",
    "iso-8859-15": "iso8859-15",
    "macintosh": "mac-roman",
    "utf8": "utf-8-sig",
    "ascii": "utf-8-sig",
    "cp1252": "cp1252",
    "latin1": "cp1252",
}
_CHOICES: dict[str, dict[str, Any]] = {
    "header": {"present": True, "absent": False},
    "delimiter": DELIMITERS,
    "decimal": DECIMALS,
    "charset": CHARSETS,
}
_SEPARATOR = re.compile(r'"?sep=(.)"?[\r\n]*', re.IGNORECASE)
_ARFF = re.compile(r"\s*(%.*\s+)*@relation\b", re.IGNORECASE)


@dataclass(frozen=True)
class Declared:
    """Dialect that a request declares; a property that is None is sniffed from the text (`sniff`).

    A request declares it by the parameters of its Content-Type, or by fields of the form or of the query, which win
    (`service.uploads.registry.format_of`).
    """

    header: bool | None = None
    delimiter: str | None = None
    decimal: str | None = None
    charset: str | None = None

    @classmethod
    def from_parameters(cls, parameters: dict[str, str]) -> Self:
        """Return the dialect that the parameters of a media type declare.

        Raises
        ------
        ProblemError
            ``unsupported-media-type``.

        """
        choices: dict[str, Any] = {}
        for name, choice in _CHOICES.items():
            word = parameters.get(name)
            if word is not None and word not in choice:
                detail = f"The parameter {name}={word[:50]!r} of the Content-Type is not supported."
                remedy = f"Use one of {', '.join(choice)}."
                raise refuse("unsupported-media-type", 415, detail, remedy, supported=[*choice])
            choices[name] = choice.get(word or "")
        return cls(**choices)


@dataclass(frozen=True)
class Header:
    """Whether the first row has the names of the columns, and a notice for the user if that is doubtful."""

    is_present: bool = False
    notice: Note | None = None

    @classmethod
    def from_rows(cls, rows: list[list[str]], decimal: str, declared: bool | None) -> Self:  # noqa: FBT001 # a value
        """Decide whether the first row is a header.

        `declared` decides unless it is None. Otherwise the first row is a header if none of its cells is a number, or
        if its cells are whole numbers in steps of 1, such as years, above columns of numbers with decimals. `decimal`
        is the decimal mark.
        """
        if declared is not None or not rows:
            return cls(bool(declared))
        first, below = [cell.strip() for cell in rows[0]], rows[1:]
        numbers = [number_of(plain_number(cell, decimal)) for cell in first]
        if not any(number is not None for number in numbers):
            return cls(is_present=True)
        if below and _counts(first, numbers, below, decimal):
            names = ", ".join(first)[:50]
            reading = f"The first row was read as a header, {names!r}; if it is data, use "
            notice = Note("header-guessed", f"{reading}{Way('header', 'absent')}.")
            return cls(is_present=True, notice=notice)
        return cls(notice=_data_notice(first, numbers, below))


def _counts(first: list[str], numbers: list[float | None], below: list[list[str]], decimal: str) -> bool:
    """Return whether the `first` row is a header of consecutive numbers, such as 0, 1, 2 or years.

    `numbers` has its cells as numbers, with None for each cell that is no number. In such a header, the numbers rise in
    steps of 1, and stand above data with decimals (`below`). The first cell may be a name instead, above a column with
    the names of the rows.
    """
    names_rows = numbers[0] is None and len(numbers) > 1
    counted = numbers[1:] if names_rows else numbers
    integers = [number for number in counted if number is not None and number.is_integer()]
    has_steps_of_1 = all(later - earlier == 1 for earlier, later in itertools.pairwise(integers))
    if len(integers) < max(2, len(counted)) or not has_steps_of_1:
        return False
    if integers[0] != 0 and len(integers) < 3 and not names_rows:
        return False
    columns = [list(column) for column in zip(*below, strict=False)][int(names_rows) :]
    are_decimals = [any(decimal in cell for cell in column) for column in columns]
    is_named = names_rows and first[0] not in [row[0].strip() for row in below]
    return all(are_decimals) if not names_rows else is_named and any(are_decimals)


def _data_notice(first: list[str], numbers: list[float | None], below: list[list[str]]) -> Note | None:
    """Return a notice if the first row, which was read as data, may be a header; otherwise None.

    It may be a header if it has numbers in equal steps, or a word that is unique in a column of repeated values.
    """
    steps = {round(later - earlier, 9) for earlier, later in itertools.pairwise(n for n in numbers if n is not None)}
    is_even = len(numbers) > 2 and None not in numbers and len(steps) == 1 and steps != {0.0}
    odd = [first[0]] if is_even and len(below) > 1 else []
    for cell, *others in zip(first, *below, strict=False):
        is_word = not is_missing(cell) and not has_marks(cell)
        if is_word and cell not in others and len(set(others)) < len(others):
            odd.append(cell)
    if not odd:
        return None
    reading = f"The first row was read as data, {odd[0][:50]!r} and others; if it is a header, use "
    return Note("no-header-guessed", f"{reading}{Way('header', 'present')}.")


@dataclass(frozen=True)
class Dialect:
    """Dialect of a body, and the first rows read in it.

    Parameters
    ----------
    skipped
        Number of lines before the first row: 1 if the text begins with a line such as ``sep=;``, otherwise 0.
    rows
        The first rows, without a last row that may be incomplete.

    """

    encoding: str
    delimiter: str = ","
    decimal: str = "."
    skipped: int = 0
    rows: list[list[str]] = field(default_factory=list)
    header: Header = field(default_factory=Header)

    def is_number(self, cell: str) -> bool:
        """Return whether a cell is a number in this dialect, or a word for NaN or infinity."""
        plain = plain_number(cell, self.decimal)
        return number_of(plain) is not None or plain.strip().lower().lstrip("+-") in {"nan", "inf"}

    def source(self) -> dict[str, str]:
        """Return the properties that differ from comma, point and UTF-8, such as ``{"delimiter": "tab"}``."""
        choices = {"delimiter": DELIMITERS, "decimal": DECIMALS, "encoding": CHARSETS}
        words = {
            name: next(word for word, value in choice.items() if value == getattr(self, name))
            for name, choice in choices.items()
        }
        return {name: word for name, word in words.items() if word != next(iter(choices[name]))}


def sniff(head: bytes, declared: Declared, *, is_whole: bool, labels: int) -> Dialect:
    """Return the dialect in which a body can best be read, judged by its first bytes.

    Parameters
    ----------
    is_whole
        Whether `head` is the whole body.
    labels
        Number of columns that may be text, because the request gives them a role.

    Raises
    ------
    ProblemError
        ``malformed-csv`` for a format that is not CSV.

    """
    encoding = _encoding(head, declared)
    text = head.decode(encoding, "replace")
    if _ARFF.match(text):
        detail = "The body is an ARFF file of Weka, which is not read."
        raise refuse("malformed-csv", 422, detail, "Save it as CSV: in Weka's viewer, Save as, CSV file.")
    separator = _SEPARATOR.match(text)
    delimiter = declared.delimiter or (separator[1] if separator and separator[1] in DELIMITERS.values() else None)
    skipped = 0 if separator is None or delimiter is None else 1
    if skipped:
        text = text.partition("\n")[2] if "\n" in text else text.partition("\r")[2]
    delimiters = [delimiter] if delimiter else [*DELIMITERS.values()]
    decimals = [declared.decimal] if declared.decimal else [".", ","]
    best, best_score = None, (-1.0, -1.0)
    for sign in delimiters:
        if best_score[0] == 2:
            break
        rows = _sample(text, sign, is_whole=is_whole)
        for decimal in decimals:
            dialect = Dialect(encoding, sign, decimal, skipped, rows)
            score = (2.0, 0.0) if _is_read(dialect, labels) else _score(dialect)
            if score > best_score:  # a tie goes to the earlier dialect, which is more common
                best, best_score = dialect, score
    assert best is not None
    return replace(best, header=Header.from_rows(best.rows, best.decimal, declared.header))


def read_rows(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    """Return an iterator over the rows of a CSV text, without blank lines.

    If the delimiter is a space, several spaces in a row count as one delimiter. The iterator raises `csv.Error` if the
    text is not valid CSV.
    """
    return filter(None, csv.reader(lines, delimiter=delimiter, skipinitialspace=delimiter == " ", strict=True))


def _encoding(head: bytes, declared: Declared) -> str:
    """Return Python's codec for a body, judged by byte order mark, declared charset, or zero bytes (as in UTF-16)."""
    if head.startswith(b"\xef\xbb\xbf"):
        return "utf-8-sig"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if declared.charset and declared.charset != "utf-8-sig":
        return declared.charset
    even, odd = head[:4096:2].count(0), head[1:4096:2].count(0)
    max_zeros = len(head[:4096]) // 5
    if max(even, odd) > max_zeros:
        return "utf-16-le" if odd > even else "utf-16-be"
    return "utf-8-sig"


def _sample(text: str, delimiter: str, *, is_whole: bool) -> list[list[str]]:
    """Return the first rows of a text, without the last row if the text may end within that row."""
    rows: list[list[str]] = []
    try:
        for row in read_rows(io.StringIO(text, newline=""), delimiter):
            rows.append(row)
            if len(rows) > KIND_SAMPLE_ROWS + 1:  # the first row may be the header
                return rows[:-1]
    except csv.Error:
        return rows
    return rows if is_whole or len(rows) < 2 else rows[:-1]


def _body(dialect: Dialect) -> list[list[str]]:
    """Return the rows below the first row, which may be a header; if there is only one row, return this row."""
    return dialect.rows[1:] or dialect.rows


def _is_even(dialect: Dialect) -> bool:
    """Return whether the rows, split into cells by this dialect, all have the same number of cells, at least two.

    The first row may have one cell less, as in files written by R's write.table.
    """
    body = _body(dialect)
    if not body:
        return False
    width, first = len(body[0]), len(dialect.rows[0])
    return first > 1 and first in {width, width - 1} and all(len(row) == width for row in body)


def _is_read(dialect: Dialect, labels: int) -> bool:
    """Return whether the dialect reads all columns as numbers, except for at most `labels` columns."""
    body = _body(dialect)
    if not _is_even(dialect) or len(dialect.rows[0]) != len(body[0]):
        return False
    texts = sum(not all(dialect.is_number(cell) for cell in column) for column in zip(*body, strict=True))
    return texts <= min(labels, len(body[0]) - 1)


def _score(dialect: Dialect) -> tuple[float, float]:
    """Return a score, higher is better: whether the rows have equal width, then the share of cells that are numbers.

    Among rows of unequal width, those that are split by commas score half a point more.
    """
    body = _body(dialect)
    cells = [cell for row in body for cell in row]
    share = sum(dialect.is_number(cell) for cell in cells) / max(1, len(cells))
    if _is_even(dialect) and (dialect.delimiter != " " or share >= 0.5):
        return (1.0, share)
    if not dialect.rows or len(dialect.rows[0]) < 2:
        return (0.0, 0.0)
    # Commas are preferred, because blanks also separate numbers within texts.
    is_usual = dialect.delimiter == "," and dialect.decimal == "."
    return (0.0, share + 0.5 * is_usual)
