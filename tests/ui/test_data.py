"""Data sets: chosen, dropped, synthetic and refused."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import expect

from tests.ui.driver.tables import csv, sheet

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Request

    from tests.system.conftest import Up
    from tests.ui.driver.explorer import Explorer, Tab

LONG = 120_000  # milliseconds
_CHOOSE = "async (rows) => (await import('/explorer/js/actions/selection.js')).choosePoints(rows)"


def requests_of(explorer: Explorer) -> list[tuple[str, str]]:
    """Return the list to which the page's requests that may change something are added, as method and path."""
    sent: list[tuple[str, str]] = []

    def record(request: Request) -> None:
        if request.method != "GET":
            sent.append((request.method, urlsplit(request.url).path))

    explorer.page.on("request", record)
    return sent


def test_a_guess_is_shown_and_changed_by_a_click(explorer: Explorer) -> None:
    """Heads say what was guessed, as do notices; a click changes one column; nothing is stored before the button."""
    explorer.open()
    sent = requests_of(explorer)
    columns = {"kind": ["inner", "outer"] * 60, "place": ["p", "q", "r"] * 40, "height": range(120)}
    explorer.choose_file("roll.csv", csv(sheet(120), **columns))
    explorer.expect_roles(x="feature", kind="label, guessed", place="ignore, guessed", height="feature")
    expect(explorer.at("upload-notices")).to_contain_text("The column 'kind' has 2 distinct words. It has the labels")
    expect(explorer.at("preview").locator("tbody tr").nth(1)).to_contain_text(re.compile("outer.*q.*1$"))
    explorer.give_role("place", "labels")
    explorer.expect_roles(x="feature", kind="ignore", place="label", height="feature")
    explorer.give_role("height", "colors")
    explorer.expect_roles(x="feature", kind="ignore", place="label", height="color")
    explorer.give_role("kind", "one_hot")
    expect(explorer.at("pending")).to_contain_text("120 rows, 5 features")
    assert {*sent} == {("POST", "/v1/datasets/preview")}, "nothing is stored"
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_contain_text("roll.csv 120 rows, 5 columns")
    assert explorer.state("dataset")["columns"] == {"labels": ["place"], "colors": ["height"], "one_hot": ["kind"]}
    assert ("POST", "/v1/posteriors") not in sent, "nothing is fitted"


def test_dates_are_dates(explorer: Explorer) -> None:
    """The preview, the legend, the facts and the table of a row have dates, of the colors and of a further column."""
    days = [f"2024-{1 + i // 28:02}-{1 + i % 28:02}" for i in range(112)]
    ends = [f"{1 + i % 28}.{1 + i // 28}.2025" for i in range(112)]
    explorer.open()
    explorer.choose_file("roll.csv", csv(sheet(112), day=days, end=ends))
    explorer.expect_roles(day="color, guessed", end="ignore, guessed")
    explorer.at("use-file").click()
    expect(explorer.at("chosen").locator("tbody tr").nth(2)).to_contain_text("2024-01-03")
    explorer.open_set_up()
    explorer.embed("pca")
    expect(explorer.at("legend").locator(".ramp-ends")).to_have_text("2024-01-012024-04-28", timeout=LONG)
    explorer.find("row", "30")
    expect(explorer.at("point-color")).to_have_text("2024-02-03")
    expect(explorer.at("selected-rows")).to_contain_text("2024-02-03")
    assert "2024-02-03,3.2.2025," in explorer.download("csv")[1].decode()
    explorer.at("color").select_option("further:end")
    expect(explorer.at("legend").locator(".ramp-ends")).to_have_text("2025-01-012025-04-28")
    explorer.page.evaluate(_CHOOSE, list(range(56)))
    expect(explorer.at("distinguishes")).to_contain_text("2024-01-30 here, 2024-03-30 in the others")


def test_a_method_that_is_chosen_first_makes_its_map_at_once(explorer: Explorer) -> None:
    """If t-SNE is chosen before the data, the table's button says so, and the map follows the upload."""
    explorer.open()
    explorer.at("maker-t-sne").click()
    explorer.choose_file("roll.csv", csv(sheet(240)))
    expect(explorer.at("use-file")).to_have_text("Make a map by t-SNE")
    explorer.at("use-file").click()
    expect(explorer.at("frame-name")).to_have_text("t-SNE", timeout=LONG)


def test_a_refused_table_is_resolved_by_its_heads(explorer: Explorer) -> None:
    """The heads of refused columns are marked, with their cells; each gets a role by a click."""
    X = sheet(9)  # of few rows no role is guessed
    rows = csv(X, kind=["a", "b", "b"] * 3, place=["p", "q", "r"] * 3).decode().replace(",", ";").splitlines()
    body = "\n".join([";" + rows[0], *(f"{i};{row}" for i, row in enumerate(rows[1:]))])
    explorer.open()
    explorer.choose_file("sheet.csv", body.encode())
    expect(explorer.at("problem")).to_contain_text("'kind' (text, such as 'a')")
    explorer.expect_roles(x="feature", kind="choose a role", place="choose a role", **{"0": "id, guessed"})
    expect(explorer.at("preview").locator("tbody tr").nth(2)).to_contain_text(re.compile("^2.*br$"))
    expect(explorer.at("columns-hint")).to_contain_text("Click the 2 marked heads")
    expect(explorer.at("use-file")).to_be_disabled()
    explorer.give_role("place", "ignore")
    explorer.expect_roles(kind="choose a role", place="ignore")
    explorer.give_role("kind", "labels")
    expect(explorer.at("problem")).to_have_count(0)
    explorer.expect_roles(x="feature", kind="label", place="ignore", **{"0": "id, guessed"})
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_contain_text("sheet.csv 9 rows, 3 columns")
    assert explorer.state("dataset")["columns"] == {"id": ["0"], "labels": ["kind"], "ignore": ["place"]}


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
def test_roles_are_changed_by_the_keyboard_alone(tab: Tab, up: Up, size: tuple[int, int]) -> None:
    """Tab to a head, Enter, arrows, Enter; Escape changes nothing; the focus returns to the head."""
    with tab(up.url, viewport={"width": size[0], "height": size[1]}, color_scheme="dark") as explorer:
        explorer.open()
        explorer.choose_file("roll.csv", csv(sheet(40), kind=["inner", "outer"] * 20))
        explorer.expect_roles(kind="label, guessed")
        press, head = explorer.page.keyboard.press, explorer.at("head-kind")
        expect(explorer.page.get_by_role("heading", name="Check the columns")).to_be_focused()
        for _ in range(5):  # the table, x, y, z, kind
            press("Tab")
        expect(head).to_be_focused()
        assert head.evaluate("head => getComputedStyle(head).outlineStyle") == "solid"
        expect(head).to_have_accessible_name(re.compile("kind\\s+label, guessed"))
        press("Enter")
        expect(explorer.page.get_by_role("menuitemradio", name="label")).to_be_focused()
        press("Escape")
        expect(explorer.at("roles")).to_have_count(0)
        expect(head).to_be_focused()
        press("Enter")
        for key in ("End", "ArrowUp", "ArrowUp"):
            press(key)
        expect(explorer.at("role-one_hot")).to_be_focused()
        press("Enter")
        explorer.expect_roles(kind="one-hot")
        expect(head).to_be_focused()
        assert explorer.horizontal_overflow() == 0
        expect(explorer.at("use-file")).to_be_enabled()
        press("Tab")  # the separator
        press("Tab")
        expect(explorer.at("use-file")).to_be_focused()
        press("Enter")
        expect(explorer.at("chosen")).to_contain_text("40 rows, 5 columns")


def test_a_wide_table_is_searched_and_grouped(tab: Tab, up: Up) -> None:
    """Alike columns are one head; a search finds some, which get a role together, on a phone, too."""
    genes = {f"gene_{i:03}": np.round(np.sin(np.arange(30) * (i + 1)), 3).tolist() for i in range(150)}
    with tab(up.url, viewport={"width": 390, "height": 844}) as explorer:
        explorer.open()
        explorer.choose_file("genes.csv", csv(sheet(30), **genes, tissue=["liver", "lung"] * 15))
        heads = explorer.at("preview").locator("th")
        ends = [["xfeature", "yfeature", "zfeature"], ["tissuelabel, guessed"]]
        expect(heads).to_have_text([*ends[0], re.compile("gene_000 … gene_149.*150 . feature"), *ends[1]])
        explorer.at("find-columns").fill("GENE_14")
        expect(heads).to_have_count(10)
        explorer.at("change-found").click()
        explorer.at("role-ignore").click()
        expect(explorer.at("pending")).to_contain_text("30 rows, 143 features")
        explorer.at("find-columns").fill("")
        runs = [re.compile("gene_000 … gene_139.*140 . feature"), re.compile("gene_140 … gene_149.*10 . ignore")]
        expect(heads).to_have_text([*ends[0], *runs, *ends[1]])
        explorer.at("head-gene_140").click()
        explorer.at("open-run").click()
        expect(heads).to_have_count(15)
        explorer.give_role("gene_149", "colors")
        explorer.expect_roles(gene_148="ignore", gene_149="color", tissue="label, guessed")
        explorer.at("group-columns").click()
        expect(heads).to_have_count(7)
        assert explorer.horizontal_overflow() == 0
        explorer.at("use-file").click()
        expect(explorer.at("chosen")).to_contain_text("30 rows, 143 columns")
        columns = explorer.state("dataset")["columns"]
        assert (columns["labels"], columns["colors"], len(columns["ignore"])) == (["tissue"], ["gene_149"], 9)


def test_a_percentage_shows_how_much_of_a_large_file_was_sent(explorer: Explorer) -> None:
    """A file on a slow line shows the percentage that was sent, and is then used as any file."""
    explorer.open()
    explorer.choose_file("large.csv", csv(sheet(90_000)))
    expect(explorer.at("use-file")).to_be_enabled()
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 2**21}
    explorer.page.context.new_cdp_session(explorer.page).send("Network.emulateNetworkConditions", slow)
    explorer.at("use-file").click()
    expect(explorer.at("progress")).to_contain_text(re.compile(r"Sending large\.csv.* [1-9][0-9]? %"))
    expect(explorer.at("chosen")).to_contain_text("large.csv 90,000 rows, 3 columns")


def test_a_separator_is_chosen(explorer: Explorer) -> None:
    """A chosen separator reads the table again."""
    explorer.open()
    explorer.choose_file("bars.csv", csv(sheet(44)).replace(b",", b"|"))
    explorer.at("delimiter").select_option("pipe")
    explorer.expect_roles(x="feature", y="feature", z="feature")
    explorer.at("delimiter").select_option("comma")
    expect(explorer.at("problem")).to_be_visible()
    explorer.at("delimiter").select_option("pipe")
    explorer.expect_roles(x="feature", y="feature", z="feature")
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_contain_text("bars.csv 44 rows, 3 columns")


def test_a_dropped_table_is_colored_by_a_chosen_column(explorer: Explorer) -> None:
    """The page marks the drop area; a numeric column can be the color instead of a coordinate."""
    explorer.open()
    explorer.drop_file("dropped.csv", csv(sheet(60), height=list(range(60))).decode())
    explorer.give_role("height", "colors")
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_contain_text("dropped.csv 60 rows, 3 columns")
    dataset = explorer.state("dataset")
    assert (dataset["n_features"], dataset["has_colors"]) == (3, True)


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


def npz(**arrays: Any) -> bytes:
    """Return arrays as an npz file."""
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def test_labels_beside_an_array_are_used(explorer: Explorer) -> None:
    """The member `y` of npz becomes the label by a button; an npy file of labels colors the points."""
    X, y = sheet(80), np.repeat(["inner", "outer"], 40)
    explorer.open()
    explorer.choose_file("array.npz", npz(X=X, y=y))
    expect(explorer.at("problem")).to_contain_text("'y'")
    explorer.at("label-y").click()
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_contain_text("80 rows, 3 columns")
    explorer.embed("pca")
    expect(explorer.at("legend").locator(".class")).to_have_text(["inner40", "outer40"])
    explorer.at("add-columns").set_input_files({"name": "side.npy", "mimeType": "", "buffer": npy(np.arange(80) % 4)})
    expect(explorer.at("color").locator("option:checked")).to_have_text("side")
    expect(explorer.at("legend").locator(".class")).to_have_text([f"{i}20" for i in range(4)])


def test_left_out_columns_of_parquet_color_the_points(explorer: Explorer) -> None:
    """A column that is no feature can color the points; the file is sent once for preview and once to be stored."""
    table = io.BytesIO()
    columns = dict(zip("xyz", sheet(60).T, strict=True))
    pq.write_table(pa.table({**columns, "kind": ["a", "b"] * 30, "place": ["p", "q", "r"] * 20}), table)
    explorer.page.add_init_script(SENT)
    explorer.open()
    explorer.choose_file("table.parquet", table.getvalue())
    explorer.expect_roles(kind="label, guessed", place="ignore, guessed")
    explorer.page.wait_for_function("sent.length === 2")
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_contain_text("60 rows, 3 columns")
    assert [path for path, _ in explorer.page.evaluate("sent")][2:] == ["/v1/datasets"]
    explorer.embed("pca")
    expect(explorer.at("stage")).to_be_visible()
    explorer.page.reload()
    explorer.at("color").select_option("further:place")
    expect(explorer.at("legend").locator(".class")).to_have_text(["p20", "q20", "r20"])


def test_another_sheet_of_a_workbook_is_read(explorer: Explorer) -> None:
    """If a workbook's first sheet has no table, the second one can be chosen by its name."""
    book = pytest.importorskip("openpyxl").Workbook()
    data = book.create_sheet("data")
    for row in [["x", "y", "z"], *sheet(20).tolist()]:
        data.append(row)
    file = io.BytesIO()
    book.save(file)
    explorer.open()
    explorer.choose_file("book.xlsx", file.getvalue())
    expect(explorer.at("remedy")).to_contain_text("the sheet “data”")
    explorer.at("sheet").select_option("data")
    explorer.expect_roles(x="feature", y="feature", z="feature")
    expect(explorer.at("sheet").locator("option")).to_have_text(["Sheet", "data"])
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_contain_text("book.xlsx 20 rows, 3 columns")


def test_an_empty_file_and_a_failure_offer_the_next_step(explorer: Explorer) -> None:
    """After an empty file another can be chosen; after a failed preview a button tries again."""
    explorer.open()
    explorer.choose_file("empty.csv", b"")
    expect(explorer.at("problem")).to_contain_text("This file is empty")
    with explorer.page.expect_file_chooser():
        explorer.at("choose-another").click()
    explorer.expected.append("503")
    busy = {"title": "Busy", "detail": "Too many requests.", "remedy": "Try again.", "status": 503, "details": {}}
    explorer.page.route("**/preview", lambda route: route.fulfill(status=503, json=busy))
    explorer.choose_file("sheet.csv", csv(sheet(30)))
    expect(explorer.at("problem")).to_contain_text("Busy")
    explorer.page.unroute_all()
    explorer.at("read-again").click()
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_contain_text("30 rows, 3 columns")


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
    """The refusal names the cell and the remedy, and marks the head; another file can be chosen; no data set exists."""
    lines = csv(sheet(40)).decode().splitlines()
    lines[7] = lines[7].split(",", 1)[0] + ",nan," + lines[7].rsplit(",", 1)[1]
    explorer.open()
    explorer.choose_file("holes.csv", "\n".join(lines).encode())
    problem = explorer.at("problem")
    expect(problem).to_be_visible()
    expect(problem).to_contain_text("row 7, counted from 1. By column: y (1)")
    expect(explorer.at("remedy")).to_be_visible()
    explorer.expect_roles(x="feature", y="feature, refused")
    expect(explorer.at("use-file")).to_be_disabled()
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
};
const { open: openRequest, send: sendRequest } = XMLHttpRequest.prototype;
XMLHttpRequest.prototype.open = function (method, path) {
    this.path = path;
    return openRequest.call(this, method, path);
};
XMLHttpRequest.prototype.send = function (body) {
    sent.push([this.path, body.get('file').size]);
    return sendRequest.call(this, body);
};"""


def test_only_the_head_of_a_large_text_is_sent_for_its_preview(explorer: Explorer) -> None:
    """The preview of a large CSV reads its beginning and says so; the upload has all rows."""
    n = 100_000
    rows = csv(np.round(sheet(n), 12), id=range(n))
    explorer.page.add_init_script(SENT)
    explorer.open()
    explorer.choose_file("large.csv", rows)
    expect(explorer.at("pending")).to_contain_text("the first ", timeout=30_000)
    expect(explorer.at("upload-notices")).to_contain_text("'id' numbers or names the rows")
    assert len(rows) > 4 * 2**20
    assert all(path == "/v1/datasets/preview" and size <= 2**20 for path, size in explorer.page.evaluate("sent"))
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_contain_text("100,000 rows, 3 columns", timeout=60_000)
    assert explorer.page.evaluate("sent").pop() == ["/v1/datasets", len(rows)]
    assert explorer.state("dataset")["columns"] == {"id": ["id"]}
