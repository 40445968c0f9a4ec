"""Data sets: chosen, dropped, made by name, and refused."""

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
    """Its rows and names are shown, words are taken as labels; then its classes are in the legend."""
    explorer.open()
    explorer.choose("roll.csv", csv(sheet(120), kind=["inner", "outer"] * 60))
    preview = explorer.at("preview")
    expect(preview.locator("th")).to_have_text(["x", "y", "z", "kind (labels)"])
    expect(preview.locator("tbody tr").first).to_contain_text("inner")
    assert explorer.state("dataset") is None
    explorer.keep("preview")
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_contain_text("roll.csv 120 rows, 3 columns")
    explorer.fit(count=3)
    expect(explorer.at("color")).to_have_value("labels")
    expect(explorer.at("legend").locator("button")).to_have_text(["inner60", "outer60"])
    explorer.keep("labels")


def test_a_dropped_table_is_coloured_by_the_column_that_is_named(explorer: Explorer) -> None:
    """The page says where to let go; a column of numbers can be the colour instead of a coordinate."""
    explorer.open()
    explorer.drop("dropped.csv", csv(sheet(60), height=list(range(60))).decode())
    explorer.at("color-column").select_option("height")
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_contain_text("dropped.csv 60 rows, 3 columns")
    dataset = explorer.state("dataset")
    assert (dataset["d"], dataset["has_color"]) == (3, True)


def npy(X: np.ndarray) -> bytes:
    """Return an array as a file of numpy."""
    file = io.BytesIO()
    np.save(file, X)
    return file.getvalue()


def parquet(X: np.ndarray) -> bytes:
    """Return an array as a Parquet file with a name for each column."""
    file = io.BytesIO()
    pq.write_table(pa.table({f"v{i}": column for i, column in enumerate(X.T)}), file)
    return file.getvalue()


@pytest.mark.parametrize(("name", "written"), [("array.npy", npy), ("table.parquet", parquet)])
def test_arrays_and_parquet_are_previewed_and_taken(
    explorer: Explorer, name: str, written: Callable[[np.ndarray], bytes]
) -> None:
    """The first value of the file is the first of the preview, and all rows arrive."""
    X = sheet(80)
    explorer.open()
    explorer.choose(name, written(X))
    expect(explorer.at("pending")).to_contain_text("80 rows")
    shown = explorer.at("preview").locator("tbody tr td").first.text_content()
    assert float(shown or "nan") == pytest.approx(X[0, 0], rel=1e-3)
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_contain_text("80 rows, 3 columns")


def test_a_sheet_is_made_by_its_name(explorer: Explorer) -> None:
    """Every sheet that the service makes has a button; its size is asked for."""
    explorer.open()
    info = explorer.page.request.get(f"{explorer.url}/v1/info").json()
    explorer.make("s_curve", 240)
    expect(explorer.at("chosen")).to_contain_text("240 rows, 3 columns")
    explorer.at("change-data").click()
    assert all(explorer.at(f"synthetic-{name}").count() for name in info["manifolds"])
    expect(explorer.at("recent")).to_contain_text("240")


def test_a_hole_in_the_table_is_told_with_row_and_column(explorer: Explorer) -> None:
    """The refusal names the place and what to do; the table stays to be chosen anew, and nothing was made."""
    explorer.expected.append("422")
    lines = csv(sheet(40)).decode().splitlines()
    lines[7] = lines[7].split(",", 1)[0] + ",nan," + lines[7].rsplit(",", 1)[1]
    explorer.open()
    explorer.choose("holes.csv", "\n".join(lines).encode())
    explorer.at("use-file").click()
    problem = explorer.at("problem")
    expect(problem).to_be_visible()
    expect(problem).to_contain_text("row 7, column 2 (y)")
    expect(explorer.at("remedy")).to_be_visible()
    assert explorer.state("dataset") is None
    explorer.keep("refused")
    explorer.at("dismiss").click()
    expect(problem).to_have_count(0)
    explorer.drop("whole.csv", csv(sheet(40)).decode())
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_contain_text("whole.csv 40 rows")


def test_a_file_of_another_kind_is_refused_at_once(explorer: Explorer) -> None:
    """What is no table is not sent: the page says which kinds it reads."""
    explorer.open()
    sent: list[str] = []
    explorer.page.on("request", lambda request: sent.append(request.method))
    explorer.choose("photo.jpg", b"\xff\xd8\xff")
    expect(explorer.at("problem-title")).to_have_text("This file cannot be read")
    expect(explorer.at("remedy")).to_contain_text("CSV")
    assert "POST" not in sent
