"""Fits: progress, cancellation and remedies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.ui.driver.tables import csv, two_sheets

if TYPE_CHECKING:
    from tests.ui.driver.explorer import Explorer

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
    explorer.open()
    explorer.make_sheet("swiss_roll", 40_000)
    explorer.at("draws-count").fill("12")
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
    expect(explorer.at("spectrum")).to_contain_text("Gap")
    assert explorer.state("draws")["count"] == 12


def test_a_long_fit_shows_its_progress_and_is_cancelled(explorer: Explorer) -> None:
    """The bar advances in each stage; the button cancels the job, and the page accepts the next one."""
    explorer.open()
    explorer.make_sheet("swiss_roll", 120_000)
    explorer.page.evaluate(WATCH)
    explorer.at("fit").click()
    explorer.page.wait_for_function("new Set(bars.map(([, value]) => value)).size > 2", timeout=60_000)
    expect(explorer.at("cancel")).to_be_in_viewport(ratio=1)  # the page scrolls to the button
    explorer.save_picture("progress")
    explorer.at("cancel").click()
    expect(explorer.at("cancel")).to_have_count(0, timeout=30_000)
    result = [(stage, value) for label, value, stage in explorer.page.evaluate("bars") if label == "Fitting" and value]
    stages = list(dict.fromkeys(stage for stage, _ in result))
    # Each stage fills the bar once, in order.
    assert result == sorted(result, key=lambda state: (stages.index(state[0]), state[1]))
    expect(explorer.at("fit")).to_be_enabled()
    expect(explorer.at("problem")).to_have_count(0)
    assert explorer.state("posterior") is None
    job = explorer.page.request.get(f"{explorer.url}/v1/jobs?limit=1").json()["items"][0]
    assert job["status"] == "cancelled"
    explorer.save_picture("cancelled")


def test_disconnected_data_are_fitted_with_the_suggested_k(explorer: Explorer) -> None:
    """The problem names the disconnected graph; its button sets the smallest k that connects, and fits."""
    explorer.expected.append("422")
    explorer.open()
    explorer.choose_file("apart.csv", csv(two_sheets(24)))
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_be_visible()
    explorer.at("draws-count").fill("3")
    explorer.at("fit").click()
    remedy = explorer.at("remedy-n_neighbors")
    expect(remedy).to_have_text("Use the smallest k that connects: 24")
    explorer.save_picture("remedy")
    remedy.click()
    explorer.wait_drawn()
    expect(explorer.at("form-em-n_neighbors")).to_have_value("24")
    assert explorer.state("posterior")["spec"]["n_neighbors"] == 24


def test_disconnected_data_are_fitted_with_bridges(explorer: Explorer) -> None:
    """The other button bridges the components, and the fit has a note."""
    explorer.expected.append("422")
    explorer.open()
    explorer.choose_file("apart.csv", csv(two_sheets(25)))
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_be_visible()
    explorer.at("draws-count").fill("3")
    explorer.at("fit").click()
    explorer.at("remedy-disconnected").click()
    explorer.wait_drawn()
    expect(explorer.at("note-bridged")).to_contain_text("joined by bridges")
    explorer.save_picture("bridged")
