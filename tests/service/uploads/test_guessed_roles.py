"""Roles that are guessed by the values of columns, missing values, and ids, alike for every format of tables."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from glle_engine.tables import roles as columns
from glle_engine.tables.roles import Layout
from service.uploads.formats import arrow_table, csv_table
from service.uploads.limits import MAX_FEATURES, Limits
from service.uploads.registry import XLSX
from tests.service.conftest import check_problem
from tests.service.uploads.bodies import (
    CSV,
    FEATHER,
    JSON,
    NPY,
    NPZ,
    PARQUET,
    feather,
    messages,
    npy,
    npz,
    parquet_file,
    read,
    refusal,
    texts,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

N = 20
DAYS = [dt.date(2024, 1, 1) + dt.timedelta(days=3 * row) for row in range(N)]
COLUMNS: dict[str, list[Any]] = {
    "x": [float(row * row % 7) for row in range(N)],
    "y": [row + 0.5 for row in range(N)],
    "kind": ["u", "v", "w", "v"] * (N // 4),
    "site": ["north", "south"] * (N // 2),
    "sample": [f"s-{row}" for row in range(N)],
    "day": DAYS,
    "end": DAYS,
}


def csv(columns: dict[str, list[Any]]) -> bytes:
    """Return the CSV of columns; None is an empty cell."""
    cells = [["" if value is None else str(value) for value in values] for values in columns.values()]
    return "\n".join(",".join(row) for row in [[*columns], *zip(*cells, strict=True)]).encode()


def workbook(columns: dict[str, list[Any]], *empty_sheets: str) -> bytes:
    """Return the workbook of a sheet of columns, and of further empty sheets; None is an empty cell."""
    book = pytest.importorskip("openpyxl").Workbook()
    pytest.importorskip("python_calamine")
    for row in [[*columns], *zip(*columns.values(), strict=True)]:
        book.active.append(row)
    for name in empty_sheets:
        book.create_sheet(name)
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


FORMATS: dict[str, Callable[[Any], bytes]] = {
    XLSX: workbook,
    CSV: csv,
    PARQUET: lambda columns: parquet_file(pa.table(columns)),
    FEATHER: lambda columns: feather(pa.table(columns)),
}
each_format = pytest.mark.parametrize("media", FORMATS)


@each_format
def test_given_roles_come_first(media: str) -> None:
    """Given labels, colors or a list of features replace the guesses; dates as colors are noticed in any case."""
    body = FORMATS[media](COLUMNS)
    table = read(body, media, labels="site", colors="end", ignore=["day"])
    assert table.source["columns"] == {
        "labels": ["site"],
        "colors": ["end"],
        "id": ["sample"],
        "ignore": ["kind", "day"],
    }
    assert table.notices[-1].code == "date-colors"
    assert read(body, media, features=["x", "y"]).labels is None
    assert (read(body, media, one_hot=["kind"]).names or [])[2:] == ["kind=u", "kind=v", "kind=w"]


def test_categories_of_digits_are_the_label() -> None:
    """Categories of digits become labels, as words among which are numbers do; texts of digits are refused."""
    assert texts(read(csv({"x": COLUMNS["x"], "k": ["12 mg", "low"] * (N // 2)})))[1]
    digits = pa.array(["1", "2"] * (N // 2))
    assert texts(read(feather(pa.table({"x": COLUMNS["x"], "k": digits.dictionary_encode()})), FEATHER))[1]
    assert "'k'" in refusal(feather(pa.table({"x": COLUMNS["x"], "k": digits})), FEATHER).detail


def test_a_column_of_numbers_stays_a_feature() -> None:
    """Numbers that look like ids are features if no others are; columns of words alone are refused."""
    assert read(csv({"id": [*range(N)], "day": DAYS}), CSV).names == ["id"]
    assert (
        "'kind' (text, such as 'u'), 'site'" in refusal(csv({name: COLUMNS[name] for name in ("kind", "site")})).detail
    )


@pytest.mark.parametrize("media", [PARQUET, FEATHER])
def test_texts_of_arrow_may_be_truth_values_or_dates(media: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each block, texts are read as what the first texts of their column are."""
    monkeypatch.setattr(arrow_table, "BLOCK_VALUES", 1)
    columns = {"x": [1.0, 2.0], "is_big": ["False", "true"], "day": ["1970-01-01", "1970-01-02"]}
    table = read(FORMATS[media](columns), media, colors="day")
    assert (table.values.tolist(), table.names) == ([[1, 0], [2, 1]], ["x", "is_big"])
    np.testing.assert_array_equal(table.colors, [0, 86400])


def test_a_first_row_that_may_be_a_header_is_noticed() -> None:
    """A first row with a number is data; a notice says if it may be a header, because of a unique word."""
    body = csv({"kind": COLUMNS["kind"], "2020": COLUMNS["x"]})
    (notice,) = (notice for notice in messages(read(body)) if "first row" in notice)
    assert "'kind' and others; if it is a header, use ?header=present." in notice
    assert not any("first row" in notice for notice in messages(read(body.partition(b"\n")[2])))


@each_format
def test_all_columns_with_missing_values_are_in_one_message(media: str) -> None:
    """One message counts the missing values of all columns, with the choices, and names columns without a role."""
    gaps: dict[str, list[Any]] = {name: [*COLUMNS[name]] for name in ("x", "y")}
    gaps["x"][3] = gaps["y"][5] = gaps["y"][6] = None
    problem = refusal(FORMATS[media](gaps), media)
    assert "in 3 of 20 rows; the first is in row 4, counted from 1. By column: x (1), y (2)." in problem.detail
    assert problem.details["bad_columns"] == {"x": 1, "y": 2}
    assert "?missing=drop" in problem.to_dict()["remedy"]
    assert "?missing=median" in problem.to_dict()["remedy"]
    problem = refusal(FORMATS[media]({**gaps, "note": [f"w{row % 14}" for row in range(N)]}), media)
    assert "'note'" in problem.detail
    assert "x (1), y (2)" in problem.detail


@each_format
def test_missing_values_are_dropped_or_filled(media: str) -> None:
    """A dropped row loses its label, color and ids, too; the median is that of the other rows."""
    gaps: dict[str, list[Any]] = {name: [*values] for name, values in COLUMNS.items()}
    gaps["x"][3] = gaps["y"][5] = gaps["kind"][7] = None
    body = FORMATS[media](gaps)
    kept = [row for row in range(N) if row not in {3, 5}]
    table = read(body, media, missing="drop")
    whole = np.column_stack([COLUMNS["x"], COLUMNS["y"]])
    np.testing.assert_array_equal(table.values, whole[kept])
    assert texts(table)[1::2] == ([gaps["kind"][row] or "" for row in kept], [COLUMNS["sample"][row] for row in kept])
    assert "2 of 20 rows have missing values and were dropped. Missing values: x (1), y (1)." in messages(table)
    table = read(body, media, missing="median")
    assert table.values[3].tolist() == [np.median(np.delete(whole[:, 0], 3)), whole[3, 1]]
    assert table.values[5].tolist() == [whole[5, 0], np.median(np.delete(whole[:, 1], 5))]
    assert any("replaced by the medians of their columns: x (1), y (1)" in notice for notice in messages(table))
    gaps["x"][3] = float("inf")
    if media != XLSX:  # whose cells have no infinity
        assert refusal(FORMATS[media](gaps), media, missing="drop").code == "not-finite"
    empty = csv({**COLUMNS, "x": [None] * N})
    assert "no median: x" in refusal(empty, missing="median").detail
    assert "no row is left" in refusal(empty, missing="drop").detail
    assert read(
        FORMATS[media]({**COLUMNS, "site": [None, *COLUMNS["site"][1:]]}), media, one_hot=["site"], missing="drop"
    ).values.shape == (N - 1, 4)


def test_a_sheet_of_a_workbook_is_read() -> None:
    """A sheet is chosen by its name, else the first, with a notice if there are several."""
    table = read(workbook(COLUMNS, "notes"), XLSX)
    assert "The workbook has 2 sheets; 'Sheet' was read. To choose, use ?sheet=Sheet or ?sheet=notes." in messages(
        table
    )
    np.testing.assert_array_equal(read(workbook(COLUMNS, "notes"), XLSX, sheet="Sheet").values, table.values)
    assert refusal(workbook(COLUMNS, "notes"), XLSX, sheet="notes").to_dict()["remedy"].endswith("?sheet=Sheet.")
    assert "sheet='Sheet' or sheet='notes'" in refusal(workbook(COLUMNS, "notes"), XLSX, sheet="data").remedy
    misplaced = refusal(csv(COLUMNS), sheet="data"), refusal(workbook(COLUMNS), XLSX, delimiter="comma")
    assert [problem.code for problem in misplaced] == ["sheet-not-here", "delimiter-not-here"]
    assert ["Excel" in problem.remedy for problem in misplaced] == [True, False]
    numbered = read(workbook({"1": [2, 3], "2": [4, 5.5]}), XLSX)
    assert (numbered.names, numbered.values.tolist()) == (["1", "2"], [[2, 4], [3, 5.5]])
    problem = refusal(workbook({"x": [1.0, 2.0, "three", 4.0], "y": [1.0, 2.0, 3.0, 4.0]}), XLSX)
    assert (problem.code, problem.details["row"], problem.details["name"]) == ("bad-cell", 3, "x")
    texts_among_numbers = workbook({"x": [1.0, "2.0", 3.0, 4.0], "y": [1.0, 2.0, 3.0, "n/a"]})
    assert "type text: make them numbers" in refusal(texts_among_numbers, XLSX, missing="drop").remedy
    assert "'pair' (time)" in refusal(workbook({"x": [1.0], "pair": [dt.time(1)]}), XLSX).detail
    assert refusal(workbook(COLUMNS), XLSX, colors="site").code == "unsupported-column"
    assert refusal(b"x" * 100, XLSX).code == "malformed-xlsx"
    assert refusal(npz(data=np.ones((2, 2))), XLSX).code == "malformed-xlsx"
    assert refusal(workbook({}), XLSX).code == "empty-data"
    assert refusal(workbook(COLUMNS), XLSX, Limits(points=5000, features=20, inflated=100)).status == 413


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("media", [NPY, NPZ, JSON])
def test_missing_values_of_arrays(media: str, order: Any) -> None:
    """NaN and null are missing values, in any memory order; with `missing` they are dropped or filled."""
    values = np.asfortranarray(np.arange(12.0).reshape(4, 3)) if order == "F" else np.arange(12.0).reshape(4, 3)
    values[1, 2] = np.nan
    members = {"data": values, "ids": np.arange(4)}
    text = '{"data": [[0, 1, 2], [3, 4, null], [6, 7, 8], [9, 10, 11]]}'
    body: Any = {NPY: npy(values), NPZ: npz(**members), JSON: text}[media]
    assert "missing" in refusal(text, JSON).remedy
    dropped, filled = (read(body, media, missing=missing).values for missing in ("drop", "median"))
    assert dropped.tolist() == [[0, 1, 2], [6, 7, 8], [9, 10, 11]]
    assert filled[1].tolist() == [3, 4, 8]
    assert "missing='mean' is not one of drop, median" in refusal(body, media, missing="mean").detail


@pytest.mark.parametrize("media", [CSV, PARQUET])
def test_columns_that_hold_no_ids_cost_one_further_pass(media: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that are called ids but hold none become features in a second pass, however many they are."""
    monkeypatch.setattr(csv_table, "BLOCK_CELLS", 1)
    monkeypatch.setattr(arrow_table, "BLOCK_VALUES", 1)
    layouts: list[Layout] = []
    layout_of = Layout.from_roles.__func__  # type: ignore[attr-defined] # a class method

    def count_calls(cls: type[Layout], *arguments: Any) -> Layout:
        layouts.append(layout_of(cls, *arguments))
        return layouts[-1]

    monkeypatch.setattr(Layout, "from_roles", classmethod(count_calls))
    # Each has a repeated value in another row.
    columns = {f"{column}_id": [column + row - (row == column % 3 + 1) for row in range(4)] for column in range(300)}
    table = read(FORMATS[media]({**columns, "x": [0.5] * 4}), media, Limits(points=5000, features=MAX_FEATURES))
    assert table.values.shape == (4, 301)
    assert len(messages(table)) == 300
    assert len(layouts) <= 3  # of the schema, and of two passes


NUMBERS = {"x": [0.5, 1.5, 2.5], "y": [1.0, 2.0, 4.0]}


@pytest.mark.parametrize(
    ("ids", "dtype_kind"),
    [
        pytest.param([7, 7, -3], "i", id="repeated"),
        pytest.param(["007", "008", "9"], "U", id="leading zeros"),
        pytest.param(["3", "5", "9007199254740993"], "U", id="beyond 2^53"),
        pytest.param(["+1", "-0", "1.0"], "U", id="other spellings of numbers"),
        pytest.param(["7", "", "a"], "U", id="missing"),
    ],
)
def test_ids_of_text_stay_as_they_are(ids: list[Any], dtype_kind: str) -> None:
    """Numbers in their usual digits are integers, all else is text; a missing id is empty and noticed."""
    rows = [f"{x},{id_},{y}" for x, id_, y in zip(NUMBERS["x"], ids, NUMBERS["y"], strict=True)]
    table = read("\n".join(["x,name,y", *rows]) + "\n", id=["name"])
    assert (table.extras["ids"].dtype.kind, texts(table)) == (dtype_kind, (["x", "y"], None, None, ids))
    missing = [notice for notice in messages(table) if notice.startswith("The id is missing in 1 of 3")]
    assert len(missing) == ids.count("")


@pytest.mark.parametrize(
    ("ids", "kept"),
    [
        pytest.param(pa.array([4, None, 9]), ["4", "", "9"], id="integers with a null"),
        pytest.param([4.0, float("nan"), 9.0], ["4", "", "9"], id="integers of pandas with a missing one"),
        pytest.param(pa.array(["p", "q", "p"]).dictionary_encode(), ["p", "q", "p"], id="categories"),
        pytest.param([2**63 - 1, 2**53, 1], [str(2**63 - 1), str(2**53), "1"], id="beyond 2^53"),
        pytest.param(
            pa.array(np.array(["2026-01-01", "2026-01-02", "2026-02-01"], "datetime64[D]")),
            ["2026-01-01", "2026-01-02", "2026-02-01"],
            id="dates",
        ),
    ],
)
def test_ids_of_arrow(ids: Any, kept: list[Any]) -> None:
    """Every type of column is kept as its text, whole numbers as integers."""
    table = read(feather(pa.table({**NUMBERS, "case": ids})), FEATHER, id=["case"])
    assert texts(table)[3] == kept
    np.testing.assert_array_equal(table.values, np.column_stack(list(NUMBERS.values())))


def test_several_columns_of_ids_are_a_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    """The columns are in the order of the file, and a notice says if some are not stored."""
    body = "site,plot,x\nA,1,0.5\nA,2,1.5\nB,1,2.5\n"
    assert texts(read(body, id=["plot", "site"]))[3] == [["A", "1"], ["A", "2"], ["B", "1"]]
    monkeypatch.setattr("glle_engine.tables.table.MAX_ID_COLUMNS", 1)
    monkeypatch.setattr(columns, "MAX_ID_COLUMNS", 1)
    table = read(body, id=["plot", "site"])
    assert texts(table)[3] == ["A", "A", "B"]
    assert messages(table) == ["Of 2 columns of ids the values of the first 1 are stored."]


def test_ids_that_cannot_be_stored_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long id is refused with its row, and many wide ones together; whole numbers are never too long."""
    for body, code in ((f"x,k\n1,a\n2,{'b' * 1001}\n", "id-too-long"), ("x,k\n1,a\0\n", "invalid-id")):
        problem = refusal(body, id=["k"])
        assert (problem.code, problem.details["row"]) == (code, body.count("\n") - 1)
    monkeypatch.setattr("glle_engine.tables.row_texts.MAX_TOTAL_CHARACTERS", 10)
    assert texts(read("x,k\n1,123456\n2,123457\n", id=["k"]))[3] == [123456, 123457]
    assert refusal("x,k\n1,12345a\n2,12345b\n", id=["k"]).details == {"allowed": 5}


def test_the_service_gives_ids_back(client: httpx.Client) -> None:
    """Record, preview, values in every format, and the resource of the ids have them; each format reads them again."""
    body = "customer,x,y\nC-7,0.5,1\nC-3,1.5,2\nC-9,2.5,4\n"
    headers, ids = {"content-type": CSV}, ["C-7", "C-3", "C-9"]
    first = client.post("/v1/datasets?id=customer", content=body, headers=headers).json()
    assert (first["has_ids"], first["columns"]) == (True, {"id": ["customer"]})
    preview = client.post("/v1/datasets/preview?id=customer", content=body, headers=headers).json()
    assert (preview["id"], preview["ids"]) == (first["id"], ids)
    data, path = first["links"]["data"], first["links"]["ids"]
    assert client.get(path).json() == {"shape": [3], "dtype": "str96", "data": ids}
    assert client.get(f"{path}?points=1:").json()["data"] == ids[1:]
    array = client.get(path, headers={"accept": "application/x-npy"})
    assert np.load(io.BytesIO(array.content)).tolist() == ids
    again = client.get(path, headers={"accept": "application/x-npy", "if-none-match": array.headers["etag"]})
    assert again.status_code == 304
    csv = client.get(f"{data}?points=0:2", headers={"accept": CSV}).text
    assert csv.splitlines() == ["id,x,y", "C-7,0.5,1.0", "C-3,1.5,2.0"]
    for media in ("application/json", "application/zip", CSV):
        content = client.get(data, headers={"accept": media}).content
        if media == "application/json":
            whole = json.loads(content)
            content = json.dumps({name: whole[name] for name in ("data", "names", "ids")}).encode()
        repeated = client.post("/v1/datasets", content=content, headers={"content-type": media})
        assert repeated.json()["id"] == first["id"], media


def test_ids_are_content(client: httpx.Client) -> None:
    """Equal values with other ids, or without, are other data sets; without ids their resource is a 404."""
    data, names = [[0.5, 1.0], [1.5, 2.0]], ["id", "y"]
    several: list[Any] = [[1, 2], ["1", "02"], [[1, 2], [3, 4]], None]
    records = [client.post("/v1/datasets", json={"data": data, "names": names, "ids": ids}).json() for ids in several]
    assert len({record["id"] for record in records}) == 4
    assert [record["has_ids"] for record in records] == [True, True, True, False]
    assert client.get(f"/v1/datasets/{records[2]['id']}/ids").json()["data"] == [[1, 2], [3, 4]]
    heads = [
        client.get(records[index]["links"]["data"], headers={"accept": CSV}).text.splitlines()[:2] for index in (0, 2)
    ]
    assert heads == [["id_,id,y", "1,0.5,1.0"], ["id_1,id_2,id,y", "1,2,0.5,1.0"]]
    check_problem(client.get(f"/v1/datasets/{records[3]['id']}/ids"), 404, "no-ids")
    assert "ids" not in records[3]["links"]


@pytest.mark.parametrize("ids", [range(N), [f"s-{row}" for row in range(N)]])
def test_a_column_without_a_name_is_not_called_by_the_name_of_another(ids: list[Any]) -> None:
    """A column without a name is not called 0, if another column has this name; an option 0 means the latter."""
    table = read(csv({"": list(ids), "0": COLUMNS["x"], "1": COLUMNS["y"]}))
    assert table.names == ["0", "1"]
    (notice,) = [notice for notice in messages(table) if "numbers or names the rows" in notice]
    assert notice.startswith("The first column, which has no name,")
    assert "ignore=0" not in notice


@pytest.mark.parametrize("missing", [b"<sheets>.*</sheets>", b"<sheet .*/>"])
def test_a_workbook_without_a_sheet_is_refused(missing: bytes) -> None:
    """A workbook without a sheet is refused as empty data."""
    with zipfile.ZipFile(io.BytesIO(workbook(COLUMNS))) as book:
        members = {name: book.read(name) for name in book.namelist()}
    assert re.search(missing, members["xl/workbook.xml"])
    members["xl/workbook.xml"] = re.sub(missing, b"", members["xl/workbook.xml"])
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    assert refusal(body.getvalue(), XLSX).code == "empty-data"


def test_a_workbook_of_another_zip_version_is_refused() -> None:
    """A workbook that needs a later version of the ZIP format is refused."""
    body = bytearray(workbook(COLUMNS))
    body[body.find(b"PK\1\2") + 6] = 99
    assert refusal(bytes(body), XLSX).code == "malformed-xlsx"


def test_a_workbook_whose_members_have_no_names_is_refused() -> None:
    """A workbook is refused if a member's name is declared as UTF-8, and is not."""
    body = bytearray(workbook(COLUMNS))
    entry = body.find(b"PK\1\2")
    body[entry + 9] |= 8
    body[entry + 46] = 0xE9
    assert refusal(bytes(body), XLSX).code == "malformed-xlsx"
