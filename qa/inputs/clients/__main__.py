"""Check the TypeScript client against a running service: `python -m qa.inputs.clients`.

Without node, npm or npm's registry nothing is checked: the program says so on stderr and exits with 0, or with 1 if
NPM=required is in the environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from qa.inputs.clients.npm import UnavailableError, install
from tests.system.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PUBLISHED = ROOT / "clients" / "typescript"
TESTS = (
    "tests/system/clients/test_typescript.py",
    "tests/docs/test_examples.py",
    "tests/docs/test_tutorials.py",
)
MODES = ("optional", "required")


def main() -> int:
    """Check the published client; return 0, or 1 for a failure."""
    mode = os.environ.get("NPM") or "optional"
    if mode not in MODES:
        sys.stderr.write(f"NPM={mode!r} is unknown. Use one of {', '.join(MODES)}.\n")
        return 1
    try:
        install(PUBLISHED)
    except UnavailableError as error:
        sys.stderr.write(f"SKIPPED: {error} The TypeScript client is unchecked. NPM={mode}.\n")
        return int(mode == "required")
    return check_published()


def check_published() -> int:
    """Compile the published client with its types, and run its tests, the journey and the tutorial."""
    for script in ("build", "test"):
        if code := _run(["npm", "run", "--silent", script], PUBLISHED):
            return code
    selected = [*TESTS, "-k", "typescript or journey", "-m", "", "-n0", "-q", "-o", "timeout=900"]
    return _run([sys.executable, "-m", "pytest", *selected], ROOT, TYPESCRIPT="checked")


def _run(command: list[str], folder: Path, **environment: str) -> int:
    return subprocess.run(command, cwd=folder, env={**os.environ, **environment}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
