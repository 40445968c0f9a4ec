"""What a row looks like: pixels, texts and addresses of pictures, in the label at the pointer and in the panel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from playwright.sync_api import expect

from tests.ui.driver.tables import csv, sheet

if TYPE_CHECKING:
    from tests.ui.driver.explorer import Explorer

N = 40
DOT = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)
# The red parts of the pixels of the picture in the panel.
GRAYS = """() => {
    const canvas = document.querySelector('[data-testid=point] [data-testid=row-pixels]');
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return Array.from(data).filter((_, at) => at % 4 === 0);
}"""


def test_columns_of_pixels_are_a_picture(explorer: Explorer) -> None:
    """Sixteen columns with names of pixels are 4 x 4 grays, from the smallest value of the data to the largest."""
    X = np.random.default_rng(2).integers(0, 17, (N, 16))
    names = [f"pixel_{row}_{column}" for row in range(4) for column in range(4)]
    explorer.open()
    explorer.choose_file("scans.csv", "\n".join([",".join(names), *(",".join(map(str, row)) for row in X)]).encode())
    explorer.show_pca()
    explorer.find("row", "3")
    picture = explorer.at("point").get_by_test_id("row-pixels")
    expect(picture).to_have_attribute("width", "4")  # the canvas is painted after it has been shown
    np.testing.assert_allclose(explorer.page.evaluate(GRAYS), 255 * X[3] / 16, atol=0.5)
    explorer.page.mouse.move(*explorer.places()[5], steps=4)
    expect(explorer.at("tip").get_by_test_id("row-pixels")).to_be_visible()
    explorer.at("content").select_option("none")
    expect(explorer.at("row-pixels")).to_have_count(0)


def test_an_address_elsewhere_is_a_link_and_is_not_loaded(explorer: Explorer) -> None:
    """A picture on another host is only a link, and the panel says why; embedded pictures and texts are shown."""
    photos = [f"https://elsewhere.example/{i}.png" for i in range(N)]
    texts = [f"about <b>row</b> {i}" for i in range(N)]
    explorer.open()
    explorer.choose_file("photos.csv", csv(sheet(N, seed=7), photo=photos, icon=[f'"{DOT}"'] * N, text=texts))
    for name in ("photo", "icon", "text"):
        explorer.give_role(name, "ignore")
    explorer.show_pca()
    explorer.find("row", "3")
    link = explorer.at("row-link")
    expect(link).to_have_attribute("href", photos[3])
    expect(link).to_have_attribute("rel", "noopener noreferrer")
    expect(explorer.at("point")).to_contain_text("loads no pictures from other hosts")
    explorer.at("content").select_option("text:icon")
    image = explorer.at("point").get_by_test_id("row-image")
    expect(image).to_be_visible()
    assert image.evaluate("async (image) => { await image.decode(); return image.naturalWidth; }") == 1
    explorer.at("content").select_option("text:text")
    expect(explorer.at("point").get_by_test_id("row-text")).to_have_text(texts[3])
    explorer.page.wait_for_url("**content=text%3Atext**")
    explorer.page.reload()
    expect(explorer.at("point").get_by_test_id("row-text")).to_have_text(texts[3], timeout=60_000)
