"""The check of wheels asks the resolver for every platform and Python, and reports each lock that it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qa.audit.locks import LOCKS
from qa.audit.wheels import PLATFORMS, PYTHONS, main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def resolver(folder: Path, script: str) -> str:
    """Return the path of a stand-in for uv."""
    path = folder / "uv"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_every_combination_is_resolved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each lock is resolved once for each platform and Python, by wheels alone and with hashes."""
    calls = tmp_path / "calls"
    assert main(uv=resolver(tmp_path, f'echo "$@" >> {calls}')) == 0
    lines = calls.read_text().splitlines()
    assert len(set(lines)) == len(LOCKS) * len(PLATFORMS) * len(PYTHONS)
    assert all("--only-binary :all:" in line and "--require-hashes" in line for line in lines)
    assert "0 failed" in capsys.readouterr().out


def test_a_missing_wheel_fails_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report names lock, platform and Python, and repeats the resolver's reason."""
    refuses = 'case "$*" in *aarch64-manylinux*3.14*) echo "no wheel of thing" >&2; exit 1;; esac'
    assert main(LOCKS[:1], resolver(tmp_path, refuses)) == 1
    output = capsys.readouterr()
    assert output.err == f"{LOCKS[0].name}, Linux on aarch64, Python 3.14: no wheel of thing\n"
    assert " 1 failed" in output.out
