"""Check TypeScript against a running service: `python -m qa.inputs.clients published`, or `generated`.

Without node, npm or npm's registry nothing is checked: the program says so on stderr and exits with 0, or with 1 if
NPM=required is in the environment.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from qa.inputs.clients.npm import UnavailableError, install
from tests.system.conftest import ONE_EACH, ROOT, running

FOLDER = Path(__file__).parent
GENERATORS = ("openapi_typescript", "hey_api")
PUBLISHED = ROOT / "clients" / "typescript"
TESTS = (
    "tests/system/clients/test_typescript.py",
    "tests/docs/test_examples.py",
    "tests/docs/test_tutorials.py",
)
MODES = ("optional", "required")


def main(arguments: list[str] | None = None) -> int:
    """Check the published client or the generated ones; return 0, or 1 for a failure."""
    parser = argparse.ArgumentParser(prog="python -m qa.inputs.clients", description=__doc__)
    parser.add_argument("clients", choices=("published", "generated"))
    which = parser.parse_args(arguments).clients
    mode = os.environ.get("NPM") or "optional"
    if mode not in MODES:
        sys.stderr.write(f"NPM={mode!r} is unknown. Use one of {', '.join(MODES)}.\n")
        return 1
    folders = [PUBLISHED] if which == "published" else [FOLDER / name for name in GENERATORS]
    try:
        for folder in folders:
            install(folder)
    except UnavailableError as error:
        sys.stderr.write(f"SKIPPED: {error} The {which} TypeScript clients are unchecked. NPM={mode}.\n")
        return int(mode == "required")
    return check_published() if which == "published" else check_generated(folders)


def check_published() -> int:
    """Compile the published client with its types, and run its tests, the journey and the tutorial."""
    for script in ("build", "test"):
        if code := _run(["npm", "run", "--silent", script], PUBLISHED):
            return code
    selected = [*TESTS, "-k", "typescript or journey", "-m", "", "-n0", "-q", "-o", "timeout=900"]
    return _run([sys.executable, "-m", "pytest", *selected], ROOT, TYPESCRIPT="checked")


def check_generated(folders: list[Path]) -> int:
    """Generate each client from openapi.json, compile it with a program that uses it, and run the program."""
    for folder in folders:
        for script in ("generate", "build"):
            if code := _run(["npm", "run", "--silent", script], folder):
                sys.stderr.write(f"{folder.name}: `npm run {script}` failed.\n")
                return code
    with tempfile.TemporaryDirectory() as data, running(Path(data), **ONE_EACH) as up:
        return max(_run(["node", "build/main.js"], folder, GLLE_URL=up.url) for folder in folders)


def _run(command: list[str], folder: Path, **environment: str) -> int:
    return subprocess.run(command, cwd=folder, env={**os.environ, **environment}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
