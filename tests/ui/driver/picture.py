"""The README's picture of the explorer: `python -m tests.ui.driver.picture`."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from tests.system.conftest import running
from tests.ui.driver.browser import run_browser
from tests.ui.driver.explorer import Explorer

PICTURE = Path(__file__).resolve().parents[3] / "docs" / "images" / "explorer.png"
MAX_BYTES = 250_000


def main() -> None:
    """Open the example, a map of the digits by UMAP with its verdict, and save a screenshot."""
    with TemporaryDirectory() as folder, running(Path(folder)) as up, run_browser() as browser:
        page = browser.new_page(viewport={"width": 1366, "height": 820}, color_scheme="light")
        page.set_default_timeout(30_000)
        explorer = Explorer(page, up.url)
        explorer.open_example()
        page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
        explorer.wait_still()
        Image.open(io.BytesIO(page.screenshot())).convert("RGB").save(PICTURE, optimize=True)
    size = PICTURE.stat().st_size
    if size > MAX_BYTES:
        sys.exit(f"{PICTURE} has {size} bytes; {MAX_BYTES} are the most.")


if __name__ == "__main__":
    main()
