"""The legend of classes: colors and shapes that stay apart, a list that searches, isolates and hides."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.conftest import until
from tests.ui.driver.tables import csv, sheet

if TYPE_CHECKING:
    from tests.ui.driver.explorer import Explorer

GROUPS = 60
SIZE = 4

# Linear sRGB as seen without green or red cones (Machado, Oliveira, Fernandes 2009, at full severity).
DEUTERANOPIA = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
PROTANOPIA = [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
WHITE = [0.95047, 1.0, 1.08883]
DISTINCT = 23.0  # CIE 1976; 2.3 is just noticed

PLACES = """async () => {
    const { onStage } = await import('/explorer/js/views/stage.js');
    return Array.from(onStage.xy).filter((_, i) => i % 2 === 0);
}"""
LOOK = """async () => {
    const { onStage: { look } } = await import('/explorer/js/views/stage.js');
    return { palette: look.palette, shapes: look.shapes, index: Array.from(look.index) };
}"""


def lab(color: str, vision: list[list[float]]) -> np.ndarray:
    """Return L*, a*, b* of a color #rrggbb as seen by a person with this matrix of cone responses."""
    gamma = np.array([int(color[start : start + 2], 16) for start in (1, 3, 5)]) / 255
    linear = np.where(gamma <= 0.04045, gamma / 12.92, ((gamma + 0.055) / 1.055) ** 2.4)
    t = np.array(XYZ) @ np.clip(np.array(vision) @ linear, 0, 1) / WHITE
    x, y, z = np.where(t > 216 / 24389, np.cbrt(t), (24389 / 27 * t + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.fixture
def sixty(explorer: Explorer) -> Explorer:
    """Return a tab with the draws of sixty groups."""
    names = [f"kind {row // SIZE}" for row in range(GROUPS * SIZE)]
    explorer.open()
    explorer.upload("kinds.csv", csv(sheet(GROUPS * SIZE), kind=names))
    explorer.fit(count=3)
    return explorer


def shown(explorer: Explorer) -> list[int]:
    """Return the numbers of the rows that the picture shows."""
    return [row for row, x in enumerate(explorer.page.evaluate(PLACES)) if abs(x) < 2]


@pytest.mark.parametrize("vision", [np.eye(3).tolist(), DEUTERANOPIA, PROTANOPIA], ids=["usual", "deutan", "protan"])
def test_ten_classes_stay_apart_for_all_eyes(explorer: Explorer, vision: list[list[float]]) -> None:
    """The least difference of two of the ten colors is ten times what is just noticed."""
    explorer.open()
    palette = explorer.page.evaluate("async () => (await import('/explorer/js/lib/palettes.js')).classes(10)")
    seen = [lab(color, vision) for color in palette]
    assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > DISTINCT


def test_sixty_groups_differ_in_color_or_shape(sixty: Explorer) -> None:
    """Each group has its own pair of a color and a shape, which the legend shows, whatever its stability."""
    look = sixty.page.evaluate(LOOK)
    assert len(set(zip(look["palette"], look["shapes"], strict=True))) == GROUPS
    assert [len(set(look["index"][i : i + SIZE])) for i in range(0, GROUPS * SIZE, SIZE)] == [1] * GROUPS
    swatches = sixty.at("legend").locator(".swatch")
    assert [swatches.nth(i).get_attribute("data-shape") for i in (0, 10, 59)] == ["0", "1", "5"]


def test_the_legend_searches_isolates_and_hides(sixty: Explorer) -> None:
    """A box hides its group, “only” all others; All and None apply to the groups that the search finds."""
    boxes = sixty.at("show-class")
    expect(boxes).to_have_count(GROUPS)
    sixty.at("find-class").fill("KIND 3")
    expect(boxes).to_have_count(11)
    sixty.at("only-class").nth(1).click()
    until(lambda: shown(sixty) == list(range(120, 124)))
    boxes.nth(0).check()
    until(lambda: shown(sixty) == [*range(12, 16), *range(120, 124)])
    sixty.at("show-all").click()
    until(lambda: len(shown(sixty)) == 11 * SIZE)
    sixty.at("find-class").fill("")
    sixty.at("show-all").click()
    until(lambda: len(shown(sixty)) == GROUPS * SIZE)
    boxes.nth(0).uncheck()
    until(lambda: shown(sixty)[0] == SIZE)
    sixty.at("tab-grid").click()
    sixty.at("tab-draws").click()
    until(lambda: shown(sixty)[0] == SIZE)
    sixty.at("color").select_option("row")
    until(lambda: len(shown(sixty)) == GROUPS * SIZE)


def test_the_legend_of_a_stage_scrolls(sixty: Explorer) -> None:
    """A long legend stays within the stage, and its last group can be reached by scrolling and selected."""
    stage, legend = sixty.box("stage"), sixty.page.locator(".stage-legend").bounding_box()
    assert legend
    assert stage["y"] < legend["y"] < legend["y"] + legend["height"] <= stage["y"] + stage["height"]
    sixty.at("legend").locator(".class").last.click()
    expect(sixty.at("selected")).to_contain_text("4 points selected")


def test_a_column_without_a_name_has_its_number(explorer: Explorer) -> None:
    """A column with an empty name is offered as a color under its number."""
    explorer.open()
    rows = np.random.default_rng(0).standard_normal((60, 3)).round(3)
    explorer.upload("unnamed.csv", "\n".join([",x,y", *(",".join(map(str, row)) for row in rows)]).encode())
    explorer.embed("pca")
    expect(explorer.at("color").locator("option:checked")).to_have_text("Column 1", timeout=60_000)
