"""Roles of the columns of a table: features, label, color, ids, ignored; chosen by name or pattern, or detected."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from fnmatch import translate
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from worker.base.problems import ProblemError, refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_PATTERNS = 100  # of a request: each is compared with every name
MAX_IDS = 10  # columns of ids whose values are stored
MAX_LISTED = 100  # column names in a problem
_PATTERN = re.compile(r"[*?\[]")
# Names under which pandas, R and databases write the number or the key of a row.
_ID_NAME = re.compile(
    r"(unnamed: \d+(\.\d+)*|\.\.\.1|__index_level_\d+__|index|idx|rows?|obs|observation|uid|uuid|guid|key"
    r"|(row|record|sample|case|obs)?[_ .-]?(id|ids|nr|no|number|names?)|.*[_ .-]id)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class ColumnRoles:
    """Roles that a request gives to columns, by name, by pattern (``*``, ``?``), in CSV also by number from 0.

    Parameters
    ----------
    label, color
        One column each.
    features
        Columns of the points; empty: all columns without another role.
    id
        Columns that name the rows; they are set apart, and their values are stored as ids.
    ignore
        Columns to leave out.
    one_hot
        Columns of categories, of which each becomes a feature of zeros and ones.

    """

    label: str | None = None
    color: str | None = None
    features: tuple[str, ...] = ()
    id: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    one_hot: tuple[str, ...] = ()

    @classmethod
    def of(cls, options: dict[str, Any]) -> Self:
        """Return the roles of JSON, of a query or of form fields; other members are ignored."""
        chosen: dict[str, Any] = {}
        for item in fields(cls):
            if value := options.get(item.name):
                chosen[item.name] = tuple(value) if isinstance(value, list) else value
        return cls(**chosen)

    def require_none(self, reason: str, remedy: str, *, but: Sequence[str] = ()) -> None:
        """Raise a problem if a column has a role, for a format without columns."""
        for item in fields(self):
            if item.name not in but and getattr(self, item.name) not in {None, ()}:
                raise refuse(f"{item.name}-not-here", 422, f"?{item.name}= cannot be used: {reason}", remedy)


@dataclass(frozen=True)
class Layout:
    """Roles of the columns of one table, by their positions.

    Parameters
    ----------
    names
        Names in the file, or None.
    features
        Positions of the features, with those of categories.
    candidates
        Positions that are ids if their values are, by their names.
    roles
        Positions of the columns with other roles: label, color, id, ignore, one_hot.

    """

    names: list[str] | None
    width: int
    features: list[int]
    candidates: list[int]
    roles: dict[str, list[int]]

    @classmethod
    def of(cls, names: list[str] | None, width: int, roles: ColumnRoles, kept: Iterable[int] = ()) -> Self:
        """Return the layout of a table; the columns `kept` are no ids.

        Raises
        ------
        ProblemError
            ``no-such-column``, ``same-column``.

        """
        positions = {name: at for at, name in reversed(list(enumerate(names or ())))}
        given = {
            **{
                role: [] if name is None else [_position(name, positions, names, width)]
                for role, name in (("label", roles.label), ("color", roles.color))
            },
            **{
                role: _matching(getattr(roles, role), positions, names, width)
                for role in ("id", "ignore", "one_hot", "features")
            },
        }
        chosen = given.pop("features")
        _require_distinct(names, given)
        one_hot = set(given["one_hot"])
        apart = {at for role, columns in given.items() if role != "one_hot" for at in columns}
        wanted = {*chosen, *one_hot} if chosen else set(range(width))
        features = [at for at in range(width) if at not in apart and at in wanted]
        candidates = []
        if not chosen:
            no_ids = {*one_hot, *kept}
            candidates = [at for at in features if at not in no_ids and _is_id_name(names, at)]
            candidates = candidates if len(candidates) < len(features) else []  # a table has a feature
        used = {*features, *given["label"], *given["color"], *given["id"]}
        given["id"] = sorted([*given["id"], *candidates])
        given["ignore"] = [at for at in range(width) if at not in used]
        set_apart = set(candidates)
        return cls(names, width, [at for at in features if at not in set_apart], candidates, given)

    @property
    def label(self) -> int | None:
        """Position of the label, or None."""
        return next(iter(self.roles["label"]), None)

    @property
    def color(self) -> int | None:
        """Position of the color, or None."""
        return next(iter(self.roles["color"]), None)

    def name(self, column: int) -> str:
        """Return the name of a column, or its number from 0, as a request would write it."""
        return (self.names[column] if self.names else "") or str(column)

    def feature_names(self, categories: dict[int, list[str]]) -> list[str] | None:
        """Return the names of the features, with ``column=category`` for each category."""
        if self.names is None and not categories:
            return None
        names: list[str] = []
        for column in self.features:
            name = self.name(column) if self.names is None else self.names[column]
            names += [f"{name}={category}" for category in categories[column]] if column in categories else [name]
        return names

    def source(self) -> dict[str, Any]:
        """Return `columns` of a record's source, if any was set apart, and `layout` of a preview."""
        columns = {role: [self.name(at) for at in positions] for role, positions in self.roles.items() if positions}
        return {**({"columns": columns} if columns else {}), "layout": column_list(self)}

    def notices(self) -> list[str]:
        """Return the notices of the columns that are ids."""
        found = [
            f"The column {self.name(column)!r} numbers or names the rows. It is set apart and is no feature; to fit"
            f" it, use {option('features', ['*'])}."
            for column in self.candidates
        ]
        if (ids := len(self.roles["id"])) > MAX_IDS:
            found.append(f"Of {ids} columns of ids the values of the first {MAX_IDS} are stored.")
        return found

    def no_id_notice(self, column: int) -> str:
        """Return the notice of a feature with the name of an id."""
        name = self.name(column)
        return (
            f"The column {name!r} has the name of an id, but its values are neither monotone nor distinct texts. It is"
            f" fitted as a feature; if it is none, set it apart with {option('id', [name])}."
        )


class IdCheck:
    """Check of a candidate column: ids are strictly monotone numbers, or distinct texts."""

    def __init__(self) -> None:
        self._numbers: list[float] = []  # the last one
        self._steps: set[int] = set()  # signs of the differences; that of NaN is 0
        self._texts: set[str] = set()

    def add(self, values: Sequence[float | str]) -> bool:
        """Add values in the order of the rows; return whether the column may be that of ids."""
        texts = [value for value in values if isinstance(value, str)]
        numbers = self._numbers + [value for value in values if not isinstance(value, str)]
        count = len(self._texts) + len(texts)
        self._texts.update(texts)
        self._steps.update((value > last) - (value < last) for last, value in pairwise(numbers))
        self._numbers = numbers[-1:]
        if self._texts:
            return not numbers and "" not in self._texts and len(self._texts) == count
        return len(self._steps) <= 1 and 0 not in self._steps and numbers[-1] == numbers[-1]  # NaN


def option(name: str, columns: Sequence[str]) -> str:
    """Return the query that gives columns a role."""
    return "?" + "&".join(f"{name}={re.sub('[.]$', '%2E', quote(column, safe='*'))}" for column in columns)


def no_such_column(name: str, names: list[str] | None, width: int) -> ProblemError:
    """Return the problem of a column that does not exist."""
    columns = ", ".join(names[:MAX_LISTED]) if names else f"0 to {width - 1} (there is no header)"
    return refuse("no-such-column", 422, f"There is no column {name!r}.", f"Use one of {columns}.")


def no_features(
    code: str, layout: Layout, texts: Sequence[int], others: Sequence[int], detail: str, **details: Any
) -> ProblemError:
    """Return the problem of columns without a role that are no numbers, with the options that give them one.

    The details have `options`: for each option that helps the names of its columns. `others` are no texts either.
    """
    refused = sorted([*texts, *others])
    names, words, apart = ([layout.name(at) for at in found[:MAX_LISTED]] for found in (refused, texts, others))
    it = "it" if len(refused) == 1 else "them"
    options = {"ignore": names}
    offers = [f"Leave {it} out with {option('ignore', names)}"]
    if texts:
        options["one_hot"] = words
        rest = f"&{option('ignore', apart)[1:]}" if others else ""
        offers.append(f"make a feature of each category with {option('one_hot', words)}{rest}")
    else:
        offers.append(f"cast {it} to float64")
    if not others and layout.label is None:
        options["label"] = words[:1]
        offers.append(f"take {'it' if len(refused) == 1 else 'one'} as labels with {option('label', words[:1])}")
    remedy = f"{', '.join(offers[:-1])}, or {offers[-1]}."
    return refuse(code, 422, detail, remedy, **details, options=options, columns=column_list(layout, refused))


def column_list(layout: Layout, unresolved: Sequence[int] = ()) -> list[dict[str, str]]:
    """Return name and role of each column, the first hundred; a column without a role has an empty one."""
    roles = {at: role for role, positions in layout.roles.items() for at in positions} | dict.fromkeys(unresolved, "")
    return [{"name": layout.name(at), "role": roles.get(at, "feature")} for at in range(min(layout.width, MAX_LISTED))]


def _is_id_name(names: list[str] | None, column: int) -> bool:
    if names is None:
        return False
    name = names[column].strip()
    return _ID_NAME.fullmatch(name) is not None if name else column == 0


def _position(name: str, positions: dict[str, int], names: list[str] | None, width: int) -> int:
    """Return the position of a column by its name or number."""
    if name in positions:
        return positions[name]
    if name.isascii() and name.isdigit() and len(name) < 10 and int(name) < width:
        return int(name)
    raise no_such_column(name, names, width)


def _matching(entries: Sequence[str], positions: dict[str, int], names: list[str] | None, width: int) -> list[int]:
    """Return the positions of columns by names, numbers, patterns, or several of these with commas."""
    words = []
    for entry in entries:
        is_list = "," in entry and entry not in positions
        words += [word.strip() for word in entry.split(",")] if is_list else [entry]
    patterns = [word for word in words if word not in positions and _PATTERN.search(word)]
    if len(patterns) > MAX_PATTERNS:
        detail = f"{len(patterns):,} patterns are named; {MAX_PATTERNS:,} are allowed."
        raise refuse(
            "too-many-patterns", 422, detail, "Use fewer and wider patterns, such as x*.", allowed=MAX_PATTERNS
        )
    found: set[int] = set()
    for word in dict.fromkeys(words):
        if word not in positions and _PATTERN.search(word):
            matches = re.compile(translate(word)).match
            columns = [at for at in range(width) if matches(names[at] if names else str(at))]
            if not columns:
                raise no_such_column(word, names, width)
            found.update(columns)
        else:
            found.add(_position(word, positions, names, width))
    return sorted(found)


def _require_distinct(names: list[str] | None, roles: dict[str, list[int]]) -> None:
    """Raise a problem if one column has two roles."""
    taken: dict[int, str] = {}
    for role, columns in roles.items():
        for column in columns:
            if column in taken:
                name = names[column] if names else str(column)
                detail = f"?{taken[column]}= and ?{role}= name the same column, {name!r}."
                raise refuse("same-column", 422, detail, "Name two columns, or leave one of them out.")
            taken[column] = role
