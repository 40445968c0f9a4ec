"""`make -C qa mutations`: try random changes of logic, and print those that the tests of the same folder do not find.

Each change is made in a copy of the project, one at a time, and the tests of the changed file run, then those of its
folder, until one fails. A change that none finds is printed with its line: it is equivalent, or a test is missing.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from qa.frame import ROOT, say
from qa.mutations.changes import find_changes

ROOMS = {"glle": "client", "glle_engine": "engine", "service": "service", "worker": "worker"}  # and their tests
COMPILED = b"@compiled"  # kernels, which would be compiled again for each change
GOAL = 0.85
SECONDS = 300.0  # of the tests of one change; a change that makes them endless is found


def main() -> int:
    """Try changes; return 1 if fewer than `GOAL` of them are found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--room", choices=ROOMS, help="only this package")
    options = parser.parse_args()
    chosen = random.Random(options.seed)  # noqa: S311 # no secret
    rooms = [options.room] if options.room else list(ROOMS)
    sources = [path for room in rooms for path in sorted((ROOT / room).rglob("*.py")) if tests_of(path)]
    tried = missed = 0
    with tempfile.TemporaryDirectory(prefix="glle-mutations-") as folder:
        copy = Path(folder) / "glle"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "out", "__pycache__"))
        while tried < options.changes:
            path = chosen.choice(sources)
            source = path.read_bytes()
            changes = [] if COMPILED in source else find_changes(source)
            if not changes:
                continue
            change = chosen.choice(changes)
            changed = copy / path.relative_to(ROOT)
            changed.write_bytes(change.apply(source))
            is_found = any(fails(copy, tests) for tests in tests_of(path))
            changed.write_bytes(source)
            tried, missed = tried + 1, missed + (not is_found)
            where = f"{path.relative_to(ROOT)}:{change.line}"
            say(f"{'found    ' if is_found else 'NOT FOUND'} {where}: {change.before!r} -> {change.after!r}")
    say(f"{tried - missed} of {tried} changes were found.")
    return int(tried - missed < GOAL * tried)


def tests_of(path: Path) -> list[Path]:
    """Return the tests of a source file and those of its folder, as far as they exist, in the order to run."""
    room, *folders, _ = path.relative_to(ROOT).parts
    folder = Path("tests", ROOMS[room], *folders)
    own = folder / f"test_{path.stem}.py"
    return [each for each in (own, folder) if (ROOT / each).exists()]


def fails(copy: Path, tests: Path) -> bool:
    """Return whether tests fail in the copy."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", str(tests)]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        result = subprocess.run(  # our own interpreter
            command, cwd=copy, env=environment, capture_output=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    return result.returncode == 1


if __name__ == "__main__":
    raise SystemExit(main())
