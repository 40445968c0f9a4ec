"""Tests change clocks only through one module."""

from __future__ import annotations

import re
from pathlib import Path

THIS_FILE = Path(__file__).parent
CLOCK_PATCH = re.compile(r"""setattr\((["'][\w.]+\.)?(time|asyncio|anyio|datetime)(,\s*["']|\.\w+["'])""")


def test_no_test_patches_the_process_clock() -> None:
    """Servers in other threads have event loops that sleep by the process's clock; a patched clock would hang them."""
    texts = ((path, path.read_text(encoding="utf-8")) for path in THIS_FILE.rglob("*.py") if path != Path(__file__))
    assert [str(path) for path, text in texts if CLOCK_PATCH.search(text)] == []
