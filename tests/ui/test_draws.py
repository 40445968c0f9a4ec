"""Draws: animation, slider, grids, scales and spread."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.conftest import until

if TYPE_CHECKING:
    from tests.ui.driver.explorer import Explorer


@pytest.fixture
def tab_with_draws(explorer: Explorer, link: str) -> Explorer:
    """Return a tab with six draws."""
    explorer.open(link)
    explorer.wait_drawn()
    return explorer


def test_playing_moves_the_points_until_it_is_paused(tab_with_draws: Explorer) -> None:
    """The picture and the draw number change during the animation, and stop with it."""
    before = tab_with_draws.wait_still()
    tab_with_draws.at("speed").select_option("4")
    tab_with_draws.at("play").click()
    expect(tab_with_draws.at("play")).to_have_attribute("aria-pressed", "true")
    until(lambda: tab_with_draws.state("frame") >= 3)
    assert tab_with_draws.screenshot() != before
    tab_with_draws.save_picture("playing")
    tab_with_draws.at("play").click()
    expect(tab_with_draws.at("play")).to_have_attribute("aria-pressed", "false")
    after = tab_with_draws.wait_still()
    frame = tab_with_draws.state("frame")
    tab_with_draws.page.wait_for_timeout(700)
    assert (tab_with_draws.screenshot(), tab_with_draws.state("frame")) == (after, frame)


def test_the_animation_repeats(tab_with_draws: Explorer) -> None:
    """The first draw follows the last one."""
    tab_with_draws.at("scrub").fill("6")
    tab_with_draws.at("speed").select_option("4")
    tab_with_draws.at("play").click()
    expect(tab_with_draws.at("frame-name")).to_contain_text("Draw 0")


def test_the_slider_goes_to_any_draw_and_the_link_follows(tab_with_draws: Explorer) -> None:
    """Each position has a reproducible picture, and the address contains the position."""
    pictures = []
    for place in ("2", "5", "2"):
        tab_with_draws.at("scrub").fill(place)
        expect(tab_with_draws.at("frame-name")).to_contain_text(f"Draw {int(place) - 1}")
        pictures.append(tab_with_draws.places())
    assert pictures[0] == pictures[2] != pictures[1]
    assert "frame=2" in tab_with_draws.page.url
    tab_with_draws.at("next").click()
    expect(tab_with_draws.at("frame-name")).to_contain_text("Draw 2")
    tab_with_draws.at("previous").click()
    expect(tab_with_draws.at("frame-name")).to_contain_text("Draw 1")


def test_points_move_and_do_not_flip(tab_with_draws: Explorer) -> None:
    """Between draws a point stays nearer to its position than to its mirror image."""
    frames = []
    for place in ("0", "1", "2", "3"):
        tab_with_draws.at("scrub").fill(place)
        expect(tab_with_draws.at("scrub")).to_have_value(place)
        frames.append(tab_with_draws.places())
    stage = tab_with_draws.at("stage").bounding_box()
    assert stage
    middle = stage["x"] + stage["width"] / 2
    for frame in frames[1:]:
        distance = sum(abs(a[0] - b[0]) for a, b in zip(frames[0], frame, strict=True))
        mirrored_distance = sum(abs(2 * middle - a[0] - b[0]) for a, b in zip(frames[0], frame, strict=True))
        assert 0 < distance < mirrored_distance / 2


def test_reference_and_consensus_are_one_click_away(tab_with_draws: Explorer) -> None:
    """One click shows the mean of all draws, another the reference embedding."""
    tab_with_draws.at("scrub").fill("4")
    tab_with_draws.at("show-consensus").click()
    expect(tab_with_draws.at("frame-name")).to_contain_text("Consensus")
    tab_with_draws.save_picture("consensus")
    tab_with_draws.at("show-reference").click()
    expect(tab_with_draws.at("frame-name")).to_contain_text("Reference")
    assert tab_with_draws.state("frame") == 0


def test_a_thumbnail_opens_its_draw(tab_with_draws: Explorer) -> None:
    """The grid has one thumbnail per draw and one of the reference; a click enlarges it."""
    tab_with_draws.at("tab-grid").click()
    expect(tab_with_draws.at("thumb")).to_have_count(7)
    tab_with_draws.save_picture("grid")
    tab_with_draws.at("thumb").nth(4).locator("canvas").click()
    expect(tab_with_draws.at("frame-name")).to_contain_text("Draw 3")


def test_the_grid_of_scales_spreads_from_row_to_row(tab_with_draws: Explorer) -> None:
    """Four draws at each of five scales; their spread grows with the scale."""
    tab_with_draws.at("tab-scales").click()
    expect(tab_with_draws.at("scale-grid").get_by_test_id("thumb")).to_have_count(20, timeout=30_000)
    groups = tab_with_draws.at("scale-grid").get_by_role("group")
    names = [group.get_attribute("aria-label") for group in groups.all()]
    assert names == [f"Scale {scale}" for scale in ("0.01", "0.1", "1", "5", "10")]
    assert tab_with_draws.state("work") is None
    assert tab_with_draws.page.evaluate(SPREAD_BY_SCALE) == sorted(tab_with_draws.page.evaluate(SPREAD_BY_SCALE))
    tab_with_draws.save_picture("scales", whole=True)


# Squared distance of the four draws of each scale from their mean.
SPREAD_BY_SCALE = """async () => {
    const { scales } = (await import('/explorer/js/store.js')).state;
    const size = scales.n * scales.p;
    return scales.scales.map((_, row) => {
        let sum = 0;
        for (let at = 0; at < size; at++) {
            const four = [0, 1, 2, 3].map((i) => scales.data[(row * 4 + i) * size + at]);
            const mean = four.reduce((a, b) => a + b) / 4;
            sum += four.reduce((a, b) => a + (b - mean) ** 2, 0);
        }
        return sum;
    });
}"""


@pytest.mark.parametrize("shape", ["halo", "ellipse"])
def test_the_spread_is_shown_as_a_shape(tab_with_draws: Explorer, shape: str) -> None:
    """A shape surrounds the points, with a sentence that explains it."""
    before = tab_with_draws.wait_still()
    tab_with_draws.at(f"shape-{shape}").click()
    expect(tab_with_draws.at(f"shape-{shape}")).to_have_attribute("aria-pressed", "true")
    expect(tab_with_draws.at("inspector")).to_contain_text("Around the average place of a point")
    assert tab_with_draws.wait_still() != before
    tab_with_draws.save_picture(f"shape-{shape}")


def test_the_spread_is_shown_as_color_and_as_trails(tab_with_draws: Explorer) -> None:
    """The legend has the smallest and largest spread; trails are drawn over the points."""
    before = tab_with_draws.wait_still()
    tab_with_draws.at("color").select_option("spread")
    expect(tab_with_draws.at("legend")).to_have_text(re.compile(r"0?\.\d+.*\d"))
    colored = tab_with_draws.wait_still()
    assert colored != before
    tab_with_draws.at("trails").check()
    assert tab_with_draws.wait_still() != colored
    tab_with_draws.save_picture("trails")


def test_another_seed_gives_other_draws_of_the_same_fit(tab_with_draws: Explorer) -> None:
    """A new seed gives another picture of the same posterior."""
    posterior = tab_with_draws.state("posterior")["id"]
    tab_with_draws.at("scrub").fill("1")
    first = tab_with_draws.places()
    tab_with_draws.at("draws-seed").fill("7")
    tab_with_draws.at("draw-again").click()
    until(lambda: (tab_with_draws.state("draws") or {}).get("seed") == 7)
    tab_with_draws.wait_drawn()
    tab_with_draws.at("scrub").fill("1")
    until(lambda: tab_with_draws.state("frame") == 1)
    assert tab_with_draws.places() != first
    assert tab_with_draws.state("posterior")["id"] == posterior
    assert "seed=7" in tab_with_draws.page.url
