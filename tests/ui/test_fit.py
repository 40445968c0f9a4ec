"""Fits: progress, cancellation and remedies."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.conftest import until
from tests.ui.driver.tables import csv, sheet, two_sheets

if TYPE_CHECKING:
    from playwright.sync_api import Route

    from tests.ui.driver.explorer import Explorer, Tab

# Records every state of the progress bar: label, value or null, and stage.
WATCH = """() => {
    globalThis.bars = [];
    new MutationObserver(() => {
        const label = document.querySelector('[data-testid=progress-label]');
        const bar = document.querySelector('[data-testid=progress] progress');
        const stage = document.querySelector('[data-testid=progress-stage]');
        if (label) bars.push([label.textContent, bar.hasAttribute('value') ? bar.value : null, stage.textContent]);
    }).observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
}"""


def test_a_fit_reports_progress_and_ends_with_draws(explorer: Explorer) -> None:
    """The bar names each step and can be cancelled; then draws, spread and notes appear."""
    explorer.open_sheet("swiss_roll", 40_000)
    explorer.at("draws-n_draws").fill("12")
    explorer.page.evaluate(WATCH)
    explorer.at("fit").click()
    expect(explorer.at("cancel")).to_be_enabled()
    explorer.wait_drawn()
    bars = explorer.page.evaluate("bars")
    for label_start in ("Fitting", "Drawing 12 embeddings"):
        assert any(label.startswith(label_start) for label, *_ in bars)
    # This stage has no measurable progress.
    assert {value for _, value, stage in bars if stage == "laying out the map"} == {None}
    expect(explorer.at("notes")).to_be_visible()
    assert explorer.state("draws")["count"] == 12


def test_a_long_fit_shows_its_stage_and_is_cancelled(explorer: Explorer) -> None:
    """The bar names the stage; the button cancels the job, and the page accepts the next one."""
    explorer.open_sheet("swiss_roll", 120_000)
    explorer.at("form-em-n_neighbors").fill("24")
    explorer.at("form-em").locator("summary").click()
    explorer.at("form-em-landmarks").fill("120000")  # all points: landmarks are quicker than a click
    explorer.page.evaluate(WATCH)
    explorer.at("fit").click()
    explorer.page.wait_for_function("bars.some(([label, , stage]) => label === 'Fitting' && stage)", timeout=60_000)
    expect(explorer.at("cancel")).to_be_in_viewport(ratio=1)  # the page scrolls to the button
    explorer.at("cancel").click()
    expect(explorer.at("cancel")).to_have_count(0, timeout=30_000)
    expect(explorer.at("fit")).to_be_enabled()
    expect(explorer.at("problem")).to_have_count(0)
    assert explorer.state("posterior") is None
    job = explorer.page.request.get(f"{explorer.url}/v1/jobs?limit=1").json()["items"][0]
    assert job["status"] == "cancelled"


def test_a_fit_that_ends_after_another_data_set_was_chosen_is_not_shown(explorer: Explorer) -> None:
    """A fit of the former data set is not shown, for its points would have names and colors of other rows."""
    held: list[Route] = []
    explorer.open_sheet("s_curve", 150)
    first = explorer.state("dataset")
    explorer.open()
    explorer.make_sheet("swiss_roll", 150)
    explorer.page.route("**/arrays?name=embedding*", lambda route: held.append(route))  # noqa: PLW0108 # of its signature
    explorer.at("fit").click()
    until(lambda: explorer.page.evaluate("1") and held)  # the page handles its requests meanwhile
    explorer.page.evaluate("async (one) => (await import('/explorer/js/actions/open.js')).openDataset(one)", first)
    expect(explorer.at("chosen")).to_contain_text("S curve")
    held[0].continue_()
    expect(explorer.at("cancel")).to_have_count(0, timeout=30_000)
    assert (explorer.state("posterior"), explorer.state("dataset")["id"]) == (None, first["id"])
    assert f"dataset={first['id']}" in explorer.page.url
    assert "posterior=" not in explorer.page.url


def test_disconnected_data_are_fitted_with_the_suggested_k(explorer: Explorer) -> None:
    """The problem names the disconnected graph; its button sets the smallest k that connects, and fits."""
    explorer.expected.append("422")
    explorer.open()
    explorer.upload("apart.csv", csv(two_sheets(24)))
    expect(explorer.at("chosen")).to_be_visible()
    explorer.at("draws-n_draws").fill("3")
    explorer.at("form-em").locator("summary").click()
    explorer.at("form-em-disconnected").select_option("error")
    explorer.at("fit").click()
    remedy = explorer.at("remedy-n_neighbors")
    expect(remedy).to_have_text("Use the smallest k that connects: 24")
    remedy.click()
    explorer.wait_drawn()
    expect(explorer.at("form-em-n_neighbors")).to_have_value("24")
    assert explorer.state("posterior")["spec"]["n_neighbors"] == 24


def test_disconnected_data_are_fitted_with_bridges(explorer: Explorer) -> None:
    """Without other settings the components are bridged, and the first note of the fit says so."""
    explorer.open()
    explorer.upload("apart.csv", csv(two_sheets(25)))
    expect(explorer.at("chosen")).to_be_visible()
    explorer.at("draws-n_draws").fill("3")
    explorer.at("fit").click()
    explorer.wait_drawn()
    expect(explorer.at("note-bridged")).to_contain_text("joined by bridges")
    k = explorer.state("posterior")["spec"]["n_neighbors"]
    expect(explorer.at("note-bridged").get_by_role("button")).to_have_text(f"Use {k + 4} neighbors")


def test_a_note_is_followed_by_its_button(explorer: Explorer) -> None:
    """The button of a note on unequal scales standardizes the columns and fits again."""
    explorer.open()
    explorer.upload("units.csv", csv(two_sheets(30)[:30] * [1, 1, 1e4]))
    explorer.fit(count=2)
    explorer.at("note-unequal-feature-scales").get_by_role("button", name="Standardize the columns").click()
    expect(explorer.at("note-unequal-feature-scales")).to_have_count(0, timeout=60_000)
    explorer.wait_drawn()
    assert explorer.state("posterior")["spec"]["standardize"] == "zscore"
    explorer.page.go_back()
    expect(explorer.at("note-unequal-feature-scales")).to_be_visible(timeout=60_000)
    explorer.wait_drawn()
    assert explorer.state("posterior")["spec"].get("standardize") in {None, "none"}
    assert explorer.state("draws")["count"] == 2


def test_a_verdict_on_units_is_followed_by_its_button(explorer: Explorer) -> None:
    """A column with nearly all of the variance is standardized by the button below the verdict."""
    explorer.open()
    explorer.upload("units.csv", csv(sheet(120) * [1, 1e4, 1]))
    expect(explorer.at("chosen")).to_be_visible()
    explorer.fit(count=2)
    expect(explorer.at("verdict")).to_contain_text("Standardize the features", timeout=60_000)
    explorer.at("standardize").click()
    until(lambda: (explorer.state("posterior") or {"spec": {}})["spec"].get("standardize") == "zscore", 120)
    expect(explorer.at("standardize")).to_have_count(0)


def test_a_running_fit_is_found_by_a_refresh_and_in_another_tab(explorer: Explorer, tab: Tab) -> None:
    """After a refresh the address's job is followed to its draws; the same fit in another tab joins the job."""
    explorer.page.route("**/summary?*", lambda _: None)  # nothing here needs the long work of the spread
    explorer.open_sheet("swiss_roll", 60_000)
    explorer.at("draws-n_draws").fill("2")
    explorer.at("fit").click()
    expect(explorer.page).to_have_url(re.compile("job=job_"))
    with tab(explorer.url) as other:
        other.page.route("**/summary?*", lambda _: None)
        other.open(f"/#dataset={explorer.state('dataset')['id']}")
        expect(other.at("chosen")).to_contain_text("60,000 rows")
        other.at("draws-n_draws").fill("2")
        explorer.page.reload()
        expect(explorer.at("progress-label")).to_contain_text("Fitting")
        expect(explorer.at("chosen")).to_contain_text("60,000 rows")
        other.at("fit").click()
        for one in (explorer, other):
            expect(one.at("play")).to_be_enabled(timeout=60_000)
        assert explorer.state("posterior")["id"] == other.state("posterior")["id"]
    assert explorer.state("draws")["count"] == 2
    expect(explorer.page).to_have_url(re.compile("[#&]posterior=(?!.*job=)"))


def test_a_job_whose_record_is_gone_leaves_its_data(explorer: Explorer) -> None:
    """The problem says that there is no such job, and the data set of the link is chosen."""
    explorer.expected.append("404")
    explorer.open_sheet("s_curve", 90)
    dataset = explorer.state("dataset")["id"]
    explorer.page.goto("about:blank")
    explorer.open(f"/#dataset={dataset}&job=job_00000000000000000000")
    expect(explorer.at("problem")).to_contain_text("Job not found")
    expect(explorer.at("chosen")).to_contain_text("90 rows")
