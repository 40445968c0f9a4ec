"""`make -C qa wheels`: check that wheels of every locked package exist, for every platform and Python version.

Only the resolver runs; nothing is installed. The exit code is 1 if a locked package has no wheel somewhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from qa.audit.advisories import LOCKS

if TYPE_CHECKING:
    from collections.abc import Sequence

UV = str(Path(sys.executable).with_name("uv"))
PLATFORMS = {
    "Linux on x86-64": "x86_64-manylinux_2_28",
    "Linux on aarch64": "aarch64-manylinux_2_28",
    "macOS 14 on arm64": "aarch64-apple-darwin",
}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def main(locks: Sequence[Path] = LOCKS, uv: str = UV) -> int:
    """Resolve each lock for each platform and Python, print what fails, and return the exit code."""
    runs = [(lock, platform, python) for lock in locks for platform in PLATFORMS for python in PYTHONS]
    failed = 0
    for lock, platform, python in runs:
        if problem := missing(lock, PLATFORMS[platform], python, uv):
            failed += 1
            sys.stderr.write(f"{lock.name}, {platform}, Python {python}: {problem}\n")
    sys.stdout.write(
        f"{len(runs)} of lock, platform and Python: {len(runs) - failed} resolved by wheels alone, {failed} failed.\n"
    )
    return int(failed > 0)


def missing(lock: Path, platform: str, python: str, uv: str = UV) -> str:
    """Return why uv cannot install a lock file from wheels alone on a platform; an empty text if it can."""
    options = ["--dry-run", "--quiet", "--no-config", "--require-hashes", "--only-binary", ":all:"]
    where = ["--python-platform", platform, "--python-version", python]
    with tempfile.TemporaryDirectory() as target:
        run = subprocess.run(
            [uv, "pip", "install", *options, *where, "--target", target, "--requirement", str(lock)],
            env={**os.environ, "MACOSX_DEPLOYMENT_TARGET": "14.0"},
            capture_output=True,
            text=True,
            check=False,
        )
    return run.stderr.strip() or f"exit code {run.returncode}" if run.returncode else ""


if __name__ == "__main__":
    sys.exit(main())
