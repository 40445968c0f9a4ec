"""Exports: pictures, arrays, links and code snippets."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import httpx
import numpy as np
import pytest
from playwright.sync_api import expect

from tests.system.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.ui.driver.explorer import Explorer


@pytest.fixture
def tab_at_third_draw(explorer: Explorer, link: str) -> Explorer:
    """Return a tab at the third of six draws."""
    explorer.open(link)
    explorer.wait_drawn()
    explorer.at("scrub").fill("3")
    expect(explorer.at("frame-name")).to_contain_text("Draw 2")
    return explorer


def download(explorer: Explorer, kind: str) -> tuple[str, bytes]:
    """Return the name and content of a download."""
    with explorer.page.expect_download() as result:
        explorer.at(f"export-{kind}").click()
    return result.value.suggested_filename, Path(result.value.path()).read_bytes()


def embedding(explorer: Explorer, index: int) -> np.ndarray:
    """Return a draw from the service."""
    path = f"{explorer.url}/v1/posteriors/{explorer.state('posterior')['id']}/draws/{index}?wait=30"
    return np.asarray(np.load(io.BytesIO(httpx.get(path, headers={"Accept": "application/x-npy"}).content)))


def test_npy_and_csv_contain_the_visible_draw(tab_at_third_draw: Explorer) -> None:
    """All digits equal the service's, and the file name has the draw's index."""
    expected = embedding(tab_at_third_draw, 2)
    name, content = download(tab_at_third_draw, "npy")
    assert name == "draw-2.npy"
    np.testing.assert_array_equal(np.load(io.BytesIO(content)), expected)
    name, content = download(tab_at_third_draw, "csv")
    assert name == "draw-2.csv"
    np.testing.assert_allclose(np.loadtxt(io.BytesIO(content), delimiter=",", skiprows=1)[:, -2:], expected, rtol=1e-12)


def test_png_and_svg_are_the_picture(tab_at_third_draw: Explorer) -> None:
    """The PNG is not empty; the SVG has one circle per row."""
    _, png = download(tab_at_third_draw, "png")
    assert png.startswith(b"\x89PNG")
    assert len(png) > 5000
    _, svg = download(tab_at_third_draw, "svg")
    circles = ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}circle")  # noqa: S314 -- written by the page
    assert len(list(circles)) == 150


def test_a_link_restores_the_view(
    tab_at_third_draw: Explorer, tab: Callable[..., AbstractContextManager[Explorer]]
) -> None:
    """Another tab shows the same draw, color and shape, with equal point positions."""
    tab_at_third_draw.at("shape-ellipse").click()
    tab_at_third_draw.at("color").select_option("spread")
    tab_at_third_draw.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab_at_third_draw.at("copy-link").click()
    expect(tab_at_third_draw.at("export")).to_contain_text("Link copied")
    address = tab_at_third_draw.page.evaluate("navigator.clipboard.readText()")
    with tab(tab_at_third_draw.url) as other:
        other.open(address.removeprefix(tab_at_third_draw.url))
        other.wait_drawn()
        expect(other.at("frame-name")).to_contain_text("Draw 2")
        expect(other.at("color")).to_have_value("spread")
        expect(other.at("shape-ellipse")).to_have_attribute("aria-pressed", "true")
        assert np.abs(np.subtract(other.places(), tab_at_third_draw.places())).max() < 1


def test_the_snippets_for_shell_and_python_give_the_draw(tab_at_third_draw: Explorer, tmp_path: Path) -> None:
    """The snippets run unchanged and return the visible embedding."""
    expected = embedding(tab_at_third_draw, 2)
    tab_at_third_draw.at("show-curl").click()
    shell = tab_at_third_draw.at("lines").inner_text()
    (tmp_path / "lines.sh").write_text(f"set -e\n{shell}\n")
    subprocess.run(["bash", "lines.sh"], cwd=tmp_path, check=True, capture_output=True, timeout=60)  # noqa: S607 -- the shell on PATH
    np.testing.assert_array_equal(np.load(tmp_path / "draw.npy"), expected)
    tab_at_third_draw.at("show-python").click()
    python = tab_at_third_draw.at("lines").inner_text()
    tab_at_third_draw.save_picture("lines")
    code = f"{python}\nimport numpy as np\nnp.save('python.npy', embedding)\n"
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, timeout=60)
    np.testing.assert_array_equal(np.load(tmp_path / "python.npy"), expected)
