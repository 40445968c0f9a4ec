"""Decide which columns of a table are features, labels, colors, ids or ignored, as the caller says or by a guess."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from fnmatch import translate
from itertools import pairwise
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self, get_args

import numpy as np

from glle_engine.base.arrays import EXACT
from glle_engine.base.errors import InvalidParameterError, InvalidShapeError, TableError
from glle_engine.base.parameters import as_option, check_choice
from glle_engine.base.texts import Note, Way
from glle_engine.base.validation import Missing
from glle_engine.tables.cells import has_flag, has_marks, is_missing, number_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from glle_engine.tables.columns import Column, Kind

SINGLE = frozenset({"labels", "colors"})
"""Roles that only one column can have."""
COLUMN_LISTS = frozenset({"features", "id", "ignore", "one_hot"})
"""Roles that several columns can have."""
MAX_PATTERNS = 100  # a request with more patterns is refused, because each pattern is compared with every column name
MAX_ID_COLUMNS = 10  # the values of this many columns of ids are stored; further columns of ids are ignored
# An error lists at most this many columns; with more columns of texts than this, their roles are not guessed.
MAX_LISTED_COLUMNS = 100
MAX_LABEL_CLASSES = 100  # a column with more distinct words is not guessed to be the labels
MIN_TEXTS_FOR_GUESS = 10  # with fewer texts, the number of distinct ones says nothing about the role of a column
# A column of texts is guessed to be ids if at least this share of the texts is distinct.
_MIN_DISTINCT_SHARE_OF_IDS = 0.95
_PATTERN = re.compile(r"[*?\[]")
# Names under which pandas, R and databases write the number or the key of a row.
_ID_NAME = re.compile(
    r"(unnamed: \d+(\.\d+)*|\.\.\.1|__index_level_\d+__|index|idx|rows?|obs|observation|uid|uuid|guid|key"
    r"|(row|record|sample|case|obs)?[_ .-]?(id|ids|nr|no|number|names?)|.*[_ .-]id)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class ColumnRoles:
    """Which columns a caller wants as features, labels, colors or ids: by name, by pattern (``x*``), or by number.

    Parameters
    ----------
    labels, colors
        One column each.
    features
        Columns of the features; if empty, all columns without another role.
    id
        Columns that name the rows; they are no features, and their values are stored as ids.
    ignore
        Columns to leave out.
    one_hot
        Columns of categories; each category becomes a feature of zeros and ones.
    missing
        What to do with missing values: drop their rows, or fill in the median of the column; None refuses them.

    """

    labels: str | None = None
    colors: str | None = None
    features: tuple[str, ...] = ()
    id: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    one_hot: tuple[str, ...] = ()
    missing: Missing | None = None

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """Return the roles that options such as `labels` or `ignore` give to columns; other options are ignored.

        Raises
        ------
        InvalidParameterError
            If a value does not name columns.

        """
        chosen: dict[str, Any] = {
            item.name: value
            for item in fields(cls)
            if (value := column_option(item.name, options.get(item.name))) not in (None, ())
        }
        if "missing" in chosen:
            check_choice("missing", chosen["missing"], get_args(Missing))
        return cls(**chosen)

    def require_none(self, reason: str, remedy: str, *, but: Sequence[str] = ()) -> None:
        """Raise `TableError` if the caller gave a column a role, except the roles in `but`.

        This is for data without named columns; `reason` completes the sentence "labels cannot be used: ...".
        """
        for item in fields(self):
            if item.name not in {"missing", *but} and getattr(self, item.name) not in {None, ()}:
                raise TableError(f"{item.name}-not-here", f"{item.name} cannot be used: {reason}", remedy=remedy)


@dataclass(frozen=True)
class Layout:
    """Which columns of one table have which role, by the positions of the columns, counted from 0.

    Parameters
    ----------
    names
        Names of all columns, or None.
    width
        Number of columns.
    features
        Positions of the features, including the columns of categories (`one_hot`).
    roles
        Positions of the columns with other roles: labels, colors, id, ignore, one_hot.
    guesses
        A notice for the user about each guessed role.
    written
        Columns of numbers that were read as texts, because some cells have units or words; maps the position of a
        column to an example of such a cell.
    units
        Positions of those columns in `written` in which only the first cell is not a number.
    index
        Positions of the columns that come from the index of a frame. They become the ids if no other column has ids.

    """

    names: list[str] | None
    width: int
    features: list[int]
    roles: dict[str, list[int]]
    guesses: tuple[Note, ...] = ()
    written: Mapping[int, str] = field(default_factory=dict)
    units: tuple[int, ...] = ()
    index: tuple[int, ...] = ()

    @classmethod
    def from_roles(cls, names: list[str] | None, width: int, roles: ColumnRoles, index: Sequence[int] = ()) -> Self:
        """Return the layout in which columns have these `roles`, and all other columns are features.

        If `roles` names features, other columns are ignored. Columns of a frame's `index`, given by their positions,
        are also ignored if they have no role; `with_index` can make them the ids later.

        Raises
        ------
        TableError
            If a named column does not exist (``no-such-column``) or has two roles (``same-column``).

        """
        positions = {name: column for column, name in reversed(list(enumerate(names or ())))}
        columns_of_roles = {
            role: [] if name is None else [_position(name, positions, names, width)]
            for role, name in (("labels", roles.labels), ("colors", roles.colors))
        }
        for role in ("id", "ignore", "one_hot"):
            columns_of_roles[role] = _matching(getattr(roles, role), positions, names, width)
        chosen = _matching(roles.features, positions, names, width)
        _require_distinct(names, columns_of_roles)
        one_hot = set(columns_of_roles["one_hot"])
        apart = {column for role, columns in columns_of_roles.items() if role != "one_hot" for column in columns}
        possible = {*chosen, *one_hot} if chosen else {*range(width)} - {*index}
        features = [column for column in range(width) if column not in apart and column in possible]
        used = {*features, *columns_of_roles["labels"], *columns_of_roles["colors"], *columns_of_roles["id"]}
        index = [column for column in index if column not in used and column not in columns_of_roles["ignore"]]
        columns_of_roles["ignore"] = [column for column in range(width) if column not in used]
        return cls(names, width, features, columns_of_roles, index=tuple(index))

    def open_columns(self, roles: ColumnRoles, kinds: Sequence[Kind]) -> list[int]:
        """Return the positions of the columns whose values have to be seen, to decide whether they are features.

        These are columns of texts or dates, and columns with a name such as "id", unless the caller gave them a role or
        named the features. `kinds` are the kinds of all columns.
        """
        if roles.features:
            return []
        one_hot = set(self.roles["one_hot"])
        plain = [column for column in self.features if column not in one_hot]
        texts = [column for column in plain if kinds[column] == "text"]
        excluded = set(texts) if len(texts) > MAX_LISTED_COLUMNS else set()
        guessed = [column for column in plain if column not in excluded]
        return [column for column in guessed if kinds[column] in {"text", "date"} or _is_id_name(self.names, column)]

    def guess(self, kinds: Sequence[Kind], profiles: Mapping[int, ColumnProfile]) -> Layout:
        """Return the layout with guessed roles for the columns in `profiles`, which maps positions to profiles.

        Columns with a name such as "id" whose values are monotone numbers or distinct texts are ids, and so are columns
        of nearly distinct texts. The first column of few distinct words becomes the labels, and the first column of
        dates the colors; further columns of words or dates are left out. Columns of texts that are numbers with units,
        such as '12 mg', get no role, unless they have the name of an id.
        """
        texts = [column for column, profile in profiles.items() if kinds[column] == "text" and profile.has_numbers]
        written = {column: profiles[column].odd or profiles[column].first for column in texts}
        units = tuple(column for column in texts if profiles[column].has_units)
        guessed_roles = {
            column: _guess_role(kinds[column], profile, _is_id_name(self.names, column))
            for column, profile in profiles.items()
        }
        if set(self.features) <= guessed_roles.keys() - {column for column, role in guessed_roles.items() if not role}:
            # At least one column must stay a feature: columns of numbers stay features, whatever was guessed for them.
            guessed_roles = {column: role for column, role in guessed_roles.items() if kinds[column] != "number"}
            if set(self.features) <= guessed_roles.keys():
                return replace(self, written=written, units=units)
        roles = {role: [*columns] for role, columns in self.roles.items()}
        notes = []
        for column, role in guessed_roles.items():
            taken = roles[role][:1] if role in {"labels", "colors"} else []
            if role:
                is_constant = role == "labels" and profiles[column].distinct < 2
                is_apart = bool(taken) or is_constant or (role == "colors" and profiles[column].missing > 0)
                roles["ignore" if is_apart else role].append(column)
                notes.append(self._note_on_guess(column, role, profiles[column], taken, is_apart=is_apart))
            elif kinds[column] == "number":
                notes.append(self._note_on_feature_named_id(column))
        features = [column for column in self.features if not guessed_roles.get(column)]
        roles = {role: sorted(columns) for role, columns in roles.items()}
        return replace(self, features=features, roles=roles, guesses=tuple(notes), written=written, units=units)

    def _note_on_guess(
        self, column: int, role: str, profile: ColumnProfile, taken: list[int], *, is_apart: bool
    ) -> Note:
        """Return the notice that a role was guessed for a column, with the option that changes it.

        `is_apart` says that the column does not get this role after all and is ignored, for example because another
        column has the role. `taken` holds the position of that other column, or nothing.
        """
        name, count = self.name(column), profile.distinct
        if role == "id":
            is_unnamed = self.names is not None and not self.names[column]
            subject = "The first column, which has no name," if is_unnamed else f"The column {name!r}"
            sentence = f"{subject} numbers or names the rows. It is set apart and is not a feature"
            if not profile.is_text:
                return Note("id-guessed", f"{sentence}; to fit it, use {Way('features', ['*'])}.")
            if is_unnamed:  # a remedy would need its number, which may be the name of another column
                return Note("id-guessed", f"{sentence}.")
            return Note("id-guessed", f"{sentence}; to leave it out, use {Way('ignore', [name])}.")
        noun = f"{count:,} distinct words" if role == "labels" else "dates"
        if is_apart:
            reason = f", because {self.name(taken[0])!r} has the {role}" if taken else ""
            sentence = f"The column {name!r} has {noun} and is set apart{reason}; as {role} use "
            as_features = f", as features {Way('one_hot', [name])}" if role == "labels" else ""
            return Note("column-apart", f"{sentence}{Way(role, name)}{as_features}.")
        if role == "colors":
            sentence = f"The column {name!r} has dates. They are the colors; without them, use "
            return Note("colors-guessed", f"{sentence}{Way('ignore', [name])}.")
        sentence = f"The column {name!r} has {noun}. It has the labels and is not a feature; as features, use "
        return Note("labels-guessed", f"{sentence}{Way('one_hot', [name])}, without it {Way('ignore', [name])}.")

    def with_index(self, possible: Sequence[int]) -> Layout:
        """Return the layout in which the columns of a frame's index are the ids, as far as they are in `possible`.

        `possible` are the positions of the columns whose values can be ids. If other columns are the ids, or no column
        of the index can be, return the layout unchanged.
        """
        index = [column for column in self.index if column in possible]
        if not index or self.roles["id"]:
            return self
        ignored = [column for column in self.roles["ignore"] if column not in index]
        return replace(self, roles={**self.roles, "id": index, "ignore": ignored})

    @property
    def labels(self) -> int | None:
        """Position of the column of labels, or None."""
        return next(iter(self.roles["labels"]), None)

    @property
    def colors(self) -> int | None:
        """Position of the column of colors, or None."""
        return next(iter(self.roles["colors"]), None)

    def name(self, column: int) -> str:
        """Return the name of a column, or its number from 0 if it has none: callers can name the column like this."""
        return (self.names[column] if self.names else "") or str(column)

    def feature_names(self, parts: Mapping[int, list[str]]) -> list[str] | None:
        """Return the names of all features.

        A column of categories or vectors makes several features; `parts` maps the column's position to the endings of
        the names of these features. If the columns have no names and `parts` is empty, the result is None.
        """
        if self.names is None and not parts:
            return None
        names: list[str] = []
        for column in self.features:
            name = self.name(column) if self.names is None else self.names[column]
            names += [f"{name}{suffix}" for suffix in parts.get(column, [""])]
        return names

    def source(self) -> dict[str, Any]:
        """Return the roles of the columns as a JSON-able dictionary.

        `columns` maps each role to the names of its columns, and is left out if all columns are features. `layout` is a
        list of columns in the order of the table, each with name and role, as `column_list` returns it.
        """
        columns = {role: list(map(self.name, numbers)) for role, numbers in self.roles.items() if numbers}
        return {**({"columns": columns} if columns else {}), "layout": column_list(self)}

    def notices(self) -> list[Note]:
        """Return the notices about guessed roles, and a notice if more columns of ids are named than are stored."""
        notices = list(self.guesses)
        if (ids := len(self.roles["id"])) > MAX_ID_COLUMNS:
            message = f"Of {ids} columns of ids the values of the first {MAX_ID_COLUMNS} are stored."
            notices.append(Note("ids-not-stored", message))
        return notices

    def _note_on_feature_named_id(self, column: int) -> Note:
        """Return the notice that a column stays a feature although it has a name such as "id"."""
        name = self.name(column)
        sentence = (
            f"The column {name!r} has the name of an id, but its values are neither monotone nor distinct texts. It is"
            " fitted as a feature; if it is not one, set it apart with "
        )
        return Note("id-as-feature", f"{sentence}{Way('id', [name])}.")


class ColumnProfile:
    """Statistics of a column's values, from which its role is guessed; blocks of rows are added in their order.

    Attributes
    ----------
    count, missing
        Number of values, and of values that are missing or, in a column of dates, unreadable.
    first, odd
        The first text, and the first text that is not a plain number; empty if there is no such text.

    """

    def __init__(self, *, is_category: bool = False) -> None:
        self.count = self.missing = self._plain = self._marked = self._flagged = self._gaps = self._count_of_texts = 0
        self.odd = self.first = ""
        self._is_category = is_category
        self._numbers: list[float] = []  # the last number, to compare with the first one of the next block
        self._steps: set[int] = set()  # signs of the differences of successive numbers
        self._keys: set[int] = set()  # hashes of the values, which need less memory than long texts
        self._are_exact = True

    def add(self, column: Column) -> None:
        """Add the values of a block of the column; dates are only counted."""
        self.count += len(column)
        self.missing += int(column.missing.sum()) + (len(column.faults) if column.kind == "date" else 0)
        if column.kind not in {"number", "text"}:
            return
        present = [value for value in column.objects() if value is not None]
        texts = [value for value in present if isinstance(value, str)]
        numbers = [*self._numbers, *(value for value in present if not isinstance(value, str))]
        self._keys.update(map(hash, map(str, present)))
        self._count_of_texts += len(texts)
        counts = Counter(texts)
        plain = {text for text in counts if number_of(text) is not None}
        self._plain += sum(counts[text] for text in plain)
        self._marked += sum(count for text, count in counts.items() if text in plain or has_marks(text))
        self._flagged += sum(count for text, count in counts.items() if not has_marks(text) and has_flag(text))
        self._gaps += sum(count for text, count in counts.items() if is_missing(text))
        self.odd = self.odd or next((text for text in counts if text not in plain), "")
        self.first = self.first or next(iter(texts), "")
        self._steps.update((value > last) - (value < last) for last, value in pairwise(numbers))
        self._are_exact = self._are_exact and all(abs(value) <= EXACT for value in numbers)
        self._numbers = numbers[-1:]

    @property
    def is_text(self) -> bool:
        """Whether the column has texts."""
        return self._count_of_texts > 0

    @property
    def distinct(self) -> int:
        """Number of distinct values."""
        return len(self._keys)

    @property
    def is_key(self) -> bool:
        """Whether the values could be ids: none is missing, all are distinct, and numbers are strictly monotone.

        Integers that float64 cannot hold exactly need only be distinct, like texts.
        """
        are_distinct = self.distinct == self.count and not self.missing
        if self.is_text or not self._are_exact:
            return are_distinct
        return are_distinct and bool(self._numbers) and len(self._steps) <= 1 and 0 not in self._steps

    @property
    def has_numbers(self) -> bool:
        """Whether the texts are numbers: at least half are plain numbers, or nearly all are numbers, some with units.

        Words for missing values do not count. Whole numbers with letters count only if there are also plain numbers;
        otherwise they may be names such as 12B. The texts of a categorical column are never numbers.
        """
        words = self._count_of_texts - self._gaps
        marked = self._marked + (self._flagged if self._plain else 0)
        is_plain, is_marked = (
            2 * self._plain >= self._count_of_texts,
            words > 0 and marked >= _MIN_DISTINCT_SHARE_OF_IDS * words,
        )
        return self.is_text and not self._is_category and (is_plain or is_marked)

    @property
    def has_units(self) -> bool:
        """Whether all texts but the first one are plain numbers, so that the first one may be their unit."""
        return self.odd != "" and self.odd == self.first and self._plain == self._count_of_texts - 1

    @property
    def is_nearly_distinct(self) -> bool:
        """Whether at least 95 % of the values are distinct texts, as ids are; False for fewer than 10 texts."""
        return self._count_of_texts >= MIN_TEXTS_FOR_GUESS and self.distinct >= _MIN_DISTINCT_SHARE_OF_IDS * self.count

    @property
    def is_of_classes(self) -> bool:
        """Whether the texts repeat as class labels do, so that the column may be the labels.

        The column must have at least 10 texts. At most 100 of them may be distinct, and at most half.
        """
        return self._count_of_texts >= MIN_TEXTS_FOR_GUESS and self.distinct <= min(
            MAX_LABEL_CLASSES, self._count_of_texts // 2
        )


def _guess_role(kind: Kind, profile: ColumnProfile, is_id_name: bool) -> str:  # noqa: FBT001 # a value, not a switch
    """Return the role "id", "labels" or "colors" that a column's values suggest, or an empty string for a feature."""
    if is_id_name and profile.is_key:
        return "id"
    if kind == "text" and profile.has_numbers:
        return ""
    if kind == "text" and profile.is_nearly_distinct:
        return "id"
    if kind == "date":
        return "colors"
    return "labels" if kind == "text" and profile.is_of_classes else ""


def column_option(name: str, value: Any) -> Any:
    """Return the column names in an option's value: one text for labels and colors, a tuple of texts for other roles.

    The value is a text, an integer, or an ordered collection of these. If it names no column, the result is None or an
    empty tuple. The value of the option `missing` is returned unchanged.

    Raises
    ------
    InvalidParameterError
        For a value that cannot name columns, such as a slice, and for several columns of `labels` or `colors`.

    """
    if name == "missing" or value is None:
        return value
    is_one = isinstance(value, str) or np.ndim(value) == 0
    items = [value] if is_one else list(value)
    if isinstance(value, (slice, bool, Mapping)) or any(
        isinstance(item, (bool, float)) or not isinstance(item, (str, Integral)) for item in items
    ):
        raise InvalidParameterError(
            f"{as_option(name, value)} is not the name of a column.",
            remedy=f"Give names of columns, such as {name}='x'"
            + ("." if name in SINGLE else f" or {name}=list(frame.columns[2:])."),
        )
    columns = tuple(map(str, items))
    if name not in SINGLE:
        return columns
    if len(columns) > 1:
        raise InvalidParameterError(
            f"{Way(name, list(columns))} names {len(columns)} columns, but only one column can be the {name}.",
            remedy=f"Name one column as {Way(name)}.",
        )
    return (columns[0] or None) if columns else None


def array_of_column(name: str, columns: Mapping[str, Sequence[str]]) -> tuple[str, int] | None:
    """Say where the values of a column are stored: in the array "labels", "colors" or "ids", and at which position.

    Returns None if the column has none of these roles.

    Parameters
    ----------
    name
        Name of the column.
    columns
        Names of the columns that are not features, by role.

    """
    for role, array in (("labels", "labels"), ("colors", "colors"), ("id", "ids")):
        names = list(columns.get(role, ()))[:MAX_ID_COLUMNS]
        if name in names:
            return array, names.index(name)
    return None


def no_such_column(name: str, names: list[str] | None, width: int) -> TableError:
    """Return the error for a column that does not exist; the remedy has the most similar name, and all names."""
    columns = ", ".join(names[:MAX_LISTED_COLUMNS]) if names else f"0 to {width - 1} (there is no header)"
    near = get_close_matches(name, names or [], 1)
    hint = f"Did you mean {near[0]}? " if near else ""
    detail = f"The data have no column {name!r}."
    return TableError("no-such-column", detail, remedy=f"{hint}Use one of the columns {columns}.")


def no_features(
    code: str, layout: Layout, texts: Sequence[int], others: Sequence[int], detail: str, **details: Any
) -> TableError:
    """Return the error for columns without a role that are not numbers; the remedy has options that give them a role.

    `texts` are the positions of columns of texts, `others` of columns of other types. `detail` begins the message. In
    the details of the error, `options` maps each option that helps to the names of its columns.
    """
    refused = sorted([*texts, *others])
    names, words, apart = (list(map(layout.name, columns[:MAX_LISTED_COLUMNS])) for columns in (refused, texts, others))
    pronoun = "it" if len(refused) == 1 else "them"
    options = {"ignore": names}
    leave = f"eave {pronoun} out with {Way('ignore', names)}"
    offers = [f"L{leave}"]
    for column in [column for column in texts if column in layout.written][:MAX_LISTED_COLUMNS]:
        such_as = f", such as {cell[:50]!r}" if (cell := layout.written[column]) else ""
        detail += f" {layout.name(column)!r} has numbers as texts{such_as}."
    if texts and set(texts) <= set(layout.units):
        cells = ", ".join(repr(layout.written[column][:50]) for column in texts[:MAX_LISTED_COLUMNS])
        detail += f" Only the first row is not a number, {cells}; it may have the units."
        offers = ["Remove that row and convert the others to numbers", f"l{leave}"]
    elif any(column in layout.written for column in texts):
        offers.append(f"convert {pronoun} to plain numbers")
    if texts:
        options["one_hot"] = words
        rest = f" and {Way('ignore', apart)}" if others else ""
        offers.append(f"make a feature of each category with {Way('one_hot', words)}{rest}")
    else:
        offers.append(f"cast {pronoun} to float64")
    if not others and layout.labels is None:
        options["labels"] = words[:1]
        noun = "it" if len(refused) == 1 else "one"
        offers.append(f"take {noun} as labels with {Way('labels', words[0])}")
    remedy = f"{', '.join(offers[:-1])}, or {offers[-1]}."
    details |= {"options": options, "columns": column_list(layout, refused)}
    return TableError(code, detail, remedy=remedy, details=details)


def column_list(layout: Layout, unresolved: Sequence[int] = ()) -> list[dict[str, str]]:
    """Return {"name", "role"} for the first hundred columns, and for up to a hundred later ones that are no features.

    The role of `unresolved` columns, for which the caller has to choose a role, is an empty string.
    """
    roles = {column: role for role, columns in layout.roles.items() for column in columns}
    roles |= dict.fromkeys(unresolved, "")
    first = range(min(layout.width, MAX_LISTED_COLUMNS))
    later = sorted(column for column in roles if column not in first)[:MAX_LISTED_COLUMNS]
    return [{"name": layout.name(column), "role": roles.get(column, "feature")} for column in (*first, *later)]


def column_order(names: Sequence[str] | None, new_names: Sequence[str] | None) -> list[int] | None:
    """Return where each column of the fit (`names`) is among the columns of new points (`new_names`).

    Returns None if no reordering is needed or possible: the names are equal, or one of the arguments is None. Raises
    `InvalidShapeError` with the missing and unknown names if the names differ.
    """
    if names is None or new_names is None or list(names) == list(new_names):
        return None
    places = {name: position for position, name in enumerate(new_names)}
    known = {*names}
    missing, unknown = [name for name in names if name not in places], [name for name in places if name not in known]
    if missing or unknown:
        parts = {"missing": missing, "unknown": unknown}
        listed = [f"{key}: {', '.join(map(repr, value[:MAX_LISTED_COLUMNS]))}" for key, value in parts.items() if value]
        raise InvalidShapeError(
            f"The new points do not have the same columns as the data of the fit; {'; '.join(listed)}.",
            remedy="Give the columns of the fit, in any order, or an array without names in the order of the fit.",
            details={key: value[:MAX_LISTED_COLUMNS] for key, value in parts.items()},
        )
    return [places[name] for name in names]


def _is_id_name(names: list[str] | None, column: int) -> bool:
    if names is None:
        return False
    name = names[column].strip()
    return _ID_NAME.fullmatch(name) is not None if name else column == 0


def _position(name: str, positions: dict[str, int], names: list[str] | None, width: int) -> int:
    """Return the position of the column with a name, or with a number from 0; raise `TableError` if there is none."""
    if name in positions:
        return positions[name]
    if name.isascii() and name.isdigit() and len(name) < 10 and int(name) < width:
        return int(name)
    raise no_such_column(name, names, width)


def _matching(entries: Sequence[str], positions: dict[str, int], names: list[str] | None, width: int) -> list[int]:
    """Return the sorted positions of the columns that `entries` name.

    An entry is a name, a number, a pattern, or several of these separated by commas. `names` are the names of all
    columns in order, or None for a table without names, and `positions` maps each name to its column's position.
    `width` is the number of columns.
    """
    words = []
    for entry in entries:
        is_list = "," in entry and entry not in positions
        words += [word.strip() for word in entry.split(",")] if is_list else [entry]
    patterns = [word for word in words if word not in positions and _PATTERN.search(word)]
    if len(patterns) > MAX_PATTERNS:
        detail = f"Columns are named by {len(patterns):,} patterns; {MAX_PATTERNS:,} are allowed."
        remedy = "Use fewer patterns that each match more columns, such as x*."
        allowed = {"allowed": MAX_PATTERNS}
        raise TableError("too-many-patterns", detail, remedy=remedy, details=allowed)
    matched: set[int] = set()
    for word in dict.fromkeys(words):
        if word not in positions and _PATTERN.search(word):
            matches = re.compile(translate(word)).match
            columns = [column for column in range(width) if matches(names[column] if names else str(column))]
            if not columns:
                raise no_such_column(word, names, width)
            matched.update(columns)
        else:
            matched.add(_position(word, positions, names, width))
    return sorted(matched)


def _require_distinct(names: list[str] | None, roles: dict[str, list[int]]) -> None:
    """Raise `TableError` if one column has two roles."""
    taken: dict[int, str] = {}
    for role, columns in roles.items():
        for column in columns:
            if column in taken:
                name = names[column] if names else str(column)
                detail = f"The column {name!r} was given two roles, {taken[column]} and {role}."
                remedy = f"Name another column as {Way(role)}, or leave one of the two options out."
                raise TableError("same-column", detail, remedy=remedy)
            taken[column] = role
