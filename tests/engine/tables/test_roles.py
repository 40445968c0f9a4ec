"""Roles of columns: given, and guessed by names, kinds and values."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from glle_engine.base.errors import TableError
from glle_engine.tables import roles as columns
from glle_engine.tables.roles import ColumnRoles, Layout, column_list

WIDTH = 300
NAMES = st.one_of(st.sampled_from(["id", "a", "b", "x1", "x2", "row_id", "", "3", "a,b"]), st.text("ab1", max_size=2))
ENTRIES = st.lists(st.one_of(NAMES, st.sampled_from(["*", "x*", "?", "id,a", "0", "1", "no"])), max_size=3)


def by_definition(names: list[str], roles: ColumnRoles) -> list[str]:
    """Return the role of each column, column by column; names are distinct."""

    def is_of(entries: tuple[str, ...], position: int) -> bool:
        words = [
            word.strip()
            for entry in entries
            for word in (entry.split(",") if "," in entry and entry not in names else [entry])
        ]
        return any(
            names.index(word) == position
            if word in names
            else fnmatchcase(names[position], word)
            if re.search(r"[*?\[]", word)
            else word.isdigit() and int(word) == position
            for word in words
        )

    by_column = []
    for position in range(len(names)):
        if is_of(roles.one_hot, position):
            role = "one_hot"
        elif roles.labels is not None and is_of((roles.labels,), position):
            role = "labels"
        elif is_of(roles.id, position):
            role = "id"
        elif is_of(roles.ignore, position) or (roles.features and not is_of(roles.features, position)):
            role = "ignore"
        else:
            role = "feature"
        by_column.append(role)
    return by_column


@example(names=["a", "b", "a,b"], labels=None, features=["a,b"], id_=[], ignore=[], one_hot=[])  # not a list
@example(names=["a", "b"], labels="a", features=[], id_=["a"], ignore=[], one_hot=[])  # two roles
@given(
    names=st.lists(NAMES, min_size=1, max_size=8, unique=True),
    labels=st.none() | NAMES.filter(lambda name: name and "," not in name),
    features=ENTRIES,
    id_=ENTRIES,
    ignore=ENTRIES,
    one_hot=ENTRIES,
)
def test_roles_are_those_of_their_definition(
    names: list[str],
    labels: str | None,
    features: list[str],
    id_: list[str],
    ignore: list[str],
    one_hot: list[str],
) -> None:
    """The layout of any table has for each column the role that the request gives it."""
    roles = ColumnRoles(labels, None, tuple(features), tuple(id_), tuple(ignore), tuple(one_hot))
    try:
        layout = Layout.from_roles(names, len(names), roles)
    except TableError:  # of a column that does not exist, or of two roles
        return
    expected = by_definition(names, roles)
    assert [column["role"] for column in column_list(layout)] == expected
    positions = {role: [position for position, each in enumerate(expected) if each == role] for role in expected}
    assert layout.features == sorted(positions.get("feature", []) + positions.get("one_hot", []))
    assert layout.roles["ignore"] == positions.get("ignore", [])


def test_the_list_of_a_wide_table_has_its_first_columns_and_all_that_are_no_features() -> None:
    """A label beyond the hundredth column is listed, too, and so is a column without a role."""
    names = [f"v{number}" for number in range(300)]
    layout = Layout.from_roles(names, 300, ColumnRoles(labels="v250", id=("v7, v9",)))
    roles = {column["name"]: column["role"] for column in column_list(layout, [280])}
    assert roles == dict.fromkeys(names[:100], "feature") | {"v7": "id", "v9": "id", "v250": "labels", "v280": ""}


def test_a_column_of_two_roles_is_named_as_in_the_request() -> None:
    """By its name, or by its number in a table without names; so are both parameters."""
    for names, column in ((["x", "b"], "b"), (None, "1")):
        with pytest.raises(TableError, match=rf"column '{column}' was given two roles, labels and colors"):
            Layout.from_roles(names, 2, ColumnRoles(labels=column, colors=column))


def test_features_have_the_names_of_their_columns_and_parts() -> None:
    """A column of categories has a feature for each; without any names there are numbers, and those only for parts."""
    parts = {1: ["=a", "=b"]}
    assert Layout.from_roles(None, 3, ColumnRoles()).feature_names({}) is None
    assert Layout.from_roles(None, 3, ColumnRoles(labels="0")).feature_names(parts) == ["1=a", "1=b", "2"]
    named = Layout.from_roles(["x", "", "z"], 3, ColumnRoles())
    assert (named.feature_names({}), named.feature_names(parts)) == (["x", "", "z"], ["x", "=a", "=b", "z"])


class Counted(list[int]):
    """List that counts the passes over it."""

    passes = 0

    def __iter__(self) -> Iterator[int]:
        """Count a pass over the elements."""
        self.passes += 1
        return super().__iter__()


def test_a_set_of_columns_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work of a layout is proportional to its columns: no set is made again for each of them."""
    lists: list[Counted] = []
    matching = columns._matching

    def count_calls(*arguments: Any) -> Counted:
        counted = Counted(matching(*arguments))
        lists.append(counted)
        return counted

    monkeypatch.setattr(columns, "_matching", count_calls)
    Layout.from_roles([f"{i}_id" for i in range(WIDTH)] + ["x"], WIDTH + 1, ColumnRoles(one_hot=("x",), id=("0_id",)))
    assert max(each.passes for each in lists) < 10
