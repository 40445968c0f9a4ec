"""Draws: animation, slider, grid and spread."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest
from playwright.sync_api import expect

from tests.conftest import until
from tests.system.conftest import fit_posterior, synthetic
from tests.ui.driver.tables import csv, sheet

if TYPE_CHECKING:
    from tests.ui.driver.explorer import Explorer


def test_playing_moves_the_points_until_it_is_paused(tab_with_draws: Explorer) -> None:
    """The picture and the draw number change during the animation, and stop with it; the first follows the last."""
    before = tab_with_draws.wait_still()
    tab_with_draws.at("scrub").fill("6")
    tab_with_draws.at("play").click()
    expect(tab_with_draws.at("play")).to_have_attribute("aria-pressed", "true")
    until(lambda: 3 <= tab_with_draws.state("frame") < 6)
    assert tab_with_draws.screenshot() != before
    tab_with_draws.at("play").click()
    expect(tab_with_draws.at("play")).to_have_attribute("aria-pressed", "false")
    after = tab_with_draws.wait_still()
    frame = tab_with_draws.state("frame")
    tab_with_draws.page.wait_for_timeout(700)
    assert (tab_with_draws.screenshot(), tab_with_draws.state("frame")) == (after, frame)


def test_the_slider_goes_to_any_draw_and_the_link_follows(tab_with_draws: Explorer) -> None:
    """Each position has a reproducible picture, and the address contains the position."""
    pictures = []
    for place in ("2", "5", "2"):
        tab_with_draws.at("scrub").fill(place)
        expect(tab_with_draws.at("frame-name")).to_contain_text(f"Draw {int(place) - 1}")
        pictures.append(tab_with_draws.places())
    assert pictures[0] == pictures[2] != pictures[1]
    tab_with_draws.page.wait_for_url("**&frame=2&**")  # the address follows a moment later
    tab_with_draws.at("next").click()
    expect(tab_with_draws.at("frame-name")).to_contain_text("Draw 2")
    tab_with_draws.at("previous").click()
    expect(tab_with_draws.at("frame-name")).to_contain_text("Draw 1")


def test_a_thumbnail_opens_its_draw(tab_with_draws: Explorer) -> None:
    """The grid has one thumbnail per draw and one of the reference; a click enlarges it."""
    tab_with_draws.at("tab-grid").click()
    expect(tab_with_draws.at("thumb")).to_have_count(7)
    tab_with_draws.at("thumb").nth(4).locator("canvas").click()
    expect(tab_with_draws.at("frame-name")).to_contain_text("Draw 3")


def test_the_least_certain_points_have_regions_within_the_view(tab_with_draws: Explorer) -> None:
    """Twenty points have outlines that a sentence explains, all within the picture."""
    before = tab_with_draws.wait_still()
    tab_with_draws.at("shape-ellipse").click()
    expect(tab_with_draws.at("shape-ellipse")).to_have_attribute("aria-pressed", "true")
    expect(tab_with_draws.at("inspector")).to_contain_text("An outline is expected to hold half")
    tab_with_draws.wait_changed(before)
    rows, sides, size = tab_with_draws.page.evaluate(OUTLINES)
    stability = tab_with_draws.stability()
    assert len(rows) == 20
    assert max(stability[row] for row in rows) <= min(np.delete(stability, rows))
    assert np.min(sides) >= 0
    assert (np.max(sides, axis=0) <= size).all()


# The rows with outlines, the corners of their contours in pixels of the stage, and its size.
OUTLINES = """async () => {
    const { state } = await import('/explorer/js/store.js');
    const { onStage } = await import('/explorer/js/views/stage.js');
    const { directionsOf } = await import('/explorer/js/lib/frames.js');
    const { outlinedRows } = await import('/explorer/js/plot/overlay.js');
    const { contourOf, momentsOf } = await import('/explorer/js/plot/spread.js');
    const { draws, axes, turn } = state;
    const screen = onStage.plot.screen();
    const rows = outlinedRows();
    const sides = rows.flatMap((row) => {
        const moments = momentsOf(row, draws, directionsOf(draws.p, axes, turn), onStage.box);
        const { x, y, long, short, angle } = contourOf(moments);
        const across = Math.hypot(long * Math.cos(angle), short * Math.sin(angle));
        const up = Math.hypot(long * Math.sin(angle), short * Math.cos(angle));
        return [-1, 1].map((sign) =>
            [screen.x + screen.sx * (x + sign * across), screen.y + screen.sy * (y + sign * up)]);
    });
    return [rows, sides, [onStage.overlay.clientWidth, onStage.overlay.clientHeight]];
}"""


def test_stable_points_are_large(tab_with_draws: Explorer) -> None:
    """A point is the larger the more of its neighbors stay, as the legend says."""
    expect(tab_with_draws.at("small")).to_have_text("Small: few neighbors stay in another sample")
    stability, level = np.array(tab_with_draws.page.evaluate(LEVELS)).T
    order = np.argsort(stability)
    assert (np.diff(level[order]) >= 0).all()
    assert level[order[-1]] > level[order[0]]
    tab_with_draws.at("color").select_option("stability")
    expect(tab_with_draws.at("small")).to_have_count(0)


# The stability of each row, and its level of sizes.
LEVELS = """async () => {
    const { state } = await import('/explorer/js/store.js');
    const { onStage: { look } } = await import('/explorer/js/views/stage.js');
    return Array.from(state.audit.arrays.stability, (share, row) => [share, look.level[row]]);
}"""


def test_the_headline_is_the_median_of_the_stability(tab_with_draws: Explorer) -> None:
    """It rounds the median of the service's stability, and its tooltip defines the figure."""
    id_ = tab_with_draws.state("posterior")["id"]
    path = f"{tab_with_draws.url}/v1/posteriors/{id_}/summary?n_draws=6&scale=1"
    stability = np.load(io.BytesIO(httpx.get(path, headers={"Accept": "application/zip"}).content))["stability"]
    headline = tab_with_draws.at("headline")
    expect(headline).to_contain_text(f"The median point keeps {100 * np.median(stability):.0f}% of its neighbors")
    tooltip = tab_with_draws.page.get_by_role("tooltip", include_hidden=True).first
    expect(tooltip).to_be_hidden()
    headline.focus()
    expect(tooltip).to_be_visible()
    expect(tooltip).to_contain_text("its 8 nearest points in the consensus")


# Mean, covariance and half axes of a row in pixels, as the overlay draws them, and the dots of all draws.
CONTOUR = """async (row) => {
    const { state } = await import('/explorer/js/store.js');
    const { onStage } = await import('/explorer/js/views/stage.js');
    const { directionsOf, placeOf } = await import('/explorer/js/lib/frames.js');
    const { contourOf, momentsOf } = await import('/explorer/js/plot/spread.js');
    const { draws, axes, turn } = state;
    const directions = directionsOf(draws.p, axes, turn);
    const places = Array.from({ length: draws.count }, (_, i) =>
        placeOf(draws.data.subarray(i * draws.n * draws.p), row, draws.p, directions, onStage.box));
    return { ...contourOf(momentsOf(row, draws, directions, onStage.box)), places };
}"""


def test_contours_share_the_frame_of_the_dots(tab_with_draws: Explorer) -> None:
    """A contour is at the mean of a row's dots, and holds half of the normal distribution with their covariance."""
    row = 31
    dots = []
    for draw in range(1, 7):
        tab_with_draws.at("scrub").fill(str(draw))
        dots.append(tab_with_draws.places()[row])
    pixels = np.array(dots)
    contour = tab_with_draws.page.evaluate(CONTOUR, row)
    places = np.array(contour["places"])
    unit = np.ptp(pixels[:, 0]) / np.ptp(places[:, 0])
    np.testing.assert_allclose(
        (pixels - pixels.mean(axis=0)) * [1, -1], unit * (places - places.mean(axis=0)), atol=0.01
    )
    np.testing.assert_allclose([contour["x"], contour["y"]], places.mean(axis=0), atol=1e-6)
    axes = np.sqrt(2 * np.log(2) * np.linalg.eigvalsh(np.cov(places.T)))
    np.testing.assert_allclose([contour["short"], contour["long"]], axes, rtol=1e-4)


@pytest.mark.parametrize("how", ["hover", "selection"])
def test_a_point_shows_its_contour_on_hover_and_selection(tab_with_draws: Explorer, how: str) -> None:
    """Without any shape of the spread, the overlay gets ink at the ends of the longer axis of the row's contour."""
    tab_with_draws.at("show-reference").click()
    tab_with_draws.wait_still()
    row, places = 31, tab_with_draws.places()
    contour = tab_with_draws.page.evaluate(CONTOUR, row)
    if how == "selection":
        tab_with_draws.find("row", str(row))
    else:
        tab_with_draws.page.mouse.move(places[row][0] + 30, places[row][1] + 30)
        tab_with_draws.page.mouse.move(*places[row], steps=4)
    x, y, angle = contour["x"], contour["y"], contour["angle"]
    across, up = contour["long"] * np.cos(angle), contour["long"] * np.sin(angle)
    ends = [(x + sign * across, y + sign * up) for sign in (1, -1)]
    until(lambda: tab_with_draws.has_ink(*ends, around=2))


def test_the_density_of_each_label_holds_half_of_its_places(explorer: Explorer) -> None:
    """Each label has a contour in its color; half of its places in all draws are within it."""
    explorer.open()
    explorer.upload("roll.csv", csv(sheet(200), kind=["a", "b"] * 100))
    explorer.fit(count=8)
    before = explorer.wait_still()
    explorer.at("shape-density").click()
    explorer.wait_changed(before)
    shares = explorer.page.evaluate(WITHIN)
    assert len(shares) == 2
    assert all(0.45 < share < 0.55 for share in shares), shares


# For each label, the share of the positions in all draws that lie within the rings of its contour.
WITHIN = """async () => {
    const { state } = await import('/explorer/js/store.js');
    const { onStage } = await import('/explorer/js/views/stage.js');
    const { directionsOf, placeOf } = await import('/explorer/js/lib/frames.js');
    const { contoursTraced, densitiesHere } = await import('/explorer/js/plot/overlay.js');
    const { draws, axes } = state;
    const { look } = onStage;
    const directions = directionsOf(2, axes, null);
    densitiesHere({ look, directions });
    await contoursTraced();
    const { box, traced: densities } = densitiesHere({ look, directions });
    const context = document.createElement('canvas').getContext('2d');
    return densities.map(({ index, rings }) => {
        const path = new Path2D(rings.map((ring) => `M${ring.join('L')}Z`).join(''));
        let [inside, all] = [0, 0];
        for (let draw = 0; draw < draws.count; draw++) {
            for (let row = 0; row < draws.n; row++) {
                if (look.index[row] !== index) continue;
                const place = placeOf(draws.data.subarray(draw * draws.n * 2), row, 2, directions, box);
                inside += context.isPointInPath(path, ...place, 'evenodd');
                all++;
            }
        }
        return inside / all;
    });
}"""


def test_three_dimensions_turn_by_dragging_and_by_keys(explorer: Explorer) -> None:
    """The points move as a rigid body, a click still selects, and the button restores the axes."""
    explorer.open_sheet("swiss_roll", 150)
    explorer.at("form-em-n_components").fill("3")
    explorer.fit(count=3)
    explorer.at("show-reference").click()
    explorer.wait_still()
    front = np.array(explorer.places())
    stage = explorer.box("stage")
    middle = (stage["x"] + stage["width"] / 2, stage["y"] + stage["height"] / 2)
    mouse = explorer.page.mouse
    mouse.move(*middle)
    mouse.down()
    mouse.move(middle[0] + 120, middle[1] + 50, steps=6)
    mouse.up()
    u, v = np.array(explorer.state("turn"))
    np.testing.assert_allclose([u @ u, v @ v, u @ v], [1, 1, 0], atol=1e-9)
    side = np.array(explorer.places())
    assert np.abs(side - front).max() > 20
    reference = np.array(explorer.state("reference")).reshape(-1, 3)
    flat = reference @ np.stack([u, -v], axis=1)
    flat, shown = flat - flat.mean(axis=0), side - side.mean(axis=0)
    np.testing.assert_allclose(shown, flat * (np.linalg.norm(shown) / np.linalg.norm(flat)), atol=0.5)
    row = int(np.argmin(side[:, 0]))
    mouse.click(*side[row])
    expect(explorer.at("point").locator("h2")).to_have_text(f"Row {row}")
    explorer.at("straighten").click()
    explorer.page.evaluate("scrollTo(0, 0)")  # who pressed Fit was far down; the picture is at the top
    np.testing.assert_allclose(explorer.places(), front, atol=0.5)
    explorer.at("stage").focus()
    explorer.page.keyboard.press("Alt+ArrowRight")
    assert explorer.state("turn") is not None


def test_the_spread_is_shown_as_color(tab_with_draws: Explorer) -> None:
    """The legend has the smallest and largest spread."""
    before = tab_with_draws.wait_still()
    tab_with_draws.at("color").select_option("spread")
    expect(tab_with_draws.at("legend")).to_have_text(re.compile(r"0?\.\d+.*\d"))
    tab_with_draws.wait_changed(before)


def test_another_seed_gives_other_draws_of_the_same_fit(tab_with_draws: Explorer) -> None:
    """A new seed gives another picture of the same posterior."""
    posterior = tab_with_draws.state("posterior")["id"]
    tab_with_draws.at("scrub").fill("1")
    first = tab_with_draws.places()
    tab_with_draws.open_set_up()
    tab_with_draws.at("draws-seed").fill("7")
    tab_with_draws.at("draw-again").click()
    until(lambda: (tab_with_draws.state("draws") or {}).get("seed") == 7)
    tab_with_draws.wait_drawn()
    tab_with_draws.at("scrub").fill("1")
    until(lambda: tab_with_draws.state("frame") == 1)
    assert tab_with_draws.places() != first
    assert tab_with_draws.state("posterior")["id"] == posterior
    assert "seed=7" in tab_with_draws.page.url


def test_a_doubtful_scale_is_named_beside_it(explorer: Explorer) -> None:
    """With the scale auto the page has a note for each doubt of the calibration, also after a refresh."""
    with httpx.Client(base_url=explorer.url, timeout=60) as client:
        posterior = fit_posterior(client, synthetic(client, 320, name="swiss_roll", seed=13), n_neighbors=10)
        job = client.post(f"{posterior}/calibration?wait=30", json={}).json()
        notes = client.get(f"/v1/jobs/{job['id']}/result").json()["notes"]
    assert notes, "choose another example: this test needs a doubtful scale"
    explorer.open(f"/#posterior={posterior.rsplit('/', 1)[1]}&n_draws=3&scale=auto")
    explorer.wait_drawn()
    for _ in range(2):
        for note in notes:
            expect(explorer.at(f"note-{note['code']}")).to_be_visible()
        expect(explorer.page.locator(".headline")).to_contain_text("(doubtful)")
        assert "scale=auto" in explorer.page.url
        explorer.reload_draws()
