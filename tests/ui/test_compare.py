"""Which map to show: maps side by side, with their audits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
from playwright.sync_api import expect

from glle import Client
from tests.ui.driver.tables import csv

if TYPE_CHECKING:
    from tests.ui.driver.explorer import Explorer


def test_a_comparison_says_which_map_to_show(explorer: Explorer) -> None:
    """Sentences come first; each map has its level and outlines; a click opens one with its verdict; a reload stays."""
    explorer.open_sheet("s_curve", 150)
    explorer.choose_methods("pca", "lle", "isomap")
    expect(explorer.at("compare-go")).to_have_text("Compare 3 maps")
    explorer.at("compare-go").click()
    thumbs = explorer.at("comparison").get_by_test_id("thumb")
    expect(thumbs).to_have_count(3, timeout=120_000)
    expect(explorer.at("cancel")).to_have_count(0, timeout=300_000)
    sentences = explorer.state("comparison")["sentences"]
    assert 1 <= len(sentences) <= 3
    expect(explorer.at("answers").locator(".sentence")).to_have_text(sentences)
    expect(thumbs.get_by_test_id("thumb-verdict")).to_have_count(3)
    expect(explorer.at("compare-t-sne")).to_be_hidden()  # the choice of the methods is folded
    best = explorer.state("comparison")["best"]
    expect(explorer.at("best")).to_have_count(len({label for label in best.values() if label}))
    assert "comparison=job_" in explorer.page.url
    explorer.page.reload()
    expect(thumbs).to_have_count(3, timeout=60_000)
    expect(explorer.at("answers").locator(".sentence")).to_have_text(sentences)
    expect(explorer.at("compare-t-sne")).to_have_attribute("aria-pressed", "false")
    explorer.page.get_by_text("Scores", exact=True).click()
    scores = explorer.at("scores")
    expect(scores.locator("thead th")).to_have_count(4)
    expect(scores.locator("tbody th").first).to_contain_text("Remains in another sample")
    explorer.find("row", "4")
    expect(explorer.at("nearest-map")).to_have_count(3)
    thumbs.nth(2).locator("canvas").click()
    expect(explorer.at("frame-name")).to_have_text("Isomap")
    expect(explorer.at("verdict")).to_be_visible()
    explorer.page.go_back()
    expect(thumbs).to_have_count(3)
    explorer.page.go_forward()
    expect(explorer.at("frame-name")).to_have_text("Isomap")


def test_a_verdict_that_is_not_green_leads_to_a_better_map(explorer: Explorer) -> None:
    """One click makes the usual maps, which are named while they are in work; it can be cancelled."""
    noise = np.random.default_rng(4).standard_normal((120, 4))
    explorer.open()
    explorer.upload("noise.csv", csv(noise))
    explorer.embed("pca")
    expect(explorer.at("headline-box")).to_have_class("headline no", timeout=120_000)
    expect(explorer.at("cancel")).to_have_count(0, timeout=120_000)
    with explorer.page.expect_request("**/v1/comparisons") as sent:
        explorer.at("find-trusted").click()
    assert "methods" not in json.loads(sent.value.post_data or "")
    expect(explorer.at("comparison-waiting").first).to_be_visible(timeout=60_000)
    explorer.at("cancel").click()
    expect(explorer.at("cancel")).to_have_count(0, timeout=60_000)


def test_a_comparison_that_needs_one_scale_has_its_button(explorer: Explorer) -> None:
    """If all maps show one column alone, a button compares maps of standardized columns."""
    X = np.random.default_rng(4).standard_normal((120, 3)) @ np.random.default_rng(5).standard_normal((3, 3))
    explorer.open()
    explorer.upload("units.csv", csv(X * [1, 1e4, 1]))
    explorer.choose_methods("pca", "isomap")
    explorer.at("compare-go").click()
    expect(explorer.at("answers")).to_contain_text("Standardize the features first", timeout=120_000)
    expect(explorer.at("cancel")).to_have_count(0, timeout=120_000)
    with explorer.page.expect_request("**/v1/comparisons") as sent:
        explorer.at("compare-standardized").click()
    assert json.loads(sent.value.post_data or "")["standardize"] == "zscore"
    expect(explorer.at("thumb")).to_have_count(2, timeout=120_000)
    expect(explorer.at("cancel")).to_have_count(0, timeout=120_000)
    expect(explorer.at("answers").locator(".sentence").first).to_be_visible()
    expect(explorer.at("answers")).not_to_contain_text("Standardize")


def test_maps_are_shown_as_they_finish(explorer: Explorer) -> None:
    """The first map is there before the job's end, aligned to the first; a slow method is named as in work."""
    with Client(explorer.url, progress=False) as glle:
        sheet = glle.synthetic("swiss_roll", 3000, seed=4)
    explorer.open(f"/#dataset={sheet.id}")
    explorer.choose_methods("pca", "t-sne")
    explorer.at("compare-go").click()
    expect(explorer.at("comparison-waiting")).to_contain_text("t-SNE", timeout=60_000)
    expect(explorer.at("comparison").get_by_test_id("thumb")).to_have_count(1, timeout=60_000)
    expect(explorer.at("answers-so-far")).to_have_text("So far, of 1 of 2 maps.")
    expect(explorer.at("cancel")).to_be_visible()
    explorer.at("cancel").click()
