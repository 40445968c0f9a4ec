"""Make clients of the contract by two generators, and run their pages: `python -m qa.inputs.clients`.

Without node, npm or npm's registry the TypeScript page is not checked: the program says so on stderr and goes on, or
exits with 1 if NPM=required is in the environment.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from qa.inputs.clients.journeys import run_python, run_typescript
from qa.inputs.clients.npm import UnavailableError, install
from tests.system.conftest import ONE_EACH, running

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = Path(__file__).parent
MODES = ("optional", "required")


def main() -> int:
    """Check both clients; return 0, or 1 for a failure."""
    mode = os.environ.get("NPM") or "optional"
    if mode not in MODES:
        sys.stderr.write(f"NPM={mode!r} is unknown. Use one of {', '.join(MODES)}.\n")
        return 1
    try:
        install(FOLDER)
    except UnavailableError as error:
        sys.stderr.write(f"SKIPPED: {error} The TypeScript page is unchecked. NPM={mode}.\n")
        return 1 if mode == "required" else check(run_python)
    return check(run_python, run_typescript)


def check(*pages: Callable[[Path, str], str]) -> int:
    """Run pages against one service; return 0, or 1 for a failure."""
    with tempfile.TemporaryDirectory(prefix="glle-clients-") as name, running(Path(name), **ONE_EACH) as up:
        for page in pages:
            folder = Path(name, page.__name__)
            folder.mkdir()
            try:
                sys.stdout.write(f"{page(folder, up.url)}\n")
            except RuntimeError as error:
                sys.stderr.write(f"{error}\n")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
