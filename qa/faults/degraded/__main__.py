"""`python -m qa.faults.degraded`: faults of servers, disks and network, and the answers that clients get.

It prints a table, and ends with 1 unless nothing was wrong, nothing lost, every answer 2xx or 503 (507 of a full data
folder), and all of it was well again by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from qa.faults.degraded.running import run
from qa.faults.degraded.situations import NOTHING

_ALONE = "DEGRADED_MOUNTS"


def main() -> int:
    """Run the situations whose names have the word that is given, or all."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("word", nargs="?", default="", help="only situations whose names have it")
    options.add_argument("--out", type=Path, help="folder for the table as JSON, and for the logs")
    chosen = options.parse_args()
    if _ALONE not in os.environ and _may_mount():  # in a separate namespace, so that no mount outlives it
        command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", "qa.faults.degraded"]
        return subprocess.run([*command, *sys.argv[1:]], env={**os.environ, _ALONE: "1"}, check=False).returncode
    with tempfile.TemporaryDirectory(prefix="glle-degraded-") as folder:
        found = run(Path(folder), chosen.word, alone=_ALONE in os.environ)
        if chosen.out:
            chosen.out.mkdir(parents=True, exist_ok=True)
            (chosen.out / "degraded.json").write_text(json.dumps([row.to_dict() for row in found], indent=1))
            for log in Path(folder).rglob("*.log"):
                shutil.copy(log, chosen.out / f"{log.parent.name}-{log.name}")
    usual = max((row.worst for row in found if row.name == NOTHING), default=0.0)  # of this machine, as busy as it is
    return int(not all(row.is_well(usual) for row in found))


def _may_mount() -> bool:
    """Say whether mount and network namespaces can be had: root can, where nothing forbids it."""
    unshare = shutil.which("unshare")
    if unshare is None or not all(map(shutil.which, ("mount", "ip", "nft", "nsenter"))):
        return False
    asked = [unshare, "--mount", "--net", "true"]
    return subprocess.run(asked, check=False, stderr=subprocess.DEVNULL).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
