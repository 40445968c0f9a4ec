"""Draws: played, gone through, side by side, by scale, and with their spread."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.conftest import until

if TYPE_CHECKING:
    from tests.ui.driver.explorer import Explorer


@pytest.fixture
def drawn(explorer: Explorer, link: str) -> Explorer:
    """A tab with six draws in it."""
    explorer.open(link)
    explorer.wait_drawn()
    return explorer


def test_playing_moves_the_points_until_it_is_paused(drawn: Explorer) -> None:
    """The picture changes and the draw that is named advances; paused, both stand still."""
    before = drawn.wait_still()
    drawn.at("speed").select_option("4")
    drawn.at("play").click()
    expect(drawn.at("play")).to_have_attribute("aria-pressed", "true")
    until(lambda: drawn.state("frame") >= 3)
    assert drawn.seen() != before
    drawn.keep("playing")
    drawn.at("play").click()
    expect(drawn.at("play")).to_have_attribute("aria-pressed", "false")
    after = drawn.wait_still()
    frame = drawn.state("frame")
    drawn.page.wait_for_timeout(700)
    assert (drawn.seen(), drawn.state("frame")) == (after, frame)


def test_playing_goes_round(drawn: Explorer) -> None:
    """After the last draw comes the first."""
    drawn.at("scrub").fill("6")
    drawn.at("speed").select_option("4")
    drawn.at("play").click()
    expect(drawn.at("frame-name")).to_contain_text("Draw 0")


def test_the_slider_goes_to_any_draw_and_the_link_follows(drawn: Explorer) -> None:
    """Each place has its own picture, the same whenever one comes back; the address names it."""
    pictures = []
    for place in ("2", "5", "2"):
        drawn.at("scrub").fill(place)
        expect(drawn.at("frame-name")).to_contain_text(f"Draw {int(place) - 1}")
        pictures.append(drawn.places())
    assert pictures[0] == pictures[2] != pictures[1]
    assert "frame=2" in drawn.page.url
    drawn.at("next").click()
    expect(drawn.at("frame-name")).to_contain_text("Draw 2")
    drawn.at("previous").click()
    expect(drawn.at("frame-name")).to_contain_text("Draw 1")


def test_points_move_and_do_not_flip(drawn: Explorer) -> None:
    """From draw to draw a point stays nearer to its own place than to the place it would have in a mirror."""
    frames = []
    for place in ("0", "1", "2", "3"):
        drawn.at("scrub").fill(place)
        expect(drawn.at("scrub")).to_have_value(place)
        frames.append(drawn.places())
    stage = drawn.at("stage").bounding_box()
    assert stage
    middle = stage["x"] + stage["width"] / 2
    for frame in frames[1:]:
        kept = sum(abs(a[0] - b[0]) for a, b in zip(frames[0], frame, strict=True))
        mirrored = sum(abs(2 * middle - a[0] - b[0]) for a, b in zip(frames[0], frame, strict=True))
        assert 0 < kept < mirrored / 2


def test_reference_and_consensus_are_one_click_away(drawn: Explorer) -> None:
    """The average of all draws, and the embedding of the fit itself."""
    drawn.at("scrub").fill("4")
    drawn.at("show-consensus").click()
    expect(drawn.at("frame-name")).to_contain_text("Consensus")
    drawn.keep("consensus")
    drawn.at("show-reference").click()
    expect(drawn.at("frame-name")).to_contain_text("Reference")
    assert drawn.state("frame") == 0


def test_draws_side_by_side_lead_to_each(drawn: Explorer) -> None:
    """A small picture a draw and one of the reference; a click shows it large."""
    drawn.at("tab-grid").click()
    expect(drawn.at("thumb")).to_have_count(7)
    drawn.keep("grid")
    drawn.at("thumb").nth(4).locator("canvas").click()
    expect(drawn.at("frame-name")).to_contain_text("Draw 3")


def test_the_grid_of_scales_loosens_from_row_to_row(drawn: Explorer) -> None:
    """Four draws at each of five scales; at the smallest all four are nearly one picture."""
    drawn.at("tab-scales").click()
    expect(drawn.at("scale-grid").get_by_test_id("thumb")).to_have_count(20, timeout=30_000)
    groups = drawn.at("scale-grid").get_by_role("group")
    names = [group.get_attribute("aria-label") for group in groups.all()]
    assert names == [f"Scale {scale}" for scale in ("0.01", "0.1", "1", "5", "10")]
    assert drawn.state("work") is None
    assert drawn.page.evaluate(APART) == sorted(drawn.page.evaluate(APART))
    drawn.keep("scales", whole=True)


# Mean distance of the four draws of each scale from their own mean.
APART = """async () => {
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
def test_the_spread_is_seen_as_a_shape(drawn: Explorer, shape: str) -> None:
    """Around the points, with a sentence that says what it means."""
    before = drawn.wait_still()
    drawn.at(f"shape-{shape}").click()
    expect(drawn.at(f"shape-{shape}")).to_have_attribute("aria-pressed", "true")
    expect(drawn.at("inspector")).to_contain_text("Around the average place of a point")
    assert drawn.wait_still() != before
    drawn.keep(f"shape-{shape}")


def test_the_spread_is_seen_as_colour_and_as_trails(drawn: Explorer) -> None:
    """The legend has the smallest and the largest spread; trails lie over the points."""
    before = drawn.wait_still()
    drawn.at("color").select_option("spread")
    expect(drawn.at("legend")).to_have_text(re.compile(r"0?\.\d+.*\d"))
    colored = drawn.wait_still()
    assert colored != before
    drawn.at("trails").check()
    assert drawn.wait_still() != colored
    drawn.keep("trails")


def test_another_seed_gives_other_draws_of_the_same_fit(drawn: Explorer) -> None:
    """Draw again: the same posterior, the seed of the form, another picture."""
    posterior = drawn.state("posterior")["id"]
    drawn.at("scrub").fill("1")
    first = drawn.places()
    drawn.at("draws-seed").fill("7")
    drawn.at("draw-again").click()
    until(lambda: (drawn.state("draws") or {}).get("seed") == 7)
    drawn.wait_drawn()
    drawn.at("scrub").fill("1")
    until(lambda: drawn.state("frame") == 1)
    assert drawn.places() != first
    assert drawn.state("posterior")["id"] == posterior
    assert "seed=7" in drawn.page.url
