"""`make fuzz`: a service on a free port, with embedded servers and small limits, fuzzed; exits as schemathesis does."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.fuzz.running import LIMITS, fuzz
from tests.system.conftest import running


def main() -> int:
    """Run it with the options of `schemathesis run`; the service's log is shown when something was found."""
    with tempfile.TemporaryDirectory(prefix="glle-fuzz-") as folder, running(Path(folder), **LIMITS) as up:
        done = fuzz(up.url, Path(folder), *sys.argv[1:])
        print(done.stdout, done.stderr, sep="\n")  # noqa: T201 # the command's output
        if done.returncode:
            print(up.log.read_text())  # noqa: T201 # likewise
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
