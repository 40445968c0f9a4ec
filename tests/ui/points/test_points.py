"""Points: details of one point, selections in all views, and large data sets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.conftest import until
from tests.ui.driver.tables import csv, sheet

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.ui.driver.explorer import Explorer, Tab

SELECTED = "async () => Array.from((await import('/explorer/js/store.js')).state.selection.list)"
EDGE = 4  # pixels, tolerance of the simplified lasso, and radius of a dot


@pytest.fixture(params=["webgl", "flat"])
def tab_with_draws(request: pytest.FixtureRequest, tab: Tab, explorer: Explorer, link: str) -> Explorer:
    """Return a tab with six draws, with and without WebGL."""
    explorer.open(link.replace("/#", f"/?plot={request.param}#"))
    explorer.wait_drawn()
    kind = {"webgl": "webgl", "flat": "canvas"}[request.param]
    expect(explorer.at("plot")).to_have_attribute("data-kind", kind)
    return explorer


def most_isolated(places: list[list[float]]) -> int:
    """Return the row with the largest distance to its nearest neighbor on the screen."""
    distances = [
        min((x - u) ** 2 + (y - v) ** 2 for j, (u, v) in enumerate(places) if j != i) for i, (x, y) in enumerate(places)
    ]
    return distances.index(max(distances))


def draw_lasso(explorer: Explorer, element: Locator, *, shift: bool) -> None:
    """Draw a lasso around the left half of an element, with Shift held down if `shift`."""
    element.scroll_into_view_if_needed()
    box = element.bounding_box()
    assert box
    corners = [(0.03, 0.03), (0.5, 0.03), (0.5, 0.97), (0.03, 0.97), (0.03, 0.03)]
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners]
    if shift:
        explorer.page.keyboard.down("Shift")
    explorer.page.mouse.move(*places[0])
    explorer.page.mouse.down()
    for place in places[1:]:
        explorer.page.mouse.move(*place, steps=12)
    explorer.page.mouse.up()
    if shift:
        explorer.page.keyboard.up("Shift")


def test_hover_shows_row_neighbors_and_stability(tab_with_draws: Explorer) -> None:
    """Tooltip and panel describe the point; the tooltip disappears away from the points."""
    places = tab_with_draws.places()
    row = most_isolated(places)
    tab_with_draws.page.mouse.move(places[row][0] + 40, places[row][1] + 40)
    tab_with_draws.page.mouse.move(*places[row], steps=4)
    expect(tab_with_draws.at("tip")).to_contain_text(f"Row {row}")
    point = tab_with_draws.at("point")
    expect(point.locator("h2")).to_have_text(f"Row {row}")
    expect(tab_with_draws.at("point-neighbors").locator("button")).to_have_count(8)
    expect(tab_with_draws.at("point-stability")).to_have_text(re.compile(r"\d+\s?% of its neighbors stay"))
    tab_with_draws.at("theme").hover()
    expect(tab_with_draws.at("tip")).to_have_count(0)


def test_a_point_shows_its_places_in_all_draws(tab_with_draws: Explorer) -> None:
    """A selected point has one dot for its place in each of the six draws."""
    row = tab_with_draws.page.evaluate(FARTHEST)
    dots = []
    for draw in range(1, 7):
        tab_with_draws.at("scrub").fill(str(draw))
        dots.append(tab_with_draws.places()[row])
    stage = tab_with_draws.box("stage")
    tab_with_draws.find("row", str(row))
    tab_with_draws.wait_still()
    inside = [
        [x - stage["x"], y - stage["y"]]
        for x, y in dots
        if EDGE < x - stage["x"] < stage["width"] - EDGE and EDGE < y - stage["y"] < stage["height"] - EDGE
    ]
    assert inside
    assert all(tab_with_draws.page.evaluate(DOT, place) for place in inside)


# The row with the widest spread.
FARTHEST = """async () => {
    const { spread } = (await import('/explorer/js/store.js')).state.summary;
    return spread.indexOf(Math.max(...spread));
}"""

# Whether the overlay has ink at a place of the stage.
DOT = """async ([x, y]) => {
    const { onStage } = await import('/explorer/js/views/stage.js');
    return onStage.overlay.getContext('2d').getImageData(Math.round(x), Math.round(y), 1, 1).data[3] > 100;
}"""


def test_the_least_certain_rows_are_listed_and_selected(tab_with_draws: Explorer) -> None:
    """The panel lists the twenty rows with the least stability; a click selects one, a button all of them."""
    stability = tab_with_draws.stability()
    rows = tab_with_draws.at("least-certain").locator("li button")
    expect(rows).to_have_count(20)
    matches = [re.match(r"Row (\d+)\s+(\d+)%", text) for text in rows.all_inner_texts()]
    assert all(matches)
    shares = [stability[int(match[1])] for match in matches if match]
    assert shares == sorted(stability)[:20]
    assert [int(match[2]) for match in matches if match] == [int(100 * share + 0.5) for share in shares]
    rows.nth(3).click()
    assert matches[3]
    expect(tab_with_draws.at("point").locator("h2")).to_have_text(f"Row {matches[3][1]}")
    tab_with_draws.at("select-least").click()
    expect(tab_with_draws.at("selected")).to_contain_text("20 points selected")


def test_a_selection_in_the_large_view_is_in_all_views(tab_with_draws: Explorer) -> None:
    """A lasso with Shift selects points; the panel counts them, and all thumbnails fade the others."""
    tab_with_draws.at("tab-grid").click()
    whole = tab_with_draws.wait_still("thumb")
    tab_with_draws.at("tab-draws").click()
    places, stage = tab_with_draws.places(), tab_with_draws.box("stage")
    tab_with_draws.page.mouse.move(5, 5)
    draw_lasso(tab_with_draws, tab_with_draws.at("stage"), shift=True)
    expect(tab_with_draws.at("selected")).to_contain_text("points selected")
    line = stage["x"] + stage["width"] / 2
    selected_x = {row: places[row][0] for row in tab_with_draws.page.evaluate(SELECTED)}
    sure = {row for row, (x, _) in enumerate(places) if x < line - EDGE}
    assert len(sure) > 20
    assert sure <= selected_x.keys()
    assert max(selected_x.values()) < line + EDGE
    tab_with_draws.at("tab-grid").click()
    faded = tab_with_draws.wait_still("thumb")
    assert faded != whole
    tab_with_draws.page.keyboard.press("Escape")
    expect(tab_with_draws.at("selected")).to_have_count(0)
    until(lambda: tab_with_draws.screenshot("thumb") != faded)


def test_a_selection_in_a_thumbnail_is_in_all_views(tab_with_draws: Explorer) -> None:
    """A lasso in one thumbnail selects the same points in all views."""
    tab_with_draws.at("tab-grid").click()
    draw_lasso(tab_with_draws, tab_with_draws.at("thumb").nth(2).locator("canvas"), shift=False)
    expect(tab_with_draws.at("selected")).to_contain_text("points selected")
    count = len(tab_with_draws.page.evaluate(SELECTED))
    assert 0 < count < 150
    tab_with_draws.at("tab-draws").click()
    expect(tab_with_draws.at("selected")).to_contain_text(f"{count} points selected")
    chosen = tab_with_draws.wait_still()
    tab_with_draws.at("clear-selection").click()
    expect(tab_with_draws.at("clear-selection")).to_have_count(0)
    until(lambda: tab_with_draws.screenshot() != chosen)


def test_a_selected_point_is_linked_with_its_neighbors(tab_with_draws: Explorer) -> None:
    """A click draws a line to each of its neighbors, also when the pointer has left; the panel leads to each."""
    places = tab_with_draws.places()
    row = most_isolated(places)
    tab_with_draws.page.mouse.move(places[row][0] + 40, places[row][1] + 40)
    tab_with_draws.page.mouse.move(*places[row], steps=4)
    expect(tab_with_draws.at("tip")).to_contain_text(f"Row {row}")
    tab_with_draws.page.mouse.click(*places[row])
    expect(tab_with_draws.at("point").locator("h2")).to_have_text(f"Row {row}")
    tab_with_draws.at("theme").hover()
    expect(tab_with_draws.at("tip")).to_have_count(0)
    linked = tab_with_draws.wait_still()
    rows = [int(text) for text in tab_with_draws.at("point-neighbors").locator("button").all_text_contents()]
    assert len(rows) == 8
    xy = np.array(tab_with_draws.page.evaluate(PLACES)).reshape(-1, 2)
    middles = [((xy[row] + xy[other]) / 2).tolist() for other in rows]
    assert tab_with_draws.has_ink(*middles, around=1)
    tab_with_draws.page.keyboard.press("Escape")
    until(lambda: tab_with_draws.screenshot() != linked)
    assert not any(tab_with_draws.has_ink(middle, around=1) for middle in middles)
    tab_with_draws.find("row", str(row))
    tab_with_draws.at("point-neighbors").locator("button").first.click()
    expect(tab_with_draws.at("point").locator("h2")).to_have_text(f"Row {rows[0]}")


PLACES = "async () => Array.from((await import('/explorer/js/views/stage.js')).onStage.xy)"  # in the plot


def test_rows_are_found_by_label(explorer: Explorer) -> None:
    """Search lists equal labels first, then labels that contain the text; a text without a row is reported."""
    explorer.open()
    explorer.upload("roll.csv", csv(sheet(60), kind=["red", "dark red", "blue"] * 20))
    explorer.fit(count=2)
    for text, rows in {"Red": range(0, 60, 3), "dark": range(1, 60, 3)}.items():
        explorer.find("label", text)
        expect(explorer.at("selected")).to_contain_text("20 points selected")
        assert explorer.page.evaluate(SELECTED) == list(rows)
    explorer.find("label", "green")
    expect(explorer.at("not-found")).to_have_text("No row has “green”.")
    expect(explorer.at("selected")).to_have_count(0)


@pytest.mark.parametrize("delimiter", ["|", " "])
def test_columns_that_are_left_out_are_read_as_the_service_reads_them(explorer: Explorer, delimiter: str) -> None:
    """Also if the first line names the delimiter, or if cells are separated by blanks."""
    table = csv(sheet(40), kind=["a", "b"] * 20, place=["north", "south", "east", "west"] * 10)
    text = table.decode().replace(",", delimiter)
    explorer.open()
    explorer.upload("roll.csv", ("sep=|\n" * (delimiter == "|") + text).encode())
    explorer.fit(count=2)
    explorer.at("color").select_option("place")
    expect(explorer.at("legend").locator(".class")).to_have_text(["east10", "north10", "south10", "west10"])


def test_further_columns_color_the_points_and_are_searched(explorer: Explorer) -> None:
    """Columns that are left out at the upload, and those of another file, can be chosen; a refresh keeps them."""
    X = sheet(40)
    explorer.open()
    explorer.upload("roll.csv", csv(X, kind=["a", "b"] * 20, place=["north", "south", "east", "west"] * 10))
    explorer.fit(count=2)
    explorer.at("color").select_option("place")
    expect(explorer.at("legend").locator(".class")).to_have_text(["east10", "north10", "south10", "west10"])
    rows = [f'"a {i % 5}, quoted";{i * 0.5}' for i in range(40)]
    explorer.at("add-columns").set_input_files(
        {"name": "more.csv", "mimeType": "", "buffer": "\n".join(["team;score", *rows]).encode()}
    )
    expect(explorer.at("color")).to_have_value("further:team")
    expect(explorer.at("legend").locator(".class")).to_have_count(5)
    explorer.at("color").select_option("score")
    expect(explorer.at("legend")).to_contain_text("19.5")
    explorer.find("label", "north")
    assert explorer.page.evaluate(SELECTED) == list(range(0, 40, 4))
    explorer.page.wait_for_url("**color=further%3Ascore**")  # the address follows a moment later
    explorer.reload_draws()
    expect(explorer.at("color")).to_have_value("further:score")
    explorer.at("add-columns").set_input_files({"name": "short.csv", "mimeType": "", "buffer": b"team\nx\n"})
    expect(explorer.at("problem")).to_contain_text("short.csv has 1 rows below its header; the data set has 40.")
