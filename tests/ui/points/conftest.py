"""Fixture of the tests of points."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.ui.driver.explorer import Explorer


@pytest.fixture
def tab_with_draws(explorer: Explorer, link: str) -> Explorer:
    """Return a tab with six draws."""
    explorer.open(link)
    explorer.wait_drawn()
    return explorer
