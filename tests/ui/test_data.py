"""Data sets: chosen, dropped, synthetic and refused."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import expect

from tests.ui.driver.tables import csv, sheet

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.ui.driver.explorer import Explorer


def test_a_chosen_table_is_previewed_before_it_is_sent(explorer: Explorer) -> None:
    """The preview shows rows and names, text becomes labels, and the legend lists the classes."""
    explorer.open()
    explorer.choose_file("roll.csv", csv(sheet(120), kind=["inner", "outer"] * 60))
    preview = explorer.at("preview")
    expect(preview.locator("th")).to_have_text(["label", "x", "y", "z"])
    expect(preview.locator("tbody tr").first).to_contain_text("inner")
    assert explorer.state("dataset") is None
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_contain_text("roll.csv 120 rows, 3 columns")
    explorer.fit(count=3)
    expect(explorer.at("color")).to_have_value("labels")
    expect(explorer.at("legend").locator("button")).to_have_text(["inner60", "outer60"])


def test_columns_get_roles_before_the_upload(explorer: Explorer) -> None:
    """An index is set apart with a notice; words get a role by a button of the problem, numbers by a pattern."""
    X = sheet(9)  # of few rows no role is guessed
    rows = csv(X, kind=["a", "b", "b"] * 3, place=["p", "q", "r"] * 3).decode().replace(",", ";").splitlines()
    body = "\n".join([";" + rows[0], *(f"{i};{row}" for i, row in enumerate(rows[1:]))])
    explorer.open()
    explorer.choose_file("sheet.csv", body.encode())
    expect(explorer.at("problem")).to_contain_text("'kind' holds text")
    explorer.at("choose-one_hot").click()
    expect(explorer.at("preview").locator("th")).to_have_text(
        ["id", "x", "y", "z", "kind=a", "kind=b", "place=p", "place=q", "place=r"]
    )
    expect(explorer.at("problem")).to_have_count(0)
    expect(explorer.at("upload-notices")).to_contain_text("'0' numbers or names the rows")
    explorer.at("label-column").select_option("kind")
    names = ["id", "label", "x", "y", "z", "place=p", "place=q", "place=r"]
    expect(explorer.at("preview").locator("th")).to_have_text(names)
    explorer.at("column-roles").evaluate("part => part.open = true")
    explorer.at("role-place").select_option("ignore")
    expect(explorer.at("preview").locator("th")).to_have_text(["id", "label", "x", "y", "z"])
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_contain_text("sheet.csv 9 rows, 3 columns")
    assert explorer.state("dataset")["columns"] == {"id": ["0"], "label": ["kind"], "ignore": ["place"]}


def test_a_separator_is_chosen(explorer: Explorer) -> None:
    """A chosen separator reads the table again."""
    explorer.open()
    explorer.choose_file("bars.csv", csv(sheet(44)).replace(b",", b"|"))
    explorer.at("delimiter").select_option("pipe")
    expect(explorer.at("preview").locator("th")).to_have_text(["x", "y", "z"])
    explorer.at("delimiter").select_option("comma")
    expect(explorer.at("problem")).to_be_visible()
    explorer.at("delimiter").select_option("pipe")
    expect(explorer.at("preview").locator("th")).to_have_text(["x", "y", "z"])
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_contain_text("bars.csv 44 rows, 3 columns")


def test_a_dropped_table_is_colored_by_a_chosen_column(explorer: Explorer) -> None:
    """The page marks the drop area; a numeric column can be the color instead of a coordinate."""
    explorer.open()
    explorer.drop_file("dropped.csv", csv(sheet(60), height=list(range(60))).decode())
    explorer.at("color-column").select_option("height")
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_contain_text("dropped.csv 60 rows, 3 columns")
    dataset = explorer.state("dataset")
    assert (dataset["n_features"], dataset["has_color"]) == (3, True)


def npy(X: np.ndarray) -> bytes:
    """Return an array as an npy file."""
    file = io.BytesIO()
    np.save(file, X)
    return file.getvalue()


def parquet(X: np.ndarray) -> bytes:
    """Return an array as a Parquet file with named columns."""
    file = io.BytesIO()
    pq.write_table(pa.table({f"v{i}": column for i, column in enumerate(X.T)}), file)
    return file.getvalue()


@pytest.mark.parametrize(("name", "written"), [("array.npy", npy), ("table.parquet", parquet)])
def test_npy_and_parquet_are_previewed_and_uploaded(
    explorer: Explorer, name: str, written: Callable[[np.ndarray], bytes]
) -> None:
    """The preview starts with the first value of the file, and all rows are uploaded."""
    X = sheet(80)
    explorer.open()
    explorer.choose_file(name, written(X))
    expect(explorer.at("pending")).to_contain_text("80 rows")
    shown = explorer.at("preview").locator("tbody tr td").first.text_content()
    assert float(shown or "nan") == pytest.approx(X[0, 0], rel=1e-3)
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_contain_text("80 rows, 3 columns")


def test_a_synthetic_data_set_is_created(explorer: Explorer) -> None:
    """Every manifold has a button and a field for its size; rows and the size of the draws are shown before the fit."""
    explorer.open()
    info = explorer.page.request.get(f"{explorer.url}/v1/info").json()
    explorer.make_sheet("s_curve", 240)
    expect(explorer.at("chosen")).to_contain_text("240 rows, 3 columns")
    expect(explorer.at("preview").locator("tbody tr").first).to_be_visible()
    expect(explorer.at("size")).to_contain_text("24 draws of 240 points")
    expect(explorer.at("fit")).to_be_enabled()
    explorer.at("change-data").click()
    assert all(explorer.at(f"synthetic-{name}").count() for name in info["manifolds"])
    expect(explorer.at("recent")).to_contain_text("240")


def test_a_missing_value_is_reported_with_row_and_column(explorer: Explorer) -> None:
    """The refusal names the cell and the remedy; another file can be chosen, and no data set exists."""
    explorer.expected.append("422")
    lines = csv(sheet(40)).decode().splitlines()
    lines[7] = lines[7].split(",", 1)[0] + ",nan," + lines[7].rsplit(",", 1)[1]
    explorer.open()
    explorer.upload("holes.csv", "\n".join(lines).encode())
    problem = explorer.at("problem")
    expect(problem).to_be_visible()
    expect(problem).to_contain_text("row 7, column 2 (y)")
    expect(explorer.at("remedy")).to_be_visible()
    assert explorer.state("dataset") is None
    explorer.at("choose-drop").click()
    expect(explorer.at("pending")).to_contain_text("39 rows")
    explorer.at("discard-file").click()
    explorer.choose_file("holes.csv", "\n".join(lines).encode())
    explorer.at("choose-median").click()
    expect(explorer.at("upload-notices")).to_contain_text("replaced by the medians of their columns: y (1)")
    expect(problem).to_have_count(0)
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_contain_text("holes.csv 40 rows")
    explorer.at("change-data").click()
    explorer.drop_file("whole.csv", csv(sheet(40)).decode())
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_contain_text("whole.csv 40 rows")


def test_an_unsupported_file_is_refused_without_an_upload(explorer: Explorer) -> None:
    """The page lists the supported formats and sends nothing."""
    explorer.open()
    sent: list[str] = []
    explorer.page.on("request", lambda request: sent.append(request.method))
    explorer.choose_file("photo.jpg", b"\xff\xd8\xff")
    expect(explorer.at("problem-title")).to_have_text("This file cannot be read")
    expect(explorer.at("remedy")).to_contain_text("CSV")
    assert "POST" not in sent
    explorer.expected.append("415")  # of a service without the library
    explorer.choose_file("book.xlsx", b"PK")
    expect(explorer.at("pending")).to_contain_text("book.xlsx")
    expect(explorer.at("problem")).to_be_visible()  # of the service, because this is no workbook
    assert "POST" in sent


# Records the bytes of the file of each request with a form.
SENT = """globalThis.sent = [];
const send = globalThis.fetch;
globalThis.fetch = (path, options) => {
    if (options?.body instanceof FormData) sent.push([path, options.body.get('file').size]);
    return send(path, options);
};"""


def test_only_the_head_of_a_large_text_is_sent_for_its_preview(explorer: Explorer) -> None:
    """The preview says so; the upload has all rows, with the columns as the preview has shown them."""
    n = 100_000
    rows = csv(np.round(sheet(n), 12), id=range(n))
    explorer.page.add_init_script(SENT)
    explorer.open()
    explorer.choose_file("large.csv", rows)
    expect(explorer.at("pending")).to_contain_text("the first ", timeout=30_000)
    expect(explorer.at("upload-notices")).to_contain_text("'id' numbers or names the rows")
    ((path, size),) = explorer.page.evaluate("sent")
    assert (path, len(rows) > 4 * 2**20, size <= 2**20) == ("/v1/datasets/preview", True, True)
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_contain_text("100,000 rows, 3 columns", timeout=60_000)
    assert explorer.page.evaluate("sent").pop() == ["/v1/datasets", len(rows)]
    assert explorer.state("dataset")["columns"] == {"id": ["id"]}
