"""`python -m qa.faults.degraded`: cause faults of Redis servers and disks under load, and check the answers.

The program prints a table. The exit code is 0 if every answer is right, or 503 (507 for a full data folder), nothing is
lost, and the service recovers without help.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from qa.faults.degraded.running import run
from qa.faults.degraded.situations import NOTHING
from qa.frame import write_report

_ALONE = "DEGRADED_MOUNTS"


def main() -> int:
    """Run the situations whose names contain the word on the command line, or all; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("word", nargs="?", default="", help="run only situations whose names contain this word")
    parser.add_argument("--out", type=Path, help="folder for the table as JSON, and for the logs")
    options = parser.parse_args()
    if _ALONE not in os.environ and _may_mount():  # in a separate mount namespace, so that no mount outlives the run
        command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", "qa.faults.degraded"]
        return subprocess.run([*command, *sys.argv[1:]], env={**os.environ, _ALONE: "1"}, check=False).returncode
    with tempfile.TemporaryDirectory(prefix="glle-degraded-") as folder:
        rows = run(Path(folder), options.word, can_mount=_ALONE in os.environ)
        if options.out:
            write_report(options.out / "degraded.json", [asdict(row) for row in rows])
            for log in Path(folder).rglob("*.log"):
                shutil.copy(log, options.out / f"{log.parent.name}-{log.name}")
    usual = max((row.worst for row in rows if row.name == NOTHING), default=0.0)  # of this machine under load
    return int(not all(row.is_well(usual) for row in rows))


def _may_mount() -> bool:
    """Return whether this process may make a mount namespace, in which it can mount small disks."""
    unshare = shutil.which("unshare")
    if unshare is None or shutil.which("mount") is None:
        return False
    command = [unshare, "--mount", "true"]
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
