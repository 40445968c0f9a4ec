"""Roles of columns, and their cost in wide tables."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from service.uploads import column_roles
from service.uploads.column_roles import ColumnRoles, Layout, column_list
from service.uploads.formats import arrow_table, csv_table
from service.uploads.limits import MAX_FEATURES, Limits
from tests.service.uploads.bodies import packed, read
from worker.base.problems import ProblemError

if TYPE_CHECKING:
    from collections.abc import Iterator


WIDTH = 300
WIDE = Limits(points=5000, features=MAX_FEATURES)
NAMES = st.one_of(st.sampled_from(["id", "a", "b", "x1", "x2", "row_id", "", "3", "a,b"]), st.text("ab1", max_size=2))
ENTRIES = st.lists(st.one_of(NAMES, st.sampled_from(["*", "x*", "?", "id,a", "0", "1", "no"])), max_size=3)


def by_definition(names: list[str], roles: ColumnRoles, kept: set[int]) -> list[tuple[str, bool]]:
    """Return the role of each column, and whether it is a candidate, column by column; names are distinct."""

    def is_of(entries: tuple[str, ...], at: int) -> bool:
        words = [
            word.strip()
            for entry in entries
            for word in (entry.split(",") if "," in entry and entry not in names else [entry])
        ]
        return any(
            names.index(word) == at
            if word in names
            else fnmatchcase(names[at], word)
            if re.search(r"[*?\[]", word)
            else word.isdigit() and int(word) == at
            for word in words
        )

    found = []
    for at, name in enumerate(names):
        if is_of(roles.one_hot, at):
            role = "one_hot"
        elif roles.label is not None and is_of((roles.label,), at):
            role = "label"
        elif is_of(roles.id, at):
            role = "id"
        elif is_of(roles.ignore, at) or (roles.features and not is_of(roles.features, at)):
            role = "ignore"
        else:
            role = "feature"
        is_id = name.strip().lower() in {"id", "row_id"} or (not name.strip() and at == 0)
        found.append((role, role == "feature" and not roles.features and at not in kept and is_id))
    features = [is_candidate for role, is_candidate in found if role in {"feature", "one_hot"}]
    if all(features):  # a table has a feature
        return [(role, False) for role, _ in found]
    return [("id" if is_candidate else role, is_candidate) for role, is_candidate in found]


@given(
    names=st.lists(NAMES, min_size=1, max_size=8, unique=True),
    label=st.none() | NAMES.filter(lambda name: name and "," not in name),
    features=ENTRIES,
    id_=ENTRIES,
    ignore=ENTRIES,
    one_hot=ENTRIES,
    kept=st.sets(st.integers(0, 7)),
)
def test_roles_are_those_of_their_definition(
    names: list[str],
    label: str | None,
    features: list[str],
    id_: list[str],
    ignore: list[str],
    one_hot: list[str],
    kept: set[int],
) -> None:
    """The layout of any table has for each column the role that the request gives it."""
    roles = ColumnRoles(label, None, tuple(features), tuple(id_), tuple(ignore), tuple(one_hot))
    try:
        layout = Layout.of(names, len(names), roles, kept)
    except ProblemError:  # of a column that does not exist, or of two roles
        return
    expected = by_definition(names, roles, kept)
    assert [column["role"] for column in column_list(layout)] == [role for role, _ in expected]
    assert layout.candidates == [at for at, (_, is_candidate) in enumerate(expected) if is_candidate]
    positions = {role: [at for at, (each, _) in enumerate(expected) if each == role] for role, _ in expected}
    assert layout.features == sorted(positions.get("feature", []) + positions.get("one_hot", []))
    assert layout.roles["ignore"] == positions.get("ignore", [])


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
    matching = column_roles._matching

    def counted(*arguments: Any) -> Counted:
        found = Counted(matching(*arguments))
        lists.append(found)
        return found

    monkeypatch.setattr(column_roles, "_matching", counted)
    kept = Counted([1])
    Layout.of([f"{at}_id" for at in range(WIDTH)] + ["x"], WIDTH + 1, ColumnRoles(one_hot=("x",), id=("0_id",)), kept)
    assert kept.passes == 1
    assert max(each.passes for each in lists) < 10


def wide(media: str) -> bytes:
    """Return a body of columns with the names of ids, each with a repeated value in another row."""
    rows = [[str(at + row - (row == at % 3 + 1)) for at in range(WIDTH)] + ["0.5"] for row in range(4)]
    names = [f"{at}_id" for at in range(WIDTH)] + ["x"]
    if media == "text/csv":
        return "\n".join(",".join(row) for row in [names, *rows]).encode()
    columns = [[int(cell) for cell in cells] for cells in zip(*(row[:-1] for row in rows), strict=True)]
    return packed(pa.table(dict(zip(names, [*columns, [0.5] * 4], strict=True))))


@pytest.mark.parametrize("media", ["text/csv", "application/vnd.apache.parquet"])
def test_columns_that_hold_no_ids_cost_one_further_pass(media: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns with the names of ids that hold none are features of the second pass, however many they are."""
    monkeypatch.setattr(csv_table, "BLOCK_CELLS", 1)
    monkeypatch.setattr(arrow_table, "BLOCK_VALUES", 1)
    layouts: list[Layout] = []
    layout_of = Layout.of.__func__  # type: ignore[attr-defined] # a class method

    def counted(cls: type[Layout], *arguments: Any) -> Layout:
        layouts.append(layout_of(cls, *arguments))
        return layouts[-1]

    monkeypatch.setattr(Layout, "of", classmethod(counted))
    table = read(wide(media), media, WIDE)
    assert table.values.shape == (4, WIDTH + 1)
    assert len(table.source["notices"]) == WIDTH
    assert len(layouts) <= 3  # of the schema, and of two passes


def test_the_schema_of_parquet_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library converts the whole schema at each access."""
    accesses: list[None] = []
    schema = parquet.ParquetFile.schema_arrow.fget

    def counted(file: parquet.ParquetFile) -> Any:
        accesses.append(None)
        return schema(file)

    monkeypatch.setattr(parquet.ParquetFile, "schema_arrow", property(counted))
    media = "application/vnd.apache.parquet"
    table = read(wide(media), media, WIDE, one_hot=[f"{at}_id" for at in range(9)])
    assert table.values.shape[0] == 4
    assert len(accesses) == 1
