"""Log lines of a running service."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from tests.conftest import until

if TYPE_CHECKING:
    from tests.system.conftest import Up

HEARTBEATS = 4.0  # seconds, of one each


def test_an_idle_service_logs_nothing(up: Up) -> None:
    """Once the events of the tests before are over, heartbeats and maintenance write no line at level info."""

    def is_silent() -> bool:
        before = up.log.read_text()
        time.sleep(HEARTBEATS)
        return up.log.read_text() == before

    until(is_silent)


def test_the_status_is_one_screen_with_an_address(up: Up) -> None:
    """Address, explorer, documentation, processes, data folder, and how to stop the service; no terminal codes."""
    text = up.log.read_text()
    start = text.index("glle is ready at ")
    status = text[start:].splitlines()[:6]
    assert status == [
        f"glle is ready at {up.url}",
        f"  explorer       {up.url}/",
        f"  documentation  {up.url}/docs",
        "  processes      API processes: 2, workers: 2, embedded Redis",
        f"  data           {up.log.parent / 'data'}",
        "  stop           Ctrl-C",
    ]
    assert "\x1b" not in text
    assert "\r" not in text
    assert len(re.findall(r"Worker \S+ started", text)) >= 2, "an event of each worker"
