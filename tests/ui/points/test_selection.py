"""The selected rows as a table: all columns, CSV, and what distinguishes them."""

from __future__ import annotations

import io
from csv import DictReader
from typing import TYPE_CHECKING

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.ui.driver.tables import AUDITED, csv, sheet

if TYPE_CHECKING:
    from tests.ui.driver.explorer import Explorer

N = 60


@pytest.fixture
def two_kinds(explorer: Explorer) -> Explorer:
    """Return a tab with the draws of two kinds, in one of which y is larger."""
    X = sheet(N)
    X[::2, 1] += 3
    explorer.open()
    explorer.upload("kinds.csv", csv(X, kind=["high", "low"] * (N // 2), place=["north", "south", "east"] * (N // 3)))
    explorer.fit(count=3)
    return explorer


def test_a_class_is_a_table_with_what_distinguishes_it(two_kinds: Explorer) -> None:
    """A click on a class lists its rows; first come the columns with the largest standardized difference of means."""
    two_kinds.at("color").select_option("labels")
    two_kinds.at("legend").locator(".class").first.click()
    expect(two_kinds.at("selection")).to_contain_text("30 selected rows")
    expect(two_kinds.at("selected-rows").locator("tbody tr")).to_have_count(30)
    terms = two_kinds.at("distinguishes").locator("dt")
    expect(terms.nth(0)).to_have_text("kind: high")
    expect(terms.nth(1)).to_have_text("y")
    X = sheet(N).astype(np.float32)
    X[::2, 1] += 3
    y = X[:, 1]
    difference = (y[::2].mean() - y[1::2].mean()) / y.std()
    expect(two_kinds.at("distinguishes").locator("dd").nth(1)).to_contain_text(f"+{difference:.2g} SD")
    two_kinds.page.keyboard.press("Escape")
    expect(two_kinds.at("selection")).to_have_count(0)


def test_the_csv_of_a_selection_has_all_columns(two_kinds: Explorer) -> None:
    """It has the selected rows alone: labels, further columns, features, coordinates, spread and stability."""
    two_kinds.find("label", "south")
    name, content = two_kinds.download("selection")
    assert name == "selection.csv"
    rows = list(DictReader(io.StringIO(content.decode())))
    assert [int(row["row"]) for row in rows] == list(range(1, N, 3))
    assert {row["place"] for row in rows} == {"south"}
    assert [*rows[0]] == [
        "row",
        "kind",
        "place",
        "x",
        "y",
        "z",
        "y1",
        "y2",
        "draws_spread",
        "draws_stability",
        *AUDITED,
    ]
    X = sheet(N)
    np.testing.assert_allclose([float(row["x"]) for row in rows], X[1::3, 0], rtol=1e-6)


def test_points_alone_have_no_regions_after_a_lasso(two_kinds: Explorer) -> None:
    """In the shape Points, several selected points have no ellipse; as Regions they have."""
    outlined = "async () => (await import('/explorer/js/plot/overlay.js')).outlinedRows().length"
    two_kinds.find("label", "south")
    assert two_kinds.page.evaluate(outlined) == 0
    two_kinds.at("shape-ellipse").click()
    assert two_kinds.page.evaluate(outlined) == N // 3


def test_a_selected_row_is_drawn_while_the_draws_play(two_kinds: Explorer) -> None:
    """The overlay has ink between two draws."""
    two_kinds.find("row", "5")
    two_kinds.at("play").click()
    ink = two_kinds.page.evaluate("""async () => {
        const { onStage } = await import('/explorer/js/views/stage.js');
        const inks = [];
        while (inks.length < 5) {
            await new Promise(requestAnimationFrame);
            if (!onStage.moving) continue;
            await new Promise(requestAnimationFrame);
            const { width, height } = onStage.overlay;
            inks.push(onStage.overlay.getContext('2d').getImageData(0, 0, width, height).data.some(Boolean));
        }
        return inks;
    }""")
    assert all(ink)


def test_nearest_rows_in_the_data_and_on_the_map(explorer: Explorer) -> None:
    """A point lists its ten nearest rows in both, by their distances, and frames those that are in one list only."""
    X = np.random.default_rng(5).standard_normal((N, 4)).round(4)
    explorer.open()
    explorer.upload("cloud.csv", csv(X))
    explorer.at("maker-em").wait_for()
    explorer.embed("pca")
    expect(explorer.at("stage")).to_be_visible(timeout=60_000)
    expect(explorer.at("cancel")).to_have_count(0, timeout=120_000)
    explorer.find("row", "7")
    Y = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    placed = Y.U[:, :2] * Y.S[:2]
    lists = [np.argsort(np.linalg.norm(P - P[7], axis=1))[1:11].tolist() for P in (X, placed)]
    for name, nearest, other in zip(("nearest-data", "nearest-map"), lists, reversed(lists), strict=True):
        chips = explorer.at(name).get_by_role("button")
        expect(chips).to_have_text([str(row) for row in nearest])
        only = explorer.at(name).locator(".only")
        expect(only).to_have_text([str(row) for row in nearest if row not in other])
        expect(only.first).to_have_css("opacity", "1")
    expect(explorer.at("nearest-both")).to_contain_text(f"{len(set(lists[0]) & set(lists[1]))} of 10")
    explorer.at("select-nearest").click()
    assert sorted(explorer.state("selection")["list"]) == sorted([7, *lists[0]])
    explorer.find("row", "8")
    explorer.page.evaluate(ROBUST)
    expect(explorer.at("no-nearest")).to_contain_text("the scale robust, which the page does not compute")


# A map of columns whose scale the page does not know.
ROBUST = """async () => {
    const { set, state } = await import('/explorer/js/store.js');
    set({ single: { ...state.single, result: { ...state.single.result, parameters: { standardize: 'robust' } } } });
}"""
