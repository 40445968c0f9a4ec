"""Movement of an embedding over half-samples: measured on request, with its reliability before any region."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from playwright.sync_api import expect

from glle import Client

if TYPE_CHECKING:
    from playwright.sync_api import Route

    from tests.ui.driver.explorer import Explorer

N = 150


def show_embedding(explorer: Explorer, method: str = "isomap") -> None:
    """Show an embedding of a sheet."""
    explorer.open_sheet("s_curve", N)
    explorer.at("method").select_option(method)
    explorer.at("fit").click()
    expect(explorer.at("stage")).to_be_visible(timeout=30_000)
    expect(explorer.at("cancel")).to_have_count(0)


def test_the_movement_is_the_services(explorer: Explorer) -> None:
    """The word with its reason, the figures with the baseline, colors and regions, none of them an interval."""
    show_embedding(explorer)
    line = explorer.at("movement")
    expect(line).to_contain_text("Not measured.")
    expect(explorer.at("shape-ellipse")).to_have_count(0)
    expect(explorer.at("color").locator("option[value=movement]")).to_have_count(0)
    plain = explorer.wait_still()
    explorer.at("measure-movement").click()
    expect(explorer.at("movement-panel")).to_be_visible(timeout=60_000)
    with Client(explorer.url, progress=False) as glle:
        found = glle.embedding(explorer.state("single")["path"].split("/")[3]).spread()
    stated = found.metadata["reliability"]
    expect(line).to_contain_text(f"{stated['level'].capitalize()}. {stated['reason'].split(':')[0]}.")
    expect(line).to_contain_text(stated["reason"])
    expect(explorer.at("pairs-kept")).to_contain_text(f"{round(100 * found.figures['pairs_kept'])}%")
    expect(explorer.at("median-movement")).to_contain_text(f"{round(100 * found.figures['relative_movement'])}%")
    expect(explorer.at("baseline")).to_contain_text("10 nearest points")
    expect(explorer.at("movement-panel")).to_contain_text("It is no interval")
    expect(explorer.at("note-movement-unreliable")).to_have_count(1)
    row = int(np.argmax(found.movement))
    explorer.find("row", str(row))
    expect(explorer.at("point-movement")).to_contain_text("among the widest tenth")
    explorer.page.keyboard.press("Escape")
    explorer.at("color").select_option("movement")
    expect(explorer.at("legend")).to_contain_text("Movement")
    explorer.at("color").select_option("baseline")
    expect(explorer.at("legend")).to_contain_text("Baseline")
    explorer.at("color").select_option("auto" if explorer.state("color") == "auto" else "row")
    explorer.at("shape-ellipse").click()
    expect(explorer.at("movement-help")).to_contain_text("No interval")
    explorer.wait_changed(plain)
    expect(explorer.at("shape-density")).to_have_count(0)


def test_regions_are_as_wide_as_the_movement(explorer: Explorer) -> None:
    """The moments on the screen are the service's covariance in the box of the picture."""
    show_embedding(explorer, "pca")
    explorer.at("measure-movement").click()
    expect(explorer.at("movement-panel")).to_be_visible(timeout=60_000)
    radii = explorer.page.evaluate("""async () => {
        const { movedMomentsOf } = await import('/explorer/js/plot/spread.js');
        const { state } = await import('/explorer/js/store.js');
        const box = { center: [0, 0], half: [0.94, 0.94] };
        return Array.from({ length: 5 }, (_, row) => {
            const { a, c } = movedMomentsOf(row, state.movement, [[1, 0], [0, 1]], box);
            return [Math.sqrt(a + c), state.movement.arrays.movement[row]];
        });
    }""")
    shown, movement = np.array(radii).T
    np.testing.assert_allclose(shown, movement, rtol=1e-5)


def test_a_low_reliability_warns_and_a_new_embedding_forgets_it(explorer: Explorer) -> None:
    """The warning is beside the regions; the progress of the refits is shown; another embedding is not measured."""
    show_embedding(explorer, "pca")
    waiting: list[Route] = []
    explorer.page.route(re.compile(r"/result\?points=0"), lambda route: waiting.append(route))  # noqa: PLW0108 # it marks its handlers
    explorer.at("measure-movement").click()
    expect(explorer.at("progress-label")).to_contain_text("Refitting to halves of the data")
    expect(explorer.at("shape-ellipse")).to_have_count(0)
    while not waiting:
        explorer.page.wait_for_timeout(20)
    body = waiting[0].fetch().json()
    body["reliability"] |= {"level": "low", "reason": "Because of the test."}
    waiting[0].fulfill(json=body)
    expect(explorer.at("movement")).to_contain_text("Low. Because of the test.")
    expect(explorer.at("shape-warning")).to_have_count(1)
    explorer.page.unroute_all()
    explorer.open_set_up()
    explorer.at("method").select_option("lle")
    explorer.at("fit").click()
    expect(explorer.at("frame-name")).to_contain_text("LLE", timeout=30_000)
    expect(explorer.at("movement")).to_contain_text("Not measured.")
    expect(explorer.at("movement-panel")).to_have_count(0)


def test_a_refusal_is_a_problem_with_its_remedy(explorer: Explorer) -> None:
    """The picture stays, and the button, too."""
    show_embedding(explorer, "pca")
    explorer.expected.append("422")
    problem = {
        "type": "urn:glle:problem:too-long",
        "title": "Too long",
        "detail": "It takes some 900 s.",
        "remedy": "Embed fewer points.",
        "status": 422,
        "details": {},
    }
    explorer.page.route("**/spread", lambda route: route.fulfill(status=422, json=problem))
    explorer.at("measure-movement").click()
    expect(explorer.at("problem")).to_be_visible()
    expect(explorer.at("measure-movement")).to_be_enabled()
    expect(explorer.at("stage")).to_be_visible()
