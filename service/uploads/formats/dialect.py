"""Dialect of a table of text: encoding, delimiter, quotes and decimal mark, declared or sniffed from its first rows.

A body that comma, double quotes and decimal points read without a fault is read so; other dialects only compete for
bodies that would be refused.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import itertools
import re
from dataclasses import dataclass, field
from typing import Any, Self

from glle_engine.base.columns import MISSING
from worker.base.problems import refuse

HEAD = 2**16  # bytes that are sniffed
SAMPLE_ROWS = 100
MAX_CELL = 1000  # characters of a number
DELIMITERS = {"comma": ",", "tab": "\t", "semicolon": ";", "pipe": "|"}
DECIMALS = {"point": ".", "comma": ","}
QUOTES = {"double": '"', "single": "'"}
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
BOOLEANS = {"true": "1", "false": "0"}
_SEPARATOR = re.compile(r'"?sep=(.)"?[\r\n]*', re.IGNORECASE)
_ARFF = re.compile(r"\s*(%.*\s+)*@relation\b", re.IGNORECASE)


@dataclass(frozen=True)
class Declared:
    """Dialect of a Content-Type: the values of its parameters; None: sniffed."""

    header: bool | None = None
    delimiter: str | None = None
    decimal: str | None = None
    charset: str | None = None

    @classmethod
    def of(cls, parameters: dict[str, str]) -> Self:
        """Return the dialect of media type parameters.

        Raises
        ------
        ProblemError
            ``unsupported-media-type``.

        """
        found: dict[str, Any] = {}
        for name, choice in _CHOICES.items():
            word = parameters.get(name)
            if word is not None and word not in choice:
                detail = f"The parameter {name}={word[:50]!r} of the Content-Type is not supported."
                remedy = f"Use one of {', '.join(choice)}."
                raise refuse("unsupported-media-type", 415, detail, remedy, supported=[*choice])
            found[name] = choice.get(word or "")
        return cls(**found)


@dataclass(frozen=True)
class Dialect:
    """Dialect of a body, and its first rows.

    Parameters
    ----------
    skipped
        Lines before the first row: one with ``sep=``, or none.
    rows
        The first rows, without the one that the head may cut.

    """

    encoding: str
    delimiter: str = ","
    quote: str = '"'
    decimal: str = "."
    skipped: int = 0
    rows: list[list[str]] = field(default_factory=list)

    def plain(self, cell: str) -> str:
        """Return a number with a decimal point; a mark of thousands makes it none."""
        if self.decimal == ".":
            return cell
        return "" if "." in cell else cell.replace(",", ".")

    def is_number(self, cell: str) -> bool:
        """Return whether a cell is a number of this dialect."""
        return is_number(self.plain(cell))

    def source(self) -> dict[str, str]:
        """Return what differs from CSV with commas, points and UTF-8, in words."""
        choices = {"delimiter": DELIMITERS, "decimal": DECIMALS, "quote": QUOTES, "encoding": CHARSETS}
        words = {
            name: next(word for word, value in choice.items() if value == getattr(self, name))
            for name, choice in choices.items()
        }
        return {name: word for name, word in words.items() if word != next(iter(choices[name]))}


def sniff(head: bytes, declared: Declared, *, is_whole: bool, labels: int) -> Dialect:
    """Return the dialect of a body by its first bytes; `labels` of its columns may be text.

    Raises
    ------
    ProblemError
        ``malformed-csv`` for a format that is no CSV.

    """
    encoding = _encoding(head, declared)
    text = head.decode(encoding, "replace")
    if _ARFF.match(text):
        detail = "The body is an ARFF file of Weka."
        raise refuse("malformed-csv", 422, detail, "Save it as CSV: in Weka's viewer, Save as, CSV file.")
    separator = _SEPARATOR.match(text)
    delimiter = declared.delimiter or (separator[1] if separator and separator[1] in DELIMITERS.values() else None)
    skipped = 0 if separator is None or delimiter is None else 1
    if skipped:
        text = text.partition("\n")[2] if "\n" in text else text.partition("\r")[2]
    delimiters = [delimiter] if delimiter else [*DELIMITERS.values()]
    decimals = [declared.decimal] if declared.decimal else [".", ","]
    quotes = QUOTES.values() if "'" in text else ['"']
    best, best_score = None, (-1.0, -1.0)
    for quote, sign in itertools.product(quotes, delimiters):
        rows = _sample(text, sign, quote, is_whole=is_whole)
        for decimal in decimals:
            dialect = Dialect(encoding, sign, quote, decimal, skipped, rows)
            if _is_read(dialect, labels):  # the first is the usual one
                return dialect
            if (score := _score(dialect)) > best_score:
                best, best_score = dialect, score
    assert best is not None
    return best


def is_number(cell: str) -> bool:
    """Return whether Python reads a cell as a number; it also reads digit groups, which CSV does not have."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell and len(cell) <= MAX_CELL


def kind_of(cells: list[str], dialect: Dialect) -> str:
    """Return the kind of a column by a sample of its cells: number, bool, date or text; most of its cells have it."""
    found = [cell.strip().lower() for cell in cells]
    found = [cell for cell in found if cell not in MISSING]
    if found and all(cell in BOOLEANS for cell in found):
        return "bool"
    words = [cell for cell in found if not dialect.is_number(cell)]
    if len(words) <= len(found) / 2:
        return "number"
    are_dates = len(words) == len(found) and None not in map(seconds_of, words)
    return "date" if are_dates else "text"


def seconds_of(cell: str) -> float | None:
    """Return a date of ISO 8601, with or without a time, in seconds since 1970, or None; without a zone it is UTC."""
    try:
        when = dt.datetime.fromisoformat(cell.strip().upper())
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=dt.UTC)).timestamp()


def _encoding(head: bytes, declared: Declared) -> str:
    """Return the codec: by a byte order mark, by the charset, or by the zeros of UTF-16."""
    if head.startswith(b"\xef\xbb\xbf"):
        return "utf-8-sig"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if declared.charset and declared.charset != "utf-8-sig":
        return declared.charset
    even, odd = head[:4096:2].count(0), head[1:4096:2].count(0)
    most = len(head[:4096]) // 5
    if max(even, odd) > most:
        return "utf-16-le" if odd > even else "utf-16-be"
    return "utf-8-sig"


def _sample(text: str, delimiter: str, quote: str, *, is_whole: bool) -> list[list[str]]:
    """Return the first rows, without the last if the head may cut it."""
    rows: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quotechar=quote, strict=True):
            if row:
                rows.append(row)
            if len(rows) > SAMPLE_ROWS:
                return rows[:-1]
    except csv.Error:
        return rows
    return rows if is_whole or len(rows) < 2 else rows[:-1]


def _body(dialect: Dialect) -> list[list[str]]:
    """Return the rows below a header; a single row is the body."""
    return dialect.rows[1:] or dialect.rows


def _is_even(dialect: Dialect) -> bool:
    """Return whether all rows have one width above 1; the header of R's write.table has one cell less."""
    body = _body(dialect)
    if not body or len(body[0]) < 2:
        return False
    width, first = len(body[0]), len(dialect.rows[0])
    return first > 1 and first in {width, width - 1} and all(len(row) == width for row in body)


def _is_read(dialect: Dialect, labels: int) -> bool:
    """Return whether every column is one of numbers, but for `labels` of them."""
    body = _body(dialect)
    if not _is_even(dialect) or len(dialect.rows[0]) != len(body[0]):
        return False
    texts = sum(not all(dialect.is_number(cell) for cell in column) for column in zip(*body, strict=True))
    return texts <= min(labels, len(body[0]) - 1)


def _score(dialect: Dialect) -> tuple[float, float]:
    """Return the rank of a dialect: even rows first, then the share of cells that are numbers."""
    body = _body(dialect)
    cells = [cell for row in body for cell in row]
    share = sum(dialect.is_number(cell) for cell in cells) / max(1, len(cells))
    if _is_even(dialect):
        return (1.0, share)
    first = len(dialect.rows[0]) if dialect.rows else 0
    usual = dialect.delimiter == "," and dialect.quote == '"' and dialect.decimal == "."
    return (0.0, (share if first > 1 else 0.0) + (0.5 if usual and first > 1 else 0.0))
