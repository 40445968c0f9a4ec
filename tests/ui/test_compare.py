"""Methods side by side with their scores, and one of them alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

if TYPE_CHECKING:
    from tests.ui.driver.explorer import Explorer


def test_methods_stand_side_by_side_with_their_scores(explorer: Explorer) -> None:
    """A picture and a column of scores each, with the best marked; a click shows one large."""
    explorer.open()
    explorer.make("s_curve", 200)
    explorer.at("tab-compare").click()
    for name, wanted in {"pca": True, "lle": True, "isomap": True, "t-sne": False}.items():
        chip = explorer.at(f"compare-{name}")
        if (chip.get_attribute("aria-pressed") == "true") != wanted:
            chip.click()
    expect(explorer.at("compare-go")).to_have_text("Compare 3 methods")
    explorer.keep("compare-choice")
    explorer.at("compare-go").click()
    thumbs = explorer.at("comparison").get_by_test_id("thumb")
    expect(thumbs).to_have_count(3, timeout=60_000)
    scores = explorer.at("scores")
    expect(scores.locator("thead th")).to_have_count(4)
    best = scores.locator("tbody tr").filter(has=explorer.page.locator("td.best"))
    expect(best).to_have_count(scores.locator("tbody tr").count())
    explorer.keep("comparison")
    thumbs.nth(2).locator("canvas").click()
    expect(explorer.at("stage")).to_be_visible()
    explorer.keep("single")


def test_a_method_without_draws_is_fitted_alone(explorer: Explorer) -> None:
    """Its cost is told before, its embedding is shown, and no animation is offered."""
    explorer.open()
    explorer.make("s_curve", 200)
    explorer.at("method").select_option("pca")
    explorer.at("fit").click()
    expect(explorer.at("stage")).to_be_visible(timeout=30_000)
    expect(explorer.at("transport")).to_have_count(0)
    expect(explorer.at("export-npy")).to_be_enabled()
    explorer.keep("pca")
