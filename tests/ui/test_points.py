"""Points: looked at one by one, and selected in one view for all."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import httpx
import pytest
from playwright.sync_api import expect

from tests.conftest import until
from tests.system.conftest import fitted, synthetic
from tests.ui.driver.explorer import OUT

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from playwright.sync_api import Locator

    from tests.system.conftest import Up
    from tests.ui.driver.explorer import Explorer

SELECTED = "async () => Array.from((await import('/explorer/js/store.js')).state.selection.list)"
EDGE = 4  # pixels: a line by hand is straightened
CROWD_POINTS = 100_000
RATE_SECONDS = 3
# Least frames a second while playing, far below what is measured, since other work may have the processors. The plain
# canvas: 52 to 60 on two busy cores. WebGL has the screen's rate on a graphics card; in software it had 1 to 6.
LEAST_RATE = {"flat": 5, "webgl": 0.2}


@pytest.fixture(params=["webgl", "flat"])
def drawn(
    request: pytest.FixtureRequest, tab: Callable[..., AbstractContextManager[Explorer]], explorer: Explorer, link: str
) -> Explorer:
    """A tab with six draws in it, on the graphics card and without."""
    explorer.open(link.replace("/#", f"/?plot={request.param}#"))
    explorer.wait_drawn()
    kind = {"webgl": "webgl", "flat": "canvas"}[request.param]
    expect(explorer.at("plot")).to_have_attribute("data-kind", kind)
    return explorer


def loneliest(places: list[list[float]]) -> int:
    """Return the row whose nearest other is furthest away on the screen."""
    distances = [
        min((x - u) ** 2 + (y - v) ** 2 for j, (u, v) in enumerate(places) if j != i) for i, (x, y) in enumerate(places)
    ]
    return distances.index(max(distances))


def around(explorer: Explorer, part: Locator, *, shift: bool) -> None:
    """Draw a line by hand around the left half of a picture."""
    part.scroll_into_view_if_needed()
    box = part.bounding_box()
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


def test_hover_tells_row_neighbours_and_stability(drawn: Explorer) -> None:
    """Next to the pointer and in the panel; away from the points it is gone."""
    places = drawn.places()
    row = loneliest(places)
    drawn.page.mouse.move(places[row][0] + 40, places[row][1] + 40)
    drawn.page.mouse.move(*places[row], steps=4)
    expect(drawn.at("tip")).to_contain_text(f"Row {row + 1}")
    point = drawn.at("point")
    expect(point).to_contain_text(f"Row {row + 1}")
    expect(drawn.at("point-neighbors").locator("button")).to_have_count(8)
    expect(drawn.at("point-stability")).to_have_text(re.compile(r"\d+\s?% of its neighbours stay"))
    drawn.keep("hover")
    drawn.at("method").hover()
    expect(drawn.at("tip")).to_have_count(0)


def test_points_selected_in_the_large_view_are_selected_in_all(drawn: Explorer) -> None:
    """Shift and a line around some: the panel counts them, the others fade in every small picture."""
    drawn.at("tab-grid").click()
    whole = drawn.wait_still("thumb")
    drawn.at("tab-draws").click()
    places, stage = drawn.places(), drawn.at("stage").bounding_box()
    assert stage
    drawn.page.mouse.move(5, 5)
    around(drawn, drawn.at("stage"), shift=True)
    expect(drawn.at("selected")).to_contain_text("points selected")
    drawn.keep("selected")
    line = stage["x"] + stage["width"] / 2
    found = {row: places[row][0] for row in drawn.page.evaluate(SELECTED)}
    sure = {row for row, (x, _) in enumerate(places) if x < line - EDGE}
    assert len(sure) > 20
    assert sure <= found.keys()
    assert max(found.values()) < line + EDGE
    drawn.at("tab-grid").click()
    faded = drawn.wait_still("thumb")
    assert faded != whole
    drawn.keep("selected-grid")
    drawn.page.keyboard.press("Escape")
    expect(drawn.at("selected")).to_have_count(0)
    until(lambda: drawn.seen("thumb") != faded)


def test_points_selected_in_a_small_picture_are_selected_in_all(drawn: Explorer) -> None:
    """A line around some in one draw; the large view and the other draws show the same points."""
    drawn.at("tab-grid").click()
    around(drawn, drawn.at("thumb").nth(2).locator("canvas"), shift=False)
    expect(drawn.at("selected")).to_contain_text("points selected")
    count = len(drawn.page.evaluate(SELECTED))
    assert 0 < count < 150
    drawn.at("tab-draws").click()
    expect(drawn.at("selected")).to_contain_text(f"{count} points selected")
    chosen = drawn.wait_still()
    drawn.at("clear-selection").click()
    expect(drawn.at("clear-selection")).to_have_count(0)
    until(lambda: drawn.seen() != chosen)


def test_a_row_is_found_by_its_number(drawn: Explorer) -> None:
    """Its neighbours are buttons that lead on."""
    drawn.at("find-row").fill("17")
    drawn.at("find-row").press("Enter")
    expect(drawn.at("point")).to_contain_text("Row 17")
    other = drawn.at("point-neighbors").locator("button").first
    number = other.text_content()
    other.click()
    expect(drawn.at("point").locator("h2")).to_have_text(f"Row {number}")


@pytest.fixture(scope="module")
def crowd(up: Up) -> str:
    """The part of a link that names a fit of so many points, and two draws."""
    with httpx.Client(base_url=up.url, timeout=90) as client:
        posterior = fitted(client, synthetic(client, CROWD_POINTS, name="swiss_roll"))
        assert client.post(f"{posterior}/draws?wait=60", json={"count": 2}).is_success
    return f"#posterior={posterior.rsplit('/', 1)[1]}&count=2"


@pytest.mark.parametrize("plot", ["flat", "webgl"])
def test_a_hundred_thousand_points_move_smoothly(explorer: Explorer, crowd: str, plot: str) -> None:
    """The animation runs at the rate that the machine can give, and the points are seen to move."""
    # The spread is left waiting: it would take the processors that are to draw.
    explorer.page.route("**/summary?*", lambda _: None)
    explorer.open(f"/?plot={plot}{crowd}")
    expect(explorer.at("play")).to_be_enabled(timeout=60_000)
    before = explorer.seen()
    explorer.at("play").click()
    until(lambda: explorer.state("frame") > 0)
    rate = explorer.frames_a_second(RATE_SECONDS)
    assert explorer.state("playing")
    assert explorer.seen() != before
    explorer.keep(f"crowd-{plot}")
    with (OUT / "frames.txt").open("a") as result:
        result.write(f"{plot}: {rate:.1f} frames a second, {CROWD_POINTS} points\n")
    assert rate > LEAST_RATE[plot]
