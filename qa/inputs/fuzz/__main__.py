"""`make -C qa fuzz`: start a service with small limits, and let schemathesis send it random requests.

The exit code is that of schemathesis, or 1 if a job failed by a fault of the service.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from qa.frame import say
from qa.inputs.fuzz.running import LIMITS, broken, fuzz, make_key
from tests.system.conftest import running


def main() -> int:
    """Run schemathesis with the options of the command line, and print the service's log if it finds something."""
    with tempfile.TemporaryDirectory(prefix="glle-fuzz-") as folder, running(Path(folder), **LIMITS) as up:
        key = make_key(Path(folder))
        done = fuzz(up.url, Path(folder), key, *sys.argv[1:])
        say(done.stdout, done.stderr)
        faults = broken(up.url, key)
        if done.returncode or faults:
            say(up.log.read_text(), *faults)
    return done.returncode or bool(faults)


if __name__ == "__main__":
    sys.exit(main())
