"""Histograms of the columns: they filter the map and each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.conftest import until
from tests.ui.driver.tables import csv, sheet

if TYPE_CHECKING:
    from tests.ui.driver.explorer import Explorer

N = 120
KINDS = ["wood", "iron", "iron"] * (N // 3)
AGES = [i % 40 for i in range(N)]
# Rows that are not dimmed.
BRIGHT = """async () => {
    const mask = (await import('/explorer/js/actions/selection.js')).brightRows();
    return mask && Array.from(mask.keys()).filter((row) => mask[row]);
}"""


@pytest.fixture
def table(explorer: Explorer) -> Explorer:
    """Return a tab with a map of a table with words and whole numbers, and the panel of filters open."""
    explorer.open()
    explorer.choose_file("parts.csv", csv(sheet(N), kind=KINDS, age=AGES))
    explorer.give_role("age", "ignore")
    explorer.show_pca()
    explorer.at("filters").locator("summary").click()
    expect(explorer.at("histogram-age")).to_be_visible()
    return explorer


def counts(explorer: Explorer) -> list[int]:
    """Return the numbers beside the bars of the words."""
    return [int(text.split("\n")[-1]) for text in explorer.at("bar-kind").all_inner_texts()]


def test_bars_filter_the_map_and_each_other(table: Explorer) -> None:
    """A word and a range are both required; each histogram counts the rows that pass the other filters."""
    assert counts(table) == [80, 40]
    table.at("bar-kind").last.click()
    expect(table.at("passing")).to_contain_text("40 of 120 rows pass")
    assert counts(table) == [80, 40]  # of the other columns there is no filter
    assert table.page.evaluate(BRIGHT) == list(range(0, N, 3))
    table.at("from-age").focus()
    for _ in range(10):  # bins of two years
        table.page.keyboard.press("ArrowRight")
    old = [row for row in range(N) if AGES[row] >= 20]
    both = [row for row in old if KINDS[row] == "wood"]
    expect(table.at("range-age")).to_have_text("20 to 39")
    expect(table.at("passing")).to_contain_text(f"{len(both)} of 120 rows pass")
    assert counts(table) == [len(old) - len(both), len(both)]
    assert table.page.evaluate(BRIGHT) == both
    table.at("select-passing").click()
    expect(table.at("selection")).to_contain_text(f"{len(both)} selected rows")
    table.page.keyboard.press("Escape")
    table.at("unfilter-age").click()
    expect(table.at("passing")).to_contain_text("40 of 120 rows pass")
    table.at("clear-filters").click()
    expect(table.at("passing")).to_have_count(0)
    assert table.page.evaluate(BRIGHT) is None


def test_a_drag_over_the_bars_is_a_range(table: Explorer) -> None:
    """The bins under the drag pass; the map dims the other rows."""
    x = sheet(N)[:, 0].astype(np.float32)
    edges = np.linspace(x.min(), x.max(), 21)
    box = table.at("histogram-x").locator("svg").bounding_box()
    assert box
    whole = table.wait_still()
    table.page.mouse.move(box["x"] + box["width"] * 0.26, box["y"] + 10)
    table.page.mouse.down()
    table.page.mouse.move(box["x"] + box["width"] * 0.44, box["y"] + 10, steps=5)
    table.page.mouse.up()
    inside = int(((x >= edges[5]) & (x < edges[9])).sum())
    expect(table.at("passing")).to_contain_text(f"{inside} of 120 rows pass")
    table.page.mouse.move(5, 5)
    table.wait_changed(whole)


def test_filters_outlast_a_reload(table: Explorer) -> None:
    """Filters are in the address; a filter of a column that another browser lacks is named there."""
    table.at("bar-kind").first.click()
    table.at("to-age").focus()
    table.page.keyboard.press("ArrowLeft")
    expect(table.at("range-age")).to_have_text("0 to 37")
    expect(table.at("passing")).to_contain_text("76 of 120 rows pass")
    passing = table.at("passing").inner_text()
    until(lambda: "age" in table.page.evaluate("decodeURIComponent(location.href)"))
    link = table.page.url
    table.page.reload()
    expect(table.at("passing")).to_have_text(passing, timeout=60_000)
    expect(table.at("bar-kind").first).to_have_attribute("aria-pressed", "true")
    table.page.evaluate("sessionStorage.clear()")
    table.page.goto("about:blank")
    table.page.goto(link)
    expect(table.at("passing")).to_contain_text("does not have the column: age", timeout=60_000)
    expect(table.at("passing")).to_contain_text("80 of 120 rows pass")
