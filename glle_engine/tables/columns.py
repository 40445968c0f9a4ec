"""Columns of a table, each with the kind of its values, which readers of all formats provide in blocks of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from glle_engine.base.arrays import EXACT, require_lossless
from glle_engine.tables.cells import (
    BOOLEANS,
    KIND_SAMPLE_ROWS,
    MAX_NUMBER_CHARACTERS,
    date_text,
    is_missing,
    kind_of,
    number_of,
    plain_number,
    seconds_of,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from glle_engine.base.texts import Note
    from glle_engine.tables.cells import TextKind

Kind = Literal["number", "text", "date", "vector", "other"]
"""Kind of the values of a column; numbers include booleans."""

_BLOCK_VALUES = 2**20  # a column is converted in blocks of this many values, which take 8 MB
_MAX_EXACT_INTEGER = 10**15  # every integer of up to 15 digits is exact in float64


@dataclass(frozen=True, eq=False)
class Column:
    """Values of one column of a table, or of a block of its rows.

    Parameters
    ----------
    kind
        Kind of the values.
    type
        Name of the values' type, for messages.
    values
        (n,) numbers of any real dtype, dates in seconds since 1970, or objects; (n, d) numbers for vectors.
    missing
        (n,) mask of the missing values.
    is_category
        Whether the type is categorical.
    cells
        The cells of text from which numbers or dates were read; None if the values do not come from text.
    faults
        Mapping from row to problem code, for cells with a problem other than a missing value.
    decimal
        Decimal mark of the cells.
    rounded
        (n,) mask of integers that were rounded when the file was written, so that they cannot be labels or ids; None if
        there are none.

    """

    kind: Kind
    type: str
    values: NDArray[Any]
    missing: NDArray[np.bool_]
    is_category: bool = False
    cells: Sequence[str] | None = None
    faults: Mapping[int, str] = field(default_factory=dict)
    decimal: str = "."
    rounded: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def rows(self, start: int, stop: int) -> Column:
        """Return the part of the column with the rows `start` to `stop` - 1."""
        if start == 0 and stop == len(self):
            return self
        return replace(
            self,
            values=self.values[start:stop],
            missing=self.missing[start:stop],
            cells=None if self.cells is None else self.cells[start:stop],
            rounded=None if self.rounded is None else self.rounded[start:stop],
            faults={row - start: code for row, code in self.faults.items() if start <= row < stop},
        )

    @property
    def numbers(self) -> NDArray[Any]:
        """The values of a column of numbers or vectors, with NaN for missing values."""
        if not self.missing.any():
            return self.values
        is_single = self.values.dtype == np.float32
        values = self.values.astype(np.result_type(self.values.dtype, np.float32 if is_single else np.float64))
        values[self.missing] = np.nan
        return values

    def objects(self) -> list[Any]:
        """Return the exact values as Python objects: numbers, texts or truth values, dates as texts, and None."""
        if self.cells is not None and self.kind == "number":
            truths = self.values.dtype.kind == "b"
            return [
                None if gone else BOOLEANS.get(cell.strip().lower(), cell) if truths else value_of(cell, self.decimal)
                for cell, gone in zip(self.cells, self.missing.tolist(), strict=True)
            ]
        if self.kind == "date":
            values = [date_text(value) if value == value else None for value in self.values.tolist()]  # noqa: PLR0124 # NaN
        else:
            values = self.values.tolist()
        return [None if gone else value for value, gone in zip(values, self.missing.tolist(), strict=True)]

    def texts(self) -> list[Any]:
        """Return the values as ids: the cells of text without surrounding spaces, and None for empty cells.

        Values that were not read from text are returned as Python objects, as by `objects`, and None where missing.
        """
        if self.cells is None:
            return self.objects()
        return [cell.strip() or None for cell in self.cells]

    def shown(self, row: int) -> str:
        """Return the value in a row as error messages show it: its cell of text, its value, or "null"."""
        if self.cells is not None:
            return self.cells[row]
        return "null" if self.missing[row] else str(self.values[row])

    def problems(self) -> dict[str, NDArray[np.bool_]]:
        """Return a mask (n,) of the rows with a bad value for each problem code, such as "missing-value".

        Values can be missing, unreadable, not finite, or integers that float64 cannot hold exactly. A mask can be
        False everywhere.
        """
        values, masks = self.values, {"missing-value": self.missing}
        if values.dtype.kind == "f" and not self.faults and np.isfinite(values).all():
            return masks
        if values.dtype.kind in "iu" and values.itemsize > 4:
            masks["inexact-integer"] = (values > EXACT) | (values < -EXACT)
        elif values.dtype.kind == "f":
            masks["not-finite"] = np.isinf(values)
        masks = {code: np.asarray(mask.any(axis=1)) if mask.ndim > 1 else mask for code, mask in masks.items()}
        for row, code in self.faults.items():
            masks.setdefault(code, np.zeros(len(values), bool))[row] = True
        return {code: mask & ~self.missing if code != "missing-value" else mask for code, mask in masks.items()}


class Columns(ABC):
    """A table that is read in blocks of rows; each format of files or frames has a subclass.

    Attributes
    ----------
    names
        Names of the columns, or None.
    head
        A `Column` of the first rows of each column, which decide the column's kind.
    base
        Number of the first row in messages: 1 for files, 0 for data from a program.
    index
        Positions of the columns that come from the index of a frame.
    rounds_integers
        Whether the file may have rounded integers beyond 2^53 (`Column.rounded`), as workbooks do.

    """

    names: list[str] | None
    head: list[Column]
    base: int = 0
    index: tuple[int, ...] = ()
    rounds_integers: bool = False

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """Yield all rows, from the first one on, in blocks of bounded memory."""

    def notices(self) -> list[Note]:
        """Return notices for the user about what the reader has guessed about the format of a file."""
        return []


class Block(ABC):
    """Successive rows of a table."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def column(self, index: int) -> Column:
        """Return these rows of the column at position `index`, read as the column's kind in `Columns.head`."""


@dataclass(frozen=True, eq=False)
class WholeTable(Columns):
    """Table whose columns are in memory, and need not be read in blocks."""

    names: list[str] | None
    head: list[Column]
    base: int = 0
    index: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.head[0]) if self.head else 0

    def blocks(self) -> Iterator[Block]:
        """Yield all rows, in blocks of about a million values."""
        size = max(1, _BLOCK_VALUES // len(self.head)) if self.head else 1
        for start in range(0, len(self), size):
            yield _Rows(self.head, start, min(start + size, len(self)))


@dataclass(frozen=True, eq=False)
class _Rows(Block):
    """Successive rows of columns in memory."""

    columns: list[Column]
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def column(self, index: int) -> Column:
        return self.columns[index].rows(self.start, self.stop)


def number_column(values: NDArray[Any], missing: NDArray[np.bool_] | None = None, type_: str = "number") -> Column:
    """Return a column of numbers (n,) or vectors (n, d); rows with NaN, and rows marked in `missing`, are missing."""
    gaps: NDArray[np.bool_] = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
    gaps = np.asarray(gaps.any(axis=1)) if gaps.ndim > 1 else gaps
    return Column("vector" if values.ndim > 1 else "number", type_, values, gaps if missing is None else gaps | missing)


def date_column(seconds: NDArray[np.float64], type_: str = "date") -> Column:
    """Return a column of dates in seconds since 1970; NaN is missing."""
    return Column("date", type_, seconds, np.isnan(seconds))


def cell_column(cells: Sequence[str], kind: TextKind, decimal: str = ".") -> Column:
    """Read cells of text as values of `kind`, and return the column, with the code of each bad cell in `faults`."""
    if kind == "text":
        return text_column([cell.strip() or None for cell in cells])
    plain = cells if decimal == "." else [plain_number(cell, decimal) for cell in cells]
    if kind == "number" and (values := _plain_numbers(plain)) is not None:
        return Column("number", kind, values, np.zeros(len(values), bool), cells=cells, decimal=decimal)
    values_and_codes = [_read_cell(cell, kind, decimal) for cell in cells]
    missing = np.array([code == "missing-value" for _, code in values_and_codes], bool)
    faults = {row: code for row, (_, code) in enumerate(values_and_codes) if code and not missing[row]}
    values = np.array([value for value, _ in values_and_codes], bool if kind == "bool" and not faults else np.float64)
    if kind == "date":
        values[[bool(code) for _, code in values_and_codes]] = np.nan
    name: Kind = "date" if kind == "date" else "number"
    return Column(name, kind, values, missing, cells=cells, faults=faults, decimal=decimal)


def _plain_numbers(cells: Sequence[str]) -> NDArray[np.float64] | None:
    """Convert all cells to numbers at once; return None unless every cell is a finite number below 10^15."""
    try:
        values = np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        return None
    if not (np.abs(values) < _MAX_EXACT_INTEGER).all() or max(map(len, cells), default=0) > MAX_NUMBER_CHARACTERS:
        return None
    return None if "_" in "".join(cells) else values


def _read_cell(cell: str, kind: TextKind, decimal: str) -> tuple[float, str]:
    """Read a cell of text; return its value and an empty string, or 0 and the code of a problem such as "bad-cell".

    An integer that float64 cannot hold is returned with the code "inexact-integer".
    """
    plain = plain_number(cell, decimal)
    value: float | None
    if kind == "bool":
        value = BOOLEANS.get(cell.strip().lower())
    else:
        value = seconds_of(cell) if kind == "date" else number_of(plain)
    if value is None and is_missing(cell):
        return 0, "missing-value"
    if value is None:
        return 0, "not-finite" if cell.strip().lower().lstrip("+-") in {"inf", "infinity"} else "bad-cell"
    is_long = kind == "number" and abs(value) >= EXACT and plain.strip().lstrip("+-").isdigit()
    return value, "inexact-integer" if is_long and abs(int(plain)) > EXACT else ""


def text_column(texts: Sequence[str | None], *, is_category: bool = False, kind: TextKind | None = None) -> Column:
    """Return the column of a sequence of texts; None and empty texts are missing.

    If `kind` is date or bool, the texts are read as dates or truth values; numbers stay texts. By default the first
    texts decide the kind, and categories have the kind "text".
    """
    kind = kind or ("text" if is_category else kind_of(texts[:KIND_SAMPLE_ROWS]))
    if kind in {"bool", "date"} and any(text is not None for text in texts):
        return cell_column(["" if text is None else text for text in texts], kind)
    values = object_array(texts)
    return Column("text", "text", values, np.array([text is None or text == "" for text in texts], bool), is_category)


def objects_column(values: Sequence[Any], type_: str, *, is_category: bool = False) -> Column:
    """Return the column of a sequence of Python objects, of the kind that their types have in common, or "other".

    None and NaN are missing. The values of a categorical column (`is_category`) become texts unless they are numbers or
    dates. Numbers become texts if there are integers that int64 cannot hold, or if there are both integers beyond 2^53
    and fractions.
    """
    gaps = np.array([value is None or (np.isscalar(value) and value != value) for value in values], bool)  # noqa: PLR0124 # NaN
    gaps |= np.array([type(value).__name__ in {"NAType", "NaTType"} for value in values], bool)
    present = [value for value, gone in zip(values, gaps.tolist(), strict=True) if not gone]
    if present and all(isinstance(value, (Real, Decimal, np.bool_)) for value in present):
        return _numbers_column(values, gaps, type_, is_category=is_category)
    if present and all(isinstance(value, date) for value in present):
        seconds = [np.nan if gone else _seconds(value) for value, gone in zip(values, gaps.tolist(), strict=True)]
        return date_column(np.array(seconds, np.float64), type_)
    if is_category or all(isinstance(value, str) for value in present):  # intervals may be categories, too
        texts = [None if gone else str(value) for value, gone in zip(values, gaps.tolist(), strict=True)]
        return text_column(texts, is_category=is_category)
    widths = {np.shape(value) if isinstance(value, (list, tuple, np.ndarray)) else () for value in present}
    if present and len(widths) == 1 and len(shape := widths.pop()) == 1 and shape[0]:
        vectors = [np.zeros(shape, np.int8) if gone else value for value, gone in zip(values, gaps, strict=True)]
        lists = [[np.nan if each is None else each for each in vector] for vector in vectors]
        matrix = np.array(lists)
        if matrix.dtype.kind in "fiub":
            # numpy has converted integers beside missing values to floats, perhaps with a loss. Integers that stayed
            # integers are checked by `Column.problems`.
            if matrix.dtype.kind == "f":
                require_lossless(lists, "a column of vectors", matrix)
            return number_column(matrix, gaps, type_)
    odd = next((f"{value!r:.40}" for value in present if not isinstance(value, (Real, Decimal))), "")
    return Column("other", f"{type_}, such as {odd}" if odd else type_, object_array(values), gaps)


def _numbers_column(values: Sequence[Any], gaps: NDArray[np.bool_], type_: str, *, is_category: bool) -> Column:
    """Return a column of Python numbers as bool, int64 or float64, or as texts if no type holds all of them exactly."""
    present = [value for value, gone in zip(values, gaps.tolist(), strict=True) if not gone]
    are_whole = [value == value // 1 and not isinstance(value, float) for value in present]
    longest = max((abs(int(value)) for value, whole in zip(present, are_whole, strict=True) if whole), default=0)
    dtype: type[bool | np.number[Any]] = np.float64
    if all(isinstance(value, (bool, np.bool_)) for value in present):
        dtype = bool
    elif all(are_whole) and longest < 2**63:
        dtype = np.int64
    elif longest > EXACT:
        texts = iter(
            [str(int(value)) if whole else str(value) for value, whole in zip(present, are_whole, strict=True)]
        )
        return text_column([None if gone else next(texts) for gone in gaps], is_category=is_category, kind="text")
    array = np.zeros(len(values), dtype)
    array[~gaps] = [dtype(value) for value in present]
    return Column("number", type_, array, gaps, is_category)


def _seconds(value: date) -> float:
    """Return a date or time as seconds since 1970; without a time zone, it counts as UTC."""
    when = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day, tzinfo=UTC)
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def object_array(values: Iterable[Any]) -> NDArray[Any]:
    """Return an array (n,) of the values as objects; from lists, `np.array` would make a matrix."""
    values = list(values)
    objects = np.empty(len(values), object)
    objects[:] = values
    return objects
