"""The installed browser of this machine, driven by playwright."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def run_browser() -> Iterator[Browser]:
    """Run the browser without a window and close it at the end."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 -- an optional dependency (group `ui`)

    path = next((path for name in NAMES if (path := shutil.which(name))), None)
    assert path, f"No browser: install one of {', '.join(NAMES)}."
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path)
        yield browser
        browser.close()
