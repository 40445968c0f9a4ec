"""What is taken away: pictures, numbers, a link, and lines that do the same."""

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
def drawn(explorer: Explorer, link: str) -> Explorer:
    """A tab at the third of six draws."""
    explorer.open(link)
    explorer.wait_drawn()
    explorer.at("scrub").fill("3")
    expect(explorer.at("frame-name")).to_contain_text("Draw 2")
    return explorer


def saved(explorer: Explorer, kind: str) -> tuple[str, bytes]:
    """Return the name and the content of what a button saves."""
    with explorer.page.expect_download() as result:
        explorer.at(f"export-{kind}").click()
    return result.value.suggested_filename, Path(result.value.path()).read_bytes()


def embedding(explorer: Explorer, index: int) -> np.ndarray:
    """Return a draw as the service has it."""
    path = f"{explorer.url}/v1/posteriors/{explorer.state('posterior')['id']}/draws/{index}?wait=30"
    return np.asarray(np.load(io.BytesIO(httpx.get(path, headers={"Accept": "application/x-npy"}).content)))


def test_npy_and_csv_are_the_draw_that_is_shown(drawn: Explorer) -> None:
    """All digits of the service's own numbers, under a name that says which draw."""
    expected = embedding(drawn, 2)
    name, content = saved(drawn, "npy")
    assert name == "draw-2.npy"
    np.testing.assert_array_equal(np.load(io.BytesIO(content)), expected)
    name, content = saved(drawn, "csv")
    assert name == "draw-2.csv"
    np.testing.assert_allclose(np.loadtxt(io.BytesIO(content), delimiter=",", skiprows=1)[:, -2:], expected, rtol=1e-12)


def test_png_and_svg_are_the_picture(drawn: Explorer) -> None:
    """A picture with more than one colour; as SVG a circle for every row."""
    _, png = saved(drawn, "png")
    assert png.startswith(b"\x89PNG")
    assert len(png) > 5000
    _, svg = saved(drawn, "svg")
    circles = ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}circle")  # noqa: S314 -- what the page itself wrote
    assert len(list(circles)) == 150


def test_the_link_shows_the_same_again(drawn: Explorer, tab: Callable[..., AbstractContextManager[Explorer]]) -> None:
    """Seed, draw, scale, colour and shape: another tab shows the same points at the same places."""
    drawn.at("shape-ellipse").click()
    drawn.at("color").select_option("spread")
    drawn.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    drawn.at("copy-link").click()
    expect(drawn.at("export")).to_contain_text("Link copied")
    address = drawn.page.evaluate("navigator.clipboard.readText()")
    with tab(drawn.url) as other:
        other.open(address.removeprefix(drawn.url))
        other.wait_drawn()
        expect(other.at("frame-name")).to_contain_text("Draw 2")
        expect(other.at("color")).to_have_value("spread")
        expect(other.at("shape-ellipse")).to_have_attribute("aria-pressed", "true")
        assert np.abs(np.subtract(other.places(), drawn.places())).max() < 1


def test_the_lines_for_a_shell_and_for_python_do_the_same(drawn: Explorer, tmp_path: Path) -> None:
    """Run as they stand they give the embedding that is shown."""
    expected = embedding(drawn, 2)
    drawn.at("show-curl").click()
    shell = drawn.at("lines").inner_text()
    (tmp_path / "lines.sh").write_text(f"set -e\n{shell}\n")
    subprocess.run(["bash", "lines.sh"], cwd=tmp_path, check=True, capture_output=True, timeout=60)  # noqa: S607 -- a shell, wherever it is
    np.testing.assert_array_equal(np.load(tmp_path / "draw.npy"), expected)
    drawn.at("show-python").click()
    python = drawn.at("lines").inner_text()
    drawn.keep("lines")
    code = f"{python}\nimport numpy as np\nnp.save('python.npy', embedding)\n"
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, timeout=60)
    np.testing.assert_array_equal(np.load(tmp_path / "python.npy"), expected)
