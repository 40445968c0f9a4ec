"""Tables from blocks of rows: one way from the columns of text, Arrow and Parquet to features, labels and ids."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from glle_engine.base.columns import MAX_IDS, MAX_LISTED, ColumnProfile, Layout, option
from service.uploads.limits import check_inflated, check_names
from service.uploads.row_texts import Ids, build_table, label_array
from worker.base.problems import ProblemError
from worker.storage.validation import REMEDIES, BadRows, bad_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glle_engine.base.columns import ColumnRoles, Kind
    from glle_engine.base.validation import Missing
    from service.uploads.limits import Limits
    from worker.records.dataset import Array, Table

Block = TypeVar("Block")


class Columns(ABC, Generic[Block]):
    """Columns of a body, read in blocks of rows.

    Attributes
    ----------
    names
        Names in the file, or None.
    kinds
        Kinds of their values.
    format
        Name of the format in a record's source.
    missing
        A missing value, as a problem shows it.
    categories
        Positions of the columns whose type is that of categories.

    """

    names: list[str] | None
    width: int
    kinds: list[Kind]
    format: str
    missing: str = ""
    categories: frozenset[int] = frozenset()

    @abstractmethod
    def check(self, layout: Layout) -> np.dtype[Any]:
        """Return the dtype of the features; raise a problem if a column cannot have its role."""

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """Yield the rows from the first one, in blocks of bounded memory."""

    @abstractmethod
    def values(self, block: Block, column: int) -> list[Any]:
        """Return a column; a missing value is None."""

    def cell(self, block: Block, row: int, column: int) -> Any:
        """Return one value as it is in the file."""
        return self.values(block, column)[row]

    @abstractmethod
    def numbers(self, block: Block, column: int) -> tuple[Array, Array]:
        """Return a column of numbers, and the mask of the values that are missing, not finite or not exact."""

    @abstractmethod
    def gaps(self, block: Block, column: int) -> Array:
        """Return the mask of the missing values of a column."""

    @abstractmethod
    def fault(self, value: Any, column: int) -> str:
        """Return the problem code of a value that is no number of a feature, or an empty string."""

    def keys(self, values: list[Any], column: int) -> list[Any] | None:
        """Return values as numbers and texts that may be ids, or None."""
        del column
        return values

    def labels(self, values: list[Any]) -> Array:
        """Return the labels of all rows."""
        return label_array(values)

    def source(self, layout: Layout, values: Array) -> tuple[dict[str, Any], list[str]]:
        """Return further members of a record's source, and notices."""
        del layout, values
        return {}, []

    def bad_value(
        self, code: str, value: Any, row: int, column: int, layout: Layout, *, is_missing: bool = False
    ) -> ProblemError:
        """Return the problem of a value, with the options that drop or fill it, or leave the column out."""
        shown = self.missing if value is None else str(value)
        if code == "inexact-integer" or column not in layout.features:
            remedy = REMEDIES.get(code, "Fill the value in, or remove its row.")
            return bad_value(code, shown, row, column, names=layout.names, remedy=remedy)
        name = [layout.name(column)]
        remedy = f"Fill the value in, remove its row, or leave the column out with {option('ignore', name)}."
        if is_missing:
            remedy = (
                f"Drop such rows with ?missing=drop, take the medians of their columns with ?missing=median, or leave "
                f"the column out with {option('ignore', name)}."
            )
        problem = bad_value(code, shown, row, column, names=layout.names, remedy=remedy).problem
        return ProblemError(replace(problem, details={**problem.details, "options": {"ignore": name}}))


def read_columns(columns: Columns[Any], out: IO[bytes], limits: Limits, roles: ColumnRoles) -> Table:
    """Return the table of a body, with its values in the file `out`.

    A first pass reads the columns whose values decide their role.

    Raises
    ------
    ProblemError
        That of the first bad value, with the number of rows that have one, and others.
    TableError
        Columns without a role.

    """
    if not (roles.features or roles.ignore or roles.id):  # a label and a color are no features
        limits.check((1, max(1, columns.width - 2)))  # before the columns are named
    layout = Layout.of(columns.names, columns.width, roles)
    limits.check((1, len(layout.features)))
    if open_columns := layout.open_columns(roles, columns.kinds):
        layout = layout.guess(columns.kinds, _profiles(columns, open_columns, limits))
    reading = _Pass(columns, layout, columns.check(layout), limits, roles.missing)
    reading.read(out)
    return reading.table(out)


def _profiles(columns: Columns[Any], chosen: list[int], limits: Limits) -> dict[int, ColumnProfile]:
    """Return the profiles of columns, by a pass over all rows."""
    profiles, count = {at: ColumnProfile(is_category=at in columns.categories) for at in chosen}, 0
    for block in columns.blocks():
        count += len(block)
        limits.check((count, 1))
        for column, profile in profiles.items():
            values = columns.values(block, column)
            if columns.kinds[column] == "number":
                values = columns.keys(values, column) or [None]  # no id
            profile.add(values)
    return profiles


def map_rows(out: IO[bytes], start: int, dtype: np.dtype[Any], features: int, order: str = "C") -> Array:
    """Return the matrix that was written to a file from `start`, mapped from it."""
    out.flush()
    shape = ((os.fstat(out.fileno()).st_size - start) // (dtype.itemsize * features), features)
    return np.memmap(out, dtype, "r+", start, shape, order)  # type: ignore[call-overload, no-any-return] # IO[bytes] will do


class _Pass:
    """One pass over the rows of a body."""

    def __init__(
        self,
        columns: Columns[Any],
        layout: Layout,
        dtype: np.dtype[Any],
        limits: Limits,
        missing: Missing | None,
    ) -> None:
        self._columns, self._layout, self._dtype, self._limits = columns, layout, dtype, limits
        self._missing = missing
        self._bad_counts: Counter[int] = Counter()  # bad values by column
        self._one_hot = set(layout.roles["one_hot"])
        self._categories = self._find_categories()
        self._names = layout.feature_names(self._categories)
        self._features = sum(len(self._categories.get(column, [""])) for column in layout.features)
        self._labels: list[Any] = []
        self._ids = Ids()
        self._color: list[Array] = []

    def _find_categories(self) -> dict[int, list[str]]:
        """Return the sorted categories of each one-hot column, by a pass over all rows."""
        found: dict[int, set[str]] = {column: set() for column in self._layout.roles["one_hot"]}
        others, start = len(self._layout.features) - len(found), 0
        for block in self._columns.blocks() if found else ():
            for column, categories in found.items():
                categories.update(self._category_texts(block, column, start))
            self._limits.check((1, others + sum(map(len, found.values()))))
            start += len(block)
        return {column: sorted(categories) for column, categories in found.items()}

    def _category_texts(self, block: Any, column: int, start: int) -> list[str]:
        """Return the categories of the rows as text; refuse a missing one, or leave it out."""
        values = self._columns.values(block, column)
        if self._missing is not None:
            return [str(value) for value in values if value is not None]
        if None in values:
            code = self._columns.fault(None, column)
            raise self._columns.bad_value(code, None, start + values.index(None), column, self._layout)
        return [str(value) for value in values]

    def read(self, out: IO[bytes]) -> None:
        """Write the features of all rows."""
        columns, limits = self._columns, self._limits
        limits.check((1, self._features))
        check_names(self._names, self._features)
        bad, first, count = BadRows(), None, 0
        try:
            for block in columns.blocks():
                limits.check((count + len(block), self._features))
                nbytes = (count + len(block)) * self._features * self._dtype.itemsize
                check_inflated("The table", nbytes, limits.inflated)
                problem, rows = self._add(block, count, out if first is None else None)
                first = first or problem
                bad.add(count + rows)
                count += len(block)
        except ProblemError:
            if first is None:
                raise
        if first is not None:
            raise self._annotate(bad.annotate(first))
        limits.check((count, self._features))

    def _annotate(self, error: ProblemError) -> ProblemError:
        """Return the problem of the first bad value with the columns that have such values, if there are several."""
        columns = {self._layout.name(at): count for at, count in sorted(self._bad_counts.items())}
        if len(columns) < 2:
            return error
        listed = [f"{name!r} ({count:,})" for name, count in columns.items()]
        shown = ", ".join(listed[:MAX_LISTED]) + (" and others" if len(listed) > MAX_LISTED else "")
        details = {**error.problem.details, "bad_columns": dict(list(columns.items())[:MAX_LISTED])}
        detail = f"{error.problem.detail} Columns with such values: {shown}."
        return ProblemError(replace(error.problem, detail=detail, details=details))

    def _add(self, block: Any, start: int, out: IO[bytes] | None) -> tuple[ProblemError | None, Array]:
        """Store the rows of a block; return the problem of its first bad value, and the rows with a bad value."""
        columns, layout = self._columns, self._layout
        numbers: dict[int, Array] = {}
        faults = np.zeros((len(block), columns.width), bool)
        for column in [*layout.features, *([] if layout.color is None else [layout.color])]:
            if column not in self._one_hot:
                values, faults[:, column] = columns.numbers(block, column)
                if self._missing is not None and faults[:, column].any():
                    gaps = columns.gaps(block, column)
                    values, faults[:, column] = np.where(gaps, np.nan, values), faults[:, column] & ~gaps
                numbers[column] = values
        rows = np.flatnonzero(faults.any(axis=1))
        if rows.size:
            row, column = int(rows[0]), int(np.argmax(faults[rows[0]]))
            value = columns.cell(block, row, column)
            code, is_missing = columns.fault(value, column), bool(columns.gaps(block, column)[row])
            self._bad_counts.update(dict(enumerate(map(int, faults.sum(axis=0)))))
            self._bad_counts = +self._bad_counts
            return columns.bad_value(code, value, start + row, column, layout, is_missing=is_missing), rows
        if out is not None:
            parts = [
                self._zeros_and_ones(block, column, start) if column in self._one_hot else numbers[column]
                for column in layout.features
            ]
            out.write(np.ascontiguousarray(np.column_stack(parts), self._dtype).data)
            if layout.color is not None:
                self._color.append(numbers[layout.color].astype(np.float64))
            if layout.label is not None:
                self._labels += columns.values(block, layout.label)
            self._ids.add(columns.values(block, column) for column in layout.roles["id"][:MAX_IDS])
        return None, rows

    def _zeros_and_ones(self, block: Any, column: int, start: int) -> Array:
        """Return the features of the categories. Shape (rows, categories)."""
        codes = {category: code for code, category in enumerate(self._categories[column])}
        texts = self._category_texts(block, column, start)
        ones = np.zeros((len(block), len(codes)))
        present = np.arange(len(block))
        if len(texts) < len(block):  # some are missing
            gaps = np.array([value is None for value in self._columns.values(block, column)])
            ones[gaps], present = np.nan, np.flatnonzero(~gaps)
        ones[present, [codes[text] for text in texts]] = 1
        return ones

    def _label_array(self, column: int) -> Array:
        """Return the labels; refuse infinite ones."""
        bad = BadRows()
        bad.add(row for row, value in enumerate(self._labels) if isinstance(value, float) and math.isinf(value))
        if bad.count:
            value, row = self._labels[bad.first[0]], bad.first[0]
            raise bad.annotate(self._columns.bad_value("not-finite", value, row, column, self._layout))
        return self._columns.labels(self._labels)

    def table(self, out: IO[bytes]) -> Table:
        """Return the table of the rows."""
        layout = self._layout
        values = map_rows(out, 0, self._dtype, self._features)
        labels = None if layout.label is None else self._label_array(layout.label)
        source, notices = self._columns.source(layout, values)
        return build_table(
            self._columns.format,
            values,
            self._names,
            labels=labels,
            color=np.concatenate(self._color) if self._color else None,
            ids=self._ids,
            source={**source, **layout.source()},
            notices=[*layout.notices(), *notices],
            missing=self._missing,
        )
