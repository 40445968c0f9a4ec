"""Tests change clocks only through one module."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

THIS_FILE = Path(__file__).parent
CLOCK_PATCH = re.compile(r"""setattr\((["'][\w.]+\.)?(time|asyncio|anyio|datetime)(,\s*["']|\.\w+["'])""")


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ('monkeypatch.setattr(time, "time", lambda: later)', True),
        ('monkeypatch.setattr("worker.storage.api_keys.time.monotonic", lambda: now)', True),
        ('monkeypatch.setattr("worker.storage.api_keys.time", SimpleNamespace(monotonic=lambda: now))', False),
        ('monkeypatch.setattr("worker.execution.parent.RETRY_DELAY_SECONDS", 0)', False),
    ],
)
def test_patched_clock_is_found(line: str, *, is_found: bool) -> None:
    """A patched clock function is found under any import name."""
    assert bool(CLOCK_PATCH.search(line)) is is_found


def test_no_test_patches_the_process_clock() -> None:
    """Servers in other threads have event loops that sleep by the process's clock; a patched clock would hang them."""
    texts = ((path, path.read_text(encoding="utf-8")) for path in THIS_FILE.rglob("*.py") if path != Path(__file__))
    assert [str(path) for path, text in texts if CLOCK_PATCH.search(text)] == []
