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
    expect(scores.locator("tbody th").first).to_contain_text("How much of this picture remains")
    expect(scores.locator("tbody tr").first.locator("td")).to_have_count(3, timeout=60_000)
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


def test_a_comparison_with_spread_shows_how_much_remains(explorer: Explorer) -> None:
    """The table has the shares of neighbors and of points that stay, of a comparison that has them."""
    with Client(explorer.url, progress=False) as glle:
        sheet = glle.synthetic("s_curve", 120, seed=4)
        table = glle.compare(sheet, ["pca", "isomap"], scores=["trustworthiness"], n_resamples=8, align="first")
    explorer.open(f"/#dataset={sheet.id}&comparison={table.job}&view=compare")
    rows = explorer.at("scores").locator("tbody tr")
    expect(rows).to_have_count(3, timeout=60_000)
    kept = rows.first.filter(has_text="How much of this picture remains").locator("td")
    shares = [float(text.split("%")[0]) / 100 for text in kept.all_inner_texts()]
    expected = [row["spread"]["pairs_kept"] for row in table.rows]
    assert all(abs(share - found) < 0.01 for share, found in zip(shares, expected, strict=True))
    expect(rows.filter(has_text="Points apart from the next class")).to_have_count(1)
