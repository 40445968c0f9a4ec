"""One service and one browser for all explorer tests; one tab per test, which fails on any console error."""

from __future__ import annotations

from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.system.conftest import Up, fit_posterior, running, synthetic
from tests.ui.driver.browser import run_browser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from tests.ui.driver.explorer import Explorer, Tab

# Every test run collects this folder; only `make test-ui` runs it. Without playwright it is not collected.
collect_ignore_glob = [] if find_spec("playwright") else ["test_*.py", "*/test_*.py"]
FOLDER = Path(__file__).parent
LAPTOP = {"width": 1280, "height": 800}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder as `ui`."""
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.ui)


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Run one service for the session."""
    with running(tmp_path_factory.mktemp("ui")) as started:
        yield started


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Run one browser for the session."""
    with run_browser() as started:
        yield started


@pytest.fixture
def tab(browser: Browser) -> Tab:
    """Return a context manager of tabs; it fails at the end if a tab had an unexpected complaint."""

    @contextmanager
    def open_tab(url: str, **options: Any) -> Iterator[Explorer]:
        from tests.ui.driver.explorer import Explorer  # noqa: PLC0415 -- needs playwright, which may not be installed

        context = browser.new_context(**{"viewport": LAPTOP, "reduced_motion": "no-preference", **options})
        context.set_default_timeout(15_000)
        try:
            explorer = Explorer(context.new_page(), url)
            yield explorer
            assert explorer.unexpected_complaints() == []
        finally:
            context.close()

    return open_tab


@pytest.fixture
def explorer(tab: Tab, up: Up) -> Iterator[Explorer]:
    """Return a tab of a laptop's size, before it opens the page."""
    with tab(up.url) as opened:
        yield opened


@pytest.fixture(scope="session")
def link(up: Up) -> str:
    """Return a link to six cached draws of a fit of 150 points."""
    with httpx.Client(base_url=up.url, timeout=60) as client:
        posterior = fit_posterior(client, synthetic(client, 150, name="s_curve"), n_neighbors=8)
        assert client.get(f"{posterior}/summary?n_draws=6&scale=1&wait=60").status_code == 200
    return f"/#posterior={posterior.rsplit('/', 1)[1]}&n_draws=6"


@pytest.fixture
def tab_with_draws(explorer: Explorer, link: str) -> Explorer:
    """Return a tab with six draws."""
    explorer.open_draws(link)
    return explorer
