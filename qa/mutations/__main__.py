"""`make -C qa mutations`: try random changes of logic, and print those that the nearest tests do not find.

Each change is made in a copy of the project, one at a time. The tests of the changed file run first, then the tests
that import the file, then the tests of its folder. The first failure ends the run, and the failed test must pass
without the change. Some changes leave the program as it was, so that no test can find them: they have a line with the
reason in `equivalent.txt`, and do not count.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

from qa.frame import ROOT, say
from qa.mutations.changes import Change, find_changes

ROOMS = {"glle": "client", "glle_engine": "engine", "service": "service", "worker": "worker"}  # and their tests
_EVERY_METHOD = [f"tests/engine/methods/test_{name}.py" for name in ("refusals", "every_method", "maps")]
# Tests of packages that are tested by what uses them.
ELSEWHERE = {
    "glle_engine/tables": ["tests/client/test_same_table.py", "tests/service/uploads"],
    "service/encoding": ["tests/service/middleware/test_http.py", "tests/service/schemas/test_labels.py"],
    "service/responses": ["tests/service/encoding"],
    "service/routes": ["tests/service/submission"],
    "service/schemas": ["tests/service/routes"],
    "service/submission": ["tests/service/routes"],
    "worker/records": ["tests/worker/jobs"],
    **{
        f"glle_engine/methods/{family}": _EVERY_METHOD
        for family in ("entropy", "linear", "lle_variants", "neighbor_embedding", "spectral")
    },
}
COMPILED = b"@compiled"  # kernels, which would be compiled again for each change
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
GOAL = 0.85
PROCESSES = 2
SECONDS = 1200.0  # of tests of one change; pytest ends a single test that is endless earlier
_FAILED = re.compile(r"^(?:FAILED|ERROR) ((?:tests|qa)/.+?)(?: - |$)", re.MULTILINE)  # in pytest's summary


@dataclass(frozen=True)
class Mutant:
    """A change of a source file; `path` is relative to the top of the repository."""

    path: Path
    change: Change

    @property
    def name(self) -> str:
        """A name for the change that stays the same when its line number changes."""
        before = " ".join(self.change.before.split())
        return f"{self.path}: {self.change.function}: {before} -> {self.change.after}"

    def rank(self, seed: int) -> bytes:
        """Return a random sort key, which depends on nothing but the change and the seed."""
        return hashlib.sha256(f"{seed} {self.name} {self.change.start}".encode()).digest()


def main() -> int:
    """Try randomly chosen changes; return 1 if the tests find fewer than 85 % of them.

    Changes in `equivalent.txt`, which leave the program as it was, do not count.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only changes whose path, function or text contains this")
    options = parser.parse_args()
    mutants = [each for each in find_mutants() if options.only in each.name]
    chosen = sorted(mutants, key=lambda each: each.rank(options.seed))[: options.changes]
    equivalent = read_equivalent()
    tried = [each for each in chosen if each.name not in equivalent]
    with tempfile.TemporaryDirectory(prefix="glle-mutations-") as folder:
        copies: Queue[Path] = Queue()
        for i in range(PROCESSES):
            copies.put(
                shutil.copytree(ROOT, Path(folder, str(i)), ignore=shutil.ignore_patterns(".*", "out", "__pycache__"))
            )
        with ThreadPoolExecutor(PROCESSES) as threads:
            failed = list(threads.map(lambda each: try_mutant(each, copies), tried))
        copy, by_chance = copies.get(), set[str]()
        names = {name for name in failed if name}
        while broken := first_failed(copy, sorted(names - by_chance)) if names - by_chance else None:
            say(f"{broken} fails without a change, too.")
            by_chance.add(broken)
    missed = [each.name for each, name in zip(tried, failed, strict=True) if name is None or name in by_chance]
    say("Not found:", *missed)
    say(f"{len(tried) - len(missed)} of {len(tried)} changes were found; {len(chosen) - len(tried)} are equivalent.")
    return int(len(missed) > (1 - GOAL) * len(tried))


def find_mutants() -> list[Mutant]:
    """Return every possible change of the product, except in files with compiled kernels."""
    paths = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    sources = {path.relative_to(ROOT): path.read_bytes() for path in paths}
    return [
        Mutant(path, change)
        for path, source in sources.items()
        if COMPILED not in source
        for change in find_changes(source)
    ]


def read_equivalent() -> dict[str, str]:
    """Return the changes in `equivalent.txt`, by name, with the reasons why no test can find them."""
    lines = [line for line in EQUIVALENT.read_text("utf-8").splitlines() if not line.startswith("#")]
    return {name: reason for name, _, reason in (line.rpartition("  # ") for line in lines)}


def try_mutant(mutant: Mutant, copies: Queue[Path]) -> str | None:
    """Make a change in a free copy of the project, and run the nearest tests there.

    Prints the result, and returns the name of the first test that fails, or None if all pass.
    """
    copy = copies.get()
    changed = copy / mutant.path
    source = changed.read_bytes()
    changed.write_bytes(mutant.change.apply(source))
    results = (first_failed(copy, tests) for tests in tests_of(mutant.path))
    failed = next((name for name in results if name), None)
    changed.write_bytes(source)
    copies.put(copy)
    say(f"{'found    ' if failed else 'NOT FOUND'} {mutant.name} (line {mutant.change.line}) {failed or ''}")
    return failed


def tests_of(path: Path) -> list[list[str]]:
    """Return lists of tests to run for a source file, in this order: its own test file, files that import it, the rest.

    The rest are the other tests of the folder that mirrors the file's package.
    """
    room, *folders, _ = path.parts
    folder = Path("tests", ROOMS[room], *folders)
    package, _, name = ".".join(path.with_suffix("").parts).removesuffix(".__init__").rpartition(".")
    names = rf"(?:{re.escape(package)}\.{name} import|{re.escape(package)} import .*\b{name}\b)"
    imports = re.compile(rf"^ *from {names}", re.MULTILINE)
    tests = [file for each in ROOMS.values() for file in (ROOT / "tests" / each).rglob("test_*.py")]
    files = [file for file in tests if imports.search(file.read_text("utf-8"))]
    named = [str(folder / f"test_{path.stem}.py")] if (ROOT / folder / f"test_{path.stem}.py").exists() else []
    importing = [file for file in sorted(str(each.relative_to(ROOT)) for each in files) if file not in named]
    while not (ROOT / folder).exists():
        folder = folder.parent
    others = [str(folder), *ELSEWHERE.get(str(path.parent), []), *(f"--ignore={file}" for file in [*named, *importing])]
    is_whole_room = len(folder.parts) == 2 and room != "glle"  # whose tests take too long
    return [tests for tests in (named, importing, [] if is_whole_room and (named or importing) else others) if tests]


def first_failed(copy: Path, tests: list[str]) -> str | None:
    """Run tests in a copy of the project; return the name of the first that fails, or None."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    try:
        result = subprocess.run(  # our own interpreter
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return tests[0]
    if result.returncode in {0, 5}:  # passed, or without a test
        return None
    match = _FAILED.search(result.stdout)
    return match[1] if match else tests[0]


if __name__ == "__main__":
    raise SystemExit(main())
