"""The comparison of methods with scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from glle import Client

if TYPE_CHECKING:
    from tests.ui.driver.explorer import Explorer


def test_a_comparison_shows_pictures_and_scores(explorer: Explorer) -> None:
    """Each method has a picture and a score column with the best marked; a click enlarges one."""
    explorer.open_sheet("s_curve", 200)
    explorer.at("tab-compare").click()
    for name, is_chosen in {"pca": True, "lle": True, "isomap": True, "t-sne": False}.items():
        chip = explorer.at(f"compare-{name}")
        if (chip.get_attribute("aria-pressed") == "true") != is_chosen:
            chip.click()
    expect(explorer.at("compare-go")).to_have_text("Compare 3 methods")
    explorer.at("compare-go").click()
    thumbs = explorer.at("comparison").get_by_test_id("thumb")
    expect(thumbs).to_have_count(3, timeout=60_000)
    scores = explorer.at("scores")
    expect(scores.locator("thead th")).to_have_count(4)
    expect(thumbs.get_by_test_id("thumb-verdict")).to_have_count(3, timeout=120_000)
    expect(explorer.at("best")).to_have_count(1)
    expect(scores.locator("tbody th").first).to_contain_text("Remains in another sample")
    expect(scores.locator("tbody tr").first).to_contain_text("%")
    best = scores.locator("tbody tr").filter(has=explorer.page.locator("td.best"))
    expect(best).to_have_count(scores.locator("tbody tr").count())
    assert "comparison=job_" in explorer.page.url
    explorer.page.reload()
    expect(thumbs).to_have_count(3, timeout=60_000)
    expect(scores.locator("thead th")).to_have_count(4)
    expect(explorer.at("compare-t-sne")).to_have_attribute("aria-pressed", "false")
    thumbs.nth(2).locator("canvas").click()
    expect(explorer.at("frame-name")).to_have_text("Isomap")
    explorer.page.go_back()
    expect(thumbs).to_have_count(3)
    explorer.page.go_forward()
    expect(explorer.at("frame-name")).to_have_text("Isomap")


def test_a_method_without_draws_is_fitted_alone(explorer: Explorer) -> None:
    """Its embedding is shown, and no animation is offered."""
    explorer.open_sheet("s_curve", 200)
    explorer.at("method").select_option("pca")
    explorer.at("fit").click()
    expect(explorer.at("stage")).to_be_visible(timeout=30_000)
    expect(explorer.at("transport")).to_have_count(0)
    expect(explorer.at("export-npy")).to_be_enabled()
    explorer.page.reload()
    expect(explorer.at("frame-name")).to_have_text("PCA", timeout=30_000)


def test_methods_are_shown_as_they_finish(explorer: Explorer) -> None:
    """The first map is there before the job's end, aligned to the first; a slow method is named as in work."""
    with Client(explorer.url, progress=False) as glle:
        sheet = glle.synthetic("swiss_roll", 3000, seed=4)
    explorer.open(f"/#dataset={sheet.id}")
    explorer.at("tab-compare").click()
    for name, is_chosen in {"pca": True, "lle": False, "isomap": False, "t-sne": True}.items():
        chip = explorer.at(f"compare-{name}")
        if (chip.get_attribute("aria-pressed") == "true") != is_chosen:
            chip.click()
    explorer.at("compare-go").click()
    expect(explorer.at("comparison-waiting")).to_contain_text("t-SNE", timeout=60_000)
    expect(explorer.at("comparison").get_by_test_id("thumb")).to_have_count(1)
    expect(explorer.at("cancel")).to_be_visible()
    expect(explorer.at("comparison").get_by_test_id("thumb")).to_have_count(2, timeout=120_000)
    explorer.at("cancel").click()
