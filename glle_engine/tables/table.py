"""Read the features, labels, colors and ids of a table, with notices for the user, or one error with all problems."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np

from glle_engine.base.errors import TableError
from glle_engine.base.texts import Note, Way, joined
from glle_engine.base.validation import resolve_missing
from glle_engine.tables.cells import number_of
from glle_engine.tables.roles import MAX_ID_COLUMNS, MAX_LISTED_COLUMNS, ColumnProfile, Layout, no_features
from glle_engine.tables.row_texts import Ids, is_text, label_array, missing_labels, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from glle_engine.base.validation import Missing
    from glle_engine.tables.columns import Block, Column, Columns
    from glle_engine.tables.roles import ColumnRoles

    Array = NDArray[Any]

MAX_NAME_CHARACTERS = 1000  # a column name with more characters is refused
EXTRAS = ("labels", "colors", "coordinates", "ids")
"""Arrays that a data set may have besides its values, in the order in which its digest includes them."""
_BLOCK_VALUES = 2**22  # rows are copied in blocks of this many values, which take 32 MB
_LABEL_NAMES = frozenset({"class", "classes", "cluster", "group", "label", "labels", "species", "target"})
_MAX_NOTICED_CLASSES = 30  # a column with one of these names is noticed if it has at most this many different numbers
_MIN_ROWS_FOR_COUNTER_NOTICE = 10  # with fewer rows, there is no notice that a column only counts the rows
_MAX_LISTED = 20  # an error lists at most this many columns or rows
_MAX_SHOWN_CHARACTERS = 50  # an error quotes at most this many characters of a value
_KINDS_OF_ROLES = {
    "colors": ("the colors", ("number", "date")),
    "labels": ("the labels", ("text", "number", "date")),
    "id": ("ids", ("text", "number", "date")),
    "one_hot": ("categories", ("text", "number", "date")),
}
"""For each role the noun in messages, and the kinds of values that its columns can have."""
FILL = (
    f"Drop such rows with {Way('missing', 'drop')}, or take the medians of their columns with "
    f"{Way('missing', 'median')}"
)
"""Remedy of missing values."""
_NO_CHOICE = "Remove these rows, or fill the values in"
# For each problem of values the beginning of the message, and the remedy.
_PROBLEMS = {
    "bad-cell": ("Cells are not numbers", "Fill the values in, or remove their rows"),
    "missing-value": ("Values are missing", FILL),
    "not-finite": ("Values are infinite", "Remove their rows, or make them missing"),
    "inexact-integer": (
        "Integers beyond 2^53, between which float64 cannot tell neighbors apart, are",
        "Subtract an offset",
    ),
    "rounded-integer": ("Integers that the file has rounded, because they are beyond 2^53, are", "Write them as texts"),
}


class Bounds(Protocol):
    """Limits on the size of a table, which a service sets and which are checked while the table is read."""

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise an error if the `shape` (rows, features) has too many rows or features, or none."""

    def check_bytes(self, nbytes: int) -> None:
        """Raise an error if `nbytes`, the size of the features in memory, is too large."""


class _NoBounds:
    """Limits that accept every table except an empty one."""

    def check(self, shape: tuple[int, ...]) -> None:
        if 0 in shape:
            remedy = "Give a table with at least one row and at least one column of numbers."
            raise TableError("empty-data", f"The data have {shape[0]} rows and {shape[1]} features.", remedy=remedy)

    def check_bytes(self, nbytes: int) -> None:
        """Do nothing: a table may take any number of bytes, `nbytes`."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Table:
    """Data set that was read from a table or generated: features, labels, colors and ids.

    Attributes
    ----------
    values
        (n, d) features, of any real dtype and memory order; may be mapped from a file.
    names
        Names of the features, or None.
    labels, colors, coordinates, ids
        Labels (n,) as texts or float64, colors (n,) as float64, true coordinates (n, 2) of synthetic data, and ids (n,)
        or, from several columns, (n, columns) as texts or int64; None if there are none.
    notices
        Notices for the user about guessed roles, missing values and the format.
    kept
        (rows,) mask of the rows that became points, or None if no row was dropped.
    layout
        Which column has which role; None for data without columns.
    source
        Origin of an upload, such as its format, JSON-able.

    """

    values: Array
    names: list[str] | None = None
    labels: Array | None = None
    colors: Array | None = None
    coordinates: Array | None = None
    ids: Array | None = None
    notices: tuple[Note, ...] = ()
    kept: NDArray[np.bool_] | None = None
    layout: Layout | None = None
    source: dict[str, Any] = field(default_factory=dict)

    @property
    def extras(self) -> dict[str, Array]:
        """Mapping from names in `EXTRAS` to the arrays that the table has; little-endian, as they are stored."""
        arrays = {name: getattr(self, name) for name in EXTRAS}
        return {
            name: array.astype(array.dtype.newbyteorder("<"), copy=False)
            for name, array in arrays.items()
            if array is not None
        }


def read_table(
    columns: Columns,
    roles: ColumnRoles,
    out: IO[bytes] | None = None,
    bounds: Bounds | None = None,
    *,
    are_new: bool = False,
) -> Table:
    """Read all rows of the columns, and return the `Table`; with a file `out`, the values are memory-mapped from it.

    If the values of some columns decide their roles, a first pass reads these columns. `bounds` limits the size of the
    table; None accepts every table that is not empty. The rows of new points (`are_new`) are neither dropped nor
    filled, so that an error on missing values offers neither.

    Raises
    ------
    TableError
        If columns have no role or bad values; the error names all of them.

    """
    bounds = bounds or _NoBounds()
    width = len(columns.head)
    if not (roles.features or roles.ignore or roles.id):  # all columns but the labels and colors are features
        # Too many columns are refused before roles are looked up by their names, which would take long.
        bounds.check((1, max(1, width - 2)))
    kinds = [column.kind for column in columns.head]
    layout = Layout.from_roles(columns.names, width, roles, columns.index)
    if not layout.features:
        if not width:
            raise TableError("empty-data", "The table has no columns.", remedy="Give at least one column of numbers.")
        detail = f"All {width} columns have another role (labels, colors, ids or ignored), so that no feature is left."
        remedy = "Leave at least one column of numbers without a role; it becomes a feature."
        raise TableError("empty-data", detail, remedy=remedy)
    bounds.check((1, len(layout.features)))
    if open_columns := layout.open_columns(roles, kinds):
        profiles = {index: ColumnProfile(is_category=columns.head[index].is_category) for index in open_columns}
        count = 0
        for block in columns.blocks():
            count += len(block)
            bounds.check((count, 1))
            for index, profile in profiles.items():
                profile.add(block.column(index))
        layout = layout.guess(kinds, profiles)
    layout = layout.with_index([index for index, kind in enumerate(kinds) if kind in _KINDS_OF_ROLES["id"][1]])
    return _Pass(columns, layout, bounds, roles.missing, are_new=are_new).read(out)


def build_table(
    values: Array,
    names: list[str] | None = None,
    *,
    labels: Array | None = None,
    colors: Array | None = None,
    coordinates: Array | None = None,
    ids: Ids | None = None,
    notices: Sequence[Note] = (),
    missing: Missing | None = None,
    layout: Layout | None = None,
) -> Table:
    """Return the `Table` with these arrays, and with notices on missing values.

    With `missing`, rows with missing values in the features or the colors are dropped, or the values are filled in.

    Raises
    ------
    TableError, NotFiniteError
        If every row has a missing value, or a column has no value from which a median could be computed.

    """
    all_notices = [*notices, *missing_labels(labels), *(ids.notices() if ids else ())]
    extras: dict[str, Any] = {
        "labels": labels,
        "colors": colors,
        "coordinates": coordinates,
        "ids": ids.array() if ids else None,
    }
    kept = None
    if missing is not None:
        if not values.flags.writeable and values.dtype.kind == "f":
            values = np.array(values)
        kept, change = resolve_missing(values, missing, names)
        all_notices += change
        if colors is not None:
            of_color, change = resolve_missing(colors[:, None], missing, ["the colors"])
            all_notices += change
            kept = of_color if kept is None else kept if of_color is None else kept & of_color
    if kept is not None:
        if not kept.any():
            detail = f"Each of the {len(kept):,} rows has a missing value, so that no row is left."
            remedy = f"Leave out the columns with many missing values, or use {Way('missing', 'median')}."
            raise TableError("empty-data", detail, remedy=remedy)
        extras = {name: None if extra is None else extra[kept] for name, extra in extras.items()}
        values = _keep_rows(values, kept)
    return Table(values=values, names=names, **extras, notices=tuple(all_notices), kept=kept, layout=layout)


def _keep_rows(values: Array, kept: NDArray[np.bool_]) -> Array:
    """Return the rows that `kept` selects; if `values` map a file in C order, move these rows to the file's front."""
    if not isinstance(values, np.memmap) or not values.flags.c_contiguous:
        return np.ascontiguousarray(values[kept])
    end, size = 0, max(1, _BLOCK_VALUES // values.shape[1])
    for start in range(0, len(values), size):
        block = values[start : start + size][kept[start : start + size]]
        values[end : end + len(block)] = block
        end += len(block)
    return values[:end]


def map_rows(out: IO[bytes], dtype: np.dtype[Any], features: int, order: str = "C") -> Array:
    """Memory-map the matrix that fills a file, with as many rows as the file has."""
    out.flush()
    shape = (os.fstat(out.fileno()).st_size // (dtype.itemsize * features), features)
    return np.memmap(out, dtype, "r+", 0, shape, order)  # type: ignore[call-overload, no-any-return] # it takes IO[bytes]


def check_names(names: Sequence[str] | None, features: int) -> None:
    """Raise `TableError` unless there is a distinct and valid name for each feature; None is allowed."""
    if names is None:
        return
    if len(names) != features:
        detail = f"There are {len(names)} names for {features} features."
        raise TableError("invalid-names", detail, remedy="Give one name for each feature.")
    for name in names:
        if len(name) > MAX_NAME_CHARACTERS:
            detail = f"The column name that begins with {name[:_MAX_SHOWN_CHARACTERS]!r} has {len(name):,} characters."
            raise TableError(
                "invalid-names", detail, remedy=f"Use names of at most {MAX_NAME_CHARACTERS:,} characters."
            )
        if not is_text(name):
            detail = f"The column name {name[:_MAX_SHOWN_CHARACTERS]!r} has a character that cannot be stored: U+0000, "
            detail += "or half of a surrogate pair."
            raise TableError("invalid-names", detail, remedy="Remove that character from the name.")
    if repeated := sorted(name for name, count in Counter(names).items() if count > 1):
        shown = ", ".join(map(repr, repeated[:_MAX_LISTED]))
        detail, details = f"Several columns are named {shown}.", {"names": repeated[:_MAX_LISTED]}
        raise TableError("invalid-names", detail, remedy="Give each column a different name.", details=details)


@dataclass
class BadRows:
    """Counts rows with a bad value: `count` is their number, and `first` has the numbers of the first ones, from 0."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, rows: Array) -> None:
        """Add further bad rows, given by their numbers: increase `count`, and keep the first numbers in `first`.

        The numbers are ascending, distinct, and larger than all numbers added before.
        """
        self.count += len(rows)
        self.first += map(int, rows[: _MAX_LISTED - len(self.first)])


@dataclass
class _Fault:
    """All bad values with one problem code: the first one, their rows, and how many there are in each column."""

    row: int
    column: int
    shown: str
    rows: BadRows = field(default_factory=BadRows)
    by_column: Counter[int] = field(default_factory=Counter)


class _Pass:
    """Reads all rows of a table once, after the roles of its columns are known, and collects all bad values."""

    def __init__(
        self, columns: Columns, layout: Layout, bounds: Bounds, missing: Missing | None, *, are_new: bool
    ) -> None:
        self._are_new = are_new
        self._columns, self._layout, self._bounds, self._missing = columns, layout, bounds, missing
        self._one_hot = set(layout.roles["one_hot"])
        self._refused = [index for index in layout.features if not self._is_feature(index)]
        self._read = [index for index in layout.features if index not in self._one_hot and index not in self._refused]
        self._faults: dict[str, _Fault] = {}
        self._require_roles()
        self._categories = self._find_categories()
        parts = {index: [f"={text}" for text in texts] for index, texts in self._categories.items()}
        heads = {index: columns.head[index].values for index in self._read if columns.head[index].kind == "vector"}
        parts |= {index: [f"[{component}]" for component in range(values.shape[1])] for index, values in heads.items()}
        self._names = layout.feature_names(parts)
        self._features = sum(len(parts.get(index, [""])) for index in layout.features)
        are_single = all(columns.head[index].values.dtype == np.float32 for index in self._read) and not self._one_hot
        self._dtype = np.dtype(np.float32 if are_single else np.float64)

    def _is_feature(self, index: int) -> bool:
        return index in self._one_hot or self._columns.head[index].kind in {"number", "vector"}

    def _require_roles(self) -> None:
        """Raise `TableError` if the type of a column does not suit its role."""
        for role, (noun, kinds) in _KINDS_OF_ROLES.items():
            for index in self._layout.roles[role]:
                if (column := self._columns.head[index]).kind in kinds:
                    continue
                name = self._layout.name(index)
                values = " or ".join(", ".join(f"{kind}s" for kind in kinds).rsplit(", ", 1))
                detail = f"The column {name!r} is of type {column.type}, but {noun} have to be {values}."
                remedy = f"Name another column as {Way(role)}, or convert this one."
                details = {"name": name, "type": column.type}
                raise TableError("unsupported-column", detail, remedy=remedy, details=details)

    def _find_categories(self) -> dict[int, list[str]]:
        """Return the sorted categories of each one-hot column, by a pass over all rows."""
        categories_of_columns: dict[int, set[str]] = {index: set() for index in self._layout.roles["one_hot"]}
        others = len(self._layout.features) - len(categories_of_columns)
        for block in self._columns.blocks() if categories_of_columns else ():
            for index, categories in categories_of_columns.items():
                categories.update(text_of(value) for value in block.column(index).objects() if value is not None)
            self._bounds.check((1, others + sum(map(len, categories_of_columns.values()))))
        return {index: sorted(categories) for index, categories in categories_of_columns.items()}

    def read(self, out: IO[bytes] | None) -> Table:
        """Read all rows, and return the table, or raise one `TableError` with all problems.

        The features are written to the file `out` and memory-mapped from it, or kept in memory if `out` is None.
        """
        bounds, layout = self._bounds, self._layout
        bounds.check((1, max(self._features, len(self._refused))))
        check_names(self._names or layout.names, self._features if self._names else layout.width)
        count = 0
        parts: list[Array] = []
        labels: list[Any] = []
        colors: list[Array] = []
        ids = Ids(base=self._columns.base)
        for block in self._columns.blocks():
            bounds.check((count + len(block), self._features))
            bounds.check_bytes((count + len(block)) * self._features * self._dtype.itemsize)
            features, of_color = self._block(block, count)
            count += len(block)
            if self._faults or self._refused:
                continue
            if out is None:
                parts.append(features)
            else:
                out.write(features.data)
            if of_color is not None:
                colors.append(of_color)
            if layout.labels is not None:
                labels += block.column(layout.labels).objects()
            ids.add(block.column(index).texts() for index in layout.roles["id"][:MAX_ID_COLUMNS])
        bounds.check((count, self._features or 1))
        if self._faults or self._refused:
            raise self._refusal(count)
        are_dates = layout.colors is not None and self._columns.head[layout.colors].kind == "date"
        values = np.concatenate(parts) if out is None else map_rows(out, self._dtype, self._features)
        return build_table(
            values,
            self._names,
            labels=None if layout.labels is None else label_array(labels, self._columns.base),
            colors=np.concatenate(colors) if colors else None,
            ids=ids,
            notices=[
                *layout.notices(),
                *self._categorical(),
                *self._columns.notices(),
                *self._counter(values),
                *self._label_like(values),
                *([Note("date-colors", "The colors are dates, in seconds since 1970.")] if are_dates else []),
            ],
            missing=self._missing,
            layout=layout,
        )

    def _block(self, block: Block, start: int) -> tuple[Array, Array | None]:
        """Read a block; return its features (rows, d) and its colors (rows,) or None, and record its bad values.

        If bad values were found in this block or before, the features are empty and the colors None. `start` is the
        number of the block's first row.
        """
        parts: list[Array] = []
        colors = None
        masks: dict[str, Array] = {}
        words = [index for role in ("labels", "id") for index in self._layout.roles[role][:MAX_ID_COLUMNS]]
        words = words if self._columns.rounds_integers else []
        for index in [*self._layout.features, *self._layout.roles["colors"], *words]:
            if index in self._refused:
                continue
            column = block.column(index)
            if index in self._one_hot:
                parts.append(self._zeros_and_ones(column, index))
            elif index not in words:
                self._require_kind(column, index)
                if index == self._layout.colors:
                    colors = np.asarray(column.numbers, np.float64)
                else:
                    parts.append(column.numbers)
            for code, mask in self._problems(column, index).items():
                masks[code] = masks[code] | mask if code in masks else mask
                self._add_fault(code, column, index, start, mask)
        for code, mask in masks.items():
            self._faults[code].rows.add(start + np.flatnonzero(mask))
        if self._faults or not parts:
            return np.zeros((0, 0)), None
        return np.ascontiguousarray(np.column_stack(parts), self._dtype), colors

    def _add_fault(self, code: str, column: Column, index: int, start: int, mask: Array) -> None:
        """Record the bad values that `mask` selects in a block of a column, whose first row has the number `start`."""
        row = int(mask.argmax())
        fault = self._faults.setdefault(code, _Fault(start + row, index, column.shown(row)))
        if start + row < fault.row:
            fault.row, fault.column, fault.shown = start + row, index, column.shown(row)
        fault.by_column[index] += int(mask.sum())

    def _problems(self, column: Column, index: int) -> dict[str, Array]:
        """Return a mapping from each problem code that occurs to a mask (rows,) of the values that have this problem.

        The values are those of `column`, a block of rows of the column at position `index`. Labels and ids may be
        anything but integers that were rounded when the file was written. Missing values are no problem if the option
        `missing` says what to do with them.
        """
        roles = self._layout.roles
        is_number = index not in self._one_hot and index not in roles["labels"] and index not in roles["id"]
        masks = column.problems() if is_number else {}
        if index in self._one_hot:
            masks["missing-value"] = column.missing
        if column.rounded is not None and not is_number:
            masks["rounded-integer"] = column.rounded
        is_dropped = {"missing-value"} if self._missing is not None else set()
        return {code: mask for code, mask in masks.items() if code not in is_dropped and mask.any()}

    def _require_kind(self, column: Column, index: int) -> None:
        """Raise `TableError` if a block of rows does not have the same kind of values as the first rows of the column.

        `column` is the block of the column at position `index`. Vectors must also have the same length.
        """
        head = self._columns.head[index]
        if column.kind != head.kind or column.values.shape[1:] != head.values.shape[1:]:
            detail = f"The column {self._layout.name(index)!r} begins with values of kind {head.kind} and shape "
            detail += f"{head.values.shape[1:]}, and later has values of kind {column.kind} and shape "
            detail += f"{column.values.shape[1:]}."
            remedy = "Make all values of the column numbers, or vectors of one length."
            raise TableError("unsupported-column", detail, remedy=remedy)

    def _zeros_and_ones(self, column: Column, index: int) -> Array:
        """One-hot encode a column: return an array (rows, categories) of 0 and 1; rows without a category are NaN."""
        codes = {category: code for code, category in enumerate(self._categories[index])}
        ones = np.zeros((len(column), len(codes)))
        ones[column.missing] = np.nan
        present = np.flatnonzero(~column.missing)
        values = column.objects()
        ones[present, [codes[text_of(values[row])] for row in present.tolist()]] = 1
        return ones

    def _refusal(self, count: int) -> TableError:
        """Return the error that lists all columns without a role, and all bad values in the table of `count` rows."""
        layout, problems = self._layout, []
        base = self._columns.base
        if self._refused:
            heads = {index: self._columns.head[index] for index in self._refused}
            texts = [index for index in self._refused if heads[index].kind == "text"]
            listed = [f"{layout.name(index)!r} ({column.type}{_example(column)})" for index, column in heads.items()]
            listed = listed[:MAX_LISTED_COLUMNS]
            omitted = (
                f" and {len(self._refused) - MAX_LISTED_COLUMNS:,} more"
                if len(self._refused) > MAX_LISTED_COLUMNS
                else ""
            )
            noun = "column {} needs" if len(self._refused) == 1 else "columns {} need"
            detail = f"The {noun.format(', '.join(listed) + omitted)} a role."
            first_of = {"name": layout.name(self._refused[0]), "type": heads[self._refused[0]].type}
            others = [index for index in self._refused if index not in texts]
            problems.append(no_features("unsupported-column", layout, texts, others, detail, **first_of))
        for code, fault in sorted(self._faults.items(), key=lambda item: list(_PROBLEMS).index(item[0])):
            names = {layout.name(index): number for index, number in sorted(fault.by_column.items())}
            name = layout.name(fault.column)
            problem, remedy = _PROBLEMS[code]
            if code == "missing-value" and self._are_new:
                remedy = _NO_CHOICE
            if code == "bad-cell" and fault.rows.count == 1 and fault.row == 0:
                remedy = "If the first row has units, remove it"
            # Only in a workbook can a column of numbers have a cell of the type text that is a number.
            if code == "bad-cell" and number_of(fault.shown) is not None:
                remedy = "These cells are of the type text: make them numbers"
            listed = [f"{each} ({number:,})" for each, number in list(names.items())[:_MAX_LISTED]]
            omitted = f" and {len(names) - _MAX_LISTED:,} more" if len(names) > _MAX_LISTED else ""
            shown = fault.shown[:_MAX_SHOWN_CHARACTERS]
            of_all = "" if code == "missing-value" else f", such as {shown!r}"
            detail = (
                f"{problem} in {fault.rows.count:,} of {count:,} rows{of_all}; the first is in row {fault.row + base}, "
                f"counted from {base}. By column: {', '.join(listed)}{omitted}."
            )
            if code == "inexact-integer":
                remedy = f"Set ids apart with {Way('id', [name])}, or subtract an offset"
            details: dict[str, Any] = {
                "row": fault.row + base,
                "column": fault.column + 1,
                "name": name if layout.names else None,
                "value": shown,
                "rows_affected": fault.rows.count,
                "rows": [row + base for row in fault.rows.first],
            }
            if fault.column != layout.colors:
                details["options"] = {"ignore": list(names)[:MAX_LISTED_COLUMNS]}
                remedy += f", or leave the column out with {Way('ignore', details['options']['ignore'])}"
            remedy += "."
            details |= {"bad_columns": names} if len(names) > 1 else {}
            reported_code = "inexact-integer" if code == "rounded-integer" else code
            problems.append(TableError(reported_code, detail, remedy=remedy, details=details))
        first = problems[0]
        detail = " ".join(each.message for each in problems)
        remedy = joined(each.remedy for each in problems)
        return TableError(first.code, detail, remedy=remedy, details=first.details)

    def _categorical(self) -> list[Note]:
        """Return a notice for each categorical column whose numbers are fitted as a feature."""
        names = [self._layout.name(index) for index in self._read if self._columns.head[index].is_category]
        sentence = "is categorical, and its numbers are fitted as a feature; as labels use "
        return [
            Note(
                "categories-as-numbers",
                f"The column {name!r} {sentence}{Way('labels', name)}, as features of zeros and ones "
                f"{Way('one_hot', [name])}.",
            )
            for name in names
        ]

    def _counter(self, values: Array) -> list[Note]:
        """Return a list with a notice if the first feature only counts the rows, or else an empty list."""
        is_plain = self._layout.features[:1] == [0] and self._read[:1] == [0] and values.shape[1] > 1
        if not is_plain or len(values) < _MIN_ROWS_FOR_COUNTER_NOTICE:
            return []
        if not (values[:, 0] == values[0, 0] + np.arange(len(values))).all():
            return []
        name = self._layout.name(0)
        sentence = (
            f"The column {name!r} counts the rows. It is fitted as a feature; if it is not one, set it apart with "
        )
        return [Note("counts-rows", f"{sentence}{Way('id', [name])}.")]

    def _label_like(self, values: Array) -> list[Note]:
        """Return notices about features that are probably labels: by their name, and by few different whole numbers."""
        if self._layout.names is None or values.shape[1] != len(self._read) or values.shape[1] < 2:
            return []
        notes = []
        for place, index in enumerate(self._read):
            if (name := self._layout.name(index)).lower() not in _LABEL_NAMES:
                continue
            numbers = np.unique(values[:, place])
            if (
                len(numbers) <= _MAX_NOTICED_CLASSES
                and 2 * len(numbers) <= len(values)
                and (numbers == np.rint(numbers)).all()
            ):
                sentence = f"The column {name!r} has {len(numbers)} different whole numbers and is fitted as a feature"
                way = Way("labels", name)
                notes.append(Note("label-as-feature", f"{sentence}; if it names the group of each row, use {way}."))
        return notes


def _example(column: Column) -> str:
    """Return ", such as 'x'" with the first text 'x' of a column, or an empty text if the column has no texts."""
    first = next((text for text in column.values if text), "") if column.kind == "text" else ""
    return f", such as {first[:_MAX_SHOWN_CHARACTERS]!r}" if first else ""
