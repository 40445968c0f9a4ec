"""A small fuzzing run with fixed requests; `make fuzz` runs the large one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qa.inputs.fuzz.running import broken, fuzz

if TYPE_CHECKING:
    from pathlib import Path

    from tests.system.conftest import Guarded


def test_fuzzed_requests_keep_the_contract(guarded: Guarded, tmp_path: Path) -> None:
    """No 500, no undocumented status, type or schema; valid requests succeed, invalid ones fail."""
    more = ("--phases", "fuzzing,stateful", "--max-examples", "2", "--seed", "1")
    done = fuzz(guarded.url, tmp_path, guarded.key, *more)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No issues found" in done.stdout
    assert broken(guarded.url, guarded.key) == []
