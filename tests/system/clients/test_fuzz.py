"""A small fuzzing run with fixed requests; `make fuzz` runs the large one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qa.inputs.fuzz.running import LIMITS, broken, fuzz, make_key
from tests.system.conftest import ONE_EACH, running

if TYPE_CHECKING:
    from pathlib import Path


def test_fuzzed_requests_keep_the_contract(tmp_path: Path) -> None:
    """No 500, no undocumented status, type or schema; valid requests succeed, invalid ones fail."""
    with running(tmp_path, **LIMITS, **ONE_EACH) as up:
        key = make_key(tmp_path)
        done = fuzz(up.url, tmp_path, key, "--phases", "fuzzing,stateful", "--max-examples", "2", "--seed", "1")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "No issues found" in done.stdout
        assert broken(up.url, key) == []
