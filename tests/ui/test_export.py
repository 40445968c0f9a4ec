"""Exports: pictures, arrays, links and code snippets."""

from __future__ import annotations

import io
from csv import reader
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import httpx
import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.ui.driver.tables import AUDITED, csv, sheet

if TYPE_CHECKING:
    from pathlib import Path

    from tests.system.conftest import Up
    from tests.ui.driver.explorer import Explorer, Tab

BESIDE = ["draws_spread", "draws_stability", *AUDITED]  # columns of a CSV that the page knows of each row


@pytest.fixture
def tab_at_third_draw(explorer: Explorer, link: str) -> Explorer:
    """Return a tab at the third of six draws."""
    explorer.open_draws(link)
    explorer.at("scrub").fill("3")
    expect(explorer.at("frame-name")).to_contain_text("Draw 2")
    return explorer


def embedding(explorer: Explorer, index: int) -> np.ndarray:
    """Return a draw from the service."""
    path = f"{explorer.url}/v1/posteriors/{explorer.state('posterior')['id']}/draws/{index}?wait=30"
    return np.asarray(np.load(io.BytesIO(httpx.get(path, headers={"Accept": "application/x-npy"}).content)))


def test_npy_and_csv_contain_the_visible_draw(tab_at_third_draw: Explorer) -> None:
    """The npy has the digits of the service, CSV those of 32 bits beside all columns; both are named after the draw."""
    expected = embedding(tab_at_third_draw, 2)
    name, content = tab_at_third_draw.download("npy")
    assert name == "draw-2.npy"
    np.testing.assert_array_equal(np.load(io.BytesIO(content)), expected)
    name, content = tab_at_third_draw.download("csv")
    assert name == "draw-2.csv"
    head, *_ = content.decode().splitlines()
    assert head.split(",") == ["row", "x1", "x2", "x3", "y1", "y2", *BESIDE]
    table = np.loadtxt(io.BytesIO(content), delimiter=",", skiprows=1, usecols=range(8))
    np.testing.assert_array_equal(table[:, 0], np.arange(150))
    np.testing.assert_allclose(table[:, 4:6], expected, atol=1e-6)
    summary = (
        f"{tab_at_third_draw.url}/v1/posteriors/{tab_at_third_draw.state('posterior')['id']}/summary?n_draws=6&scale=1"
    )
    arrays = np.load(io.BytesIO(httpx.get(summary, headers={"Accept": "application/zip"}).content))
    np.testing.assert_allclose(table[:, 6], arrays["spread"], rtol=1e-6)
    np.testing.assert_allclose(table[:, 7], arrays["stability"], rtol=1e-6)


def test_labels_are_in_csv_and_legend_of_the_png(explorer: Explorer) -> None:
    """The CSV has the label of each row, quoted if necessary; the picture has the legend's entries."""
    kinds = ['the "inner", first', "outer"] * 45
    quoted = ['"the ""inner"", first"', "outer"] * 45
    explorer.open()
    explorer.upload("roll.csv", csv(sheet(90), kind=quoted))
    explorer.fit(count=2)
    _, content = explorer.download("csv")
    rows = list(reader(io.StringIO(content.decode())))
    assert rows[0] == ["row", "kind", "x", "y", "z", "y1", "y2", *BESIDE]
    assert [row[1] for row in rows[1:]] == kinds
    expect(explorer.at("legend").locator(".legend-title")).to_have_text("kind")
    png, places, _ = explorer.download_picture()
    texts = [text for text, _ in places]
    assert 'the "inner", first' in texts  # the name of a group
    legend = texts[texts.index("kind") :]
    assert legend[1:3] == ["outer (45)", 'the "inner", first (45)']
    assert explorer.at("small").inner_text() in " ".join(texts)
    picture = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
    lowest = picture[-picture.shape[0] // 10 :].reshape(-1, 3)
    colors = explorer.page.evaluate("[...document.querySelectorAll('.swatch')].map((s) => s.style.background)")
    for color in colors:
        assert (lowest == [int(component) for component in color[4:-1].split(",")]).all(axis=1).any(), color


def test_the_svg_is_the_picture_and_says_what_its_marks_mean(explorer: Explorer) -> None:
    """It has a shape for each point, the outlines, and as text the verdict and the meaning of outlines and lines."""
    explorer.open_example()
    explorer.wait_still()
    name, content = explorer.download("svg")
    assert name.endswith(".svg")
    root = ET.fromstring(content)  # noqa: S314 -- the page's own file
    paths = [element.get("d", "") for element in root.iter("{http://www.w3.org/2000/svg}path")]
    islands = explorer.state("audit")["islands"]
    outlines = [path for path in root.iter("{http://www.w3.org/2000/svg}path") if path.get("fill") == "none"]
    assert len(outlines) >= len(islands["names"])
    assert sum(d.count("M") for d in paths) >= explorer.state("dataset")["n"]
    text = " ".join(element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text"))
    for sentence in (
        "Solid outline: an island to trust, with its letter.",
        "Dashed outline: do not rely on this island.",
    ):
        assert sentence in text


def test_the_png_has_300_dots_an_inch_and_says_what_it_shows(tab_at_third_draw: Explorer) -> None:
    """The picture is at least eight inches long, and has the regions of the stage, and as text what the map is."""
    tab_at_third_draw.at("shape-ellipse").click()
    png, texts, ellipses = tab_at_third_draw.download_picture()
    assert ellipses == 20
    picture = Image.open(io.BytesIO(png))
    picture.verify()
    assert max(picture.size) >= 8 * 300
    assert picture.info["dpi"] == pytest.approx((300, 300), abs=0.1)
    text = " ".join(text for text, _ in texts)
    assert "S curve: GLLE, 8 neighbors. Draw 2" in text
    lines = tab_at_third_draw.state("audit")["verdict"].split("\n")
    assert all(line in text for line in lines if line[0] in "✓✗"), lines


def test_the_saved_page_opens_without_the_service(tab_at_third_draw: Explorer, tmp_path: Path) -> None:
    """The saved file alone shows title, verdict, picture and table, without any request."""
    name, content = tab_at_third_draw.download("html")
    assert name == "draw-2.html"
    (tmp_path / name).write_bytes(content)
    page = tab_at_third_draw.page.context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((tmp_path / name).as_uri())
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    expect(page.locator("h1")).to_have_text("S curve: GLLE, 8 neighbors. Draw 2")
    expect(page.locator("p").first).to_have_text(tab_at_third_draw.state("audit")["verdict"])
    assert page.locator("img").evaluate("image => image.naturalWidth") >= 2000
    expect(page.locator("tbody tr")).to_have_count(150)


def test_the_legend_of_a_phone_is_below_its_picture(tab: Tab, up: Up, link: str) -> None:
    """The saved picture is higher than the stage, and the legend covers no point."""
    with tab(up.url, viewport={"width": 390, "height": 844}) as explorer:
        explorer.open_draws(link)
        _, texts, _ = explorer.download_picture()
        assert dict(texts)["True position, first"] > explorer.box("stage")["height"]


def test_a_link_pasted_into_the_tab_opens(explorer: Explorer, link: str) -> None:
    """A page that is already open follows a pasted address, of which only the fragment is new."""
    explorer.open()
    explorer.page.goto(explorer.url + link)
    explorer.wait_drawn()
    assert explorer.state("draws")["count"] == 6


def test_the_snippets_for_shell_and_python_give_the_draw(tab_at_third_draw: Explorer, tmp_path: Path) -> None:
    """The snippets run unchanged and return the visible embedding."""
    expected = embedding(tab_at_third_draw, 2)
    tab_at_third_draw.run_lines(tmp_path)
    for name in ("draw.npy", "python.npy"):
        np.testing.assert_array_equal(np.load(tmp_path / name), expected)


def test_ids_of_the_file_name_the_points(explorer: Explorer) -> None:
    """First rows, the panel of a point, search and CSV have the ids as in the file, also after a refresh."""
    ids = [f"C-{7 * i:03d}" for i in range(60)]
    ids[3] = 'the "third", C'
    quoted = [*ids[:3], '"the ""third"", C"', *ids[4:]]
    explorer.open()
    explorer.choose_file("roll.csv", csv(sheet(60), customer_id=quoted))
    expect(explorer.at("preview")).to_contain_text('the "third", C')
    expect(explorer.at("upload-notices")).to_contain_text("'customer_id' numbers or names the rows")
    explorer.at("use-file").click()
    explorer.fit(count=2)
    explorer.reload_draws()
    explorer.find("label", "c-007")
    expect(explorer.at("point-id")).to_have_text("C-007")
    expect(explorer.at("point")).to_contain_text("Row 1")
    for column in ("show-consensus", None):
        if column:
            explorer.at(column).click()
        else:
            explorer.at("scrub").fill("2")
        _, content = explorer.download("csv")
        rows = list(reader(io.StringIO(content.decode())))
        assert rows[0] == ["row", "id", "x", "y", "z", "y1", "y2", *BESIDE]
        assert [row[1] for row in rows[1:]] == ids
        assert np.isfinite(np.array([row[2:9] for row in rows[1:]], float)).all()
