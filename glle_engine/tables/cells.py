"""Recognize missing values, numbers, truth values and dates in the cells of a table of text."""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

TextKind = Literal["number", "bool", "date", "text"]

KIND_SAMPLE_ROWS = 100  # whether a column is text, numbers or dates is decided by this many first rows
MAX_NUMBER_CHARACTERS = 1000  # a text with more characters is not read as a number
MISSING = frozenset({"", "na", "n/a", "nan", "nat", "null", "none", "?", "-", "#n/a", "<na>"})
"""Cells that are missing values in columns of numbers and dates, in lower case."""
BOOLEANS = {"true": True, "false": False}
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)")
_PADDED = re.compile(r"[+-]?0[0-9].*")
_GERMAN = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(?:[ T](\d{1,2}):(\d{2})(?::(\d{2}))?)?")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_CURRENCIES = r"EUR|USD|GBP|CHF|JPY|CNY|INR|SEK|NOK|DKK|PLN|Fr\.?|kr\.?|Rs\.?|[$€£¥₹]"
_UNITS = (
    rf"{_CURRENCIES}|[kcmµμn]?m|km/h|m/s|[kmµμ]?g|lbs?|oz|[mµμn]?s|min|h|[kMG]?Hz|[mkM][VAWJN]|[kM]?Pa|bar"
    r"|[mµμ]?[lL]|[mµμn]?mol|dB|ppm|°[CF]?|%|‰"
)
_SIGN = r"[-+\u2212\u2013]?"
_GROUPED = r"\d{1,3}([.,'\u2019\s\u00a0\u2009\u202f]\d{3})+([.,]\d+)?"  # with thousands separators
_FRACTION = rf"({_GROUPED}|\d*[.,]\d+)"
_EXPONENT = r"([eEdDqQ][-+\u2212]?\d+|\s?[x\u00d7*\u00b7]\s?10\^?[-+\u2212]?\d+|[-+]\d{2,3})"
# What laboratories, accountants and statisticians write beside a number: limits of detection, brackets, footnotes.
_BEFORE = r"(<=?|>=?|[=~\u2248\u2264\u2265\u00b1'\u2019(\[*]|(ca|approx|about|circa)\.?)"
_BEHIND = r"([-+*!?'^)\]\u00b0\u2020\u2021\u00b9\u00b2\u00b3\u00a7]|\/-|[(\[][\w*?]{1,4}[)\]])"
_FLAG = r"[A-Za-z]{1,4}\.?"
_SPREAD = rf"\s?(\u00b1|\+\/?-|-|\u2013)\s?{_FRACTION}"  # end of a number with an uncertainty, or of a range
# Numbers with a typographic minus, a currency, a unit, a decimal comma, thousands separators or other marks.
_MARKED = re.compile(
    rf"\s*({_BEFORE}\s?)*{_SIGN}\s?({_CURRENCIES})?\s?{_SIGN}"
    rf"({_FRACTION}({_EXPONENT}|{_SPREAD})?(\s?{_FLAG})?|({_GROUPED}|\d+[.,]?)([eE][-+\u2212]?\d+)?)"
    rf"\s?({_UNITS})?(\s?{_BEHIND})*\s*",
)
_FLAGGED = re.compile(rf"\s*{_SIGN}\d+\s?{_FLAG}\s*")


def number_of(cell: str) -> float | None:
    """Return the number in a cell of text, or None if the cell is not a number.

    Numbers with underscores, and infinity and NaN in words, do not count as numbers.
    """
    try:
        value = float(cell)
    except ValueError:
        return None
    is_word = not math.isfinite(value) and not any(map(str.isdigit, cell))
    return None if is_word or "_" in cell or len(cell) > MAX_NUMBER_CHARACTERS else value


def plain_number(cell: str, decimal: str) -> str:
    """Return a cell with a decimal point in place of the mark `decimal`, ready for `float`.

    If the decimal mark is a comma, a cell with a point, such as 1.234,5, is not a plain number: it becomes an empty
    text, which `float` refuses.
    """
    if decimal == ".":
        return cell
    return "" if "." in cell else cell.replace(",", ".")


def is_missing(cell: str) -> bool:
    """Return whether a cell of a column of numbers or dates is a missing value."""
    return cell.strip().lower() in MISSING


def has_marks(cell: str) -> bool:
    """Return whether a cell is a number, with or without a currency, a unit, a limit of detection or other marks."""
    return _MARKED.fullmatch(cell) is not None


def has_flag(cell: str) -> bool:
    """Return whether a cell is a whole number and one to four letters: a number with a flag, or a name such as 12B."""
    return _FLAGGED.fullmatch(cell) is not None


def value_of(cell: str, decimal: str = ".") -> str | float:
    """Return a cell as an int or a float if it is a number, otherwise as its stripped text.

    Integers with leading zeros, such as 007, stay text.
    """
    text = cell.strip()
    if _INTEGER.fullmatch(text):
        return int(text)
    number = None if _PADDED.fullmatch(text) and "." not in text else number_of(plain_number(text, decimal))
    return text if number is None or not math.isfinite(number) else number


def seconds_of(cell: str) -> float | None:
    """Return the date in a cell as seconds since 1970, or None if the cell is not a date.

    A date is in ISO 8601 or like 31.12.2024, with or without a time. Dates without a time zone are in UTC.
    """
    text = cell.strip().upper()
    try:
        if match := _GERMAN.fullmatch(text):
            day, month, year, hour, minute, second = (int(group or 0) for group in match.groups())
            when = dt.datetime(year, month, day, hour, minute, second, tzinfo=dt.UTC)
        else:
            when = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=dt.UTC)).timestamp()


def date_text(seconds: float) -> str:
    """Return the date that is `seconds` after 1970 as a text in UTC, without the time if it is midnight."""
    when = _EPOCH + dt.timedelta(seconds=round(seconds), microseconds=round((seconds - round(seconds)) * 1e6))
    return when.replace(tzinfo=None).isoformat(" ").removesuffix(" 00:00:00")


def kind_of(cells: Iterable[str | None], decimal: str = ".") -> TextKind:
    """Guess the kind of a column from its first cells: "number", "bool", "date" or "text".

    The kind is "bool" if all cells are truth values, "number" if at least half of the cells are numbers, "date" if all
    cells are dates, and "text" otherwise. Missing values do not count; if all cells are missing, the kind is "number".
    """
    stripped = [cell.strip() for cell in cells if cell is not None]
    present = [cell for cell in stripped if not is_missing(cell)]
    if present and all(cell.lower() in BOOLEANS for cell in present):
        return "bool"
    words = [cell for cell in present if number_of(plain_number(cell, decimal)) is None]
    if len(words) <= len(present) / 2:
        return "number"
    return "date" if len(words) == len(present) and all(seconds_of(cell) is not None for cell in words) else "text"
