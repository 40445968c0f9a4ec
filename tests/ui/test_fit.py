"""Fits: their progress, their end before time, and what helps where they are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.ui.driver.tables import apart, csv

if TYPE_CHECKING:
    from tests.ui.driver.explorer import Explorer

# Keeps every state of the bar: its label, its value where it has one, and the stage that it is of.
WATCH = """() => {
    globalThis.bars = [];
    new MutationObserver(() => {
        const label = document.querySelector('[data-testid=progress-label]');
        const bar = document.querySelector('[data-testid=progress] progress');
        const stage = document.querySelector('[data-testid=progress-stage]');
        if (label) bars.push([label.textContent, bar.hasAttribute('value') ? bar.value : null, stage.textContent]);
    }).observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
}"""


def test_a_fit_says_what_is_being_done_and_ends_with_draws(explorer: Explorer) -> None:
    """In words, with a way to stop it; then draws, spread, and what the fit noticed."""
    explorer.open()
    explorer.make("swiss_roll", 10_000)
    explorer.at("draws-count").fill("12")
    explorer.page.evaluate(WATCH)
    explorer.at("fit").click()
    expect(explorer.at("cancel")).to_be_enabled()
    explorer.wait_drawn()
    bars = explorer.page.evaluate("bars")
    for begun in ("Fitting", "Drawing 12 embeddings"):
        assert any(label.startswith(begun) for label, *_ in bars)
    assert {value for _, value, stage in bars if stage == "laying out the map"} == {None}  # nobody knows how far it is
    expect(explorer.at("notes")).to_be_visible()
    expect(explorer.at("spectrum")).to_contain_text("Gap")
    assert explorer.state("draws")["count"] == 12


def test_a_long_fit_shows_its_progress_and_is_cancelled(explorer: Explorer) -> None:
    """The bar moves, stage by stage; the button stops the job, the service agrees, the page is ready for the next."""
    explorer.open()
    explorer.make("swiss_roll", 120_000)
    explorer.page.evaluate(WATCH)
    explorer.at("fit").click()
    explorer.page.wait_for_function("new Set(bars.map(([, value]) => value)).size > 2", timeout=60_000)
    expect(explorer.at("cancel")).to_be_in_viewport(ratio=1)  # the page was scrolled to the button
    explorer.keep("progress")
    explorer.at("cancel").click()
    expect(explorer.at("cancel")).to_have_count(0, timeout=30_000)
    result = [(stage, value) for label, value, stage in explorer.page.evaluate("bars") if label == "Fitting" and value]
    stages = list(dict.fromkeys(stage for stage, _ in result))
    assert result == sorted(result, key=lambda one: (stages.index(one[0]), one[1]))  # each stage fills the bar once
    expect(explorer.at("fit")).to_be_enabled()
    expect(explorer.at("problem")).to_have_count(0)
    assert explorer.state("posterior") is None
    job = explorer.page.request.get(f"{explorer.url}/v1/jobs?limit=1").json()["items"][0]
    assert job["status"] == "cancelled"
    explorer.keep("cancelled")


def test_data_in_two_pieces_are_joined_by_the_remedy(explorer: Explorer) -> None:
    """The refusal says that the graph falls apart; the button takes the smallest k that connects, and fits."""
    explorer.expected.append("422")
    explorer.open()
    explorer.choose("apart.csv", csv(apart(24)))
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_be_visible()
    explorer.at("draws-count").fill("3")
    explorer.at("fit").click()
    remedy = explorer.at("remedy-n_neighbors")
    expect(remedy).to_have_text("Use the smallest k that connects: 24")
    explorer.keep("remedy")
    remedy.click()
    explorer.wait_drawn()
    expect(explorer.at("form-em-n_neighbors")).to_have_value("24")
    assert explorer.state("posterior")["spec"]["n_neighbors"] == 24


def test_data_in_two_pieces_are_bridged(explorer: Explorer) -> None:
    """The other button joins the pieces, and the fit notes that it did."""
    explorer.expected.append("422")
    explorer.open()
    explorer.choose("apart.csv", csv(apart(25)))
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_be_visible()
    explorer.at("draws-count").fill("3")
    explorer.at("fit").click()
    explorer.at("remedy-disconnected").click()
    explorer.wait_drawn()
    expect(explorer.at("note-bridged")).to_contain_text("joined by bridges")
    explorer.keep("bridged")
